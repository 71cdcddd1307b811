//! npm.

use std::path::Path;

use serde_json::{Value, json};

use crate::{
    client::{get, get_with},
    index::{Index, Reply},
    managers::{Ran, found, run},
    packages::NpmPackage,
    served::Served,
};

const NPM: &str = "/usr/bin/npm";

async fn install(served: &Served, home: &Path, packages: &[&str]) -> Ran {
    std::fs::write(home.join("package.json"), "{\"private\": true}").unwrap();
    let registry = served.url("/npm/");
    let mut arguments =
        vec!["install", "--no-audit", "--no-fund", "--fetch-retries=0", "--registry", &registry];
    arguments.extend(packages);
    run(home, NPM, &arguments).await
}

fn packages() -> [NpmPackage; 2] {
    [NpmPackage::new("alpha", json!({"@scope/beta": "^1.0.0"})), NpmPackage::new("@scope/beta", json!({}))]
}

#[tokio::test(flavor = "multi_thread")]
async fn npm_installs_and_then_without_the_registry() {
    if found(NPM).is_none() {
        return;
    }
    let index = Index::of(packages().iter().flat_map(NpmPackage::pages)).await;
    let served = Served::before(&index).await;
    let first = tempfile::tempdir().unwrap();
    install(&served, first.path(), &["alpha"]).await.ok();
    let module = std::fs::read_to_string(first.path().join("node_modules/@scope/beta/index.js")).unwrap();
    assert_eq!(module, "module.exports = \"@scope/beta\";\n");
    // npm looks for a newer npm, whatever it is told.
    let asked: Vec<_> = index.paths().into_iter().filter(|path| path != "/npm/npm").collect();
    assert_eq!(asked.len(), 4, "each thing once: {asked:?}");

    let _away = index.stop().await;
    let second = tempfile::tempdir().unwrap();
    install(&served, second.path(), &["@scope/beta", "alpha"]).await.ok();
    assert!(second.path().join("node_modules/alpha/index.js").exists());
    assert_eq!(served.gateway.stats().misses, 4, "{:?}", served.gateway.stats());

    // A lock that was made elsewhere names the public registry's addresses; npm asks us in their stead.
    let lock = second.path().join("package-lock.json");
    let text = std::fs::read_to_string(&lock).unwrap();
    let public = text.replace(&served.url("/npm/"), "https://registry.npmjs.org/");
    assert_ne!(public, text);
    std::fs::write(&lock, public).unwrap();
    std::fs::remove_dir_all(second.path().join("node_modules")).unwrap();
    let registry = served.url("/npm/");
    let cache = second.path().join("other-cache");
    let arguments = [
        "ci",
        "--no-audit",
        "--no-update-notifier",
        "--registry",
        &registry,
        "--cache",
        cache.to_str().unwrap(),
    ];
    run(second.path(), NPM, &arguments).await.ok();
    assert!(second.path().join("node_modules/@scope/beta/index.js").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn npm_does_not_take_a_tarball_that_was_tampered_with() {
    if found(NPM).is_none() {
        return;
    }
    let [package, other] = packages();
    let [packument, (file, _)] = other.pages();
    let index = Index::of([packument, (file, Reply::file(package.tarball))]).await;
    let served = Served::before(&index).await;
    let home = tempfile::tempdir().unwrap();
    let ran = install(&served, home.path(), &["@scope/beta"]).await;
    assert!(!ran.succeeded, "{}", ran.output);
    assert!(!home.path().join("node_modules/@scope").exists());
    assert!(served.gateway.stats().mismatches > 0);
    assert_eq!(served.drafts(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn packuments_name_us_by_the_name_that_the_client_used() {
    let index = Index::of(packages().iter().flat_map(NpmPackage::pages)).await;
    let served = Served::before(&index).await;
    let accept = ("Accept", "application/vnd.npm.install-v1+json; q=1.0, application/json; q=0.8, */*");
    for path in ["/npm/@scope%2fbeta", "/npm/@scope/beta"] {
        let answer = get_with(served.address, path, &[accept]).await;
        assert_eq!(answer.headers["content-type"], "application/vnd.npm.install-v1+json");
        assert!(answer.is_complete());
        let packument: Value = serde_json::from_slice(&answer.body).unwrap();
        assert_eq!(
            packument["versions"]["1.0.0"]["dist"]["tarball"],
            served.url("/npm/@scope/beta/-/beta-1.0.0.tgz")
        );
        let etag = answer.headers["etag"].clone();
        let again = get_with(served.address, path, &[accept, ("If-None-Match", &etag)]).await;
        assert_eq!(again.status, 304);
    }
    let full = get(served.address, "/npm/alpha").await;
    assert_eq!(full.headers["content-type"], "application/json");
    let accepted: Vec<_> = index.asked().into_iter().map(|asked| asked.headers["accept"].clone()).collect();
    assert_eq!(accepted, [accept.1, "application/json"]);
    let tarball = get(served.address, "/npm/@scope%2fbeta/-/beta-1.0.0.tgz").await;
    assert_eq!(tarball.body, packages()[1].tarball);
    assert_eq!(get(served.address, "/npm/alpha/-/alpha-9.9.9.tgz").await.status, 404);
}

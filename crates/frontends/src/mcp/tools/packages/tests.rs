//! Package tools, with an npm of our own: a script where its program would be.

use std::sync::Arc;

use engine::{PackageGateway, PortStream};
use futures_util::{FutureExt, future::BoxFuture};
use sandbox::{PackageManager, Result, SandboxId};
use serde_json::{Value, json};

use crate::mcp::testing::Client;

#[derive(Debug)]
pub(crate) struct NoIndex;

impl PackageGateway for NoIndex {
    fn open(&self) -> Result<()> {
        Ok(())
    }

    fn serve(&self, _: PortStream, _: Option<PackageManager>, _: &SandboxId) -> BoxFuture<'static, ()> {
        std::future::ready(()).boxed()
    }

    fn apt_sources(&self, _: &str) -> Result<String> {
        Ok(String::new())
    }
}

async fn with_npm(script: &str) -> Client {
    let client = Client::with_packages(Arc::new(NoIndex)).await;
    // The managers of the host are not among those of its sandboxes.
    client.data("sandbox_create", json!({ "name": "box", "env": { "PATH": "/opt/managers" } })).await;
    let script = format!("#!/bin/sh\nPATH=/usr/bin:/bin\n{script}\n");
    let write = json!({ "name": "box", "path": "/opt/managers/npm", "content": script, "mode": "755" });
    client.data("sandbox_fs_write", write).await;
    client
}

async fn install(client: &Client, wait: u64) -> Value {
    let arguments =
        json!({ "name": "box", "packages": ["left-pad"], "manager": "npm", "waitMs": wait * 1000 });
    client.ask("sandbox_package_install", arguments).await
}

const ADDS: &str = r#"echo '{"dependencies":{"left-pad":{"version":"1.3.0"},"other":{"version":"2"}}}'"#;

#[tokio::test]
async fn a_quick_install_is_answered_with_its_versions() {
    let client = with_npm(ADDS).await;
    let answer = install(&client, 60).await;
    let data = &answer["data"];
    assert_eq!(
        (&data["state"], &data["installed"]),
        (&json!("installed"), &json!([{ "name": "left-pad", "version": "1.3.0" }])),
        "{answer:#}"
    );
    let listed = client.data("sandbox_package_list", json!({ "name": "box", "filter": "OTH" })).await;
    assert_eq!(listed["managers"][0]["packages"], json!([{ "name": "other", "version": "2" }]));
    let jobs = client.data("sandbox_package_status", json!({ "name": "box" })).await;
    assert_eq!(
        (&jobs["jobs"][0]["jobId"], &jobs["jobs"][0]["state"]),
        (&data["jobId"], &json!("installed")),
        "{jobs:#}"
    );
    let status = json!({ "name": "box", "package": "other", "manager": "npm" });
    assert_eq!(client.data("sandbox_package_status", status).await["state"], "installed");
    let answer = client
        .ask("sandbox_package_status", json!({ "name": "box", "package": "absent", "manager": "npm" }))
        .await;
    assert_eq!(answer["data"]["state"], "not_installed");
    assert!(answer["warnings"][0].as_str().unwrap().contains("sandbox_package_install"), "{answer:#}");
}

#[tokio::test]
async fn a_slow_install_is_answered_with_the_next_call() {
    let client = with_npm("sleep 1000").await;
    let answer = install(&client, 0).await;
    assert_eq!(answer["data"]["state"], "installing", "{answer:#}");
    let job = answer["data"]["jobId"].as_str().unwrap();
    let warning = answer["warnings"][0].as_str().unwrap();
    assert!(warning.contains("sandbox_package_status") && warning.contains(job), "{warning}");
    let status = json!({ "name": "box", "jobId": job, "wait": 0 });
    assert_eq!(client.data("sandbox_package_status", status).await["state"], "installing");
    client.data("sandbox_stop", json!({ "name": "box", "force": true })).await;
    let status = json!({ "name": "box", "jobId": job, "wait": 60 });
    assert_eq!(client.data("sandbox_package_status", status).await["state"], "failed");
}

#[tokio::test]
async fn a_failed_install_says_why_and_where_the_log_is() {
    let client = with_npm("echo 'npm error code E404' >&2; exit 1").await;
    let answer = install(&client, 60).await;
    let data = &answer["data"];
    assert_eq!(data["state"], "failed", "{answer:#}");
    assert!(data["message"].as_str().unwrap().contains("E404") && data["log"][0] == "npm error code E404");
    let exec = data["execSessionId"].as_str().unwrap();
    assert!(answer["warnings"][0].as_str().unwrap().contains(exec));
    let page = client.data("sandbox_exec_poll", json!({ "execSessionId": exec })).await;
    assert!(page.to_string().contains("E404"), "{page:#}");
}

#[tokio::test]
async fn bad_requests_name_the_next_call() {
    let client = with_npm(ADDS).await;
    for arguments in [
        json!({ "name": "box" }),
        json!({ "name": "box", "packages": ["--index-url=http://evil/"] }),
        json!({ "name": "box", "package": "http://evil/x.whl" }),
        json!({ "name": "box", "package": "x", "wait": -1 }),
        json!({ "name": "box", "package": "x", "manager": "brew" }),
    ] {
        client.error("sandbox_package_install", arguments, "invalid_request").await;
    }
    let wrong = json!({ "name": "box", "jobId": "pkg-nonsense" });
    let error = client.error("sandbox_package_status", wrong, "not_found").await;
    assert!(
        error["hint"].as_str().unwrap().contains(r#"sandbox_package_status {"name":"box"}"#),
        "{error:#}"
    );
    let none = client.ask("sandbox_package_status", json!({ "name": "box" })).await;
    assert_eq!(none["data"], json!({ "jobs": [] }));
    assert!(none["warnings"][0].as_str().unwrap().contains("sandbox_package_list"), "{none:#}");
    client.data("sandbox_stop", json!({ "name": "box", "force": true })).await;
    let error = client
        .error("sandbox_package_install", json!({ "name": "box", "package": "x" }), "wrong_state")
        .await;
    assert!(error["hint"].as_str().unwrap().contains("sandbox_start"), "{error:#}");
}

#[tokio::test]
async fn npm_installs_where_the_project_is_and_only_a_failure_has_a_log() {
    let answer = r#"echo '{"dependencies":{"a":{"version":"1"}}}'"#;
    let client = with_npm(&format!("pwd >>/tmp/places\n[ -e package.json ] || exit 1\n{answer}")).await;
    let write = json!({ "name": "box", "path": "/srv/app/package.json", "content": "{}" });
    client.data("sandbox_fs_write", write).await;
    let install = json!({ "name": "box", "manager": "npm", "cwd": "/srv/app", "waitMs": 60_000 });
    let done = client.data("sandbox_package_install", install).await;
    assert_eq!(
        (&done["state"], &done["installed"][0]["name"], done.get("log")),
        (&json!("installed"), &json!("a"), None),
        "{done:#}"
    );
    let places = json!({ "name": "box", "path": "/tmp/places" });
    assert_eq!(
        client.data("sandbox_fs_read", places).await["content"].as_str().unwrap().lines().next(),
        Some("/srv/app")
    );
    let failed = json!({ "name": "box", "manager": "npm", "package": "a", "waitMs": 60_000 });
    let failed = client.data("sandbox_package_install", failed).await;
    assert_eq!(failed["state"], "failed", "{failed:#}");
    for wrong in [
        json!({ "manager": "npm" }),
        json!({ "manager": "apt", "requirementsFile": "r.txt" }),
        json!({ "requirementsFile": "-r x" }),
    ] {
        let mut arguments = wrong;
        arguments["name"] = json!("box");
        let error = client.error("sandbox_package_install", arguments, "invalid_request").await;
        assert!(error["hint"].as_str().unwrap().contains("requirementsFile"), "{error:#}");
    }
}

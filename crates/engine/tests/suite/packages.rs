//! Jobs that install packages, with a simulated manager: a script in place of its program.

use std::{sync::Arc, time::Duration};

use engine::{
    PackageGateway, PackageJob, PackageListing, PackagePresence, PortStream, SandboxRef, WriteOptions,
};
use futures_util::{FutureExt, future::BoxFuture};
use sandbox::{
    ErrorKind, Next, PackageJobId, PackageManager, PackageSpec, PackageState, Result, SandboxId, SandboxSpec,
    Setting,
};
use store::PackageJobRecord;

use super::support::{PATIENCE, World, bytes, in_time};

/// No simulated program is ever a client, so nothing is ever requested from it.
#[derive(Debug)]
struct NoIndex;

impl PackageGateway for NoIndex {
    fn open(&self) -> Result<()> {
        Ok(())
    }

    fn serve(&self, _: PortStream, _: Option<PackageManager>, _: &SandboxId) -> BoxFuture<'static, ()> {
        std::future::ready(()).boxed()
    }

    fn apt_sources(&self, gateway: &str) -> Result<String> {
        Ok(format!("Types: deb\nURIs: {gateway}/apt/0/\nSuites: ./\n"))
    }
}

async fn world() -> World {
    World::with(|config| {
        config.packages = Some(Arc::new(NoIndex));
        // The managers of the host are not among those of its sandboxes.
        config.defaults.env.insert("PATH".to_owned(), MANAGERS.to_owned());
    })
    .await
}

/// Where sandboxes look for package managers.
const MANAGERS: &str = "/opt/managers";

/// A sandbox whose npm is this script.
async fn with_npm(world: &World, script: &str) -> SandboxRef {
    let which = world.create().await;
    write_npm(world, &which, script).await;
    which
}

async fn write_npm(world: &World, which: &SandboxRef, script: &str) {
    let options = WriteOptions { permissions: Some(0o755), parents: true, ..WriteOptions::default() };
    let (path, script) = (format!("{MANAGERS}/npm"), format!("#!/bin/sh\nPATH=/usr/bin:/bin\n{script}\n"));
    world.engine.write_file(&world.who, which, &path, options, bytes(&script)).await.unwrap();
}

fn npm(packages: &[&str]) -> PackageSpec {
    PackageSpec {
        manager: PackageManager::Npm,
        packages: packages.iter().map(|&text| text.to_owned()).collect(),
        ..PackageSpec::default()
    }
}

async fn install(world: &World, which: &SandboxRef, spec: PackageSpec) -> PackageJob {
    world.engine.install_packages(&world.who, which, spec).await.unwrap()
}

async fn ended(world: &World, which: &SandboxRef, job: &PackageJobId) -> PackageJob {
    let job = world.engine.wait_package_job(&world.who, which, job, Some(PATIENCE)).await.unwrap();
    assert_ne!(job.state, PackageState::Installing, "{job:?}");
    job
}

const ADDS: &str = r#"echo '{"dependencies":{"left-pad":{"version":"1.3.0"},"other":{"version":"2"}}}'"#;

#[tokio::test]
async fn a_job_ends_with_its_versions_and_its_log() {
    let world = world().await;
    let which = with_npm(&world, ADDS).await;
    let begun = install(&world, &which, npm(&["left-pad@^1"])).await;
    assert_eq!((begun.state, begun.exec.clone()), (PackageState::Installing, None));
    let job = ended(&world, &which, &begun.id).await;
    assert_eq!(job.state, PackageState::Installed, "{job:?}");
    assert_eq!(job.installed.len(), 1);
    assert_eq!((&*job.installed[0].name, &*job.installed[0].version), ("left-pad", "1.3.0"));
    assert!(job.log[0].contains("left-pad"), "{job:?}");
    // Its log is an exec like any other, with the registry at loopback.
    let exec = world.engine.exec_view(&world.who, &which, job.exec.as_ref().unwrap()).await.unwrap();
    assert!(exec.command.join(" ").contains("--registry http://127.0.0.1:17072/npm/"), "{exec:?}");
    assert_eq!(exec.command.last().unwrap(), "left-pad@^1");
    // The next daemon still knows it, and looking inside shows the same.
    let world = world.restart().await;
    assert_eq!(world.engine.package_job(&world.who, &which, &job.id).await.unwrap(), job);
    let status = world.engine.package_status(&world.who, &which, None, "other").await.unwrap();
    assert_eq!((status.state, status.version.as_deref()), (PackagePresence::Installed, Some("2")));
    assert_eq!(status.manager, PackageManager::Npm, "found by asking each manager that is there");
    let listed = world.engine.packages(&world.who, &which, None).await.unwrap();
    assert_eq!(listed.len(), 1, "only npm is there: {listed:?}");
    // Looking leaves no trace among the execs.
    assert_eq!(world.engine.execs(&world.who, &which).await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_failed_install_tells_why() {
    let world = world().await;
    let script = "echo 'npm error code E404' >&2; echo 'npm error 404 not here' >&2; exit 1";
    let which = with_npm(&world, script).await;
    let job = install(&world, &which, npm(&["left-pad"])).await;
    let job = ended(&world, &which, &job.id).await;
    assert_eq!(job.state, PackageState::Failed);
    assert_eq!(job.message.as_deref(), Some("npm exited with code 1: npm error code E404"));
    assert_eq!(job.log, ["npm error code E404", "npm error 404 not here"]);
    // A sandbox without the program.
    let bare = world.create().await;
    let job = install(&world, &bare, npm(&["left-pad"])).await;
    let job = ended(&world, &bare, &job.id).await;
    assert!(job.message.as_ref().unwrap().ends_with("has no npm"), "{job:?}");
    let error = world.engine.packages(&world.who, &bare, Some(PackageManager::Npm)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
}

#[tokio::test]
async fn an_install_that_takes_too_long_is_killed() {
    let world = world().await;
    let which = with_npm(&world, "sleep 1000").await;
    let spec = PackageSpec { timeout: Some(Duration::from_millis(50)), ..npm(&["left-pad"]) };
    let job = install(&world, &which, spec).await;
    let job = ended(&world, &which, &job.id).await;
    assert!(job.message.as_ref().unwrap().contains("time limit"), "{job:?}");
}

#[tokio::test]
async fn the_same_packages_join_and_others_wait_for_their_turn() {
    let world = world().await;
    let which = with_npm(&world, "sleep 1000").await;
    let first = install(&world, &which, npm(&["b", "a"])).await;
    let joined = install(&world, &which, npm(&["a", "b", "a"])).await;
    assert_eq!(joined.id, first.id);
    let second = install(&world, &which, npm(&["c"])).await;
    assert_ne!(second.id, first.id);
    in_time(async {
        while world.engine.package_job(&world.who, &which, &second.id).await.unwrap().message.is_none() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let waiting = world.engine.package_job(&world.who, &which, &second.id).await.unwrap();
    assert!(waiting.message.unwrap().contains("waiting") && waiting.exec.is_none());
    let status = world.engine.package_status(&world.who, &which, None, "c").await.unwrap();
    assert_eq!(status.state, PackagePresence::Installing);
    assert_eq!(status.job.unwrap().id, second.id);
    // They all end with the sandbox.
    world.stop(&which).await;
    for job in [first.id, second.id] {
        assert_eq!(ended(&world, &which, &job).await.state, PackageState::Failed);
    }
}

#[tokio::test]
async fn the_same_request_is_the_same_job_even_later() {
    let world = world().await;
    let which = with_npm(&world, ADDS).await;
    let spec = PackageSpec { request_id: Some("once".parse().unwrap()), ..npm(&["left-pad"]) };
    let other = PackageSpec { request_id: spec.request_id.clone(), ..npm(&["right-pad"]) };
    let refused = async |world: &World| {
        let error = world.engine.install_packages(&world.who, &which, other.clone()).await.unwrap_err();
        assert_eq!(error.to_string(), "requestId once belongs to another request");
    };
    let first = install(&world, &which, spec.clone()).await;
    assert_eq!(install(&world, &which, spec.clone()).await.id, first.id);
    refused(&world).await;
    ended(&world, &which, &first.id).await;
    assert_eq!(install(&world, &which, spec.clone()).await.id, first.id);
    let world = world.crash().await;
    refused(&world).await;
    assert_eq!(install(&world, &which, spec).await.id, first.id);
    assert_eq!(world.engine.package_jobs(&world.who, &which).await.unwrap().len(), 1);
}

async fn until_it_runs(world: &World, which: &SandboxRef, job: &PackageJobId) {
    in_time(async {
        while world.engine.package_job(&world.who, which, job).await.unwrap().exec.is_none() {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_job_outlives_the_daemon() {
    let world = world().await;
    let which = with_npm(&world, &format!("sleep 1; {ADDS}")).await;
    let job = install(&world, &which, npm(&["left-pad"])).await;
    until_it_runs(&world, &which, &job.id).await;
    let world = world.crash().await;
    let job = ended(&world, &which, &job.id).await;
    assert_eq!(job.state, PackageState::Installed, "{job:?}");
    assert_eq!(job.installed[0].version, "1.3.0");
}

#[tokio::test]
async fn a_job_that_had_not_begun_when_the_daemon_died_has_failed() {
    let world = world().await;
    let which = world.create().await;
    let record = PackageJobRecord {
        id: PackageJobId::from_random([1; 8]),
        sandbox: world.view(&which).await.id,
        request_id: None,
        manager: PackageManager::Npm,
        packages: vec!["left-pad".to_owned()],
        state: PackageState::Installing,
        exec: None,
        port: Some(17_072),
        message: None,
        installed: vec![],
        created_at: "2026-01-01T00:00:00Z".parse().unwrap(),
        started_at: None,
        ended_at: None,
        request_hash: None,
    };
    world.store.insert_package_job(record.clone()).await.unwrap();
    let world = world.crash().await;
    let job = ended(&world, &which, &record.id).await;
    assert_eq!(job.state, PackageState::Failed);
    assert!(job.message.unwrap().contains("the daemon stopped"));
    // It leaves nothing in the way of the next.
    let job = install(&world, &which, npm(&["left-pad"])).await;
    ended(&world, &which, &job.id).await;
}

#[tokio::test]
async fn what_cannot_be_is_refused_at_once() {
    let world = world().await;
    let which = world.create().await;
    let kind = async |spec: PackageSpec| {
        let refused = world.engine.install_packages(&world.who, &which, spec).await.unwrap_err();
        refused.kind()
    };
    assert_eq!(kind(npm(&["--global"])).await, ErrorKind::InvalidRequest);
    assert_eq!(kind(npm(&["good", "https://evil/x.tgz"])).await, ErrorKind::InvalidRequest);
    assert_eq!(kind(npm(&[])).await, ErrorKind::InvalidRequest);
    let no_time = PackageSpec { timeout: Some(Duration::ZERO), ..npm(&["left-pad"]) };
    assert_eq!(kind(no_time).await, ErrorKind::InvalidRequest);
    world.stop(&which).await;
    assert_eq!(kind(npm(&["left-pad"])).await, ErrorKind::WrongState);
    assert!(world.engine.package_jobs(&world.who, &which).await.unwrap().is_empty());
    let other = world.create_from(SandboxSpec::default()).await;
    let missing = PackageJobId::from_random([9; 8]);
    let missing = world.engine.package_job(&world.who, &SandboxRef::from(&other.id), &missing).await;
    assert_eq!(missing.unwrap_err().kind(), ErrorKind::NotFound);
}

#[tokio::test]
async fn the_manager_that_was_asked_for_a_package_is_the_one_that_tells_of_it() {
    let world = world().await;
    let which = with_npm(&world, "exit 1").await;
    let job = install(&world, &which, npm(&["left-pad"])).await;
    assert_eq!(ended(&world, &which, &job.id).await.state, PackageState::Failed);
    // Its npm prints a tree without the package now.
    write_npm(&world, &which, "echo '{}'").await;
    let status =
        async |name: &'static str| world.engine.package_status(&world.who, &which, None, name).await.unwrap();
    let failed = status("left-pad").await;
    assert_eq!((failed.state, failed.manager), (PackagePresence::Failed, PackageManager::Npm));
    assert_eq!(failed.job.unwrap().id, job.id);
    assert_eq!(status("never-asked").await.state, PackagePresence::NotInstalled);
    // A name that no manager knows, and a sandbox without managers.
    let refused = world.engine.package_status(&world.who, &which, None, "--no").await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidRequest);
    let bare = world.create().await;
    let refused = world.engine.package_status(&world.who, &bare, None, "left-pad").await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unsupported);
}

#[tokio::test]
async fn a_manager_that_prints_without_end_is_told_and_killed() {
    let world = world().await;
    let which = with_npm(&world, "seq 2000000; sleep 1000").await;
    let n_before = world.engine.processes(&world.who, &which).await.unwrap().len();
    let error = world.engine.packages(&world.who, &which, Some(PackageManager::Npm)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::LimitReached);
    assert!(error.to_string().contains("npm printed more than"), "{error}");
    in_time(async {
        while world.engine.processes(&world.who, &which).await.unwrap().len() > n_before {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test]
async fn without_a_gateway_nothing_is_installed() {
    let world = World::new().await;
    let which = world.create().await;
    let refused = world.engine.install_packages(&world.who, &which, npm(&["left-pad"])).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unsupported);
    assert_eq!(refused.next(), Some(&Next::Configure(Setting::Packages)));
}

#[tokio::test]
async fn a_manager_that_never_answers_is_told_apart_from_one_that_has_nothing() {
    let world = world().await;
    let which = with_npm(&world, "sleep 1000").await;
    let listed = world.engine.packages(&world.who, &which, None).await.unwrap();
    let late = PackageListing { manager: PackageManager::Npm, packages: Vec::new(), timed_out: true };
    assert_eq!(listed, [late]);
}

//! Jobs that install packages: kept whole, bounded, gone with their sandbox.
#![expect(clippy::unwrap_used, reason = "helpers of tests may stop the test")]

use jiff::Timestamp;
use sandbox::{
    Defaults, ExecId, InstalledPackage, Lifetime, Namespace, PackageJobId, PackageManager, PackageState,
    SandboxId, SandboxSpec, SandboxState, plan,
};
use store::{MAX_PACKAGE_JOBS, PackageJobRecord, SandboxRecord, Store, StoreError};

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_700_000_000 + second).unwrap()
}

fn sandbox(seed: u8) -> SandboxRecord {
    let id = SandboxId::from_random([seed; 8]);
    let name: sandbox::SandboxName = format!("box-{seed}").parse().unwrap();
    let spec = SandboxSpec { name: Some(name.clone()), ..SandboxSpec::default() };
    let plan = plan(
        &id,
        &name,
        &spec,
        &Defaults::default(),
        &sandbox::Base::host(),
        &[sandbox::Capabilities::all(sandbox::BackendKind::Namespace)],
    )
    .unwrap();
    SandboxRecord {
        id,
        name,
        namespace: Namespace::default(),
        spec,
        plan,
        state: SandboxState::Running,
        reason: None,
        isolation: None,
        created_at: at(0),
        started_at: None,
        stopped_at: None,
        expires_at: None,
        lifetime: Lifetime::default(),
        last_active_at: at(1),
        owner: None,
        replaces: None,
        ports: Vec::new(),
        network_requests: Vec::new(),
        request_hash: None,
    }
}

fn job(number: u64, of: &SandboxRecord) -> PackageJobRecord {
    PackageJobRecord {
        id: PackageJobId::from_random(number.to_be_bytes()),
        sandbox: of.id.clone(),
        request_id: None,
        manager: PackageManager::Npm,
        packages: vec!["@a/b@^1".to_owned()],
        state: PackageState::Installing,
        exec: None,
        port: None,
        message: None,
        installed: vec![],
        created_at: at(2),
        started_at: None,
        ended_at: None,
        request_hash: None,
    }
}

#[tokio::test]
async fn a_job_is_read_back_as_it_was_written() {
    let home = tempfile::tempdir().unwrap();
    let (store, of) = (Store::open(home.path()).unwrap(), sandbox(1));
    store.insert_sandbox(of.clone()).await.unwrap();
    let mut record = job(1, &of);
    record.request_id = Some("once".parse().unwrap());
    store.insert_package_job(record.clone()).await.unwrap();
    assert_eq!(store.unfinished_package_jobs().await.unwrap(), [record.clone()]);
    record.state = PackageState::Installed;
    record.exec = Some(ExecId::from_random([7; 8]));
    record.port = Some(65_535);
    record.message = Some("fine".to_owned());
    record.installed = vec![InstalledPackage { name: "@a/b".into(), version: "1.2".into() }];
    (record.started_at, record.ended_at) = (Some(at(3)), Some(at(4)));
    store.update_package_job(record.clone()).await.unwrap();
    store.close().await;
    let store = Store::open(home.path()).unwrap();
    assert_eq!(store.package_job(record.id.clone()).await.unwrap(), Some(record.clone()));
    let requested = store.package_job_requested(of.id.clone(), "once".parse().unwrap()).await.unwrap();
    assert_eq!(requested, Some(record));
    assert!(store.unfinished_package_jobs().await.unwrap().is_empty());
}

#[tokio::test]
async fn jobs_go_with_their_sandbox_and_need_one() {
    let home = tempfile::tempdir().unwrap();
    let (store, of) = (Store::open(home.path()).unwrap(), sandbox(1));
    let missing = store.insert_package_job(job(1, &of)).await.unwrap_err();
    assert!(matches!(missing, StoreError::Missing { what: "sandbox", .. }), "{missing}");
    store.insert_sandbox(of.clone()).await.unwrap();
    store.insert_package_job(job(1, &of)).await.unwrap();
    store.remove_sandbox(of.id.clone()).await.unwrap();
    assert_eq!(store.package_job(job(1, &of).id).await.unwrap(), None);
    assert!(store.update_package_job(job(1, &of)).await.is_err());
}

#[tokio::test]
async fn only_so_many_are_kept_and_never_is_one_lost_that_still_installs() {
    let home = tempfile::tempdir().unwrap();
    let (store, of) = (Store::open(home.path()).unwrap(), sandbox(1));
    store.insert_sandbox(of.clone()).await.unwrap();
    store.insert_package_job(job(0, &of)).await.unwrap();
    for number in 1..=u64::from(MAX_PACKAGE_JOBS) + 10 {
        let ended = PackageJobRecord { state: PackageState::Failed, ..job(number, &of) };
        store.insert_package_job(ended).await.unwrap();
    }
    let kept = store.package_jobs(of.id.clone()).await.unwrap();
    assert_eq!(kept.len(), MAX_PACKAGE_JOBS as usize + 1);
    assert_eq!(kept[0].id, job(0, &of).id, "the one that installs");
    assert_eq!(kept[1].id, job(11, &of).id, "the oldest of the others that are kept");
}

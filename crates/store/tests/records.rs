//! Records: what goes in comes out, what is unique stays unique, what is bad harms nothing else.
#![expect(clippy::unwrap_used, reason = "helpers of tests may stop the test")]

use std::{os::unix::fs::PermissionsExt, path::Path, time::Duration};

use jiff::Timestamp;
use sandbox::{
    BackendKind, Defaults, EventKind, ExecId, ExecOutcome, ExecSpec, ExecState, Isolation, KeyId, Lifetime,
    Namespace, NetworkHold, OnExpiry, RequestId, SandboxId, SandboxName, SandboxSpec, SandboxState, plan,
};
use store::{ExecRecord, MAX_EVENTS, NewEvent, SandboxRecord, Store, StoreError};

fn at(nanosecond: i128) -> Timestamp {
    Timestamp::from_nanosecond(1_700_000_000_123_456_789 + nanosecond).unwrap()
}

fn name(text: &str) -> SandboxName {
    text.parse().unwrap()
}

fn sandbox(seed: u8, called: &str) -> SandboxRecord {
    let id = SandboxId::from_random([seed; 8]);
    let name = name(called);
    let mut spec = SandboxSpec { name: Some(name.clone()), ..SandboxSpec::default() };
    spec.labels.insert("team/owner".into(), "Ana \"B\" \u{1f980}".into());
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
        state: SandboxState::Creating,
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
        request_hash: Some("5a".repeat(32)),
    }
}

fn exec(seed: u8, of: &SandboxRecord) -> ExecRecord {
    ExecRecord {
        id: ExecId::from_random([seed; 8]),
        sandbox: of.id.clone(),
        spec: ExecSpec::shell("echo 'hi there'"),
        state: ExecState::Starting,
        outcome: None,
        pid: None,
        created_at: at(5),
        started_at: None,
        ended_at: None,
        last_entry: None,
        n_lost: 0,
        asked_by: Some("key ana".to_owned()),
        request_hash: Some("e5".repeat(32)),
    }
}

fn event(detail: &str) -> NewEvent {
    NewEvent {
        at: at(0),
        kind: EventKind::SandboxCreated,
        sandbox: Some(SandboxId::from_random([1; 8])),
        name: Some(name("box")),
        namespace: Some(Namespace::default()),
        exec: None,
        detail: detail.to_owned(),
    }
}

fn request(text: &str) -> RequestId {
    text.parse().unwrap()
}

/// Changes the file behind the store's back, as a bug or a bad disk would.
fn meddle(home: &Path, sql: &str) {
    rusqlite::Connection::open(home.join("warren.db")).unwrap().execute_batch(sql).unwrap();
}

#[tokio::test]
async fn a_sandbox_reads_back_as_it_was_written_even_after_a_restart() {
    let home = tempfile::tempdir().unwrap();
    let store = Store::open(home.path()).unwrap();
    let mut record = sandbox(1, "web");
    store.insert_sandbox(record.clone()).await.unwrap();

    record.state = SandboxState::Failed;
    record.reason = Some("the guest ended".into());
    record.started_at = Some(at(10));
    record.stopped_at = Some(at(20));
    record.expires_at = Some("9999-01-01T00:00:00Z".parse().unwrap());
    record.lifetime =
        Lifetime { ttl: Some(Duration::from_secs(60)), idle: None, on_expiry: OnExpiry::Remove };
    record.isolation = Some(Isolation {
        backend: BackendKind::Oci,
        walls: sandbox::Walls::SharedKernel,
        rootless: true,
        id_map: "single".into(),
        namespaces: vec!["user".into()],
        capabilities: vec![],
        no_new_privileges: true,
        seccomp: None,
        network: NetworkHold::Loopback,
        cgroups: "none".into(),
        limits: vec![],
        warnings: vec!["only simulated".into()],
    });
    store.update_sandbox(record.clone()).await.unwrap();
    store.close().await;
    assert!(matches!(store.sandbox(record.id.clone()).await, Err(StoreError::Closed)));

    let store = Store::open(home.path()).unwrap();
    assert_eq!(store.sandbox(record.id.clone()).await.unwrap(), Some(record.clone()));
    let named = store.sandbox_named(record.namespace.clone(), record.name.clone()).await.unwrap();
    assert_eq!(named, Some(record));
    assert_eq!(store.sandbox(SandboxId::from_random([9; 8])).await.unwrap(), None);
}

#[tokio::test]
async fn a_name_is_taken_once_in_each_namespace() {
    let home = tempfile::tempdir().unwrap();
    let store = Store::open(home.path()).unwrap();
    store.insert_sandbox(sandbox(1, "web")).await.unwrap();
    let error = store.insert_sandbox(sandbox(2, "web")).await.unwrap_err();
    assert!(matches!(&error, StoreError::NameTaken { name, .. } if name.as_str() == "web"), "{error}");

    let elsewhere = SandboxRecord { namespace: "other".parse().unwrap(), ..sandbox(3, "web") };
    store.insert_sandbox(elsewhere.clone()).await.unwrap();
    let mut renamed = sandbox(1, "api");
    store.update_sandbox(renamed.clone()).await.unwrap();
    store.insert_sandbox(sandbox(2, "web")).await.unwrap();
    renamed.name = name("web");
    assert!(matches!(store.update_sandbox(renamed).await, Err(StoreError::NameTaken { .. })));

    let only = store.sandboxes(Some("other".parse().unwrap())).await.unwrap();
    assert_eq!(only.records, [elsewhere]);
    assert_eq!(store.sandboxes(None).await.unwrap().records.len(), 3);
}

#[tokio::test]
async fn the_same_request_of_one_owner_is_recorded_once() {
    let home = tempfile::tempdir().unwrap();
    let store = Store::open(home.path()).unwrap();
    let mut first = sandbox(1, "web");
    first.spec.request_id = Some(request("r-1"));
    store.insert_sandbox(first.clone()).await.unwrap();

    // The name is taken too, but by the very sandbox that was asked for.
    let again = SandboxRecord { id: SandboxId::from_random([2; 8]), ..first.clone() };
    let error = store.insert_sandbox(again).await.unwrap_err();
    assert!(matches!(error, StoreError::RequestKnown { id } if id == first.id));
    // The id is its owner's own.
    let foreign = SandboxRecord { owner: Some(KeyId::from_random([1; 8])), ..sandbox(3, "api") };
    let spec = first.spec.clone();
    store.insert_sandbox(SandboxRecord { spec: spec.clone(), ..foreign.clone() }).await.unwrap();
    let again = SandboxRecord { spec, owner: foreign.owner.clone(), ..sandbox(4, "db") };
    let error = store.insert_sandbox(again).await.unwrap_err();
    assert!(matches!(error, StoreError::RequestKnown { id } if id == foreign.id));
    let records = store.sandboxes(None).await.unwrap().records;
    assert_eq!(records.iter().map(|record| &record.id).collect::<Vec<_>>(), [&first.id, &foreign.id]);
}

#[tokio::test]
async fn two_creates_with_one_name_at_once_make_one() {
    let home = tempfile::tempdir().unwrap();
    let store = Store::open(home.path()).unwrap();
    let mut tasks = tokio::task::JoinSet::new();
    for seed in 1..=40 {
        let store = store.clone();
        tasks.spawn(async move { store.insert_sandbox(sandbox(seed, "only")).await.is_ok() });
    }
    let made = tasks.join_all().await.into_iter().filter(|made| *made).count();
    assert_eq!(made, 1);
}

#[tokio::test]
async fn execs_go_with_their_sandbox() {
    let home = tempfile::tempdir().unwrap();
    let store = Store::open(home.path()).unwrap();
    let (web, api) = (sandbox(1, "web"), sandbox(2, "api"));
    assert!(matches!(
        store.insert_exec(exec(1, &web)).await,
        Err(StoreError::Missing { what: "sandbox", .. })
    ));
    store.insert_sandbox(web.clone()).await.unwrap();
    store.insert_sandbox(api.clone()).await.unwrap();

    let mut first = exec(9, &web);
    first.spec.request_id = Some(request("e-1"));
    store.insert_exec(first.clone()).await.unwrap();
    store.insert_exec(exec(2, &web)).await.unwrap();
    store.insert_exec(exec(3, &api)).await.unwrap();
    let again = ExecRecord { id: ExecId::from_random([7; 8]), ..first.clone() };
    let error = store.insert_exec(again.clone()).await.unwrap_err();
    assert!(matches!(error, StoreError::RequestKnownExec { id } if id == first.id));
    store.insert_exec(ExecRecord { sandbox: api.id.clone(), ..again }).await.unwrap();

    first.state = ExecState::Done;
    first.outcome = Some(ExecOutcome::exited(3));
    first.pid = Some(42);
    first.started_at = Some(at(6));
    first.ended_at = Some(at(7));
    store.update_exec(first.clone()).await.unwrap();
    assert_eq!(store.execs(web.id.clone()).await.unwrap(), [first.clone(), exec(2, &web)]);
    assert_eq!(store.unfinished_execs(web.id.clone()).await.unwrap(), [exec(2, &web)]);
    assert_eq!(store.surplus_execs(web.id.clone(), 2).await.unwrap(), []);
    assert_eq!(store.surplus_execs(web.id.clone(), 1).await.unwrap(), [first.id.clone()]);
    // The newest has not ended, so it is never one too many.
    assert_eq!(store.surplus_execs(web.id.clone(), 0).await.unwrap(), [first.id.clone()]);
    let found = store.exec_requested(web.id.clone(), request("e-1")).await.unwrap();
    assert_eq!(found, Some(first.clone()));

    store.remove_execs(vec![exec(2, &web).id, exec(2, &web).id]).await.unwrap();
    assert_eq!(store.exec(exec(2, &web).id).await.unwrap(), None);
    assert!(matches!(store.update_exec(exec(2, &web)).await, Err(StoreError::Missing { what: "exec", .. })));

    store.remove_sandbox(web.id.clone()).await.unwrap();
    assert_eq!(store.exec(first.id).await.unwrap(), None);
    assert_eq!(store.execs(api.id).await.unwrap().len(), 2);
    assert!(matches!(store.remove_sandbox(web.id.clone()).await, Err(StoreError::Missing { .. })));
    assert!(matches!(store.update_sandbox(web).await, Err(StoreError::Missing { what: "sandbox", .. })));
}

#[tokio::test]
async fn a_corrupt_row_is_told_and_harms_no_other() {
    let home = tempfile::tempdir().unwrap();
    let store = Store::open(home.path()).unwrap();
    for (seed, called) in [(1, "a"), (2, "b"), (3, "c"), (4, "d")] {
        store.insert_sandbox(sandbox(seed, called)).await.unwrap();
    }
    let good = sandbox(4, "d");
    store.insert_exec(exec(1, &good)).await.unwrap();
    store.insert_exec(exec(2, &good)).await.unwrap();
    meddle(
        home.path(),
        "UPDATE sandboxes SET spec = '{\"image\": 3' WHERE name = 'a';
         UPDATE sandboxes SET state = 'dancing' WHERE name = 'b';
         UPDATE sandboxes SET id = '../../etc', created_at = 'once' WHERE name = 'c';
         UPDATE execs SET outcome = 'x' WHERE rowid = 1;",
    );

    let rows = store.sandboxes(None).await.unwrap();
    assert_eq!(rows.records, std::slice::from_ref(&good));
    let told: Vec<_> = rows.corrupt.iter().map(|row| (row.id.as_str(), row.reason.as_str())).collect();
    assert_eq!(told[0].0, sandbox(1, "a").id.as_str());
    assert!(told[0].1.starts_with("spec: "), "{told:?}");
    assert!(told[1].1.contains("\"dancing\" is not a state"), "{told:?}");
    assert_eq!(told[2].0, "../../etc");

    let error = store.sandbox(sandbox(1, "a").id).await.unwrap_err();
    assert!(matches!(&error, StoreError::Corrupt { what: "sandbox", .. }));
    assert!(matches!(error.next(), Some(sandbox::Next::Replace(_))));
    store.remove_sandbox(sandbox(1, "a").id).await.unwrap();
    assert_eq!(store.execs(good.id.clone()).await.unwrap(), [exec(2, &good)]);
    assert!(matches!(store.exec(exec(1, &good).id).await, Err(StoreError::Corrupt { what: "exec", .. })));
    assert_eq!(store.sandboxes(None).await.unwrap().corrupt.len(), 2);
}

#[tokio::test]
async fn events_are_numbered_bounded_and_never_numbered_again() {
    let home = tempfile::tempdir().unwrap();
    let store = Store::open(home.path()).unwrap();
    let extra = 5;
    for n in 1..=u64::from(MAX_EVENTS) + extra {
        assert_eq!(store.append_events(vec![event(&n.to_string())]).await.unwrap().remove(0).number, n);
    }
    let first = store.events(0, 3).await.unwrap();
    assert_eq!(first.iter().map(|event| event.number).collect::<Vec<_>>(), [6, 7, 8]);
    assert_eq!(first[0].detail, "6");
    assert_eq!(store.events(0, u32::MAX).await.unwrap().len(), MAX_EVENTS as usize);
    assert_eq!(store.events(u64::MAX, 10).await.unwrap(), []);

    meddle(home.path(), "DELETE FROM events WHERE number > 100;");
    let next = store.append_events(vec![event("after")]).await.unwrap().remove(0);
    assert_eq!(next.number, u64::from(MAX_EVENTS) + extra + 1);
    assert_eq!(store.events(101, 10).await.unwrap(), [next]);
}

#[tokio::test]
async fn everything_is_for_its_owner_only() {
    let parent = tempfile::tempdir().unwrap();
    let home = parent.path().join("deep/home");
    let store = Store::open(&home).unwrap();
    store.insert_sandbox(sandbox(1, "a")).await.unwrap();
    let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&home), 0o700);
    for file in ["warren.db", "warren.db-wal", "warren.db-shm"] {
        assert_eq!(mode(&home.join(file)), 0o600, "{file}");
    }
}

#[tokio::test]
async fn what_is_not_our_database_is_refused_and_left_alone() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("warren.db");
    let garbage = b"SQLite format 2\0 nothing that anyone wrote on purpose".repeat(200);
    std::fs::write(&file, &garbage).unwrap();
    let error = Store::open(home.path()).unwrap_err();
    assert!(matches!(error, StoreError::Unreadable { .. }), "{error}");
    assert!(error.to_string().contains("warren.db"), "{error}");
    assert!(matches!(error.next(), Some(sandbox::Next::Recover)));
    assert_eq!(std::fs::read(&file).unwrap(), garbage);

    std::fs::remove_file(&file).unwrap();
    meddle(home.path(), "CREATE TABLE cats (name TEXT); PRAGMA user_version = 1;");
    let error = Store::open(home.path()).unwrap_err();
    assert!(error.to_string().contains("another program"), "{error}");
}

#[tokio::test]
async fn a_damaged_page_is_an_error_that_names_the_file() {
    let home = tempfile::tempdir().unwrap();
    let store = Store::open(home.path()).unwrap();
    for seed in 1..=100 {
        store.insert_sandbox(sandbox(seed, &format!("s{seed}"))).await.unwrap();
    }
    store.close().await;
    let file = home.path().join("warren.db");
    let mut bytes = std::fs::read(&file).unwrap();
    let len = bytes.len();
    bytes[4096 * 2..len - 4096].fill(0xee);
    std::fs::write(&file, &bytes).unwrap();
    let error = match Store::open(home.path()) {
        Ok(store) => store.sandboxes(None).await.unwrap_err(),
        Err(error) => error,
    };
    assert!(matches!(error, StoreError::Unreadable { .. }), "{error:?}");
}

#[tokio::test]
async fn a_database_from_the_future_is_refused() {
    let home = tempfile::tempdir().unwrap();
    Store::open(home.path()).unwrap().close().await;
    meddle(home.path(), "PRAGMA user_version = 999;");
    let error = Store::open(home.path()).unwrap_err();
    assert!(matches!(error, StoreError::TooNew { found: 999, .. }), "{error}");
    assert!(matches!(error.next(), Some(sandbox::Next::Advice(advice)) if advice.contains("newer")));
}

#[tokio::test]
async fn a_lock_held_by_another_program_is_told() {
    let home = tempfile::tempdir().unwrap();
    let store = Store::open(home.path()).unwrap();
    let other = rusqlite::Connection::open(home.path().join("warren.db")).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    assert!(matches!(store.insert_sandbox(sandbox(1, "a")).await, Err(StoreError::Locked { .. })));
    other.execute_batch("ROLLBACK").unwrap();
    store.insert_sandbox(sandbox(1, "a")).await.unwrap();
}

//! `cargo bench -p store`: what one record and one ledger entry cost here.
#![expect(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a program for people, which may stop at any error"
)]

use std::time::Instant;

use jiff::Timestamp;
use sandbox::{
    Defaults, EventKind, ExecId, ExecSpec, ExecState, Lifetime, Namespace, SandboxId, SandboxName,
    SandboxSpec, SandboxState, plan,
};
use store::{EntryKind, ExecRecord, Ledger, LedgerLimits, NewEvent, SandboxRecord, Store};

fn sandbox(n: u64) -> SandboxRecord {
    let id = SandboxId::from_random(n.to_be_bytes());
    let name: SandboxName = format!("s{n}").parse().unwrap();
    let spec = SandboxSpec::default();
    let plan = plan(
        &id,
        &name,
        &spec,
        &Defaults::default(),
        &sandbox::Base::host(),
        &[sandbox::Capabilities::all(sandbox::BackendKind::Namespace)],
    )
    .unwrap();
    let at = Timestamp::UNIX_EPOCH;
    SandboxRecord {
        id,
        name,
        namespace: Namespace::default(),
        spec,
        plan,
        state: SandboxState::Creating,
        reason: None,
        isolation: None,
        created_at: at,
        started_at: None,
        stopped_at: None,
        expires_at: None,
        lifetime: Lifetime::default(),
        last_active_at: at,
        owner: None,
        replaces: None,
        ports: Vec::new(),
        network_requests: Vec::new(),
        request_hash: None,
    }
}

fn exec(n: u64, of: &SandboxRecord) -> ExecRecord {
    ExecRecord {
        id: ExecId::from_random(n.to_be_bytes()),
        sandbox: of.id.clone(),
        spec: ExecSpec::shell("echo hi"),
        state: ExecState::Starting,
        outcome: None,
        pid: None,
        created_at: Timestamp::UNIX_EPOCH,
        started_at: None,
        ended_at: None,
        last_entry: None,
        n_lost: 0,
        asked_by: None,
        request_hash: None,
    }
}

fn tell(what: &str, n: u64, since: Instant) {
    let each = since.elapsed().as_secs_f64() / n as f64;
    println!("{what:28} {:8.1} µs each, {:9.0} per second", each * 1e6, 1.0 / each);
}

async fn records() {
    const N: u64 = 4_000;
    const AT_ONCE: u64 = 32;
    let home = tempfile::tempdir().unwrap();
    let since = Instant::now();
    let store = Store::open(home.path()).unwrap();
    tell("open a new store", 1, since);
    let since = Instant::now();
    for n in 0..N {
        store.insert_sandbox(sandbox(n)).await.unwrap();
    }
    tell("insert a sandbox", N, since);
    let since = Instant::now();
    for n in 0..N {
        store.update_sandbox(sandbox(n)).await.unwrap();
    }
    tell("update a sandbox", N, since);
    let since = Instant::now();
    let mut tasks = tokio::task::JoinSet::new();
    for task in 0..AT_ONCE {
        let store = store.clone();
        tasks.spawn(async move {
            for n in (task..N).step_by(AT_ONCE as usize) {
                store.update_sandbox(sandbox(n)).await.unwrap();
            }
        });
    }
    tasks.join_all().await;
    tell(&format!("update, {AT_ONCE} at once"), N, since);
    let since = Instant::now();
    for n in 0..N {
        store.insert_exec(exec(n, &sandbox(n % 10))).await.unwrap();
    }
    tell("insert an exec", N, since);
    let since = Instant::now();
    for n in 0..N {
        store.sandbox(sandbox(n).id).await.unwrap();
    }
    tell("read a sandbox", N, since);
    let event = NewEvent {
        at: Timestamp::UNIX_EPOCH,
        kind: EventKind::ExecEnded,
        sandbox: Some(sandbox(1).id),
        name: None,
        namespace: None,
        exec: None,
        detail: String::new(),
    };
    let since = Instant::now();
    for _ in 0..N {
        store.append_events(vec![event.clone()]).await.unwrap();
    }
    tell("append an event", N, since);
}

fn ledger(len: usize, n: u64) {
    let directory = tempfile::tempdir().unwrap();
    let ledger = Ledger::open(directory.path().to_owned(), LedgerLimits::default()).unwrap();
    let id = ExecId::from_random([1; 8]);
    let mut writer = ledger.writer(&id).unwrap();
    let data = vec![b'x'; len];
    let since = Instant::now();
    for number in 1..=n {
        writer.append(0, EntryKind::Stdout, number, &data).unwrap();
    }
    tell(&format!("append {len} bytes"), n, since);
    println!("{:28} {:8.0} MiB/s", "", (n * len as u64) as f64 / since.elapsed().as_secs_f64() / 1048576.0);
    let since = Instant::now();
    let mut reader = ledger.reader(&id, 1).unwrap();
    while reader.next().unwrap().is_some() {}
    tell(&format!("read {len} bytes"), n, since);
    println!("{:28} {:8.0} MiB/s", "", (n * len as u64) as f64 / since.elapsed().as_secs_f64() / 1048576.0);
}

fn main() {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap().block_on(records());
    ledger(64, 200_000);
    ledger(64 * 1024, 3_500);
}

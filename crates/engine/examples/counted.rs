//! The user-space instructions of each request: `scripts/instructions` runs this under `callgrind`, whose count is the
//! same on every machine. `counted PART N` does PART N times; the difference between two counts is the cost of one.
#![expect(clippy::expect_used, reason = "a tool for tests")]

use std::hint::black_box;

use bytes::{Bytes, BytesMut};
use guest_protocol::{Decoder, ExecEvent, Frame, FrameKind, Request, SignalScope};
use sandbox::{
    BackendKind, Base, Capabilities, Defaults, ExecId, SandboxId, SandboxPlan, SandboxSpec, SandboxState,
};
use store::{EntryKind, Ledger, LedgerLimits, SandboxRecord};

/// A client's request that sets a bit of everything.
const SPEC: &str = r#"{"name": "lab", "image": "host", "env": {"GREETING": "hello", "MODE": "test"},
    "limits": {"memory": 268435456, "cpus": 0.5, "pids": 64}, "labels": {"team": "a"}, "cwd": "/srv",
    "mounts": [{"guestPath": "/scratch", "kind": "tmpfs", "size": 1048576}],
    "lifetime": {"ttlMs": 3600000, "idleMs": 600000}, "network": {"preset": "none"}}"#;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let part = arguments.next().unwrap_or_default();
    let times = arguments.next().and_then(|text| text.parse().ok()).unwrap_or(1);
    match part.as_str() {
        "plan" => (0..times).for_each(|_| drop(black_box(plan()))),
        "record" => {
            let record = record();
            (0..times).for_each(|_| store_and_load(&record));
        }
        "ledger" => write_and_read_output(times),
        "frames" => (0..times).for_each(|_| speak_with_the_guest()),
        _ => panic!("counted plan|record|ledger|frames N"),
    }
}

/// From the text of a request to what a back end gets.
fn plan() -> (SandboxSpec, SandboxPlan) {
    let spec: SandboxSpec = serde_json::from_str(SPEC).expect("a spec");
    let id = SandboxId::from_random([7; 8]);
    let name = spec.name.clone().expect("a name");
    let backends = [Capabilities::all(BackendKind::Namespace)];
    let plan =
        sandbox::plan(&id, &name, &spec, &Defaults::default(), &Base::host(), &backends).expect("a plan");
    (spec, plan)
}

fn record() -> SandboxRecord {
    let (spec, plan) = plan();
    let now = jiff::Timestamp::UNIX_EPOCH;
    SandboxRecord {
        id: plan.id.clone(),
        name: "lab".parse().expect("a name"),
        namespace: spec.namespace.clone(),
        lifetime: spec.lifetime.clone(),
        spec,
        plan,
        state: SandboxState::Running,
        reason: None,
        isolation: None,
        created_at: now,
        started_at: Some(now),
        stopped_at: None,
        expires_at: None,
        last_active_at: now,
        owner: None,
        replaces: None,
        ports: Vec::new(),
        network_requests: Vec::new(),
        request_hash: None,
    }
}

fn store_and_load(record: &SandboxRecord) {
    let text = serde_json::to_vec(record).expect("a record as JSON");
    let loaded: SandboxRecord = serde_json::from_slice(&text).expect("a record");
    black_box(loaded);
}

/// A command's output, written as it comes and read as a client does.
fn write_and_read_output(lines: u64) {
    let directory = tempfile::tempdir().expect("a directory");
    let ledger = Ledger::open(directory.path().join("logs"), LedgerLimits::default()).expect("a ledger");
    let exec = ExecId::from_random([7; 8]);
    let mut writer = ledger.writer(&exec).expect("its writer");
    let mut reader = ledger.reader(&exec, 1).expect("its reader");
    for line in 1..=lines {
        writer.append(0, EntryKind::Stdout, line, b"one line of output\n").expect("room");
        black_box(reader.next().expect("its entry"));
    }
}

/// A request, and an event of the kind that comes most often.
fn speak_with_the_guest() {
    let request = Request::ExecSignal { id: "exec".to_owned(), signal: 15, scope: SignalScope::Group };
    let request = Frame::json(FrameKind::Request, &request).expect("a request");
    let event = ExecEvent::Stdout(Bytes::from_static(b"one line of output\n"));
    let event = event.to_frame(1).expect("an event");
    let mut wire = BytesMut::new();
    guest_protocol::encode(&request, &mut wire).expect("bytes");
    guest_protocol::encode(&event, &mut wire).expect("bytes");
    let mut decoder = Decoder::default();
    let asked = decoder.decode(&mut wire).expect("whole").expect("a request");
    black_box(asked.parse::<Request>().expect("a request"));
    let told = decoder.decode(&mut wire).expect("whole").expect("an event");
    black_box(ExecEvent::from_frame(&told).expect("an event"));
}

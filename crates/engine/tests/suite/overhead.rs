//! What the engine adds to a command, measured on a real guest.

use std::time::{Duration, Instant};

use engine::{Engine, EngineConfig, Principal, SandboxRef, Store};
use sandbox::{ExecSpec, SandboxSpec};

const N: usize = 300;

fn percentile(times: &mut [Duration], percent: usize) -> Duration {
    times.sort_unstable();
    times[(times.len() - 1) * percent / 100]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_exec_costs_little_more_than_the_guest_does() {
    let home = tempfile::tempdir().unwrap();
    let backend = test_backend::TestBackend::new();
    let store = Store::open(home.path()).unwrap();
    let engine = Engine::open(EngineConfig::new(home.path()), store, backend.for_engine()).await.unwrap();
    let who = Principal::operator("bench");
    let which: SandboxRef = engine.create_sandbox(&who, SandboxSpec::default()).await.unwrap().id.into();
    let (mut created, mut started, mut done) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..N / 15 {
        let begin = Instant::now();
        engine.create_sandbox(&who, SandboxSpec::default()).await.unwrap();
        created.push(begin.elapsed());
    }
    println!("create: p50 {:?} p99 {:?}", percentile(&mut created, 50), percentile(&mut created, 99));
    for _ in 0..N {
        let begin = Instant::now();
        let exec = engine.exec(&who, &which, ExecSpec::argv(["true"])).await.unwrap();
        started.push(begin.elapsed());
        engine.wait_exec(&who, &which, &exec.id, None).await.unwrap();
        done.push(begin.elapsed());
    }
    let (p50, p99) = (percentile(&mut started, 50), percentile(&mut started, 99));
    println!(
        "exec: started p50 {p50:?} p99 {p99:?}; done p50 {:?} p99 {:?}",
        percentile(&mut done, 50),
        percentile(&mut done, 99)
    );
    // Generous, for a debug build on a busy machine; the numbers above are the interesting ones.
    assert!(p50 < Duration::from_millis(20), "{p50:?}");
}

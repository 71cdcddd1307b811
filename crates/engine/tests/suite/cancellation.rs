//! A caller may go away at any moment; its request is then done or not done, never half done.

use std::time::Duration;

use engine::{Force, SandboxRef, SignalScope};
use futures_util::{StreamExt, future::BoxFuture};
use sandbox::{ErrorKind, ExecSpec, ExecState, Result, SandboxSpec};

use super::support::{World, bytes, collect, in_time};

/// Polls a future a number of times and drops it; true if it had ended.
async fn drop_after<T>(n_polls: usize, future: impl Future<Output = T>) -> bool {
    let mut future = std::pin::pin!(future);
    for _ in 0..n_polls {
        if futures_util::poll!(future.as_mut()).is_ready() {
            return true;
        }
        tokio::task::yield_now().await;
    }
    false
}

/// Asks again while requests whose callers went away still fill the queue.
async fn admitted<T, F: Future<Output = Result<T>>>(ask: impl Fn() -> F) -> Result<T> {
    in_time(async {
        loop {
            match ask().await {
                Err(error) if error.kind() == ErrorKind::LimitReached => tokio::task::yield_now().await,
                answered => break answered,
            }
        }
    })
    .await
}

#[tokio::test]
async fn every_call_can_be_dropped_at_every_point() {
    let world = World::new().await;
    let which = world.create().await;
    world.write(&which, "/root/a", "whole").await;
    let running = world
        .engine
        .exec(&world.who, &which, ExecSpec { stdin: true, ..ExecSpec::argv(["cat"]) })
        .await
        .unwrap();
    let (engine, who, which_ref) = (&world.engine, &world.who, &which);
    let id = &running.id;
    type Call<'a> = Box<dyn Fn() -> BoxFuture<'a, ()> + 'a>;
    let calls: Vec<(&str, Call<'_>)> = vec![
        (
            "create",
            Box::new(|| Box::pin(async { drop(engine.create_sandbox(who, SandboxSpec::default()).await) })),
        ),
        (
            "exec",
            Box::new(|| {
                Box::pin(async { drop(engine.exec(who, which_ref, ExecSpec::shell("echo hi")).await) })
            }),
        ),
        ("stat", Box::new(|| Box::pin(async { drop(engine.stat(who, which_ref, "/root/a", true).await) }))),
        (
            "write",
            Box::new(|| {
                Box::pin(async {
                    drop(
                        engine
                            .write_file(who, which_ref, "/root/a", Default::default(), bytes("whole"))
                            .await,
                    );
                })
            }),
        ),
        (
            "read",
            Box::new(|| {
                Box::pin(async {
                    if let Ok((_, bytes)) = engine.read_file(who, which_ref, "/root/a", 0, None).await {
                        drop(collect(bytes).await);
                    }
                })
            }),
        ),
        (
            "stdin",
            Box::new(|| {
                Box::pin(async { drop(engine.exec_stdin(who, which_ref, id, bytes("x"), false).await) })
            }),
        ),
        (
            "signal",
            Box::new(|| {
                Box::pin(async { drop(engine.exec_signal(who, which_ref, id, 18, SignalScope::Group).await) })
            }),
        ),
        ("pause", Box::new(|| Box::pin(async { drop(engine.pause_sandbox(who, which_ref).await) }))),
        ("resume", Box::new(|| Box::pin(async { drop(engine.resume_sandbox(who, which_ref).await) }))),
        ("processes", Box::new(|| Box::pin(async { drop(engine.processes(who, which_ref).await) }))),
    ];
    for (name, call) in &calls {
        // Every point at first; then far apart, for a machine that is busy with other things.
        let n_polls = (0..100).chain((7..24).map(|power| 1 << power));
        let mut has_ended = false;
        for n_polls in n_polls {
            has_ended = in_time(drop_after(n_polls, call())).await;
            if has_ended {
                break;
            }
        }
        assert!(has_ended, "{name} never ends");
    }
    // One more resume settles whatever was left of a pause.
    let _resumed = admitted(|| engine.resume_sandbox(who, which_ref)).await;
    assert_eq!(world.read(&which, "/root/a").await, "whole");
    let fine = admitted(|| engine.exec(who, which_ref, ExecSpec::shell("echo fine"))).await.unwrap();
    assert_eq!(world.wait(&which, &fine.id).await.exit_code, Some(0));
    engine.exec_stdin(who, &which, id, bytes(""), true).await.unwrap();
    world.wait(&which, id).await;
    // Every exec that was begun has an end, and every sandbox can be removed.
    in_time(async {
        loop {
            let execs = engine.execs(who, &which).await.unwrap();
            if execs.iter().all(|exec| exec.state == ExecState::Done) {
                break;
            }
            tokio::task::yield_now().await;
        }
    })
    .await;
    remove_all(&world).await;
}

#[tokio::test]
async fn stops_starts_and_removes_go_on_without_their_caller() {
    let world = World::new().await;
    world.backend.delay_starts(Duration::from_millis(1));
    for n_polls in 0..12 {
        let which = world.create().await;
        world.start_exec(&which, "sleep 1000").await;
        drop_after(n_polls, world.engine.restart_sandbox(&world.who, &which, None)).await;
        drop_after(n_polls, world.engine.stop_sandbox(&world.who, &which, None)).await;
        drop_after(n_polls, world.engine.start_sandbox(&world.who, &which)).await;
        drop_after(n_polls, world.engine.remove_sandbox(&world.who, &which, Force::Yes)).await;
    }
    remove_all(&world).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn callers_that_are_killed_at_random_leave_nothing() {
    let world = World::new().await;
    let mut tasks = Vec::new();
    for n in 0..100_u64 {
        let (engine, who) = (world.engine.clone(), world.who.clone());
        let task = tokio::spawn(async move {
            let view = engine.create_sandbox(&who, SandboxSpec::default()).await?;
            let which: SandboxRef = view.id.into();
            let exec = engine.exec(&who, &which, ExecSpec::shell("seq 1000")).await?;
            engine.wait_exec(&who, &which, &exec.id, None).await?;
            engine.stop_sandbox(&who, &which, None).await?;
            engine.remove_sandbox(&who, &which, Force::Yes).await
        });
        let abort = task.abort_handle();
        tasks.push(task);
        // Spread over the life of a task without waiting for time: by turns of the scheduler.
        tokio::spawn(async move {
            for _ in 0..(n * 37) % 400 {
                tokio::task::yield_now().await;
            }
            abort.abort();
        });
    }
    in_time(async {
        for task in tasks {
            drop(task.await);
        }
    })
    .await;
    remove_all(&world).await;
}

async fn remove_all(world: &World) {
    in_time(async {
        loop {
            let left = world.engine.sandboxes(&world.who, &Default::default()).await.unwrap();
            if left.is_empty() && world.engine.is_idle().await {
                break;
            }
            for view in left {
                // A sandbox that is already being removed is not found any more.
                drop(world.engine.remove_sandbox(&world.who, &view.id.into(), Force::Yes).await);
            }
            tokio::task::yield_now().await;
        }
    })
    .await;
    world.assert_nothing_left().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_hundred_cycles_in_parallel_leave_nothing() {
    let world = World::new().await;
    let cycle = |n: u32| {
        let world = &world;
        async move {
            let which: SandboxRef = world.create().await;
            let exec = world.start_exec(&which, &format!("seq {n}; exit {}", n % 7)).await;
            // Some are stopped in the middle, some wait, some are removed while they run.
            if n.is_multiple_of(2) {
                assert_eq!(world.wait(&which, &exec.id).await.exit_code, Some((n % 7) as u8));
            }
            if n.is_multiple_of(3) {
                world.stop(&which).await;
                assert!(world.wait(&which, &exec.id).await.outcome.is_some());
            }
            world.remove(&which).await;
        }
    };
    let all = futures_util::stream::iter(0..500).map(cycle).buffer_unordered(32);
    tokio::time::timeout(Duration::from_secs(120), all.collect::<Vec<()>>()).await.expect("took too long");
    world.assert_nothing_left().await;
}

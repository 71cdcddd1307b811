//! A guest that does not answer while its sandbox is adopted delays only requests for that sandbox.

use std::sync::Arc;

use async_trait::async_trait;
use engine::{Engine, SandboxFilter, SandboxRef};
use futures_util::poll;
use sandbox::{
    Backend, BackendError, BackendKind, Capabilities, Instance, SandboxId, SandboxPlan, SandboxState,
};
use test_backend::TestBackend;
use tokio::sync::Semaphore;

use super::support::{WAIT_FOR_GO, World, in_time};

/// Finds one sandbox again only when told to.
#[derive(Debug)]
struct Stuck {
    inner: TestBackend,
    id: SandboxId,
    may_go_on: Arc<Semaphore>,
}

#[async_trait]
impl Backend for Stuck {
    fn kind(&self) -> BackendKind {
        self.inner.kind()
    }

    async fn probe(&self) -> Result<Capabilities, BackendError> {
        self.inner.probe().await
    }

    async fn create(&self, plan: &SandboxPlan) -> Result<Box<dyn Instance>, BackendError> {
        self.inner.create(plan).await
    }

    async fn adopt(&self, plan: &SandboxPlan) -> Result<Option<Box<dyn Instance>>, BackendError> {
        if plan.id == self.id {
            drop(self.may_go_on.acquire().await);
        }
        self.inner.adopt(plan).await
    }

    async fn sweep(&self, alive: &[SandboxId], known: &[SandboxId]) -> Result<Vec<SandboxId>, BackendError> {
        self.inner.sweep(alive, known).await
    }

    async fn remove(&self, id: &SandboxId) -> Result<(), BackendError> {
        Backend::remove(&self.inner, id).await
    }
}

/// Starts another daemon whose back end cannot find `id` for now.
async fn reopen(world: World, id: &SandboxId) -> (World, Arc<Semaphore>) {
    let World { engine, store, backend, clock, who, config, home } = world;
    drop(engine);
    let may_go_on = Arc::new(Semaphore::new(0));
    let stuck = Stuck { inner: backend.clone(), id: id.clone(), may_go_on: Arc::clone(&may_go_on) };
    let opened =
        Engine::open_with_clock(config.clone(), store.clone(), Arc::new(stuck), Arc::new(clock.clone()));
    let engine = in_time(opened).await.unwrap();
    (World { engine, store, backend, clock, who, config, home }, may_go_on)
}

#[tokio::test]
async fn the_daemon_is_there_before_a_silent_guest_is() {
    let world = World::new().await;
    let (quick, silent) = (world.create_named("quick").await, world.create_named("silent").await);
    let (quick, silent_ref): (SandboxRef, SandboxRef) = (quick.id.into(), silent.id.clone().into());
    let script = format!("echo early; {WAIT_FOR_GO}; echo again; exit 5");
    let exec = world.start_exec(&silent_ref, &script).await;
    let (world, may_go_on) = reopen(world, &silent.id).await;

    let listed = world.engine.sandboxes(&world.who, &SandboxFilter::default()).await.unwrap();
    assert_eq!(listed.iter().map(|view| view.state).collect::<Vec<_>>(), [SandboxState::Running; 2]);
    assert!(!world.engine.is_idle().await);
    assert_eq!(world.run(&quick, "true").await.exit_code, Some(0));
    let fresh: SandboxRef = in_time(world.create_named("fresh")).await.id.into();
    // Requests for the silent one wait, and are answered when it is found.
    {
        let mut waiting = Box::pin(world.wait(&silent_ref, &exec.id));
        let mut settled = Box::pin(world.engine.settled());
        for _ in 0..200 {
            assert!(poll!(&mut waiting).is_pending() && poll!(&mut settled).is_pending());
            tokio::task::yield_now().await;
        }
        may_go_on.add_permits(1);
        world.go(&silent_ref).await;
        assert_eq!(in_time(waiting).await.exit_code, Some(5));
        in_time(settled).await;
    }
    assert_eq!(world.output(&silent_ref, &exec.id).await, "early\nagain\n");
    // A sandbox made meanwhile is not a leftover.
    assert_eq!(world.run(&fresh, "true").await.exit_code, Some(0));
    assert_eq!(world.backend.live().len(), 3);
}

#[tokio::test]
async fn a_daemon_that_closes_does_not_wait_for_a_silent_guest() {
    let world = World::new().await;
    let silent = world.create_named("silent").await;
    let (world, _may_go_on) = reopen(world, &silent.id).await;
    let which: SandboxRef = silent.id.into();
    let asking = world.engine.stat(&world.who, &which, "/", true);
    let (answer, ()) = in_time(async { tokio::join!(asking, world.engine.close()) }).await;
    assert_eq!(answer.unwrap_err().kind(), sandbox::ErrorKind::Unavailable);
    // It lives on, and the next daemon finds it.
    let world = world.restart().await;
    assert_eq!(world.state(&which).await, SandboxState::Running);
}

//! One real sandbox, with what a test asked for between it and the engine.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicBool, Ordering},
};

use async_trait::async_trait;
use sandbox::{
    BackendError, GuestStream, Instance, Isolation, LimitsPlan, NetworkHeld, NetworkHosts, NetworkPlan, Usage,
};
use tokio::sync::watch;

use crate::{
    hostile, lock,
    namespace::{outside_of_tests, spawn},
    switches::{Hostility, Switches},
};

/// The bytes that a connection holds on its way, as a Unix socket would.
const CONNECTION_BYTES: usize = 64 * 1024;

/// An instance that its test can let go of, whoever else still holds it.
#[derive(Debug)]
pub(crate) struct LiveInstance {
    real: Mutex<Option<Arc<dyn Instance>>>,
    isolation: Isolation,
    is_paused: AtomicBool,
    ended: watch::Sender<bool>,
    switches: Arc<Switches>,
}

impl LiveInstance {
    pub(crate) fn new(real: Arc<dyn Instance>, switches: Arc<Switches>) -> Arc<Self> {
        let isolation = real.isolation().clone();
        let (ended, is_paused) = (watch::Sender::new(false), AtomicBool::new(false));
        let instance = Arc::new(Self { real: Mutex::new(Some(real)), isolation, is_paused, ended, switches });
        instance.watch();
        instance
    }

    /// Notes the end of the sandbox.
    fn watch(self: &Arc<Self>) {
        let (Ok(real), mut ended) = (self.real(), self.ended.subscribe()) else { return };
        let instance = Arc::downgrade(self);
        spawn(async move {
            tokio::select! {
                () = real.ended() => {}
                _let_go = ended.wait_for(|has_ended| *has_ended) => {}
            }
            if let Some(instance) = instance.upgrade() {
                instance.ended.send_replace(true);
            }
        });
    }

    fn real(&self) -> Result<Arc<dyn Instance>, BackendError> {
        let over = || BackendError::Unavailable { what: "the test is over".to_owned() };
        lock(&self.real).clone().ok_or_else(over)
    }

    async fn ask<T: Send + 'static, F>(
        &self,
        what: impl FnOnce(Arc<dyn Instance>) -> F,
    ) -> Result<T, BackendError>
    where
        F: Future<Output = Result<T, BackendError>> + Send + 'static,
    {
        outside_of_tests(what(self.real()?)).await
    }

    pub(crate) fn let_go(&self) {
        drop(lock(&self.real).take());
        self.ended.send_replace(true);
    }

    pub(crate) fn has_ended(&self) -> bool {
        *self.ended.borrow()
    }

    pub(crate) fn is_paused(&self) -> bool {
        self.is_paused.load(Ordering::SeqCst)
    }

    pub(crate) async fn ended(&self) {
        // The sender is ours, so it cannot be gone.
        drop(self.ended.subscribe().wait_for(|has_ended| *has_ended).await);
    }
}

/// The engine's hold on it.
#[derive(Debug)]
pub(crate) struct TestInstance(pub(crate) Arc<LiveInstance>);

impl TestInstance {
    /// A connection that is served badly.
    async fn connect_badly(&self, hostility: Hostility) -> Result<GuestStream, BackendError> {
        let real = self.0.ask(|real| async move { real.connect().await }).await?;
        let (ours, theirs) = match hostility {
            // It behaves, so what comes over its stream could be a descriptor.
            Hostility::Version(_) => {
                let failed = |error| BackendError::failed("no pair of sockets", error);
                boxed(tokio::net::UnixStream::pair().map_err(failed)?)
            }
            _ => boxed(tokio::io::duplex(CONNECTION_BYTES)),
        };
        let instance = Arc::clone(&self.0);
        tokio::spawn(async move {
            tokio::select! {
                () = hostile::serve(hostility, real, theirs) => {}
                () = instance.ended() => {}
            }
        });
        Ok(ours)
    }
}

fn boxed<S: sandbox::GuestIo + 'static>((one, other): (S, S)) -> (GuestStream, GuestStream) {
    (Box::new(one), Box::new(other))
}

#[async_trait]
impl Instance for TestInstance {
    fn isolation(&self) -> &Isolation {
        &self.0.isolation
    }

    async fn connect(&self) -> Result<GuestStream, BackendError> {
        if let Some(error) = self.0.switches.take_connect_failure() {
            return Err(error);
        }
        match self.0.switches.take_hostility() {
            Some(hostility) => self.connect_badly(hostility).await,
            None => self.0.ask(|real| async move { real.connect().await }).await,
        }
    }

    async fn stop(&self) -> Result<(), BackendError> {
        self.0.ask(|real| async move { real.stop().await }).await?;
        self.0.ended.send_replace(true);
        Ok(())
    }

    async fn pause(&self) -> Result<(), BackendError> {
        self.0.ask(|real| async move { real.pause().await }).await?;
        self.0.is_paused.store(true, Ordering::SeqCst);
        Ok(())
    }

    async fn resume(&self) -> Result<(), BackendError> {
        self.0.ask(|real| async move { real.resume().await }).await?;
        self.0.is_paused.store(false, Ordering::SeqCst);
        Ok(())
    }

    async fn usage(&self) -> Result<Usage, BackendError> {
        self.0.ask(|real| async move { real.usage().await }).await
    }

    async fn quick_usage(&self) -> Result<Usage, BackendError> {
        self.0.ask(|real| async move { real.quick_usage().await }).await
    }

    async fn hold_network(&self, plan: &NetworkPlan) -> Result<NetworkHeld, BackendError> {
        let plan = plan.clone();
        self.0.ask(|real| async move { real.hold_network(&plan).await }).await
    }

    async fn network_hosts(&self) -> Result<NetworkHosts, BackendError> {
        self.0.ask(|real| async move { real.network_hosts().await }).await
    }

    async fn hold_limits(&self, limits: &LimitsPlan) -> Result<(), BackendError> {
        let limits = limits.clone();
        self.0.ask(|real| async move { real.hold_limits(&limits).await }).await
    }

    async fn ended(&self) {
        self.0.ended().await;
    }
}

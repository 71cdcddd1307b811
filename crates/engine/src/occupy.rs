//! Ports inside that accept connections although no program serves them.

use guest_protocol::FailureKind;
use sandbox::{Action, Result};

use crate::{
    Engine, Principal, SandboxRef,
    client::{GuestError, GuestListener},
    core::until,
    error,
};

impl Engine {
    /// Makes sure that something accepts connections on a port of the sandbox's loopback, as long as it runs and this
    /// daemon does. For programs that take an open port for the sign that a service is ready: what they send is never
    /// read, and the guest closes their connections after a while. A port that is taken is left alone.
    #[crate::boxed]
    pub async fn occupy_port(&self, who: &Principal, which: &SandboxRef, port: u16) -> Result<()> {
        let core = self.core();
        let shared = core.find_to_change(who, which).await?;
        let (life, _guard) = shared.enter(Action::Exec, &core.clock)?;
        let listener = match life.client.listen(port).await {
            Ok(listener) => listener,
            Err(GuestError::Refused(failure)) if failure.kind == FailureKind::AlreadyExists => return Ok(()),
            Err(error) => return Err(error::from_guest(error, &shared.label())),
        };
        let closing = core.closing.clone();
        let over = life.over.clone();
        core.drivers.spawn(async move {
            tokio::select! {
                () = over.cancelled() => {}
                () = until(&closing, ignore_clients(listener)) => {}
            }
        });
        Ok(())
    }
}

/// Returns when the listener is lost.
async fn ignore_clients(mut listener: GuestListener) {
    while listener.next().await.is_ok() {}
}

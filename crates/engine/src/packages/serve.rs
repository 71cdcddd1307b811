//! The index inside: a port that the guest listens on, whose clients the gateway answers.

use std::{sync::Arc, time::Duration};

use guest_protocol::{FailureKind, Incoming};
use sandbox::{PackageManager, SandboxId};
use tokio::{task::JoinSet, time::sleep};

use super::PackageGateway;
use crate::{
    client::{GuestError, GuestListener},
    shared::Life,
};

/// Clients of one install answered at the same time; others wait in the guest.
const MAX_CLIENTS: usize = 32;
/// The pause before a lost listener is requested again.
const RETRY: Duration = Duration::from_millis(100);

/// Tried first, so that addresses remembered by managers stay valid for the next install.
fn usual_port(manager: PackageManager) -> u16 {
    match manager {
        PackageManager::Pip => 17_071,
        PackageManager::Npm => 17_072,
        PackageManager::Apt => 17_073,
    }
}

/// Listens on the usual port, or on any other if a program inside has taken it.
pub(super) async fn listen(life: &Life, manager: PackageManager) -> Result<GuestListener, GuestError> {
    match life.client.listen(usual_port(manager)).await {
        Err(GuestError::Refused(failure)) if failure.kind != FailureKind::LimitReached => {
            life.client.listen(0).await
        }
        listening => listening,
    }
}

/// Answers clients until it is dropped, and everything it began with it. `listener`: absent if it was lost with an
/// earlier daemon; then it is opened again at the same port, which the programs inside still use.
pub(super) async fn serve(
    life: Arc<Life>,
    gateway: Arc<dyn PackageGateway>,
    manager: Option<PackageManager>,
    sandbox: &SandboxId,
    port: u16,
    mut listener: Option<GuestListener>,
) {
    let mut clients = JoinSet::new();
    loop {
        let lost = match &mut listener {
            Some(open) => answer(open, &life, &gateway, manager, sandbox, &mut clients).await,
            None => match life.client.listen(port).await {
                Ok(open) => {
                    listener = Some(open);
                    continue;
                }
                Err(error) => error,
            },
        };
        tracing::debug!(sandbox = %life.client.label(), port, error = %lost, "the listener was lost");
        listener = None;
        tokio::select! {
            () = life.over.cancelled() => return,
            () = sleep(RETRY) => {}
        }
    }
}

/// Returns when the listener is lost.
async fn answer(
    listener: &mut GuestListener,
    life: &Arc<Life>,
    gateway: &Arc<dyn PackageGateway>,
    manager: Option<PackageManager>,
    sandbox: &SandboxId,
    clients: &mut JoinSet<()>,
) -> GuestError {
    loop {
        let has_room = clients.len() < MAX_CLIENTS;
        tokio::select! {
            Some(_left) = clients.join_next() => {}
            incoming = listener.next(), if has_room => match incoming {
                Ok(incoming) => {
                    let (life, gateway) = (Arc::clone(life), Arc::clone(gateway));
                    clients.spawn(welcome(incoming, life, gateway, manager, sandbox.clone()));
                }
                Err(error) => return error,
            },
        }
    }
}

async fn welcome(
    incoming: Incoming,
    life: Arc<Life>,
    gateway: Arc<dyn PackageGateway>,
    manager: Option<PackageManager>,
    sandbox: SandboxId,
) {
    match life.client.accept(incoming).await {
        Ok(stream) => gateway.serve(stream, manager, &sandbox).await,
        Err(error) => {
            tracing::debug!(sandbox = %life.client.label(), %error, "a client left before it was taken");
        }
    }
}

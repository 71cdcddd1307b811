//! All indexes at once inside a sandbox, while something runs there that may need packages.

use std::{convert::Infallible, sync::Arc};

use futures_util::future::join_all;
use sandbox::{PackageManager, SandboxId};

use super::{PackageGateway, serve};
use crate::{
    client::{GuestError, GuestListener},
    shared::Life,
};

/// The ports of the indexes inside.
pub(crate) struct Indexes {
    open: Vec<(PackageManager, GuestListener)>,
}

impl Indexes {
    pub(crate) async fn open(life: &Life) -> Result<Self, GuestError> {
        let mut open = Vec::new();
        for manager in PackageManager::ALL {
            open.push((manager, serve::listen(life, manager).await?));
        }
        Ok(Self { open })
    }

    /// The address of a manager's index inside.
    pub(crate) fn address(&self, manager: PackageManager) -> String {
        let port = self.open.iter().find(|(own, _)| *own == manager).map_or(0, |(_, listener)| listener.port);
        format!("http://127.0.0.1:{port}")
    }

    /// Runs `work` while clients are answered.
    pub(crate) async fn serve<T>(
        self,
        life: &Arc<Life>,
        gateway: &Arc<dyn PackageGateway>,
        sandbox: &SandboxId,
        work: impl Future<Output = T>,
    ) -> T {
        let serving = self.open.into_iter().map(|(manager, listener)| {
            let (life, gateway, port) = (Arc::clone(life), Arc::clone(gateway), listener.port);
            serve::serve(life, gateway, Some(manager), sandbox, port, Some(listener))
        });
        let serving = async {
            join_all(serving).await;
            std::future::pending::<Infallible>().await
        };
        tokio::select! {
            done = work => done,
            never = serving => match never {},
        }
    }
}

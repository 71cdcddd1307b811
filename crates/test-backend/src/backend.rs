//! The back end as the engine sees it.

use std::sync::Arc;

use async_trait::async_trait;
use backends::namespace::NamespaceBackend;
use sandbox::{
    Backend, BackendError, BackendKind, BackendNetwork, BackendSnapshots, BackendVolumes, Capabilities,
    Instance, SandboxId, SandboxPlan,
};

use crate::{
    TestBackend,
    common::{Common, STARTS},
    lock,
};

#[async_trait]
impl Backend for TestBackend {
    fn kind(&self) -> BackendKind {
        BackendKind::Namespace
    }

    async fn probe(&self) -> Result<Capabilities, BackendError> {
        let capabilities = match lock(&self.shared.capabilities).clone() {
            Some(capabilities) => capabilities,
            None => Common::get()?.capabilities.clone(),
        };
        Ok(self.shared.network.add_to(capabilities))
    }

    async fn create(&self, plan: &SandboxPlan) -> Result<Box<dyn Instance>, BackendError> {
        let delay = self.shared.switches.start_delay();
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
        if let Some(error) = self.shared.switches.take_create_failure() {
            return Err(error);
        }
        let wanted = self.shared.network.take_from(plan);
        let create = |backend: Arc<NamespaceBackend>| async move {
            let _may_make_an_image =
                if wanted.limits.disk_is_hard { Some(STARTS.read().await) } else { None };
            backend.create(&wanted).await
        };
        let real = self.shared.namespace.with_backend(create).await?;
        Ok(self.shared.keep(&plan.id, real))
    }

    async fn adopt(&self, plan: &SandboxPlan) -> Result<Option<Box<dyn Instance>>, BackendError> {
        self.shared.switches.check_there()?;
        let known = self.shared.network.take_from(plan);
        let adopt = |backend: Arc<NamespaceBackend>| async move { backend.adopt(&known).await };
        let real = self.shared.namespace.with_backend(adopt).await?;
        Ok(real.map(|real| self.shared.keep(&plan.id, real)))
    }

    async fn sweep(&self, alive: &[SandboxId], known: &[SandboxId]) -> Result<Vec<SandboxId>, BackendError> {
        if self.shared.namespace.directories().is_none() {
            // Nothing was made yet, so nothing needs to be started to look for it.
            return Ok(Vec::new());
        }
        let (alive, known) = (alive.to_vec(), known.to_vec());
        let sweep = |backend: Arc<NamespaceBackend>| async move { backend.sweep(&alive, &known).await };
        let swept = self.shared.namespace.with_backend(sweep).await?;
        lock(&self.shared.instances).retain(|id, _| !swept.contains(id));
        Ok(swept)
    }

    async fn remove(&self, id: &SandboxId) -> Result<(), BackendError> {
        self.shared.switches.check_there()?;
        if let Some(error) = self.shared.switches.take_removal_failure() {
            return Err(error);
        }
        if self.shared.namespace.directories().is_none() {
            return Ok(());
        }
        let gone = id.clone();
        let remove = |backend: Arc<NamespaceBackend>| async move { Backend::remove(&*backend, &gone).await };
        self.shared.namespace.with_backend(remove).await?;
        lock(&self.shared.instances).remove(id);
        Ok(())
    }

    fn volumes(&self) -> Option<&dyn BackendVolumes> {
        Some(self)
    }

    fn snapshots(&self) -> Option<&dyn BackendSnapshots> {
        Some(self)
    }

    fn network(&self) -> Option<&dyn BackendNetwork> {
        self.shared.network.get()
    }
}

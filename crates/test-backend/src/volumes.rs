//! Volumes, by the real back end.

use std::sync::Arc;

use async_trait::async_trait;
use backends::namespace::NamespaceBackend;
use sandbox::{
    BackendError, BackendVolumes, ByteSize, Instance, SandboxId, VolumeId, VolumeKind, VolumeStorage,
};

use crate::{TestBackend, common::STARTS, instance::TestInstance};

#[async_trait]
impl BackendVolumes for TestBackend {
    async fn make(
        &self,
        id: &VolumeId,
        kind: VolumeKind,
        limit: Option<ByteSize>,
    ) -> Result<VolumeStorage, BackendError> {
        let (id, limit) = (id.clone(), limit.filter(|_| !self.shared.switches.quotas_are_measured()));
        let make = |backend: Arc<NamespaceBackend>| async move {
            let _may_make_an_image = STARTS.read().await;
            BackendVolumes::make(&*backend, &id, kind, limit).await
        };
        self.shared.namespace.with_backend(make).await
    }

    async fn used(&self, id: &VolumeId) -> Result<u64, BackendError> {
        let id = id.clone();
        let used = |backend: Arc<NamespaceBackend>| async move { BackendVolumes::used(&*backend, &id).await };
        self.shared.namespace.with_backend(used).await
    }

    async fn remove(&self, id: &VolumeId) -> Result<(), BackendError> {
        let id = id.clone();
        let remove =
            |backend: Arc<NamespaceBackend>| async move { BackendVolumes::remove(&*backend, &id).await };
        self.shared.namespace.with_backend(remove).await
    }

    async fn open(&self, place: &SandboxId, id: &VolumeId) -> Result<Box<dyn Instance>, BackendError> {
        let (place, id) = (place.clone(), id.clone());
        let open = |backend: Arc<NamespaceBackend>| async move {
            BackendVolumes::open(&*backend, &place, &id).await
        };
        let real = self.shared.namespace.with_backend(open).await?;
        Ok(Box::new(TestInstance(self.shared.wrap(real))))
    }
}

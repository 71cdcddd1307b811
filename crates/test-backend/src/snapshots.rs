//! Snapshots, by the real back end; their copies can be held up and fail.

use std::{os::fd::OwnedFd, sync::Arc};

use async_trait::async_trait;
use backends::namespace::NamespaceBackend;
use sandbox::{
    BackendError, BackendSnapshots, DiffQuery, DiffReport, Holding, SandboxPlan, SnapshotId, TreeCopy,
    TreeFacts,
};
use tokio::sync::oneshot;

use crate::TestBackend;

#[async_trait]
impl BackendSnapshots for TestBackend {
    async fn take(
        &self,
        plan: &SandboxPlan,
        id: &SnapshotId,
        hold: Holding<'_>,
    ) -> Result<TreeCopy, BackendError> {
        let (plan, id) = (plan.clone(), id.clone());
        let (ask, asked) = oneshot::channel();
        let (answer, answered) = oneshot::channel();
        let held = Box::pin(async move {
            let left = |_left| BackendError::Unavailable { what: "nobody waits for this copy".to_owned() };
            ask.send(()).map_err(left)?;
            answered.await.unwrap_or_else(|_left| Err(left(())))
        });
        let take = |backend: Arc<NamespaceBackend>| async move { backend.take(&plan, &id, held).await };
        let copied = self.shared.namespace.with_backend(take);
        let holds = async {
            if asked.await.is_ok() {
                // Who does not hear the answer tells why by itself.
                drop(answer.send(self.hold(hold).await));
            }
        };
        tokio::join!(copied, holds).0
    }

    async fn facts(&self, id: &SnapshotId) -> Result<TreeFacts, BackendError> {
        let id = id.clone();
        let facts = |backend: Arc<NamespaceBackend>| async move { backend.facts(&id).await };
        self.shared.namespace.with_backend(facts).await
    }

    async fn export(&self, id: &SnapshotId, archive: OwnedFd) -> Result<(), BackendError> {
        let id = id.clone();
        let export = |backend: Arc<NamespaceBackend>| async move { backend.export(&id, archive).await };
        self.shared.namespace.with_backend(export).await
    }

    async fn import(&self, id: &SnapshotId, archive: OwnedFd) -> Result<TreeFacts, BackendError> {
        let id = id.clone();
        let import = |backend: Arc<NamespaceBackend>| async move { backend.import(&id, archive).await };
        self.shared.namespace.with_backend(import).await
    }

    async fn remove(&self, id: &SnapshotId) -> Result<(), BackendError> {
        let id = id.clone();
        let remove =
            |backend: Arc<NamespaceBackend>| async move { BackendSnapshots::remove(&*backend, &id).await };
        self.shared.namespace.with_backend(remove).await
    }

    async fn diff(&self, plan: &SandboxPlan, query: DiffQuery) -> Result<DiffReport, BackendError> {
        let plan = plan.clone();
        let diff = |backend: Arc<NamespaceBackend>| async move { backend.diff(&plan, query).await };
        self.shared.namespace.with_backend(diff).await
    }
}

impl TestBackend {
    /// Has the sandbox stand still, and the copy too where a test wants that.
    async fn hold(&self, hold: Holding<'_>) -> Result<(), BackendError> {
        hold.await?;
        self.shared.switches.copying().await;
        self.shared.switches.take_copy_failure().map_or(Ok(()), Err)
    }
}

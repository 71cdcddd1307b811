//! The back ends of one daemon, the default first, with their capabilities here.

use std::sync::Arc;

use sandbox::{
    Backend, BackendError, BackendImages, BackendKind, BackendSnapshots, BackendVolumes, Capabilities,
    Capability, Error, ErrorKind, Instance, Next, Result, SandboxPlan, Subject, Thing,
};

use crate::error;

#[derive(Debug)]
pub(crate) struct Backends {
    all: Vec<Arc<dyn Backend>>,
    capabilities: Vec<Capabilities>,
}

impl Backends {
    /// Probes each back end. An unusable one is left out, unless it is the only one.
    pub(crate) async fn probe(backends: Vec<Arc<dyn Backend>>) -> Result<Self> {
        let (mut all, mut capabilities, mut failed) = (Vec::new(), Vec::new(), None);
        for backend in backends {
            match backend.probe().await {
                Ok(found) => {
                    capabilities.push(found);
                    all.push(backend);
                }
                Err(error) => {
                    let error =
                        error::from_backend(error, &Subject::new(Thing::Backend, backend.kind().as_str()));
                    tracing::warn!(error = &error as &dyn std::error::Error, "a back end cannot be used");
                    failed = Some(error);
                }
            }
        }
        if all.is_empty() {
            return Err(failed.unwrap_or_else(|| Error::invalid("a daemon needs a back end")));
        }
        Ok(Self { all, capabilities })
    }

    /// The capabilities of each, the default first.
    pub(crate) fn capabilities(&self) -> &[Capabilities] {
        &self.capabilities
    }

    pub(crate) fn all(&self) -> &[Arc<dyn Backend>] {
        &self.all
    }

    /// The back end that a plan names. A daemon may have been started without it: then its sandboxes are unreachable.
    pub(crate) fn of(&self, plan: &SandboxPlan) -> Result<&dyn Backend, BackendError> {
        let found = self.all.iter().find(|backend| backend.kind() == plan.backend);
        let missing =
            || BackendError::Unavailable { what: format!("this daemon has no back end {}", plan.backend) };
        found.map(AsRef::as_ref).ok_or_else(missing)
    }

    pub(crate) fn has(&self, plan: &SandboxPlan, capability: Capability) -> bool {
        let found = self.capabilities.iter().find(|found| found.backend == plan.backend);
        found.is_some_and(|found| found.has(capability))
    }

    /// Refuses what the back end of a plan cannot do.
    pub(crate) fn check(&self, plan: &SandboxPlan, capability: Capability) -> Result<()> {
        if self.has(plan, capability) { Ok(()) } else { Err(self.lacks(plan.backend, capability)) }
    }

    /// The error that a back end cannot do this. The next step is one that can; isolation is never given up without a
    /// request.
    pub(crate) fn lacks(&self, kind: BackendKind, capability: Capability) -> Error {
        let may_be_used = |found: &&Capabilities| {
            found.backend != kind && found.backend != BackendKind::Process && found.has(capability)
        };
        let able = self.capabilities.iter().find(may_be_used).map(|found| Next::UseBackend(found.backend));
        Error::new(ErrorKind::Unsupported, format!("the back end {kind} does not support {capability}"))
            .about(Thing::Backend, kind.as_str())
            .with_next(able)
    }

    pub(crate) async fn adopt(&self, plan: &SandboxPlan) -> Result<Option<Box<dyn Instance>>, BackendError> {
        self.of(plan)?.adopt(plan).await
    }

    pub(crate) async fn remove(&self, plan: &SandboxPlan) -> Result<(), BackendError> {
        self.of(plan)?.remove(&plan.id).await
    }

    fn first_kind(&self) -> BackendKind {
        self.capabilities.first().map(|found| found.backend).unwrap_or_default()
    }

    /// The first back end that supports volumes keeps them.
    pub(crate) fn volumes(&self) -> Result<&dyn BackendVolumes> {
        let found = self.all.iter().find_map(|backend| backend.volumes());
        found.ok_or_else(|| self.lacks(self.first_kind(), Capability::Volumes))
    }

    /// The first back end that supports snapshots keeps them.
    pub(crate) fn snapshots(&self) -> Result<&dyn BackendSnapshots> {
        let found = self.all.iter().find_map(|backend| backend.snapshots());
        found.ok_or_else(|| self.lacks(self.first_kind(), Capability::Snapshots))
    }

    /// Snapshots of a sandbox with this plan.
    pub(crate) fn snapshots_of(&self, plan: &SandboxPlan) -> Result<&dyn BackendSnapshots> {
        let found = self.of(plan).ok().and_then(Backend::snapshots);
        found.ok_or_else(|| self.lacks(plan.backend, Capability::Snapshots))
    }

    pub(crate) fn images_of(&self, plan: &SandboxPlan) -> Result<&dyn BackendImages> {
        let found = self.of(plan).ok().and_then(Backend::images);
        found.ok_or_else(|| self.lacks(plan.backend, Capability::Images))
    }
}

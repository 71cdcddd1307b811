//! A sandbox from a snapshot, with the limits of the snapshot's source.

use std::collections::BTreeMap;

use sandbox::{Lifetime, Limits, MountSpec, Namespace, Result, RootfsSpec, SandboxName, SandboxSpec};

use super::SnapshotRef;
use crate::{Engine, Principal, SandboxView};

/// The properties of a restored sandbox that the snapshot does not set.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RestoreSpec {
    pub name: Option<SandboxName>,
    pub namespace: Namespace,
    pub user: Option<String>,
    pub env: BTreeMap<String, String>,
    pub labels: BTreeMap<String, String>,
    pub mounts: Vec<MountSpec>,
    pub lifetime: Lifetime,
    /// Replaces those of the snapshot's source.
    pub limits: Option<Limits>,
}

impl Engine {
    /// Makes a sandbox from a snapshot: its files, its environment, user and working directory, and its limits.
    #[crate::boxed]
    pub async fn restore_snapshot(
        &self,
        who: &Principal,
        which: &SnapshotRef,
        spec: RestoreSpec,
    ) -> Result<SandboxView> {
        who.may_change()?;
        let which = match &which.namespace {
            Some(_) => which.clone(),
            None => which.clone().in_namespace(&spec.namespace),
        };
        let snapshot = self.core().find_snapshot(who, &which)?;
        let spec = SandboxSpec {
            name: spec.name,
            namespace: snapshot.record.namespace.clone(),
            rootfs: Some(RootfsSpec::Snapshot { snapshot: snapshot.record.id.to_string() }),
            limits: spec.limits.unwrap_or_else(|| snapshot.manifest.source.limits.clone()),
            user: spec.user,
            env: spec.env,
            labels: spec.labels,
            mounts: spec.mounts,
            lifetime: spec.lifetime,
            ..SandboxSpec::default()
        };
        self.create_sandbox(who, spec).await
    }
}

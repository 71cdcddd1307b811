//! A sandbox from a snapshot, with the limits of the snapshot's source.

use std::collections::BTreeMap;

use images::Progress;
use sandbox::{
    Error, ErrorKind, ImageRef, Lifetime, Limits, MountSpec, Namespace, NetworkSpec, Result, RootfsSpec,
    SandboxName, SandboxSpec, SnapshotSource, plan_network,
};
use store::SandboxRecord;

use super::SnapshotRef;
use crate::{CreateRequest, Engine, Principal, SandboxRef, SandboxView, mounts};

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
    /// If a sandbox has the name, it is replaced. It keeps its own settings and mounts where this spec says nothing,
    /// and gets the snapshot's files.
    pub replace: bool,
    /// An agent asks: a new sandbox without a limit of time gets [`EngineConfig::agent_idle`](crate::EngineConfig). One
    /// that is replaced keeps the time that it has.
    pub by_agent: bool,
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
        let rootfs = RootfsSpec::Snapshot { snapshot: snapshot.record.id.to_string() };
        let namespace = snapshot.record.namespace.clone();
        let source = &snapshot.manifest.source;
        let earlier = match (&spec.name, spec.replace) {
            (Some(name), true) => SandboxRef::new(name.as_str(), Some(namespace.clone()))?,
            (None, true) => {
                return Err(Error::invalid("replace requires the name of the sandbox to replace")
                    .with_hint("Give its name, or omit replace to create a new sandbox."));
            }
            (_, false) => {
                let new = new_request(spec, namespace, rootfs, source);
                return Ok(with_warning(self.create_sandbox(who, new).await?, source));
            }
        };
        let (new, is_of_source) = match self.core().find_to_change(who, &earlier).await {
            Ok(found) => (changed_spec(found.status.borrow().record.clone(), spec, rootfs).into(), false),
            Err(error) if error.kind() == ErrorKind::NotFound => {
                (new_request(spec, namespace, rootfs, source), true)
            }
            Err(error) => return Err(error),
        };
        let made = self.replace_sandbox(who, new, &earlier, None, Progress::none()).await?;
        Ok(if is_of_source { with_warning(made, source) } else { made })
    }
}

fn new_request(
    spec: RestoreSpec,
    namespace: Namespace,
    rootfs: RootfsSpec,
    source: &SnapshotSource,
) -> CreateRequest {
    let by_agent = spec.by_agent;
    let spec = SandboxSpec {
        name: spec.name,
        namespace,
        rootfs: Some(rootfs),
        limits: spec.limits.unwrap_or_else(|| source.limits.clone()),
        network: carried(&source.network),
        user: spec.user,
        env: spec.env,
        labels: spec.labels,
        mounts: spec.mounts,
        lifetime: spec.lifetime,
        ..SandboxSpec::default()
    };
    CreateRequest { spec, by_agent, ..CreateRequest::default() }
}

/// The network of a snapshot's source, if it reaches no more than a sandbox does that asks for nothing. An archive may
/// come from a stranger, and nothing that it says opens a network.
fn carried(network: &NetworkSpec) -> NetworkSpec {
    let reaches_no_more = plan_network(network, &[]).is_ok_and(|plan| !plan.needs_edge());
    if reaches_no_more { network.clone() } else { NetworkSpec::default() }
}

/// Says of a restored sandbox that it reaches less than the snapshot's source did.
fn with_warning(mut made: SandboxView, source: &SnapshotSource) -> SandboxView {
    if carried(&source.network) != source.network {
        made.warnings.push(
            "The network policy of the snapshot's source opens more than package indexes, so this sandbox does not \
             have it. Change the network of this sandbox to allow what it needs."
                .to_owned(),
        );
    }
    made
}

/// The settings of an existing sandbox, with other files.
fn changed_spec(of: SandboxRecord, spec: RestoreSpec, rootfs: RootfsSpec) -> SandboxSpec {
    let is_default = spec.lifetime == Lifetime::default();
    let mut changed = SandboxSpec {
        name: spec.name,
        rootfs: Some(rootfs),
        image: ImageRef::default(),
        request_id: None,
        // Other files have to ask for them again.
        secrets: Vec::new(),
        // With the paths that a front end allowed it.
        mounts: if spec.mounts.is_empty() { mounts::asked_again(&of) } else { spec.mounts },
        lifetime: if is_default { of.lifetime.clone() } else { spec.lifetime },
        ..of.spec
    };
    changed.env.extend(spec.env);
    changed.labels.extend(spec.labels);
    changed.user = spec.user.or(changed.user);
    changed.limits = spec.limits.unwrap_or(changed.limits);
    changed
}

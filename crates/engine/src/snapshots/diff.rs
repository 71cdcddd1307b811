//! What a sandbox changed.

use sandbox::{
    DiffQuery, DiffReport, Error, Result, RootfsPlan, SandboxPlan, SandboxState, SnapshotManifest,
};

use super::SnapshotRef;
use crate::{Engine, Principal, SandboxRef, error};

/// Most changes that one answer tells.
const MAX_CHANGES: usize = 100_000;
/// Longest patch that one answer has.
const MAX_PATCH_BYTES: usize = 16 * 1024 * 1024;
const DEFAULT_CHANGES: usize = 10_000;
const DEFAULT_PATCH_BYTES: usize = 1024 * 1024;

/// What to compare a sandbox with.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Since {
    #[default]
    Image,
    /// One of the same image: of itself, of another sandbox, or one that it was made from.
    Snapshot(String),
    /// What it was made from: its image, or the snapshot.
    Start,
}

/// What to tell of a sandbox's changes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DiffSpec {
    pub since: Since,
    /// Only what is beneath; everything when absent.
    pub under: Option<String>,
    /// Changes of text files as a patch, too.
    pub patch: bool,
    pub max_changes: Option<usize>,
    pub max_patch_bytes: Option<usize>,
}

impl Engine {
    /// Compares a sandbox's files with its image or a snapshot. What changes meanwhile may be told either way.
    pub async fn diff_sandbox(
        &self,
        who: &Principal,
        which: &SandboxRef,
        spec: DiffSpec,
    ) -> Result<DiffReport> {
        let core = self.core();
        let shared = core.find_to_look(who, which).await?;
        let (plan, state) = {
            let status = shared.status.borrow();
            (status.record.plan.clone(), status.record.state)
        };
        if matches!(state, SandboxState::Creating | SandboxState::Failed) {
            return Err(error::wrong_state(&shared.label(), state, sandbox::Action::Snapshot));
        }
        let under = spec.under.unwrap_or_else(|| "/".to_owned());
        if !under.starts_with('/') || under.contains('\0') || under.len() > 4095 {
            return Err(Error::invalid(format!("{:?} is not an absolute path", shorten(&under)))
                .with_hint("Give a path that starts with /."));
        }
        // Held until it was compared.
        let (against, _held) = match &spec.since {
            Since::Image => (Vec::new(), None),
            Since::Start => (plan.above.clone(), None),
            Since::Snapshot(text) => {
                let which = SnapshotRef::new(text, Some(shared.subject.namespace.clone()))?;
                let snapshot = core.find_snapshot(who, &which)?;
                if !is_on_the_same(&snapshot.manifest, &plan) {
                    let message =
                        format!("{} and {} have different images", shared.label(), snapshot.label());
                    return Err(Error::invalid(message).with_hint(
                        "Compare with the sandbox's image, or with a snapshot of the same image.",
                    ));
                }
                let held = core.hold_snapshot(&snapshot)?;
                let chain = core.snapshots.chain(&snapshot)?;
                (chain.iter().map(|snapshot| snapshot.record.id.clone()).collect(), Some(held))
            }
        };
        let query = DiffQuery {
            against,
            under,
            patch: spec.patch,
            max_changes: spec.max_changes.unwrap_or(DEFAULT_CHANGES).min(MAX_CHANGES),
            max_patch_bytes: spec.max_patch_bytes.unwrap_or(DEFAULT_PATCH_BYTES).min(MAX_PATCH_BYTES),
        };
        let report = core.backends.snapshots_of(&plan)?.diff(&plan, query).await;
        report.map_err(|error| error::from_backend(error, &shared.label()))
    }
}

/// Whether both lie on the same image, or the same path of the host.
fn is_on_the_same(manifest: &SnapshotManifest, plan: &SandboxPlan) -> bool {
    let on_host_path = matches!(plan.rootfs, RootfsPlan::Directory { .. } | RootfsPlan::Disk { .. });
    manifest.image_digest == plan.image_digest
        && manifest.host_path.as_ref() == on_host_path.then_some(&plan.rootfs)
}

fn shorten(text: &str) -> String {
    text.chars().take(80).collect()
}

//! The changes of a sandbox.

use std::sync::Arc;

use sandbox::{
    DiffQuery, DiffReport, Error, ErrorKind, Result, RootfsPlan, SandboxPlan, SandboxState, SnapshotManifest,
};

use super::{SnapshotRef, registry::Snapshot};
use crate::{Engine, Principal, SandboxRef, core::Core, error};

/// Most changes in one answer.
const MAX_CHANGES: usize = 100_000;
/// Longest patch in one answer.
const MAX_PATCH_BYTES: usize = 16 * 1024 * 1024;
const DEFAULT_CHANGES: usize = 10_000;
const DEFAULT_PATCH_BYTES: usize = 1024 * 1024;

/// The state that a sandbox is compared with.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Since {
    #[default]
    Image,
    /// A snapshot on the same image: of itself, of another sandbox, or one that it was made from. The name of the
    /// sandbox that it was forked or restored from means the files which that one had then.
    Snapshot(String),
    /// Its own base: its image, or the snapshot.
    Start,
}

/// Which changes of a sandbox to report.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DiffSpec {
    pub since: Since,
    /// Only changes below this path; everything when absent.
    pub under: Option<String>,
    /// Also report changes of text files as a patch.
    pub patch: bool,
    pub max_changes: Option<usize>,
    pub max_patch_bytes: Option<usize>,
}

impl Engine {
    /// Compares a sandbox's files with its image or a snapshot. A file that changes meanwhile may be reported either
    /// way.
    #[crate::boxed]
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
        let under = spec.under.map_or("/".to_owned(), |under| sandbox::path_from(&plan.cwd, &under));
        // An empty one stays empty.
        if under.is_empty() || under.contains('\0') || under.len() > 4095 {
            return Err(Error::invalid(format!("{:?} is not a path", shorten(&under)))
                .with_hint("Give a path of at most 4095 bytes without NUL."));
        }
        // Held until the comparison is done.
        let (against, _held) = match &spec.since {
            Since::Image => (Vec::new(), None),
            Since::Start => (plan.above.clone(), None),
            Since::Snapshot(text) => {
                let which = SnapshotRef::new(text, Some(shared.subject.namespace.clone()))?;
                let snapshot = match core.find_snapshot(who, &which) {
                    Err(error) if error.kind() == ErrorKind::NotFound => {
                        core.made_from(&plan, text).ok_or(error)?
                    }
                    found => found?,
                };
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

impl Core {
    /// The snapshot that a sandbox was made from, if that was taken of the sandbox of this name.
    fn made_from(&self, plan: &SandboxPlan, source: &str) -> Option<Arc<Snapshot>> {
        let beneath = self.snapshots.by_id(plan.above.first()?)?;
        (beneath.manifest.source.sandbox.as_str() == source).then_some(beneath)
    }
}

/// Whether both are based on the same image, or the same host path.
fn is_on_the_same(manifest: &SnapshotManifest, plan: &SandboxPlan) -> bool {
    let on_host_path = matches!(plan.rootfs, RootfsPlan::Directory { .. } | RootfsPlan::Disk { .. });
    manifest.image_digest == plan.image_digest
        && manifest.host_path.as_ref() == on_host_path.then_some(&plan.rootfs)
}

fn shorten(text: &str) -> String {
    text.chars().take(80).collect()
}

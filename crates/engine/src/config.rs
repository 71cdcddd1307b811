//! What the engine is told when it opens.

use std::{path::PathBuf, sync::Arc, time::Duration};

use sandbox::{Defaults, SandboxId};
use store::LedgerLimits;

use crate::{PackageGateway, VolumeLimits};

/// Sandboxes that one daemon keeps records of, running or not, unless the operator says otherwise.
const DEFAULT_MAX_SANDBOXES: usize = 4096;
/// Snapshots that one daemon keeps, and those of one key, unless the operator says otherwise.
const DEFAULT_MAX_SNAPSHOTS: usize = 4096;
const DEFAULT_MAX_SNAPSHOTS_EACH: usize = 512;
/// Most bytes that an archive of snapshots may unpack to, unless the operator says otherwise.
const DEFAULT_MAX_SNAPSHOT_BYTES: u64 = 256 * 1024 * 1024 * 1024;
/// How long a stop waits for the workload to end by itself.
const DEFAULT_STOP_GRACE: Duration = Duration::from_secs(10);

/// The longest grace that a stop may ask for. A later stop can shorten it, never lengthen it.
pub const MAX_STOP_GRACE: Duration = Duration::from_secs(60 * 60);

#[derive(Debug, Clone)]
pub struct EngineConfig {
    /// `$WARREN_HOME`.
    pub home: PathBuf,
    /// Where the daemon's sockets and those of the guests are: as private as `home`, to every sandbox.
    pub run: Option<PathBuf>,
    /// What a sandbox gets where nothing was asked.
    pub defaults: Defaults,
    pub ledger: LedgerLimits,
    pub max_sandboxes: usize,
    pub max_snapshots: usize,
    /// Those made with one key.
    pub max_snapshots_each: usize,
    /// What one archive of snapshots may unpack to.
    pub max_snapshot_bytes: u64,
    pub volumes: VolumeLimits,
    /// Between the guest's SIGTERM and its SIGKILL when a stop does not say.
    pub stop_grace: Duration,
    pub deadlines: Deadlines,
    /// The way to package indexes; without one nothing can be installed.
    pub packages: Option<Arc<dyn PackageGateway>>,
    /// How images are kept, below `home`; the engine itself fills in who uses them. Without, there is only image `host`.
    pub images: Option<images::Options>,
}

impl EngineConfig {
    pub fn new(home: impl Into<PathBuf>) -> Self {
        Self {
            home: home.into(),
            run: None,
            defaults: Defaults::default(),
            ledger: LedgerLimits::default(),
            max_sandboxes: DEFAULT_MAX_SANDBOXES,
            max_snapshots: DEFAULT_MAX_SNAPSHOTS,
            max_snapshots_each: DEFAULT_MAX_SNAPSHOTS_EACH,
            max_snapshot_bytes: DEFAULT_MAX_SNAPSHOT_BYTES,
            volumes: VolumeLimits::default(),
            stop_grace: DEFAULT_STOP_GRACE,
            deadlines: Deadlines::default(),
            packages: None,
            images: None,
        }
    }

    pub(crate) fn sandbox_directory(&self, id: &SandboxId) -> PathBuf {
        self.home.join("sandboxes").join(id.as_str())
    }
}

/// How long the engine waits for a guest, which may be hostile and silent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Deadlines {
    /// Opening a stream, and the guest's first frame on it.
    pub hello: Duration,
    /// The answer to a request that touches one thing.
    pub answer: Duration,
    /// The answer to a request that walks a tree, unpacks one or waits for an interpreter.
    pub long_answer: Duration,
    /// After the grace of a stop, before the place is taken away by force; and again for the last output to arrive.
    pub last_words: Duration,
    /// The longest pause between two tries to reach a guest again.
    pub retry: Duration,
}

impl Default for Deadlines {
    fn default() -> Self {
        Self {
            hello: Duration::from_secs(10),
            answer: Duration::from_secs(30),
            long_answer: Duration::from_secs(600),
            last_words: Duration::from_secs(3),
            retry: Duration::from_secs(2),
        }
    }
}

//! The engine's configuration.

use std::{net::IpAddr, path::PathBuf, sync::Arc, time::Duration};

use sandbox::{ByteSize, Defaults, Policy, SandboxId};
use store::LedgerLimits;

use crate::{PackageGateway, VolumeLimits};

/// Sandboxes that one daemon keeps records of, running or not, unless the operator sets another limit.
const DEFAULT_MAX_SANDBOXES: usize = 4096;
/// Snapshots of one daemon, and of one key, unless the operator sets another limit.
const DEFAULT_MAX_SNAPSHOTS: usize = 4096;
const DEFAULT_MAX_SNAPSHOTS_EACH: usize = 512;
/// Most bytes that an archive of snapshots may unpack to, unless the operator sets another limit.
const DEFAULT_MAX_SNAPSHOT_BYTES: u64 = 256 * 1024 * 1024 * 1024;
/// How long a stop waits for the workload to end by itself.
const DEFAULT_STOP_GRACE: Duration = Duration::from_secs(10);

/// The longest grace of a stop. A later stop can shorten it, never lengthen it.
pub const MAX_STOP_GRACE: Duration = Duration::from_secs(60 * 60);

#[derive(Debug, Clone)]
pub struct EngineConfig {
    /// `$WARREN_HOME`.
    pub home: PathBuf,
    /// Directory of the daemon's and the guests' sockets: like `home`, no sandbox may see it.
    pub run: Option<PathBuf>,
    /// Defaults for everything that a request for a sandbox leaves out.
    pub defaults: Defaults,
    pub ledger: LedgerLimits,
    pub max_sandboxes: usize,
    pub max_snapshots: usize,
    /// Most snapshots made with one key.
    pub max_snapshots_each: usize,
    /// Most bytes that one archive of snapshots may unpack to.
    pub max_snapshot_bytes: u64,
    pub volumes: VolumeLimits,
    /// Time between the guest's SIGTERM and its SIGKILL if a stop does not set it.
    pub stop_grace: Duration,
    pub deadlines: Deadlines,
    /// The connection to package indexes; without one nothing can be installed.
    pub packages: Option<Arc<dyn PackageGateway>>,
    /// How long a sandbox that an agent made without a limit of time may idle before it is stopped.
    pub agent_idle: Option<Duration>,
    /// Options of the image store below `home`; the engine itself adds the users. Without, there is only image `host`.
    pub images: Option<images::Options>,
    /// Addresses beside loopback on which ports may be published.
    pub publish_on: Vec<IpAddr>,
    /// The ceiling on what sandboxes reach on the network. The daemon's owner is not bound by it.
    pub network_ceiling: Policy,
    /// Samples the fleet all the time, for a history of the last hour.
    pub keeps_history: bool,
}

impl EngineConfig {
    pub fn new(home: impl Into<PathBuf>) -> Self {
        Self {
            home: home.into(),
            run: None,
            defaults: Defaults {
                processors: processors_here(),
                host_memory: memory_here(),
                ..Defaults::default()
            },
            ledger: LedgerLimits::default(),
            max_sandboxes: DEFAULT_MAX_SANDBOXES,
            max_snapshots: DEFAULT_MAX_SNAPSHOTS,
            max_snapshots_each: DEFAULT_MAX_SNAPSHOTS_EACH,
            max_snapshot_bytes: DEFAULT_MAX_SNAPSHOT_BYTES,
            volumes: VolumeLimits::default(),
            stop_grace: DEFAULT_STOP_GRACE,
            deadlines: Deadlines::default(),
            packages: None,
            agent_idle: None,
            images: None,
            publish_on: Vec::new(),
            network_ceiling: Policy::default(),
            keeps_history: false,
        }
    }

    pub(crate) fn sandbox_directory(&self, id: &SandboxId) -> PathBuf {
        self.home.join("sandboxes").join(id.as_str())
    }
}

/// Without an answer, more than anyone asks for.
fn memory_here() -> ByteSize {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let total = text.lines().find_map(|line| line.strip_prefix("MemTotal:")?.trim().strip_suffix("kB"));
    let kib: Option<u64> = total.and_then(|total| total.trim().parse().ok());
    kib.map_or(ByteSize(u64::MAX), |kib| ByteSize::mib(kib / 1024))
}

fn processors_here() -> u32 {
    std::thread::available_parallelism().map_or(1, |n| u32::try_from(n.get()).unwrap_or(u32::MAX))
}

/// How long the engine waits for a guest, which may be hostile and silent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Deadlines {
    /// Opening a stream, and the guest's first frame on it.
    pub hello: Duration,
    /// For requests that touch one thing.
    pub answer: Duration,
    /// For requests that walk a tree, unpack one or wait for an interpreter.
    pub long_answer: Duration,
    /// Time after the grace of a stop before force is used; and again for the last output to arrive.
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

//! The fleet: totals now and over the last hour, back ends, and the disk that all of it is on.

use std::{
    collections::VecDeque,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use jiff::Timestamp;
use sandbox::{BackendKind, Error, ErrorKind, Result, SandboxState, Walls};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::LoadSample;
use crate::{Engine, Principal, Scope, core::Core};

/// Moments that are kept: an hour of them.
const MAX_MOMENTS: usize = 360;

/// All sandboxes at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct FleetMoment {
    pub at: Timestamp,
    pub sandboxes: u64,
    pub running: u64,
    /// 100 is one processor.
    pub cpu_percent: f64,
    pub memory_bytes: u64,
    /// Of running sandboxes, as last measured.
    pub disk_bytes: u64,
    /// Sandboxes made since the moment before.
    pub creates: u64,
    /// Execs begun since the moment before.
    pub execs: u64,
}

/// One back end of the daemon.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct BackendHealth {
    pub name: BackendKind,
    /// Whether all of its sandboxes can be reached.
    pub healthy: bool,
    pub is_default: bool,
    /// The walls between its sandboxes and the host, as its sandboxes state them; absent if it has no sandboxes.
    #[schema(required = true)]
    pub walls: Option<Walls>,
    pub sandboxes: u64,
    pub running: u64,
    /// Sandboxes that it does not answer for.
    pub unreachable: u64,
    /// Missing features of this host, with the reason, as sentences.
    pub missing: Vec<String>,
}

/// The file system of the daemon's data directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = FleetDisk)]
pub struct HomeDisk {
    pub total_bytes: u64,
    pub free_bytes: u64,
}

/// The cache of packages that sandboxes installed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct PackagesCache {
    pub files: u64,
    pub bytes: u64,
}

/// The whole fleet.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Fleet)]
pub struct FleetView {
    /// Now; `creates` and `execs` since the last moment of the history.
    pub totals: FleetMoment,
    /// Every ten seconds for an hour, oldest first. Begins with the daemon.
    pub history: Vec<FleetMoment>,
    pub backends: Vec<BackendHealth>,
    #[schema(required = true)]
    pub disk: Option<HomeDisk>,
    /// Absent where packages cannot be installed, or none was yet.
    #[schema(required = true)]
    pub packages_cache: Option<PackagesCache>,
    /// The most sandboxes that the daemon keeps.
    pub max_sandboxes: u64,
}

/// Creates and execs since the last moment of the history.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    creates: AtomicU64,
    execs: AtomicU64,
}

impl Counters {
    pub(crate) fn count_create(&self) {
        self.creates.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count_exec(&self) {
        self.execs.fetch_add(1, Ordering::Relaxed);
    }
}

#[derive(Debug, Default)]
pub(super) struct History(Mutex<VecDeque<FleetMoment>>);

impl History {
    pub(super) fn add(&self, core: &Core, sample: &LoadSample) {
        let moment = FleetMoment {
            creates: core.counters.creates.swap(0, Ordering::Relaxed),
            execs: core.counters.execs.swap(0, Ordering::Relaxed),
            ..moment(core, sample)
        };
        let mut moments = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if moments.len() == MAX_MOMENTS {
            moments.pop_front();
        }
        moments.push_back(moment);
    }

    fn read(&self) -> Vec<FleetMoment> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().copied().collect()
    }
}

fn moment(core: &Core, sample: &LoadSample) -> FleetMoment {
    let (mut sandboxes, mut running) = (0, 0);
    core.each(|shared| {
        sandboxes += 1;
        running += u64::from(shared.state() == SandboxState::Running);
    });
    let loads = || sample.sandboxes.values();
    FleetMoment {
        at: core.clock.now(),
        sandboxes,
        running,
        cpu_percent: (loads().filter_map(|load| load.cpu_percent).fold(0.0, |sum, one| sum + one) * 10.0_f64)
            .round()
            / 10.0,
        memory_bytes: loads().filter_map(|load| load.memory_bytes).sum(),
        disk_bytes: loads().filter_map(|load| load.disk_bytes).sum(),
        creates: core.counters.creates.load(Ordering::Relaxed),
        execs: core.counters.execs.load(Ordering::Relaxed),
    }
}

impl Engine {
    /// Totals over all namespaces, for callers of all of them.
    #[crate::boxed]
    pub async fn fleet(&self, who: &Principal) -> Result<FleetView> {
        let core = self.core();
        core.keys.admit(who, core.clock.now())?;
        if who.scope != Scope::All {
            let message = format!("{} may not see totals over all namespaces", who.name);
            return Err(Error::new(ErrorKind::Denied, message).with_hint("Use a key for all namespaces."));
        }
        let (home, packages) = (core.config.home.clone(), core.config.packages.clone());
        let measure = move || (disk_of(&home), packages.and_then(|packages| packages.cache()));
        let (disk, packages_cache) = tokio::task::spawn_blocking(measure).await.unwrap_or_default();
        Ok(FleetView {
            totals: moment(core, &core.sampler.latest()),
            history: core.sampler.history.read(),
            backends: self.backend_health(),
            disk,
            packages_cache,
            max_sandboxes: core.config.max_sandboxes as u64,
        })
    }

    fn backend_health(&self) -> Vec<BackendHealth> {
        let mut found: Vec<_> = self.backends().iter().enumerate().map(health).collect();
        self.core().each(|shared| {
            let status = shared.status.borrow();
            let Some(own) = found.iter_mut().find(|own| own.name == status.record.plan.backend) else {
                return;
            };
            own.sandboxes += 1;
            own.running += u64::from(status.record.state == SandboxState::Running);
            own.unreachable += u64::from(status.unreachable.is_some());
            own.healthy &= status.unreachable.is_none();
            own.walls =
                own.walls.or_else(|| status.record.isolation.as_ref().map(|isolation| isolation.walls));
        });
        found
    }
}

fn health((index, found): (usize, &sandbox::Capabilities)) -> BackendHealth {
    BackendHealth {
        name: found.backend,
        healthy: true,
        is_default: index == 0,
        walls: None,
        sandboxes: 0,
        running: 0,
        unreachable: 0,
        missing: found.missing.clone(),
    }
}

pub(crate) fn disk_of(home: &std::path::Path) -> Option<HomeDisk> {
    let found = rustix::fs::statvfs(home).ok()?;
    let bytes = |blocks: u64| blocks.saturating_mul(found.f_frsize);
    Some(HomeDisk { total_bytes: bytes(found.f_blocks), free_bytes: bytes(found.f_bavail) })
}

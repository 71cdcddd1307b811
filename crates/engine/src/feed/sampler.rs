//! Samples what sandboxes use: once for all listeners while there are any, and for the fleet's history.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use futures_util::{StreamExt as _, stream};
use jiff::Timestamp;
use sandbox::{SandboxId, SandboxState, Usage};
use serde::{Deserialize, Serialize};
use tokio::{
    sync::{Notify, watch},
    time::{sleep, timeout},
};

use super::fleet::History;
use crate::{
    core::{Core, until},
    shared::Shared,
};

/// Between two samples while somebody listens.
const EVERY: Duration = Duration::from_secs(2);
/// Between two moments of the fleet's history.
pub(super) const HISTORY_EVERY: Duration = Duration::from_secs(10);
/// Sandboxes that are asked at the same time.
const MAX_ASKED_AT_ONCE: usize = 16;
/// A sandbox that does not answer within this time is left out of a sample.
const ANSWER_WITHIN: Duration = Duration::from_secs(1);
/// Measuring a disk walks through files: so long a measurement counts…
const DISK_HOLDS: Duration = Duration::from_secs(60);
/// …and only so many are taken with one sample.
const DISKS_PER_SAMPLE: usize = 4;

/// The current usage of a sandbox.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct SandboxLoad {
    /// 100 is one processor. Absent at the first sample.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_percent: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    /// Measured once a minute.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk_bytes: Option<u64>,
    /// Received over the network since the sandbox started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rx_bytes: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tx_bytes: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub processes: Option<u64>,
}

/// The resources that all running sandboxes use at one moment.
#[derive(Debug, Clone, Default)]
pub struct LoadSample {
    pub at: Timestamp,
    pub sandboxes: BTreeMap<SandboxId, SandboxLoad>,
}

#[derive(Debug)]
pub(crate) struct Sampler {
    latest: watch::Sender<Arc<LoadSample>>,
    /// A listener came.
    wanted: Notify,
    is_running: AtomicBool,
    pub(super) history: History,
}

impl Default for Sampler {
    fn default() -> Self {
        Self {
            latest: watch::Sender::default(),
            wanted: Notify::new(),
            is_running: AtomicBool::new(false),
            history: History::default(),
        }
    }
}

impl Sampler {
    /// Samples from now on. The first one is fresh.
    pub(super) fn listen(&self, core: &Arc<Core>) -> watch::Receiver<Arc<LoadSample>> {
        let mut samples = self.latest.subscribe();
        samples.mark_unchanged();
        self.start(core);
        self.wanted.notify_one();
        samples
    }

    /// Begins to sample, if nobody has.
    pub(crate) fn start(&self, core: &Arc<Core>) {
        if self.is_running.swap(true, Ordering::Relaxed) {
            return;
        }
        let (core, closing) = (Arc::clone(core), core.closing.clone());
        let tracker = core.drivers.clone();
        tracker.spawn(async move { until(&closing, run(&core)).await });
    }

    /// The last sample.
    pub(super) fn latest(&self) -> Arc<LoadSample> {
        Arc::clone(&self.latest.borrow())
    }

    fn has_listeners(&self) -> bool {
        self.latest.receiver_count() > 0
    }
}

async fn run(core: &Core) {
    let mut known = HashMap::new();
    let mut recorded_at: Option<Instant> = None;
    loop {
        let sample = Arc::new(sample(core, &mut known).await);
        if recorded_at.is_none_or(|at| at.elapsed() >= HISTORY_EVERY) {
            recorded_at = Some(Instant::now());
            core.sampler.history.add(core, &sample);
        }
        core.sampler.latest.send_replace(sample);
        if core.sampler.has_listeners() {
            sleep(EVERY).await;
        } else {
            tokio::select! {
                () = sleep(HISTORY_EVERY) => {}
                () = core.sampler.wanted.notified() => {}
            }
        }
    }
}

/// Readings of one sandbox in earlier samples.
#[derive(Debug, Default, Clone, Copy)]
struct Known {
    cpu: Option<(Instant, u64)>,
    disk: Option<(Instant, u64)>,
}

async fn sample(core: &Core, known: &mut HashMap<SandboxId, Known>) -> LoadSample {
    let running: Vec<_> =
        core.all().into_iter().filter(|shared| shared.state() == SandboxState::Running).collect();
    let due = due_disks(&running, known);
    let asked = running.into_iter().map(|shared| {
        let measures_disk = due.contains(&shared.subject.id);
        async move {
            let answer = ask(&shared, measures_disk).await?;
            if let Some(traffic) = &answer.1.network {
                shared.traffic.count(&core.metrics, traffic);
            }
            Some((shared.subject.id.clone(), answer))
        }
    });
    let answers: Vec<_> = stream::iter(asked).buffer_unordered(MAX_ASKED_AT_ONCE).collect().await;
    let before = std::mem::take(known);
    let mut sandboxes = BTreeMap::new();
    for (id, (at, usage)) in answers.into_iter().flatten() {
        let earlier = before.get(&id).copied().unwrap_or_default();
        let (now, load) = compare(earlier, at, &usage);
        known.insert(id.clone(), now);
        sandboxes.insert(id, load);
    }
    LoadSample { at: core.clock.now(), sandboxes }
}

/// The sandboxes whose disk was not measured for the longest time.
fn due_disks(running: &[Arc<Shared>], known: &HashMap<SandboxId, Known>) -> Vec<SandboxId> {
    let measured_at = |id: &SandboxId| known.get(id).and_then(|known| known.disk).map(|(at, _)| at);
    let mut due: Vec<_> = running
        .iter()
        .map(|shared| &shared.subject.id)
        .filter(|id| measured_at(id).is_none_or(|at| at.elapsed() >= DISK_HOLDS))
        .collect();
    due.sort_by_key(|id| measured_at(id));
    due.into_iter().take(DISKS_PER_SAMPLE).cloned().collect()
}

async fn ask(shared: &Shared, measures_disk: bool) -> Option<(Instant, Usage)> {
    let life = shared.status.borrow().life.clone()?;
    let usage =
        async { if measures_disk { life.instance.usage().await } else { life.instance.quick_usage().await } };
    let usage = timeout(ANSWER_WITHIN, usage).await.ok()?.ok()?;
    Some((Instant::now(), usage))
}

fn compare(before: Known, at: Instant, usage: &Usage) -> (Known, SandboxLoad) {
    let disk = usage.disk_bytes.map(|bytes| (at, bytes)).or(before.disk);
    let cpu = usage.cpu_micros.map(|micros| (at, micros));
    let cpu_percent = before.cpu.zip(cpu).and_then(|((then, earlier), (now, later))| {
        let span = now.duration_since(then).as_micros() as f64;
        // A restarted sandbox counts from zero again.
        let used = later.checked_sub(earlier)? as f64;
        (span > 0.0).then(|| (used / span * 1000.0).round() / 10.0)
    });
    let load = SandboxLoad {
        cpu_percent,
        memory_bytes: usage.memory_bytes,
        disk_bytes: disk.map(|(_, bytes)| bytes),
        rx_bytes: usage.network.as_ref().map(|traffic| traffic.received_bytes),
        tx_bytes: usage.network.as_ref().map(|traffic| traffic.sent_bytes),
        processes: usage.pids,
    };
    (Known { cpu, disk }, load)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_time_becomes_a_share_and_a_disk_is_remembered() {
        let usage = |cpu, disk| Usage { cpu_micros: Some(cpu), disk_bytes: disk, ..Usage::default() };
        let start = Instant::now();
        let (known, first) = compare(Known::default(), start, &usage(5_000_000, Some(7)));
        assert_eq!((first.cpu_percent, first.disk_bytes), (None, Some(7)));
        let later = start + Duration::from_secs(2);
        let (known, second) = compare(known, later, &usage(8_000_000, None));
        assert_eq!((second.cpu_percent, second.disk_bytes), (Some(150.0), Some(7)));
        let (_, restarted) = compare(known, later + Duration::from_secs(2), &usage(10, None));
        assert_eq!(restarted.cpu_percent, None);
    }
}

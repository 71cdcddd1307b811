//! Metrics that are measured on demand: sandboxes, caches, disks. Disks are measured at most once a minute, however
//! often somebody looks.

use std::{
    sync::{Arc, PoisonError},
    time::{Duration, Instant},
};

use prometheus_client::{
    metrics::counter::Counter,
    registry::{Registry, Unit},
};
use sandbox::{Error, ErrorKind, Frontend, Result, SandboxState};

use super::{MetricsFormat, labels::State, optional::OptionalGauge, set, text};
use crate::{Engine, Principal, Scope, core::Core, feed::disk_of};

/// Counting files costs time in proportion to their number.
const DISK_HOLDS: Duration = Duration::from_secs(60);

#[derive(Debug, Default)]
pub(super) struct Measured {
    /// When the disks were measured; locked while somebody does.
    disks_at: tokio::sync::Mutex<Option<Instant>>,
    home_size: OptionalGauge,
    home_free: OptionalGauge,
    package_files: OptionalGauge,
    package_bytes: OptionalGauge,
    images: OptionalGauge,
    image_blobs: OptionalGauge,
    image_layers: OptionalGauge,
    package_requests: Counter,
    package_hits: Counter,
    package_misses: Counter,
    package_stale: Counter,
    package_mismatches: Counter,
    package_errors: Counter,
    package_fetched: Counter,
    package_served: Counter,
}

impl Measured {
    pub(super) fn register(own: &mut Registry) -> Self {
        let all = Self::default();
        let bytes = || Unit::Bytes;
        for (name, help, gauge) in [
            ("home_size", "The file system of the data directory", &all.home_size),
            ("home_free", "What is free of it", &all.home_free),
            ("package_cache", "Packages that are kept", &all.package_bytes),
            ("image_blobs", "Images as they came", &all.image_blobs),
            ("image_layers", "Unpacked layers of images", &all.image_layers),
        ] {
            own.register_with_unit(name, help, bytes(), gauge.clone());
        }
        own.register("package_cache_files", "Files of packages that are kept", all.package_files.clone());
        own.register("images", "Images that are kept", all.images.clone());
        for (name, help, counter) in [
            ("package_requests", "Requests of package managers inside", &all.package_requests),
            ("package_cache_hits", "Answered from the cache", &all.package_hits),
            ("package_cache_misses", "Had to be fetched", &all.package_misses),
            ("package_cache_stale", "Answered past its time, since the index did not", &all.package_stale),
            ("package_mismatches", "Files that were not what the index stated", &all.package_mismatches),
            ("package_errors", "Requests that failed", &all.package_errors),
        ] {
            own.register(name, help, counter.clone());
        }
        let fetched = "Bytes that were fetched from package indexes";
        own.register_with_unit("package_fetched", fetched, bytes(), all.package_fetched.clone());
        let served = "Bytes that package managers inside were sent";
        own.register_with_unit("package_served", served, bytes(), all.package_served.clone());
        all
    }

    fn look_at_packages(&self, core: &Core) {
        let Some(stats) = core.config.packages.as_ref().and_then(|packages| packages.stats()) else { return };
        set(&self.package_requests, stats.requests);
        set(&self.package_hits, stats.hits);
        set(&self.package_misses, stats.misses);
        set(&self.package_stale, stats.stale);
        set(&self.package_mismatches, stats.mismatches);
        set(&self.package_errors, stats.errors);
        set(&self.package_fetched, stats.bytes_fetched);
        set(&self.package_served, stats.bytes_served);
    }

    async fn look_at_disks(&self, core: &Core) {
        // Whoever comes meanwhile is shown what is known, at first nothing.
        let Ok(mut at) = self.disks_at.try_lock() else { return };
        if at.is_some_and(|at| at.elapsed() < DISK_HOLDS) {
            return;
        }
        let (home, packages) = (core.config.home.clone(), core.config.packages.clone());
        let measure = move || (disk_of(&home), packages.and_then(|packages| packages.cache()));
        let (disk, cache) = tokio::task::spawn_blocking(measure).await.unwrap_or_default();
        if let Some(disk) = disk {
            self.home_size.set(disk.total_bytes);
            self.home_free.set(disk.free_bytes);
        }
        let (files, bytes) = cache.map_or((0, 0), |cache| (cache.files, cache.bytes));
        self.package_files.set(files);
        self.package_bytes.set(bytes);
        if let Some(usage) = core.images.usage_if_open().await {
            self.images.set(usage.n_images as u64);
            self.image_blobs.set(usage.blob_bytes);
            self.image_layers.set(usage.layer_bytes);
        }
        *at = Some(Instant::now());
    }
}

impl Engine {
    /// Everything that is counted. For callers of all namespaces.
    #[crate::boxed]
    pub async fn metrics(&self, who: &Principal, format: MetricsFormat) -> Result<String> {
        let core = self.core();
        core.keys.admit(who, core.clock.now())?;
        if who.scope != Scope::All {
            let message = format!("{} may not see metrics, which are over all namespaces", who.name);
            return Err(Error::new(ErrorKind::Denied, message).with_hint("Use a key for all namespaces."));
        }
        let metrics = &core.metrics;
        metrics.measured.look_at_disks(core).await;
        let text = metrics.look(core);
        Ok(match format {
            MetricsFormat::OpenMetrics => text,
            MetricsFormat::Prometheus => text::to_prometheus(&text),
        })
    }

    /// Counts one attempt to send events away.
    pub fn count_delivery(&self, is_taken: bool) {
        self.core().metrics.delivery(is_taken);
    }

    /// Notes the number of the next event to send away.
    pub fn note_next_delivery(&self, number: u64) {
        self.core().metrics.webhook_at(number);
    }

    /// Counts events that were dropped before they could be sent away.
    pub fn count_lost_events(&self, count: u64) {
        self.core().metrics.lost_events(count);
    }

    /// Counts a request that a front end answered. `action` is a route or a tool of the program, never a caller's text.
    pub fn count_request(&self, frontend: Frontend, action: &str, error: Option<&str>, time: Duration) {
        self.core().metrics.request(frontend, action, error, time);
    }
}

impl super::Metrics {
    /// Looks at what is not counted as it happens, and writes everything down.
    fn look(&self, core: &Arc<Core>) -> String {
        let _looking = self.looking.lock().unwrap_or_else(PoisonError::into_inner);
        self.count_sandboxes(core);
        self.measured.look_at_packages(core);
        self.count_pending(*core.events.last.borrow());
        self.process.look();
        self.text()
    }

    fn count_sandboxes(&self, core: &Arc<Core>) {
        let backends = core.backends.capabilities().iter().map(|found| found.backend);
        let all = backends.flat_map(|backend| SandboxState::ALL.map(|state| (backend, state)));
        let mut counts: Vec<_> = all.map(|which| (which, 0_i64)).collect();
        core.each(|shared| {
            let status = shared.status.borrow();
            let which = (status.record.plan.backend, status.record.state);
            match counts.iter_mut().find(|(known, _)| *known == which) {
                Some((_, count)) => *count += 1,
                // Of a back end that this daemon was started without.
                None => counts.push((which, 1)),
            }
        });
        self.sandboxes.clear();
        for ((backend, state), count) in counts {
            let labels = State { backend: backend.as_str(), state: state.as_str() };
            self.sandboxes.get_or_create(&labels).set(count);
        }
    }
}

//! The daemon's own process, under the names that every exporter uses.

use std::{
    fs,
    sync::atomic::{AtomicU64, Ordering},
    time::{SystemTime, UNIX_EPOCH},
};

use prometheus_client::{
    metrics::{counter::Counter, gauge::Gauge},
    registry::{Registry, Unit},
};
use rustix::{
    process::{Resource, getrlimit},
    time::{ClockId, clock_gettime},
};

use super::set_gauge;

#[derive(Debug)]
pub(super) struct Process {
    resident: Gauge,
    threads: Gauge,
    open: Gauge,
    max_open: Gauge,
    cpu: Counter<f64, AtomicU64>,
}

impl Process {
    pub(super) fn register(registry: &mut Registry) -> Self {
        let process = Self {
            resident: Gauge::default(),
            threads: Gauge::default(),
            open: Gauge::default(),
            max_open: Gauge::default(),
            cpu: Counter::default(),
        };
        let started = Gauge::<f64, AtomicU64>::default();
        started.set(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64());
        let seconds = "When the daemon started, since the epoch";
        registry.register_with_unit("process_start_time", seconds, Unit::Seconds, started);
        let memory = "Memory of the daemon";
        registry.register_with_unit("process_resident_memory", memory, Unit::Bytes, process.resident.clone());
        registry.register("process_threads", "Threads of the daemon", process.threads.clone());
        registry.register("process_open_fds", "Open files of the daemon", process.open.clone());
        registry.register("process_max_fds", "The most files it may open", process.max_open.clone());
        let cpu = "Processor time of the daemon";
        registry.register_with_unit("process_cpu", cpu, Unit::Seconds, process.cpu.clone());
        process
    }

    /// Reads the values anew. A value that cannot be read stays as it was.
    pub(super) fn look(&self) {
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let number = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name))?;
            line.split_ascii_whitespace().next()?.parse::<u64>().ok()
        };
        if let Some(kib) = number("VmRSS:") {
            set_gauge(&self.resident, kib.saturating_mul(1024));
        }
        if let Some(threads) = number("Threads:") {
            set_gauge(&self.threads, threads);
        }
        if let Ok(entries) = fs::read_dir("/proc/self/fd") {
            // One of them is the directory itself.
            set_gauge(&self.open, (entries.count() as u64).saturating_sub(1));
        }
        set_gauge(&self.max_open, getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX));
        let used = clock_gettime(ClockId::ProcessCPUTime);
        let seconds = used.tv_sec as f64 + used.tv_nsec as f64 / 1e9;
        self.cpu.inner().store(seconds.to_bits(), Ordering::Relaxed);
    }
}

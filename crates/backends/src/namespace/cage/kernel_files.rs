//! The kernel's own files in `/proc` and `/sys`: which are hidden from sandboxes, which are read-only, which are set.
//!
//! Hidden are files that make the kernel keep something for their opener or writer, and files that reveal the host's
//! hardware, its disks or other sandboxes. Files by which programs choose their size stay: processors, memory, load,
//! limits.

use std::{collections::HashMap, fs, path::Path};

use jail::{
    Missing, MountName,
    MountName::{Proc, Sys},
    MountPath, Step,
};

const MASKED: [(MountName, &str); 42] = [
    // The kernel keeps every trigger written there, and may take hours to release many.
    (Proc, "pressure"),
    // The kernel's memory, messages, keys, timers and debugging.
    (Proc, "kcore"),
    (Proc, "kmsg"),
    (Proc, "keys"),
    (Proc, "timer_list"),
    (Proc, "timer_stats"),
    (Proc, "latency_stats"),
    (Proc, "sched_debug"),
    (Proc, "dynamic_debug"),
    (Proc, "kpagecount"),
    (Proc, "kpageflags"),
    (Proc, "kpagecgroup"),
    (Proc, "pagetypeinfo"),
    (Proc, "slabinfo"),
    (Proc, "vmallocinfo"),
    (Sys, "kernel/slab"),
    (Sys, "kernel/vmcoreinfo"),
    // Counts of interrupts reveal keystrokes and packets.
    (Proc, "interrupts"),
    (Proc, "irq"),
    (Sys, "kernel/irq"),
    // Hardware, its temperature and its power.
    (Proc, "acpi"),
    (Proc, "asound"),
    (Proc, "scsi"),
    (Proc, "mtrr"),
    (Proc, "iomem"),
    (Proc, "ioports"),
    (Sys, "firmware"),
    (Sys, "hypervisor"),
    (Sys, "devices/virtual/dmi"),
    (Sys, "devices/virtual/powercap"),
    (Sys, "devices/virtual/thermal"),
    // How the host was booted, and its disks: loop devices name the files of other sandboxes.
    (Proc, "cmdline"),
    (Proc, "diskstats"),
    (Proc, "partitions"),
    (Proc, "fs"),
    (Sys, "dev/block"),
    (Sys, "devices/virtual/block"),
    (Sys, "devices/virtual/bdi"),
    (Sys, "fs/btrfs"),
    (Sys, "fs/ext4"),
    (Sys, "fs/f2fs"),
    (Sys, "fs/xfs"),
];
/// Has a directory for each processor; the one below is masked in all of them.
const PROCESSORS: &str = "devices/system/cpu";
const MASKED_OF_PROCESSOR: &str = "thermal_throttle";

const READ_ONLY: [(MountName, &str); 3] = [(Proc, "sys"), (Proc, "bus"), (Proc, "sysrq-trigger")];

/// Stands for the most that one end of a TCP connection may hold.
const MOST: &str = "MOST";
/// Stands for the most that it may hold of what a program has sent.
const SENT: &str = "SENT";
/// How many times as much as of what it received.
const SENT_TIMES: u64 = 4;

const SET: [(MountName, &str, &str); 8] = [
    // Ports below 1024 for everybody: the network namespace is the sandbox's own.
    (Proc, "sys/net/ipv4/ip_unprivileged_port_start", "0"),
    // The buffers of one end of a TCP connection (see `internet_budget`); docs/performance.md has the cost.
    (Proc, "sys/net/ipv4/tcp_rmem", "4096 32768 MOST"),
    // Only programs send, and are charged for what waits.
    (Proc, "sys/net/ipv4/tcp_wmem", "4096 16384 SENT"),
    // Connections are counted when `connect` is called, so there must be no other way to make one.
    (Proc, "sys/net/ipv4/tcp_fastopen", "0"),
    // Ended connections that the kernel remembers for a minute, a quarter of a KiB each.
    (Proc, "sys/net/ipv4/tcp_max_tw_buckets", "8192"),
    // The limit of all users inside together, in the sandbox's own user namespace. Without root it is a share of what
    // the daemon's user has on the host: usually 128 instances.
    (Proc, "sys/user/max_inotify_instances", "32"),
    (Proc, "sys/user/max_inotify_watches", "65536"),
    (Proc, "sys/user/max_user_namespaces", "0"),
];

/// The files that exist here. Determined again for every sandbox, since modules come and go: a missing file is then an
/// error, and never a wall that is silently absent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct KernelFiles {
    set: Vec<(MountPath, &'static str)>,
    masked: Vec<MountPath>,
    read_only: Vec<MountPath>,
}

impl KernelFiles {
    pub(crate) fn here() -> Self {
        let host = |mount| Path::new(if mount == Proc { "/proc" } else { "/sys" });
        let exists = |mount, path: &str| host(mount).join(path).symlink_metadata().is_ok();
        let mut found = Self::of(exists);
        found.masked.extend(of_processors(&host(Sys).join(PROCESSORS)));
        found
    }

    fn of(exists: impl Fn(MountName, &str) -> bool) -> Self {
        let paths = |all: &[(MountName, &str)]| {
            let there = all.iter().filter(|(mount, path)| exists(*mount, path));
            there.map(|(mount, path)| MountPath::new(*mount, path)).collect()
        };
        let set = SET.iter().filter(|(mount, path, _)| exists(*mount, path));
        Self {
            set: set.map(|(mount, path, value)| (MountPath::new(*mount, path), *value)).collect(),
            masked: paths(&MASKED),
            read_only: paths(&READ_ONLY),
        }
    }

    /// As on a host that has them all.
    #[cfg(test)]
    pub(crate) fn all() -> Self {
        Self::of(|_mount, _path| true)
    }

    /// As absolute paths, for runtimes that mask by themselves.
    pub(crate) fn masked(&self) -> Vec<String> {
        self.masked.iter().map(ToString::to_string).collect()
    }

    pub(crate) fn read_only(&self) -> Vec<String> {
        self.read_only.iter().map(ToString::to_string).collect()
    }

    /// The settings for a network namespace of its own, by their `sysctl` names. `tcp_socket`: the most that one end of
    /// a TCP connection may hold.
    pub(crate) fn network_settings(&self, tcp_socket: u64) -> HashMap<String, String> {
        let named = self.set.iter().filter_map(|(at, value)| {
            let name = at.to_string().strip_prefix("/proc/sys/")?.replace('/', ".");
            name.starts_with("net.").then(|| (name, filled_in(value, tcp_socket)))
        });
        named.collect()
    }

    /// Applied once `/proc` and `/sys` are mounted.
    pub(crate) fn steps(&self, tcp_socket: u64) -> impl Iterator<Item = Step> {
        let setting = move |(at, value): &(MountPath, &str)| (at.clone(), filled_in(value, tcp_socket));
        let set = self.set.iter().map(setting).map(|(at, value)| Step::Setting { at, value });
        let masked = self.masked.iter().map(|at| Step::Mask { at: at.clone(), missing: Missing::Fails });
        // After the settings in there.
        let read_only = self.read_only.iter().map(|at| Step::ReadOnly { at: at.clone() });
        set.chain(masked).chain(read_only)
    }
}

fn filled_in(value: &str, tcp_socket: u64) -> String {
    let sent = tcp_socket.saturating_mul(SENT_TIMES);
    value.replace(MOST, &tcp_socket.to_string()).replace(SENT, &sent.to_string())
}

fn of_processors(processors: &Path) -> Vec<MountPath> {
    if !processors.join("cpu0").join(MASKED_OF_PROCESSOR).exists() {
        return Vec::new();
    }
    let directories = fs::read_dir(processors).into_iter().flatten().flatten();
    let there = directories.filter(|directory| directory.path().join(MASKED_OF_PROCESSOR).exists());
    let path =
        |directory: fs::DirEntry| Path::new(PROCESSORS).join(directory.file_name()).join(MASKED_OF_PROCESSOR);
    there.map(|directory| MountPath::new(Sys, path(directory))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_each_processor_has_is_found() {
        let place = tempfile::tempdir().unwrap();
        assert_eq!(of_processors(place.path()), []);
        for name in ["cpu0/thermal_throttle", "cpu1/thermal_throttle", "cpu2/topology", "cpuidle"] {
            fs::create_dir_all(place.path().join(name)).unwrap();
        }
        let mut found: Vec<_> = of_processors(place.path()).iter().map(ToString::to_string).collect();
        found.sort();
        let expected = ["cpu0", "cpu1"].map(|cpu| format!("/sys/devices/system/cpu/{cpu}/thermal_throttle"));
        assert_eq!(found, expected);
    }
}

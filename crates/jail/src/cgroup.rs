//! Control groups: version 1, version 2, and both at once, by plain file writes.
//!
//! In every hierarchy that we use:
//!
//! ```text
//!   <base>/<parent>/guests    every guest, and the spawner it was born from; no limits
//!   <base>/<parent>/<id>      the workload of one sandbox, with its limits
//! ```
//!
//! In version 2 the last group has two children: `workload`, which can be frozen, and `files`, where the guest's
//! children write files even while the workload is frozen. Version 1 freezes in a hierarchy of its own, which those
//! children do not enter.
//!
//! Guests stay out of their workload's group, so that an out-of-memory kill hits the workload and never the guest. They
//! share one group: the spawner enters it once, its children are born in it, and a new sandbox costs one directory for
//! each hierarchy instead of three. The caller chooses the parent's name, so that two daemons on one host do not sweep
//! each other's groups.

mod detect;
mod kill;
mod parent;

use std::{
    fs::{self, File, OpenOptions},
    io,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use detect::{CgroupMounts, find};
pub use detect::{Controller, Version};
use parent::Parent;

/// Scheduler period of processor shares, in microseconds; the kernel's own default.
const CPU_PERIOD_MICROS: u64 = 100_000;
/// How long a freeze may take; a process in the middle of disk work cannot be frozen before that ends.
const FREEZE_TIME: Duration = Duration::from_secs(5);
/// How long the kernel may take to release a group whose processes are dead.
const REMOVE_TIME: Duration = Duration::from_secs(10);
/// Pause between two checks of a group: version 1 has no event for "frozen" or "empty" to wait for.
const RETRY_EVERY: Duration = Duration::from_millis(2);
/// Pause before the second check of a freezing group: most freeze faster, and the workload stands still meanwhile.
const FIRST_RETRY: Duration = Duration::from_micros(100);
const GUESTS: &str = "guests";
const WORKLOAD: &str = "workload";
const FILES: &str = "files";
/// Version 1 does not count socket buffers as memory. They have this limit of their own, which despite its name covers
/// UDP and every other protocol that accounts its memory. Version 2 counts them as memory.
const V1_SOCKETS: &str = "memory.kmem.tcp.limit_in_bytes";
/// The share of its memory limit that a workload may use for socket buffers on version 1, on top of it.
pub const V1_SOCKET_SHARE: u64 = 8;

/// A file that could not be read or written.
#[derive(Debug, thiserror::Error)]
#[error("could not {action} {}", .file.display())]
pub struct CgroupError {
    pub action: String,
    pub file: PathBuf,
    #[source]
    pub source: io::Error,
}

/// The resources that a workload may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CgroupLimits {
    pub memory_bytes: u64,
    /// On top of memory.
    pub swap_bytes: u64,
    pub cpu_millis: u32,
    pub pids: u32,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Hierarchy {
    is_v2: bool,
    controllers: Vec<Controller>,
    /// `<base>/<parent>`.
    directory: PathBuf,
}

/// The hierarchies of this host in which we may create groups.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cgroups {
    version: Version,
    hierarchies: Vec<Hierarchy>,
    /// Why a controller cannot be used, as sentences.
    missing: Vec<String>,
}

/// The open files of a workload's group that its guest needs.
#[derive(Debug)]
pub struct WorkloadFiles {
    /// A process that writes `0` to each moves into the group.
    pub enter: Vec<OwnedFd>,
    /// The same for a process that is charged to the group's memory but not frozen with the workload.
    pub memory: Option<OwnedFd>,
    pub oom_counter: Option<OwnedFd>,
}

/// One reading of a workload's counters.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CgroupUsage {
    pub memory_bytes: Option<u64>,
    pub memory_peak_bytes: Option<u64>,
    pub cpu_micros: Option<u64>,
    pub pids: Option<u64>,
    pub oom_kills: Option<u64>,
}

impl Cgroups {
    /// Finds what this process may use, by creating groups named `parent`. Safe to call twice.
    ///
    /// Removes unused empty groups whose names share `parent`'s prefix up to its first `-`.
    pub fn detect(parent: &str) -> Self {
        let read = |path| fs::read_to_string(path).unwrap_or_default();
        let found = find(&read("/proc/self/mountinfo"), &read("/proc/self/cgroup"));
        Self::prepare(found, parent, rustix::process::geteuid().is_root())
    }

    /// For hosts, or tests, without cgroups.
    pub fn none() -> Self {
        Self { version: Version::None, hierarchies: Vec::new(), missing: Vec::new() }
    }

    fn prepare(mounts: CgroupMounts, parent: &str, is_root: bool) -> Self {
        let mut cgroups = Self { version: mounts.version, ..Self::none() };
        let mut lacking = Lacking::default();
        for mount in mounts.mounts {
            // Root uses the top: the same group whichever service or session starts the daemon. Other users have what
            // was delegated.
            let own = parent::delegated(&mount);
            let mut candidates = if is_root { vec![&*mount.top, own] } else { vec![own] };
            candidates.dedup();
            let controllers = &mount.controllers;
            match parent::make_best(&candidates, parent, mount.is_v2, controllers) {
                Ok(made) => {
                    made.refused.into_iter().for_each(|(one, error)| lacking.add(mount.is_v2, &[one], error));
                    if !made.controllers.is_empty() {
                        let (controllers, directory) = (made.controllers, made.directory);
                        cgroups.hierarchies.push(Hierarchy { is_v2: mount.is_v2, controllers, directory });
                    }
                }
                Err(error) => lacking.add(mount.is_v2, controllers, error),
            }
        }
        cgroups.missing = lacking.sentences();
        if cgroups.hierarchies.is_empty() {
            cgroups.version = Version::None;
        }
        cgroups
    }

    /// Removes the parent groups again, if they are empty.
    pub fn forget(self) {
        for hierarchy in self.hierarchies {
            Parent::forget(&hierarchy.directory);
        }
    }

    pub fn version(&self) -> Version {
        self.version
    }

    pub fn missing(&self) -> &[String] {
        &self.missing
    }

    /// Whether `controller` can be used, and if so, whether it is version 2's.
    pub fn controller(&self, controller: Controller) -> Option<bool> {
        self.with(controller).map(|hierarchy| hierarchy.is_v2)
    }

    /// Whether socket buffers are limited: with the memory by version 2, separately by version 1.
    pub fn limits_sockets(&self) -> bool {
        self.with(Controller::Memory)
            .is_some_and(|one| one.is_v2 || one.directory.join(GUESTS).join(V1_SOCKETS).exists())
    }

    pub fn can_freeze(&self) -> bool {
        self.with(Controller::Freezer).is_some()
    }

    fn with(&self, controller: Controller) -> Option<&Hierarchy> {
        self.hierarchies.iter().find(|hierarchy| hierarchy.controllers.contains(&controller))
    }

    /// The files through which the spawner enters the group of the guests.
    pub fn guest_files(&self) -> Result<Vec<OwnedFd>, CgroupError> {
        self.hierarchies
            .iter()
            .map(|one| open_for_writing(&one.directory.join(GUESTS).join(one.enter_file())))
            .collect()
    }

    /// Creates the groups of one workload with their limits; reuses existing ones.
    pub fn create(&self, id: &str, limits: &CgroupLimits) -> Result<WorkloadFiles, CgroupError> {
        let enter = Vec::with_capacity(self.hierarchies.len());
        let mut files = WorkloadFiles { enter, memory: None, oom_counter: None };
        for hierarchy in &self.hierarchies {
            let group = hierarchy.directory.join(id);
            make_directory(&group)?;
            hierarchy.limit(&group, limits)?;
            for part in hierarchy.parts(&group) {
                make_directory(&part)?;
            }
            files.enter.push(open_for_writing(&hierarchy.workload(&group).join(hierarchy.enter_file()))?);
            if hierarchy.controllers.contains(&Controller::Memory) {
                let writers = if hierarchy.is_v2 { group.join(FILES) } else { group.clone() };
                files.memory = Some(open_for_writing(&writers.join(hierarchy.enter_file()))?);
                let counter =
                    group.join(if hierarchy.is_v2 { "memory.events" } else { "memory.oom_control" });
                let opened = File::open(&counter).map_err(failed("open", &counter))?;
                files.oom_counter = Some(opened.into());
            }
        }
        Ok(files)
    }

    /// Changes the limits of a workload's groups.
    pub fn change(&self, id: &str, limits: &CgroupLimits) -> Result<(), CgroupError> {
        self.hierarchies.iter().try_for_each(|hierarchy| {
            let group = hierarchy.directory.join(id);
            hierarchy.limit(&group, limits)
        })
    }

    /// Freezes or thaws every process of the workload, and returns when that is done. A workload that could not be
    /// frozen keeps running.
    pub fn freeze(&self, id: &str, frozen: bool) -> Result<(), CgroupError> {
        self.freeze_within(id, frozen, FREEZE_TIME)
    }

    fn freeze_within(&self, id: &str, frozen: bool, time: Duration) -> Result<(), CgroupError> {
        let Some(hierarchy) = self.with(Controller::Freezer) else {
            let source = io::ErrorKind::Unsupported.into();
            return Err(CgroupError { action: "freeze".to_owned(), file: PathBuf::from(id), source });
        };
        let group = hierarchy.workload(&hierarchy.directory.join(id));
        let settled = hierarchy.settle(&group, frozen, time);
        if frozen && settled.is_err() {
            // The caller is told that nothing happened, so the freeze is undone: otherwise a part of the workload could
            // stand still forever. If this fails too, the group is gone.
            let (file, value, ..) = hierarchy.freezer(false);
            drop(write(&group.join(file), value));
        }
        settled
    }

    pub fn usage(&self, id: &str) -> CgroupUsage {
        let mut usage = CgroupUsage::default();
        for hierarchy in &self.hierarchies {
            let group = hierarchy.directory.join(id);
            for controller in &hierarchy.controllers {
                read_usage(&group, *controller, hierarchy.is_v2, &mut usage);
            }
        }
        usage
    }

    /// Processor time of the workload so far, in microseconds.
    pub fn cpu_micros(&self, id: &str) -> Option<u64> {
        let hierarchy = self.with(Controller::CpuAccounting)?;
        let mut usage = CgroupUsage::default();
        read_usage(&hierarchy.directory.join(id), Controller::CpuAccounting, hierarchy.is_v2, &mut usage);
        usage.cpu_micros
    }

    /// Where the kernel lists the processes of a workload; nowhere without cgroups.
    pub fn process_lists(&self, id: &str) -> Vec<PathBuf> {
        // A workload is in all hierarchies.
        let Some(hierarchy) = self.hierarchies.first() else { return Vec::new() };
        let group = hierarchy.directory.join(id);
        let parts = hierarchy.parts(&group).into_iter().filter(|part| part.is_dir());
        std::iter::once(group.clone()).chain(parts).map(|group| group.join("cgroup.procs")).collect()
    }

    /// The ids that have a group in any hierarchy.
    pub fn ids(&self) -> Vec<String> {
        let mut ids: Vec<String> = self
            .hierarchies
            .iter()
            .filter_map(|hierarchy| fs::read_dir(&hierarchy.directory).ok())
            .flatten()
            .flatten()
            .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
            .filter_map(|entry| entry.file_name().into_string().ok())
            .filter(|name| name != GUESTS)
            .collect();
        ids.sort_unstable();
        ids.dedup();
        ids
    }

    /// Kills every process left in the groups of `id` and removes the groups. Waits while the kernel releases the dead.
    pub fn remove(&self, id: &str) -> Result<(), CgroupError> {
        let began = Instant::now();
        for hierarchy in &self.hierarchies {
            let group = hierarchy.directory.join(id);
            loop {
                for part in hierarchy.parts(&group) {
                    // Remaining processes are killed below.
                    let _removed = fs::remove_dir(part);
                }
                match fs::remove_dir(&group) {
                    Ok(()) => break,
                    Err(error) if error.kind() == io::ErrorKind::NotFound => break,
                    Err(_busy) if began.elapsed() < REMOVE_TIME => {
                        if !hierarchy.is_v2 {
                            drop(fs::write(group.join("freezer.state"), "THAWED"));
                        }
                        kill_all(&group);
                        hierarchy.parts(&group).iter().for_each(|part| kill_all(part));
                        std::thread::sleep(RETRY_EVERY);
                    }
                    Err(source) => {
                        return Err(CgroupError { action: "remove".to_owned(), file: group, source });
                    }
                }
            }
        }
        Ok(())
    }
}

impl Hierarchy {
    /// The child groups of one sandbox's group.
    fn parts(&self, group: &Path) -> Vec<PathBuf> {
        if self.is_v2 { vec![group.join(WORKLOAD), group.join(FILES)] } else { Vec::new() }
    }

    /// The group of a workload's processes. Earlier daemons made no child groups.
    fn workload(&self, group: &Path) -> PathBuf {
        let part = group.join(WORKLOAD);
        if self.is_v2 && part.is_dir() { part } else { group.to_owned() }
    }

    /// Version 1 has `tasks`: a thread that writes 0 there moves only itself, which spares the kernel a lock over all
    /// processes.
    fn enter_file(&self) -> &'static str {
        if self.is_v2 { "cgroup.procs" } else { "tasks" }
    }

    /// The file that freezes, the value to write, the file that shows the state, and its line when done.
    fn freezer(&self, frozen: bool) -> (&'static str, &'static str, &'static str, &'static str) {
        match (self.is_v2, frozen) {
            (true, true) => ("cgroup.freeze", "1", "cgroup.events", "frozen 1"),
            (true, false) => ("cgroup.freeze", "0", "cgroup.events", "frozen 0"),
            (false, true) => ("freezer.state", "FROZEN", "freezer.state", "FROZEN"),
            (false, false) => ("freezer.state", "THAWED", "freezer.state", "THAWED"),
        }
    }

    fn settle(&self, group: &Path, frozen: bool, time: Duration) -> Result<(), CgroupError> {
        let (file, value, shown, done) = self.freezer(frozen);
        let (file, shown) = (group.join(file), group.join(shown));
        let began = Instant::now();
        let mut pause = FIRST_RETRY;
        loop {
            // Written again each time: version 1 gives up half-way if a process could not be frozen yet.
            write(&file, value)?;
            let state = fs::read_to_string(&shown).map_err(failed("read", &shown))?;
            if state.lines().any(|line| line == done) {
                return Ok(());
            }
            if began.elapsed() >= time {
                return Err(CgroupError {
                    action: format!("write {value} to"),
                    file,
                    source: io::ErrorKind::TimedOut.into(),
                });
            }
            // Version 1 has no event to wait for; this thread may block.
            std::thread::sleep(pause);
            pause = (pause * 2).min(RETRY_EVERY);
        }
    }

    fn limit(&self, group: &Path, limits: &CgroupLimits) -> Result<(), CgroupError> {
        let quota = u64::from(limits.cpu_millis) * CPU_PERIOD_MICROS / 1000;
        let both = limits.memory_bytes.saturating_add(limits.swap_bytes);
        let sockets = limits.memory_bytes / V1_SOCKET_SHARE;
        for controller in &self.controllers {
            match (controller, self.is_v2) {
                (Controller::Memory, true) => {
                    write(&group.join("memory.max"), &limits.memory_bytes.to_string())?;
                    write_if_there(&group.join("memory.swap.max"), &limits.swap_bytes.to_string())?;
                }
                (Controller::Memory, false) => {
                    let (memory, with_swap) =
                        (group.join("memory.limit_in_bytes"), group.join("memory.memsw.limit_in_bytes"));
                    // The second may never be below the first, and a reused group may have had more.
                    if write(&memory, &limits.memory_bytes.to_string()).is_err() {
                        write_if_there(&with_swap, &both.to_string())?;
                        write(&memory, &limits.memory_bytes.to_string())?;
                    }
                    write_if_there(&with_swap, &both.to_string())?;
                    write_if_there(&group.join(V1_SOCKETS), &sockets.to_string())?;
                }
                (Controller::Cpu, true) => {
                    write(&group.join("cpu.max"), &format!("{quota} {CPU_PERIOD_MICROS}"))?;
                }
                // The period is the kernel's default, which is also ours.
                (Controller::Cpu, false) => write(&group.join("cpu.cfs_quota_us"), &quota.to_string())?,
                (Controller::Pids, _) => write(&group.join("pids.max"), &limits.pids.to_string())?,
                (Controller::CpuAccounting | Controller::Freezer, _) => {}
            }
        }
        Ok(())
    }
}

/// The controllers that cannot be used, and the kernel's answers.
#[derive(Debug, Default)]
struct Lacking(Vec<(Vec<&'static str>, CgroupError)>);

impl Lacking {
    fn add(&mut self, is_v2: bool, controllers: &[Controller], error: CgroupError) {
        self.0.push((controllers.iter().map(|one| one.name(is_v2)).collect(), error));
    }

    /// One sentence for each answer: on version 1 every controller has its own directory, and most often one cause.
    fn sentences(mut self) -> Vec<String> {
        let mut sentences = Vec::new();
        while !self.0.is_empty() {
            let answer = self.0[0].1.source.to_string();
            let (same, others) =
                self.0.into_iter().partition::<Vec<_>, _>(|(_, error)| error.source.to_string() == answer);
            self.0 = others;
            let names: Vec<_> = same.iter().flat_map(|(names, _)| names).copied().collect();
            let plural = if names.len() == 1 { "" } else { "s" };
            let place = if let [(_, error)] = &same[..] { format!("{error}: ") } else { String::new() };
            sentences.push(format!(
                "The cgroup controller{plural} {} cannot be used: {place}{answer}.",
                names.join(", ")
            ));
        }
        sentences
    }
}

fn failed(action: &str, file: &Path) -> impl FnOnce(io::Error) -> CgroupError {
    let (action, file) = (action.to_owned(), file.to_owned());
    move |source| CgroupError { action, file, source }
}

fn write(file: &Path, value: &str) -> Result<(), CgroupError> {
    fs::write(file, value).map_err(|source| CgroupError {
        action: format!("write {value} to"),
        file: file.to_owned(),
        source,
    })
}

/// Not every kernel accounts swap.
fn write_if_there(file: &Path, value: &str) -> Result<(), CgroupError> {
    if file.exists() { write(file, value) } else { Ok(()) }
}

fn open_for_writing(file: &Path) -> Result<OwnedFd, CgroupError> {
    OpenOptions::new().write(true).open(file).map(OwnedFd::from).map_err(failed("open", file))
}

fn make_directory(path: &Path) -> Result<(), CgroupError> {
    match fs::create_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        made => made.map_err(failed("make", path)),
    }
}

fn kill_all(group: &Path) {
    let listed = || fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
    for pid in listed().lines().filter_map(|line| rustix::process::Pid::from_raw(line.parse().ok()?)) {
        let Ok(handle) = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()) else {
            continue;
        };
        // Still listed after the handle was taken: so the handle is that process and not a later one with the same
        // number.
        if listed().lines().any(|line| line.parse() == Ok(pid.as_raw_nonzero().get())) {
            let _dead = rustix::process::pidfd_send_signal(&handle, rustix::process::Signal::KILL);
        }
    }
}

fn read_usage(group: &Path, controller: Controller, is_v2: bool, usage: &mut CgroupUsage) {
    let number = |file: &str| fs::read_to_string(group.join(file)).ok()?.trim().parse::<u64>().ok();
    match (controller, is_v2) {
        (Controller::Memory, true) => {
            usage.memory_bytes = number("memory.current");
            usage.memory_peak_bytes = number("memory.peak");
            usage.oom_kills = keyed(&group.join("memory.events"), "oom_kill");
        }
        (Controller::Memory, false) => {
            usage.memory_bytes = number("memory.usage_in_bytes");
            usage.memory_peak_bytes = number("memory.max_usage_in_bytes");
            usage.oom_kills = keyed(&group.join("memory.oom_control"), "oom_kill");
        }
        (Controller::Pids, _) => usage.pids = number("pids.current"),
        (Controller::CpuAccounting, true) => usage.cpu_micros = keyed(&group.join("cpu.stat"), "usage_usec"),
        (Controller::CpuAccounting, false) => {
            usage.cpu_micros = number("cpuacct.usage").map(|nanos| nanos / 1000);
        }
        (Controller::Cpu | Controller::Freezer, _) => {}
    }
}

/// The number after `key` in a file of `key value` lines.
fn keyed(file: &Path, key: &str) -> Option<u64> {
    let text = fs::read_to_string(file).ok()?;
    text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(' ')?.trim().parse().ok())
}

#[cfg(test)]
mod tests;

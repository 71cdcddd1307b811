//! Which limits are enforced, by what, and the sandbox's statement about it.

use jail::{
    NetworkMeans,
    cgroup::{Cgroups, Controller},
};
use rustix::process::Resource;
use sandbox::{
    BackendKind, ByteSize, Enforcement, Isolation, LimitKind, LimitStatement, LimitsPlan, NetworkHold,
};

use super::{
    accounting,
    cage::{self, Ids},
};

/// Resources that the kernel counts for the daemon's user on the host if sandboxes have no ids of their own, and the
/// share of each user inside: queued signals, including timers (usually tens of thousands), and bytes of message queues
/// (usually 819,200).
const USER_SHARES: [(Resource, u32, u64); 2] = [
    (Resource::Sigpending, libc::RLIMIT_SIGPENDING, 4096),
    (Resource::Msgqueue, libc::RLIMIT_MSGQUEUE, 409_600),
];
const SHARED_USER: &str = "Inotify watches, queued signals, timers and message queues are counted for the daemon's user \
    on the host: each sandbox gets a share of what that user has.";

/// How this host enforces limits, determined once.
#[derive(Debug, Clone)]
pub(crate) struct Means {
    pub(crate) cgroups: Cgroups,
    pub(crate) ids: Ids,
    pub(crate) network: NetworkMeans,
    pub(crate) processors: u32,
    /// The most open files that we may grant.
    pub(crate) max_open_files: u64,
    pub(crate) warnings: Vec<String>,
}

/// How the disk limit is enforced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum DiskHold {
    FileSystem,
    /// Why not better, if better was requested.
    Accounting {
        note: Option<String>,
    },
}

/// The means that enforce limits besides cgroups.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Holds {
    pub(crate) rlimits: Vec<(u32, u64, u64)>,
    pub(crate) affinity: Option<u32>,
}

impl Means {
    fn by_cgroup(&self, controller: Controller) -> Option<Enforcement> {
        let is_v2 = self.cgroups.controller(controller)?;
        Some(if is_v2 { Enforcement::CgroupV2 } else { Enforcement::CgroupV1 })
    }

    fn open_files(&self, limits: &LimitsPlan) -> u64 {
        u64::from(limits.open_files).min(self.max_open_files)
    }

    /// The number of whole processors nearest to the requested share, if that is fewer than there are.
    fn affinity(&self, limits: &LimitsPlan) -> Option<u32> {
        let count = limits.cpus.millis.div_ceil(1000).max(1);
        (count < self.processors).then_some(count)
    }

    pub(crate) fn holds(&self, limits: &LimitsPlan) -> Holds {
        let files = self.open_files(limits);
        let disk = limits.disk.bytes();
        let mut rlimits = vec![
            (libc::RLIMIT_NOFILE, files, files),
            // A single file cannot exceed the limit of the whole disk.
            (libc::RLIMIT_FSIZE, disk, disk),
            // A core of a crashed program would go to the host's handler.
            (libc::RLIMIT_CORE, 0, 0),
        ];
        if matches!(self.ids, Ids::Shared(_)) {
            rlimits.extend(USER_SHARES.map(|(resource, number, share)| {
                let share =
                    rustix::process::getrlimit(resource).maximum.map_or(share, |most| most.min(share));
                (number, share, share)
            }));
        }
        if self.by_cgroup(Controller::Pids).is_none() {
            rlimits.push((libc::RLIMIT_NPROC, limits.pids.into(), limits.pids.into()));
        }
        if self.by_cgroup(Controller::Memory).is_none() {
            let memory = limits.memory.bytes();
            rlimits.push((libc::RLIMIT_DATA, memory, memory));
        }
        let affinity = if self.by_cgroup(Controller::Cpu).is_none() { self.affinity(limits) } else { None };
        Holds { rlimits, affinity }
    }

    /// `network`: see [`super::network::statement`].
    pub(crate) fn isolation(&self, limits: &LimitsPlan, disk: &DiskHold, network: NetworkHold) -> Isolation {
        let id_map = match self.ids {
            Ids::OwnRange => "own-range",
            Ids::Host => "host",
            Ids::Shared(1) => "single",
            Ids::Shared(_) => "subordinate",
        };
        Isolation {
            backend: BackendKind::Namespace,
            walls: sandbox::Walls::SharedKernel,
            rootless: matches!(self.ids, Ids::Shared(_)),
            id_map: id_map.to_owned(),
            namespaces: ["user", "mnt", "pid", "net", "ipc", "uts", "cgroup"].map(str::to_owned).to_vec(),
            capabilities: jail::WORKLOAD_CAPABILITIES.map(|name| format!("CAP_{name}")).to_vec(),
            no_new_privileges: true,
            seccomp: Some(jail::FILTER_NAME.to_owned()),
            network,
            cgroups: self.cgroups.version().as_str().to_owned(),
            limits: self.limits(limits, disk),
            warnings: self.warnings.clone(),
        }
    }

    fn limits(&self, limits: &LimitsPlan, disk: &DiskHold) -> Vec<LimitStatement> {
        let size = ByteSize::bytes;
        let hard = |limit, value, enforcement| LimitStatement { limit, value, enforcement, note: None };
        let held = |limit, value, by: Option<Enforcement>, (otherwise, note): (Enforcement, &str)| match by {
            Some(enforcement) => LimitStatement { limit, value, enforcement, note: None },
            None => LimitStatement { limit, value, enforcement: otherwise, note: Some(note.to_owned()) },
        };
        let memory = self.by_cgroup(Controller::Memory);
        let per_process = (
            Enforcement::Rlimit,
            "Held for each process, not for their sum, and only for its own memory: shared mappings, memfd files and System V \
             shared memory are not counted. No memory cgroup can be used here.",
        );
        let per_user =
            (Enforcement::UserNamespace, "Counted for each user inside: no pids cgroup can be used here.");
        let mut held_memory = held(LimitKind::Memory, size(limits.memory), memory, per_process);
        let sockets = self.sockets_note(limits, memory);
        held_memory.note = held_memory.note.into_iter().chain([sockets]).reduce(|a, b| format!("{a} {b}"));
        vec![
            held_memory,
            held(
                LimitKind::Swap,
                size(limits.swap),
                memory,
                (Enforcement::NotHeld, "No memory cgroup can be used here."),
            ),
            self.cpu_statement(limits),
            held(LimitKind::Pids, limits.pids.into(), self.by_cgroup(Controller::Pids), per_user),
            self.open_files_statement(limits),
            disk_statement(limits, disk),
            hard(LimitKind::Tmp, size(limits.tmp), Enforcement::FileSystem),
            hard(LimitKind::Shm, size(limits.shm), Enforcement::FileSystem),
        ]
    }

    /// Describes what may wait in sockets beside the memory limit, and what bounds it.
    fn sockets_note(&self, limits: &LimitsPlan, memory: Option<Enforcement>) -> String {
        let netlink = jail::max_netlink_sockets();
        if memory.is_some() && !self.cgroups.limits_sockets() {
            return format!(
                "The buffers of sockets are not counted on this kernel. Netlink sockets: at most {netlink}."
            );
        }
        let bytes = limits.memory.bytes();
        let counted_apart = match memory {
            Some(Enforcement::CgroupV1) => bytes / jail::cgroup::V1_SOCKET_SHARE,
            _ => 0,
        };
        let internet = ByteSize(cage::internet_bytes(bytes).saturating_add(counted_apart));
        format!(
            "Buffers of internet sockets may take up to {internet} beside it. Sockets and connections beyond that are \
             refused (ENOBUFS), and so are more than {netlink} netlink sockets."
        )
    }

    fn cpu_statement(&self, limits: &LimitsPlan) -> LimitStatement {
        let value = u64::from(limits.cpus.millis);
        let (enforcement, note) = match (self.by_cgroup(Controller::Cpu), self.affinity(limits)) {
            (Some(enforcement), _) => (enforcement, None),
            (None, Some(count)) => (
                Enforcement::Affinity,
                Some(format!(
                    "Held as {count} whole processor{}: no cpu cgroup can be used here.",
                    if count == 1 { "" } else { "s" }
                )),
            ),
            (None, None) => (
                Enforcement::NotHeld,
                Some(format!(
                    "The host has {} processors and no cpu cgroup can be used here.",
                    self.processors
                )),
            ),
        };
        LimitStatement { limit: LimitKind::Cpus, value, enforcement, note }
    }

    fn open_files_statement(&self, limits: &LimitsPlan) -> LimitStatement {
        let value = self.open_files(limits);
        let is_cut = value < u64::from(limits.open_files);
        let cut = is_cut
            .then(|| format!("{} were asked for; the daemon itself may give {value}.", limits.open_files));
        let shared = matches!(self.ids, Ids::Shared(_)).then(|| SHARED_USER.to_owned());
        let note = cut.into_iter().chain(shared).reduce(|cut, shared| format!("{cut} {shared}"));
        LimitStatement { limit: LimitKind::OpenFiles, value, enforcement: Enforcement::Rlimit, note }
    }
}

fn disk_statement(limits: &LimitsPlan, disk: &DiskHold) -> LimitStatement {
    let (enforcement, note) = match disk {
        DiskHold::FileSystem => (Enforcement::FileSystem, None),
        DiskHold::Accounting { note } => {
            let note =
                note.iter().map(String::as_str).chain([accounting::NOTE]).collect::<Vec<_>>().join(" ");
            (Enforcement::Accounting, Some(note))
        }
    };
    LimitStatement { limit: LimitKind::Disk, value: limits.disk.bytes(), enforcement, note }
}

//! A cage as data: the steps that the spawner and its cloned child take, in order, before the guest runs.

use std::{
    fmt, io,
    os::fd::BorrowedFd,
    path::{Component, Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use crate::network::NetworkEnd;

/// Everything that one child needs to know. Descriptors come later; see [`crate::ReplySocket::hand_over`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cage {
    /// Name of the process, for `ps` on the host.
    pub name: String,
    pub id_map: IdMap,
    /// The host user who owns the sandbox's user namespace, for a spawner that is root: inotify instances, queued
    /// signals, timers and message queues of the whole sandbox are charged to this user. The spawner's own user if
    /// absent.
    #[serde(default)]
    pub owner: Option<u32>,
    /// Directories that the spawner opens, maps to the sandbox's ids and hands to the child.
    pub layers: Vec<HandedLayer>,
    /// Other mounts, opened and handed over in the same way.
    #[serde(default)]
    pub mounts: Vec<HandedMount>,
    pub steps: Vec<Step>,
    /// For every command of the guest: resource number, soft, hard.
    pub rlimits: Vec<(u32, u64, u64)>,
    pub internet: InternetBudget,
}

/// The limit of internet sockets, as the memory they may use without being charged to the sandbox's cgroup: connections
/// not yet accepted, the last packet of a full connection, unfinished datagrams, error queues.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InternetBudget {
    /// For all sockets together.
    pub bytes: u64,
    /// The most memory of one end of a TCP connection.
    pub tcp_socket: u64,
    /// The most memory of any other socket.
    pub other_socket: u64,
}

/// Ids inside the sandbox and the corresponding ids in the spawner's own user namespace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct IdMap {
    pub users: Vec<IdRange>,
    pub groups: Vec<IdRange>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct IdRange {
    pub inside: u32,
    pub outside: u32,
    pub count: u32,
}

impl IdMap {
    /// Inside ids 0.. are outside ids `outside`.., for users and groups alike.
    pub fn linear(outside: u32, count: u32) -> Self {
        let range = vec![IdRange { inside: 0, outside, count }];
        Self { users: range.clone(), groups: range }
    }

    /// The first `count` ids of the spawner's own user namespace, unchanged. Id 0 and the following ids come from
    /// different ranges there, and the kernel accepts no range of ours across that border.
    pub fn same(count: u32) -> Self {
        let mut ranges = vec![IdRange { inside: 0, outside: 0, count: 1 }];
        if count > 1 {
            ranges.push(IdRange { inside: 1, outside: 1, count: count - 1 });
        }
        Self { users: ranges.clone(), groups: ranges }
    }
}

impl fmt::Display for IdRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.inside, self.outside, self.count)
    }
}

/// A directory that only the spawner can reach, as a mount with the sandbox's ids.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum HandedLayer {
    Directory {
        path: PathBuf,
        read_only: bool,
        /// The directory it must turn out to be.
        identity: Option<FileIdentity>,
    },
    /// A file system in a file, mounted for this sandbox alone. Missing directories (name, mode) and files (name, text)
    /// are created in it.
    Image { path: PathBuf, directories: Vec<(String, u32)>, files: Vec<(String, String)> },
    /// An ext4 file system in a file; neither its contents nor the file may be written.
    ReadOnlyImage { path: PathBuf, identity: Option<FileIdentity> },
    /// A new `/dev` with device nodes of its own. Its files belong to this host user and group.
    Devices { owner: u32 },
}

/// Identifies a file regardless of its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileIdentity {
    pub device: u64,
    pub inode: u64,
}

impl FileIdentity {
    /// Refuses a file that was swapped for this one.
    pub fn check(self, found: BorrowedFd<'_>) -> io::Result<()> {
        let found = rustix::fs::fstat(found)?;
        if (self.device, self.inode) == (found.st_dev, found.st_ino) {
            return Ok(());
        }
        Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            "it is another file than the one that was allowed",
        ))
    }
}

/// A host file, directory or image that is mounted inside.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HandedMount {
    pub origin: MountOrigin,
    /// The file it must turn out to be.
    pub identity: Option<FileIdentity>,
    /// Whether ids on disk (0 and up) are mapped to the sandbox's own.
    pub is_mapped: bool,
    /// Applied to the whole tree, including submounts.
    pub flags: Vec<MountFlag>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum MountOrigin {
    /// A directory or a file. `recursive`: with its submounts.
    Path { path: PathBuf, recursive: bool },
    /// An ext4 file system in a file. All users of the same file see the same file system. `is_ours`: created by us for
    /// this.
    Image { path: PathBuf, is_ours: bool },
}

impl fmt::Display for HandedMount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.origin {
            MountOrigin::Path { path, recursive } => {
                let how = if *recursive { " with its submounts" } else { "" };
                write!(f, "show {}{how}", path.display())?;
            }
            MountOrigin::Image { path, .. } => write!(f, "show the file system in {}", path.display())?,
        }
        let ids = if self.is_mapped { " with the sandbox's ids" } else { "" };
        write!(f, "{ids} {:?}", self.flags)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Namespace {
    Mount,
    Network,
    Ipc,
    Uts,
    Cgroup,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MountFlag {
    ReadOnly,
    NoSuid,
    NoDev,
    NoExec,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PtsOptions {
    /// Group of new terminals (`tty`), if the id map has it.
    pub group: Option<u32>,
    /// Most terminals at a time: the kernel limits their number for the whole host.
    pub max: u32,
}

/// A directory directly below the stage: the spawner's working area, which only our steps write to.
///
/// Steps that resolve a host path by name accept only this. Anything inside the sandbox's root may be a hostile link,
/// so it is reached through a [`MountPath`] instead.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StagePath {
    stage: PathBuf,
    name: String,
}

impl StagePath {
    pub fn new(stage: &Path, name: impl Into<String>) -> Self {
        Self { stage: stage.to_owned(), name: name.into() }
    }

    /// Refuses a name that would lead further down, or out.
    pub(crate) fn resolve(&self) -> io::Result<PathBuf> {
        let mut parts = Path::new(&self.name).components();
        match (parts.next(), parts.next()) {
            (None | Some(Component::Normal(_)), None) => Ok(self.stage.join(&self.name)),
            _ => Err(io::Error::new(io::ErrorKind::InvalidInput, "only names directly below the stage work")),
        }
    }
}

impl fmt::Display for StagePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.stage.join(&self.name).display())
    }
}

/// A mount of the sandbox that later steps work in. The child holds a descriptor of each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MountName {
    Root,
    Usr,
    Dev,
    Proc,
    Sys,
}

impl MountName {
    /// The mount point inside.
    fn at(self) -> &'static str {
        match self {
            Self::Root => "",
            Self::Usr => "/usr",
            Self::Dev => "/dev",
            Self::Proc => "/proc",
            Self::Sys => "/sys",
        }
    }
}

/// A file or directory in one mount of the sandbox. It is resolved from that mount's descriptor, without following
/// links.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MountPath {
    pub mount: MountName,
    /// Relative to the top of the mount.
    pub path: PathBuf,
}

impl MountPath {
    pub fn new(mount: MountName, path: impl AsRef<Path>) -> Self {
        Self { mount, path: path.as_ref().to_owned() }
    }
}

impl fmt::Display for MountPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.mount.at(), self.path.display())
    }
}

/// A mount that is attached nowhere until a step puts it inside.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum NewMount {
    Tmpfs {
        bytes: u64,
        mode: u32,
        flags: Vec<MountFlag>,
    },
    Proc,
    /// The kernel's `/sys`, read-only; an empty directory if the kernel refuses it.
    Sys,
    Pts(PtsOptions),
    /// A copy of the host's `from`. `recursive`: with its submounts.
    Copy {
        from: PathBuf,
        recursive: bool,
        flags: Vec<MountFlag>,
    },
    /// A mount that an earlier step made on the stage; it is moved from there.
    Staged(StagePath),
    /// The handed layer of that number.
    Layer(usize),
    /// The handed mount of that number.
    Handed(usize),
}

impl fmt::Display for NewMount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tmpfs { bytes, mode, flags } => write!(f, "tmpfs {bytes} bytes {mode:o} {flags:?}"),
            Self::Proc => f.write_str("proc"),
            Self::Sys => f.write_str("sys"),
            Self::Pts(PtsOptions { max, .. }) => write!(f, "pts at most {max}"),
            Self::Copy { from, recursive, flags } => {
                let how = if *recursive { " with its submounts" } else { "" };
                write!(f, "{}{how} {flags:?}", from.display())
            }
            // Users read this when a tree refuses the mount; our stage's path means nothing to them.
            Self::Staged(from) => write!(f, "the overlay of {}", from.name),
            Self::Layer(number) => write!(f, "layer {number}"),
            Self::Handed(number) => write!(f, "mount {number}"),
        }
    }
}

/// The handling of a mask whose target is missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Missing {
    /// It existed a moment ago, so something is wrong.
    Fails,
    /// The content to hide is not visible inside anyway.
    IsFine,
}

/// One step on the way into the cage.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Step {
    /// New namespaces beyond the user and pid namespaces in which the child is born.
    Unshare {
        namespaces: Vec<Namespace>,
    },
    /// Waits until the spawner has written the id maps and handed the layers over.
    AwaitIds,
    /// Becomes user 0 and group 0 of the user namespace, without supplementary groups.
    BecomeRoot,
    /// Finds the host's pid of this process, and its start time.
    FindPid,
    /// Waits for the guest's listener and the files of its workload's cgroup. Writes the pid to the handed file.
    AwaitHandoff,
    /// Stops mounts from propagating to the mount namespace that this one was copied from.
    HideMounts,
    /// Runs on the first `count` of the currently allowed processors.
    Affinity {
        count: u32,
    },
    Directory {
        at: StagePath,
        mode: u32,
    },
    /// Attaches the handed layer of that number to a directory.
    Attach {
        layer: usize,
        at: StagePath,
    },
    /// `short`: an empty directory in which the lower layers get short names if the kernel cannot take so many long
    /// ones.
    Overlay {
        at: StagePath,
        lower: Vec<PathBuf>,
        upper: PathBuf,
        work: PathBuf,
        short: StagePath,
        flags: Vec<MountFlag>,
    },
    Tmpfs {
        at: StagePath,
        bytes: u64,
        mode: u32,
        flags: Vec<MountFlag>,
    },
    /// A `/dev` that shows the host's own device nodes, which cannot be made without root.
    HostDevices {
        at: StagePath,
    },
    /// Mounts `from` at `at` as well.
    Bind {
        from: PathBuf,
        at: StagePath,
        flags: Vec<MountFlag>,
    },
    /// Fails unless this path is that file or directory.
    Expect {
        at: StagePath,
        identity: FileIdentity,
    },
    /// Adds flags to the mount at a directory.
    Flags {
        at: StagePath,
        flags: Vec<MountFlag>,
    },
    /// Uses the mount there as [`MountName::Root`].
    Root {
        at: StagePath,
    },
    /// Mounts on a directory of one of the sandbox's own mounts, which is created if missing. A link or a file there is
    /// refused. `name`: the new mount's name for later steps.
    Mount {
        what: NewMount,
        at: MountPath,
        name: Option<MountName>,
    },
    /// Mounts a user's mount on a path in the root. The path is found, or created, as seen from inside: links are
    /// followed, but never out of the root or into a file system of the kernel.
    Place {
        what: NewMount,
        at: String,
    },
    /// Makes the handed mount of that number the root for [`Step::Pivot`].
    PlaceRoot {
        mount: usize,
        at: StagePath,
    },
    /// An empty read-only directory, whose copies [`Step::Mask`] mounts.
    Empty {
        at: StagePath,
    },
    /// Hides a file behind the sandbox's own `/dev/null`, or a directory behind an empty one.
    Mask {
        at: MountPath,
        missing: Missing,
    },
    /// Makes part of a mount read-only.
    ReadOnly {
        at: MountPath,
    },
    /// Writes a kernel setting.
    Setting {
        at: MountPath,
        value: String,
    },
    /// Makes a directory with its missing parents, if possible. Only after [`Step::Pivot`].
    MakePath {
        at: PathBuf,
    },
    Loopback,
    /// In place of `Loopback`: a network whose other end is whoever gets the sockets from the guest.
    Network(NetworkEnd),
    Hostname {
        name: String,
    },
    /// Leaves a process behind that waits for a [`crate::Naming`], sets the name, and ends. Only after
    /// [`Step::AwaitHandoff`].
    AwaitName,
    /// Makes `root` the root and detaches everything outside it.
    Pivot {
        root: StagePath,
    },
    /// Closes every descriptor but the guest's.
    CloseDescriptors,
    /// Keeps these capabilities and drops all others for good.
    Capabilities {
        keep: Vec<String>,
    },
    NoNewPrivileges,
    /// Keeps processes of the same user from reading the guest's memory.
    NotDumpable,
    /// The syscall filter of that name.
    Seccomp {
        filter: String,
    },
}

impl Step {
    /// Short name for errors and timings.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Unshare { .. } => "unshare",
            Self::AwaitIds => "await ids",
            Self::BecomeRoot => "become root",
            Self::FindPid => "find pid",
            Self::AwaitHandoff => "await handoff",
            Self::HideMounts => "hide mounts",
            Self::Affinity { .. } => "affinity",
            Self::Directory { .. } => "directory",
            Self::Attach { .. } => "attach",
            Self::Overlay { .. } => "overlay",
            Self::Tmpfs { .. } => "tmpfs",
            Self::HostDevices { .. } => "host devices",
            Self::Bind { .. } => "bind",
            Self::Expect { .. } => "expect",
            Self::Flags { .. } => "flags",
            Self::Root { .. } => "root",
            Self::Mount { .. } => "mount",
            Self::Place { .. } => "place",
            Self::PlaceRoot { .. } => "place root",
            Self::Empty { .. } => "empty",
            Self::Mask { .. } => "mask",
            Self::ReadOnly { .. } => "read-only",
            Self::Setting { .. } => "setting",
            Self::MakePath { .. } => "make path",
            Self::Loopback => "loopback",
            Self::Network(_) => "network",
            Self::Hostname { .. } => "hostname",
            Self::AwaitName => "await name",
            Self::Pivot { .. } => "pivot",
            Self::CloseDescriptors => "close descriptors",
            Self::Capabilities { .. } => "capabilities",
            Self::NoNewPrivileges => "no new privileges",
            Self::NotDumpable => "not dumpable",
            Self::Seccomp { .. } => "seccomp",
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.name();
        match self {
            Self::Unshare { namespaces } => write!(f, "{name} {namespaces:?}"),
            Self::Affinity { count } => write!(f, "{name} {count}"),
            Self::Directory { at, mode } => write!(f, "{name} {at} {mode:o}"),
            Self::HostDevices { at } | Self::Expect { at, .. } | Self::Root { at } | Self::Empty { at } => {
                write!(f, "{name} {at}")
            }
            Self::Mask { at, .. } | Self::ReadOnly { at } => write!(f, "{name} {at}"),
            Self::MakePath { at } => write!(f, "{name} {}", at.display()),
            Self::Attach { layer, at } => write!(f, "{name} layer {layer} at {at}"),
            Self::Overlay { at, lower, upper, work, flags, .. } => {
                write!(f, "{name} {at} lower {lower:?} upper {upper:?} work {work:?} {flags:?}")
            }
            Self::Tmpfs { at, bytes, mode, flags } => {
                write!(f, "{name} {at} {bytes} bytes {mode:o} {flags:?}")
            }
            Self::Bind { from, at, flags } => write!(f, "{name} {} at {at} {flags:?}", from.display()),
            Self::Mount { what, at, .. } => write!(f, "{name} {what} at {at}"),
            Self::Place { what, at } => write!(f, "{name} {what} at {at}"),
            Self::PlaceRoot { mount, at } => write!(f, "{name} mount {mount} at {at}"),
            Self::Flags { at, flags } => write!(f, "{name} {at} {flags:?}"),
            Self::Network(end) => {
                write!(f, "{name} {}", end.v4)?;
                end.v6.map_or(Ok(()), |v6| write!(f, " {v6}"))
            }
            Self::Hostname { name: host } => write!(f, "{name} {host}"),
            Self::Setting { at, value } => write!(f, "{name} {at} = {value}"),
            Self::Pivot { root } => write!(f, "{name} to {root}"),
            Self::Capabilities { keep } => write!(f, "{name} {}", keep.join(" ")),
            Self::Seccomp { filter } => write!(f, "{name} {filter}"),
            _ => f.write_str(name),
        }
    }
}

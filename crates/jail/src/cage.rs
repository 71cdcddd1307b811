//! A cage as data: what the spawner and the child it clones will do, in order, before the guest runs.

use std::{fmt, io, os::fd::BorrowedFd, path::PathBuf};

use serde::{Deserialize, Serialize};

/// Everything that one child needs to know. Descriptors come later; see [`crate::ReplySocket::hand_over`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cage {
    /// Name of the process, for `ps` on the host.
    pub name: String,
    pub id_map: IdMap,
    /// The host user who owns the sandbox's user namespace, for a spawner that is root: inotify instances, queued signals,
    /// timers and message queues of everybody inside are charged to this user. The spawner's own if absent.
    #[serde(default)]
    pub owner: Option<u32>,
    /// Directories that the spawner opens, maps to the sandbox's ids and hands to the child.
    pub layers: Vec<HandedLayer>,
    /// What else is mounted, opened and handed over in the same way.
    #[serde(default)]
    pub mounts: Vec<HandedMount>,
    pub steps: Vec<Step>,
    /// For every command the guest runs: resource number, soft, hard.
    pub rlimits: Vec<(u32, u64, u64)>,
}

/// Ids inside the sandbox and what they are outside of it, in the spawner's own user namespace.
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

    /// The first `count` ids of the spawner's own user namespace, unchanged. There, 0 and what follows come from different
    /// places, and the kernel wants no range of ours to reach over that border.
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

/// A directory that only the spawner may reach, as a mount that shows it with the sandbox's ids.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum HandedLayer {
    Directory {
        path: PathBuf,
        read_only: bool,
        /// Which one it must turn out to be.
        identity: Option<FileIdentity>,
    },
    /// A file system in a file, mounted for this sandbox alone. Directories (name, mode) and files (name, text) are made in
    /// it when they are missing.
    Image { path: PathBuf, directories: Vec<(String, u32)>, files: Vec<(String, String)> },
    /// An ext4 file system in a file that nobody may write to, neither to what is in it nor to the file.
    ReadOnlyImage { path: PathBuf, identity: Option<FileIdentity> },
}

/// Which file it is, whatever it is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileIdentity {
    pub device: u64,
    pub inode: u64,
}

impl FileIdentity {
    /// Refuses a file that was put in the place of this one.
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

/// Something of the host that is shown at a place inside.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HandedMount {
    pub origin: MountOrigin,
    /// What it must turn out to be.
    pub identity: Option<FileIdentity>,
    /// Whether ids on disk (0 and up) are shown as the sandbox's own.
    pub is_mapped: bool,
    /// For all of it, with what is mounted beneath.
    pub flags: Vec<MountFlag>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum MountOrigin {
    /// A directory or a file. `recursive`: with what is mounted beneath.
    Path { path: PathBuf, recursive: bool },
    /// An ext4 file system in a file. Whoever mounts the same file sees the same file system. `is_ours`: made by us, for this.
    Image { path: PathBuf, is_ours: bool },
}

impl fmt::Display for HandedMount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.origin {
            MountOrigin::Path { path, recursive } => {
                let how = if *recursive { " with what is beneath" } else { "" };
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
    /// Group of new terminals (`tty`), where the id map has it.
    pub group: Option<u32>,
}

/// One thing that is done on the way into the cage. Paths are the child's own, before or after [`Step::Pivot`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Step {
    /// New namespaces beyond the user and pid namespaces in which the child is born.
    Unshare {
        namespaces: Vec<Namespace>,
    },
    /// Waits until the spawner has written the id maps and handed the layers over.
    AwaitIds,
    /// Becomes user 0 and group 0 of the user namespace, without further groups.
    BecomeRoot,
    /// Finds the pid as the host knows it, and the start time.
    FindPid,
    /// Waits for what the guest needs: its listener, the files of its workload's cgroup. Writes the pid to the handed file.
    AwaitHandoff,
    /// Stops mounts from travelling back to where this mount namespace was copied from.
    HideMounts,
    /// Runs on the first `count` of the processors allowed now.
    Affinity {
        count: u32,
    },
    Directory {
        at: PathBuf,
        mode: u32,
    },
    /// An empty file, to mount another on.
    File {
        at: PathBuf,
    },
    Link {
        at: PathBuf,
        to: PathBuf,
    },
    /// Puts the handed layer of that number at a directory.
    Attach {
        layer: usize,
        at: PathBuf,
    },
    /// `short`: an empty directory, where the lower ones get short names if the kernel cannot take so many long ones.
    Overlay {
        at: PathBuf,
        lower: Vec<PathBuf>,
        upper: PathBuf,
        work: PathBuf,
        short: PathBuf,
        flags: Vec<MountFlag>,
    },
    Tmpfs {
        at: PathBuf,
        bytes: u64,
        mode: u32,
        flags: Vec<MountFlag>,
    },
    /// Puts the handed mount of that number at a place in `root`, which is found, or made, as seen from in there.
    Place {
        mount: usize,
        root: PathBuf,
        at: String,
    },
    /// As [`Step::Place`], a new tmpfs.
    PlaceTmpfs {
        bytes: u64,
        mode: u32,
        flags: Vec<MountFlag>,
        root: PathBuf,
        at: String,
    },
    /// Makes the handed mount of that number the root that [`Step::Pivot`] takes.
    PlaceRoot {
        mount: usize,
        at: PathBuf,
    },
    Proc {
        at: PathBuf,
    },
    /// The kernel's `/sys`, read-only; an empty directory where the kernel refuses it.
    Sys {
        at: PathBuf,
    },
    Pts {
        at: PathBuf,
        options: PtsOptions,
    },
    /// Shows `from` at `at` too. `recursive`: with what is mounted beneath.
    Bind {
        from: PathBuf,
        at: PathBuf,
        recursive: bool,
        flags: Vec<MountFlag>,
    },
    /// Goes on only if what is at this place is that file or directory.
    Expect {
        at: PathBuf,
        identity: FileIdentity,
    },
    /// Makes a directory with its parents, where they are missing and can be made.
    MakePath {
        at: PathBuf,
    },
    /// Hides a file or a directory of the kernel, where it exists, behind `with`, which must be of the same kind.
    Mask {
        at: PathBuf,
        with: PathBuf,
    },
    /// Makes a directory of the kernel read-only, where it exists.
    ReadOnly {
        at: PathBuf,
    },
    /// Adds flags to the mount at a directory.
    Flags {
        at: PathBuf,
        flags: Vec<MountFlag>,
    },
    Loopback,
    Hostname {
        name: String,
    },
    /// Writes a kernel setting, where it exists.
    Setting {
        at: PathBuf,
        value: String,
    },
    /// Makes `root` the root and lets go of everything outside of it.
    Pivot {
        root: PathBuf,
    },
    /// Closes every descriptor but the guest's.
    CloseDescriptors,
    /// Keeps these capabilities and gives up all others for ever.
    Capabilities {
        keep: Vec<String>,
    },
    NoNewPrivileges,
    /// No process of the same user may look into the guest.
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
            Self::File { .. } => "file",
            Self::Link { .. } => "link",
            Self::Attach { .. } => "attach",
            Self::Overlay { .. } => "overlay",
            Self::Tmpfs { .. } => "tmpfs",
            Self::Place { .. } => "place",
            Self::PlaceTmpfs { .. } => "place tmpfs",
            Self::PlaceRoot { .. } => "place root",
            Self::Proc { .. } => "proc",
            Self::Sys { .. } => "sys",
            Self::Pts { .. } => "pts",
            Self::Bind { .. } => "bind",
            Self::Expect { .. } => "expect",
            Self::MakePath { .. } => "make path",
            Self::Mask { .. } => "mask",
            Self::ReadOnly { .. } => "read-only",
            Self::Flags { .. } => "flags",
            Self::Loopback => "loopback",
            Self::Hostname { .. } => "hostname",
            Self::Setting { .. } => "setting",
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
            Self::Directory { at, mode } => write!(f, "{name} {} {mode:o}", at.display()),
            Self::File { at }
            | Self::Proc { at }
            | Self::Sys { at }
            | Self::ReadOnly { at }
            | Self::Expect { at, .. }
            | Self::MakePath { at } => {
                write!(f, "{name} {}", at.display())
            }
            Self::Mask { at, .. } | Self::Pts { at, .. } => write!(f, "{name} {}", at.display()),
            Self::Link { at, to } => write!(f, "{name} {} → {}", at.display(), to.display()),
            Self::Attach { layer, at } => write!(f, "{name} layer {layer} at {}", at.display()),
            Self::Overlay { at, lower, upper, work, flags, .. } => {
                write!(f, "{name} {} lower {lower:?} upper {upper:?} work {work:?} {flags:?}", at.display())
            }
            Self::Tmpfs { at, bytes, mode, flags } => {
                write!(f, "{name} {} {bytes} bytes {mode:o} {flags:?}", at.display())
            }
            Self::Place { mount, root, at } => {
                write!(f, "{name} mount {mount} at {at} in {}", root.display())
            }
            Self::PlaceTmpfs { bytes, mode, flags, root, at } => {
                write!(f, "{name} at {at} in {} {bytes} bytes {mode:o} {flags:?}", root.display())
            }
            Self::PlaceRoot { mount, at } => write!(f, "{name} mount {mount} at {}", at.display()),
            Self::Bind { from, at, recursive, flags } => {
                let how = if *recursive { " with what is beneath" } else { "" };
                write!(f, "{name} {} at {}{how} {flags:?}", from.display(), at.display())
            }
            Self::Flags { at, flags } => write!(f, "{name} {} {flags:?}", at.display()),
            Self::Hostname { name: host } => write!(f, "{name} {host}"),
            Self::Setting { at, value } => write!(f, "{name} {} = {value}", at.display()),
            Self::Pivot { root } => write!(f, "{name} to {}", root.display()),
            Self::Capabilities { keep } => write!(f, "{name} {}", keep.join(" ")),
            Self::Seccomp { filter } => write!(f, "{name} {filter}"),
            _ => f.write_str(name),
        }
    }
}

//! From a plan to a cage: the list of steps that makes one sandbox.
//!
//! Pure: what is true of the host comes in as [`Ground`].

use std::{
    fs,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

use jail::{Cage, HandedLayer, IdMap, MountFlag, Namespace, PtsOptions, Step, WORKLOAD_CAPABILITIES};
use sandbox::{RootfsPlan, SandboxPlan};

mod layers;

use self::layers::Lowers;
pub(crate) use self::layers::{Source, Sources};
use super::{
    ids::RANGE,
    mounts,
    names::{self, FileNames},
    skeleton::Skeleton,
};

/// Most directories that one overlay is made of, an image's layers and the trees over them: the kernel takes 500.
pub(crate) const MAX_LOWERS: usize = 400;
/// Most bytes of their names: they are in one message to the spawner, with everything else of a cage.
pub(crate) const MAX_LOWER_BYTES: usize = 48 * 1024;
/// Most mounts that the spawner hands to a child for its overlays, each a descriptor in one message: one for all layers, one
/// for all trees, and one for each directory elsewhere.
const MAX_HANDED: usize = 24;
/// Size of the file system that only holds mount points.
const STAGE_BYTES: u64 = 1024 * 1024;
/// Size of `/run`.
const RUN_BYTES: u64 = 16 * 1024 * 1024;
const DEVICES: [&str; 6] = ["null", "zero", "full", "random", "urandom", "tty"];
/// The group `tty`, which owns terminals.
const TTY_GROUP: u32 = 5;

/// Files of the kernel that tell of the host or of other sandboxes, or reach into it.
const MASKED_FILES: [&str; 7] = [
    "proc/kcore",
    "proc/keys",
    "proc/latency_stats",
    "proc/timer_list",
    "proc/sched_debug",
    "proc/kmsg",
    "proc/interrupts",
];
const MASKED_DIRECTORIES: [&str; 5] =
    ["proc/acpi", "proc/scsi", "proc/asound", "sys/firmware", "sys/devices/virtual/powercap"];
/// The most that everybody inside has together, in the sandbox's own user namespace. Without root it is a share of what
/// the daemon's user has on the host: usually 128 instances.
const USER_SETTINGS: [(&str, u32); 3] =
    [("max_inotify_instances", 32), ("max_inotify_watches", 65_536), ("max_user_namespaces", 0)];
/// Settings of the host's package managers beneath `/usr`, all of which image `host` shows: they may hold passwords, which
/// only the daemon needs.
const HIDDEN: [&str; 2] = ["usr/etc/npmrc", "usr/local/etc/npmrc"];
const READ_ONLY: [&str; 5] = ["proc/sys", "proc/bus", "proc/fs", "proc/irq", "proc/sysrq-trigger"];

/// What is true of this host and this daemon.
#[derive(Debug, Clone)]
pub(crate) struct Ground {
    /// A directory of the host over which the spawner mounts its workplace, unseen by the host.
    pub(crate) stage: PathBuf,
    pub(crate) skeleton: Skeleton,
    /// Directories of ours below which layers and trees lie, many in each: shown as one, however many of them are used.
    pub(crate) pools: Vec<PathBuf>,
    pub(crate) ids: Ids,
    /// What the host has mounted beneath `/usr`.
    pub(crate) usr_mounts: Vec<PathBuf>,
    /// Files of the kernel that exist here and are to be masked or made read-only.
    pub(crate) masked: Vec<PathBuf>,
    /// Files beneath the host's `/usr` that are empty inside.
    pub(crate) hidden: Vec<PathBuf>,
}

/// How ids inside are related to ids outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ids {
    /// Root: a range of their own for each sandbox, layers shown through it.
    OwnRange,
    /// The spawner's user namespace has that many; every sandbox has the same.
    Shared(u32),
    /// Root, where files cannot be shown with other ids: the host's own, in a user namespace without rights outside.
    Host,
}

/// Steps for the spawner itself, once: a mount namespace of its own with a workplace in it, of which every child gets a copy.
pub(crate) fn prepare_steps(stage: &Path) -> Vec<Step> {
    let at = |name: &str| stage.join(name);
    let quiet = vec![MountFlag::NoSuid, MountFlag::NoExec];
    let tmpfs = |at, flags| Step::Tmpfs { at, bytes: STAGE_BYTES, mode: 0o755, flags };
    let mut steps = vec![
        Step::Unshare { namespaces: vec![Namespace::Mount] },
        Step::HideMounts,
        tmpfs(stage.to_owned(), vec![MountFlag::NoSuid, MountFlag::NoExec]),
    ];
    let layers = (0..MAX_HANDED).map(layer_name);
    let directories = ["root", "own", "dev", "empty", "short"].map(str::to_owned);
    steps.extend(layers.chain(directories).map(|name| Step::Directory { at: at(&name), mode: 0o755 }));
    steps.push(tmpfs(at("empty"), quiet.clone()));
    steps.push(Step::Flags { at: at("empty"), flags: vec![MountFlag::ReadOnly] });
    // Nodes cannot be made in a user namespace, so the host's are shown, once for all sandboxes.
    steps.push(tmpfs(at("dev"), quiet));
    for device in DEVICES {
        let node = at("dev").join(device);
        steps.push(Step::File { at: node.clone() });
        steps.push(Step::Bind {
            from: Path::new("/dev").join(device),
            at: node,
            recursive: false,
            // Devices can be written to all the same; what cannot be changed is the host's node, its mode and its owner.
            flags: vec![MountFlag::ReadOnly, MountFlag::NoSuid, MountFlag::NoExec],
        });
    }
    for (name, to) in [
        ("fd", "/proc/self/fd"),
        ("stdin", "/proc/self/fd/0"),
        ("stdout", "/proc/self/fd/1"),
        ("stderr", "/proc/self/fd/2"),
        ("ptmx", "pts/ptmx"),
    ] {
        steps.push(Step::Link { at: at("dev").join(name), to: PathBuf::from(to) });
    }
    for name in ["pts", "shm"] {
        steps.push(Step::Directory { at: at("dev").join(name), mode: 0o755 });
    }
    steps.push(Step::Flags { at: at("dev"), flags: vec![MountFlag::ReadOnly] });
    steps
}

fn layer_name(number: usize) -> String {
    format!("layer-{number}")
}

/// What the back end decided beyond the plan.
#[derive(Debug, Clone)]
pub(crate) struct Decided {
    /// First host id of the range that nobody else has, for a root daemon.
    pub(crate) first_id: Option<u32>,
    pub(crate) has_image: bool,
    /// The trees above the image, those of their parts that exist, topmost first.
    pub(crate) above: Above,
    /// Processors to run on, when nothing else holds the limit.
    pub(crate) affinity: Option<u32>,
    pub(crate) rlimits: Vec<(u32, u64, u64)>,
}

/// Upper directories of trees, topmost first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Above {
    pub(crate) root: Vec<PathBuf>,
    /// For image `host`.
    pub(crate) usr: Vec<PathBuf>,
}

/// Builds the cage of one sandbox.
pub(crate) fn build(plan: &SandboxPlan, ground: &Ground, decided: &Decided) -> Cage {
    let stage = &ground.stage;
    let root = stage.join("root");
    let files = FileNames::of(&plan.directory);
    let mut steps = apart(&plan.hostname);
    steps.extend(decided.affinity.map(|count| Step::Affinity { count }));

    let sources = Sources::of(plan, ground, &decided.above);
    let (lowers, own, layers) = match ground.ids {
        Ids::OwnRange => {
            let own = own_layer(plan, &files, decided.has_image);
            layers::handed(&sources, ground, own, &mut steps)
        }
        Ids::Shared(_) | Ids::Host => (layers::shown(&sources, stage, &mut steps), files.own, Vec::new()),
    };
    overlays(ground, &root, &lowers, &own, &mut steps);
    if has_fixed_usr(plan, ground) {
        fixed_usr(ground, &root, &mut steps);
    }
    if plan.rootfs == RootfsPlan::Host {
        steps.extend(ground.skeleton.bound.iter().map(|from| Step::Bind {
            from: from.clone(),
            at: below(&root, from),
            recursive: false,
            flags: vec![MountFlag::ReadOnly, MountFlag::NoSuid, MountFlag::NoDev],
        }));
        let null = stage.join("dev/null");
        steps.extend(
            ground.hidden.iter().map(|file| Step::Mask { at: below(&root, file), with: null.clone() }),
        );
    }
    kernel_mounts(plan, ground, &root, &mut steps);
    let mounts = mounts::place_all(&plan.mounts, ground.ids, &root, &mut steps);
    steps.push(Step::Pivot { root });
    if plan.rootfs != RootfsPlan::Host {
        // An image may name a working directory that nothing in it has.
        steps.push(Step::MakePath { at: PathBuf::from(&plan.cwd) });
    }
    steps.extend(sealed());
    let id_map = id_map(ground.ids, decided.first_id);
    let (name, owner) = (plan.id.to_string(), decided.first_id);
    Cage { name, id_map, owner, layers, mounts, steps, rlimits: decided.rlimits.clone() }
}

/// The beginning of every cage: namespaces of its own.
pub(crate) fn apart(hostname: &str) -> Vec<Step> {
    vec![
        Step::Unshare {
            namespaces: vec![
                Namespace::Mount,
                Namespace::Network,
                Namespace::Ipc,
                Namespace::Uts,
                Namespace::Cgroup,
            ],
        },
        // While the spawner maps our ids.
        Step::Loopback,
        Step::Hostname { name: hostname.to_owned() },
        Step::FindPid,
        Step::AwaitIds,
        Step::BecomeRoot,
    ]
}

/// The end of every cage, once nothing but its root is in reach: no right is left that could change that.
pub(crate) fn sealed() -> [Step; 6] {
    [
        Step::AwaitHandoff,
        Step::CloseDescriptors,
        Step::Capabilities { keep: WORKLOAD_CAPABILITIES.map(str::to_owned).to_vec() },
        Step::NotDumpable,
        Step::NoNewPrivileges,
        Step::Seccomp { filter: jail::FILTER_NAME.to_owned() },
    ]
}

pub(crate) fn id_map(ids: Ids, first_id: Option<u32>) -> IdMap {
    match (ids, first_id) {
        (Ids::OwnRange, first) => IdMap::linear(first.unwrap_or(0), RANGE),
        (Ids::Shared(count), _) => IdMap::same(count.min(RANGE)),
        (Ids::Host, _) => IdMap::linear(0, RANGE),
    }
}

fn own_layer(plan: &SandboxPlan, files: &FileNames, has_image: bool) -> HandedLayer {
    if has_image {
        let directories = names::own_directories(plan);
        let path = files.image.clone();
        HandedLayer::Image { path, directories, files: names::own_files(&plan.hostname) }
    } else {
        HandedLayer::Directory { path: files.own.clone(), read_only: false, identity: None }
    }
}

fn overlays(ground: &Ground, root: &Path, lowers: &Lowers, own: &Path, steps: &mut Vec<Step>) {
    let mut overlay = |at: &Path, name: &str, lower: &[PathBuf]| {
        let own = own.join(name);
        steps.push(Step::Overlay {
            at: at.to_owned(),
            lower: lower.to_vec(),
            upper: own.join("upper"),
            work: own.join("work"),
            short: ground.stage.join("short"),
            flags: vec![MountFlag::NoSuid, MountFlag::NoDev],
        });
    };
    overlay(root, "root", &lowers.root);
    if !lowers.usr.is_empty() {
        overlay(&root.join("usr"), "usr", &lowers.usr);
    }
}

/// Without root the kernel lets nobody lay an overlay over a directory in which the host has mounted something, for that
/// would show what lies under those mounts. Then `/usr` is shown as it is, read-only.
pub(crate) fn has_fixed_usr(plan: &SandboxPlan, ground: &Ground) -> bool {
    let is_without_root = matches!(ground.ids, Ids::Shared(_));
    plan.rootfs == RootfsPlan::Host && is_without_root && !ground.usr_mounts.is_empty()
}

/// The mounts beneath must come along; each is covered at once.
fn fixed_usr(ground: &Ground, root: &Path, steps: &mut Vec<Step>) {
    steps.push(Step::Bind {
        from: PathBuf::from("/usr"),
        at: root.join("usr"),
        recursive: true,
        flags: vec![MountFlag::ReadOnly, MountFlag::NoSuid, MountFlag::NoDev],
    });
    let covered = ground.usr_mounts.iter().map(|mount| {
        let with = if mount.is_dir() { "empty" } else { "dev/null" };
        Step::Mask { at: below(root, mount), with: ground.stage.join(with) }
    });
    steps.extend(covered);
}

/// Mounts beneath `/usr`, from the text of `/proc/self/mountinfo`.
pub(crate) fn usr_mounts(mountinfo: &str) -> Vec<PathBuf> {
    let mounted = mountinfo.lines().filter_map(|line| line.split(' ').nth(4));
    mounted.filter(|at| at.starts_with("/usr/")).map(|at| PathBuf::from(at.replace("\\040", " "))).collect()
}

fn kernel_mounts(plan: &SandboxPlan, ground: &Ground, root: &Path, steps: &mut Vec<Step>) {
    let (stage, limits) = (&ground.stage, &plan.limits);
    let quiet = vec![MountFlag::NoSuid, MountFlag::NoDev];
    let still = vec![MountFlag::NoSuid, MountFlag::NoDev, MountFlag::NoExec];
    let group = match ground.ids {
        Ids::Shared(count) if count <= TTY_GROUP => None,
        _ => Some(TTY_GROUP),
    };
    steps.extend([
        Step::Bind { from: stage.join("dev"), at: root.join("dev"), recursive: true, flags: Vec::new() },
        Step::Pts { at: root.join("dev/pts"), options: PtsOptions { group } },
        Step::Tmpfs { at: root.join("dev/shm"), bytes: limits.shm.bytes(), mode: 0o1777, flags: still },
    ]);
    // Builds have none: what one instruction puts there, the next one finds.
    if limits.tmp.bytes() > 0 {
        let (at, flags) = (root.join("tmp"), quiet.clone());
        steps.push(Step::Tmpfs { at, bytes: limits.tmp.bytes(), mode: 0o1777, flags });
    }
    steps.extend([
        Step::Tmpfs { at: root.join("run"), bytes: RUN_BYTES, mode: 0o755, flags: quiet },
        Step::Proc { at: root.join("proc") },
        Step::Sys { at: root.join("sys") },
        // Ports below 1024 for everybody: the network namespace is the sandbox's own.
        Step::Setting {
            at: root.join("proc/sys/net/ipv4/ip_unprivileged_port_start"),
            value: "0".to_owned(),
        },
    ]);
    steps.extend(USER_SETTINGS.map(|(name, value)| Step::Setting {
        at: root.join("proc/sys/user").join(name),
        value: value.to_string(),
    }));
    let is_there = |name: &&&str| ground.masked.contains(&Path::new("/").join(name));
    let mask = |name: &str, with: &str| Step::Mask { at: root.join(name), with: stage.join(with) };
    steps.extend(MASKED_FILES.iter().filter(is_there).map(|name| mask(name, "dev/null")));
    steps.extend(MASKED_DIRECTORIES.iter().filter(is_there).map(|name| mask(name, "empty")));
    steps.extend(READ_ONLY.iter().filter(is_there).map(|name| Step::ReadOnly { at: root.join(name) }));
}

/// Which of the kernel's files that are masked or made read-only exist here: asked once, not for every sandbox.
pub(crate) fn masked_here() -> Vec<PathBuf> {
    let all = MASKED_FILES.iter().chain(&MASKED_DIRECTORIES).chain(&READ_ONLY);
    all.map(|name| Path::new("/").join(name)).filter(|path| path.symlink_metadata().is_ok()).collect()
}

/// Which settings with passwords exist beneath `/usr` of this host (`/`, but in tests). Asked for every sandbox, since they may
/// come later than the daemon. By their true places: a link must not be covered, but what it leads to. What a file system
/// mounted beneath `/usr` has is not seen inside anyway.
pub(crate) fn hidden_here(host: &Path, usr_mounts: &[PathBuf]) -> Vec<PathBuf> {
    let is_shown =
        |path: &PathBuf| path.starts_with("/usr") && !usr_mounts.iter().any(|mount| path.starts_with(mount));
    let mut found: Vec<_> = HIDDEN
        .iter()
        .filter_map(|name| host.join(name).canonicalize().ok().filter(|path| path.is_file()))
        .filter_map(|path| Some(Path::new("/").join(path.strip_prefix(host).ok()?)))
        .filter(is_shown)
        .collect();
    found.dedup();
    found
}

fn below(root: &Path, path: &Path) -> PathBuf {
    root.join(path.strip_prefix("/").unwrap_or(path))
}

/// A directory of the host which is no parent of anything that we need to see, and which the children of the spawner can enter
/// as strangers. What lies there is hidden from us and cannot be mounted, so first those that hardly anybody mounts.
pub(crate) fn choose_stage(needed: &[&Path]) -> Option<PathBuf> {
    ["/dev/shm", "/boot", "/media", "/mnt", "/srv", "/opt", "/tmp", "/var/tmp", "/run"]
        .map(PathBuf::from)
        .into_iter()
        .find(|candidate| {
            let is_free = needed.iter().all(|path| !path.starts_with(candidate));
            let is_open = |found: fs::Metadata| found.is_dir() && found.mode() & 0o001 != 0;
            is_free && candidate.symlink_metadata().is_ok_and(is_open)
        })
}

#[cfg(test)]
mod tests;

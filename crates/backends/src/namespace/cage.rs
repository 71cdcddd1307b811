//! From a plan to a cage: the list of steps that makes one sandbox.
//!
//! Pure: the facts of the host come in as [`Ground`].

use std::{
    fs,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

use jail::{
    Cage, HandedLayer, IdMap, InternetBudget, Missing, MountFlag, MountName, MountPath, Namespace,
    NetworkEnd, NewMount, PtsOptions, StagePath, Step, WORKLOAD_CAPABILITIES,
};
use sandbox::{RootfsPlan, SandboxPlan};

mod kernel_files;
mod layers;

pub(crate) use self::{
    kernel_files::KernelFiles,
    layers::{Source, Sources},
};
use super::{
    ids::RANGE,
    mounts::{self, LocatedMount},
    names::{self, FileNames},
    network::CONGESTION_CONTROL,
    skeleton::Skeleton,
};

/// Most directories of one overlay, an image's layers and the trees over them: the kernel allows 500.
pub(crate) const MAX_LOWERS: usize = 400;
/// Most bytes of their names: they go to the spawner in one message, with the rest of the cage.
pub(crate) const MAX_LOWER_BYTES: usize = 48 * 1024;
/// Most mounts that the spawner hands to a child for its overlays, each a descriptor in one message: one for all
/// layers, one for all trees, and one for each directory elsewhere.
const MAX_HANDED: usize = 24;
/// Size of the file system that only contains mount points.
const STAGE_BYTES: u64 = 1024 * 1024;
/// Size of `/run`.
const RUN_BYTES: u64 = 16 * 1024 * 1024;
/// The group `tty`, which owns terminals.
const TTY_GROUP: u32 = 5;
/// Most terminals of one sandbox. The whole host has some thousand (`kernel.pty.max`).
const MAX_TERMINALS: u32 = 256;

/// Settings of the host's package managers in `/usr`, which image `host` shows: they may contain passwords that only
/// the daemon needs.
const HIDDEN: [&str; 2] = ["usr/etc/npmrc", "usr/local/etc/npmrc"];

/// The facts of this host and this daemon.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ground {
    /// Directory of all sandboxes' files.
    pub(crate) sandboxes: PathBuf,
    /// A host directory over which the spawner mounts its stage, invisible to the host.
    pub(crate) stage: PathBuf,
    pub(crate) skeleton: Skeleton,
    /// Our directories that contain many layers and trees each: shown as one mount, however many are used.
    pub(crate) pools: Vec<PathBuf>,
    pub(crate) ids: Ids,
    /// The host's mounts below `/usr`.
    pub(crate) usr_mounts: Vec<PathBuf>,
    /// Whether each sandbox can have device nodes of its own.
    pub(crate) has_own_devices: bool,
    /// The kernel files to mask, make read-only or set that exist here.
    pub(crate) kernel_files: KernelFiles,
    /// Files in the host's `/usr` that are empty inside.
    pub(crate) hidden: Vec<PathBuf>,
}

/// How ids inside map to ids outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ids {
    /// Root: each sandbox has a range of its own, and layers are mapped to it.
    OwnRange,
    /// The spawner's user namespace has this many ids, and every sandbox uses the same ones.
    Shared(u32),
    /// Root, if files cannot be mapped to other ids: the host's own ids, in a user namespace without rights outside.
    Host,
}

/// Steps for the spawner itself, once: a mount namespace of its own with a stage in it, of which every child gets a
/// copy.
pub(crate) fn prepare_steps(stage: &Path) -> Vec<Step> {
    let at = |name: &str| StagePath::new(stage, name);
    let flags = vec![MountFlag::NoSuid, MountFlag::NoExec];
    let mut steps = vec![
        Step::Unshare { namespaces: vec![Namespace::Mount] },
        Step::HideMounts,
        Step::Tmpfs { at: at(""), bytes: STAGE_BYTES, mode: 0o755, flags },
    ];
    let layers = (0..MAX_HANDED).map(layer_name);
    let directories = ["root", "usr", "own", "dev", "empty", "short"].map(str::to_owned);
    steps.extend(layers.chain(directories).map(|name| Step::Directory { at: at(&name), mode: 0o755 }));
    steps.push(Step::HostDevices { at: at("dev") });
    steps
}

fn layer_name(number: usize) -> String {
    format!("layer-{number}")
}

/// The back end's decisions beyond the plan.
#[derive(Debug, Clone)]
pub(crate) struct Decided {
    /// First host id of its private range, for a root daemon.
    pub(crate) first_id: Option<u32>,
    pub(crate) has_image: bool,
    pub(crate) beneath: Beneath,
    /// Processors to run on, if nothing else enforces the limit.
    pub(crate) affinity: Option<u32>,
    pub(crate) rlimits: Vec<(u32, u64, u64)>,
    /// The end of its network, if it has one beyond loopback.
    pub(crate) network: Option<NetworkEnd>,
}

/// This host's paths of what a plan names by id: the directories of layers, topmost first, and the files of mounts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Beneath {
    /// Existing upper directories of snapshots.
    pub(crate) root: Vec<PathBuf>,
    /// The same for image `host`.
    pub(crate) usr: Vec<PathBuf>,
    /// Layers of the image.
    pub(crate) image: Vec<PathBuf>,
    pub(crate) mounts: Vec<LocatedMount>,
}

/// Builds the cage of one sandbox.
pub(crate) fn build(plan: &SandboxPlan, ground: &Ground, decided: &Decided) -> Cage {
    let stage = &ground.stage;
    let root = StagePath::new(stage, "root");
    let files = FileNames::of(&ground.sandboxes.join(plan.id.as_str()));
    let mut steps = apart(&plan.hostname, decided.network.as_ref());
    steps.extend(decided.affinity.map(|count| Step::Affinity { count }));

    let sources = Sources::of(plan, ground, &decided.beneath);
    let (lowers, own, mut layers) = match ground.ids {
        Ids::OwnRange => {
            let own = own_layer(plan, &files, decided.has_image);
            layers::handed(&sources, ground, own, &mut steps)
        }
        Ids::Shared(_) | Ids::Host => (layers::shown(&sources, stage, &mut steps), files.own, Vec::new()),
    };
    steps.push(overlay(stage, "root", &lowers.root, &own));
    steps.push(Step::Root { at: root.clone() });
    steps.push(Step::Empty { at: StagePath::new(stage, "empty") });
    device_mounts(plan, ground, decided.first_id, &mut layers, &mut steps);
    if plan.rootfs == RootfsPlan::Host {
        usr_steps(plan, ground, &lowers.usr, &own, &mut steps);
    }
    kernel_mounts(plan, ground, decided.network.is_some(), &mut steps);
    let mounts = mounts::place_all(&decided.beneath.mounts, ground.ids, &mut steps);
    steps.push(Step::Pivot { root });
    if plan.rootfs != RootfsPlan::Host {
        // The image's working directory may not exist in it.
        steps.push(Step::MakePath { at: PathBuf::from(&plan.cwd) });
    }
    steps.extend(sealed());
    let id_map = id_map(ground.ids, decided.first_id);
    let (name, owner) = (plan.id.to_string(), decided.first_id);
    let internet = internet_budget(plan.limits.memory.bytes());
    Cage { name, id_map, owner, layers, mounts, steps, rlimits: decided.rlimits.clone(), internet }
}

/// The beginning of every cage: its own namespaces.
pub(crate) fn apart(hostname: &str, network: Option<&NetworkEnd>) -> Vec<Step> {
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
        network.map_or(Step::Loopback, |end| Step::Network(end.clone())),
        Step::Hostname { name: hostname.to_owned() },
        Step::FindPid,
        Step::AwaitIds,
        Step::BecomeRoot,
    ]
}

/// The least and the most that one end of a TCP connection holds without being charged for it: the largest `tcp_rmem`.
/// More of it would slow streams down: docs/performance.md.
const TCP_SOCKET_BYTES: (u64, u64) = (64 * 1024, 128 * 1024);
/// Both ends of 512 connections: buffers are as large as that many allow.
const TCP_SOCKETS: u64 = 1024;
/// The most that an unfinished datagram holds.
const DATAGRAM_BYTES: u64 = 64 * 1024;
/// The share of a sandbox's memory that internet sockets may use beyond it.
const INTERNET_SHARE: u64 = 8;
/// Always allowed: enough for 64 connections.
const MIN_INTERNET_BYTES: u64 = 8 * 1024 * 1024;
/// The kernel's own default of `net.core.rmem_default`.
const USUAL_RECEIVE_BUFFER: u64 = 212_992;

/// The budget for a sandbox with this much memory.
pub(crate) fn internet_budget(memory_bytes: u64) -> InternetBudget {
    // A socket's waiting errors are bounded by its receive buffer.
    let errors = fs::read_to_string("/proc/sys/net/core/rmem_default").ok();
    let errors = errors.and_then(|text| text.trim().parse().ok()).unwrap_or(USUAL_RECEIVE_BUFFER);
    InternetBudget {
        bytes: internet_bytes(memory_bytes),
        tcp_socket: tcp_socket_bytes(memory_bytes),
        other_socket: errors.saturating_add(DATAGRAM_BYTES),
    }
}

/// The most that one end of a TCP connection may hold each way. Small buffers slow streams down; large ones leave room
/// for few connections.
pub(crate) fn tcp_socket_bytes(memory_bytes: u64) -> u64 {
    let (least, most) = TCP_SOCKET_BYTES;
    (internet_bytes(memory_bytes) / TCP_SOCKETS).clamp(least, most)
}

/// Bytes that internet sockets may use beyond this much memory.
pub(crate) fn internet_bytes(memory_bytes: u64) -> u64 {
    (memory_bytes / INTERNET_SHARE).max(MIN_INTERNET_BYTES)
}

/// The end of every cage, once only its root is reachable: no right is left that could change that.
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

/// Makes it a cage that waits for the sandbox's name.
pub(crate) fn await_name(cage: &mut Cage) {
    if let Some(handoff) = cage.steps.iter().position(|step| matches!(step, Step::AwaitHandoff)) {
        cage.steps.insert(handoff + 1, Step::AwaitName);
    }
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

/// An overlay at the stage's directory of the same name.
fn overlay(stage: &Path, name: &str, lower: &[PathBuf], own: &Path) -> Step {
    let own = own.join(name);
    Step::Overlay {
        at: StagePath::new(stage, name),
        lower: lower.to_vec(),
        upper: own.join("upper"),
        work: own.join("work"),
        short: StagePath::new(stage, "short"),
        flags: vec![MountFlag::NoSuid, MountFlag::NoDev],
    }
}

fn mount(what: NewMount, at: MountPath) -> Step {
    Step::Mount { what, at, name: None }
}

/// A mount that later steps work in.
fn named_mount(name: MountName, what: NewMount, at: &str) -> Step {
    Step::Mount { what, at: in_root(at), name: Some(name) }
}

fn in_root(name: &str) -> MountPath {
    MountPath::new(MountName::Root, name)
}

fn device_mounts(
    plan: &SandboxPlan,
    ground: &Ground,
    first_id: Option<u32>,
    layers: &mut Vec<HandedLayer>,
    steps: &mut Vec<Step>,
) {
    let devices = if ground.has_own_devices {
        layers.push(HandedLayer::Devices { owner: first_id.unwrap_or(0) });
        NewMount::Layer(layers.len() - 1)
    } else {
        NewMount::Copy { from: ground.stage.join("dev"), recursive: true, flags: Vec::new() }
    };
    let group = match ground.ids {
        Ids::Shared(count) if count <= TTY_GROUP => None,
        _ => Some(TTY_GROUP),
    };
    let in_dev = |name: &str| MountPath::new(MountName::Dev, name);
    let still = vec![MountFlag::NoSuid, MountFlag::NoDev, MountFlag::NoExec];
    let shm = NewMount::Tmpfs { bytes: plan.limits.shm.bytes(), mode: 0o1777, flags: still };
    steps.extend([
        named_mount(MountName::Dev, devices, "dev"),
        mount(NewMount::Pts(PtsOptions { group, max: MAX_TERMINALS }), in_dev("pts")),
        mount(shm, in_dev("shm")),
    ]);
}

/// The host's programs, for image `host`.
fn usr_steps(plan: &SandboxPlan, ground: &Ground, lower: &[PathBuf], own: &Path, steps: &mut Vec<Step>) {
    let fixed = || vec![MountFlag::ReadOnly, MountFlag::NoSuid, MountFlag::NoDev];
    let mask = |path: &Path| {
        let path = path.strip_prefix("/usr").unwrap_or(path);
        Step::Mask { at: MountPath::new(MountName::Usr, path), missing: Missing::IsFine }
    };
    if has_fixed_usr(plan, ground) {
        // The mounts below must come along; each is covered at once.
        let usr = NewMount::Copy { from: PathBuf::from("/usr"), recursive: true, flags: fixed() };
        steps.push(named_mount(MountName::Usr, usr, "usr"));
        steps.extend(ground.usr_mounts.iter().map(|path| mask(path)));
    } else {
        steps.push(overlay(&ground.stage, "usr", lower, own));
        let usr = NewMount::Staged(StagePath::new(&ground.stage, "usr"));
        steps.push(named_mount(MountName::Usr, usr, "usr"));
    }
    // A sandbox whose own files replace the host's does not see the host's.
    steps.extend(ground.hidden.iter().map(|path| mask(path)));
    steps.extend(ground.skeleton.bound.iter().map(|from| {
        let at = MountPath::new(MountName::Root, from.strip_prefix("/").unwrap_or(from));
        mount(NewMount::Copy { from: from.clone(), recursive: false, flags: fixed() }, at)
    }));
}

/// Without root the kernel does not allow an overlay over a directory that contains mounts of the host, because it
/// would show what lies under them. Then `/usr` is shown as it is, read-only.
pub(crate) fn has_fixed_usr(plan: &SandboxPlan, ground: &Ground) -> bool {
    let is_without_root = matches!(ground.ids, Ids::Shared(_));
    plan.rootfs == RootfsPlan::Host && is_without_root && !ground.usr_mounts.is_empty()
}

/// Unescapes a path of `/proc/self/mountinfo`.
fn unescaped(path: &str) -> String {
    let escapes = [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\043", "#"), ("\\134", "\\")];
    escapes.iter().fold(path.to_owned(), |path, (escape, meant)| path.replace(escape, meant))
}

/// Mounts beneath `/usr`, from the text of `/proc/self/mountinfo`.
pub(crate) fn usr_mounts(mountinfo: &str) -> Vec<PathBuf> {
    let mounted = mountinfo.lines().filter_map(|line| line.split(' ').nth(4));
    mounted.filter(|at| at.starts_with("/usr/")).map(|at| PathBuf::from(unescaped(at))).collect()
}

fn kernel_mounts(plan: &SandboxPlan, ground: &Ground, has_network: bool, steps: &mut Vec<Step>) {
    let tmpfs = |bytes, mode| {
        let flags = vec![MountFlag::NoSuid, MountFlag::NoDev];
        NewMount::Tmpfs { bytes, mode, flags }
    };
    // Builds have none: the next instruction must find what one puts there.
    let tmp = plan.limits.tmp.bytes();
    if tmp > 0 {
        steps.push(mount(tmpfs(tmp, 0o1777), in_root("tmp")));
    }
    steps.extend([
        mount(tmpfs(RUN_BYTES, 0o755), in_root("run")),
        named_mount(MountName::Proc, NewMount::Proc, "proc"),
        named_mount(MountName::Sys, NewMount::Sys, "sys"),
    ]);
    if has_network {
        let at = MountPath::new(MountName::Proc, "sys/net/ipv4/tcp_congestion_control");
        steps.push(Step::Setting { at, value: CONGESTION_CONTROL.to_owned() });
    }
    steps.extend(ground.kernel_files.steps(tcp_socket_bytes(plan.limits.memory.bytes())));
}

/// The settings with passwords that exist in `/usr` of this host (`/`, except in tests). Checked for every sandbox,
/// since they may appear later than the daemon. By their real paths: the target of a link must be covered, not the
/// link. File systems mounted below `/usr` are not visible inside anyway.
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

/// A host directory that is not a parent of anything we need to see, and that unprivileged children of the spawner can
/// enter. Its contents are hidden from us and cannot be mounted, so the least-mounted ones come first.
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

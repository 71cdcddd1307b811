//! From request to plan, in one pure function. All defaults, limits and refusals are in this file.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

use serde::{Deserialize, Deserializer, Serialize, de::Error as _};

use crate::{
    BackendKind, Base, BaseConfig, ByteSize, Capabilities, Capability, CpuCount, Error, ErrorKind, ExecSpec,
    FileIdentity, ImageRef, InitSpec, InvalidExec, Label, Limits, LimitsPlan, MAX_EXEC_BYTES, MAX_MOUNTS,
    MountOrigin, MountPlan, MountSource, MountSpec, NetworkPlan, Next, Policy, ResolvedVolume, Result,
    Rlimit, SandboxId, SandboxName, SandboxSpec, SecretPlan, SnapshotId, Thing, check_guest_path,
    exec::{check_env, check_rlimits},
    network::{Protocol, plan_network},
    patch::check_patches,
    secret::{add_variables, check_uses, decide_secrets},
};

/// The program that reads command lines where there is nothing better.
pub const DEFAULT_SHELL: &str = "sh";
/// With less memory no shell starts inside.
const MIN_MEMORY: ByteSize = ByteSize::mib(4);
const MIN_PIDS: u32 = 4;
const MIN_OPEN_FILES: u32 = 16;
const MIN_DISK: ByteSize = ByteSize::mib(1);
const MIN_TMPFS: ByteSize = ByteSize(64 * 1024);
const MAX_TMPFS: ByteSize = ByteSize::gib(1024);
/// Total length of a sandbox's mount paths: they go to the spawner in one message, with everything else.
const MAX_MOUNT_PATHS_BYTES: usize = 16 * 1024;
/// Shortest share of a processor that the kernel's scheduler period can express well.
const MIN_CPU_MILLIS: u32 = 10;
const MAX_BYTES: ByteSize = ByteSize::gib(64 * 1024);
const MAX_PIDS: u32 = 4_194_304;
const MAX_LABELS: usize = 64;

/// The daemon's values for whatever was not requested.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Defaults {
    pub limits: LimitsPlan,
    pub env: BTreeMap<String, String>,
    pub cwd: String,
    pub user: String,
    /// Network policies that no caller can lift: the operator's first, then that of the caller's key.
    pub ceilings: Vec<Policy>,
    /// Processors of the host; a sandbox that is allowed more is warned.
    pub processors: u32,
    /// Memory of the host, likewise.
    pub host_memory: ByteSize,
}

impl Default for Defaults {
    fn default() -> Self {
        let env = [
            ("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"),
            ("HOME", "/root"),
            ("LANG", "C.UTF-8"),
        ];
        Self {
            limits: LimitsPlan {
                memory: ByteSize::gib(1),
                swap: ByteSize(0),
                cpus: CpuCount::whole(1),
                pids: 512,
                open_files: 4096,
                disk: ByteSize::gib(10),
                disk_is_hard: false,
                tmp: ByteSize::mib(256),
                shm: ByteSize::mib(64),
            },
            env: env.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect(),
            cwd: "/root".to_owned(),
            user: "0:0".to_owned(),
            ceilings: Vec::new(),
            processors: u32::MAX,
            host_memory: ByteSize(u64::MAX),
        }
    }
}

/// Where the root file system comes from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "type")]
pub enum RootfsPlan {
    /// The host's own programs, read-only, under a writable layer; never the user's files.
    Host,
    /// The image with the digest [`SandboxPlan::image_digest`]. Records of earlier versions also list its layers.
    #[serde(alias = "layers")]
    Image,
    /// A directory of the host, read-only. `identity`: the directory it must turn out to be, if that was decided.
    Directory {
        path: PathBuf,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        identity: Option<FileIdentity>,
        /// No link may be on the path, whenever a sandbox starts on it.
        #[serde(default, rename = "noLinks", skip_serializing_if = "std::ops::Not::not")]
        no_links: bool,
    },
    /// An ext4 file system in a file, read-only.
    Disk {
        image: PathBuf,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        identity: Option<FileIdentity>,
    },
}

/// A sandbox as decided: nothing is optional, and a back end needs no further input.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SandboxPlan {
    pub id: SandboxId,
    /// Missing in records of earlier versions, which had only one.
    #[serde(default)]
    pub backend: BackendKind,
    pub hostname: String,
    pub image: ImageRef,
    pub rootfs: RootfsPlan,
    /// Snapshots between the root file system and the sandbox's own files, the topmost first.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "snapshot_ids")]
    pub above: Vec<SnapshotId>,
    /// Digest of the image's manifest, if the root file system is an image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image_digest: Option<String>,
    /// Digest of the snapshot it comes from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<String>,
    /// The image's configuration, for what is not decided at creation: entry point, stop signal.
    #[serde(default)]
    pub config: BaseConfig,
    /// Parents before their children.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mounts: Vec<MountPlan>,
    pub limits: LimitsPlan,
    pub env: BTreeMap<String, String>,
    pub cwd: String,
    pub user: String,
    /// The shell for command lines that name none; bash or `sh` when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shell: Option<String>,
    /// Applied to every exec that does not set the same resource itself.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rlimits: Vec<Rlimit>,
    /// Started each time the sandbox starts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub init: Option<InitSpec>,
    /// Missing in records of earlier versions, whose sandboxes reach package indexes only.
    #[serde(default)]
    pub network: NetworkPlan,
    /// The placeholders for its secrets inside.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub secrets: Vec<SecretPlan>,
    /// Warnings about the plan for the caller, as sentences.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// The same about its limits, which can change.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub limit_warnings: Vec<String>,
}

/// Ids of snapshots. Records of earlier versions have the paths of their trees: `…/snapshots/<id>/tree`.
fn snapshot_ids<'de, D: Deserializer<'de>>(from: D) -> std::result::Result<Vec<SnapshotId>, D::Error> {
    let id = |text: &String| text.split('/').rev().find_map(|part| part.parse().ok());
    let no_id = |text: &String| D::Error::custom(format!("{text:?} is not a snapshot id"));
    Vec::<String>::deserialize(from)?.iter().map(|text| id(text).ok_or_else(|| no_id(text))).collect()
}

impl SandboxPlan {
    /// All that the caller should know about the plan.
    pub fn all_warnings(&self) -> impl Iterator<Item = &String> {
        self.warnings.iter().chain(&self.limit_warnings)
    }

    /// The command where none is named: the entry point and its arguments. Empty if nobody gave one.
    pub fn default_command(&self) -> Vec<String> {
        self.config.entrypoint.iter().chain(&self.config.cmd).cloned().collect()
    }
}

/// Turns a request into a plan. Pure: same input, same plan. `backends` are the daemon's back ends with their
/// capabilities here, the default first; a request beyond the chosen one's capabilities is refused. A limit that the
/// host cannot enforce is not refused: the sandbox's isolation statement says how each limit is enforced.
pub fn plan(
    id: &SandboxId,
    name: &SandboxName,
    spec: &SandboxSpec,
    defaults: &Defaults,
    base: &Base,
    backends: &[Capabilities],
) -> Result<SandboxPlan> {
    let limits = check_spec(spec, defaults, backends)?;
    let network = decide_network(spec, defaults)?;
    let cwd = spec.cwd.as_ref().or(base.config.cwd.as_ref()).unwrap_or(&defaults.cwd).clone();
    check_cwd(&cwd)?;
    let user = spec.user.as_ref().or(base.config.user.as_ref()).unwrap_or(&defaults.user).clone();
    check_user(&user)?;
    let mut env = defaults.env.clone();
    if base.rootfs != RootfsPlan::Host {
        // Home directories come from the image's own `/etc/passwd`.
        env.remove("HOME");
    }
    env.extend(base.config.env.iter().cloned());
    env.extend(spec.env.clone());
    let secrets = decide_secrets(spec, base, &network)?;
    add_variables(&mut env, &secrets, spec);
    // Checked as a whole: a fork of a fork inherits what each of them added.
    let len = check_env(&env)?;
    if len > MAX_EXEC_BYTES {
        return Err(InvalidExec::TooLong { what: "env".to_owned(), len, limit: MAX_EXEC_BYTES }.into());
    }
    Ok(SandboxPlan {
        id: id.clone(),
        backend: decide_backend(spec, base, &network, backends)?,
        hostname: spec.hostname.as_ref().unwrap_or(name).to_string(),
        image: base.image.as_ref().unwrap_or(&spec.image).clone(),
        rootfs: base.rootfs.clone(),
        above: base.above.clone(),
        image_digest: base.image_digest.clone(),
        snapshot: base.snapshot.clone(),
        config: decide_config(spec, &base.config)?,
        mounts: decide_mounts(spec, base, &limits)?,
        limits,
        env,
        cwd,
        user,
        shell: decide_shell(spec, &base.config)?,
        rlimits: spec.rlimits.clone(),
        init: spec.init.clone(),
        network,
        secrets,
        warnings: base.warnings.clone(),
        limit_warnings: limit_warnings(&spec.limits, defaults),
    })
}

/// Refuses what no image could fix: everything that can be checked before a pull. Returns the limits.
pub fn check_spec(spec: &SandboxSpec, defaults: &Defaults, backends: &[Capabilities]) -> Result<LimitsPlan> {
    let network = decide_network(spec, defaults)?;
    // Checked with image `host`, which every back end supports.
    decide_backend(spec, &Base::host(), &network, backends)?;
    let limits = decide_limits(&spec.limits, &spec.rlimits, &defaults.limits)?;
    check_patches(&spec.patches, &spec.scripts, &spec.mounts)?;
    if let Some(init) = &spec.init {
        init.exec().check().map_err(|invalid| Error::invalid(format!("init: {invalid}")))?;
    }
    check_labels(&spec.labels)?;
    check_env(&spec.env)?;
    check_uses(spec)?;
    spec.cwd.as_deref().map_or(Ok(()), check_cwd)?;
    spec.user.as_deref().map_or(Ok(()), check_user)?;
    decide_config(spec, &BaseConfig::default())?;
    decide_shell(spec, &BaseConfig::default())?;
    check_mounts(&spec.mounts, &limits)?;
    Ok(limits)
}

fn check_cwd(cwd: &str) -> Result<()> {
    if !cwd.starts_with('/') || cwd.contains('\0') || cwd.len() > 4095 {
        return Err(Error::invalid(format!("the working directory {cwd:?} is not an absolute path"))
            .with_hint("Give a path that starts with /."));
    }
    Ok(())
}

fn check_user(user: &str) -> Result<()> {
    if user.is_empty() || user.len() > 128 || user.contains(char::is_control) {
        return Err(Error::invalid("the user is not a name or a number"));
    }
    Ok(())
}

fn check_mounts(mounts: &[MountSpec], limits: &LimitsPlan) -> Result<()> {
    if mounts.len() > MAX_MOUNTS {
        return Err(Error::invalid(format!(
            "the sandbox has {} mounts; the limit is {MAX_MOUNTS}",
            mounts.len()
        )));
    }
    let n_bytes: usize = mounts.iter().map(path_bytes).sum();
    if n_bytes > MAX_MOUNT_PATHS_BYTES {
        let message =
            format!("the paths of all mounts have {n_bytes} bytes; the limit is {MAX_MOUNT_PATHS_BYTES}");
        return Err(Error::invalid(message).with_hint("Use fewer mounts, or shorter paths."));
    }
    let mut taken = BTreeSet::new();
    for mount in mounts {
        let guest_path = check_guest_path(&mount.guest_path)?;
        if let MountSource::Tmpfs { size } = mount.source {
            decide_tmpfs(size, limits).map_err(|error| at_mount(&guest_path, error))?;
        }
        if let Some(twice) = taken.replace(guest_path) {
            return Err(Error::invalid(format!("two mounts have the same path {twice}"))
                .with_hint("Omit one of them."));
        }
    }
    Ok(())
}

fn path_bytes(mount: &MountSpec) -> usize {
    let of_host = match &mount.source {
        MountSource::Bind { host_path, .. } | MountSource::Disk { host_path, .. } => {
            host_path.as_os_str().len()
        }
        MountSource::Named { .. } | MountSource::Tmpfs { .. } => 0,
    };
    mount.guest_path.len() + of_host
}

/// Adds to the error which mount it is about.
pub fn at_mount(guest_path: &str, error: Error) -> Error {
    error.reworded(|words| format!("mount {guest_path}: {words}"))
}

fn decide_mounts(spec: &SandboxSpec, base: &Base, limits: &LimitsPlan) -> Result<Vec<MountPlan>> {
    let decide = |mount: &MountSpec| {
        let guest_path = check_guest_path(&mount.guest_path)?;
        let (source, quota) =
            decide_origin(&mount.source, base, limits).map_err(|error| at_mount(&guest_path, error))?;
        Ok(MountPlan { guest_path, source, readonly: mount.readonly, noexec: mount.noexec, quota })
    };
    let mut mounts = spec.mounts.iter().map(decide).collect::<Result<Vec<MountPlan>>>()?;
    // Compared by component, so that `/a` comes before `/a/b` whatever else begins with the same letters.
    mounts.sort_by(|one, other| Path::new(&one.guest_path).cmp(Path::new(&other.guest_path)));
    Ok(mounts)
}

fn decide_origin(
    source: &MountSource,
    base: &Base,
    limits: &LimitsPlan,
) -> Result<(MountOrigin, Option<ByteSize>)> {
    let origin = match source {
        MountSource::Named { name } => {
            let missing = || Error::no_such(Thing::Volume, name.as_str());
            let ResolvedVolume { id, quota } = base.volumes.get(name).ok_or_else(missing)?.clone();
            return Ok((MountOrigin::Volume { id }, quota));
        }
        MountSource::Tmpfs { size } => MountOrigin::Tmpfs { size: decide_tmpfs(*size, limits)? },
        MountSource::Bind { host_path, allowed, .. } => {
            MountOrigin::Path { path: host_path.clone(), identity: *allowed }
        }
        MountSource::Disk { host_path, allowed } => {
            MountOrigin::Image { path: host_path.clone(), identity: *allowed }
        }
    };
    Ok((origin, None))
}

fn decide_tmpfs(asked: Option<ByteSize>, limits: &LimitsPlan) -> Result<ByteSize> {
    let size = asked.unwrap_or(limits.tmp);
    if !(MIN_TMPFS..=MAX_TMPFS).contains(&size) {
        return Err(Error::invalid(format!(
            "the tmpfs size is {size}; it must be between {MIN_TMPFS} and {MAX_TMPFS}"
        ))
        .with_hint("Omit the size for the same size as /tmp. Its files count as the sandbox's memory."));
    }
    let most = limits.memory_and_swap();
    if size > most {
        let message = format!("the tmpfs size is {size}; the maximum is memory plus swap, {most}");
        return Err(Error::invalid(message).with_hint("Its files count as memory. Raise the memory limit."));
    }
    Ok(size)
}

/// The network, with the name of the field in front of what is wrong with it.
fn decide_network(spec: &SandboxSpec, defaults: &Defaults) -> Result<NetworkPlan> {
    let decided = plan_network(&spec.network, &defaults.ceilings);
    let decided = decided.map_err(|error| error.reworded(|words| format!("network.{words}")))?;
    Ok(NetworkPlan { namespace: spec.namespace.clone(), ..decided })
}

/// The capabilities that the sandbox needs and not every back end has.
fn needs(spec: &SandboxSpec, base: &Base, network: &NetworkPlan) -> Vec<Capability> {
    let of_rootfs = match base.rootfs {
        RootfsPlan::Host => None,
        RootfsPlan::Image => Some(Capability::Images),
        RootfsPlan::Directory { .. } | RootfsPlan::Disk { .. } => Some(Capability::HostPaths),
    };
    let of_mounts = spec.mounts.iter().filter_map(|mount| match mount.source {
        MountSource::Named { .. } => Some(Capability::Volumes),
        MountSource::Bind { .. } | MountSource::Disk { .. } => Some(Capability::HostPaths),
        MountSource::Tmpfs { .. } => None,
    });
    let of_snapshots = (!base.above.is_empty()).then_some(Capability::Snapshots);
    let has_secrets = !spec.secrets.is_empty() || !base.secrets.is_empty();
    let of_network = (network.needs_edge() || has_secrets).then_some(Capability::Network);
    let of_ports =
        spec.ports.iter().any(|port| port.protocol == Protocol::Udp).then_some(Capability::UdpPorts);
    of_rootfs.into_iter().chain(of_snapshots).chain(of_mounts).chain(of_network).chain(of_ports).collect()
}

/// The requested back end, or the first that can do everything needed. A refusal names one that can.
fn decide_backend(
    spec: &SandboxSpec,
    base: &Base,
    network: &NetworkPlan,
    backends: &[Capabilities],
) -> Result<BackendKind> {
    let needs = needs(spec, base, network);
    let lacks = |found: &Capabilities| needs.iter().find(|need| !found.has(**need)).copied();
    // Isolation is never given up without a request.
    let may_choose = |found: &&Capabilities| found.backend != BackendKind::Process;
    let able = backends.iter().filter(may_choose).find(|found| lacks(found).is_none());
    let able = able.map(|found| found.backend);
    let refused = |kind: BackendKind, message: String| {
        Err(Error::new(ErrorKind::Unsupported, message)
            .about(Thing::Backend, kind.as_str())
            .with_next(able.map(Next::UseBackend)))
    };
    let asked = match spec.backend {
        Some(kind) => backends.iter().find(|found| found.backend == kind).ok_or(kind),
        None => backends
            .iter()
            .find(|found| Some(found.backend) == able)
            .or(backends.iter().find(may_choose))
            .ok_or(BackendKind::default()),
    };
    match asked {
        Err(kind) => {
            let had: Vec<_> = backends.iter().map(|found| found.backend.as_str()).collect();
            let had = if had.is_empty() { String::new() } else { format!("; it has {}", had.join(", ")) };
            refused(kind, format!("this daemon has no back end {kind}{had}"))
        }
        Ok(found) => match lacks(found) {
            None => Ok(found.backend),
            Some(need) => {
                refused(found.backend, format!("the back end {} does not support {need} here", found.backend))
            }
        },
    }
}

/// Refuses labels that a sandbox cannot have: too many, or with a key or value that is not one.
pub fn check_labels(labels: &BTreeMap<String, String>) -> Result<()> {
    if labels.len() > MAX_LABELS {
        return Err(Error::invalid(format!(
            "the sandbox has {} labels; the limit is {MAX_LABELS}",
            labels.len()
        )));
    }
    for (key, value) in labels {
        Label::new(key, value)?;
    }
    Ok(())
}

/// A requested entry point replaces the image's, together with the image's command, which was meant for it.
fn decide_config(spec: &SandboxSpec, config: &BaseConfig) -> Result<BaseConfig> {
    if spec.entrypoint.is_empty() {
        return Ok(config.clone());
    }
    let command = ExecSpec::argv(spec.entrypoint.iter().cloned());
    command.check().map_err(|invalid| Error::invalid(format!("entrypoint: {invalid}")))?;
    Ok(BaseConfig { entrypoint: spec.entrypoint.clone(), cmd: Vec::new(), ..config.clone() })
}

fn decide_shell(spec: &SandboxSpec, config: &BaseConfig) -> Result<Option<String>> {
    let Some(shell) = spec.shell.as_ref().or(config.shell.first()) else { return Ok(None) };
    if shell.is_empty() || shell.len() > 4095 || shell.contains(char::is_control) {
        return Err(Error::invalid(format!("the shell {shell:?} is not the name or the path of a program"))
            .with_hint("Use a shell that the image has, such as bash."));
    }
    Ok(Some(shell.clone()))
}

fn decide_limits(asked: &Limits, rlimits: &[Rlimit], defaults: &LimitsPlan) -> Result<LimitsPlan> {
    check_rlimits(rlimits)?;
    // A command's limit cannot exceed the sandbox's own, so a higher default raises that one.
    let hard = rlimits.iter().filter(|limit| limit.resource == "nofile").map(|limit| limit.hard).max();
    let open_files = u32::try_from(hard.unwrap_or(0)).unwrap_or(u32::MAX).max(defaults.open_files);
    let (memory, swap) = (asked.memory.unwrap_or(defaults.memory), asked.swap.unwrap_or(defaults.swap));
    let mut limits = LimitsPlan {
        memory,
        swap,
        cpus: asked.cpus.unwrap_or(defaults.cpus),
        pids: asked.pids.unwrap_or(defaults.pids),
        open_files: asked.open_files.unwrap_or(open_files),
        disk: asked.disk.unwrap_or(defaults.disk),
        disk_is_hard: asked.disk.is_some() || defaults.disk_is_hard,
        tmp: asked.tmp.unwrap_or(defaults.tmp),
        shm: asked.shm.unwrap_or(defaults.shm),
    };
    size_within("memory", limits.memory, MIN_MEMORY)?;
    size_within("swap", limits.swap, ByteSize(0))?;
    size_within("disk", limits.disk, MIN_DISK)?;
    let most = limits.memory_and_swap();
    for (limit, decided, asked) in [("tmp", &mut limits.tmp, asked.tmp), ("shm", &mut limits.shm, asked.shm)]
    {
        // Zero comes only from the daemon's configuration: then it is an ordinary directory.
        if asked.is_some() || decided.bytes() > 0 {
            size_within(limit, *decided, MIN_TMPFS)?;
        }
        if asked.is_some_and(|asked| asked > most) {
            return Err(Error::invalid(format!(
                "{limit} is {decided}, but the most is memory plus swap, {most}"
            ))
            .with_hint(format!("Its files count as memory. Raise memory, or lower {limit}.")));
        }
        *decided = (*decided).min(most);
    }
    within("pids", limits.pids, MIN_PIDS, MAX_PIDS)?;
    within("openFiles", limits.open_files, MIN_OPEN_FILES, 1_048_576)?;
    if limits.cpus.millis < MIN_CPU_MILLIS {
        return Err(Error::invalid(format!("cpus is {}, but at least 0.01 is needed", limits.cpus)));
    }
    Ok(limits)
}

/// The limits of a sandbox after a change. Only those that a running sandbox can be given can change.
pub fn change_limits(current: &LimitsPlan, change: &Limits) -> Result<LimitsPlan> {
    let fixed = [
        ("openFiles", change.open_files.is_some()),
        ("disk", change.disk.is_some()),
        ("tmp", change.tmp.is_some()),
        ("shm", change.shm.is_some()),
    ];
    if let Some((limit, _)) = fixed.into_iter().find(|(_, is_asked)| *is_asked) {
        return Err(Error::invalid(format!("{limit} cannot be changed after the sandbox was made"))
            .with_hint("Change memory, swap, cpus or pids, or make another sandbox."));
    }
    decide_limits(change, &[], current)
}

/// Warns the caller about limits that were asked for: more than the host has is no limit.
pub fn limit_warnings(asked: &Limits, host: &Defaults) -> Vec<String> {
    let Defaults { processors, host_memory, .. } = host;
    let cpus = asked.cpus.filter(|cpus| *cpus > CpuCount::whole(*processors)).map(|cpus| {
        format!("The cpus limit ({cpus}) is more than the {processors} processors of this host, so it limits nothing.")
    });
    let memory = asked.memory.filter(|asked| asked > host_memory).map(|asked| {
        format!(
            "The memory limit ({asked}) is more than the {host_memory} of this host, so it limits nothing."
        )
    });
    cpus.into_iter().chain(memory).collect()
}

fn size_within(limit: &str, value: ByteSize, least: ByteSize) -> Result<()> {
    if value < least {
        return Err(Error::invalid(format!("{limit} is {value}, but at least {least} is needed"))
            .with_hint(format!("A shell needs at least {least}. Omit {limit} for the default.")));
    }
    if value > MAX_BYTES {
        return Err(Error::invalid(format!("{limit} is {value}, but the most is {MAX_BYTES}")));
    }
    Ok(())
}

fn within(limit: &str, value: u32, least: u32, most: u32) -> Result<()> {
    if !(least..=most).contains(&value) {
        return Err(Error::invalid(format!("{limit} is {value}, but must be between {least} and {most}")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{NetworkSpec, Preset};

    fn decide(spec: &SandboxSpec) -> Result<SandboxPlan> {
        let id = SandboxId::from_random([7; 8]);
        let name = "box".parse().unwrap();
        plan(
            &id,
            &name,
            spec,
            &Defaults::default(),
            &Base::host(),
            &[Capabilities::all(BackendKind::Namespace)],
        )
    }

    #[test]
    fn a_tmpfs_is_no_larger_than_the_memory_that_it_counts_as() {
        let with = |limits: Limits| decide(&SandboxSpec { limits, ..SandboxSpec::default() });
        let small = Limits { memory: Some(ByteSize::mib(32)), ..Limits::default() };
        let plan = with(small.clone()).unwrap();
        assert_eq!((plan.limits.tmp, plan.limits.shm), (ByteSize::mib(32), ByteSize::mib(32)));
        let plan = with(Limits { swap: Some(ByteSize::mib(32)), ..small.clone() }).unwrap();
        assert_eq!(plan.limits.tmp, ByteSize::mib(64));
        assert_eq!(plan.limits.claimed_memory(true), ByteSize::mib(64));
        assert_eq!(plan.limits.claimed_memory(false), ByteSize::mib(64 + 64 + 64));
        for limits in [
            Limits { tmp: Some(ByteSize::mib(33)), ..small.clone() },
            Limits { shm: Some(ByteSize::gib(100)), ..small },
        ] {
            let error = with(limits.clone()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidRequest);
            let limit = if limits.tmp.is_some() { "tmp" } else { "shm" };
            assert!(error.to_string().contains(limit) && error.to_string().contains("32"), "{error}");
        }
    }

    #[test]
    fn what_a_back_end_cannot_do_is_refused_and_one_that_can_is_named() {
        let (id, name) = (SandboxId::from_random([7; 8]), "box".parse().unwrap());
        let bare = Capabilities { has: vec![Capability::Images], ..Capabilities::all(BackendKind::Oci) };
        let (whole, defaults) = (Capabilities::all(BackendKind::Namespace), Defaults::default());
        let on = |backend, base: &Base, backends: &[Capabilities]| {
            let spec = SandboxSpec { backend, ..SandboxSpec::default() };
            plan(&id, &name, &spec, &defaults, base, backends).map(|plan| plan.backend)
        };
        let both = [bare.clone(), whole.clone()];
        let snapshot = Base { above: vec![SnapshotId::from_random([1; 8])], ..Base::host() };
        // Without a request, the first that can do it.
        assert_eq!(on(None, &Base::host(), &both).unwrap(), BackendKind::Oci);
        assert_eq!(on(None, &snapshot, &both).unwrap(), BackendKind::Namespace);
        assert_eq!(on(Some(BackendKind::Namespace), &Base::host(), &both).unwrap(), BackendKind::Namespace);
        let refused = |backend, backends: &[Capabilities], words: &str, next: Option<Next>| {
            let error = on(backend, &snapshot, backends).unwrap_err();
            assert_eq!((error.kind(), error.next()), (ErrorKind::Unsupported, next.as_ref()));
            assert_eq!(error.to_string(), words);
        };
        let namespace = Some(Next::UseBackend(BackendKind::Namespace));
        refused(
            Some(BackendKind::Oci),
            &both,
            "the back end oci does not support snapshots here",
            namespace.clone(),
        );
        refused(None, &[bare], "the back end oci does not support snapshots here", None);
        refused(
            Some(BackendKind::Oci),
            &[whole],
            "this daemon has no back end oci; it has namespace",
            namespace,
        );
        refused(None, &[], "this daemon has no back end namespace", None);
    }

    #[test]
    fn a_back_end_without_walls_is_used_only_where_somebody_names_it() {
        let (id, name) = (SandboxId::from_random([7; 8]), "box".parse().unwrap());
        let on = |backend, backends: &[Capabilities]| {
            let spec = SandboxSpec { backend, ..SandboxSpec::default() };
            plan(&id, &name, &spec, &Defaults::default(), &Base::host(), backends).map(|plan| plan.backend)
        };
        let [process, namespace] = [BackendKind::Process, BackendKind::Namespace].map(Capabilities::all);
        let both = [process.clone(), namespace];
        assert_eq!(on(None, &both).unwrap(), BackendKind::Namespace);
        assert_eq!(on(Some(BackendKind::Process), &both).unwrap(), BackendKind::Process);
        let refused = "this daemon has no back end namespace; it has process";
        assert_eq!(on(None, &[process]).unwrap_err().to_string(), refused);
    }

    #[test]
    fn a_plan_that_an_earlier_version_wrote_can_be_read() {
        let plan = decide(&SandboxSpec::default()).unwrap();
        let mut old = serde_json::to_value(&plan).unwrap();
        let digest = format!("sha256:{}", "a".repeat(64));
        old["directory"] = "/home-of-warren/sandboxes/sbx-0000000000000".into();
        old["imageDigest"] = digest.clone().into();
        old["rootfs"] =
            serde_json::json!({ "type": "layers", "layers": ["/home-of-warren/layers/sha256-b/fs"] });
        old["above"] = serde_json::json!(["/home-of-warren/snapshots/snp-0000000000000/tree"]);
        let read: SandboxPlan = serde_json::from_value(old.clone()).unwrap();
        let above = vec!["snp-0000000000000".parse().unwrap()];
        let expected = SandboxPlan { rootfs: RootfsPlan::Image, image_digest: Some(digest), above, ..plan };
        assert_eq!(read, expected);
        assert_eq!(
            serde_json::from_value::<SandboxPlan>(serde_json::to_value(&read).unwrap()).unwrap(),
            read
        );
        old["above"] = serde_json::json!(["/home-of-warren/snapshots/tree"]);
        assert!(
            serde_json::from_value::<SandboxPlan>(old).unwrap_err().to_string().contains("not a snapshot id")
        );
    }

    #[test]
    fn a_network_beyond_packages_needs_a_back_end_that_has_one() {
        let (id, name) = (SandboxId::from_random([7; 8]), "box".parse().unwrap());
        let whole = Capabilities::all(BackendKind::Namespace);
        let has = Capability::ALL.into_iter().filter(|one| *one != Capability::Network).collect();
        let bare = Capabilities { has, ..Capabilities::all(BackendKind::Oci) };
        let on = |network: &NetworkSpec, backend, backends: &[Capabilities]| {
            let spec = SandboxSpec { network: network.clone(), backend, ..SandboxSpec::default() };
            plan(&id, &name, &spec, &Defaults::default(), &Base::host(), backends).map(|plan| plan.backend)
        };
        let both = [bare.clone(), whole];
        let public = NetworkSpec::preset(Preset::Public);
        assert_eq!(on(&NetworkSpec::default(), None, &both).unwrap(), BackendKind::Oci);
        assert_eq!(on(&NetworkSpec::preset(Preset::None), None, &both).unwrap(), BackendKind::Oci);
        assert_eq!(on(&public, None, &both).unwrap(), BackendKind::Namespace);
        let error = on(&public, Some(BackendKind::Oci), &both).unwrap_err();
        assert_eq!(error.to_string(), "the back end oci does not support network policies here");
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert_eq!(error.next(), Some(&Next::UseBackend(BackendKind::Namespace)));
        assert_eq!(on(&public, None, &[bare]).unwrap_err().next(), None);
    }

    #[test]
    fn the_network_is_decided_under_the_ceilings() {
        let network = |allow: &str| NetworkSpec { allow: vec![allow.to_owned()], ..NetworkSpec::default() };
        let ceiling = Policy::from_spec(&NetworkSpec::preset(Preset::Public)).unwrap();
        let defaults = Defaults { ceilings: vec![ceiling.clone()], ..Defaults::default() };
        let under = |allow: &str| {
            let namespace = "red".parse().unwrap();
            let spec = SandboxSpec { network: network(allow), namespace, ..SandboxSpec::default() };
            let (id, name) = (SandboxId::from_random([7; 8]), "box".parse().unwrap());
            plan(&id, &name, &spec, &defaults, &Base::host(), &[Capabilities::all(BackendKind::Namespace)])
        };
        let decided = under("api.example.org").unwrap().network;
        assert_eq!(decided.ceilings, [ceiling]);
        assert_eq!((decided.own.rules.len(), decided.namespace.as_str()), (1, "red"));
        let error = under("10.0.0.0/8").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Denied);
        assert!(error.to_string().starts_with("network.allow[0]: "), "{error}");
        // Found before an image is pulled.
        let spec = SandboxSpec { network: network("example.org:0"), ..SandboxSpec::default() };
        let able = [Capabilities::all(BackendKind::Namespace)];
        assert!(check_spec(&spec, &Defaults::default(), &able).unwrap_err().to_string().contains("allow[0]"));
    }

    #[test]
    fn records_of_earlier_versions_have_the_network_that_they_had() {
        let plan = decide(&SandboxSpec::default()).unwrap();
        let mut old = serde_json::to_value(&plan).unwrap();
        old.as_object_mut().unwrap().remove("network").unwrap();
        let read: SandboxPlan = serde_json::from_value(old).unwrap();
        assert_eq!(read.network, NetworkPlan::default());
        assert!(read.network.reaches_packages() && !read.network.needs_edge());
        assert_eq!(read, plan);
    }

    #[test]
    fn nothing_asked_means_the_defaults() {
        let plan = decide(&SandboxSpec::default()).unwrap();
        assert_eq!(plan.limits, Defaults::default().limits);
        assert_eq!((plan.hostname.as_str(), plan.cwd.as_str()), ("box", "/root"));
    }

    #[test]
    fn limits_below_what_a_shell_needs_are_refused_by_name() {
        let check = |limits: Limits, named: &str| {
            let error = decide(&SandboxSpec { limits, ..SandboxSpec::default() }).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidRequest);
            assert!(error.to_string().contains(named), "{error}");
        };
        check(Limits { memory: Some(ByteSize(1)), ..Limits::default() }, "memory");
        check(Limits { memory: Some(ByteSize(u64::MAX)), ..Limits::default() }, "memory");
        check(Limits { pids: Some(0), ..Limits::default() }, "pids");
        check(Limits { open_files: Some(3), ..Limits::default() }, "openFiles");
        check(Limits { disk: Some(ByteSize(0)), ..Limits::default() }, "disk");
        check(Limits { cpus: Some(CpuCount { millis: 1 }), ..Limits::default() }, "cpus");
    }

    #[test]
    fn what_was_asked_wins_and_the_rest_stays() {
        let mut spec = SandboxSpec { cwd: Some("/srv".into()), ..SandboxSpec::default() };
        spec.env.insert("HOME".into(), "/srv".into());
        spec.limits.memory = Some(ByteSize::mib(64));
        let plan = decide(&spec).unwrap();
        assert_eq!((plan.env["HOME"].as_str(), plan.cwd.as_str()), ("/srv", "/srv"));
        assert_eq!((plan.limits.memory, plan.limits.pids), (ByteSize::mib(64), 512));
    }

    #[test]
    fn an_entry_point_that_was_asked_for_takes_the_images_place_with_its_command() {
        let (entrypoint, cmd) = (vec!["/entry".to_owned()], vec!["serve".to_owned()]);
        let shell = vec!["/bin/bash".to_owned(), "-c".to_owned()];
        let config = BaseConfig { entrypoint, cmd, shell, ..BaseConfig::default() };
        let base = Base { config, ..Base::host() };
        let on_base = |spec: &SandboxSpec| {
            let (id, name) = (SandboxId::from_random([7; 8]), "box".parse().unwrap());
            plan(&id, &name, spec, &Defaults::default(), &base, &[Capabilities::all(BackendKind::Namespace)])
        };
        let plain = on_base(&SandboxSpec::default()).unwrap();
        assert_eq!(plain.default_command(), ["/entry", "serve"]);
        assert_eq!(plain.shell.as_deref(), Some("/bin/bash"));
        let spec =
            SandboxSpec { entrypoint: vec!["other".into()], shell: Some("zsh".into()), ..Default::default() };
        let asked = on_base(&spec).unwrap();
        assert_eq!(
            (asked.default_command(), asked.shell.as_deref()),
            (vec!["other".to_owned()], Some("zsh"))
        );
        let empty = SandboxSpec { entrypoint: vec![String::new()], ..SandboxSpec::default() };
        assert!(on_base(&empty).unwrap_err().to_string().starts_with("entrypoint"));
    }

    #[test]
    fn a_limit_on_open_files_for_commands_raises_that_of_the_sandbox() {
        let with = |soft, hard| {
            let rlimits = vec![Rlimit { resource: "nofile".into(), soft, hard }];
            decide(&SandboxSpec { rlimits, ..SandboxSpec::default() })
        };
        assert_eq!(with(256, 512).unwrap().limits.open_files, 4096);
        assert_eq!(with(256, 65536).unwrap().limits.open_files, 65536);
        assert!(with(2, 1).is_err() && with(1, u64::MAX).is_err());
    }
}

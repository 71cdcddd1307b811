//! From a plan to the configuration of a container.

use std::path::{Path, PathBuf};

use oci_spec::{
    OciSpecError,
    runtime::{
        Capabilities, Linux, LinuxBuilder, LinuxCapabilitiesBuilder, LinuxCpuBuilder,
        LinuxDeviceCgroupBuilder, LinuxMemoryBuilder, LinuxNamespace, LinuxNamespaceBuilder,
        LinuxNamespaceType, LinuxPidsBuilder, LinuxResources, LinuxResourcesBuilder, Mount, MountBuilder,
        ProcessBuilder, RootBuilder, Spec, SpecBuilder, UserBuilder,
    },
};
use sandbox::{LimitsPlan, MountOrigin, SandboxPlan};

use super::Walls;
use crate::namespace::{KernelFiles, tcp_socket_bytes};

/// The version of the specification that runtimes since 2020 read.
const SPEC_VERSION: &str = "1.0.2";
/// Where our program is mounted inside, and where a guest that makes its own socket puts it. In a tmpfs, so that no
/// file of the image is in the way and none is left behind.
pub(super) const PROGRAM_AT: &str = "/run/.warren/program";
pub(super) const SOCKET_AT: &str = "/run/.warren/socket";
/// Scheduler period in microseconds, as in the other back ends.
const CPU_PERIOD_MICROS: u64 = 100_000;
const RUN_BYTES: u64 = 16 * 1024 * 1024;
const NAMESPACES: [LinuxNamespaceType; 6] = [
    LinuxNamespaceType::Mount,
    LinuxNamespaceType::Pid,
    LinuxNamespaceType::Network,
    LinuxNamespaceType::Ipc,
    LinuxNamespaceType::Uts,
    LinuxNamespaceType::Cgroup,
];

/// The inputs of the configuration besides the plan.
#[derive(Debug)]
pub(super) struct Ingredients<'a> {
    pub(super) plan: &'a SandboxPlan,
    pub(super) walls: Walls,
    pub(super) root: PathBuf,
    /// The host's `/usr` with the sandbox's changes, and other read-only directories of the host.
    pub(super) usr: Option<PathBuf>,
    pub(super) bound: Vec<PathBuf>,
    /// For each mount of the plan, the daemon's path of it.
    pub(super) shown: Vec<Option<PathBuf>>,
    pub(super) program: PathBuf,
    pub(super) command: Vec<String>,
    /// The directory where the guest makes its socket, if it does.
    pub(super) socket: Option<PathBuf>,
    pub(super) cgroup: PathBuf,
    pub(super) kernel_files: KernelFiles,
}

pub(super) fn spec(with: &Ingredients<'_>) -> Result<Spec, OciSpecError> {
    let capabilities = capabilities();
    let capabilities = LinuxCapabilitiesBuilder::default()
        .bounding(capabilities.clone())
        .effective(capabilities.clone())
        .permitted(capabilities)
        .inheritable(Capabilities::default())
        .ambient(Capabilities::default())
        .build()?;
    let process = ProcessBuilder::default()
        .terminal(false)
        .user(UserBuilder::default().uid(0_u32).gid(0_u32).build()?)
        .args(with.command.clone())
        .env(Vec::new())
        .cwd("/")
        .capabilities(capabilities)
        .rlimits(Vec::new())
        .no_new_privileges(true)
        .build()?;
    SpecBuilder::default()
        .version(SPEC_VERSION)
        .process(process)
        .root(RootBuilder::default().path(with.root.clone()).readonly(false).build()?)
        .hostname(with.plan.hostname.clone())
        .mounts(mounts(with)?)
        .linux(linux(with)?)
        .build()
}

/// The same as in a sandbox of the back end `namespace`.
fn capabilities() -> Capabilities {
    jail::WORKLOAD_CAPABILITIES.iter().filter_map(|name| name.parse().ok()).collect()
}

fn linux(with: &Ingredients<'_>) -> Result<Linux, OciSpecError> {
    let namespace = |kind| LinuxNamespaceBuilder::default().typ(kind).build();
    let namespaces: Vec<LinuxNamespace> = NAMESPACES.into_iter().map(namespace).collect::<Result<_, _>>()?;
    let linux = LinuxBuilder::default()
        .namespaces(namespaces)
        .cgroups_path(with.cgroup.clone())
        .resources(resources(&with.plan.limits, with.walls)?)
        .masked_paths(with.kernel_files.masked())
        .readonly_paths(with.kernel_files.read_only());
    match with.walls {
        // The guest installs the syscall filter itself, before it does anything else.
        Walls::HostKernel => {
            let tcp_socket = tcp_socket_bytes(with.plan.limits.memory.bytes());
            linux.sysctl(with.kernel_files.network_settings(tcp_socket)).build()
        }
        // The workload never makes a system call of the host.
        Walls::UserSpaceKernel => linux.build(),
    }
}

/// On the host's kernel only devices are limited here: the guest is not limited at all, and the workload is in its own
/// cgroup, which we make. gVisor's kernel is one host process, limited as a whole.
fn resources(limits: &LimitsPlan, walls: Walls) -> Result<LinuxResources, OciSpecError> {
    let nothing = LinuxDeviceCgroupBuilder::default().allow(false).access("rwm").build()?;
    let resources = LinuxResourcesBuilder::default().devices(vec![nothing]);
    if walls == Walls::HostKernel {
        return resources.build();
    }
    let bytes = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
    let quota = bytes(u64::from(limits.cpus.millis) * CPU_PERIOD_MICROS / 1000);
    resources
        .memory(
            LinuxMemoryBuilder::default()
                .limit(bytes(limits.memory.bytes()))
                .swap(bytes(limits.memory_and_swap().bytes()))
                .build()?,
        )
        .cpu(LinuxCpuBuilder::default().period(CPU_PERIOD_MICROS).quota(quota).build()?)
        .pids(LinuxPidsBuilder::default().limit(-1_i64).build()?)
        .build()
}

fn mounts(with: &Ingredients<'_>) -> Result<Vec<Mount>, OciSpecError> {
    let limits = &with.plan.limits;
    let tmpfs = |at: &str, bytes: u64, mode: &str| {
        let options = format!("nosuid,nodev,mode={mode},size={bytes}");
        mount(at, "tmpfs", Path::new("tmpfs"), &options)
    };
    let mut mounts = vec![
        mount("/proc", "proc", Path::new("proc"), "nosuid,noexec,nodev")?,
        mount("/dev", "tmpfs", Path::new("tmpfs"), "nosuid,strictatime,mode=755,size=65536k")?,
        mount(
            "/dev/pts",
            "devpts",
            Path::new("devpts"),
            "nosuid,noexec,newinstance,ptmxmode=0666,mode=0620",
        )?,
        tmpfs("/dev/shm", limits.shm.bytes(), "1777")?,
        mount("/dev/mqueue", "mqueue", Path::new("mqueue"), "nosuid,noexec,nodev")?,
        mount("/sys", "sysfs", Path::new("sysfs"), "nosuid,noexec,nodev,ro")?,
        tmpfs("/run", RUN_BYTES, "755")?,
        tmpfs("/tmp", limits.tmp.bytes(), "1777")?,
        mount(PROGRAM_AT, "bind", &with.program, "bind,ro,nosuid,nodev")?,
    ];
    if let Some(socket) = &with.socket {
        mounts.push(mount(SOCKET_AT, "bind", socket, "bind,rw,nosuid,nodev,noexec")?);
    }
    if let Some(usr) = &with.usr {
        mounts.push(mount("/usr", "bind", usr, "bind,rw,nosuid,nodev")?);
    }
    for directory in &with.bound {
        mounts.push(mount(&directory.to_string_lossy(), "bind", directory, "bind,ro,nosuid,nodev")?);
    }
    for (planned, shown) in with.plan.mounts.iter().zip(&with.shown) {
        let rights = if planned.readonly { "ro" } else { "rw" };
        let exec = if planned.noexec { ",noexec" } else { "" };
        mounts.push(match (&planned.source, shown) {
            (MountOrigin::Tmpfs { size }, _) => {
                let options = format!("nosuid,nodev,{rights}{exec},mode=1777,size={}", size.bytes());
                mount(&planned.guest_path, "tmpfs", Path::new("tmpfs"), &options)?
            }
            (_, Some(shown)) => {
                let options = format!("rbind,nosuid,nodev,{rights}{exec}");
                mount(&planned.guest_path, "bind", shown, &options)?
            }
            // Already refused earlier.
            (_, None) => continue,
        });
    }
    Ok(mounts)
}

fn mount(at: &str, kind: &str, source: &Path, options: &str) -> Result<Mount, OciSpecError> {
    let options: Vec<String> = options.split(',').map(str::to_owned).collect();
    MountBuilder::default().destination(at).typ(kind).source(source).options(options).build()
}

//! Sandboxes made by a container runtime on the host: `runc`, `crun`, or gVisor's `runsc`.
//!
//! The daemon mounts the root file system, writes a bundle and lets the runtime start our guest in it as process 1;
//! from then on the runtime is only asked to remove the container again. With a runtime on the host's kernel the guest
//! inherits its socket and the files of a cgroup that only the workload enters, so running out of memory never kills
//! the guest. gVisor's kernel is one host process: its guest makes the socket in a bound directory, and its limits
//! apply to guest and workload together.

mod bundle;
mod instance;
mod program;
mod rootfs;
mod runtime;

use std::{
    collections::BTreeSet,
    fs, io,
    os::{
        fd::{AsFd as _, BorrowedFd, OwnedFd},
        unix::fs::DirBuilderExt as _,
    },
    path::{Path, PathBuf},
    sync::Arc,
};

use async_trait::async_trait;
use jail::{
    InternetBudget,
    cgroup::{CgroupLimits, Cgroups, Controller, Version, WorkloadFiles},
};
use sandbox::{
    Backend, BackendError, BackendKind, Capabilities, Capability, Enforcement, Instance, Isolation,
    LimitKind, LimitStatement, LimitsPlan, MountOrigin, NetworkHold, Next, RootfsPlan, SandboxId,
    SandboxPlan, Walls as StatedWalls,
};
use tokio::sync::OnceCell;
use tracing::Instrument as _;

use crate::{
    guest_process::{self, GuestProcess, listen, make_private},
    namespace::{
        Directories, KernelFiles, error,
        host_image::HostImage,
        internet_budget,
        names::{self, PlaceNames},
        record::Record,
        skeleton::{self, Skeleton},
        sweep,
    },
};
use bundle::Ingredients;
use instance::OciInstance;
use program::Program;
use rootfs::Overlay;
use runtime::Runtime;

/// The boundary between the workload and the host's kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Walls {
    /// Namespaces, capabilities and a filter of the shared kernel.
    HostKernel,
    /// gVisor's kernel, a program on the host.
    UserSpaceKernel,
}

/// Makes sandboxes with a runtime. Needs root.
#[derive(Debug)]
pub struct OciBackend {
    kind: BackendKind,
    directories: Directories,
    runtime: PathBuf,
    /// Arguments that make this program the guest.
    role: Vec<String>,
    image: Arc<HostImage>,
    /// Made on first use.
    host: OnceCell<Arc<Host>>,
}

#[derive(Debug)]
struct Host {
    kind: BackendKind,
    walls: Walls,
    directories: Directories,
    /// The home as written into the record of each of its sandboxes.
    home: String,
    runtime: Runtime,
    /// The first line of the runtime's version output.
    version: String,
    cgroups: Cgroups,
    /// Name of the cgroup above those of all sandboxes.
    cgroup_parent: String,
    /// Arguments that make this program the guest.
    role: Vec<String>,
    program: Program,
    image: Arc<HostImage>,
}

impl OciBackend {
    /// Does nothing yet: it is prepared on first use. `kind`: `oci`, or `gvisor` if the program `runtime` is `runsc`.
    /// `role`: the arguments that make this very program the guest, see `guest::run_program`.
    pub fn new(directories: Directories, kind: BackendKind, runtime: PathBuf, role: &[&str]) -> Self {
        let image = Arc::new(HostImage::new(directories.clone(), skeleton::Owner::Root));
        let directories = Directories { run: directories.run.join(kind.as_str()), ..directories };
        let role = role.iter().map(|word| (*word).to_owned()).collect();
        Self { kind, directories, runtime, role, image, host: OnceCell::new() }
    }

    /// Prepares now instead of with the first sandbox.
    pub async fn prepare(&self) -> Result<(), BackendError> {
        self.host().await.map(drop)
    }

    async fn host(&self) -> Result<&Arc<Host>, BackendError> {
        self.host.get_or_try_init(|| self.make_host()).await
    }

    async fn make_host(&self) -> Result<Arc<Host>, BackendError> {
        let (kind, runtime, places) = (self.kind, &self.runtime, self.directories.clone());
        let walls = if kind == BackendKind::Gvisor { Walls::UserSpaceKernel } else { Walls::HostKernel };
        if !rustix::process::geteuid().is_root() {
            return Err(BackendError::Unsupported {
                what: format!(
                    "the back end {kind} needs root: the daemon mounts root file systems for {}",
                    runtime.display()
                ),
                next: Some(Next::Advice(
                    "Use the back end namespace, which works for every user.".to_owned(),
                )),
            });
        }
        if runtime.file_name().is_some_and(|name| name == "crun") && has_both_cgroup_versions(kind, &places) {
            return Err(BackendError::Unsupported {
                what: "crun refuses hosts that have both versions of cgroups, as this one here".to_owned(),
                next: Some(Next::Advice("Use runc.".to_owned())),
            });
        }
        let flags: &[&str] = match walls {
            Walls::HostKernel => &[],
            // Without an overlay of its own: ours keeps the sandbox's writes.
            Walls::UserSpaceKernel => &["--network=none", "--host-uds=all", "--overlay2=none"],
        };
        let runtime = Runtime::new(runtime.to_owned(), flags, places.run.join("state"));
        let version = runtime.version().await?;
        let (role, image) = (self.role.clone(), Arc::clone(&self.image));
        let prepare = move || Host::prepare(kind, walls, places, runtime, version, role, image);
        let host = tokio::task::spawn_blocking(prepare).await.map_err(error::from_join)?;
        let host =
            host.map_err(|error| error::from_io(format!("could not prepare the back end {kind}"), error))?;
        Ok(Arc::new(host))
    }
}

impl Host {
    fn prepare(
        kind: BackendKind,
        walls: Walls,
        directories: Directories,
        runtime: Runtime,
        version: String,
        role: Vec<String>,
        image: Arc<HostImage>,
    ) -> io::Result<Self> {
        make_private(&directories.run)?;
        let program = Program::prepare(&directories.home.join("layers"))?;
        let cgroup_parent = cgroup_parent(kind, &directories);
        let home = directories.home.canonicalize().unwrap_or_else(|_missing| directories.home.clone());
        Ok(Self {
            kind,
            walls,
            home: home.to_string_lossy().into_owned(),
            directories,
            runtime,
            version,
            cgroups: Cgroups::detect(&cgroup_parent),
            cgroup_parent,
            role,
            program,
            image,
        })
    }

    fn place(&self, id: &SandboxId) -> PlaceNames {
        self.directories.place(id)
    }

    /// The sandbox's own files. Named for the back end: no other one can use them.
    fn files(&self, id: &SandboxId) -> PathBuf {
        self.directories.sandboxes().join(id.as_str()).join(self.kind.as_str())
    }

    /// Refuses what this back end cannot provide.
    fn check(&self, plan: &SandboxPlan) -> Result<(), BackendError> {
        let is_plain =
            |source: &MountOrigin| matches!(source, MountOrigin::Path { .. } | MountOrigin::Tmpfs { .. });
        let mount = plan.mounts.iter().find(|mount| !is_plain(&mount.source) || mount.quota.is_some());
        let refused = if matches!(plan.rootfs, RootfsPlan::Disk { .. }) {
            "a root file system in a disk image".to_owned()
        } else if plan.limits.disk_is_hard {
            format!("a disk limit ({})", plan.limits.disk)
        } else if !plan.above.is_empty() {
            "a snapshot".to_owned()
        } else if let Some(mount) = mount {
            format!("the mount {}, which is a volume, a disk image or has a quota", mount.guest_path)
        } else {
            return Ok(());
        };
        Err(BackendError::Unsupported {
            what: format!("the back end {} cannot hold {refused}", self.kind),
            next: Some(Next::Advice("Leave it out, or use the back end namespace.".to_owned())),
        })
    }

    /// Everything before the runtime is called, on a thread that may block.
    fn begin(&self, plan: &SandboxPlan) -> Result<Begun, BackendError> {
        let place = self.place(&plan.id);
        let what = |thing: &str| format!("could not make {thing} of sandbox {}", plan.id);
        let failed = |thing: &'static str| move |error| error::from_io(what(thing), error);
        make_private(&place.run).map_err(failed("the run directory"))?;
        let isolation = self.isolation(&plan.limits);
        let skeleton = if plan.rootfs == RootfsPlan::Host {
            Some(self.image.skeleton().map_err(failed("the root file system"))?)
        } else {
            None
        };
        let record = Record {
            isolation: isolation.clone(),
            first_id: None,
            home: Some(self.home.clone()),
            skeleton: skeleton.as_ref().and_then(Skeleton::name),
            named_ports: None,
        };
        record.write(&place).map_err(failed("the record"))?;
        self.make_files(plan).map_err(failed("the files"))?;
        let image = names::image_layers(&self.directories.home, plan)?;
        let usr = self
            .mount_root(plan, skeleton.as_ref(), image, &place)
            .map_err(failed("the root file system"))?;
        let shown = self.show_mounts(plan, &place)?;

        let entrance = self.make_entrance(plan, &place)?;
        let mut role = self.role.clone();
        role.extend(entrance.arguments());
        for (resource, value) in
            [(libc::RLIMIT_NOFILE, u64::from(plan.limits.open_files)), (libc::RLIMIT_CORE, 0)]
        {
            role.extend(["--rlimit".to_owned(), format!("{resource}:{value}:{value}")]);
        }
        if self.walls == Walls::HostKernel {
            let InternetBudget { bytes, tcp_socket, other_socket } =
                internet_budget(plan.limits.memory.bytes());
            role.extend(["--filter".to_owned(), format!("{bytes}:{tcp_socket}:{other_socket}")]);
        }
        let spec = bundle::spec(&Ingredients {
            plan,
            walls: self.walls,
            root: place.run.join("root"),
            usr,
            bound: skeleton.map(|skeleton| skeleton.bound).unwrap_or_default(),
            shown,
            program: self.program.directory.clone(),
            command: self.program.command(bundle::PROGRAM_AT, &role),
            socket: entrance.directory().map(Path::to_owned),
            cgroup: self.cgroup_of(&plan.id),
            kernel_files: KernelFiles::here(),
        });
        let spec = spec.map_err(|error| BackendError::failed(what("the configuration"), error))?;
        let text = serde_json::to_vec(&spec)
            .map_err(|error| BackendError::failed(what("the configuration"), error))?;
        fs::write(place.run.join("config.json"), text).map_err(failed("the configuration"))?;
        Ok(Begun { isolation, entrance })
    }

    /// Makes the guest's socket, and the workload's cgroup if that is ours to make.
    fn make_entrance(&self, plan: &SandboxPlan, place: &PlaceNames) -> Result<Entrance, BackendError> {
        let failed =
            |error| error::from_io(format!("could not make the socket of sandbox {}", plan.id), error);
        match self.walls {
            Walls::HostKernel => {
                let listener = listen(place).map_err(failed)?;
                let workload = self.cgroups.create(plan.id.as_str(), &cgroup_limits(&plan.limits));
                Ok(Entrance::Inherited { listener, workload: workload.map_err(error::from_cgroup)? })
            }
            Walls::UserSpaceKernel => {
                let directory = place.run.join("socket");
                make_private(&directory).map_err(failed)?;
                std::os::unix::fs::symlink("socket/guest.sock", place.socket()).map_err(failed)?;
                Ok(Entrance::Bound { directory })
            }
        }
    }

    /// As a path from the top of each hierarchy. A guest on the host's kernel is beside its workload, which has the
    /// limits.
    fn cgroup_of(&self, id: &SandboxId) -> PathBuf {
        let name = match self.walls {
            Walls::HostKernel => format!("guest-{id}"),
            Walls::UserSpaceKernel => id.to_string(),
        };
        Path::new("/").join(&self.cgroup_parent).join(name)
    }

    fn make_files(&self, plan: &SandboxPlan) -> io::Result<()> {
        let own = self.files(&plan.id);
        if own.join("root/work").exists() {
            return Ok(());
        }
        fs::create_dir_all(&own)?;
        for (name, mode) in names::own_directories(plan) {
            let path = own.join(name);
            fs::DirBuilder::new().recursive(true).mode(mode).create(&path)?;
            fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(mode))?;
        }
        for (name, text) in names::own_files(&plan.hostname) {
            fs::write(own.join(name), text)?;
        }
        Ok(())
    }

    /// Mounts the overlays; returns the path of the one for `/usr`, for image `host`.
    fn mount_root(
        &self,
        plan: &SandboxPlan,
        skeleton: Option<&Skeleton>,
        image: Vec<PathBuf>,
        place: &PlaceNames,
    ) -> io::Result<Option<PathBuf>> {
        let own = self.files(&plan.id);
        let lower = match (&plan.rootfs, skeleton) {
            (_, Some(skeleton)) => vec![skeleton.directory.clone()],
            (RootfsPlan::Image, None) => image,
            (RootfsPlan::Directory { path, identity, .. }, None) => {
                let at = place.run.join("lower");
                rootfs::bind(path, *identity, &at)?;
                vec![at]
            }
            (RootfsPlan::Host | RootfsPlan::Disk { .. }, None) => {
                return Err(io::ErrorKind::Unsupported.into());
            }
        };
        Overlay { lower, own: own.join("root"), at: place.run.join("root") }.mount()?;
        if skeleton.is_none() {
            return Ok(None);
        }
        let usr = place.run.join("usr");
        Overlay { lower: vec![PathBuf::from("/usr")], own: own.join("usr"), at: usr.clone() }.mount()?;
        Ok(Some(usr))
    }

    fn show_mounts(
        &self,
        plan: &SandboxPlan,
        place: &PlaceNames,
    ) -> Result<Vec<Option<PathBuf>>, BackendError> {
        let show = |(number, mount): (usize, &sandbox::MountPlan)| {
            let MountOrigin::Path { path, identity } = &mount.source else { return Ok(None) };
            let at = place.run.join(format!("mount-{number}"));
            let what = || format!("mount {}: {} cannot be mounted", mount.guest_path, path.display());
            rootfs::bind(path, *identity, &at).map_err(|error| error::from_io(what(), error))?;
            Ok(Some(at))
        };
        plan.mounts.iter().enumerate().map(show).collect()
    }

    /// Removes the host resources of a sandbox without processes.
    fn clean(&self, id: &SandboxId) -> io::Result<()> {
        let place = self.place(id);
        // Before the directory: its removal would go through the mounts in it. The mounts on top go first.
        let entries = fs::read_dir(&place.run).into_iter().flatten().flatten();
        let mut inside: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
        inside.sort_unstable_by(|a, b| b.cmp(a));
        for path in inside {
            rootfs::unmount(&path)?;
        }
        self.cgroups.remove(id.as_str()).map_err(io::Error::other)?;
        if self.walls == Walls::HostKernel {
            self.cgroups.remove(&format!("guest-{id}")).map_err(io::Error::other)?;
        }
        // Runtimes make groups in hierarchies that we do not use, and leave the parent there.
        for hierarchy in fs::read_dir("/sys/fs/cgroup").into_iter().flatten().flatten() {
            let _not_empty = fs::remove_dir(hierarchy.path().join(&self.cgroup_parent));
        }
        match fs::remove_dir_all(&place.run) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Ends the rest of a sandbox and removes its resources; its files stay.
    async fn clear(self: &Arc<Self>, id: &SandboxId) -> Result<(), BackendError> {
        if self.walls == Walls::HostKernel {
            // A frozen process of version 1 does not even die.
            let _not_paused = self.cgroups.freeze(id.as_str(), false);
        }
        if let Some(guest) = GuestProcess::find(id, &self.place(id)) {
            guest.kill().await?;
        }
        self.runtime.delete(id).await?;
        let (host, gone) = (Arc::clone(self), id.clone());
        let cleaned =
            tokio::task::spawn_blocking(move || host.clean(&gone)).await.map_err(error::from_join)?;
        cleaned.map_err(|error| error::from_io(format!("could not remove the remains of {id}"), error))
    }

    async fn create(self: &Arc<Self>, plan: &SandboxPlan) -> Result<OciInstance, BackendError> {
        let (host, planned) = (Arc::clone(self), plan.clone());
        let begun =
            tokio::task::spawn_blocking(move || host.begin(&planned)).await.map_err(error::from_join)??;
        let place = self.place(&plan.id);
        let pid_file = place.run.join("runtime.pid");
        self.runtime.run(&plan.id, &place.run, &pid_file, &begun.entrance.descriptors()).await?;
        let pid =
            fs::read_to_string(&pid_file).and_then(|text| text.trim().parse().map_err(io::Error::other));
        pid.and_then(|pid| guest_process::write_pid(pid, &place.pid()))
            .map_err(|error| error::from_io(format!("could not find the guest of {}", plan.id), error))?;
        let guest =
            GuestProcess::find(&plan.id, &place).ok_or_else(|| BackendError::Gone(plan.id.clone()))?;
        let waiting = tracing::info_span!(target: "trace", "guest ready");
        guest.answers().instrument(waiting).await.map_err(|error| self.with_log(error, &place))?;
        Ok(OciInstance::new(Arc::clone(self), guest, begun.isolation))
    }

    /// The error with the last message of the runtime or the guest.
    fn with_log(&self, error: BackendError, place: &PlaceNames) -> BackendError {
        let log = fs::read_to_string(place.run.join("runtime.log")).unwrap_or_default();
        match log.lines().last() {
            Some(last) => BackendError::Failed { what: format!("{error}: {last}"), source: None },
            None => error,
        }
    }

    fn isolation(&self, limits: &LimitsPlan) -> Isolation {
        let is_shared = self.walls == Walls::HostKernel;
        let kernel = if is_shared {
            "Root inside is root on the host, with few capabilities: there is no user namespace."
        } else {
            "The workload runs on gVisor's kernel. When the sandbox runs out of memory, all of it ends."
        };
        Isolation {
            backend: self.kind,
            walls: match self.walls {
                Walls::HostKernel => StatedWalls::SharedKernel,
                Walls::UserSpaceKernel => StatedWalls::UserSpaceKernel,
            },
            rootless: false,
            id_map: "host".to_owned(),
            namespaces: ["mnt", "pid", "net", "ipc", "uts", "cgroup"].map(str::to_owned).to_vec(),
            capabilities: jail::WORKLOAD_CAPABILITIES.map(|name| format!("CAP_{name}")).to_vec(),
            no_new_privileges: true,
            seccomp: is_shared.then(|| jail::FILTER_NAME.to_owned()),
            network: NetworkHold::Loopback,
            cgroups: self.cgroups.version().as_str().to_owned(),
            limits: self.limit_statements(limits),
            warnings: vec![kernel.to_owned()],
        }
    }

    fn limit_statements(&self, limits: &LimitsPlan) -> Vec<LimitStatement> {
        let by_cgroup = |limit, value, controller| match self.cgroups.controller(controller) {
            Some(is_v2) => {
                let enforcement = if is_v2 { Enforcement::CgroupV2 } else { Enforcement::CgroupV1 };
                LimitStatement { limit, value, enforcement, note: None }
            }
            None => not_held(limit, value, "No cgroup for it can be used here."),
        };
        let held = |limit, value, enforcement| LimitStatement { limit, value, enforcement, note: None };
        let pids = match self.walls {
            Walls::HostKernel => by_cgroup(LimitKind::Pids, limits.pids.into(), Controller::Pids),
            Walls::UserSpaceKernel => {
                not_held(LimitKind::Pids, limits.pids.into(), "gVisor does not count processes.")
            }
        };
        vec![
            by_cgroup(LimitKind::Memory, limits.memory.bytes(), Controller::Memory),
            by_cgroup(LimitKind::Swap, limits.swap.bytes(), Controller::Memory),
            by_cgroup(LimitKind::Cpus, limits.cpus.millis.into(), Controller::Cpu),
            pids,
            held(LimitKind::OpenFiles, limits.open_files.into(), Enforcement::Rlimit),
            not_held(
                LimitKind::Disk,
                limits.disk.bytes(),
                "Runtimes have no disk limits; the back end namespace has.",
            ),
            held(LimitKind::Tmp, limits.tmp.bytes(), Enforcement::FileSystem),
            held(LimitKind::Shm, limits.shm.bytes(), Enforcement::FileSystem),
        ]
    }
}

fn has_both_cgroup_versions(kind: BackendKind, directories: &Directories) -> bool {
    let cgroups = Cgroups::detect(&cgroup_parent(kind, directories));
    let version = cgroups.version();
    cgroups.forget();
    version == Version::Hybrid
}

/// Not the parent of the back end `namespace`, which sweeps unknown groups in its own.
fn cgroup_parent(kind: BackendKind, directories: &Directories) -> String {
    directories.cgroup_parent().replacen("warren", &format!("warren_{kind}"), 1)
}

fn not_held(limit: LimitKind, value: u64, note: &str) -> LimitStatement {
    LimitStatement { limit, value, enforcement: Enforcement::NotHeld, note: Some(note.to_owned()) }
}

fn cgroup_limits(limits: &LimitsPlan) -> CgroupLimits {
    CgroupLimits {
        memory_bytes: limits.memory.bytes(),
        swap_bytes: limits.swap.bytes(),
        cpu_millis: limits.cpus.millis,
        pids: limits.pids,
    }
}

struct Begun {
    isolation: Isolation,
    entrance: Entrance,
}

/// How the host reaches the guest.
enum Entrance {
    /// The guest inherits a listening socket and the files of the workload's cgroup.
    Inherited { listener: OwnedFd, workload: WorkloadFiles },
    /// The guest makes a socket in a directory of ours.
    Bound { directory: PathBuf },
}

impl Entrance {
    fn directory(&self) -> Option<&Path> {
        match self {
            Self::Inherited { .. } => None,
            Self::Bound { directory } => Some(directory),
        }
    }

    /// The inherited descriptors, each with its argument.
    fn inherited(&self) -> Vec<(&'static str, BorrowedFd<'_>)> {
        let Self::Inherited { listener, workload } = self else { return Vec::new() };
        let mut all = vec![("--fd", listener.as_fd())];
        all.extend(workload.enter.iter().map(|fd| ("--enter", fd.as_fd())));
        all.extend(workload.memory.iter().map(|fd| ("--memory", fd.as_fd())));
        all.extend(workload.oom_counter.iter().map(|fd| ("--oom-counter", fd.as_fd())));
        all
    }

    fn arguments(&self) -> Vec<String> {
        if self.directory().is_some() {
            return vec!["--listen".to_owned(), format!("{}/guest.sock", bundle::SOCKET_AT)];
        }
        let numbered = (3..).zip(self.inherited());
        numbered.flat_map(|(number, (flag, _))| [flag.to_owned(), number.to_string()]).collect()
    }

    fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        self.inherited().into_iter().map(|(_, fd)| fd).collect()
    }
}

#[async_trait]
impl Backend for OciBackend {
    fn kind(&self) -> BackendKind {
        self.kind
    }

    async fn probe(&self) -> Result<Capabilities, BackendError> {
        let Some(host) = self.host.get() else {
            let has = vec![Capability::Images, Capability::HostPaths];
            let missing =
                vec!["Limits and pauses are not looked at before the first sandbox is made.".to_owned()];
            return Ok(Capabilities { backend: self.kind, has, missing });
        };
        let is_shared = host.walls == Walls::HostKernel;
        let can = |controller| host.cgroups.controller(controller).is_some();
        let has = [
            (Capability::Pause, is_shared && host.cgroups.can_freeze()),
            (Capability::MemoryLimit, can(Controller::Memory)),
            (Capability::CpuLimit, can(Controller::Cpu)),
            (Capability::PidsLimit, is_shared && can(Controller::Pids)),
            (Capability::Images, true),
            (Capability::HostPaths, true),
        ];
        let has = has.into_iter().filter(|(_, works)| *works).map(|(capability, _)| capability).collect();
        let mut missing = host.cgroups.missing().to_vec();
        missing.push(format!("Disk limits, volumes and snapshots are not available with {}.", host.version));
        if !is_shared {
            missing.push(
                "gVisor stops a sandbox as a whole, our guest with it, so there is no pause.".to_owned(),
            );
        }
        Ok(Capabilities { backend: host.kind, has, missing })
    }

    async fn create(&self, plan: &SandboxPlan) -> Result<Box<dyn Instance>, BackendError> {
        let host = self.host().await?;
        host.check(plan)?;
        // Remains of an earlier run would be in the way.
        host.clear(&plan.id).await?;
        match host.create(plan).await {
            Ok(instance) => Ok(Box::new(instance)),
            Err(error) => {
                if let Err(left) = host.clear(&plan.id).await {
                    tracing::warn!(sandbox = %plan.id, error = %left, "its remains stay until the next sweep");
                }
                Err(error)
            }
        }
    }

    async fn adopt(&self, plan: &SandboxPlan) -> Result<Option<Box<dyn Instance>>, BackendError> {
        // A failed preparation says nothing about a sandbox that was made earlier.
        let host =
            self.host().await.map_err(|error| BackendError::Unavailable { what: error.to_string() })?;
        let adopted = guest_process::adopt(&plan.id, &host.place(&plan.id)).await;
        Ok(adopted.map(|(guest, isolation)| {
            Box::new(OciInstance::new(Arc::clone(host), guest, isolation)) as Box<dyn Instance>
        }))
    }

    async fn sweep(&self, alive: &[SandboxId], known: &[SandboxId]) -> Result<Vec<SandboxId>, BackendError> {
        // The run directory of a sandbox is made first and removed last, so without one nothing is alive. Unknown files
        // are left to the default back end.
        if !self.host.initialized() && sweep::ids_in(&self.directories.run).is_empty() {
            return Ok(Vec::new());
        }
        let host = self.host().await?;
        let in_cgroups = host.cgroups.ids().into_iter();
        let in_cgroups =
            in_cgroups.filter_map(|name| name.strip_prefix("guest-").unwrap_or(&name).parse().ok());
        let found: BTreeSet<SandboxId> = sweep::ids_in(&host.directories.run)
            .into_iter()
            .chain(host.runtime.ids())
            .chain(in_cgroups)
            .collect();
        let mut removed = BTreeSet::new();
        let is_left = |id: &SandboxId| {
            !alive.contains(id) && !guest_process::is_of_other_home(&host.place(id), &host.home)
        };
        for id in found.into_iter().filter(is_left) {
            match host.clear(&id).await {
                Ok(()) => drop(removed.insert(id)),
                Err(error) => tracing::warn!(sandbox = %id, %error, "it stays until the next sweep"),
            }
        }
        let sandboxes = host.directories.sandboxes();
        removed
            .extend(guest_process::remove_strangers(&sandboxes, host.kind.as_str(), &[alive, known]).await?);
        Ok(removed.into_iter().collect())
    }

    async fn remove(&self, id: &SandboxId) -> Result<(), BackendError> {
        if self.directories.place(id).run.exists() {
            self.host().await?.clear(id).await?;
        }
        guest_process::remove_files(id, self.directories.sandbox(id)).await
    }
}

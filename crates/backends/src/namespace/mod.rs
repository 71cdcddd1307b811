//! Sandboxes from the kernel's own parts: namespaces, overlay, cgroups, seccomp.

mod accounting;
mod cage;
mod create;
mod disk;
mod edge_keeper;
pub(crate) mod error;
pub(crate) mod hello;
pub(crate) mod host_image;
mod ids;
pub(crate) mod instance;
mod layer;
mod mounts;
pub(crate) mod names;
mod network;
mod orphans;
mod pool;
mod pulse;
pub(crate) mod record;
mod remains;
pub(crate) mod skeleton;
pub(crate) mod socket;
mod spawner;
mod statement;
pub(crate) mod sweep;
mod trees;
mod volume;
pub(crate) mod watched;
mod work;

use std::{
    collections::{BTreeMap, HashMap},
    fs, io,
    net::SocketAddr,
    os::fd::OwnedFd,
    os::unix::fs::{DirBuilderExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, OnceLock, PoisonError},
};

use async_trait::async_trait;
use jail::{Reply, Request, cgroup::Cgroups};
use sandbox::{
    Authority, Backend, BackendError, BackendImages, BackendKind, BackendNetwork, BackendSnapshots,
    BackendVolumes, ByteSize, Capabilities, Capability, DiffQuery, DiffReport, DnsName, HeldSecrets, Holding,
    Instance, NetworkReport, Next, PublishedPort, RootfsPlan, SandboxId, SandboxPlan, SnapshotId, TreeCopy,
    TreeFacts, VolumeId, VolumeKind, VolumeStorage, network::NetworkSockets,
};
use tokio::{io::Interest, sync::broadcast};

use cage::{Beneath, Ground, Ids};
pub(crate) use cage::{KernelFiles, internet_budget, tcp_socket_bytes};
pub use create::CreateCosts;
use edge_keeper::Edge;
pub use edge_keeper::{EdgeStarter, HostProxy};
use host_image::HostImage;
use mounts::LocatedMount;
pub use names::Directories;
use names::FileNames;
pub use pool::PoolConfig;
use skeleton::Skeleton;
use spawner::{Keeper, Preparation, Starter};
use statement::Means;
pub use work::worker;

/// For hosts where only the host's own nodes can be shown.
const SHARED_DEVICES: &str = "/dev/null and the other devices are the host's own files: programs here, on the host and in \
    other sandboxes can lock them and watch when they are opened.";
/// How often a request is repeated if its worker dies.
const MAX_ASKS: u32 = 10;

/// Makes sandboxes on this machine, as root or as an ordinary user.
#[derive(Debug)]
pub struct NamespaceBackend(Arc<Host>);

/// The state that all sandboxes of this daemon share.
#[derive(Debug)]
pub(crate) struct Host {
    directories: Directories,
    /// The home as written into the record of each of its sandboxes.
    home: String,
    spawner: Keeper,
    ground: Ground,
    /// Its layer is made in the background at the start; earlier users wait.
    image: Arc<HostImage>,
    means: Means,
    /// `mkfs.ext4`, or why there can be no hard disk limits.
    disk_tools: Result<PathBuf, String>,
    ranges: ids::IdRanges,
    inherited: ids::Inherited,
    /// Guests alive when we started. One that is not adopted is ended before its sandbox gets another.
    inherited_guests: orphans::Guests,
    /// Ended sandboxes whose resources are being removed.
    cleaning: Mutex<HashMap<SandboxId, tokio::task::JoinHandle<()>>>,
    /// Serves their networks, if somebody can start it.
    edge: OnceLock<Edge>,
    /// Places that wait for their sandboxes.
    pool: pool::Pool,
    /// Sandboxes that are being made, or unmade after a cancel: one at a time for each id.
    making: Mutex<HashMap<SandboxId, Arc<tokio::sync::Mutex<()>>>>,
}

impl NamespaceBackend {
    /// Starts a spawner and prepares it; the layer of image `host` follows in the background. Living sandboxes are not
    /// touched. `open_files`: the soft limit of new sandboxes; ours if absent.
    ///
    /// The program must call [`jail::run_spawner_role`] first in `main`, and the caller must be the only user of the
    /// home.
    pub async fn new(directories: Directories, open_files: Option<u64>) -> Result<Self, BackendError> {
        let prepare = move || {
            let remains = remains::find(&directories);
            Host::prepare(directories, open_files).map(|host| (Arc::new(host), remains))
        };
        let (host, remains) = tokio::task::spawn_blocking(prepare).await.map_err(error::from_join)??;
        tokio::spawn(finish(Arc::clone(&host), remains));
        Ok(Self(host))
    }

    /// Serves the networks of sandboxes by edges that this starts. Without it, nobody serves them. Call it before the
    /// first sandbox is made or adopted. `proxy`: what this host reaches the internet through, if not by itself.
    #[must_use]
    pub fn with_edge(self, starter: EdgeStarter, proxy: Option<HostProxy>) -> Self {
        self.0.edge.get_or_init(|| Edge::new(starter, proxy));
        self
    }

    /// Makes some places beforehand where sandboxes are made often. Without it, none.
    #[must_use]
    pub fn with_pool(self, config: PoolConfig) -> Self {
        self.0.pool.configure(config);
        self
    }

    /// Takes back all places that wait, and makes no more.
    pub async fn close_pool(&self) {
        pool::close(&self.0).await;
    }

    /// The sockets by which a sandbox's network is served; each call returns copies of the same ones. `None`: it has no
    /// network to serve.
    pub async fn network_sockets(&self, id: &SandboxId) -> Result<Option<NetworkSockets>, BackendError> {
        network::sockets(id, &self.0.directories.place(id).socket()).await
    }

    /// Unpacks the layers of images with the rights that sandboxes' files need.
    pub fn unpacker(&self) -> Arc<dyn images::Unpacker> {
        Arc::new(work::SpawnerUnpacker::new(Arc::clone(&self.0)))
    }

    /// The steps that would make this sandbox, as text for people: what `doctor --explain` prints.
    pub fn explain(&self, plan: &SandboxPlan) -> Vec<String> {
        create::explain(&self.0, plan)
    }

    /// Like [`Backend::create`], and reports its cost.
    pub async fn create_measured(
        &self,
        plan: &SandboxPlan,
    ) -> Result<(Box<dyn Instance>, CreateCosts), BackendError> {
        let (instance, costs) = create::create(&self.0, plan).await?;
        instance.serve_network(&plan.network);
        Ok((Box::new(instance), costs))
    }
}

impl Host {
    fn prepare(directories: Directories, open_files: Option<u64>) -> Result<Self, BackendError> {
        for directory in [
            &directories.run,
            &directories.sandboxes(),
            &directories.waiting(),
            &directories.layers(),
            &directories.snapshots(),
        ] {
            make_private(directory)
                .map_err(|error| error::from_io(format!("could not make {}", directory.display()), error))?;
        }
        let starter = Starter { lock: directories.spawner_lock(), open_files };
        // It starts while we look around.
        let spawner = starter.start()?;
        for directory in
            [&directories.run, &directories.sandboxes(), &directories.waiting(), &directories.snapshots()]
        {
            spread(directory);
        }
        let cgroups = Cgroups::detect(&directories.cgroup_parent());
        let needed = [directories.home.as_path(), &directories.run, Path::new("/usr")];
        let stage = cage::choose_stage(&needed).ok_or_else(|| {
            let what = "no directory of the host is free to work over".to_owned();
            BackendError::Unsupported { what, next: Some(Next::Advice("Make the directory /mnt.".into())) }
        })?;
        let is_root = rustix::process::geteuid().is_root();
        let shown_through =
            if is_root { vec![directories.home.clone(), PathBuf::from("/usr")] } else { Vec::new() };
        let mark = directories.cgroup_parent();
        let request = Request::Prepare { steps: cage::prepare_steps(&stage), shown_through, mark };
        let preparation = Preparation { request, cgroups: cgroups.clone() };
        let prepared = preparation.send(&spawner)?;
        let inherited_guests = orphans::find(&directories.cgroup_parent(), &cgroups);
        let (reply, _) = prepared.receive().map_err(spawner::gone)?;
        let mut warnings = cgroups.missing().to_vec();
        let has_own_devices = matches!(reply, Reply::Prepared { device_failure: None, .. });
        let (ids, network) = match reply {
            Reply::Prepared { idmap_failure: Some(failure), network, .. } => {
                warnings.push(format!(
                    "Sandboxes have the host's own ids, since files cannot be shown with others: {failure}."
                ));
                (Ids::Host, network)
            }
            Reply::Prepared { network, .. } if is_root => (Ids::OwnRange, network),
            Reply::Prepared { ids, network, .. } => (Ids::Shared(ids), network),
            Reply::Failed(failure) => return Err(unsupported(failure)),
            other => return Err(unexpected(&other)),
        };
        let usr_mounts = cage::usr_mounts(&fs::read_to_string("/proc/self/mountinfo").unwrap_or_default());
        if !is_root && !usr_mounts.is_empty() {
            warnings.push("/usr is read-only: the host has file systems mounted beneath it.".to_owned());
        }
        if !has_own_devices {
            warnings.push(SHARED_DEVICES.to_owned());
        }
        let pools = vec![directories.layers(), directories.snapshots()];
        let ground = Ground {
            sandboxes: directories.sandboxes(),
            stage,
            skeleton: Skeleton::default(),
            pools,
            ids,
            usr_mounts,
            has_own_devices,
            kernel_files: KernelFiles::default(),
            hidden: Vec::new(),
        };
        let means = Means {
            cgroups,
            ids,
            network: network.chosen(),
            processors: processors(),
            max_open_files: max_open_files(),
            warnings,
        };
        let disk_tools = match ids {
            Ids::OwnRange | Ids::Shared(_) => disk::find_tools(),
            Ids::Host => Err("files cannot be shown with a sandbox's own ids here".to_owned()),
        };
        let home = directories.home.canonicalize().unwrap_or_else(|_missing| directories.home.clone());
        let owner = match ids {
            Ids::OwnRange | Ids::Host => skeleton::Owner::Root,
            Ids::Shared(_) => skeleton::Owner::User,
        };
        let host = Self {
            home: home.to_string_lossy().into_owned(),
            image: Arc::new(HostImage::new(directories.clone(), owner)),
            directories,
            spawner: Keeper::new(starter, preparation, spawner)
                .map_err(|error| error::from_io("could not watch the spawner", error))?,
            ground,
            means,
            disk_tools,
            ranges: ids::IdRanges::default(),
            inherited: Mutex::default(),
            inherited_guests,
            cleaning: Mutex::default(),
            edge: OnceLock::new(),
            pool: pool::Pool::default(),
            making: Mutex::default(),
        };
        host.inherit_ranges();
        Ok(host)
    }

    /// The layer of image `host`. May block while it is made.
    fn skeleton(&self) -> Result<Skeleton, BackendError> {
        let made = self.image.skeleton();
        made.map_err(|error| error::from_io("could not prepare the image host", error))
    }

    /// The ground for cages of image `host`. May block while its layer is made.
    fn ground(&self) -> Result<Ground, BackendError> {
        let hidden = cage::hidden_here(Path::new("/"), &self.ground.usr_mounts);
        Ok(Ground { skeleton: self.skeleton()?, hidden, ..self.ground_of_others() })
    }

    /// The ground for cages of other images.
    fn ground_of_others(&self) -> Ground {
        Ground { kernel_files: KernelFiles::here(), ..self.ground.clone() }
    }

    fn files(&self, id: &SandboxId) -> FileNames {
        FileNames::of(&self.directories.sandbox(id))
    }

    /// One part of each snapshot that has it.
    fn uppers(&self, snapshots: &[SnapshotId], part: &str) -> Vec<PathBuf> {
        let uppers = snapshots.iter().map(|id| self.directories.tree(id).join(part).join("upper"));
        uppers.filter(|upper| upper.is_dir()).collect()
    }

    /// Finds the snapshots, the image and the mounts of a plan. May block.
    fn beneath(&self, plan: &SandboxPlan) -> Result<Beneath, BackendError> {
        let is_host = plan.rootfs == RootfsPlan::Host;
        let usr = if is_host { self.uppers(&plan.above, "usr") } else { Vec::new() };
        let image = names::image_layers(&self.directories.home, plan)?;
        let mounts = self.located(plan);
        Ok(Beneath { root: self.uppers(&plan.above, "root"), usr, image, mounts })
    }

    /// The mounts of a plan with the paths of their files.
    fn located(&self, plan: &SandboxPlan) -> Vec<LocatedMount> {
        let located = |mount| LocatedMount::new(mount, |id| volume::files(self, id));
        plan.mounts.iter().map(located).collect()
    }

    /// Deletes files, whoever owns them.
    async fn remove(&self, path: PathBuf) -> Result<(), BackendError> {
        match self.ask(&Request::Remove { path: path.clone() }).await? {
            Reply::Done => Ok(()),
            Reply::Failed(failure) => {
                Err(error::from_failure(format!("could not remove {}", path.display()), failure))
            }
            other => Err(unexpected(&other)),
        }
    }

    /// Waits until nothing is left of an earlier attempt to make this sandbox.
    async fn turn(&self, id: &SandboxId) -> tokio::sync::OwnedMutexGuard<()> {
        let lock = {
            let mut making = self.making.lock().unwrap_or_else(PoisonError::into_inner);
            making.retain(|_id, lock| Arc::strong_count(lock) > 1);
            Arc::clone(making.entry(id.clone()).or_default())
        };
        lock.lock_owned().await
    }

    /// Sends a request to the spawner, if there is one right now.
    fn request(&self, request: &Request) -> Result<jail::ReplySocket, BackendError> {
        self.spawner.now()?.request(request, &[]).map_err(spawner::gone)
    }

    /// Takes the id ranges of every sandbox of an earlier daemon, before any new one is given out.
    fn inherit_ranges(&self) {
        let mut inherited = self.inherited.lock().unwrap_or_else(PoisonError::into_inner);
        for id in sweep::ids_in(&self.directories.run) {
            let first_id =
                record::Record::read(&self.directories.place(&id)).ok().and_then(|found| found.first_id);
            if let Some(lease) = first_id.and_then(|first_id| self.ranges.take_again(first_id)) {
                inherited.insert(id, lease);
            }
        }
    }

    /// Sends the spawner a repeatable request, and waits for the answer without holding a thread. If the worker dies,
    /// the next one is asked.
    async fn ask(&self, request: &Request) -> Result<Reply, BackendError> {
        let mut n_tries = 1;
        loop {
            let spawner = self.spawner.at_hand().await?;
            let asked = spawner.request(request, &[]).map_err(spawner::gone);
            let answer = match asked {
                Ok(socket) => receive(Arc::new(socket)).await.map(|(reply, _)| reply),
                Err(error) => Err(error),
            };
            match answer {
                Err(BackendError::Unavailable { .. }) if n_tries < MAX_ASKS => {
                    n_tries += 1;
                    self.spawner.lost(&spawner).await;
                }
                answer => return answer,
            }
        }
    }
}

/// Work that can wait until the daemon serves: the layer of image `host`, and then the removal of leftovers.
async fn finish(host: Arc<Host>, remains: Vec<PathBuf>) {
    let worker = Arc::clone(&host);
    let in_use = match tokio::task::spawn_blocking(move || worker.skeleton()).await {
        Ok(Ok(skeleton)) => skeleton.directory,
        Ok(Err(error)) => {
            tracing::warn!(%error, "image host could not be prepared; will retry when it is needed");
            return;
        }
        Err(_shutting_down) => return,
    };
    for path in remains.into_iter().filter(|path| !in_use.starts_with(path)) {
        if let Err(error) = host.remove(path).await {
            tracing::warn!(%error, "leftovers of earlier work stay");
        }
    }
}

async fn receive(socket: Arc<jail::ReplySocket>) -> Result<(Reply, Vec<OwnedFd>), BackendError> {
    let socket = watched::readable(socket).map_err(spawner::gone)?;
    let received = socket.async_io(Interest::READABLE, |socket| socket.try_receive()).await;
    received.map_err(spawner::gone)
}

fn unexpected(reply: &Reply) -> BackendError {
    BackendError::Failed { what: format!("the spawner answered with {reply:?}"), source: None }
}

fn unsupported(failure: jail::Failure) -> BackendError {
    BackendError::Unsupported {
        what: format!("sandboxes cannot be made here: {failure}"),
        next: Some(Next::Diagnose),
    }
}

/// Makes a directory that only its owner may enter, with its parents.
fn make_private(directory: &Path) -> io::Result<()> {
    if let Some(parent) = directory.parent() {
        fs::create_dir_all(parent)?;
    }
    match fs::DirBuilder::new().mode(0o700).create(directory) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            fs::set_permissions(directory, fs::Permissions::from_mode(0o700))
        }
        made => made,
    }
}

/// Tells ext4 that the directories in here are unrelated, so that it puts them far apart. Otherwise sandboxes come and
/// go in one corner of the disk, and an ext4 without a journal checks every inode that was freed there in the last
/// minutes before it takes one (0.4 ms for each new file, measured). Other file systems ignore it.
fn spread(directory: &Path) {
    let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::DIRECTORY | rustix::fs::OFlags::CLOEXEC;
    if let Ok(opened) = rustix::fs::open(directory, flags, rustix::fs::Mode::empty())
        && let Ok(set) = rustix::fs::ioctl_getflags(&opened)
    {
        let _hint = rustix::fs::ioctl_setflags(&opened, set | rustix::fs::IFlags::TOPDIR);
    }
}

fn processors() -> u32 {
    std::thread::available_parallelism().map_or(1, |count| u32::try_from(count.get()).unwrap_or(u32::MAX))
}

fn max_open_files() -> u64 {
    rustix::process::getrlimit(rustix::process::Resource::Nofile).maximum.unwrap_or(u64::MAX)
}

#[async_trait]
impl Backend for NamespaceBackend {
    fn kind(&self) -> BackendKind {
        BackendKind::Namespace
    }

    async fn probe(&self) -> Result<Capabilities, BackendError> {
        let cgroups = &self.0.means.cgroups;
        let mut has = Vec::new();
        for (capability, works) in [
            (Capability::Pause, cgroups.can_freeze()),
            (Capability::MemoryLimit, cgroups.controller(jail::cgroup::Controller::Memory).is_some()),
            (Capability::CpuLimit, cgroups.controller(jail::cgroup::Controller::Cpu).is_some()),
            (Capability::PidsLimit, cgroups.controller(jail::cgroup::Controller::Pids).is_some()),
            (Capability::HardDiskLimit, self.0.disk_tools.is_ok()),
            (Capability::Images, true),
            (Capability::Volumes, true),
            (Capability::Snapshots, true),
            (Capability::HostPaths, true),
            (Capability::UdpPorts, true),
            (Capability::Network, !matches!(self.0.means.network, jail::NetworkMeans::None { .. })),
        ] {
            if works {
                has.push(capability);
            }
        }
        let mut missing = cgroups.missing().to_vec();
        if let Err(why) = &self.0.disk_tools {
            missing.push(format!("Disk limits are held by accounting: {why}."));
        }
        missing.extend(network::what_is_missing(&self.0.means.network));
        Ok(Capabilities { backend: BackendKind::Namespace, has, missing })
    }

    fn prepared(&self, plan: &SandboxPlan) -> Option<SandboxId> {
        pool::offer(&self.0, plan)
    }

    async fn create(&self, plan: &SandboxPlan) -> Result<Box<dyn Instance>, BackendError> {
        Ok(self.create_measured(plan).await?.0)
    }

    async fn adopt(&self, plan: &SandboxPlan) -> Result<Option<Box<dyn Instance>>, BackendError> {
        let adopted = instance::adopt(&self.0, plan).await?;
        Ok(adopted.map(|instance| Box::new(instance) as Box<dyn Instance>))
    }

    async fn sweep(&self, alive: &[SandboxId], known: &[SandboxId]) -> Result<Vec<SandboxId>, BackendError> {
        sweep::sweep(&self.0, alive, known).await
    }

    async fn remove(&self, id: &SandboxId) -> Result<(), BackendError> {
        sweep::remove(&self.0, id).await
    }

    fn images(&self) -> Option<&dyn BackendImages> {
        Some(self)
    }

    fn volumes(&self) -> Option<&dyn BackendVolumes> {
        Some(self)
    }

    fn snapshots(&self) -> Option<&dyn BackendSnapshots> {
        Some(self)
    }

    fn network(&self) -> Option<&dyn BackendNetwork> {
        self.0.edge.get().map(|edge| edge as &dyn BackendNetwork)
    }
}

impl BackendNetwork for Edge {
    fn reports(&self) -> broadcast::Receiver<NetworkReport> {
        self.reports()
    }

    fn catch_up(&self, number: u64) {
        self.catch_up(number);
    }

    fn surround(&self, closed: Vec<SocketAddr>, published: BTreeMap<u16, PublishedPort>) {
        self.surround(closed, published);
    }

    fn hold_secrets(&self, id: &SandboxId, secrets: Option<HeldSecrets>) {
        self.hold_secrets(id, secrets);
    }

    fn make_authority(&self, hosts: &[DnsName]) -> Result<Authority, BackendError> {
        edge::make_authority(hosts)
            .map_err(|error| BackendError::failed("could not make an authority for secrets", error))
    }
}

#[async_trait]
impl BackendImages for NamespaceBackend {
    async fn pack_layer(&self, plan: &SandboxPlan, archive: OwnedFd) -> Result<(), BackendError> {
        layer::pack(&self.0, plan, archive).await
    }
}

#[async_trait]
impl BackendVolumes for NamespaceBackend {
    async fn make(
        &self,
        id: &VolumeId,
        kind: VolumeKind,
        limit: Option<ByteSize>,
    ) -> Result<VolumeStorage, BackendError> {
        let (host, id) = (Arc::clone(&self.0), id.clone());
        let make = move || volume::make(&host, &id, kind, limit);
        tokio::task::spawn_blocking(make).await.map_err(error::from_join)?
    }

    async fn used(&self, id: &VolumeId) -> Result<u64, BackendError> {
        volume::used(&self.0, id).await
    }

    async fn remove(&self, id: &VolumeId) -> Result<(), BackendError> {
        self.0.remove(self.0.directories.volume(id)).await
    }

    async fn open(&self, place: &SandboxId, id: &VolumeId) -> Result<Box<dyn Instance>, BackendError> {
        Ok(Box::new(volume::open(&self.0, place, id).await?))
    }
}

#[async_trait]
impl BackendSnapshots for NamespaceBackend {
    async fn take(
        &self,
        plan: &SandboxPlan,
        id: &SnapshotId,
        hold: Holding<'_>,
    ) -> Result<TreeCopy, BackendError> {
        trees::copy_files(&self.0, plan, id, hold).await
    }

    async fn facts(&self, id: &SnapshotId) -> Result<TreeFacts, BackendError> {
        trees::facts(&self.0, self.0.directories.tree(id)).await
    }

    async fn export(&self, id: &SnapshotId, archive: OwnedFd) -> Result<(), BackendError> {
        trees::pack(&self.0, self.0.directories.tree(id), archive).await
    }

    async fn import(&self, id: &SnapshotId, archive: OwnedFd) -> Result<TreeFacts, BackendError> {
        trees::unpack(&self.0, archive, id).await
    }

    async fn remove(&self, id: &SnapshotId) -> Result<(), BackendError> {
        self.0.remove(self.0.directories.tree(id)).await
    }

    async fn diff(&self, plan: &SandboxPlan, query: DiffQuery) -> Result<DiffReport, BackendError> {
        trees::diff(&self.0, plan, query).await
    }
}

//! Makes one sandbox, and unmakes it if that fails half-way.

use std::{
    fs, io,
    os::fd::{AsFd as _, OwnedFd},
    os::unix::{
        fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _},
        net::UnixListener,
    },
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use jail::{Cage, NetworkEnd, Reply, Request, Step, cgroup::CgroupLimits};
use sandbox::{BackendError, Isolation, LimitsPlan, Next, RootfsPlan, SandboxId, SandboxPlan};
use tokio::{net::UnixStream, sync::OwnedMutexGuard};
use tracing::Instrument as _;

use super::{
    Host,
    accounting::{self, Quota},
    cage::{self, Beneath, Decided, Ids, MAX_LOWER_BYTES, MAX_LOWERS},
    disk, error,
    ids::IdLease,
    instance::{self, NamespaceInstance},
    mounts,
    names::{FileNames, PlaceNames, own_directories, own_files},
    network, orphans, pool, receive,
    record::Record,
    socket,
    statement::DiskHold,
    sweep::{self, END_TIME},
    unexpected,
};

/// A cage takes milliseconds; a host that needs longer than this is not working.
const CREATE_TIME: Duration = Duration::from_secs(30);

pub(crate) fn explain(host: &Host, plan: &SandboxPlan) -> Vec<String> {
    let holds = host.means.holds(&plan.limits);
    let (beneath, ground) = match (host.beneath(plan), host.ground()) {
        (Ok(beneath), Ok(ground)) => (beneath, ground),
        (Err(error), _) | (_, Err(error)) => return vec![error.to_string()],
    };
    let network = match network::end_of(plan, &host.means.network) {
        Ok(network) => network,
        Err(error) => return vec![error.to_string()],
    };
    let decided = Decided {
        first_id: None,
        has_image: decide_disk(host, plan) == DiskHold::FileSystem,
        beneath,
        affinity: holds.affinity,
        rlimits: holds.rlimits,
        network,
    };
    let steps = cage::prepare_steps(&ground.stage).into_iter().map(|step| format!("once: {step}"));
    let cage = cage::build(plan, &ground, &decided);
    let handed = cage.mounts.iter().enumerate().map(|(number, mount)| format!("mount {number}: {mount}"));
    steps.chain(handed).chain(cage.steps.iter().map(ToString::to_string)).collect()
}

/// The cost of making one sandbox, for `bench` and `doctor`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CreateCosts {
    /// Directories, cgroups, socket: until the request was sent.
    pub begin: Duration,
    /// From then until the guest took over.
    pub cage: Duration,
    /// The parts of `cage` in the child, in order.
    pub steps: Vec<(String, Duration)>,
}

pub(crate) async fn create(
    host: &Arc<Host>,
    plan: &SandboxPlan,
) -> Result<(NamespaceInstance, CreateCosts), BackendError> {
    let began = Instant::now();
    let _busy = host.pool.busy();
    if let Some(offer) = host.pool.take(&plan.id) {
        match pool::use_place(host, offer, plan, began).await {
            Ok(made) => return Ok(made),
            Err(error) => {
                tracing::warn!(sandbox = %plan.id, %error, "a place that waited cannot be used; another is made");
            }
        }
    }
    let earlier = async {
        instance::wait_for_cleaning(host, &plan.id).await;
        host.turn(&plan.id).await
    };
    let turn =
        tokio::time::timeout(CREATE_TIME, earlier).await.map_err(|_elapsed| BackendError::TimedOut {
            what: format!("clearing away an earlier life of sandbox {}", plan.id),
            after: CREATE_TIME,
        })?;
    end_orphans(host, &plan.id).await?;
    // Waits while there is none; it may still die on us.
    host.spawner.at_hand().await?;
    let (worker, plan) = (Arc::clone(host), plan.clone());
    let quotas = accounting::quotas(&host.located(&plan));
    let half_made = HalfMade::new(Arc::clone(host), plan.id.clone(), turn);
    let preparing = tracing::info_span!(target: "trace", "prepare cage");
    let begun = tokio::task::spawn_blocking(move || begin(&worker, &plan, half_made, For::Sandbox))
        .instrument(preparing)
        .await
        .map_err(error::from_join)??;
    let waiting = tracing::info_span!(target: "trace", "guest ready");
    conclude(host, began, begun, quotas).instrument(waiting).await
}

/// Two guests must never have the same files. An earlier daemon may have left one that could not be adopted.
async fn end_orphans(host: &Host, id: &SandboxId) -> Result<(), BackendError> {
    let Some(guests) = host.inherited_guests.get(id) else { return Ok(()) };
    match orphans::end(guests).await {
        sweep::Ended::Yes => Ok(()),
        sweep::Ended::No => {
            let what = format!("the end of an earlier guest of {id}, which was killed,");
            Err(BackendError::TimedOut { what, after: END_TIME })
        }
    }
}

/// Waits until the cage is complete and the guest has taken over. A failure is undone.
pub(crate) async fn conclude(
    host: &Arc<Host>,
    began: Instant,
    begun: Begun,
    quotas: Vec<Quota>,
) -> Result<(NamespaceInstance, CreateCosts), BackendError> {
    let (standing, costs) = stand(began, begun).await?;
    Ok((standing.into_instance(host, quotas).await?, costs))
}

/// A place with its guest, which nobody watches yet.
#[derive(Debug)]
pub(crate) struct Standing {
    pub(crate) half_made: HalfMade,
    pub(crate) isolation: Isolation,
    /// The descriptor of the guest's process.
    pidfd: OwnedFd,
    /// To the guest, if one is open already.
    pub(crate) stream: Option<UnixStream>,
}

impl Standing {
    /// A failure is undone.
    pub(crate) async fn into_instance(
        self,
        host: &Arc<Host>,
        quotas: Vec<Quota>,
    ) -> Result<NamespaceInstance, BackendError> {
        let Self { half_made, isolation, pidfd, stream } = self;
        match NamespaceInstance::new(Arc::clone(host), half_made.id.clone(), isolation, pidfd, quotas) {
            Ok(mut instance) => {
                instance.give(half_made.keep());
                instance.begin_with(stream);
                Ok(instance)
            }
            Err(error) => {
                half_made.undo().await;
                Err(error)
            }
        }
    }
}

/// Waits until the cage is complete and the guest has taken over. A failure is undone.
pub(crate) async fn stand(began: Instant, begun: Begun) -> Result<(Standing, CreateCosts), BackendError> {
    let begin = began.elapsed();
    let Begun { mut half_made, isolation, steps } = begun;
    let id = half_made.id.clone();
    let what = format!("making sandbox {id}");
    let answered = match tokio::time::timeout(CREATE_TIME, half_made.answer()).await {
        Ok(answered) => answered,
        Err(_elapsed) => Err(BackendError::TimedOut { what, after: CREATE_TIME }),
    };
    let made = answered.and_then(|(reply, descriptors)| match (reply, descriptors.into_iter().next()) {
        (Reply::Ready { step_micros, .. }, Some(pidfd)) => Ok((step_micros, pidfd)),
        (Reply::Failed(failure), _) => {
            Err(error::from_failure(format!("could not make sandbox {id}"), failure))
        }
        (other, _) => Err(unexpected(&other)),
    });
    let (step_micros, pidfd) = match made {
        Ok(made) => made,
        Err(error) => {
            half_made.undo().await;
            return Err(error);
        }
    };
    let times = step_micros.into_iter().map(|micros| Duration::from_micros(micros.into()));
    let steps = steps.into_iter().zip(times).collect();
    let costs = CreateCosts { begin, cage: began.elapsed() - begin, steps };
    tracing::debug!(sandbox = %id, ?costs, "cage stands");
    half_made.guest =
        Some(pidfd.try_clone().map_err(|error| error::from_io("could not hold the guest", error))?);
    Ok((Standing { half_made, isolation, pidfd, stream: None }, costs))
}

/// The purpose that a place is made for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum For {
    Sandbox,
    /// A sandbox that nobody has asked for yet: its files are elsewhere, and its name comes later.
    Pool,
}

pub(crate) struct Begun {
    half_made: HalfMade,
    isolation: Isolation,
    /// Names of the cage's steps.
    steps: Vec<String>,
}

/// Everything up to the request to the spawner, on a thread that may block.
pub(crate) fn begin(
    host: &Arc<Host>,
    plan: &SandboxPlan,
    mut half_made: HalfMade,
    purpose: For,
) -> Result<Begun, BackendError> {
    let beneath = host.beneath(plan)?;
    check_rootfs(host, plan, &beneath)?;
    let mut ground = match plan.rootfs {
        RootfsPlan::Host => host.ground()?,
        RootfsPlan::Image | RootfsPlan::Directory { .. } | RootfsPlan::Disk { .. } => host.ground_of_others(),
    };
    mounts::check(&beneath.mounts, &ground, &host.disk_tools)?;
    if purpose == For::Pool {
        ground.sandboxes = host.directories.waiting();
    }

    let disk = decide_disk(host, plan);
    if disk == DiskHold::FileSystem && host.ground.ids != Ids::OwnRange {
        let why = "which can be used only as root where files can be shown with other ids";
        let what = format!("sandbox {} has its files in a disk image, {why}", plan.id);
        return Err(BackendError::Unsupported { what, next: None });
    }
    let network = network::end_of(plan, &host.means.network)?;
    let isolation = isolation(host, plan, &disk, network.as_ref());
    let first_id = half_made.take_range(host)?;
    let what = || format!("could not make the files of sandbox {}", plan.id);
    let directory = ground.sandboxes.join(plan.id.as_str());
    half_made.make_files(host, plan, &disk, directory).map_err(|error| error::from_io(what(), error))?;
    let holds = host.means.holds(&plan.limits);
    let has_image = disk == DiskHold::FileSystem;
    let (affinity, rlimits) = (holds.affinity, holds.rlimits);
    let decided = Decided { first_id, has_image, beneath, affinity, rlimits, network };
    let mut cage = cage::build(plan, &ground, &decided);
    if purpose == For::Pool {
        cage::await_name(&mut cage);
    }
    send(host, half_made, cage, isolation, &plan.limits, ground.skeleton.name())
}

/// The isolation that a sandbox gets.
pub(crate) fn isolation(
    host: &Host,
    plan: &SandboxPlan,
    disk: &DiskHold,
    network: Option<&NetworkEnd>,
) -> Isolation {
    let in_words = network::statement(&plan.network, network);
    let mut isolation = host.means.isolation(&plan.limits, disk, in_words);
    isolation.warnings.extend(network::warning(network));
    isolation
}

/// Makes the spawner build the cage, and gives it the guest's descriptors.
pub(crate) fn send(
    host: &Arc<Host>,
    mut half_made: HalfMade,
    cage: Cage,
    isolation: Isolation,
    limits: &LimitsPlan,
    skeleton: Option<String>,
) -> Result<Begun, BackendError> {
    let (id, cage) = (half_made.id.clone(), Box::new(cage));
    let names = host.directories.place(&id);
    let what = |thing: &str| format!("could not make {thing} of sandbox {id}");
    let first_id = half_made.lease.as_ref().map(IdLease::first_id);
    let steps = cage.steps.iter().map(|step| step.name().to_owned()).collect();
    let named_ports = cage.steps.iter().find_map(|step| match step {
        Step::Network(end) => end.named.clone(),
        _ => None,
    });
    let reply = Arc::new(host.request(&Request::Spawn { cage })?);
    half_made.reply = Some(Arc::clone(&reply));

    // From here on the child builds its cage on another processor, and waits for the rest.
    make_run_directory(&names).map_err(|error| error::from_io(what("the run directory"), error))?;
    let home = Some(host.home.clone());
    let record = Record { isolation: isolation.clone(), first_id, home, skeleton, named_ports };
    record.write(&names).map_err(|error| error::from_io(what("the record"), error))?;
    let listener = listen(&names).map_err(|error| error::from_io(what("the socket"), error))?;
    let pid_file = new_file(&names.pid()).map_err(|error| error::from_io(what("the pid file"), error))?;
    let cgroup = host.means.cgroups.create(id.as_str(), &limits_of(limits)).map_err(error::from_cgroup)?;
    match reply.hand_over(listener.as_fd(), pid_file.as_fd(), &cgroup) {
        // A child that failed earlier has reported why, which is read next.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
        handed => handed.map_err(super::spawner::gone)?,
    }
    Ok(Begun { half_made, isolation, steps })
}

fn check_rootfs(host: &Host, plan: &SandboxPlan, beneath: &Beneath) -> Result<(), BackendError> {
    let n_lowers = beneath.image.len() + beneath.root.len();
    let n_bytes: usize = beneath.image.iter().chain(&beneath.root).map(|path| path.as_os_str().len()).sum();
    if n_bytes > MAX_LOWER_BYTES {
        let what = format!("the names of the {n_lowers} layers take {n_bytes} bytes; {MAX_LOWER_BYTES} fit");
        let next = Some(Next::Advice(
            "Use a home with a shorter path (WARREN_HOME), or an image of fewer layers.".to_owned(),
        ));
        return Err(BackendError::Unsupported { what, next });
    }
    if n_lowers > MAX_LOWERS {
        let what =
            format!("the image has {n_lowers} layers with the snapshots over it; at most {MAX_LOWERS} work");
        let next = Some(Next::Advice(
            "Use an image of fewer layers, or make one of what the sandbox has.".to_owned(),
        ));
        return Err(BackendError::Unsupported { what, next });
    }
    if let RootfsPlan::Directory { path, .. } | RootfsPlan::Disk { image: path, .. } = &plan.rootfs
        && let Some(why) = mounts::why_hidden(path, &host.ground)
    {
        let what = format!("{} cannot be a root file system: {why}", path.display());
        let next = Some(Next::Advice("Move it elsewhere, or import it as an image.".to_owned()));
        return Err(BackendError::Unsupported { what, next });
    }
    if let RootfsPlan::Disk { image, .. } = &plan.rootfs
        && host.ground.ids != Ids::OwnRange
    {
        let why = match host.ground.ids {
            Ids::Shared(_) => "only root can mount one",
            Ids::OwnRange | Ids::Host => "files cannot be shown with a sandbox's own ids here",
        };
        let what = format!("the disk image {} cannot be a root file system: {why}", image.display());
        let next = Some(Next::Advice("Unpack it into a directory or an image, and use that.".to_owned()));
        return Err(BackendError::Unsupported { what, next });
    }
    Ok(())
}

/// A sandbox keeps the way it was made: its files are where they are.
fn decide_disk(host: &Host, plan: &SandboxPlan) -> DiskHold {
    let files = host.files(&plan.id);
    if files.image.exists() {
        return DiskHold::FileSystem;
    }
    match &host.disk_tools {
        _ if !plan.limits.disk_is_hard => DiskHold::Accounting { note: None },
        Err(why) => DiskHold::Accounting { note: Some(format!("Held by measuring: {why}.")) },
        Ok(_) if files.own.exists() => {
            DiskHold::Accounting { note: Some("Held by measuring, as when the sandbox was made.".to_owned()) }
        }
        Ok(_mkfs) => DiskHold::FileSystem,
    }
}

pub(super) fn limits_of(limits: &LimitsPlan) -> CgroupLimits {
    CgroupLimits {
        memory_bytes: limits.memory.bytes(),
        swap_bytes: limits.swap.bytes(),
        cpu_millis: limits.cpus.millis,
        pids: limits.pids,
    }
}

/// An earlier run of the sandbox may have left one; its socket and pid are useless now.
fn make_run_directory(names: &PlaceNames) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.mode(0o700);
    match builder.create(&names.run) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            fs::remove_dir_all(&names.run)?;
            builder.create(&names.run)
        }
        made => made,
    }
}

fn listen(names: &PlaceNames) -> io::Result<OwnedFd> {
    let reach = socket::reachable(&names.socket())?;
    Ok(UnixListener::bind(reach.path())?.into())
}

fn new_file(path: &Path) -> io::Result<OwnedFd> {
    Ok(fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?.into())
}

/// Undoes everything if it is dropped before [`HalfMade::keep`].
#[derive(Debug)]
pub(crate) struct HalfMade {
    host: Option<Arc<Host>>,
    id: SandboxId,
    /// The sandbox's own files, or their topmost directory that did not exist before.
    made_files: Option<PathBuf>,
    /// Where the child reports. Its end closes when the child ends, or has become the guest.
    reply: Option<Arc<jail::ReplySocket>>,
    /// The guest, once it reported.
    guest: Option<OwnedFd>,
    /// Not released before the child is gone.
    lease: Option<IdLease>,
    /// Nobody makes the same sandbox meanwhile.
    turn: Option<OwnedMutexGuard<()>>,
}

impl HalfMade {
    pub(crate) fn new(host: Arc<Host>, id: SandboxId, turn: OwnedMutexGuard<()>) -> Self {
        Self {
            host: Some(host),
            id,
            turn: Some(turn),
            made_files: None,
            reply: None,
            guest: None,
            lease: None,
        }
    }

    pub(crate) fn id(&self) -> &SandboxId {
        &self.id
    }

    /// Takes a range of ids, for a root daemon; returns its first id.
    pub(crate) fn take_range(&mut self, host: &Host) -> Result<Option<u32>, BackendError> {
        self.lease = match host.ground.ids {
            // With the host's own ids, the range still owns the user namespace.
            Ids::OwnRange | Ids::Host => {
                Some(host.ranges.take(&self.id).ok_or_else(|| BackendError::Exhausted {
                    what: "every range of host ids is taken by a sandbox".to_owned(),
                    next: Some(Next::Advice("Stop sandboxes that are not needed.".into())),
                })?)
            }
            Ids::Shared(_) => None,
        };
        Ok(self.lease.as_ref().map(IdLease::first_id))
    }

    fn keep(mut self) -> Option<IdLease> {
        self.host = None;
        self.lease.take()
    }

    async fn answer(&mut self) -> Result<(Reply, Vec<OwnedFd>), BackendError> {
        match self.reply.clone() {
            Some(reply) => receive(reply).await,
            None => Err(super::spawner::gone(io::ErrorKind::UnexpectedEof.into())),
        }
    }

    /// Moves everything to be undone into a value whose own drop does nothing.
    fn take(&mut self) -> Option<(Arc<Host>, Self)> {
        let host = self.host.take()?;
        let taken = Self {
            host: None,
            id: self.id.clone(),
            made_files: self.made_files.take(),
            reply: self.reply.take(),
            guest: self.guest.take(),
            lease: self.lease.take(),
            turn: self.turn.take(),
        };
        Some((host, taken))
    }

    /// Nothing is undone when this is dropped, until [`HalfMade::watch_again`].
    pub(crate) fn let_be(&mut self) {
        self.host = None;
    }

    pub(crate) fn watch_again(&mut self, host: &Arc<Host>) {
        self.host = Some(Arc::clone(host));
    }

    pub(crate) fn reply(&self) -> Option<Arc<jail::ReplySocket>> {
        self.reply.clone()
    }

    /// Moves its files, which nobody but the guest knows, to where those of a sandbox are.
    pub(crate) fn move_files(&mut self, host: &Host) -> io::Result<()> {
        let (from, to) =
            (host.directories.waiting().join(self.id.as_str()), host.directories.sandbox(&self.id));
        let own = FileNames::of(&to).own;
        match fs::rename(FileNames::of(&from).own, &own) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                fs::create_dir_all(&to)?;
                fs::rename(FileNames::of(&from).own, &own)?;
            }
            moved => moved?,
        }
        self.made_files = Some(own);
        fs::remove_dir(from)
    }

    /// Ends the guest, without waiting for it or anything else: the next daemon clears away what is left.
    pub(crate) fn kill(&self) {
        if let Some(guest) = &self.guest {
            let _dead = rustix::process::pidfd_send_signal(guest, rustix::process::Signal::KILL);
        }
    }

    /// Undoes everything and waits for that, for a while; a child that does not end is left to the background.
    pub(crate) async fn undo(mut self) {
        if let Some((host, taken)) = self.take() {
            drop(tokio::time::timeout(END_TIME, tokio::spawn(taken.take_back(host))).await);
        }
    }

    async fn take_back(mut self, host: Arc<Host>) {
        self.end_child().await;
        let (worker, id) = (Arc::clone(&host), self.id.clone());
        drop(tokio::task::spawn_blocking(move || instance::clean(&worker, &id)).await);
        if let Some(path) = self.made_files.take() {
            drop(host.ask(&Request::Remove { path }).await);
        }
    }

    /// Returns when the child is gone, whether it was still starting or already the guest.
    async fn end_child(&mut self) {
        if let Some(reply) = self.reply.take()
            && self.guest.is_none()
        {
            // A child still waiting for its guest's descriptors gives up; one that has them reports, or dies.
            let _closed = rustix::net::shutdown(&*reply, rustix::net::Shutdown::Write);
            if let Ok((_ready, descriptors)) = receive(reply).await {
                self.guest = descriptors.into_iter().next();
            }
        }
        if let Some(guest) = self.guest.take()
            && sweep::kill_and_wait(guest).await == sweep::Ended::No
        {
            tracing::error!(sandbox = %self.id, "the guest of a sandbox that was given up does not end");
        }
    }

    fn make_files(
        &mut self,
        host: &Host,
        plan: &SandboxPlan,
        disk: &DiskHold,
        directory: PathBuf,
    ) -> io::Result<()> {
        let files = FileNames::of(&directory);
        if let (DiskHold::FileSystem, Ok(mkfs)) = (disk, &host.disk_tools) {
            if files.image.exists() {
                return disk::await_free(&files.image);
            }
            let is_new = !directory.exists();
            fs::create_dir_all(&directory)?;
            self.made_files = Some(if is_new { directory } else { files.image.clone() });
            return disk::make_image(mkfs, &host.directories.layers(), plan.limits.disk, &files.image);
        }
        match fs::create_dir(&files.own) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.made_files = Some(directory);
                fs::create_dir_all(&files.own)?;
            }
            made => {
                made?;
                self.made_files = Some(files.own.clone());
            }
        }
        for (name, mode) in own_directories(plan) {
            let directory = files.own.join(name);
            fs::create_dir(&directory)?;
            // Set separately: our umask must not remove bits.
            fs::set_permissions(&directory, fs::Permissions::from_mode(mode))?;
        }
        for (name, text) in own_files(&plan.hostname) {
            fs::write(files.own.join(name), text)?;
        }
        Ok(())
    }
}

impl Drop for HalfMade {
    /// For an abandoned request: nobody waits, so it is undone in the background. A later run of the same sandbox
    /// waits.
    fn drop(&mut self) {
        let Some((host, taken)) = self.take() else { return };
        // Without a runtime the daemon is ending, and the next one sweeps.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(taken.take_back(host));
        }
    }
}

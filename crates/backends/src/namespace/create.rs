//! Making one sandbox, and unmaking it when that fails half-way.

use std::{
    fs, io,
    os::fd::{AsFd as _, OwnedFd},
    os::unix::{
        fs::{DirBuilderExt as _, OpenOptionsExt as _},
        net::UnixListener,
    },
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use jail::{Reply, Request, cgroup::CgroupLimits};
use sandbox::{BackendError, Isolation, LimitsPlan, RootfsPlan, SandboxId, SandboxPlan};

use super::{
    Host,
    cage::{self, Decided, Ids, MAX_LAYERS},
    disk, error,
    ids::IdLease,
    instance::{self, NamespaceInstance},
    names::{FileNames, OWN_DIRECTORIES, PlaceNames, own_files},
    receive,
    record::Record,
    socket,
    statement::DiskHold,
    unexpected,
};

/// A cage takes milliseconds; a host that needs longer than this is not working.
const CREATE_TIME: Duration = Duration::from_secs(30);

pub(crate) fn explain(host: &Host, plan: &SandboxPlan) -> Vec<String> {
    let holds = host.means.holds(&plan.limits);
    let decided = Decided {
        first_id: None,
        has_image: decide_disk(host, plan) == DiskHold::FileSystem,
        affinity: holds.affinity,
        rlimits: holds.rlimits,
    };
    let steps = cage::prepare_steps(&host.ground.stage).into_iter().map(|step| format!("once: {step}"));
    steps.chain(cage::build(plan, &host.ground, &decided).steps.iter().map(ToString::to_string)).collect()
}

/// What making one sandbox took, for `bench` and `doctor`.
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
    instance::wait_for_cleaning(host, &plan.id).await;
    let (worker, plan, directory) = (Arc::clone(host), plan.clone(), plan.directory.clone());
    let begun =
        tokio::task::spawn_blocking(move || begin(&worker, &plan)).await.map_err(error::from_join)??;
    let begin = began.elapsed();
    let Begun { half_made, reply, isolation, lease, steps } = begun;
    let id = half_made.id.clone();
    let what = format!("making sandbox {id}");
    let answered = match tokio::time::timeout(CREATE_TIME, receive(reply)).await {
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
    half_made.keep();
    Ok((NamespaceInstance::new(Arc::clone(host), id, directory, isolation, pidfd, lease)?, costs))
}

struct Begun {
    half_made: HalfMade,
    reply: jail::ReplySocket,
    isolation: Isolation,
    lease: Option<IdLease>,
    /// Names of the cage's steps.
    steps: Vec<String>,
}

/// Everything up to the request to the spawner, on a thread that may block.
fn begin(host: &Arc<Host>, plan: &SandboxPlan) -> Result<Begun, BackendError> {
    if let RootfsPlan::Layers { layers } = &plan.rootfs
        && !(1..=MAX_LAYERS).contains(&layers.len())
    {
        let what = format!("an image of {} layers; 1 to {MAX_LAYERS} can be used", layers.len());
        return Err(BackendError::Unsupported { what, hint: None });
    }
    let names = host.directories.place(&plan.id);
    let what = |thing: &str| format!("could not make {thing} of sandbox {}", plan.id);
    let mut half_made = HalfMade { host: Some(Arc::clone(host)), id: plan.id.clone(), made_files: None };

    let disk = decide_disk(host, plan);
    let isolation = host.means.isolation(&plan.limits, &disk);
    let lease = match host.ground.ids {
        Ids::OwnRange => Some(host.ranges.take(&plan.id).ok_or_else(|| BackendError::Exhausted {
            what: "every range of host ids is taken by a sandbox".to_owned(),
            hint: Some("Stop sandboxes that are not needed.".to_owned()),
        })?),
        Ids::Shared(_) | Ids::Host => None,
    };
    let first_id = lease.as_ref().map(IdLease::first_id);

    half_made.make_files(host, plan, &disk).map_err(|error| error::from_io(what("the files"), error))?;
    let holds = host.means.holds(&plan.limits);
    let has_image = disk == DiskHold::FileSystem;
    let decided = Decided { first_id, has_image, affinity: holds.affinity, rlimits: holds.rlimits };
    let cage = Box::new(cage::build(plan, &host.ground, &decided));
    let steps = cage.steps.iter().map(|step| step.name().to_owned()).collect();
    let reply = host.spawner.request(&Request::Spawn { cage }, &[]).map_err(super::spawner_gone)?;

    // From here on the child builds its cage on another processor, and waits for what follows.
    make_run_directory(&names).map_err(|error| error::from_io(what("the run directory"), error))?;
    let record = Record { isolation: isolation.clone(), first_id };
    record.write(&names).map_err(|error| error::from_io(what("the record"), error))?;
    let listener = listen(&names).map_err(|error| error::from_io(what("the socket"), error))?;
    let pid_file = new_file(&names.pid()).map_err(|error| error::from_io(what("the pid file"), error))?;
    let limits = limits_of(&plan.limits);
    let cgroup = host.means.cgroups.create(plan.id.as_str(), &limits).map_err(error::from_cgroup)?;
    let enter: Vec<_> = cgroup.enter.iter().map(OwnedFd::as_fd).collect();
    let oom_counter = cgroup.oom_counter.as_ref().map(OwnedFd::as_fd);
    match reply.hand_over(listener.as_fd(), pid_file.as_fd(), oom_counter, &enter) {
        // A child that failed before has said why, which is read next.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
        handed => handed.map_err(super::spawner_gone)?,
    }
    Ok(Begun { half_made, reply, isolation, lease, steps })
}

/// A sandbox that was made one way stays that way: its files are where they are.
fn decide_disk(host: &Host, plan: &SandboxPlan) -> DiskHold {
    let files = FileNames::of(&plan.directory);
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

fn limits_of(limits: &LimitsPlan) -> CgroupLimits {
    CgroupLimits {
        memory_bytes: limits.memory.bytes(),
        swap_bytes: limits.swap.bytes(),
        cpu_millis: limits.cpus.millis,
        pids: limits.pids,
    }
}

/// An earlier life of the sandbox may have left one; its socket and pid are worth nothing now.
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

/// Takes back what was made when it is dropped before [`HalfMade::keep`].
struct HalfMade {
    host: Option<Arc<Host>>,
    id: SandboxId,
    /// The sandbox's own files, or their topmost directory that was not there before.
    made_files: Option<PathBuf>,
}

impl HalfMade {
    fn keep(mut self) {
        self.host = None;
    }

    /// Takes everything back and waits until it is gone.
    async fn undo(mut self) {
        let Some(host) = self.host.take() else { return };
        let (worker, id) = (Arc::clone(&host), self.id.clone());
        drop(tokio::task::spawn_blocking(move || instance::clean(&worker, &id)).await);
        if let Some(path) = self.made_files.take() {
            drop(host.ask(&Request::Remove { path }).await);
        }
    }

    fn make_files(&mut self, host: &Host, plan: &SandboxPlan, disk: &DiskHold) -> io::Result<()> {
        let files = FileNames::of(&plan.directory);
        if let (DiskHold::FileSystem, Ok(mkfs)) = (disk, &host.disk_tools) {
            if files.image.exists() {
                return Ok(());
            }
            let is_new = !plan.directory.exists();
            self.made_files = Some(if is_new { plan.directory.clone() } else { files.image.clone() });
            fs::create_dir_all(&plan.directory)?;
            return disk::make_image(mkfs, &host.directories.layers(), plan.limits.disk, &files.image);
        }
        match fs::create_dir(&files.own) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.made_files = Some(plan.directory.clone());
                fs::create_dir_all(&files.own)?;
            }
            made => {
                made?;
                self.made_files = Some(files.own.clone());
            }
        }
        for name in OWN_DIRECTORIES {
            fs::create_dir(files.own.join(name))?;
        }
        for (name, text) in own_files(&plan.hostname) {
            fs::write(files.own.join(name), text)?;
        }
        Ok(())
    }
}

impl Drop for HalfMade {
    /// For a request that was given up: nobody waits, so nothing here does. A child that is still on its way finds nobody to
    /// report to and ends.
    fn drop(&mut self) {
        let Some(host) = self.host.take() else { return };
        instance::clean(&host, &self.id);
        if let Some(path) = self.made_files.take() {
            drop(host.spawner.request(&Request::Remove { path }, &[]));
        }
    }
}

//! No sandbox at all: our guest as a plain process of the host, with a directory of its own.
//!
//! Everything that runs in it sees and can change what the daemon's user can. It needs no privilege and no support of
//! the kernel, which makes it good for tests and for trying clients out, and for nothing else. It is never chosen by
//! default, and each of its sandboxes says what it is.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    os::{fd::AsFd as _, unix::process::CommandExt as _},
    path::PathBuf,
    process::{Command, Stdio},
    sync::Arc,
    time::{Duration, Instant},
};

use async_trait::async_trait;
use rustix::process::{Pid, Signal, kill_process};
use sandbox::{
    Backend, BackendError, BackendKind, Capabilities, Enforcement, GuestStream, Instance, Isolation,
    LimitKind, LimitStatement, LimitsPlan, NetworkHold, Next, RootfsPlan, SandboxId, SandboxPlan, Usage,
    Walls,
};
use tracing::Instrument as _;

use crate::{
    guest_process::{self, GuestProcess, listen, make_private},
    namespace::{
        Directories, error,
        names::PlaceNames,
        record::{Record, read_pid},
        sweep,
    },
};

const NO_WALLS: &str = "NO ISOLATION: what runs here is a plain process of the host. It can read and change everything that the \
    daemon's user can, use the network, and take all memory and disk. Never run anything here that you would not run yourself.";
/// How long processes may take to die.
const END_TIME: Duration = Duration::from_secs(10);
/// Between two looks at what is left of them.
const LOOK_EVERY: Duration = Duration::from_millis(5);

#[derive(Debug)]
pub struct ProcessBackend(Arc<Host>);

#[derive(Debug)]
struct Host {
    directories: Directories,
    /// The home as written into the record of each of its sandboxes.
    home: String,
    /// Arguments by which this very program becomes the guest, see `guest::run_program`.
    role: Vec<String>,
}

impl ProcessBackend {
    pub fn new(directories: Directories, role: &[&str]) -> Result<Self, BackendError> {
        let kind = BackendKind::Process;
        let directories = Directories { run: directories.run.join(kind.as_str()), ..directories };
        make_private(&directories.run)
            .map_err(|error| error::from_io(format!("could not prepare the back end {kind}"), error))?;
        let home = directories.home.canonicalize().unwrap_or_else(|_missing| directories.home.clone());
        let role = role.iter().map(|word| (*word).to_owned()).collect();
        Ok(Self(Arc::new(Host { home: home.to_string_lossy().into_owned(), directories, role })))
    }
}

impl Host {
    fn place(&self, id: &SandboxId) -> PlaceNames {
        self.directories.place(id)
    }

    /// The sandbox's own directory. Named for the back end: no other one can use it.
    fn files(&self, id: &SandboxId) -> PathBuf {
        self.directories.sandboxes().join(id.as_str()).join(BackendKind::Process.as_str())
    }

    fn start(&self, plan: &SandboxPlan, isolation: &Isolation) -> io::Result<tokio::process::Child> {
        let (place, files) = (self.place(&plan.id), self.files(&plan.id));
        make_private(&place.run)?;
        make_private(&files)?;
        let record = Record {
            isolation: isolation.clone(),
            first_id: None,
            home: Some(self.home.clone()),
            skeleton: None,
            named_ports: None,
        };
        record.write(&place)?;
        let listener = listen(&place)?;
        let mut command = Command::new("/proc/self/exe");
        command.args(&self.role).args(["--fd", "3", "--pid-file"]).arg(place.pid()).arg("--home").arg(&files);
        let open_files = plan.limits.open_files;
        command.args(["--rlimit".to_owned(), format!("{}:{open_files}:{open_files}", libc::RLIMIT_NOFILE)]);
        command.args(["--rlimit".to_owned(), format!("{}:0:0", libc::RLIMIT_CORE)]);
        jail::inherit(&mut command, &[listener.as_fd()])?;
        // Not in the daemon's process group: a Ctrl-C at its terminal is not meant for sandboxes, which outlive it.
        command.process_group(0).env_clear().current_dir(&files);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = tokio::process::Command::from(command).spawn()?;
        if let Some(pid) = child.id().and_then(|pid| i32::try_from(pid).ok()) {
            guest_process::write_pid(pid, &place.pid())?;
        }
        Ok(child)
    }

    /// Kills everything that descends from a sandbox's guest, then the guest, and removes its traces; its files stay.
    async fn clear(&self, id: &SandboxId) -> Result<(), BackendError> {
        let place = self.place(id);
        if let (Some(guest), Some((pid, _))) = (GuestProcess::find(id, &place), read_pid(&place.pid())) {
            let began = Instant::now();
            // The guest adopts orphans, so its descendants are all of them.
            while began.elapsed() < END_TIME {
                let left = descendants(pid);
                if left.is_empty() {
                    break;
                }
                for process in left.into_iter().filter_map(Pid::from_raw) {
                    let _dead_already = kill_process(process, Signal::KILL);
                }
                tokio::time::sleep(LOOK_EVERY).await;
            }
            guest.kill().await?;
        }
        match fs::remove_dir_all(&place.run) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(error::from_io(format!("could not clear away what is left of {id}"), error))
            }
            _ => Ok(()),
        }
    }
}

/// The living processes below one, the dead that wait to be reaped not counted.
fn descendants(of: i32) -> BTreeSet<i32> {
    let pids = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let mut children: BTreeMap<i32, Vec<i32>> = BTreeMap::new();
    for pid in pids {
        let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else { continue };
        // The name in brackets may hold anything.
        let Some((_, rest)) = stat.rsplit_once(')') else { continue };
        let mut words = rest.split_ascii_whitespace();
        let (state, parent) = (words.next(), words.next().and_then(|word| word.parse().ok()));
        if let (Some(parent), false) = (parent, state == Some("Z")) {
            children.entry(parent).or_default().push(pid);
        }
    }
    let (mut found, mut waiting) = (BTreeSet::new(), vec![of]);
    while let Some(pid) = waiting.pop() {
        for child in children.remove(&pid).unwrap_or_default() {
            found.insert(child);
            waiting.push(child);
        }
    }
    found
}

/// Refuses what needs a root file system or walls.
fn check(plan: &SandboxPlan) -> Result<(), BackendError> {
    let refused = if plan.rootfs != RootfsPlan::Host {
        format!("the image {}", plan.image)
    } else if !plan.above.is_empty() {
        "a snapshot".to_owned()
    } else if let Some(mount) = plan.mounts.first() {
        format!("the mount {}", mount.guest_path)
    } else if plan.limits.disk_is_hard {
        format!("a disk limit ({})", plan.limits.disk)
    } else {
        return Ok(());
    };
    Err(BackendError::Unsupported {
        what: format!("the back end process has no walls and no root file system: it cannot hold {refused}"),
        next: Some(Next::Advice("Leave it out, or use the back end namespace.".to_owned())),
    })
}

fn isolation(limits: &LimitsPlan) -> Isolation {
    let not_held = |limit, value| {
        let note = Some("There are no walls that could hold it.".to_owned());
        LimitStatement { limit, value, enforcement: Enforcement::NotHeld, note }
    };
    let open_files = u64::from(limits.open_files);
    Isolation {
        backend: BackendKind::Process,
        walls: Walls::Nothing,
        rootless: !rustix::process::geteuid().is_root(),
        id_map: "host".to_owned(),
        namespaces: Vec::new(),
        capabilities: Vec::new(),
        no_new_privileges: false,
        seccomp: None,
        network: NetworkHold::Host,
        cgroups: "none".to_owned(),
        limits: vec![
            not_held(LimitKind::Memory, limits.memory.bytes()),
            not_held(LimitKind::Swap, limits.swap.bytes()),
            not_held(LimitKind::Cpus, limits.cpus.millis.into()),
            not_held(LimitKind::Pids, limits.pids.into()),
            LimitStatement {
                limit: LimitKind::OpenFiles,
                value: open_files,
                enforcement: Enforcement::Rlimit,
                note: None,
            },
            not_held(LimitKind::Disk, limits.disk.bytes()),
            not_held(LimitKind::Tmp, limits.tmp.bytes()),
            not_held(LimitKind::Shm, limits.shm.bytes()),
        ],
        warnings: vec![NO_WALLS.to_owned()],
    }
}

#[async_trait]
impl Backend for ProcessBackend {
    fn kind(&self) -> BackendKind {
        BackendKind::Process
    }

    async fn probe(&self) -> Result<Capabilities, BackendError> {
        Ok(Capabilities {
            backend: BackendKind::Process,
            has: Vec::new(),
            missing: vec![NO_WALLS.to_owned()],
        })
    }

    async fn create(&self, plan: &SandboxPlan) -> Result<Box<dyn Instance>, BackendError> {
        check(plan)?;
        let host = &self.0;
        host.clear(&plan.id).await?;
        let isolation = isolation(&plan.limits);
        let made = async {
            let started = host.start(plan, &isolation);
            let mut child = started.map_err(|error| {
                error::from_io(format!("could not start the guest of {}", plan.id), error)
            })?;
            let guest = GuestProcess::find(&plan.id, &host.place(&plan.id));
            // Somebody has to reap it, for as long as this daemon is its parent.
            tokio::spawn(async move { child.wait().await });
            let guest = guest.ok_or_else(|| BackendError::Gone(plan.id.clone()))?;
            let waiting = tracing::info_span!(target: "trace", "guest ready");
            guest.answers().instrument(waiting).await?;
            Ok(guest)
        };
        match made.await {
            Ok(guest) => Ok(Box::new(ProcessInstance { host: Arc::clone(host), guest, isolation })),
            Err(error) => {
                host.clear(&plan.id).await?;
                Err(error)
            }
        }
    }

    async fn adopt(&self, plan: &SandboxPlan) -> Result<Option<Box<dyn Instance>>, BackendError> {
        let adopted = guest_process::adopt(&plan.id, &self.0.place(&plan.id)).await;
        Ok(adopted.map(|(guest, isolation)| {
            Box::new(ProcessInstance { host: Arc::clone(&self.0), guest, isolation }) as Box<dyn Instance>
        }))
    }

    async fn sweep(&self, alive: &[SandboxId], known: &[SandboxId]) -> Result<Vec<SandboxId>, BackendError> {
        let host = &self.0;
        let is_left = |id: &SandboxId| {
            !alive.contains(id) && !guest_process::is_of_other_home(&host.place(id), &host.home)
        };
        let mut removed = BTreeSet::new();
        for id in sweep::ids_in(&host.directories.run).into_iter().filter(is_left) {
            host.clear(&id).await?;
            removed.insert(id);
        }
        let (sandboxes, own) = (host.directories.sandboxes(), BackendKind::Process.as_str());
        removed.extend(guest_process::remove_strangers(&sandboxes, own, &[alive, known]).await?);
        Ok(removed.into_iter().collect())
    }

    async fn remove(&self, id: &SandboxId) -> Result<(), BackendError> {
        self.0.clear(id).await?;
        guest_process::remove_files(id, self.0.directories.sandbox(id)).await
    }
}

#[derive(Debug)]
struct ProcessInstance {
    host: Arc<Host>,
    guest: GuestProcess,
    isolation: Isolation,
}

#[async_trait]
impl Instance for ProcessInstance {
    fn isolation(&self) -> &Isolation {
        &self.isolation
    }

    async fn connect(&self) -> Result<GuestStream, BackendError> {
        self.guest.connect().await
    }

    async fn stop(&self) -> Result<(), BackendError> {
        self.host.clear(&self.guest.id).await
    }

    async fn pause(&self) -> Result<(), BackendError> {
        Err(BackendError::Unsupported {
            what: "the back end process cannot pause: nothing holds its processes together".to_owned(),
            next: Some(Next::UseBackend(BackendKind::Namespace)),
        })
    }

    async fn resume(&self) -> Result<(), BackendError> {
        self.pause().await
    }

    async fn usage(&self) -> Result<Usage, BackendError> {
        let files = self.host.files(&self.guest.id);
        let measure = move || guest_process::disk_usage(&files);
        let disk = tokio::task::spawn_blocking(measure).await.map_err(error::from_join)?;
        Ok(Usage { disk_bytes: Some(disk), ..Usage::default() })
    }

    async fn quick_usage(&self) -> Result<Usage, BackendError> {
        Ok(Usage::default())
    }

    async fn ended(&self) {
        self.guest.ended().await;
    }
}

//! The guest: our program inside every sandbox, as its process 1.
//!
//! It listens on a Unix socket that only the host can reach, or uses another [`Transport`], and serves
//! `guest-protocol`: commands with their output and end ([`exec`]), code ([`code`]), files ([`files`]), streams to
//! ports, and the list of processes. It reaps every orphan.
//!
//! It trusts neither the workload around it (which may rename, fill up, stop, kill and fork whatever it can reach) nor
//! the host's connection (which may end at any byte). Neither may stop the guest or lose an exec's output.
//!
//! One thread runs everything, with two exceptions: file operations, which can block, go to a few short-lived threads
//! or to processes charged to the workload; and one thread decides about sockets ([`sockets`]), including ours.

mod background;
mod code;
mod connect;
mod end;
mod exec;
mod files;
mod limits;
mod listen;
mod network;
mod processes;
mod program;
mod reap;
mod server;
mod sftp;
mod sockets;
mod sys;
mod transport;
mod wire;

use std::{cell::Cell, io, os::fd::OwnedFd, rc::Rc};

use guest_protocol::Request;
use rustix::{
    fs::Mode,
    process::{DumpableBehavior, Resource},
};
use tokio::{
    sync::{Notify, Semaphore},
    task::LocalSet,
};

pub use program::{InstallFilter, run_program};
pub use sftp::fuzz_sftp;
pub use sockets::{InternetBudget, SocketGate};
pub use sys::adopt_descriptor;
pub use transport::Transport;

/// The configuration of a guest.
#[derive(Debug)]
pub struct GuestConfig {
    /// How the host reaches it.
    pub transport: Transport,
    /// Open `cgroup.procs` (v2) or `tasks`/`cgroup.procs` (v1) files of the workload's cgroup, one for each hierarchy.
    /// A child writes `0` to each before it execs. May be empty.
    pub workload_cgroup: Vec<OwnedFd>,
    /// The same file of a group that is charged to the workload's memory and never frozen, for our own writes.
    pub memory_cgroup: Option<OwnedFd>,
    /// `memory.oom_control` (v1) or `memory.events` (v2) of the workload's cgroup; both have a line `oom_kill N`.
    pub oom_counter: Option<OwnedFd>,
    /// Limits that every exec gets unless it sets its own: (`RLIMIT_*` number, soft, hard).
    pub rlimits: Vec<(u32, u64, u64)>,
    /// A directory that replaces `/root` in the host's requests if the sandbox has no root file system of its own. Root
    /// is our own user then.
    pub home: Option<String>,
    /// The syscall filter's socket requests, if it supports them.
    pub sockets: Option<SocketGate>,
    /// Sockets of the sandbox's network (close-on-exec), handed to hosts that ask and are connected by a Unix socket.
    pub network: Vec<OwnedFd>,
}

/// The state that all tasks share.
#[derive(Debug)]
pub(crate) struct Guest {
    pub(crate) execs: exec::Execs,
    pub(crate) listeners: listen::Listeners,
    pub(crate) contexts: code::Contexts,
    pub(crate) network: network::Kept,
    pub(crate) workload_cgroup: Vec<OwnedFd>,
    pub(crate) memory_cgroup: Option<OwnedFd>,
    /// One permit for each process that creates or fills files.
    pub(crate) charged_turns: Semaphore,
    oom_counter: Option<OwnedFd>,
    pub(crate) rlimits: Vec<(u32, u64, u64)>,
    home: Option<String>,
    /// Whether we are process 1 of a pid namespace, and may signal every process.
    pub(crate) is_init: bool,
    /// Whether this user namespace lets us set supplementary groups.
    pub(crate) may_set_groups: bool,
    pub(crate) has_children: Cell<bool>,
    pub(crate) children_gone: Notify,
    /// Set by `Shutdown`: nothing new is started.
    pub(crate) is_stopping: Cell<bool>,
    pub(crate) leave: Notify,
    /// Notified when a connection has ended, after which memory may be released.
    pub(crate) was_active: Notify,
}

impl Guest {
    /// A request with its paths translated for this sandbox.
    pub(crate) fn meant(&self, request: Request) -> Request {
        match &self.home {
            Some(home) => at_home(request, home),
            None => request,
        }
    }

    /// The home directory of a user, as it is here.
    pub(crate) fn home_of(&self, uid: u32) -> String {
        match &self.home {
            Some(home) if uid == rustix::process::geteuid().as_raw() => home.clone(),
            _ => exec::user::home(uid),
        }
    }

    /// How many processes of the workload the kernel has killed for lack of memory so far.
    pub(crate) fn oom_kills(&self) -> u64 {
        let Some(counter) = &self.oom_counter else { return 0 };
        let mut buffer = [0; 1024];
        let Ok(n) = rustix::io::pread(counter, &mut buffer, 0) else { return 0 };
        oom_kills_in(&String::from_utf8_lossy(&buffer[..n]))
    }
}

/// Root's home directory, as hosts know it.
const ROOT_HOME: &str = "/root";

/// Replaces `/root` in a request by the directory that stands for it.
fn at_home(mut request: Request, home: &str) -> Request {
    let moved = |path: &str| {
        let rest = path.strip_prefix(ROOT_HOME)?;
        (rest.is_empty() || rest.starts_with('/')).then(|| format!("{home}{rest}"))
    };
    for path in request.paths_mut() {
        *path = moved(path).unwrap_or_else(|| std::mem::take(path));
    }
    let (env, user) = match &mut request {
        Request::ExecStart(start) => (Some(&mut start.env), &mut start.user),
        Request::ContextCreate(start) => (Some(&mut start.env), &mut start.user),
        Request::Sftp { user, .. } => (None, user),
        _ => return request,
    };
    if let Some(variable) = env.and_then(|env| env.get_mut("HOME"))
        && let Some(home) = moved(variable)
    {
        *variable = home;
    }
    // Without walls, root is the user who started the guest.
    let (uid, gid) = (rustix::process::geteuid(), rustix::process::getegid());
    if matches!(user.as_str(), "0" | "0:0" | "root") && !uid.is_root() {
        *user = format!("{}:{}", uid.as_raw(), gid.as_raw());
    }
    request
}

fn oom_kills_in(text: &str) -> u64 {
    text.lines().find_map(|line| line.strip_prefix("oom_kill ")?.trim().parse().ok()).unwrap_or(0)
}

/// Serves until `Shutdown`, or until it is killed.
///
/// Must be called before this process has any thread. Takes over the process's signals and reaps all its children.
pub fn run(config: GuestConfig) -> io::Result<()> {
    sys::occupy_stdio()?;
    sys::share_one_heap();
    let signals = sys::own_signals()?;
    // The workload may be root inside too: without this it could open our descriptors and memory through /proc/1.
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    let is_init = rustix::process::getpid().as_raw_nonzero().get() == 1;
    if !is_init {
        rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
    }
    // Files that we create get the usual modes, whatever umask we inherited.
    rustix::process::umask(Mode::WGRP | Mode::WOTH);
    let rlimits = keep_descriptor_limit(config.rlimits);
    let network = network::Kept::new(config.network, &config.transport);
    let not_counted = network.counted();
    let guest = Rc::new(Guest {
        execs: exec::Execs::default(),
        listeners: listen::Listeners::default(),
        contexts: code::Contexts::default(),
        network,
        workload_cgroup: config.workload_cgroup,
        memory_cgroup: config.memory_cgroup,
        charged_turns: Semaphore::new(limits::MAX_CHARGED),
        oom_counter: config.oom_counter,
        rlimits,
        home: config.home,
        is_init,
        // A user namespace made without privilege forbids it for good; then groups stay as they are. We need none
        // ourselves.
        may_set_groups: rustix::thread::set_thread_groups(&[]).is_ok(),
        has_children: Cell::new(true),
        children_gone: Notify::new(),
        is_stopping: Cell::new(false),
        leave: Notify::new(),
        was_active: Notify::new(),
    });
    if let Some(gate) = config.sockets {
        sockets::guard(gate, not_counted)?;
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let served = LocalSet::new().block_on(&runtime, async {
        tokio::task::spawn_local(reap::reap(Rc::clone(&guest), sys::watched(signals)?));
        tokio::task::spawn_local(tidy(Rc::clone(&guest)));
        config.transport.serve(&guest)?;
        guest.leave.notified().await;
        Ok(())
    });
    // A hanging file operation must not keep us: the process ends with this function.
    runtime.shutdown_background();
    served
}

/// Raises our own limit of open files, and gives every exec the inherited one.
fn keep_descriptor_limit(mut rlimits: Vec<(u32, u64, u64)>) -> Vec<(u32, u64, u64)> {
    let ours = rustix::process::getrlimit(Resource::Nofile);
    let mut wanted = ours;
    wanted.current = match (ours.current, ours.maximum) {
        (Some(soft), hard) if soft < limits::WANTED_DESCRIPTORS => {
            Some(limits::WANTED_DESCRIPTORS.min(hard.unwrap_or(u64::MAX)))
        }
        (soft, _) => soft,
    };
    let is_raised = wanted != ours && rustix::process::setrlimit(Resource::Nofile, wanted).is_ok();
    if is_raised && !rlimits.iter().any(|(resource, ..)| *resource == libc::RLIMIT_NOFILE) {
        let or_none = |limit: Option<u64>| limit.unwrap_or(libc::RLIM64_INFINITY);
        rlimits.push((libc::RLIMIT_NOFILE, or_none(ours.current), or_none(ours.maximum)));
    }
    rlimits
}

/// Releases memory some time after the last connection ended, so that an idle guest holds almost none. Not at once: the
/// next connection would take what the last one left.
async fn tidy(guest: Rc<Guest>) {
    loop {
        guest.was_active.notified().await;
        tokio::time::sleep(limits::TIDY_AFTER).await;
        exec::drop_scratch();
        sys::give_back_memory();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_directory_stands_for_the_home() {
        let moved = |path: &str| {
            let request = at_home(Request::Readlink { path: path.to_owned() }, "/srv/x");
            let Request::Readlink { path } = request else { panic!("{request:?}") };
            path
        };
        assert_eq!(moved("/root"), "/srv/x");
        assert_eq!(moved("/root/a"), "/srv/x/a");
        assert_eq!(moved("/rooted"), "/rooted");
        assert_eq!(moved("/tmp/root"), "/tmp/root");
    }

    #[test]
    fn kills_for_memory_are_read_from_either_cgroup_version() {
        assert_eq!(oom_kills_in("oom_kill_disable 0\nunder_oom 0\noom_kill 3\n"), 3);
        assert_eq!(oom_kills_in("low 0\nhigh 1\nmax 9\noom 7\noom_kill 2\noom_group_kill 5\n"), 2);
        assert_eq!(oom_kills_in("oom_kill_disable 0\nunder_oom 0\n"), 0);
        assert_eq!(oom_kills_in("oom_kill x"), 0);
    }
}

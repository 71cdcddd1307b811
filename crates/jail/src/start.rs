//! Starts the spawner: by exec, so that a daemon with threads can start another one at any time.
//!
//! ```text
//!   daemon ── exec ──→ begin: read-only view of our own program ── exec of that ──→ outer user namespace, serve
//! ```
//!
//! A daemon that is root makes the view itself, and starts the spawner from it with one exec.
//!
//! Guests are clones of the spawner, so `/proc/<pid>/exe` of a guest is the read-only view, never the installed file: a
//! workload that gets hold of it can neither write to it nor change its mode, times or attributes.

use std::{
    fs::File,
    io,
    os::{
        fd::{AsFd as _, AsRawFd as _, OwnedFd},
        unix::process::CommandExt as _,
    },
    process::{Command, Stdio},
};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::{
    child::Handoff,
    outer, own_program,
    packet::{self, Failure},
    privileges,
    spawner::{self, SpawnError, SpawnerHandle, Worker},
    sys::{self, StartedWith},
};

/// The argument that tells a program that it was started as a spawner.
const ROLE: &str = "warren-spawner";
const BEGIN: &str = "begin";
const SERVE: &str = "serve";
/// Bytes for a guest's title: `/proc/<pid>/cmdline` cannot grow.
const TITLE_ROOM: usize = 96;

/// Starts a spawner from the current program, which must call [`run_spawner_role`] first.
///
/// The spawner and all its work in progress hold `lock` open: a process that can lock that file again knows that they
/// are gone. `open_files`: the soft limit of open files for sandboxes.
pub fn start_spawner(lock: File, open_files: Option<u64>) -> Result<SpawnerHandle, SpawnError> {
    let view = own_program::mounted_by_root();
    let (program, role) = match &view {
        Some(view) => (format!("/proc/self/fd/{}", view.as_raw_fd()), SERVE),
        None => ("/proc/self/exe".to_owned(), BEGIN),
    };
    let (ours, theirs) = packet::pair().map_err(SpawnError)?;
    let mut command = Command::new(program);
    command.arg0(ROLE).arg(role).arg(title_room()).args(open_files.map(|limit| limit.to_string()));
    command.env_clear();
    if let Some(path) = std::env::var_os("PATH") {
        // Where `newuidmap` is found.
        command.env("PATH", path);
    }
    command.stdin(theirs).stdout(OwnedFd::from(lock)).stderr(Stdio::null());
    let child = command.spawn().map_err(SpawnError)?;
    Ok(SpawnerHandle::new(ours, child))
}

/// Runs this process as a spawner to its end, if it was started as one; otherwise returns at once.
///
/// Call it first in `main`, while there is one thread. `guest_main` runs in each sandbox as process 1; its return value
/// is the exit code of the sandbox.
pub fn run_spawner_role(guest_main: fn(Handoff) -> i32, worker: Worker) {
    let mut words = std::env::args();
    if words.next().as_deref() != Some(ROLE) {
        return;
    }
    let (role, _room, open_files) = (words.next(), words.next(), words.next());
    let started = match role.as_deref() {
        Some(BEGIN) => begin(open_files.as_deref()),
        Some(SERVE) => take_over(open_files.as_deref()),
        _ => sys::exit_now(2),
    };
    let socket = match take_descriptors() {
        Ok(socket) => socket,
        Err(_nobody_to_tell) => sys::exit_now(1),
    };
    sys::exit_now(spawner::serve(socket, guest_main, worker, started))
}

fn title_room() -> String {
    " ".repeat(TITLE_ROOM)
}

/// Executes the same program from a view that nobody can change. Returns only with an error: a spawner that cannot work
/// stays alive to report it.
fn begin(open_files: Option<&str>) -> Result<StartedWith, Failure> {
    let at = |step: &'static str| move |error: io::Error| Failure::new(step, &error);
    let program = own_program::unchangeable().map_err(at("show our own program read-only"))?;
    let room = title_room();
    let words: Vec<_> = [ROLE, SERVE, &room].into_iter().chain(open_files).collect();
    Err(at("start our own program again")(sys::exec_file(program.as_fd(), &words)))
}

/// Runs from the view. Leaves the daemon's session and enters the namespaces ([`own_program::unchangeable`] says why
/// not before the exec). Then only room for a title is left of the daemon's arguments and environment.
fn take_over(open_files: Option<&str>) -> Result<StartedWith, Failure> {
    let at = |step: &'static str| move |error: io::Error| Failure::new(step, &error);
    sys::reset_signals();
    // Fails only for a group leader, which a forked child is not.
    let _session = rustix::process::setsid();
    rustix::process::chdir("/").map_err(|error| at("enter /")(error.into()))?;
    if let Some(limit) = open_files.and_then(|limit| limit.parse().ok()) {
        let maximum = getrlimit(Resource::Nofile).maximum;
        setrlimit(Resource::Nofile, Rlimit { current: Some(limit), maximum })
            .map_err(|error| at("limit open files")(error.into()))?;
    }
    outer::enter().map_err(at("enter the user namespace"))?;
    sys::ignore_children();
    sys::set_process_name(c"warren-spawner");
    privileges::refuse_cores();
    let started_with = StartedWith::find().map_err(at("find where the title is kept"))?;
    started_with.replace("warren: spawner");
    Ok(started_with)
}

/// The socket came as standard input and the lock as standard output; both move to other numbers, and nothing else
/// stays open.
fn take_descriptors() -> io::Result<OwnedFd> {
    sys::close_range(3, u32::MAX)?;
    let socket = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3)?;
    let lock = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdout(), 3)?;
    // Held until the last process that does our work is gone.
    std::mem::forget(lock);
    let null = rustix::fs::open("/dev/null", rustix::fs::OFlags::RDWR, rustix::fs::Mode::empty())?;
    for standard in [rustix::stdio::dup2_stdin, rustix::stdio::dup2_stdout, rustix::stdio::dup2_stderr] {
        standard(&null)?;
    }
    Ok(socket)
}

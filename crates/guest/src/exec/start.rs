//! Starting a command: pipes or a terminal, a fork, and the child's report.

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
    rc::Rc,
    time::Duration,
};

use guest_protocol::{ExecEvent, ExecStart, Failure, FailureKind, Response, StartFailure, TerminalSize};
use rustix::{
    fs::{FileType, Mode, OFlags},
    io::Errno,
    pipe::PipeFlags,
    pty::OpenptFlags,
    termios::Winsize,
};
use tokio::{io::unix::AsyncFd, task::spawn_local};

use super::{
    Cause, Exec, Inner,
    output::{Output, Stream, pump},
    plan::{self, Command, Refusal, not_started},
    rlimits, shown,
    stdin::Stdin,
};
use crate::{
    Guest,
    files::changed::Tracker,
    limits::MAX_EXECS,
    sys::{self, ChildFailure, ChildPlan, Stage},
};

/// Starts a command, or answers as the first time when the id is known.
pub(crate) async fn start(guest: &Rc<Guest>, request: ExecStart) -> Result<Response, Failure> {
    // Before the look for a known id: nothing may wait between that and the fork.
    let tracker = match request.track_files {
        true => Some(Tracker::begin(&request.cwd).await),
        false => None,
    };
    if let Ok(exec) = guest.execs.find(&request.id) {
        return Ok(exec.until(|inner| inner.answer.clone()).await);
    }
    if let Some(answer) = guest.execs.remembered_failure(&request.id) {
        return Ok(answer);
    }
    if guest.is_stopping.get() {
        return Err(Failure::new(FailureKind::WrongState, "the sandbox is being stopped"));
    }
    if guest.execs.known.borrow().len() >= MAX_EXECS {
        let message = format!("{MAX_EXECS} execs are known already; acknowledge some");
        return Err(Failure::new(FailureKind::LimitReached, message));
    }
    let command = match plan::command(&request, &guest.rlimits) {
        Ok(command) => command,
        Err(Refusal::Invalid(failure)) => return Err(failure),
        Err(Refusal::NotStarted(answer)) => return Ok(refused(guest, &request.id, answer)),
    };
    match fork(guest, &request, command, tracker) {
        Ok(exec) => Ok(exec.until(|inner| inner.answer.clone()).await),
        Err(error) => {
            let message = format!("could not start {}: {error}", shown(&request.command[0]));
            Ok(refused(guest, &request.id, not_started(reason_of(error.raw_os_error()), message)))
        }
    }
}

fn refused(guest: &Guest, id: &str, answer: Response) -> Response {
    guest.execs.remember_failure(id, answer.clone());
    answer
}

/// The ends of an exec's pipes or terminal: ours and the child's.
struct Ends {
    stdin: Stdin,
    outputs: Vec<Output>,
    terminal: Option<Rc<AsyncFd<OwnedFd>>>,
    child_stdin: OwnedFd,
    child_stdout: OwnedFd,
    child_stderr: OwnedFd,
}

/// Makes the child and registers the exec, without waiting. What follows does not depend on the host's connection.
fn fork(
    guest: &Rc<Guest>,
    request: &ExecStart,
    command: Command,
    tracker: Option<Tracker>,
) -> io::Result<Rc<Exec>> {
    let ends = match request.terminal {
        Some(size) => open_terminal(size)?,
        None => open_pipes(request.stdin)?,
    };
    let (report, child_report) = our_read_end()?;
    let oom_kills_before = guest.oom_kills();
    let plan = ChildPlan {
        programs: command.programs,
        argv: command.argv,
        env: command.env,
        cwd: command.cwd,
        uid: command.user.uid,
        gid: command.user.gid,
        groups: guest.may_set_groups.then_some(command.user.groups),
        rlimits: command.rlimits,
        cgroups: guest.workload_cgroup.iter().map(AsFd::as_fd).collect(),
        stdin: ends.child_stdin.as_fd(),
        stdout: ends.child_stdout.as_fd(),
        stderr: ends.child_stderr.as_fd(),
        terminal: request.terminal.is_some(),
        report: child_report.as_fd(),
    };
    let pid = sys::spawn(&plan)?;
    let rlimits = plan.rlimits;
    drop(child_report);
    let exec = Rc::new(Exec {
        id: request.id.clone(),
        pid,
        changed: tokio::sync::Notify::new(),
        inner: std::cell::RefCell::new(Inner::default()),
        stdin: tokio::sync::Mutex::new(ends.stdin),
        terminal: ends.terminal,
        oom_kills_before,
    });
    guest.execs.known.borrow_mut().insert(request.id.clone(), Rc::clone(&exec));
    guest.has_children.set(true);
    let told = Told {
        program: request.command[0].clone(),
        cwd: request.cwd.clone(),
        user: request.user.clone(),
        rlimits,
        timeout_ms: request.timeout_ms,
        tracker,
    };
    spawn_local(finish(Rc::clone(guest), Rc::clone(&exec), report, ends.outputs, told));
    Ok(exec)
}

/// What was asked, for messages and for what follows the start.
struct Told {
    program: String,
    cwd: String,
    user: String,
    rlimits: Vec<(u32, u64, u64)>,
    timeout_ms: Option<u64>,
    tracker: Option<Tracker>,
}

/// Waits for the child's exec, then pumps its output until nobody writes any more.
async fn finish(
    guest: Rc<Guest>,
    exec: Rc<Exec>,
    report: AsyncFd<OwnedFd>,
    outputs: Vec<Output>,
    told: Told,
) {
    let failure = read_report(&report).await;
    drop(report);
    if let Some(failure) = failure {
        let answer = explain(failure, &told);
        guest.execs.known.borrow_mut().remove(&exec.id);
        guest.execs.remember_failure(&exec.id, answer.clone());
        exec.change(|inner| inner.answer = Some(answer));
        return;
    }
    guest.execs.push(&exec, ExecEvent::Started { pid: exec.pid });
    exec.change(|inner| inner.answer = Some(Response::Started { pid: exec.pid }));
    if let Some(timeout) = told.timeout_ms.map(Duration::from_millis) {
        spawn_local(limit_time(Rc::clone(&exec), timeout));
    }
    pump(&guest, &exec, outputs, told.tracker).await;
}

/// The child's failure; `None` when the pipe closed without a word, that is by a successful exec (or by the child's death,
/// which its exit tells).
async fn read_report(report: &AsyncFd<OwnedFd>) -> Option<ChildFailure> {
    let mut bytes = [0; sys::REPORT_BYTES];
    loop {
        let mut ready = report.readable().await.ok()?;
        match ready.try_io(|fd| Ok(rustix::io::read(fd, &mut bytes)?)) {
            Ok(Ok(n)) => return (n == bytes.len()).then(|| ChildFailure::from_bytes(bytes)),
            Ok(Err(error)) if error.kind() == io::ErrorKind::Interrupted => {}
            Ok(Err(_)) => return None,
            Err(_not_ready) => {}
        }
    }
}

async fn limit_time(exec: Rc<Exec>, timeout: Duration) {
    let ended = exec.until(|inner| inner.ended.map(drop));
    if tokio::time::timeout(timeout, ended).await.is_err() {
        exec.blame(Cause::TimeLimit);
        exec.kill_family();
    }
}

/// The reason for an error number that any step may give.
fn reason_of(errno: Option<i32>) -> StartFailure {
    match errno {
        Some(libc::EAGAIN | libc::ENOMEM | libc::EMFILE | libc::ENFILE | libc::ENOSPC | libc::E2BIG) => {
            StartFailure::LimitReached
        }
        _ => StartFailure::Other,
    }
}

/// Turns a child's failure into the answer that the host gets.
fn explain(failure: ChildFailure, told: &Told) -> Response {
    let ChildFailure { stage, errno } = failure;
    let error = io::Error::from_raw_os_error(errno);
    let program = shown(&told.program);
    match stage {
        Stage::Directory => {
            let message = format!("could not enter the working directory {}: {error}", shown(&told.cwd));
            not_started(StartFailure::BadWorkingDirectory, message)
        }
        Stage::Groups | Stage::Gid | Stage::Uid => {
            let message = format!("could not become the user {}: {error}", shown(&told.user));
            not_started(StartFailure::BadUser, message)
        }
        Stage::Rlimit(position) => {
            let (number, soft, hard) = told.rlimits.get(usize::from(position)).copied().unwrap_or_default();
            let name = rlimits::name(number);
            let message = format!("could not set the limit {name} to {soft} (hard {hard}): {error}");
            not_started(StartFailure::LimitReached, message)
        }
        Stage::Exec => explain_exec(errno, &error, &program, told),
        Stage::Session | Stage::Cgroup | Stage::Stdio | Stage::Terminal => {
            let message = format!("could not prepare a process for {program} ({stage:?}): {error}");
            not_started(reason_of(Some(errno)), message)
        }
    }
}

fn explain_exec(errno: i32, error: &io::Error, program: &str, told: &Told) -> Response {
    match errno {
        libc::ENOENT | libc::ENOTDIR => {
            let path = std::path::Path::new(&told.cwd).join(&told.program);
            // The kernel answers the same when the file is there and the loader or interpreter that it names is not.
            if told.program.contains('/') && path.is_file() {
                let message = format!("{program} names a loader or interpreter that is not there");
                return not_started(StartFailure::NotExecutable, message);
            }
            not_started(StartFailure::NotFound, format!("no program {program}"))
        }
        libc::EACCES
        | libc::ENOEXEC
        | libc::EISDIR
        | libc::EPERM
        | libc::ELIBBAD
        | libc::EINVAL
        | libc::ETXTBSY
        | libc::ELOOP
        | libc::ENAMETOOLONG => {
            not_started(StartFailure::NotExecutable, format!("{program} cannot be run: {error}"))
        }
        _ => not_started(reason_of(Some(errno)), format!("could not run {program}: {error}")),
    }
}

fn open_pipes(keep_stdin: bool) -> io::Result<Ends> {
    let (stdin, child_stdin) = if keep_stdin {
        let (theirs, ours) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
        (Stdin::pipe(nonblocking(ours)?), theirs)
    } else {
        (Stdin::closed(), empty_stdin()?)
    };
    let (stdout, child_stdout) = our_read_end()?;
    let (stderr, child_stderr) = our_read_end()?;
    let outputs =
        vec![Output::pipe(Rc::new(stdout), Stream::Stdout), Output::pipe(Rc::new(stderr), Stream::Stderr)];
    Ok(Ends { stdin, outputs, terminal: None, child_stdin, child_stdout, child_stderr })
}

fn open_terminal(size: TerminalSize) -> io::Result<Ends> {
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let master = rustix::pty::openpt(flags)?;
    rustix::pty::unlockpt(&master)?;
    let child_stdin = rustix::pty::ioctl_tiocgptpeer(&master, flags)?;
    set_size(&master, size)?;
    let child_stdout = child_stdin.try_clone()?;
    let child_stderr = child_stdin.try_clone()?;
    let master = Rc::new(nonblocking(master)?);
    Ok(Ends {
        stdin: Stdin::terminal(Rc::clone(&master)),
        outputs: vec![Output::terminal(Rc::clone(&master))],
        terminal: Some(master),
        child_stdin,
        child_stdout,
        child_stderr,
    })
}

pub(super) fn set_size(terminal: impl AsFd, size: TerminalSize) -> io::Result<()> {
    let size = Winsize { ws_row: size.rows, ws_col: size.cols, ws_xpixel: 0, ws_ypixel: 0 };
    Ok(rustix::termios::tcsetwinsize(terminal, size)?)
}

fn our_read_end() -> io::Result<(AsyncFd<OwnedFd>, OwnedFd)> {
    let (ours, theirs) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
    Ok((nonblocking(ours)?, theirs))
}

/// For ends that only we use: the flag belongs to the open file, so the child's end stays blocking.
fn nonblocking(fd: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    rustix::io::ioctl_fionbio(&fd, true)?;
    sys::watched(fd)
}

/// `/dev/null`, or a pipe that nobody writes to where it is missing or something else.
fn empty_stdin() -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    if let Ok(null) = rustix::fs::open("/dev/null", flags, Mode::empty()) {
        let stat = rustix::fs::fstat(&null)?;
        let is_device = FileType::from_raw_mode(stat.st_mode) == FileType::CharacterDevice;
        if is_device && stat.st_rdev == rustix::fs::makedev(1, 3) {
            return Ok(null);
        }
    }
    let (theirs, _closed) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
    Ok(theirs)
}

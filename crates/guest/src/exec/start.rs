//! Starting a command: pipes or a terminal, a fork, and the child's report.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    rc::Rc,
    time::Duration,
};

use guest_protocol::{ExecStart, Failure, FailureKind, Response, StartFailure, TerminalMode, TerminalSize};
use rustix::{
    fs::{FileType, Mode, OFlags},
    io::Errno,
    pipe::PipeFlags,
    pty::OpenptFlags,
    termios::Winsize,
};
use tokio::{io::unix::AsyncFd, task::spawn_local};

use super::{
    Cause, Exec,
    output::{Output, Stream, pump},
    plan::{self, Command, Refusal, not_started},
    rlimits, shown,
    stdin::Stdin,
    terminal,
};
use crate::{
    Guest, code,
    files::changed::Tracker,
    limits::MAX_EXECS,
    sys::{self, ChildFailure, ChildPlan, Stage},
};

/// Starts a command or a cell; a known id gets its first answer again.
pub(crate) async fn start(guest: &Rc<Guest>, mut request: ExecStart) -> Result<Response, Failure> {
    match request.cell.take() {
        Some(cell) => match early_answer(guest, &request.id).await? {
            Some(answer) => Ok(answer),
            None => code::start(guest, request, cell).await,
        },
        None => start_command(guest, request).await,
    }
}

/// The answer for a known id, or the reason why nothing can start now.
async fn early_answer(guest: &Guest, id: &str) -> Result<Option<Response>, Failure> {
    if let Ok(exec) = guest.execs.find(id) {
        return Ok(Some(exec.until(|inner| inner.answer.clone()).await));
    }
    if let Some(answer) = guest.execs.remembered_failure(id) {
        return Ok(Some(answer));
    }
    if guest.is_stopping.get() {
        return Err(Failure::new(FailureKind::WrongState, "the sandbox is being stopped"));
    }
    if guest.execs.known.borrow().len() >= MAX_EXECS {
        let message = format!("{MAX_EXECS} execs are known already; acknowledge some");
        return Err(Failure::new(FailureKind::LimitReached, message));
    }
    Ok(None)
}

pub(crate) async fn start_command(guest: &Rc<Guest>, request: ExecStart) -> Result<Response, Failure> {
    // Before the lookup of the id: nothing may wait between that and the fork.
    let tracker = match request.track_files {
        true => Some(Tracker::begin(&request.cwd).await),
        false => None,
    };
    if let Some(answer) = early_answer(guest, &request.id).await? {
        return Ok(answer);
    }
    let command = match plan::command(&request, &guest.rlimits) {
        Ok(command) => command,
        Err(Refusal::Invalid(failure)) => return Err(failure),
        Err(Refusal::NotStarted(answer)) => return Ok(guest.execs.refused(&request.id, answer)),
    };
    match fork(guest, &request, command, tracker) {
        Ok(exec) => Ok(exec.until(|inner| inner.answer.clone()).await),
        Err(error) => {
            let message = format!("could not start {}: {error}", shown(&request.command[0]));
            Ok(guest.execs.refused(&request.id, not_started(reason_of(error.raw_os_error()), message)))
        }
    }
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

/// Makes the child and registers the exec, without waiting. The rest does not depend on the host's connection.
fn fork(
    guest: &Rc<Guest>,
    request: &ExecStart,
    command: Command,
    tracker: Option<Tracker>,
) -> io::Result<Rc<Exec>> {
    let ends = match request.terminal {
        Some(size) => open_terminal(size, &request.terminal_modes)?,
        None => open_pipes(request.stdin)?,
    };
    let oom_kills_before = guest.oom_kills();
    let stdio = [ends.child_stdin.as_fd(), ends.child_stdout.as_fd(), ends.child_stderr.as_fd()];
    let newborn = spawn(guest, request, command, stdio, None)?;
    let exec = Rc::new(Exec {
        pid: Some(newborn.pid),
        stdin: tokio::sync::Mutex::new(ends.stdin),
        terminal: ends.terminal,
        oom_kills_before: oom_kills_before.into(),
        ..Exec::new(request.id.clone())
    });
    guest.execs.known.borrow_mut().insert(request.id.clone(), Rc::clone(&exec));
    let finish =
        finish(Rc::clone(guest), Rc::clone(&exec), newborn, ends.outputs, request.timeout_ms, tracker);
    spawn_local(finish);
    Ok(exec)
}

/// A child between its fork and its exec.
pub(crate) struct Newborn {
    pub(crate) pid: i32,
    report: AsyncFd<OwnedFd>,
    request: RequestSummary,
}

/// Makes a child of the workload. `request` describes it, for messages.
pub(crate) fn spawn(
    guest: &Guest,
    request: &ExecStart,
    command: Command,
    [stdin, stdout, stderr]: [BorrowedFd<'_>; 3],
    channel: Option<BorrowedFd<'_>>,
) -> io::Result<Newborn> {
    let (report, child_report) = our_read_end()?;
    let child_report = sys::above_channel(child_report)?;
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
        stdin,
        stdout,
        stderr,
        channel,
        terminal: request.terminal.is_some(),
        report: child_report.as_fd(),
    };
    let pid = sys::spawn(&plan)?;
    guest.has_children.set(true);
    let request = RequestSummary {
        program: request.command.first().cloned().unwrap_or_default(),
        cwd: request.cwd.clone(),
        user: request.user.clone(),
        rlimits: plan.rlimits,
    };
    Ok(Newborn { pid, report, request })
}

impl Newborn {
    /// Waits for the child's exec. The error is the answer for the host.
    pub(crate) async fn has_begun(self) -> Result<(), Response> {
        match read_report(&self.report).await {
            Some(failure) => Err(explain(failure, &self.request)),
            None => Ok(()),
        }
    }
}

/// The request's parts that messages name.
struct RequestSummary {
    program: String,
    cwd: String,
    user: String,
    rlimits: Vec<(u32, u64, u64)>,
}

/// Waits for the child's exec, then pumps its output until no writer is left.
async fn finish(
    guest: Rc<Guest>,
    exec: Rc<Exec>,
    newborn: Newborn,
    outputs: Vec<Output>,
    timeout_ms: Option<u64>,
    tracker: Option<Tracker>,
) {
    let pid = newborn.pid;
    if let Err(answer) = newborn.has_begun().await {
        return guest.execs.refuse(&exec, answer);
    }
    guest.execs.has_started(&exec, pid);
    if let Some(timeout) = timeout_ms.map(Duration::from_millis) {
        spawn_local(limit_time(Rc::clone(&exec), timeout));
    }
    pump(&guest, &exec, outputs, tracker).await;
}

/// The child's failure; `None` if the pipe closed without one: after a successful exec, or when the child died, which
/// its exit status shows.
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

/// The reason for an error number that any step may return.
pub(crate) fn reason_of(errno: Option<i32>) -> StartFailure {
    match errno {
        Some(libc::EAGAIN | libc::ENOMEM | libc::EMFILE | libc::ENFILE | libc::ENOSPC | libc::E2BIG) => {
            StartFailure::LimitReached
        }
        _ => StartFailure::Other,
    }
}

/// Turns a child's failure into the answer for the host.
fn explain(failure: ChildFailure, request: &RequestSummary) -> Response {
    let ChildFailure { stage, errno } = failure;
    let error = io::Error::from_raw_os_error(errno);
    let program = shown(&request.program);
    match stage {
        Stage::Directory => {
            let message = format!("could not enter the working directory {}: {error}", shown(&request.cwd));
            not_started(StartFailure::BadWorkingDirectory, message)
        }
        Stage::Groups | Stage::Gid | Stage::Uid => {
            let message = format!("could not become the user {}: {error}", shown(&request.user));
            not_started(StartFailure::BadUser, message)
        }
        Stage::Rlimit(position) => {
            let (number, soft, hard) =
                request.rlimits.get(usize::from(position)).copied().unwrap_or_default();
            let name = rlimits::name(number);
            let message = format!("could not set the limit {name} to {soft} (hard {hard}): {error}");
            not_started(StartFailure::LimitReached, message)
        }
        Stage::Exec => explain_exec(errno, &error, &program, request),
        Stage::Session | Stage::Cgroup | Stage::Stdio | Stage::Terminal => {
            let message = format!("could not prepare a process for {program} ({stage:?}): {error}");
            not_started(reason_of(Some(errno)), message)
        }
    }
}

fn explain_exec(errno: i32, error: &io::Error, program: &str, request: &RequestSummary) -> Response {
    match errno {
        libc::ENOENT | libc::ENOTDIR => {
            let path = std::path::Path::new(&request.cwd).join(&request.program);
            // The kernel returns the same error if the file exists but the loader or interpreter that it names does
            // not.
            if request.program.contains('/') && path.is_file() {
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

fn open_terminal(size: TerminalSize, modes: &[TerminalMode]) -> io::Result<Ends> {
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let master = rustix::pty::openpt(flags)?;
    rustix::pty::unlockpt(&master)?;
    let child_stdin = rustix::pty::ioctl_tiocgptpeer(&master, flags)?;
    set_size(&master, size)?;
    terminal::set_modes(&child_stdin, modes)?;
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

pub(crate) fn our_read_end() -> io::Result<(AsyncFd<OwnedFd>, OwnedFd)> {
    let (ours, theirs) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
    Ok((nonblocking(ours)?, theirs))
}

/// For ends that only we use: the flag belongs to the open file, so the child's end stays blocking.
pub(crate) fn nonblocking(fd: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    rustix::io::ioctl_fionbio(&fd, true)?;
    sys::watched(fd)
}

/// `/dev/null`, or a pipe without a writer if that is missing or something else.
pub(crate) fn empty_stdin() -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    if let Ok(null) = rustix::fs::open("/dev/null", flags, Mode::empty())
        && is_null(&null)?
    {
        return Ok(null);
    }
    let (theirs, _closed) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
    Ok(theirs)
}

/// A sink: `/dev/null`, or a pipe without a reader if that is missing or something else.
pub(crate) fn nowhere() -> Result<OwnedFd, Errno> {
    let flags = OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    if let Ok(null) = rustix::fs::open("/dev/null", flags, Mode::empty())
        && is_null(&null)?
    {
        return Ok(null);
    }
    let (_closed, theirs) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
    Ok(theirs)
}

fn is_null(fd: &OwnedFd) -> Result<bool, Errno> {
    let stat = rustix::fs::fstat(fd)?;
    let is_device = FileType::from_raw_mode(stat.st_mode) == FileType::CharacterDevice;
    Ok(is_device && stat.st_rdev == rustix::fs::makedev(1, 3))
}

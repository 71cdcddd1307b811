//! Every unsafe call of the guest: fork and exec, signals, and a few calls that `rustix` does not wrap.
//!
//! A child is made by plain `fork`, not by `vfork` or `CLONE_VM`, although those are faster: the child enters the
//! workload's cgroup before it execs. If it shared our memory, an out-of-memory kill of it would kill us too (the
//! kernel kills all processes that share the memory), and a frozen cgroup or a SIGSTOP from the workload would stop us
//! with it.

use std::{
    ffi::{CStr, CString, c_char, c_int, c_long},
    io,
    os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd},
    ptr,
};

use rustix::{
    fs::{Mode, OFlags},
    net::{AddressFamily, SocketFlags, SocketType},
    process::{Gid, Uid},
};
use tokio::io::unix::AsyncFd;

/// Highest signal number of Linux.
pub(crate) const MAX_SIGNAL: i32 = 64;

/// The descriptor by which an interpreter talks to us.
pub(crate) const CHANNEL: RawFd = 3;

/// Everything a child needs, made before the fork: between fork and exec nothing may allocate.
#[derive(Debug)]
pub(crate) struct ChildPlan<'a> {
    /// The program's possible paths, in order.
    pub(crate) programs: Vec<CString>,
    pub(crate) argv: Vec<CString>,
    pub(crate) env: Vec<CString>,
    pub(crate) cwd: CString,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    /// Absent if this user namespace forbids `setgroups`.
    pub(crate) groups: Option<Vec<u32>>,
    pub(crate) rlimits: Vec<(u32, u64, u64)>,
    pub(crate) cgroups: Vec<BorrowedFd<'a>>,
    pub(crate) stdin: BorrowedFd<'a>,
    pub(crate) stdout: BorrowedFd<'a>,
    pub(crate) stderr: BorrowedFd<'a>,
    /// Becomes descriptor [`CHANNEL`]. Neither this nor `report` may have that number already, see [`above_channel`].
    pub(crate) channel: Option<BorrowedFd<'a>>,
    /// Whether stdin becomes the controlling terminal.
    pub(crate) terminal: bool,
    /// The child writes a [`ChildFailure`] here, or closes it by a successful exec.
    pub(crate) report: BorrowedFd<'a>,
}

/// The step at which a child gave up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    Session,
    Cgroup,
    Stdio,
    Terminal,
    /// With the position of the limit in the plan.
    Rlimit(u8),
    Groups,
    Gid,
    Uid,
    Directory,
    Exec,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ChildFailure {
    pub(crate) stage: Stage,
    pub(crate) errno: i32,
}

/// Length of a [`ChildFailure`] on the report pipe; far below `PIPE_BUF`, so it arrives whole.
pub(crate) const REPORT_BYTES: usize = 6;

impl ChildFailure {
    pub(crate) fn to_bytes(self) -> [u8; REPORT_BYTES] {
        let (code, detail) = match self.stage {
            Stage::Session => (1, 0),
            Stage::Cgroup => (2, 0),
            Stage::Stdio => (3, 0),
            Stage::Terminal => (4, 0),
            Stage::Rlimit(position) => (5, position),
            Stage::Groups => (6, 0),
            Stage::Gid => (7, 0),
            Stage::Uid => (8, 0),
            Stage::Directory => (9, 0),
            Stage::Exec => (10, 0),
        };
        let [a, b, c, d] = self.errno.to_le_bytes();
        [code, detail, a, b, c, d]
    }

    pub(crate) fn from_bytes([code, detail, a, b, c, d]: [u8; REPORT_BYTES]) -> Self {
        let stage = match code {
            1 => Stage::Session,
            2 => Stage::Cgroup,
            3 => Stage::Stdio,
            4 => Stage::Terminal,
            5 => Stage::Rlimit(detail),
            6 => Stage::Groups,
            7 => Stage::Gid,
            8 => Stage::Uid,
            9 => Stage::Directory,
            _ => Stage::Exec,
        };
        Self { stage, errno: i32::from_le_bytes([a, b, c, d]) }
    }
}

/// Pointers for `execve`, with the null at the end.
fn pointers(strings: &[CString]) -> Vec<*const c_char> {
    strings.iter().map(|string| string.as_ptr()).chain([ptr::null()]).collect()
}

/// Forks and makes the child run the plan. Returns the child's pid as soon as it exists.
pub(crate) fn spawn(plan: &ChildPlan<'_>) -> io::Result<i32> {
    let argv = pointers(&plan.argv);
    let env = pointers(&plan.env);
    // For a script without `#!`: `/bin/sh <script> <arguments>`; the child fills in the second element.
    let shell = c"/bin/sh";
    let mut shell_argv = vec![shell.as_ptr(), ptr::null()];
    shell_argv.extend(argv.iter().skip(1));
    let groups: Option<Vec<Gid>> =
        plan.groups.as_ref().map(|groups| groups.iter().copied().map(Gid::from_raw).collect());
    let vectors = Vectors { argv: &argv, env: &env, shell_argv: &mut shell_argv, groups: groups.as_deref() };

    // SAFETY: the child only makes system calls on memory prepared above, does not allocate, and leaves by exec or
    // `_exit`; so it is sound even when another thread held a lock at the time of the fork.
    let pid = unsafe { libc::fork() };
    match pid {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            let failure = become_program(plan, vectors);
            // If the report cannot be written, nothing is left to do: the parent sees the exit.
            rustix::io::write(plan.report, &failure.to_bytes()).ok();
            // SAFETY: ends this process at once; runs no handlers of the parent's.
            unsafe { libc::_exit(127) }
        }
        pid => Ok(pid),
    }
}

/// Forks a child that enters `cgroup`, keeps no descriptor but `link` and the standard ones, does `work` and ends.
pub(crate) fn fork_worker(
    link: OwnedFd,
    cgroup: Option<BorrowedFd<'_>>,
    work: impl FnOnce(OwnedFd),
) -> io::Result<()> {
    // SAFETY: the child has one thread and a copy of our memory. A thread of ours may have held a lock at the fork: the
    // C library makes its allocator's usable again in the child, and `work` takes none of ours. It leaves by `_exit`.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            // Without the cgroup, the written data would be charged to nobody. The parent sees the missing answer.
            if cgroup.is_none_or(|cgroup| rustix::io::write(cgroup, b"0").is_ok()) {
                close_all_but(&link);
                work(link);
            }
            // SAFETY: ends this process at once; runs no handlers of the parent's.
            unsafe { libc::_exit(0) }
        }
        _pid => Ok(()),
    }
}

/// Forks a child that joins the workload as this user, keeps no descriptor but `link` and the standard ones, does
/// `work` and ends. `work` is told if it could not become that user.
pub(crate) fn fork_into_workload(
    link: OwnedFd,
    cgroups: &[BorrowedFd<'_>],
    identity: &Identity<'_>,
    work: impl FnOnce(OwnedFd, Result<(), ChildFailure>),
) -> io::Result<()> {
    // SAFETY: as for `fork_worker`.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            let joined = new_session()
                .map_err(|errno| ChildFailure { stage: Stage::Session, errno })
                .and_then(|()| enter_cgroups(cgroups))
                .and_then(|()| become_user(identity));
            close_all_but(&link);
            work(link, joined);
            // SAFETY: ends this process at once; runs no handlers of the parent's.
            unsafe { libc::_exit(0) }
        }
        _pid => Ok(()),
    }
}

/// In a child that leaves by `_exit`: closes every descriptor but the standard ones and this one. Values that own the
/// others are copies of the parent's and are never dropped.
fn close_all_but(kept: &OwnedFd) {
    let kept = kept.as_raw_fd();
    for (first, last) in [(3, kept - 1), (kept + 1, c_int::MAX)] {
        if first <= last {
            // SAFETY: takes integers only; nothing that this process still uses has one of these numbers.
            unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
        }
    }
}

struct Vectors<'a> {
    argv: &'a [*const c_char],
    env: &'a [*const c_char],
    shell_argv: &'a mut [*const c_char],
    groups: Option<&'a [Gid]>,
}

/// Runs in the child. Only async-signal-safe calls: `rustix` here issues bare system calls.
fn become_program(plan: &ChildPlan<'_>, vectors: Vectors<'_>) -> ChildFailure {
    let errno = match prepare_child(plan, vectors.groups) {
        Err(failure) => return failure,
        Ok(()) => exec_first(plan, vectors),
    };
    ChildFailure { stage: Stage::Exec, errno }
}

fn prepare_child(plan: &ChildPlan<'_>, groups: Option<&[Gid]>) -> Result<(), ChildFailure> {
    let at = failed_at;
    new_session().map_err(|errno| ChildFailure { stage: Stage::Session, errno })?;
    enter_cgroups(&plan.cgroups)?;
    rustix::stdio::dup2_stdin(plan.stdin).map_err(at(Stage::Stdio))?;
    rustix::stdio::dup2_stdout(plan.stdout).map_err(at(Stage::Stdio))?;
    rustix::stdio::dup2_stderr(plan.stderr).map_err(at(Stage::Stdio))?;
    if let Some(channel) = plan.channel {
        give_channel(channel).map_err(|errno| ChildFailure { stage: Stage::Stdio, errno })?;
    }
    if plan.terminal {
        rustix::process::ioctl_tiocsctty(rustix::stdio::stdin()).map_err(at(Stage::Terminal))?;
    }
    become_user(&Identity { uid: plan.uid, gid: plan.gid, groups, rlimits: &plan.rlimits, cwd: &plan.cwd })?;
    restore_signals();
    close_on_exec_from(if plan.channel.is_some() { 4 } else { 3 });
    Ok(())
}

/// In the child.
fn enter_cgroups(cgroups: &[BorrowedFd<'_>]) -> Result<(), ChildFailure> {
    for cgroup in cgroups {
        rustix::io::write(cgroup, b"0").map_err(failed_at(Stage::Cgroup))?;
    }
    Ok(())
}

/// The user that a child becomes, with its limits and directory.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Identity<'a> {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    /// Absent if this user namespace forbids `setgroups`.
    pub(crate) groups: Option<&'a [Gid]>,
    pub(crate) rlimits: &'a [(u32, u64, u64)],
    pub(crate) cwd: &'a CStr,
}

/// In the child.
fn become_user(identity: &Identity<'_>) -> Result<(), ChildFailure> {
    for (position, (resource, soft, hard)) in identity.rlimits.iter().enumerate() {
        let position = u8::try_from(position).unwrap_or(u8::MAX);
        set_rlimit(*resource, *soft, *hard)
            .map_err(|errno| ChildFailure { stage: Stage::Rlimit(position), errno })?;
    }
    rustix::process::umask(Mode::WGRP | Mode::WOTH);
    // Like runc: a directory that only root may enter can be the working directory of another user.
    let entered_early = rustix::process::chdir(identity.cwd).is_ok();
    if let Some(groups) = identity.groups {
        rustix::thread::set_thread_groups(groups).map_err(failed_at(Stage::Groups))?;
    }
    let (uid, gid) = (Uid::from_raw(identity.uid), Gid::from_raw(identity.gid));
    rustix::thread::set_thread_res_gid(gid, gid, gid).map_err(failed_at(Stage::Gid))?;
    rustix::thread::set_thread_res_uid(uid, uid, uid).map_err(failed_at(Stage::Uid))?;
    if !entered_early {
        rustix::process::chdir(identity.cwd).map_err(failed_at(Stage::Directory))?;
    }
    Ok(())
}

fn failed_at(stage: Stage) -> impl FnOnce(rustix::io::Errno) -> ChildFailure {
    move |error| ChildFailure { stage, errno: error.raw_os_error() }
}

/// In the child: not by `rustix`, which expects a process id as the result. gVisor returns 0.
fn new_session() -> Result<(), i32> {
    // SAFETY: takes nothing and touches no memory.
    if unsafe { libc::setsid() } < 0 { Err(last_errno()) } else { Ok(()) }
}

/// In the child: replaces whatever had the number, and stays open over the exec.
fn give_channel(channel: BorrowedFd<'_>) -> Result<(), i32> {
    // SAFETY: takes integers only; both descriptors are this child's own.
    let rc = unsafe { libc::dup2(channel.as_raw_fd(), CHANNEL) };
    if rc == CHANNEL { Ok(()) } else { Err(last_errno()) }
}

/// The same descriptor under a number that a child's channel does not take.
pub(crate) fn above_channel(fd: OwnedFd) -> io::Result<OwnedFd> {
    if fd.as_raw_fd() > CHANNEL {
        return Ok(fd);
    }
    Ok(rustix::io::fcntl_dupfd_cloexec(&fd, CHANNEL + 1)?)
}

/// Tries the candidates as `execvp` does. Returns the most telling error number.
fn exec_first(plan: &ChildPlan<'_>, vectors: Vectors<'_>) -> i32 {
    let mut found = libc::ENOENT;
    for program in &plan.programs {
        // SAFETY: program, argv and env are NUL-terminated and null-ended, and live in `plan` and `vectors`.
        unsafe { libc::execve(program.as_ptr(), vectors.argv.as_ptr(), vectors.env.as_ptr()) };
        match last_errno() {
            libc::ENOENT | libc::ENOTDIR | libc::ESTALE | libc::ENODEV | libc::ETIMEDOUT => {}
            libc::EACCES => found = libc::EACCES,
            libc::ENOEXEC if !looks_like_text(program) => return libc::ENOEXEC,
            libc::ENOEXEC => {
                let Some(script) = vectors.shell_argv.get_mut(1) else { return libc::ENOEXEC };
                *script = program.as_ptr();
                let shell = c"/bin/sh".as_ptr();
                // SAFETY: as above; `shell_argv` ends with the null that `argv` ends with.
                unsafe { libc::execve(shell, vectors.shell_argv.as_ptr(), vectors.env.as_ptr()) };
                return libc::ENOEXEC;
            }
            other => return other,
        }
    }
    found
}

/// Whether a file that the kernel has no loader for may be a script: a program for another machine must not go to the
/// shell.
fn looks_like_text(program: &CStr) -> bool {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let Ok(file) = rustix::fs::open(program, flags, Mode::empty()) else { return false };
    let mut head = [0; 128];
    rustix::io::read(&file, &mut head).is_ok_and(|n| !head[..n].contains(&0) && !head.starts_with(b"\x7fELF"))
}

fn last_errno() -> i32 {
    // SAFETY: returns the address of this thread's errno, which is always valid.
    let place = unsafe { libc::__errno_location() };
    // SAFETY: see above; nothing else writes to it now.
    unsafe { *place }
}

fn set_rlimit(resource: u32, soft: u64, hard: u64) -> Result<(), i32> {
    let limit = libc::rlimit64 { rlim_cur: soft, rlim_max: hard };
    // SAFETY: `limit` is a valid struct for the length of the call; the old value is not asked for.
    let rc = unsafe { libc::syscall(libc::SYS_prlimit64, 0, resource, &raw const limit, ptr::null::<u8>()) };
    if rc == 0 { Ok(()) } else { Err(last_errno()) }
}

/// In the child: no signal blocked, none ignored. The guest itself ignores SIGPIPE only, see [`own_signals`].
fn restore_signals() {
    // SAFETY: SIG_DFL is a valid disposition for SIGPIPE.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
    let empty = signal_set(&[]);
    // SAFETY: `empty` is an initialised set; the old mask is not asked for.
    unsafe { libc::sigprocmask(libc::SIG_SETMASK, &raw const empty, ptr::null_mut()) };
}

/// Marks all descriptors from `first` on, so that none of ours reaches a workload.
fn close_on_exec_from(first: u32) {
    // SAFETY: takes integers only. Where the call is missing (before Linux 5.11) we rely on each of our descriptors
    // being opened close-on-exec.
    unsafe { libc::syscall(libc::SYS_close_range, first, u32::MAX, libc::CLOSE_RANGE_CLOEXEC) };
}

fn signal_set(signals: &[c_int]) -> libc::sigset_t {
    let mut set = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: initialises the set it is given.
    unsafe { libc::sigemptyset(set.as_mut_ptr()) };
    for signal in signals {
        // SAFETY: the set was initialised above.
        unsafe { libc::sigaddset(set.as_mut_ptr(), *signal) };
    }
    // SAFETY: initialised by `sigemptyset`.
    unsafe { set.assume_init() }
}

/// Takes over this process's signals: every disposition back to default, SIGPIPE ignored, SIGCHLD blocked and read from
/// the descriptor that is returned. Call before any thread exists.
pub(crate) fn own_signals() -> io::Result<OwnedFd> {
    for signal in 1..=MAX_SIGNAL {
        set_to_default(signal);
    }
    // SAFETY: SIG_IGN is a valid disposition for SIGPIPE.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
    let children = signal_set(&[libc::SIGCHLD]);
    // SAFETY: `children` is an initialised set; the old mask is not asked for.
    let rc = unsafe { libc::sigprocmask(libc::SIG_SETMASK, &raw const children, ptr::null_mut()) };
    if rc != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: `children` is an initialised set; -1 asks for a new descriptor.
    let fd = unsafe { libc::signalfd(-1, &raw const children, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel just gave us this descriptor and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// The kernel's `struct sigaction`, all zero: the default disposition, no flags, nothing masked.
const DEFAULT_ACTION: [u64; 4] = [0; 4];
const KERNEL_SIGNAL_SET_BYTES: usize = 8;

/// By the bare system call: the C library hides the two signals that it uses itself, and whoever started us may have
/// left even those ignored.
fn set_to_default(signal: c_int) {
    let action = DEFAULT_ACTION.as_ptr();
    // SAFETY: `action` is as large as the kernel's struct; the old action is not asked for. Signals that cannot be
    // changed answer with an error, which is fine.
    unsafe {
        libc::syscall(libc::SYS_rt_sigaction, signal, action, ptr::null::<u8>(), KERNEL_SIGNAL_SET_BYTES)
    };
}

/// A system call that the filter asks us about.
#[derive(Debug)]
pub(crate) struct AskedCall {
    pub(crate) id: u64,
    pub(crate) thread: u32,
    pub(crate) number: c_long,
    /// The first argument, which the kernel takes as an int.
    pub(crate) first: c_int,
}

/// `struct seccomp_notif` of `linux/seccomp.h`, its last part flattened.
#[repr(C)]
#[derive(Default)]
struct Notification {
    id: u64,
    pid: u32,
    flags: u32,
    number: i32,
    architecture: u32,
    instruction_pointer: u64,
    arguments: [u64; 6],
}

/// `struct seccomp_notif_resp`.
#[repr(C)]
struct NotificationAnswer {
    id: u64,
    value: i64,
    error: i32,
    flags: u32,
}

const SECCOMP_IOCTL_NOTIF_RECV: u32 = 0xC050_2100;
const SECCOMP_IOCTL_NOTIF_SEND: u32 = 0xC018_2101;
const SECCOMP_IOCTL_NOTIF_SET_FLAGS: u32 = 0x4008_2104;
const SECCOMP_USER_NOTIF_FLAG_CONTINUE: u32 = 1;
const SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP: u64 = 1;

/// Makes the kernel run us on the processor of the waiting caller. Kernels before 6.6 cannot, which only costs time.
pub(crate) fn answer_on_same_processor(listener: &OwnedFd) {
    let flag = SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP;
    // SAFETY: takes integers only.
    unsafe { libc::ioctl(listener.as_raw_fd(), SECCOMP_IOCTL_NOTIF_SET_FLAGS as _, flag) };
}

/// The next call; waits while there is none.
pub(crate) fn receive_call(listener: &OwnedFd) -> io::Result<AskedCall> {
    let mut call = Notification::default();
    // SAFETY: the request takes a pointer to one `seccomp_notif`, all zeroes; `call` is that and outlives the call.
    let rc = unsafe { libc::ioctl(listener.as_raw_fd(), SECCOMP_IOCTL_NOTIF_RECV as _, &raw mut call) };
    if rc < 0 {
        return Err(io::Error::last_os_error());
    }
    let Notification { id, pid: thread, number, arguments: [first, ..], .. } = call;
    Ok(AskedCall { id, thread, number: number.into(), first: first as c_int })
}

/// Lets a call continue as it was made, or makes it fail with an error number.
pub(crate) fn answer_call(listener: &OwnedFd, id: u64, answer: Result<(), i32>) -> io::Result<()> {
    let (error, flags) = match answer {
        Ok(()) => (0, SECCOMP_USER_NOTIF_FLAG_CONTINUE),
        Err(errno) => (-errno, 0),
    };
    let mut answer = NotificationAnswer { id, value: 0, error, flags };
    // SAFETY: the request takes a pointer to one `seccomp_notif_resp`, which `answer` is; it outlives the call.
    let rc = unsafe { libc::ioctl(listener.as_raw_fd(), SECCOMP_IOCTL_NOTIF_SEND as _, &raw mut answer) };
    if rc < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// `kill(2)`: also groups (negative) and everyone (-1).
pub(crate) fn kill(pid: i32, signal: i32) -> io::Result<()> {
    // SAFETY: takes integers only.
    let rc = unsafe { libc::kill(pid, signal) };
    if rc == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Makes all threads share one heap: a heap for each would cost more than it gains a program with one busy thread.
pub(crate) fn share_one_heap() {
    #[cfg(target_env = "gnu")]
    // SAFETY: takes integers only; called before any thread exists.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 1);
    }
}

/// Returns the allocator's unused memory to the kernel.
pub(crate) fn give_back_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: may be called at any time; takes an integer only.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Takes a descriptor that was handed over by number (`--fd N`).
pub fn adopt_descriptor(number: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: F_GETFD takes an integer only and fails on numbers that are not open.
    let rc = unsafe { libc::fcntl(number, libc::F_GETFD) };
    if rc < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: it is open, and whoever started us gave it away by naming it.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

/// Makes sure that descriptors 0 to 2 are taken, so that no pipe of an exec ever gets one of these numbers.
pub(crate) fn occupy_stdio() -> io::Result<()> {
    loop {
        let null = std::fs::File::open("/dev/null").map(OwnedFd::from);
        // A root without devices still has eventfds.
        let fd = null.or_else(|_missing| {
            rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).map_err(io::Error::from)
        })?;
        if fd.as_raw_fd() > 2 {
            return Ok(());
        }
        std::mem::forget(fd);
    }
}

/// Registers a non-blocking descriptor with the runtime.
pub(crate) fn watched(fd: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an `OwnedFd` keeps one descriptor open for as long as it lives, and the `AsyncFd` owns it.
    let watched = unsafe { AsyncFd::register(fd) };
    Ok(watched?)
}

/// A listening vsock socket, which the host of a virtual machine reaches by the machine's number and this port.
pub(crate) fn listen_vsock(port: u32) -> io::Result<OwnedFd> {
    const BACKLOG: c_int = 128;
    let socket =
        rustix::net::socket_with(AddressFamily::VSOCK, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    let address = libc::sockaddr_vm {
        svm_family: libc::AF_VSOCK as libc::sa_family_t,
        svm_reserved1: 0,
        svm_port: port,
        svm_cid: libc::VMADDR_CID_ANY,
        svm_zero: [0; 4],
    };
    let length = size_of::<libc::sockaddr_vm>() as libc::socklen_t;
    // SAFETY: `address` is a whole address of this length, which the kernel only reads.
    let rc = unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), length) };
    if rc < 0 {
        return Err(io::Error::last_os_error());
    }
    rustix::net::listen(&socket, BACKLOG)?;
    Ok(socket)
}

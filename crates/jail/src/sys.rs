//! The system calls that no safe wrapper covers. Each function is one call with its argument.

use std::{
    ffi::{CStr, CString, c_int, c_long, c_ulong},
    io, mem,
    os::{
        fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd},
        unix::ffi::OsStrExt as _,
    },
    path::Path,
    ptr,
};

use crate::cage::{FileIdentity, MountFlag};

fn check(rc: c_long) -> io::Result<c_long> {
    if rc < 0 { Err(io::Error::last_os_error()) } else { Ok(rc) }
}

/// Which side of a fork this is.
#[derive(Debug)]
pub(crate) enum Side {
    Child,
    Parent { pid: i32, pidfd: OwnedFd },
}

/// Clones this process into new namespaces (`CLONE_NEW*`), like `fork`: a copy of the memory, the same descriptors.
///
/// Uses the old `clone` call, because container hosts refuse `clone3` more often than not. The caller must have one
/// thread: a lock held by another thread would stay locked in the child forever.
pub(crate) fn clone_process(namespaces: c_int) -> io::Result<Side> {
    let mut pidfd: RawFd = -1;
    let flags = (namespaces | libc::CLONE_PIDFD | libc::SIGCHLD) as c_ulong;
    // SAFETY: without CLONE_VM the child runs on a copy of this stack (stack argument 0), so both sides return
    // normally; the kernel writes one int to `pidfd`, which outlives the call. The last two arguments are unused with
    // these flags.
    let rc = unsafe { libc::syscall(libc::SYS_clone, flags, 0_usize, &raw mut pidfd, 0_usize, 0_usize) };
    match check(rc)? {
        0 => Ok(Side::Child),
        pid => {
            // SAFETY: the kernel just made this descriptor for us and nobody else has it.
            let pidfd = unsafe { OwnedFd::from_raw_fd(pidfd) };
            Ok(Side::Parent { pid: pid as i32, pidfd })
        }
    }
}

/// A call under decision waits for our answer even if a signal comes: programs do not expect `connect` to be
/// interrupted before it began. Since Linux 5.19.
const SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV: c_ulong = 1 << 5;

/// Installs a syscall filter for this thread; the descriptor receives the calls that the filter leaves to the listener.
pub(crate) fn install_filter(program: &[seccompiler::sock_filter]) -> io::Result<OwnedFd> {
    let length = u16::try_from(program.len()).map_err(|_too_long| io::ErrorKind::InvalidInput)?;
    let program = libc::sock_fprog { len: length, filter: program.as_ptr().cast_mut().cast() };
    let install = |flags: c_ulong| {
        // SAFETY: `program` names `length` instructions, laid out as the kernel's, which outlive the call; it only
        // reads them.
        check(unsafe {
            libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, &raw const program)
        })
    };
    let listening = libc::SECCOMP_FILTER_FLAG_NEW_LISTENER;
    let installed = match install(listening | SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV) {
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => install(listening),
        installed => installed,
    };
    let listener = installed? as RawFd;
    // SAFETY: the kernel just made this descriptor for us and nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(listener) })
}

/// Plain `fork`: `None` in the child. The caller must have one thread.
pub(crate) fn fork() -> io::Result<Option<i32>> {
    // SAFETY: the caller has one thread, so the child's copy of memory is consistent.
    let pid = unsafe { libc::fork() };
    Ok(match check(c_long::from(pid))? {
        0 => None,
        _ => Some(pid),
    })
}

/// Ends the process at once, without destructors or exit handlers, which belong to the process it was forked from.
pub(crate) fn exit_now(code: c_int) -> ! {
    // SAFETY: takes an integer and does not return.
    unsafe { libc::_exit(code) }
}

pub(crate) fn wait_for(pid: i32) -> io::Result<c_int> {
    let mut status = 0;
    // SAFETY: `status` is a valid int for the call.
    let rc = unsafe { libc::waitpid(pid, &raw mut status, 0) };
    check(c_long::from(rc)).map(|_pid| status)
}

pub(crate) fn unshare(flags: c_int) -> io::Result<()> {
    // SAFETY: integers only. CLONE_FILES, the flag that could pull descriptors from under other code, is never passed.
    check(c_long::from(unsafe { libc::unshare(flags) })).map(drop)
}

/// Closes every descriptor from `first` to `last`, inclusive.
///
/// The caller owns none of them: in a fresh child they are copies of its parent's, and no value here drops them.
pub(crate) fn close_range(first: u32, last: u32) -> io::Result<()> {
    // SAFETY: integers only; that no live `OwnedFd` of this process lies in the range is the caller's promise.
    check(unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) }).map(drop)
}

/// `struct mount_attr`, which libc lacks on some of our targets.
#[repr(C)]
#[derive(Default)]
struct MountAttr {
    set: u64,
    clear: u64,
    propagation: u64,
    userns: u64,
}

const MOUNT_ATTR_RDONLY: u64 = 0x1;
const MOUNT_ATTR_NOSUID: u64 = 0x2;
const MOUNT_ATTR_NODEV: u64 = 0x4;
const MOUNT_ATTR_NOEXEC: u64 = 0x8;
const MOUNT_ATTR_IDMAP: u64 = 0x0010_0000;

fn mount_setattr(directory: RawFd, path: &CStr, flags: c_int, mut attr: MountAttr) -> io::Result<()> {
    let size = mem::size_of::<MountAttr>();
    // SAFETY: `path` is a C string and `attr` lives through the call, with its true size passed.
    let rc = unsafe {
        libc::syscall(libc::SYS_mount_setattr, directory, path.as_ptr(), flags, &raw mut attr, size)
    };
    check(rc).map(drop)
}

/// Makes a detached mount map the ids on disk through `user_namespace`.
pub(crate) fn idmap_mount(
    mount: BorrowedFd<'_>,
    user_namespace: BorrowedFd<'_>,
    read_only: bool,
) -> io::Result<()> {
    let read_only = if read_only { MOUNT_ATTR_RDONLY } else { 0 };
    let attr = MountAttr {
        set: MOUNT_ATTR_IDMAP | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOSUID | read_only,
        userns: user_namespace.as_raw_fd() as u64,
        ..MountAttr::default()
    };
    mount_setattr(mount.as_raw_fd(), c"", libc::AT_EMPTY_PATH, attr)
}

fn attributes(flags: &[MountFlag]) -> u64 {
    flags.iter().fold(0, |all, one| {
        all | match one {
            MountFlag::ReadOnly => MOUNT_ATTR_RDONLY,
            MountFlag::NoSuid => MOUNT_ATTR_NOSUID,
            MountFlag::NoDev => MOUNT_ATTR_NODEV,
            MountFlag::NoExec => MOUNT_ATTR_NOEXEC,
        }
    })
}

/// Adds flags to a detached mount and its submounts and, if a user namespace is given, maps their ids through it.
pub(crate) fn set_mount_tree(
    mount: BorrowedFd<'_>,
    flags: &[MountFlag],
    user_namespace: Option<BorrowedFd<'_>>,
) -> io::Result<()> {
    let mut attr = MountAttr { set: attributes(flags), ..MountAttr::default() };
    if let Some(user_namespace) = user_namespace {
        attr.set |= MOUNT_ATTR_IDMAP;
        attr.userns = user_namespace.as_raw_fd() as u64;
    }
    mount_setattr(mount.as_raw_fd(), c"", libc::AT_EMPTY_PATH | libc::AT_RECURSIVE, attr)
}

/// Adds flags to the mount at `path`, and to its submounts if `recursive`.
pub(crate) fn add_mount_flags(path: &Path, flags: &[MountFlag], recursive: bool) -> io::Result<()> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    let set = attributes(flags);
    let how = if recursive { libc::AT_RECURSIVE } else { 0 };
    mount_setattr(libc::AT_FDCWD, &path, how, MountAttr { set, ..MountAttr::default() })
}

/// Resets every signal to its default and unblocks all, as a program not started by a daemon expects.
pub(crate) fn reset_signals() {
    for signal in 1..=64 {
        // SAFETY: SIG_DFL is always a valid disposition; signals that cannot be changed answer with an error, which is
        // fine.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
    // SAFETY: an all-zero sigset_t is a value that sigemptyset may fill.
    let mut none: libc::sigset_t = unsafe { mem::zeroed() };
    // SAFETY: `none` is a valid set to write to.
    unsafe { libc::sigemptyset(&raw mut none) };
    // SAFETY: `none` is initialised; the old mask is not asked for.
    unsafe { libc::sigprocmask(libc::SIG_SETMASK, &raw const none, ptr::null_mut()) };
}

/// A write to a connection that the other side ended is an error then, and does not end the process. `splice` has no
/// flag for that.
pub(crate) fn ignore_broken_pipes() {
    // SAFETY: SIG_IGN is a valid disposition for SIGPIPE.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
}

/// Makes children leave no zombies: nobody needs their exit status, since pidfds report their end.
pub(crate) fn ignore_children() {
    // SAFETY: SIG_IGN is a valid disposition for SIGCHLD.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_IGN) };
}

pub(crate) fn watch_children() {
    // SAFETY: SIG_DFL is a valid disposition for SIGCHLD.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
}

/// Brings `lo` up in the network namespace of the calling process.
pub(crate) fn loopback_up() -> io::Result<()> {
    // SAFETY: integers only.
    let socket = unsafe { libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
    check(c_long::from(socket))?;
    // SAFETY: just made and owned by nobody else.
    let socket = unsafe { OwnedFd::from_raw_fd(socket) };
    // SAFETY: `ifreq` is plain data for which all zeroes is a value.
    let mut request: libc::ifreq = unsafe { mem::zeroed() };
    for (slot, byte) in request.ifr_name.iter_mut().zip(b"lo\0") {
        *slot = *byte as libc::c_char;
    }
    request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
    // SAFETY: SIOCSIFFLAGS reads one `ifreq`, which lives through the call.
    let rc = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS as _, &raw mut request) };
    check(c_long::from(rc)).map(drop)
}

/// `SIOCGSKNS` of `linux/sockios.h`.
const SOCKET_NAMESPACE: libc::c_ulong = 0x894c;
/// `NS_GET_USERNS` of `linux/nsfs.h`.
const NAMESPACE_OWNER: libc::c_ulong = 0xb701;

/// The network namespace of a socket. The kernel refuses whoever may not change that namespace.
pub(crate) fn network_namespace_of(socket: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    new_descriptor(socket, SOCKET_NAMESPACE)
}

/// The user namespace that a namespace belongs to.
pub(crate) fn owner_of_namespace(namespace: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    new_descriptor(namespace, NAMESPACE_OWNER)
}

/// For requests without an argument whose answer is a new descriptor.
fn new_descriptor(of: BorrowedFd<'_>, request: libc::c_ulong) -> io::Result<OwnedFd> {
    // SAFETY: both requests take no argument; the descriptor is open for as long as it is borrowed.
    let made = unsafe { libc::ioctl(of.as_raw_fd(), request as _) };
    check(c_long::from(made))?;
    // SAFETY: just made and owned by nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(made) })
}

/// Sets an option whose value is an int.
pub(crate) fn set_socket_option(
    socket: &OwnedFd,
    level: c_int,
    option: c_int,
    value: c_int,
) -> io::Result<()> {
    let length = mem::size_of::<c_int>() as libc::socklen_t;
    let value = (&raw const value).cast();
    // SAFETY: the kernel reads `length` bytes of one int, which outlives the call.
    let rc = unsafe { libc::setsockopt(socket.as_raw_fd(), level, option, value, length) };
    check(c_long::from(rc)).map(drop)
}

/// Makes a socket receive only the packets that the program passes.
pub(crate) fn attach_filter(socket: &OwnedFd, program: &[libc::sock_filter]) -> io::Result<()> {
    let length = u16::try_from(program.len()).map_err(|_too_long| io::ErrorKind::InvalidInput)?;
    let program = libc::sock_fprog { len: length, filter: program.as_ptr().cast_mut() };
    let (level, option) = (libc::SOL_SOCKET, libc::SO_ATTACH_FILTER);
    let size = mem::size_of_val(&program) as libc::socklen_t;
    // SAFETY: `program` names `length` instructions, which outlive the call; the kernel copies them.
    let rc =
        unsafe { libc::setsockopt(socket.as_raw_fd(), level, option, (&raw const program).cast(), size) };
    check(c_long::from(rc)).map(drop)
}

/// Makes a packet socket receive what one link carries of a protocol (`ETH_P_*`).
pub(crate) fn bind_to_link(socket: &OwnedFd, protocol: u16, link: c_int) -> io::Result<()> {
    // SAFETY: `sockaddr_ll` is plain data for which all zeroes is a value.
    let mut address: libc::sockaddr_ll = unsafe { mem::zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = protocol.to_be();
    address.sll_ifindex = link;
    let length = mem::size_of_val(&address) as libc::socklen_t;
    // SAFETY: the kernel reads `length` bytes of the address, which outlives the call.
    let rc = unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), length) };
    check(c_long::from(rc)).map(drop)
}

/// Names the process for `ps`; at most 15 bytes are kept.
pub(crate) fn set_process_name(name: &CStr) {
    // SAFETY: PR_SET_NAME reads at most 16 bytes of a C string.
    unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) };
}

/// Lets go of pages that are as in the file they are mapped from; they come back when they are used.
pub(crate) fn let_go(pages: std::ops::Range<usize>) {
    // SAFETY: the range is a read-only mapping of a file without a page that differs from it, so the memory has the
    // same contents before and after. Should the kernel refuse, nothing changed.
    unsafe { libc::madvise(pages.start as *mut libc::c_void, pages.len(), libc::MADV_DONTNEED) };
}

/// Kills this process when its parent ends.
pub(crate) fn die_with_parent() {
    // SAFETY: integers only.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
}

/// Where the kernel keeps this program's arguments and environment, which `/proc/<pid>/cmdline` and
/// `/proc/<pid>/environ` show. A forked child has them at the same addresses.
#[derive(Debug)]
pub(crate) struct StartedWith {
    /// First address and length.
    words: (usize, usize),
    environment: (usize, usize),
}

impl StartedWith {
    pub(crate) fn find() -> io::Result<Self> {
        let stat = std::fs::read_to_string("/proc/self/stat")?;
        Self::parse(&stat)
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "/proc/self/stat cannot be read"))
    }

    fn parse(stat: &str) -> Option<Self> {
        let after_name = stat.rsplit_once(')')?.1;
        // Fields 48 to 51; the first after the name is field 3. All are 0 for a process without permission.
        let mut fields =
            after_name.split_ascii_whitespace().skip(45).map(|field| field.parse::<usize>().ok());
        let mut area = || {
            let (start, end) = (fields.next()??, fields.next()??);
            (start != 0 && start < end).then(|| (start, end - start))
        };
        Some(Self { words: area()?, environment: area().unwrap_or((0, 0)) })
    }

    /// Overwrites the arguments with `title`, as far as it fits, and clears the environment. The caller must have one
    /// thread, and must not need its environment any more.
    pub(crate) fn replace(&self, title: &str) {
        let (start, length) = self.words;
        let kept = title.len().min(length - 1);
        // SAFETY: the kernel named this range of the stack as that of the words; it is mapped, writable and ours alone
        // (one thread). Rust has no reference into it: the standard library keeps raw pointers to the strings and
        // copies what it reads. They stay valid strings, since every byte that is not written below becomes their end.
        unsafe { ptr::write_bytes(ptr::with_exposed_provenance_mut::<u8>(start), 0, length) };
        // SAFETY: as above; `kept` is less than the range's length, so a zero stays at its end, and `title` lies
        // elsewhere.
        unsafe {
            ptr::copy_nonoverlapping(title.as_ptr(), ptr::with_exposed_provenance_mut::<u8>(start), kept);
        }
        let (start, length) = self.environment;
        if length > 0 {
            // SAFETY: as above, for the strings of the environment, which become empty ones.
            unsafe { ptr::write_bytes(ptr::with_exposed_provenance_mut::<u8>(start), 0, length) };
        }
    }
}

const LOOP_CTL_GET_FREE: u64 = 0x4C82;
const LOOP_CONFIGURE: u64 = 0x4C0A;
const LOOP_GET_STATUS64: u64 = 0x4C05;
const LO_FLAGS_READ_ONLY: u32 = 1;
const LO_FLAGS_AUTOCLEAR: u32 = 4;

/// `struct loop_info64` of `linux/loop.h`.
#[repr(C)]
struct LoopInfo {
    device: u64,
    inode: u64,
    rdevice: u64,
    offset: u64,
    size_limit: u64,
    number: u32,
    encrypt_type: u32,
    encrypt_key_size: u32,
    flags: u32,
    names_and_key: [u8; 64 + 64 + 32],
    init: [u64; 2],
}

/// `struct loop_config` of `linux/loop.h`.
#[repr(C)]
struct LoopConfig {
    fd: u32,
    block_size: u32,
    info: LoopInfo,
    reserved: [u64; 8],
}

/// The number of a loop device that was free a moment ago.
pub(crate) fn free_loop_device(control: BorrowedFd<'_>) -> io::Result<u32> {
    // SAFETY: LOOP_CTL_GET_FREE takes no argument.
    let rc = unsafe { libc::ioctl(control.as_raw_fd(), LOOP_CTL_GET_FREE as _) };
    Ok(check(c_long::from(rc))? as u32)
}

/// Makes a loop device show a file, and free itself when its last user is gone.
pub(crate) fn configure_loop_device(
    device: BorrowedFd<'_>,
    file: BorrowedFd<'_>,
    read_only: bool,
) -> io::Result<()> {
    // SAFETY: `LoopConfig` is plain numbers, for which all zeroes is a value.
    let mut config: LoopConfig = unsafe { mem::zeroed() };
    config.fd = file.as_raw_fd() as u32;
    config.info.flags = LO_FLAGS_AUTOCLEAR | if read_only { LO_FLAGS_READ_ONLY } else { 0 };
    // SAFETY: LOOP_CONFIGURE reads one `loop_config`, which lives through the call and is laid out as the kernel's.
    let rc = unsafe { libc::ioctl(device.as_raw_fd(), LOOP_CONFIGURE as _, &raw const config) };
    check(c_long::from(rc)).map(drop)
}

/// The file that a loop device shows from end to end, and whether it is read-only through it.
pub(crate) fn loop_backing(device: BorrowedFd<'_>) -> io::Result<(FileIdentity, bool)> {
    // SAFETY: `LoopInfo` is plain numbers, for which all zeroes is a value.
    let mut info: LoopInfo = unsafe { mem::zeroed() };
    // SAFETY: LOOP_GET_STATUS64 writes one `loop_info64`, which lives through the call and is laid out as the kernel's.
    let rc = unsafe { libc::ioctl(device.as_raw_fd(), LOOP_GET_STATUS64 as _, &raw mut info) };
    check(c_long::from(rc))?;
    if (info.offset, info.size_limit) != (0, 0) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it shows only a part of its file"));
    }
    let file = FileIdentity { device: info.device, inode: info.inode };
    Ok((file, info.flags & LO_FLAGS_READ_ONLY != 0))
}

/// Executes another program with our environment; returns only on an error.
pub(crate) fn exec(program: &CStr, words: &[CString]) -> io::Result<()> {
    let mut pointers: Vec<*const libc::c_char> = words.iter().map(|word| word.as_ptr()).collect();
    pointers.push(ptr::null());
    // SAFETY: `program` is a C string and `pointers` ends with null; both outlive the call.
    unsafe { libc::execv(program.as_ptr(), pointers.as_ptr()) };
    Err(io::Error::last_os_error())
}

/// Executes the program in an open file, with only `PATH` as environment; returns only on an error.
pub(crate) fn exec_file(program: BorrowedFd<'_>, words: &[&str]) -> io::Error {
    let words: Result<Vec<CString>, _> = words.iter().map(|word| CString::new(*word)).collect();
    let Ok(words) = words else { return io::ErrorKind::InvalidInput.into() };
    let mut pointers: Vec<*const libc::c_char> = words.iter().map(|word| word.as_ptr()).collect();
    pointers.push(ptr::null());
    let path = std::env::var_os("PATH").map(|path| [b"PATH=", path.as_bytes()].concat());
    let path = path.and_then(|path| CString::new(path).ok());
    let environment = [path.as_ref().map_or(ptr::null(), |path| path.as_ptr()), ptr::null()];
    // SAFETY: the path is a C string, both lists end with null, and all of them outlive the call.
    unsafe {
        libc::syscall(
            libc::SYS_execveat,
            program.as_raw_fd(),
            c"".as_ptr(),
            pointers.as_ptr(),
            environment.as_ptr(),
            libc::AT_EMPTY_PATH,
        )
    };
    io::Error::last_os_error()
}

/// Returns freed memory to the kernel. The C library would keep most of it forever.
pub fn release_free_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: takes an integer, touches only what the allocator itself holds as free, and locks as `malloc` does.
    unsafe {
        libc::malloc_trim(0)
    };
}

/// Limits the C library's heaps. It otherwise keeps one or more for each thread, and returns little.
pub fn limit_heaps(n_heaps: u8) {
    #[cfg(target_env = "gnu")]
    // SAFETY: takes two integers and sets a parameter of the allocator.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, n_heaps.into())
    };
}

/// Makes a command's process inherit these descriptors as 3, 4 and so on.
pub fn inherit(command: &mut std::process::Command, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    use std::os::unix::process::CommandExt as _;
    let end = 3 + descriptors.len() as RawFd;
    // Moved away first: one of them may have a number that another one needs.
    let moved: Vec<OwnedFd> =
        descriptors.iter().map(|fd| rustix::io::fcntl_dupfd_cloexec(fd, end)).collect::<Result<_, _>>()?;
    let give = move || {
        for (number, fd) in (3..).zip(&moved) {
            // SAFETY: takes integers only, and is safe after a fork. What had the number is closed by the exec anyway.
            check(unsafe { libc::dup2(fd.as_raw_fd(), number) }.into())?;
        }
        Ok(())
    };
    // SAFETY: the closure makes system calls on numbers and allocates nothing.
    unsafe { command.pre_exec(give) };
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_this_program_was_started_with_is_found() {
        let found = StartedWith::find().unwrap();
        assert_eq!(found.words.1, std::fs::read("/proc/self/cmdline").unwrap().len());
        assert_eq!(found.environment.1, std::fs::read("/proc/self/environ").unwrap().len());
        assert!(StartedWith::parse("1 (a) S 1").is_none());
        let hidden = format!("1 (a) b) S{}", " 0".repeat(49));
        assert!(StartedWith::parse(&hidden).is_none());
    }
}

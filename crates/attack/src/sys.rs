//! System calls that a hostile program makes by hand. Each function is one call with its argument.

use std::{
    ffi::{c_int, c_long},
    io, mem,
    os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd},
    ptr,
};

/// An argument of a raw call. Memory is borrowed for the call, so the kernel finds what it reads or writes.
#[derive(Debug)]
pub(crate) enum Argument<'a> {
    Number(i64),
    Memory(&'a mut [u8]),
}

/// An argument that no call accepts: no descriptor, no address, no known flag.
pub(crate) const NONSENSE: i64 = -1;

/// Any system call by number. Returns the error's number if it fails.
///
/// For calls that the walls must refuse. A call that would change this process's own memory is made in a child.
pub(crate) fn call(number: c_long, mut arguments: [Argument<'_>; 6]) -> Result<i64, i32> {
    let words = arguments.each_mut().map(|argument| match argument {
        Argument::Number(number) => *number,
        Argument::Memory(bytes) => bytes.as_mut_ptr() as i64,
    });
    // SAFETY: memory that is handed over is borrowed mutably until the call returns, and large enough for what the
    // callers ask; numbers are either nonsense, which the kernel checks, or plain values.
    let rc = unsafe { libc::syscall(number, words[0], words[1], words[2], words[3], words[4], words[5]) };
    if rc == -1 { Err(io::Error::last_os_error().raw_os_error().unwrap_or(0)) } else { Ok(rc) }
}

/// Takes over a descriptor that a raw call just returned.
pub(crate) fn own(descriptor: i64) -> OwnedFd {
    // SAFETY: the kernel made it for the caller, who hands it over and keeps no copy.
    unsafe { OwnedFd::from_raw_fd(descriptor as RawFd) }
}

/// How a child ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ended {
    Exited(i32),
    Killed(i32),
}

/// Seconds that a child may take; then its alarm ends it.
const CHILD_SECONDS: u32 = 3;

/// Runs `work` in a child and returns its exit code. This process must have one thread.
pub(crate) fn in_child(work: impl FnOnce() -> i32) -> io::Result<Ended> {
    // SAFETY: this process has one thread, so the child's copy of memory is consistent.
    let pid = unsafe { libc::fork() };
    match pid {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            // SAFETY: takes an integer and cannot fail.
            unsafe { libc::alarm(CHILD_SECONDS) };
            let code = work();
            // SAFETY: takes an integer and does not return.
            unsafe { libc::_exit(code) }
        }
        pid => wait(pid),
    }
}

fn wait(pid: c_int) -> io::Result<Ended> {
    let mut status = 0;
    // SAFETY: the kernel writes one int, which outlives the call.
    let rc = unsafe { libc::waitpid(pid, &raw mut status, 0) };
    if rc < 0 {
        return Err(io::Error::last_os_error());
    }
    if libc::WIFSIGNALED(status) {
        Ok(Ended::Killed(libc::WTERMSIG(status)))
    } else {
        Ok(Ended::Exited(libc::WEXITSTATUS(status)))
    }
}

/// `getpid` through the interface for 32-bit programs. Does not return if the filter kills.
#[cfg(target_arch = "x86_64")]
pub(crate) fn getpid_by_int80() -> i64 {
    let answer: i64;
    // SAFETY: call 20 of the 32-bit table takes no argument and touches no memory; the registers that the kernel may
    // change are named.
    unsafe {
        std::arch::asm!(
            "int 0x80",
            inlateout("rax") 20_i64 => answer,
            lateout("r8") _, lateout("r9") _, lateout("r10") _, lateout("r11") _,
        );
    }
    answer
}

/// Maps fresh private memory. `reserve`: only addresses, which are read and never written.
fn map(bytes: usize, reserve: bool) -> io::Result<*mut u8> {
    let (protection, extra) = match reserve {
        true => (libc::PROT_READ, libc::MAP_NORESERVE),
        false => (libc::PROT_READ | libc::PROT_WRITE, 0),
    };
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | extra;
    // SAFETY: a new mapping at an address of the kernel's choice; nothing existing is replaced.
    let at = unsafe { libc::mmap(ptr::null_mut(), bytes, protection, flags, -1, 0) };
    if at == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(at.cast()) }
}

/// Takes memory and writes to every page of it. It is never freed.
pub(crate) fn take_anonymous(bytes: usize) -> io::Result<()> {
    let at = map(bytes, false)?;
    fill(at, bytes);
    Ok(())
}

fn fill(at: *mut u8, bytes: usize) {
    // SAFETY: the caller mapped this many writable bytes there, and nobody else knows of them.
    unsafe { ptr::write_bytes(at, 1, bytes) };
}

/// Bytes that one page of page tables maps.
const TABLE_SPAN: usize = 2 << 20;

/// Reads one byte of every 2 MiB of a large mapping: each costs a page of page tables and no other memory.
pub(crate) fn take_page_tables(tables: usize) -> io::Result<()> {
    let bytes = tables * TABLE_SPAN;
    let at = map(bytes, true)?;
    // SAFETY: advice about the mapping just made.
    unsafe { libc::madvise(at.cast(), bytes, libc::MADV_NOHUGEPAGE) };
    for table in 0..tables {
        // SAFETY: within the mapping just made, which can be read.
        let byte = unsafe { at.add(table * TABLE_SPAN) };
        // SAFETY: as above.
        unsafe { ptr::read_volatile(byte) };
    }
    Ok(())
}

/// Makes a System V segment and writes to every page of it. It ends with this process.
pub(crate) fn take_shared_segment(bytes: usize) -> io::Result<()> {
    // SAFETY: takes integers.
    let id = unsafe { libc::shmget(libc::IPC_PRIVATE, bytes, libc::IPC_CREAT | 0o600) };
    if id < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: attaches the segment just made at an address of the kernel's choice.
    let at = unsafe { libc::shmat(id, ptr::null(), 0) };
    // SAFETY: takes integers, and no structure with IPC_RMID.
    unsafe { libc::shmctl(id, libc::IPC_RMID, ptr::null_mut()) };
    if at as isize == -1 {
        return Err(io::Error::last_os_error());
    }
    fill(at.cast(), bytes);
    Ok(())
}

/// `SK_MEMINFO_RMEM_ALLOC`, `SK_MEMINFO_WMEM_ALLOC`, `SK_MEMINFO_WMEM_QUEUED`: indexes into the result of `SO_MEMINFO`.
const RECEIVED: usize = 0;
const SENT: usize = 2;
const QUEUED: usize = 5;

/// Bytes of the kernel's memory that a socket's queues hold.
pub(crate) fn socket_memory(socket: BorrowedFd<'_>) -> u64 {
    let mut words = [0_u32; 9];
    let mut length = mem::size_of_val(&words) as libc::socklen_t;
    let (level, option) = (libc::SOL_SOCKET, 55 /* SO_MEMINFO */);
    let to = words.as_mut_ptr().cast();
    // SAFETY: the kernel writes at most `length` bytes to `words`, which outlives the call.
    let rc = unsafe { libc::getsockopt(socket.as_raw_fd(), level, option, to, &raw mut length) };
    if rc < 0 { 0 } else { u64::from(words[RECEIVED]) + u64::from(words[SENT].max(words[QUEUED])) }
}

/// The host user who owns a user namespace and is charged for everything made in it.
pub fn owner_of_namespace(namespace: BorrowedFd<'_>) -> io::Result<u32> {
    const NS_GET_OWNER_UID: libc::Ioctl = 0xb704;
    let mut uid: libc::uid_t = 0;
    // SAFETY: the kernel writes one uid, which outlives the call.
    let rc = unsafe { libc::ioctl(namespace.as_raw_fd(), NS_GET_OWNER_UID, &raw mut uid) };
    if rc < 0 { Err(io::Error::last_os_error()) } else { Ok(uid) }
}

/// A hard limit of this process.
pub(crate) fn hard_limit(resource: libc::__rlimit_resource_t) -> u64 {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the kernel writes one structure, which outlives the call.
    unsafe { libc::getrlimit(resource, &raw mut limit) };
    limit.rlim_max
}

/// Raises the limit of descriptors to the hard limit.
pub(crate) fn raise_open_files() {
    let most = hard_limit(libc::RLIMIT_NOFILE);
    let limit = libc::rlimit { rlim_cur: most, rlim_max: most };
    // SAFETY: the kernel reads one structure, which outlives the call.
    unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) };
}

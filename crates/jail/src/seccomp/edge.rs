//! The system calls of the edge, which talks to strangers: sockets, pipes, memory, threads. It opens no file, starts no
//! program and makes no process.

use libc::*;

use seccompiler::BpfProgram;

use super::{Check, JEQ, LD_WORD, Verdict, allow, argument, errno, instruction, jump, one_of};

/// Bytes in and out, and waiting for them.
const STREAMS: &[c_long] = &[
    SYS_read,
    SYS_write,
    SYS_readv,
    SYS_writev,
    SYS_close,
    SYS_fcntl,
    SYS_dup,
    SYS_pipe2,
    SYS_splice,
    SYS_ppoll,
    SYS_epoll_create1,
    SYS_epoll_ctl,
    SYS_epoll_pwait,
    SYS_epoll_pwait2,
    SYS_eventfd2,
    // Long messages to the daemon go by a file in memory.
    SYS_memfd_create,
    SYS_lseek,
    SYS_fstat,
    SYS_newfstatat,
    SYS_statx,
];

/// Sockets of its own and those that the daemon hands over.
const SOCKETS: &[c_long] = &[
    SYS_bind,
    SYS_connect,
    SYS_listen,
    SYS_accept4,
    SYS_getsockname,
    SYS_getpeername,
    SYS_getsockopt,
    SYS_setsockopt,
    SYS_sendto,
    SYS_recvfrom,
    SYS_sendmsg,
    SYS_recvmsg,
    SYS_sendmmsg,
    SYS_recvmmsg,
    SYS_shutdown,
];

/// The C library and the runtime: memory, threads, time, signals.
const RUNTIME: &[c_long] = &[
    SYS_brk,
    SYS_mmap,
    SYS_munmap,
    SYS_mremap,
    SYS_mprotect,
    SYS_madvise,
    SYS_futex,
    SYS_set_robust_list,
    SYS_rseq,
    SYS_sched_yield,
    SYS_sched_getaffinity,
    SYS_gettid,
    SYS_getpid,
    SYS_tgkill,
    SYS_prctl,
    SYS_sigaltstack,
    SYS_rt_sigaction,
    SYS_rt_sigprocmask,
    SYS_rt_sigreturn,
    SYS_restart_syscall,
    SYS_clock_gettime,
    SYS_clock_nanosleep,
    SYS_getrandom,
    SYS_exit,
    SYS_exit_group,
];

/// Older forms of the above, which only some architectures have.
#[cfg(target_arch = "x86_64")]
const OLD: &[c_long] = &[SYS_poll, SYS_epoll_wait, SYS_dup2];
#[cfg(not(target_arch = "x86_64"))]
const OLD: &[c_long] = &[];

/// `socket(family, type, protocol)`: IPv4 and IPv6 of any type but raw, which the kernel refuses anyway, and netlink
/// for the host's addresses and routes.
pub(super) fn socket_check() -> BpfProgram {
    let netlink = one_of(argument(2), &[NETLINK_ROUTE as u32], allow(), errno(EPROTONOSUPPORT));
    let mut program = vec![
        instruction(LD_WORD, argument(0)),
        jump(JEQ, AF_INET as u32, 0, 1),
        allow(),
        jump(JEQ, AF_INET6 as u32, 0, 1),
        allow(),
        jump(JEQ, AF_NETLINK as u32, 1, 0),
        errno(EAFNOSUPPORT),
    ];
    program.extend(netlink);
    program
}

pub(super) fn verdicts() -> Vec<(u32, Verdict)> {
    let allowed = [STREAMS, SOCKETS, RUNTIME, OLD].into_iter().flatten().map(|call| (*call, Verdict::Allow));
    let checked = [
        // Threads, not processes.
        (SYS_clone, Verdict::Check(Check::Thread)),
        // Its flags are in memory, where no filter can read them; the C library then uses the older call.
        (SYS_clone3, Verdict::Unknown),
        (SYS_socket, Verdict::Check(Check::EdgeSocket)),
        // The runtime has a pair for signals.
        (SYS_socketpair, Verdict::Check(Check::Socketpair)),
        (SYS_ioctl, Verdict::Check(Check::Ioctl)),
    ];
    let mut verdicts: Vec<_> =
        allowed.chain(checked).map(|(number, verdict)| (number as u32, verdict)).collect();
    verdicts.sort_unstable_by_key(|(number, _)| *number);
    verdicts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_no_files_and_no_programs() {
        let verdicts = verdicts();
        for pair in verdicts.windows(2) {
            assert_ne!(pair[0].0, pair[1].0, "syscall {} is listed twice", pair[0].0);
        }
        for number in [
            SYS_openat,
            SYS_openat2,
            SYS_execve,
            SYS_execveat,
            SYS_kill,
            SYS_ptrace,
            SYS_mount,
            SYS_unshare,
            SYS_setns,
            SYS_setuid,
            SYS_io_uring_setup,
            SYS_bpf,
            SYS_unlinkat,
            SYS_renameat2,
        ] {
            assert!(!verdicts.iter().any(|(known, _)| i64::from(*known) == number), "syscall {number}");
        }
    }
}

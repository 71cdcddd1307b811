//! The list itself, as data, with the users of each call. Calls not listed are refused.

use libc::*;

use super::{Check, Verdict};

/// Changes when the list changes; sandboxes state it.
pub const FILTER_NAME: &str = "warren-default-4";

/// `CLONE_NEW*` as `clone` takes them.
pub(super) const NAMESPACE_FLAGS: u32 = (CLONE_NEWNS
    | CLONE_NEWCGROUP
    | CLONE_NEWUTS
    | CLONE_NEWIPC
    | CLONE_NEWUSER
    | CLONE_NEWPID
    | CLONE_NEWNET) as u32;

/// The first two inject characters into a terminal as if they were typed: an escape for a process that shares one. The
/// third sets another line discipline, for which the kernel loads rarely used modules on anybody's demand.
pub(super) const REFUSED_IOCTLS: [u32; 3] =
    [0x5412 /* TIOCSTI */, 0x541C /* TIOCLINUX */, 0x5423 /* TIOCSETD */];

/// As in Docker's filter: none, PER_LINUX32, UNAME26, both, and the query.
pub(super) const PERSONALITIES: [u32; 5] = [0, 0x0008, 0x0002_0000, 0x0002_0008, 0xffff_ffff];

pub(super) const INTERNET_FAMILIES: [u32; 2] = [AF_INET as u32, AF_INET6 as u32];

/// The common protocols of the internet families. The kernel would load modules for others (SCTP, DCCP, L2TP, SMC) on
/// demand.
pub(super) const INTERNET_PROTOCOLS: [u32; 5] = [
    0, /* the usual one of the type */
    IPPROTO_TCP as u32,
    IPPROTO_UDP as u32,
    IPPROTO_ICMP as u32,
    IPPROTO_ICMPV6 as u32,
];
pub(super) const INTERNET_TYPES: [u32; 3] = [SOCK_STREAM as u32, SOCK_DGRAM as u32, SOCK_RAW as u32];
/// `SOCK_TYPE_MASK`: the rest of the word are flags.
pub(super) const SOCKET_TYPE_BITS: u32 = 0xf;

/// Programs on sockets, whose machine code shares one limit with the whole host (`net.core.bpf_jit_limit`).
pub(super) const REFUSED_SOCKET_OPTIONS: [u32; 4] = [
    SO_ATTACH_FILTER as u32,
    SO_ATTACH_BPF as u32,
    SO_ATTACH_REUSEPORT_CBPF as u32,
    SO_ATTACH_REUSEPORT_EBPF as u32,
];
/// Receive buffers keep the kernel's default size. No cgroup counts the data waiting in a netlink socket, the filter
/// cannot tell which kind of socket this is, and the host may allow many megabytes (`net.core.rmem_max`). TCP sizes its
/// buffers by itself.
pub(super) const IGNORED_SOCKET_OPTIONS: [u32; 2] = [SO_RCVBUF as u32, SO_RCVBUFFORCE as u32];

/// Newer than the libc crate; these numbers are the same on every architecture.
const SYS_CACHESTAT: c_long = 451;
const SYS_MAP_SHADOW_STACK: c_long = 453;
const SYS_FUTEX_WAKE: c_long = 454;
const SYS_FUTEX_WAIT: c_long = 455;
const SYS_FUTEX_REQUEUE: c_long = 456;
const SYS_STATMOUNT: c_long = 457;
const SYS_LISTMOUNT: c_long = 458;
const SYS_LSM_GET_SELF_ATTR: c_long = 459;
const SYS_LSM_SET_SELF_ATTR: c_long = 460;
const SYS_LSM_LIST_MODULES: c_long = 461;

/// Files: every program.
const FILES: &[c_long] = &[
    SYS_read,
    SYS_write,
    SYS_close,
    SYS_fstat,
    SYS_lseek,
    SYS_pread64,
    SYS_pwrite64,
    SYS_readv,
    SYS_writev,
    SYS_preadv,
    SYS_pwritev,
    SYS_preadv2,
    SYS_pwritev2,
    SYS_openat,
    SYS_openat2,
    SYS_newfstatat,
    SYS_statx,
    SYS_statfs,
    SYS_fstatfs,
    SYS_getdents64,
    SYS_getcwd,
    SYS_chdir,
    SYS_fchdir,
    SYS_mkdirat,
    SYS_mknodat,
    SYS_unlinkat,
    SYS_renameat,
    SYS_renameat2,
    SYS_linkat,
    SYS_symlinkat,
    SYS_readlinkat,
    SYS_faccessat,
    SYS_faccessat2,
    SYS_fchmod,
    SYS_fchmodat,
    SYS_fchown,
    SYS_fchownat,
    SYS_utimensat,
    SYS_truncate,
    SYS_ftruncate,
    SYS_fallocate,
    SYS_fadvise64,
    SYS_readahead,
    SYS_fsync,
    SYS_fdatasync,
    SYS_sync,
    SYS_syncfs,
    SYS_sync_file_range,
    SYS_flock,
    SYS_fcntl,
    SYS_dup,
    SYS_dup3,
    SYS_pipe2,
    SYS_close_range,
    SYS_umask,
    SYS_sendfile,
    SYS_copy_file_range,
    SYS_splice,
    SYS_tee,
    SYS_vmsplice,
    SYS_name_to_handle_at,
    SYS_CACHESTAT,
    SYS_fchmodat2,
];

/// Extended attributes: tar, rsync, package managers. The kernel refuses the dangerous ones in a user namespace.
const ATTRIBUTES: &[c_long] = &[
    SYS_getxattr,
    SYS_lgetxattr,
    SYS_fgetxattr,
    SYS_setxattr,
    SYS_lsetxattr,
    SYS_fsetxattr,
    SYS_listxattr,
    SYS_llistxattr,
    SYS_flistxattr,
    SYS_removexattr,
    SYS_lremovexattr,
    SYS_fremovexattr,
];

/// Waiting for many things at once: event loops, watchers.
const EVENTS: &[c_long] = &[
    SYS_epoll_create1,
    SYS_epoll_ctl,
    SYS_epoll_pwait,
    SYS_epoll_pwait2,
    SYS_ppoll,
    SYS_pselect6,
    SYS_eventfd2,
    SYS_signalfd4,
    SYS_timerfd_create,
    SYS_timerfd_settime,
    SYS_timerfd_gettime,
    SYS_inotify_init1,
    SYS_inotify_add_watch,
    SYS_inotify_rm_watch,
];

/// Memory: allocators, JITs, loaders, databases.
const MEMORY: &[c_long] = &[
    SYS_brk,
    SYS_mmap,
    SYS_munmap,
    SYS_mremap,
    SYS_mprotect,
    SYS_madvise,
    SYS_msync,
    SYS_mincore,
    SYS_mlock,
    SYS_mlock2,
    SYS_munlock,
    SYS_mlockall,
    SYS_munlockall,
    SYS_memfd_create,
    SYS_membarrier,
    SYS_pkey_alloc,
    SYS_pkey_free,
    SYS_pkey_mprotect,
    SYS_remap_file_pages,
    SYS_MAP_SHADOW_STACK,
    SYS_mseal,
];

/// Processes and threads: shells, build tools, runtimes. `clone` is checked for namespaces; see [`UNKNOWN`] for
/// `clone3`.
const PROCESSES: &[c_long] = &[
    SYS_execve,
    SYS_execveat,
    SYS_exit,
    SYS_exit_group,
    SYS_wait4,
    SYS_waitid,
    SYS_getpid,
    SYS_getppid,
    SYS_gettid,
    SYS_getpgid,
    SYS_setpgid,
    SYS_getsid,
    SYS_setsid,
    SYS_set_tid_address,
    SYS_set_robust_list,
    SYS_get_robust_list,
    SYS_futex,
    SYS_futex_waitv,
    SYS_FUTEX_WAKE,
    SYS_FUTEX_WAIT,
    SYS_FUTEX_REQUEUE,
    SYS_rseq,
    SYS_restart_syscall,
    SYS_prctl,
    SYS_getrusage,
    SYS_times,
    SYS_getcpu,
    SYS_pidfd_open,
    SYS_pidfd_send_signal,
];

/// Signals and timers of a process.
const SIGNALS: &[c_long] = &[
    SYS_kill,
    SYS_tkill,
    SYS_tgkill,
    SYS_rt_sigaction,
    SYS_rt_sigprocmask,
    SYS_rt_sigreturn,
    SYS_rt_sigpending,
    SYS_rt_sigtimedwait,
    SYS_rt_sigsuspend,
    SYS_rt_sigqueueinfo,
    SYS_rt_tgsigqueueinfo,
    SYS_sigaltstack,
    SYS_getitimer,
    SYS_setitimer,
    SYS_timer_create,
    SYS_timer_settime,
    SYS_timer_gettime,
    SYS_timer_getoverrun,
    SYS_timer_delete,
    SYS_nanosleep,
    SYS_clock_nanosleep,
    SYS_clock_gettime,
    SYS_clock_getres,
    SYS_gettimeofday,
];

/// User ids and scheduling. The kernel refuses requests for more than was granted, and those that would affect the
/// guest; see [`crate::privileges::GUEST_MARK`]. It does not for `prlimit64`, so that one is checked, as is
/// `setrlimit`.
const IDENTITY: &[c_long] = &[
    SYS_getuid,
    SYS_geteuid,
    SYS_getgid,
    SYS_getegid,
    SYS_getresuid,
    SYS_getresgid,
    SYS_getgroups,
    SYS_setuid,
    SYS_setgid,
    SYS_setreuid,
    SYS_setregid,
    SYS_setresuid,
    SYS_setresgid,
    SYS_setgroups,
    SYS_setfsuid,
    SYS_setfsgid,
    SYS_capget,
    SYS_capset,
    SYS_getrlimit,
    SYS_getpriority,
    SYS_setpriority,
    SYS_ioprio_get,
    SYS_ioprio_set,
    SYS_sched_yield,
    SYS_sched_getaffinity,
    SYS_sched_setaffinity,
    SYS_sched_getparam,
    SYS_sched_setparam,
    SYS_sched_getscheduler,
    SYS_sched_setscheduler,
    SYS_sched_getattr,
    SYS_sched_setattr,
    SYS_sched_get_priority_max,
    SYS_sched_get_priority_min,
    SYS_sched_rr_get_interval,
    SYS_uname,
    SYS_sysinfo,
    SYS_getrandom,
];

/// Further restrictions on oneself: browsers, sshd and systemd tools sandbox their own children.
const RESTRAINT: &[c_long] =
    &[SYS_seccomp, SYS_landlock_create_ruleset, SYS_landlock_add_rule, SYS_landlock_restrict_self];

/// Networking within the sandbox's own network namespace; `socket`, `socketpair` and `setsockopt` are checked.
const NETWORK: &[c_long] = &[
    SYS_bind,
    SYS_listen,
    SYS_accept,
    SYS_accept4,
    SYS_getsockname,
    SYS_getpeername,
    SYS_getsockopt,
    SYS_sendto,
    SYS_recvfrom,
    SYS_sendmsg,
    SYS_recvmsg,
    SYS_sendmmsg,
    SYS_recvmmsg,
    SYS_shutdown,
];

/// System V and POSIX queues, in the sandbox's own ipc namespace: databases, old programs.
const IPC: &[c_long] = &[
    SYS_shmget,
    SYS_shmat,
    SYS_shmdt,
    SYS_shmctl,
    SYS_semget,
    SYS_semop,
    SYS_semtimedop,
    SYS_semctl,
    SYS_msgget,
    SYS_msgsnd,
    SYS_msgrcv,
    SYS_msgctl,
    SYS_mq_open,
    SYS_mq_unlink,
    SYS_mq_timedsend,
    SYS_mq_timedreceive,
    SYS_mq_notify,
    SYS_mq_getsetattr,
];

/// Only on x86-64: the older names of calls above, and its thread pointer.
#[cfg(target_arch = "x86_64")]
const ARCHITECTURE: &[c_long] = &[
    SYS_open,
    SYS_stat,
    SYS_lstat,
    SYS_poll,
    SYS_access,
    SYS_pipe,
    SYS_select,
    SYS_dup2,
    SYS_pause,
    SYS_alarm,
    SYS_fork,
    SYS_vfork,
    SYS_getdents,
    SYS_rename,
    SYS_mkdir,
    SYS_rmdir,
    SYS_creat,
    SYS_link,
    SYS_unlink,
    SYS_symlink,
    SYS_readlink,
    SYS_chmod,
    SYS_chown,
    SYS_lchown,
    SYS_getpgrp,
    SYS_utime,
    SYS_utimes,
    SYS_futimesat,
    SYS_mknod,
    SYS_time,
    SYS_epoll_create,
    SYS_epoll_wait,
    SYS_epoll_ctl_old,
    SYS_epoll_wait_old,
    SYS_inotify_init,
    SYS_signalfd,
    SYS_eventfd,
    SYS_arch_prctl,
    SYS_modify_ldt,
];
#[cfg(target_arch = "aarch64")]
const ARCHITECTURE: &[c_long] = &[];

/// Answered as if the kernel were older, because the arguments cannot be inspected or the feature is withheld: the C
/// library then falls back to `clone`, runtimes to epoll, databases to threads. `io_setup` draws on one limit for the
/// whole host (`fs.aio-max-nr`), which a single sandbox could use up.
const UNKNOWN: &[c_long] = &[
    SYS_clone3,
    SYS_io_setup,
    SYS_io_destroy,
    SYS_io_submit,
    SYS_io_cancel,
    SYS_io_getevents,
    SYS_io_uring_setup,
    SYS_io_uring_enter,
    SYS_io_uring_register,
    SYS_STATMOUNT,
    SYS_LISTMOUNT,
    SYS_LSM_GET_SELF_ATTR,
    SYS_LSM_SET_SELF_ATTR,
    SYS_LSM_LIST_MODULES,
];

const CHECKED: &[(c_long, Check)] = &[
    (SYS_clone, Check::Clone),
    (SYS_ioctl, Check::Ioctl),
    (SYS_personality, Check::Personality),
    (SYS_prlimit64, Check::Prlimit),
    (SYS_setrlimit, Check::Setrlimit),
    (SYS_setsockopt, Check::Setsockopt),
    (SYS_connect, Check::Connect),
    (SYS_socket, Check::Socket),
    (SYS_socketpair, Check::Socketpair),
];

/// Every syscall that is not simply refused, sorted by number.
pub(super) fn verdicts() -> Vec<(u32, Verdict)> {
    let allowed = [
        FILES,
        ATTRIBUTES,
        EVENTS,
        MEMORY,
        PROCESSES,
        SIGNALS,
        IDENTITY,
        RESTRAINT,
        NETWORK,
        IPC,
        ARCHITECTURE,
    ]
    .concat();
    let mut verdicts: Vec<(u32, Verdict)> = allowed
        .into_iter()
        .map(|number| (number, Verdict::Allow))
        .chain(UNKNOWN.iter().map(|number| (*number, Verdict::Unknown)))
        .chain(CHECKED.iter().map(|(number, check)| (*number, Verdict::Check(*check))))
        .map(|(number, verdict)| (number as u32, verdict))
        .collect();
    verdicts.sort_unstable_by_key(|(number, _)| *number);
    verdicts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_listed_twice() {
        let verdicts = verdicts();
        for pair in verdicts.windows(2) {
            assert_ne!(pair[0].0, pair[1].0, "syscall {}", pair[0].0);
        }
    }

    #[test]
    fn what_breaks_out_is_not_listed() {
        let refused = [
            SYS_mount,
            SYS_umount2,
            SYS_pivot_root,
            SYS_unshare,
            SYS_setns,
            SYS_ptrace,
            SYS_process_vm_readv,
            SYS_process_vm_writev,
            SYS_keyctl,
            SYS_add_key,
            SYS_request_key,
            SYS_bpf,
            SYS_perf_event_open,
            SYS_userfaultfd,
            SYS_open_by_handle_at,
            SYS_init_module,
            SYS_finit_module,
            SYS_delete_module,
            SYS_kexec_load,
            SYS_reboot,
            SYS_swapon,
            SYS_swapoff,
            SYS_chroot,
            SYS_acct,
            SYS_quotactl,
            SYS_open_tree,
            SYS_move_mount,
            SYS_fsopen,
            SYS_fsconfig,
            SYS_fsmount,
            SYS_fspick,
            SYS_mount_setattr,
            SYS_settimeofday,
            SYS_clock_settime,
            SYS_clock_adjtime,
            SYS_adjtimex,
            SYS_sethostname,
            SYS_setdomainname,
            SYS_syslog,
            SYS_vhangup,
            SYS_fanotify_init,
            SYS_pidfd_getfd,
            SYS_kcmp,
            SYS_process_madvise,
            SYS_process_mrelease,
            SYS_move_pages,
            SYS_migrate_pages,
            SYS_get_mempolicy,
            SYS_set_mempolicy,
            SYS_mbind,
            SYS_quotactl_fd,
            SYS_memfd_secret,
        ];
        let verdicts = verdicts();
        for number in refused {
            assert!(!verdicts.iter().any(|(known, _)| i64::from(*known) == number), "syscall {number}");
        }
    }
}

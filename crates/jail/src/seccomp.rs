//! The syscall filter of workloads: deny by default, in the spirit of Docker's.
//!
//! `seccompiler` installs it, but we lay out the program ourselves. Its generator compares one syscall after the other,
//! and the kernel walks the program once for every syscall number at installation. A search tree keeps those walks
//! short: it installs in about 0.08 ms here.

mod allowed;
mod edge;

use std::{fs, io, os::fd::OwnedFd};

use seccompiler::{BpfProgram, sock_filter};

pub use allowed::FILTER_NAME;

use crate::sys;

/// Most bytes waiting in all netlink sockets of one sandbox: no cgroup counts them.
const NETLINK_BYTES: u32 = 16 * 1024 * 1024;
/// The fewest and the most netlink sockets of a sandbox, whatever the host's default buffer size. Programs use one or
/// two, and briefly.
const NETLINK_SOCKETS: (u32, u32) = (8, 64);

/// The treatment of one syscall.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Allow,
    /// As if the kernel did not have it: programs then use older calls.
    Unknown,
    Refuse,
    Check(Check),
}

/// Syscalls that depend on an argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Check {
    /// No new namespaces.
    Clone,
    /// A thread of the same process.
    Thread,
    /// No injecting of input into a terminal.
    Ioctl,
    /// Execution domains that change nothing dangerous.
    Personality,
    /// Only the caller's own limits, except for cores; those of others may be read.
    Prlimit,
    /// Any limit but that of cores.
    Setrlimit,
    /// No programs on sockets, and no larger receive buffers.
    Setsockopt,
    /// The listener decides, as it may make a TCP connection.
    Connect,
    /// Unix, netlink for routes, and the common protocols of IPv4 and IPv6.
    Socket,
    /// Unix only.
    Socketpair,
    /// TCP and UDP, and netlink for routes.
    EdgeSocket,
}

const LD_WORD: u16 = 0x20;
const JEQ: u16 = 0x15;
const JGT: u16 = 0x25;
const JGE: u16 = 0x35;
const JSET: u16 = 0x45;
const JA: u16 = 0x05;
const AND: u16 = 0x54;
const RET: u16 = 0x06;

const RET_ALLOW: u32 = 0x7fff_0000;
const RET_USER_NOTIFICATION: u32 = 0x7fc0_0000;
const RET_ERRNO: u32 = 0x0005_0000;
const RET_KILL_PROCESS: u32 = 0x8000_0000;

/// Offsets in `struct seccomp_data`.
const NUMBER: u32 = 0;
const ARCHITECTURE: u32 = 4;

#[cfg(target_arch = "x86_64")]
const OUR_ARCHITECTURE: u32 = 0xC000_003E;
#[cfg(target_arch = "aarch64")]
const OUR_ARCHITECTURE: u32 = 0xC000_00B7;

/// The low half of an argument, which is all of it if the kernel takes an int.
const fn argument(position: u32) -> u32 {
    16 + 8 * position
}

/// The other half, which counts if the kernel takes a pointer.
const fn high_half(position: u32) -> u32 {
    argument(position) + 4
}

const fn instruction(code: u16, k: u32) -> sock_filter {
    sock_filter { code, jt: 0, jf: 0, k }
}

const fn jump(code: u16, k: u32, jt: u8, jf: u8) -> sock_filter {
    sock_filter { code, jt, jf, k }
}

const fn errno(number: i32) -> sock_filter {
    instruction(RET, RET_ERRNO | number as u32)
}

const fn allow() -> sock_filter {
    instruction(RET, RET_ALLOW)
}

/// Whether a process holds the filter's listener and decides about sockets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Listener {
    Present,
    /// Then there are no netlink sockets, and internet sockets are not counted.
    Absent,
}

/// A filter, compiled once in the spawner and installed in every child.
#[derive(Debug)]
pub(crate) struct Filter {
    asking: BpfProgram,
    unasked: BpfProgram,
    max_netlink_sockets: u32,
}

/// The listener that decides about every netlink and internet socket, and every connection.
#[derive(Debug)]
pub struct SocketGate {
    /// The listener of the filter (`SECCOMP_FILTER_FLAG_NEW_LISTENER`).
    pub listener: OwnedFd,
    /// Netlink sockets at a time.
    pub max_netlink: u32,
}

impl Filter {
    pub(crate) fn workload() -> Self {
        let verdicts = allowed::verdicts();
        Self {
            asking: compile(&verdicts, Listener::Present),
            unasked: compile(&verdicts, Listener::Absent),
            max_netlink_sockets: max_netlink_sockets(),
        }
    }

    /// Applies to the calling thread and all its descendants, forever. `None`: an outer filter already has a listener,
    /// and the kernel allows only one.
    pub(crate) fn install(&self) -> io::Result<Option<SocketGate>> {
        match sys::install_filter(&self.asking) {
            Ok(listener) => {
                return Ok(Some(SocketGate { listener, max_netlink: self.max_netlink_sockets }));
            }
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {}
            Err(error) => return Err(error),
        }
        apply(&self.unasked).map(|()| None)
    }
}

/// Leaves the calling thread and its descendants only what the edge needs.
pub(crate) fn install_edge_filter() -> io::Result<()> {
    apply(&compile(&edge::verdicts(), Listener::Absent))
}

fn apply(program: &BpfProgram) -> io::Result<()> {
    seccompiler::apply_filter(program).map_err(|error| match error {
        seccompiler::Error::Prctl(error) | seccompiler::Error::Seccomp(error) => error,
        other => io::Error::other(other),
    })
}

/// Installs the workloads' filter, for a process not started by the spawner; see [`Filter::install`].
pub fn install_filter() -> io::Result<Option<SocketGate>> {
    Filter::workload().install()
}

/// How many netlink sockets a sandbox may have at a time on this host.
pub fn max_netlink_sockets() -> u32 {
    netlink_sockets_for(&fs::read_to_string("/proc/sys/net/core/rmem_default").unwrap_or_default())
}

/// `default_buffer`: the text of `net.core.rmem_default`.
fn netlink_sockets_for(default_buffer: &str) -> u32 {
    let (fewest, most) = NETLINK_SOCKETS;
    default_buffer
        .trim()
        .parse()
        .map_or(fewest, |bytes: u32| (NETLINK_BYTES / bytes.max(1)).clamp(fewest, most))
}

/// `verdicts`: sorted by number; a missing number is refused if it is below the highest, unknown above.
fn compile(verdicts: &[(u32, Verdict)], listener: Listener) -> BpfProgram {
    let highest = verdicts.last().map_or(0, |(number, _)| *number);
    let mut program = vec![
        instruction(LD_WORD, ARCHITECTURE),
        jump(JEQ, OUR_ARCHITECTURE, 1, 0),
        instruction(RET, RET_KILL_PROCESS),
        instruction(LD_WORD, NUMBER),
        // Also the x32 calls, which are numbered from 0x4000_0000.
        jump(JGT, highest, 0, 1),
        errno(libc::ENOSYS),
    ];
    program.extend(search(&runs(verdicts), listener));
    program
}

/// Merges neighbours with the same verdict: (first number, verdict).
fn runs(verdicts: &[(u32, Verdict)]) -> Vec<(u32, Verdict)> {
    let mut runs: Vec<(u32, Verdict)> = Vec::new();
    let mut next = 0;
    let mut push = |first, verdict| {
        if runs.last().is_none_or(|(_, last)| *last != verdict) {
            runs.push((first, verdict));
        }
    };
    for &(number, verdict) in verdicts {
        if number > next {
            push(next, Verdict::Refuse);
        }
        push(number, verdict);
        next = number + 1;
    }
    runs
}

fn search(runs: &[(u32, Verdict)], listener: Listener) -> BpfProgram {
    if let [(_, verdict)] = runs {
        return leaf(*verdict, listener);
    }
    let (lower, upper) = runs.split_at(runs.len() / 2);
    let (below, above) = (search(lower, listener), search(upper, listener));
    let first_above = upper.first().map_or(0, |(number, _)| *number);
    let mut program = match u8::try_from(below.len()) {
        Ok(distance) => vec![jump(JGE, first_above, distance, 0)],
        // A conditional jump reaches 255 instructions.
        Err(_far) => vec![jump(JGE, first_above, 0, 1), instruction(JA, below.len() as u32)],
    };
    program.extend(below);
    program.extend(above);
    program
}

fn leaf(verdict: Verdict, listener: Listener) -> BpfProgram {
    match verdict {
        Verdict::Allow => vec![allow()],
        Verdict::Unknown => vec![errno(libc::ENOSYS)],
        Verdict::Refuse => vec![errno(libc::EPERM)],
        Verdict::Check(Check::Clone) => vec![
            instruction(LD_WORD, argument(0)),
            jump(JSET, allowed::NAMESPACE_FLAGS, 0, 1),
            errno(libc::EPERM),
            allow(),
        ],
        Verdict::Check(Check::Thread) => vec![
            instruction(LD_WORD, argument(0)),
            jump(JSET, libc::CLONE_THREAD as u32, 1, 0),
            errno(libc::EPERM),
            allow(),
        ],
        Verdict::Check(Check::Ioctl) => {
            one_of(argument(1), &allowed::REFUSED_IOCTLS, errno(libc::EPERM), allow())
        }
        Verdict::Check(Check::Personality) => {
            one_of(argument(0), &allowed::PERSONALITIES, allow(), errno(libc::EPERM))
        }
        Verdict::Check(Check::Prlimit) => prlimit(),
        Verdict::Check(Check::Setrlimit) => one_of(argument(0), &[libc::RLIMIT_CORE], pretend(), allow()),
        Verdict::Check(Check::Setsockopt) => setsockopt(),
        Verdict::Check(Check::Connect) => vec![ask_or(listener, allow())],
        Verdict::Check(Check::Socket) => socket(listener),
        Verdict::Check(Check::EdgeSocket) => edge::socket_check(),
        Verdict::Check(Check::Socketpair) => {
            one_of(argument(0), &[libc::AF_UNIX as u32], allow(), errno(libc::EAFNOSUPPORT))
        }
    }
}

/// Returns 0 without doing anything, as if it had succeeded.
const fn pretend() -> sock_filter {
    instruction(RET, RET_ERRNO)
}

/// `prlimit64(pid, resource, new, old)`. The guest has the workload's user, and only this keeps the workload from
/// lowering the guest's limits. Every thread of the guest has a number, so checking for 1 is not enough.
///
/// The limit of cores stays as it is (see [`crate::privileges::refuse_cores`]), and setting it appears to succeed,
/// because programs with secrets insist on that.
fn prlimit() -> BpfProgram {
    vec![
        instruction(LD_WORD, argument(2)),
        jump(JEQ, 0, 0, 2),
        instruction(LD_WORD, high_half(2)),
        jump(JEQ, 0, 6, 0),
        // There is a new limit.
        instruction(LD_WORD, argument(0)),
        jump(JEQ, 0, 1, 0),
        errno(libc::EPERM),
        instruction(LD_WORD, argument(1)),
        jump(JEQ, libc::RLIMIT_CORE, 0, 1),
        pretend(),
        allow(),
    ]
}

/// `setsockopt(socket, level, option, …)`.
fn setsockopt() -> BpfProgram {
    let mut program = vec![
        instruction(LD_WORD, argument(1)),
        jump(JEQ, libc::SOL_SOCKET as u32, 1, 0),
        allow(),
        instruction(LD_WORD, argument(2)),
    ];
    program.extend(compared(&allowed::REFUSED_SOCKET_OPTIONS, &errno(libc::EPERM)));
    program.extend(compared(&allowed::IGNORED_SOCKET_OPTIONS, &pretend()));
    program.push(allow());
    program
}

/// The listener's decision; `otherwise` without one.
fn ask_or(listener: Listener, otherwise: sock_filter) -> sock_filter {
    match listener {
        Listener::Present => instruction(RET, RET_USER_NOTIFICATION),
        Listener::Absent => otherwise,
    }
}

/// `socket(family, type, protocol)`.
fn socket(listener: Listener) -> BpfProgram {
    let no_protocol = errno(libc::EPROTONOSUPPORT);
    let routes = ask_or(listener, no_protocol.clone());
    let netlink = one_of(argument(2), &[libc::NETLINK_ROUTE as u32], routes, no_protocol.clone());
    let mut internet = vec![instruction(LD_WORD, argument(1)), instruction(AND, allowed::SOCKET_TYPE_BITS)];
    internet.extend(unless_one_of(&allowed::INTERNET_TYPES, errno(libc::ESOCKTNOSUPPORT)));
    internet.extend(one_of(
        argument(2),
        &allowed::INTERNET_PROTOCOLS,
        ask_or(listener, allow()),
        no_protocol,
    ));

    let mut program = one_of(argument(0), &[libc::AF_UNIX as u32], allow(), instruction(JA, 0));
    program.push(jump(JEQ, libc::AF_NETLINK as u32, 0, netlink.len() as u8));
    program.extend(netlink);
    program.extend(unless_one_of(&allowed::INTERNET_FAMILIES, errno(libc::EAFNOSUPPORT)));
    program.extend(internet);
    program
}

/// Compares one argument with values: `found` if it is among them, else `otherwise`.
fn one_of(position: u32, values: &[u32], found: sock_filter, otherwise: sock_filter) -> BpfProgram {
    let mut program = vec![instruction(LD_WORD, position)];
    program.extend(compared(values, &found));
    program.push(otherwise);
    program
}

/// Answers if the loaded value is among a few values; otherwise falls through.
fn compared(values: &[u32], found: &sock_filter) -> BpfProgram {
    values.iter().flat_map(|value| [jump(JEQ, *value, 0, 1), found.clone()]).collect()
}

/// Answers if the loaded value is not among a few values; otherwise falls through.
fn unless_one_of(values: &[u32], answer: sock_filter) -> BpfProgram {
    let past = |position: usize| (values.len() - position) as u8;
    let compared = values.iter().enumerate().map(|(position, value)| jump(JEQ, *value, past(position), 0));
    compared.chain([answer]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a program as the kernel would.
    fn run(program: &[sock_filter], architecture: u32, number: u32, arguments: [u64; 3]) -> u32 {
        let word = |offset: u32| match offset {
            NUMBER => number,
            ARCHITECTURE => architecture,
            offset => {
                let argument = arguments[((offset - 16) / 8) as usize];
                (if (offset - 16) % 8 == 0 { argument } else { argument >> 32 }) as u32
            }
        };
        let (mut pc, mut a) = (0, 0);
        loop {
            let op = &program[pc];
            pc += 1;
            let branch = |taken: bool| usize::from(if taken { op.jt } else { op.jf });
            match op.code {
                LD_WORD => a = word(op.k),
                JEQ => pc += branch(a == op.k),
                JGT => pc += branch(a > op.k),
                JGE => pc += branch(a >= op.k),
                JSET => pc += branch(a & op.k != 0),
                JA => pc += op.k as usize,
                AND => a &= op.k,
                RET => return op.k,
                other => panic!("{other:#x}"),
            }
        }
    }

    fn decide(number: i64, arguments: [u64; 3]) -> u32 {
        run(&Filter::workload().asking, OUR_ARCHITECTURE, number as u32, arguments)
    }

    #[test]
    fn every_number_gets_its_verdict_from_the_tree() {
        let verdicts = allowed::verdicts();
        let program = compile(&verdicts, Listener::Present);
        let highest = verdicts.last().unwrap().0;
        for number in 0..=highest + 50 {
            let got = run(&program, OUR_ARCHITECTURE, number, [0, 0, 0]);
            match verdicts.iter().find(|(known, _)| *known == number) {
                Some((_, Verdict::Allow)) => assert_eq!(got, RET_ALLOW, "{number}"),
                Some((_, Verdict::Unknown)) => assert_eq!(got, RET_ERRNO | libc::ENOSYS as u32),
                Some((_, Verdict::Refuse)) => assert_eq!(got, RET_ERRNO | libc::EPERM as u32),
                Some((_, Verdict::Check(_))) => {}
                None if number > highest => assert_eq!(got, RET_ERRNO | libc::ENOSYS as u32),
                None => assert_eq!(got, RET_ERRNO | libc::EPERM as u32, "{number}"),
            }
        }
        assert!(program.len() < 700, "{}", program.len());
    }

    #[test]
    fn arguments_decide() {
        let refused = RET_ERRNO | libc::EPERM as u32;
        let ioctl = |command: u32| decide(libc::SYS_ioctl, [0, command.into(), 0]);
        assert_eq!(decide(libc::SYS_clone, [libc::CLONE_NEWUSER as u64, 0, 0]), refused);
        assert_eq!(decide(libc::SYS_clone, [(libc::CLONE_VM | libc::CLONE_THREAD) as u64, 0, 0]), RET_ALLOW);
        assert_eq!(ioctl(libc::TIOCSTI as u32), refused);
        assert_eq!(ioctl(libc::TIOCGWINSZ as u32), RET_ALLOW);
        assert_eq!(decide(libc::SYS_personality, [0xffff_ffff, 0, 0]), RET_ALLOW);
        assert_eq!(decide(libc::SYS_personality, [0x0040_0000, 0, 0]), refused);
        assert_eq!(ioctl(libc::TIOCSETD as u32), refused);
    }

    #[test]
    fn sockets_are_of_few_kinds() {
        let no_family = RET_ERRNO | libc::EAFNOSUPPORT as u32;
        let no_type = RET_ERRNO | libc::ESOCKTNOSUPPORT as u32;
        let no_protocol = RET_ERRNO | libc::EPROTONOSUPPORT as u32;
        let socket = |family: i32, kind: i32, protocol: i32| {
            decide(libc::SYS_socket, [family as u64, kind as u64, protocol as u64])
        };
        let stream = libc::SOCK_STREAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        for family in [libc::AF_VSOCK, libc::AF_ALG, libc::AF_TIPC, libc::AF_PACKET] {
            assert_eq!(socket(family, stream, 0), no_family, "{family}");
            assert_eq!(decide(libc::SYS_socketpair, [family as u64, 1, 0]), no_family, "{family}");
        }
        assert_eq!(decide(libc::SYS_socketpair, [libc::AF_INET as u64, 1, 0]), no_family);
        assert_eq!(decide(libc::SYS_socketpair, [libc::AF_UNIX as u64, 1, 0]), RET_ALLOW);
        assert_eq!(socket(libc::AF_UNIX, libc::SOCK_SEQPACKET, 0), RET_ALLOW);
        for family in [libc::AF_INET, libc::AF_INET6] {
            assert_eq!(socket(family, stream, 0), RET_USER_NOTIFICATION);
            assert_eq!(socket(family, stream, libc::IPPROTO_TCP), RET_USER_NOTIFICATION);
            assert_eq!(socket(family, libc::SOCK_DGRAM, libc::IPPROTO_ICMP), RET_USER_NOTIFICATION);
            assert_eq!(socket(family, libc::SOCK_SEQPACKET, 0), no_type);
            assert_eq!(socket(family, libc::SOCK_DCCP, 0), no_type);
            assert_eq!(socket(family, stream, libc::IPPROTO_SCTP), no_protocol);
            assert_eq!(socket(family, stream, libc::IPPROTO_MPTCP), no_protocol);
        }
        let routes = [libc::AF_NETLINK as u64, libc::SOCK_RAW as u64, libc::NETLINK_ROUTE as u64];
        assert_eq!(decide(libc::SYS_socket, routes), RET_USER_NOTIFICATION);
        let unasked = |number: i64, arguments| {
            run(&Filter::workload().unasked, OUR_ARCHITECTURE, number as u32, arguments)
        };
        assert_eq!(unasked(libc::SYS_socket, routes), no_protocol);
        let internet = [libc::AF_INET as u64, stream as u64, 0];
        assert_eq!(unasked(libc::SYS_socket, internet), RET_ALLOW);
        assert_eq!(decide(libc::SYS_connect, [3, 0x1000, 16]), RET_USER_NOTIFICATION);
        assert_eq!(unasked(libc::SYS_connect, [3, 0x1000, 16]), RET_ALLOW);
        assert_eq!(socket(libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_AUDIT), no_protocol);
    }

    #[test]
    fn sockets_get_no_programs_and_no_larger_buffers() {
        let set = |level: i32, option: i32| decide(libc::SYS_setsockopt, [3, level as u64, option as u64]);
        for option in [
            libc::SO_ATTACH_FILTER,
            libc::SO_ATTACH_BPF,
            libc::SO_ATTACH_REUSEPORT_CBPF,
            libc::SO_ATTACH_REUSEPORT_EBPF,
        ] {
            assert_eq!(set(libc::SOL_SOCKET, option), RET_ERRNO | libc::EPERM as u32, "{option}");
        }
        assert_eq!(set(libc::SOL_SOCKET, libc::SO_RCVBUF), RET_ERRNO);
        assert_eq!(set(libc::SOL_SOCKET, libc::SO_RCVBUFFORCE), RET_ERRNO);
        assert_eq!(set(libc::SOL_SOCKET, libc::SO_SNDBUF), RET_ALLOW);
        assert_eq!(set(libc::SOL_SOCKET, libc::SO_REUSEADDR), RET_ALLOW);
        assert_eq!(set(libc::IPPROTO_TCP, libc::SO_ATTACH_FILTER), RET_ALLOW, "another level's option");
    }

    #[test]
    fn netlink_sockets_are_fewer_where_their_buffers_are_larger() {
        assert_eq!(netlink_sockets_for("212992\n"), 64);
        assert_eq!(netlink_sockets_for("1048576\n"), 16);
        assert_eq!(netlink_sockets_for("67108864\n"), 8);
        assert_eq!(netlink_sockets_for("0\n"), 64);
        assert_eq!(netlink_sockets_for(""), 8);
    }

    #[test]
    fn contexts_for_asynchronous_files_are_unknown() {
        assert_eq!(decide(libc::SYS_io_setup, [8, 0x1000, 0]), RET_ERRNO | libc::ENOSYS as u32);
    }

    #[test]
    fn limits_of_others_can_be_read_and_not_changed() {
        let refused = RET_ERRNO | libc::EPERM as u32;
        let prlimit = |pid: u64, new: u64| decide(libc::SYS_prlimit64, [pid, 7, new]);
        assert_eq!(prlimit(0, 0x7fff_0000_1000), RET_ALLOW);
        assert_eq!(prlimit(1, 0), RET_ALLOW);
        assert_eq!(prlimit(1, 0x7fff_0000_1000), refused);
        assert_eq!(prlimit(1, 0x7fff_0000_0000), refused, "a pointer whose low half is zero");
        assert_eq!(prlimit(1, 0x1000), refused);
        // The kernel looks only at the low half.
        assert_eq!(prlimit(0x1_0000_0001, 0x1000), refused);
        assert_eq!(prlimit(0x1_0000_0000, 0x1000), RET_ALLOW);
    }

    #[test]
    fn the_limit_of_cores_stays_as_it_is() {
        let core = u64::from(libc::RLIMIT_CORE);
        assert_eq!(decide(libc::SYS_prlimit64, [0, core, 0x7fff_0000_0000]), RET_ERRNO);
        assert_eq!(decide(libc::SYS_prlimit64, [0, core, 0]), RET_ALLOW);
        assert_eq!(decide(libc::SYS_prlimit64, [1, core, 0x1000]), RET_ERRNO | libc::EPERM as u32);
        assert_eq!(decide(libc::SYS_setrlimit, [core, 0x1000, 0]), RET_ERRNO);
        assert_eq!(decide(libc::SYS_setrlimit, [libc::RLIMIT_NOFILE.into(), 0x1000, 0]), RET_ALLOW);
    }

    #[test]
    fn a_foreign_architecture_is_killed_and_x32_is_unknown() {
        let program = Filter::workload().asking;
        assert_eq!(run(&program, 0x4000_0003, 1, [0; 3]), RET_KILL_PROCESS);
        let x32 = run(&program, OUR_ARCHITECTURE, 0x4000_0001, [0; 3]);
        assert_eq!(x32, RET_ERRNO | libc::ENOSYS as u32);
    }
}

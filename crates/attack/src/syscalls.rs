//! The syscall interface: which calls get through, by number, by argument, and by the interfaces for other kinds of
//! programs.

use crate::{
    attempts::{errno_name, numbers},
    golden,
    report::Report,
    sys::{self, Argument, Ended, NONSENSE},
};

/// One past the last call that kernels may have for some years.
const LAST: i64 = 512;
/// `uretprobe` and `uprobe` of x86-64: the kernel never shows them to a filter, and refuses programs that call them by
/// hand.
const NOT_FILTERED: [i64; 2] = [335, 336];
/// The first of the x32 calls.
const X32: i64 = 0x4000_0000;

/// Every call that is not on the list, each in a child, with useless arguments.
pub(crate) fn sweep() -> Report {
    let mut report = Report::new();
    let is_exempt = |number| cfg!(target_arch = "x86_64") && NOT_FILTERED.contains(&number);
    for number in (0..LAST).filter(|number| !golden::is_allowed(*number) && !is_exempt(*number)) {
        expect_refusal(&mut report, number);
    }
    report
}

/// The calls numbered for the x32 interface, which a filter that compares only numbers would let through.
pub(crate) fn x32() -> Report {
    if cfg!(not(target_arch = "x86_64")) {
        return Report::skip("only x86-64 has such calls");
    }
    let mut report = Report::new();
    for number in [libc::SYS_getpid, libc::SYS_openat, libc::SYS_socket, 512, 520, 545] {
        expect_refusal(&mut report, X32 + number);
    }
    report
}

/// The filter must refuse the call: unknown, not permitted, or deadly.
fn expect_refusal(report: &mut Report, number: i64) {
    let ended = sys::in_child(|| {
        let nonsense = [0; 6].map(|_: i32| Argument::Number(NONSENSE));
        match sys::call(number, nonsense) {
            Ok(_) => 0,
            Err(errno) => errno,
        }
    });
    let what = format!("system call {number}");
    match ended {
        Ok(Ended::Exited(libc::EPERM | libc::ENOSYS)) => report.held(),
        Ok(Ended::Killed(libc::SIGSYS | libc::SIGSEGV | libc::SIGILL)) => report.held(),
        Ok(Ended::Exited(0)) => report.breach(what, "done"),
        Ok(Ended::Exited(errno)) => {
            report.breach(what, format!("reached the kernel: {}", errno_name(errno)));
        }
        Ok(Ended::Killed(signal)) => report.breach(what, format!("ended by signal {signal}")),
        Err(error) => report.breach(what, format!("no child: {error}")),
    }
}

/// The interface for 32-bit programs, whose calls have other numbers.
pub(crate) fn int80() -> Report {
    #[cfg(target_arch = "x86_64")]
    {
        let mut report = Report::new();
        let ended = sys::in_child(|| i32::from(sys::getpid_by_int80() <= 0));
        match ended {
            Ok(Ended::Exited(0)) => report.breach("getpid by int 0x80", "done"),
            Ok(_) => report.held(),
            Err(error) => report.breach("getpid by int 0x80", format!("no child: {error}")),
        }
        report
    }
    #[cfg(not(target_arch = "x86_64"))]
    Report::skip("only x86-64 has that door")
}

/// Calls that are allowed, with arguments that are not.
pub(crate) fn arguments() -> Report {
    let mut report = Report::new();
    let namespaces = [
        libc::CLONE_NEWUSER,
        libc::CLONE_NEWNS,
        libc::CLONE_NEWPID,
        libc::CLONE_NEWNET,
        libc::CLONE_NEWIPC,
        libc::CLONE_NEWUTS,
        libc::CLONE_NEWCGROUP,
    ];
    for flag in namespaces {
        let flags = i64::from(flag) | i64::from(libc::SIGCHLD);
        let tried = sys::in_child(|| match numbers(libc::SYS_clone, [flags]) {
            Ok(_) => 0,
            Err(errno) => errno,
        });
        let refused = matches!(tried, Ok(Ended::Exited(errno)) if errno != 0);
        report.must(format!("clone with {flag:#x}"), refused, "done");
    }
    for (name, request) in [("TIOCSTI", 0x5412), ("TIOCLINUX", 0x541c), ("TIOCSETD", 0x5423)] {
        let answer = numbers(libc::SYS_ioctl, [NONSENSE, request, 0]);
        report.must(format!("ioctl {name}"), answer == Err(libc::EPERM), format!("{answer:?}"));
    }
    // READ_IMPLIES_EXEC and ADDR_NO_RANDOMIZE make every later exploit easier.
    for personality in [0x0040_0000, 0x0004_0000] {
        report.must_fail(
            format!("personality {personality:#x}"),
            numbers(libc::SYS_personality, [personality]),
        );
    }
    report
}

/// Socket families for which the kernel would load rarely used code.
pub(crate) fn socket_families() -> Report {
    let mut report = Report::new();
    let (stream, raw, packet) = (libc::SOCK_STREAM, libc::SOCK_RAW, libc::SOCK_SEQPACKET);
    for (name, family, kind, protocol) in [
        ("AF_PACKET", libc::AF_PACKET, raw, 0),
        ("AF_VSOCK", libc::AF_VSOCK, stream, 0),
        ("AF_ALG", libc::AF_ALG, packet, 0),
        ("AF_TIPC", libc::AF_TIPC, packet, 0),
        ("AF_RDS", libc::AF_RDS, packet, 0),
        ("AF_CAN", libc::AF_CAN, raw, 1),
        ("AF_BLUETOOTH", libc::AF_BLUETOOTH, raw, 1),
        ("AF_KEY", libc::AF_KEY, raw, 2),
        ("AF_XDP", libc::AF_XDP, raw, 0),
        ("netfilter by netlink", libc::AF_NETLINK, raw, libc::NETLINK_NETFILTER),
        ("audit by netlink", libc::AF_NETLINK, raw, libc::NETLINK_AUDIT),
        ("uevents by netlink", libc::AF_NETLINK, raw, libc::NETLINK_KOBJECT_UEVENT),
        ("SCTP", libc::AF_INET, stream, libc::IPPROTO_SCTP),
        ("MPTCP", libc::AF_INET, stream, libc::IPPROTO_MPTCP),
        ("raw IP", libc::AF_INET, raw, libc::IPPROTO_RAW),
    ] {
        let words = [family.into(), kind.into(), protocol.into()];
        report.must_fail(name, numbers(libc::SYS_socket, words));
    }
    report
}

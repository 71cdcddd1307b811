//! Sockets: limits how many a sandbox may have.
//!
//! The kernel charges nobody for data waiting in a netlink socket. It charges most memory of internet sockets, but not
//! connections that are not yet accepted, the last packet of a full connection, unfinished datagrams and error queues.
//! Only the number of sockets bounds those. The syscall filter asks us for each socket and each connection; we look
//! only at registers, so the call cannot change after we allowed it.

use std::{
    collections::HashMap,
    fs, io,
    os::fd::OwnedFd,
    thread,
    time::{Duration, Instant},
};

use rustix::io::Errno;

use crate::sys::{self, AskedCall};

/// How long the kernel may take to count a granted socket: its thread may have to wait for a processor.
const COUNTED_WITHIN: Duration = Duration::from_millis(250);
const STACK_BYTES: usize = 64 * 1024;

/// The syscall filter's listener for socket calls, and the limits.
#[derive(Debug)]
pub struct SocketGate {
    /// The listener of the filter (`SECCOMP_FILTER_FLAG_NEW_LISTENER`).
    pub listener: OwnedFd,
    /// Netlink sockets at a time.
    pub max_netlink: u32,
    pub internet: InternetBudget,
}

/// The limit of internet sockets, as the memory they may use without being charged for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InternetBudget {
    /// For all sockets together.
    pub bytes: u64,
    /// The most that one end of a TCP connection takes.
    pub tcp_socket: u64,
    /// The most that any other socket takes.
    pub other_socket: u64,
}

/// Sockets in this network namespace that are not the workload's.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct NotCounted {
    pub(crate) tcp: u64,
    pub(crate) others: u64,
}

/// Answers socket and connection calls forever, on a thread that makes neither: our own calls are asked about too.
pub(crate) fn guard(gate: SocketGate, not_counted: NotCounted) -> io::Result<()> {
    let thread = thread::Builder::new().name("guest-sockets".to_owned()).stack_size(STACK_BYTES);
    thread.spawn(move || answer_all(&gate, not_counted)).map(drop)
}

fn answer_all(gate: &SocketGate, not_counted: NotCounted) {
    let count_internet = || count_internet(&gate.internet, not_counted);
    sys::answer_on_same_processor(&gate.listener);
    let (mut netlink, mut internet) =
        (Budget::new(gate.max_netlink.into()), Budget::new(gate.internet.bytes));
    loop {
        let call = match sys::receive_call(&gate.listener) {
            Ok(call) => call,
            // The caller ended before the call was received.
            Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::EINTR)) => continue,
            // The listener goes with us, and then the kernel refuses all these calls.
            Err(_) => return,
        };
        let granted = match call {
            AskedCall { number: libc::SYS_socket, first: libc::AF_NETLINK, thread, .. } => {
                netlink.take(thread, 1, count_netlink)
            }
            AskedCall { number: libc::SYS_socket, thread, .. } => {
                internet.take(thread, gate.internet.other_socket, count_internet)
            }
            // For TCP, one more socket at the other end.
            AskedCall { thread, .. } => internet.take(thread, gate.internet.tcp_socket, count_internet),
        };
        // An error means that the caller has ended meanwhile.
        sys::answer_call(&gate.listener, call.id, granted.map_err(Errno::raw_os_error)).ok();
    }
}

/// A bounded number whose use the kernel counts a little later than we grant it.
struct Budget {
    most: u64,
    /// An upper bound of the use: the kernel's last count and everything granted since.
    used_at_most: u64,
    /// The last grant of each thread. The kernel may not count it yet.
    granted: HashMap<u32, (Instant, u64)>,
}

impl Budget {
    fn new(most: u64) -> Self {
        // The first request triggers a count.
        Self { most, used_at_most: most, granted: HashMap::new() }
    }

    fn take(&mut self, thread: u32, cost: u64, count: impl Fn() -> Option<u64>) -> Result<(), Errno> {
        // A thread that asks again has made its last socket, or failed to.
        self.granted.remove(&thread);
        if self.used_at_most.saturating_add(cost) > self.most {
            self.make_room(cost, count)?;
        }
        self.used_at_most += cost;
        self.granted.insert(thread, (Instant::now(), cost));
        Ok(())
    }

    /// Counts again, until there is room or waiting is pointless.
    fn make_room(&mut self, cost: u64, count: impl Fn() -> Option<u64>) -> Result<(), Errno> {
        loop {
            self.granted.retain(|_, (at, _)| at.elapsed() < COUNTED_WITHIN);
            let counted = count().ok_or(Errno::NOBUFS)?;
            let not_counted: u64 = self.granted.values().map(|(_, cost)| cost).sum();
            self.used_at_most = counted.saturating_add(not_counted);
            if self.used_at_most.saturating_add(cost) <= self.most {
                return Ok(());
            }
            let oldest = self.granted.values().map(|(at, _)| *at).min();
            match oldest {
                Some(at) if counted.saturating_add(cost) <= self.most => {
                    thread::sleep(COUNTED_WITHIN.saturating_sub(at.elapsed()));
                }
                _ => return Err(Errno::NOBUFS),
            }
        }
    }
}

fn count_netlink() -> Option<u64> {
    n_sockets(&protocols()?, "NETLINK")
}

/// The most that the internet sockets of this network namespace take.
fn count_internet(budget: &InternetBudget, not_counted: NotCounted) -> Option<u64> {
    internet_bytes(&fs::read_to_string("/proc/net/sockstat").ok()?, &protocols()?, budget, not_counted)
}

fn protocols() -> Option<String> {
    fs::read_to_string("/proc/net/protocols").ok()
}

/// `protocols` counts sockets of TCP and UDP only once they are bound or connected, `sockstat` all sockets of every
/// kind.
fn internet_bytes(
    sockstat: &str,
    protocols: &str,
    budget: &InternetBudget,
    not_counted: NotCounted,
) -> Option<u64> {
    let all: u64 =
        sockstat.lines().find_map(|line| line.strip_prefix("sockets: used "))?.trim().parse().ok()?;
    let of = |names: [&str; 2]| names.iter().filter_map(|name| n_sockets(protocols, name)).sum::<u64>();
    let tcp = of(["TCP", "TCPv6"]);
    let others = all.saturating_sub(of(["UNIX", "UNIX-STREAM"])).saturating_sub(tcp);
    let (tcp, others) = (tcp.saturating_sub(not_counted.tcp), others.saturating_sub(not_counted.others));
    Some(tcp.saturating_mul(budget.tcp_socket).saturating_add(others.saturating_mul(budget.other_socket)))
}

/// Lines of `/proc/net/protocols` begin with the name of a protocol, the size of a socket and their number.
fn n_sockets(protocols: &str, protocol: &str) -> Option<u64> {
    let mut lines = protocols.lines().map(str::split_ascii_whitespace);
    lines.find_map(|mut words| (words.next() == Some(protocol)).then_some(words))?.nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    const PROTOCOLS: &str = "protocol  size sockets  memory press\nUNIX-STREAM 1152 3      -1   NI\n\
        UNIX      1024     55      -1   NI\nTCPv6     2432      2      90   no\nTCP       2304     40      90   no\n\
        NETLINK   1096      7      -1   NI       0   no   kernel\n";

    #[test]
    fn sockets_are_counted_from_the_kernels_tables() {
        assert_eq!(n_sockets(PROTOCOLS, "NETLINK"), Some(7));
        assert_eq!(n_sockets(PROTOCOLS, "UNIX"), Some(55));
        assert_eq!(n_sockets("protocol  size sockets\n", "NETLINK"), None);
        assert_eq!(n_sockets("NETLINK x y\n", "NETLINK"), None);

        let budget = InternetBudget { bytes: 0, tcp_socket: 10, other_socket: 1000 };
        // 42 of TCP, 58 of Unix, and 8 others.
        let sockstat = "sockets: used 108\nTCP: inuse 40 orphan 0 tw 0 alloc 41 mem 90\n";
        let bytes = |sockstat, not_counted| internet_bytes(sockstat, PROTOCOLS, &budget, not_counted);
        assert_eq!(bytes(sockstat, NotCounted::default()), Some(8420));
        assert_eq!(bytes("sockets: used 1\n", NotCounted::default()), Some(420), "counted at other times");
        assert_eq!(bytes("", NotCounted::default()), None);
        assert_eq!(bytes(sockstat, NotCounted { tcp: 2, others: 5 }), Some(3400));
        assert_eq!(bytes("sockets: used 1\n", NotCounted { tcp: 50, others: 5 }), Some(0));
    }

    #[test]
    fn the_kernel_is_asked_only_when_the_budget_may_be_used_up() {
        let (mut budget, asked) = (Budget::new(10), Cell::new(0));
        let count = |used| {
            let asked = &asked;
            move || {
                asked.set(asked.get() + 1);
                Some(used)
            }
        };
        for _ in 0..5 {
            assert_eq!(budget.take(1, 2, count(0)), Ok(()));
        }
        assert_eq!(asked.get(), 1);
        // Only the last one is left, and the kernel counts it by now.
        assert_eq!(budget.take(1, 2, count(2)), Ok(()));
        assert_eq!(asked.get(), 2);
    }

    #[test]
    fn what_is_used_up_is_refused_until_some_is_free() {
        let mut budget = Budget::new(3);
        assert_eq!(budget.take(1, 1, || Some(3)), Err(Errno::NOBUFS));
        assert_eq!(budget.take(1, 1, || None), Err(Errno::NOBUFS), "what cannot be counted is not given");
        assert_eq!(budget.take(1, 1, || Some(2)), Ok(()));
    }

    #[test]
    fn a_grant_that_the_kernel_does_not_count_yet_is_in_the_way_for_a_while() {
        let mut budget = Budget::new(2);
        assert_eq!(budget.take(1, 1, || Some(0)), Ok(()));
        assert_eq!(budget.take(2, 1, || Some(0)), Ok(()));
        let n_counted = Cell::new(0);
        let counting = || {
            n_counted.set(n_counted.get() + 1);
            Some(1)
        };
        assert_eq!(budget.take(3, 1, counting), Ok(()), "one of them was not made");
        assert!(n_counted.get() > 1, "it was waited for");
    }
}

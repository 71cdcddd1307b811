//! Sockets: as many as the sandbox may have, and no more.
//!
//! The kernel charges nobody for what waits in a netlink socket. Of internet sockets it charges most, but not connections that
//! nobody accepted yet, the last packet of a full connection, unfinished datagrams and queues of errors. So their number is
//! all that bounds that. The syscall filter asks us for each socket and for each connection; what we look at is in registers,
//! so what we let go on is what was asked.

use std::{
    collections::HashMap,
    fs, io,
    os::fd::OwnedFd,
    thread,
    time::{Duration, Instant},
};

use rustix::io::Errno;

use crate::sys::{self, AskedCall};

/// How long a socket that was granted may take to be counted by the kernel: its thread may have to wait for a processor.
const COUNTED_WITHIN: Duration = Duration::from_millis(250);
const STACK_BYTES: usize = 64 * 1024;

/// Where the syscall filter asks for sockets, and how many there may be.
#[derive(Debug)]
pub struct SocketGate {
    /// The listener of the filter (`SECCOMP_FILTER_FLAG_NEW_LISTENER`).
    pub listener: OwnedFd,
    /// Netlink sockets at a time.
    pub max_netlink: u32,
    pub internet: InternetBudget,
}

/// How many internet sockets there may be, told by the memory that they may take without being charged for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InternetBudget {
    /// For all sockets together.
    pub bytes: u64,
    /// The most that one end of a TCP connection takes.
    pub tcp_socket: u64,
    /// The most that any other socket takes.
    pub other_socket: u64,
}

/// Answers for ever whoever wants a socket or a connection, on a thread that makes neither: we may be asked for our own.
pub(crate) fn guard(gate: SocketGate) -> io::Result<()> {
    let thread = thread::Builder::new().name("guest-sockets".to_owned()).stack_size(STACK_BYTES);
    thread.spawn(move || answer_all(&gate)).map(drop)
}

fn answer_all(gate: &SocketGate) {
    sys::answer_on_same_processor(&gate.listener);
    let (mut netlink, mut internet) =
        (Budget::new(gate.max_netlink.into()), Budget::new(gate.internet.bytes));
    loop {
        let call = match sys::receive_call(&gate.listener) {
            Ok(call) => call,
            // Gone before it was received.
            Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::EINTR)) => continue,
            // With us the listener goes, and then the kernel refuses all of these calls.
            Err(_) => return,
        };
        let granted = match call {
            AskedCall { number: libc::SYS_socket, first: libc::AF_NETLINK, thread, .. } => {
                netlink.take(thread, 1, count_netlink)
            }
            AskedCall { number: libc::SYS_socket, thread, .. } => {
                internet.take(thread, gate.internet.other_socket, || count_internet(&gate.internet))
            }
            // One more socket at the other end, if it is TCP.
            AskedCall { thread, .. } => {
                internet.take(thread, gate.internet.tcp_socket, || count_internet(&gate.internet))
            }
        };
        // An error here says that whoever called has gone meanwhile.
        sys::answer_call(&gate.listener, call.id, granted.map_err(Errno::raw_os_error)).ok();
    }
}

/// A number of which only so much may be used, where the kernel counts a grant a little later than we make it.
struct Budget {
    most: u64,
    /// No less than what is used: the kernel's last count and all that was granted since.
    used_at_most: u64,
    /// The last grant of each thread. The kernel may not count it yet.
    granted: HashMap<u32, (Instant, u64)>,
}

impl Budget {
    fn new(most: u64) -> Self {
        // The first one who asks has it counted.
        Self { most, used_at_most: most, granted: HashMap::new() }
    }

    fn take(&mut self, thread: u32, cost: u64, count: impl Fn() -> Option<u64>) -> Result<(), Errno> {
        // A thread that asks again has made, or failed to make, its last one.
        self.granted.remove(&thread);
        if self.used_at_most.saturating_add(cost) > self.most {
            self.make_room(cost, count)?;
        }
        self.used_at_most += cost;
        self.granted.insert(thread, (Instant::now(), cost));
        Ok(())
    }

    /// Counts anew, until there is room or nothing more can be waited for.
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
fn count_internet(budget: &InternetBudget) -> Option<u64> {
    internet_bytes(&fs::read_to_string("/proc/net/sockstat").ok()?, &protocols()?, budget)
}

fn protocols() -> Option<String> {
    fs::read_to_string("/proc/net/protocols").ok()
}

/// `protocols` counts sockets of TCP and UDP only once they are bound or connected, `sockstat` all sockets of every kind.
fn internet_bytes(sockstat: &str, protocols: &str, budget: &InternetBudget) -> Option<u64> {
    let all: u64 =
        sockstat.lines().find_map(|line| line.strip_prefix("sockets: used "))?.trim().parse().ok()?;
    let of = |names: [&str; 2]| names.iter().filter_map(|name| n_sockets(protocols, name)).sum::<u64>();
    let tcp = of(["TCP", "TCPv6"]);
    let others = all.saturating_sub(of(["UNIX", "UNIX-STREAM"])).saturating_sub(tcp);
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
        // 42 of TCP, 58 of Unix, and 8 that are one or the other of the rest.
        let sockstat = "sockets: used 108\nTCP: inuse 40 orphan 0 tw 0 alloc 41 mem 90\n";
        assert_eq!(internet_bytes(sockstat, PROTOCOLS, &budget), Some(8420));
        assert_eq!(
            internet_bytes("sockets: used 1\n", PROTOCOLS, &budget),
            Some(420),
            "counted at other times"
        );
        assert_eq!(internet_bytes("", PROTOCOLS, &budget), None);
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
        // Nothing is left of them but the last one, which the kernel counts by now.
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

//! A sandbox's end of the network, as the jail makes it: a network namespace with a `local default` route, an nftables
//! chain and the sockets that are handed out. Here a thread lives in it, which runs what a workload would.

use std::{
    net::{Ipv4Addr, Ipv6Addr, SocketAddr},
    os::fd::OwnedFd,
    sync::mpsc,
    thread,
};

use nix::{
    sched::{CloneFlags, unshare},
    sys::socket::{setsockopt, sockopt},
};
use socket2::{Domain, Protocol, SockAddr, SockFilter, Socket, Type};

use sandbox::network::{NetworkSockets, OWN_ADDRESS_V4, OWN_ADDRESS_V6, RELEASE_MARK};

use super::world::shell;

const PORT: u16 = 9999;

const SETUP: &str = "
set -e
ip link set lo up
ip addr add OWN4/32 dev lo
ip -6 addr add OWN6/128 dev lo nodad
ip route add local default dev lo src OWN4
ip -6 route add local default dev lo src OWN6
nft -f - <<'END'
table inet warren {
    chain pre {
        type filter hook prerouting priority mangle; policy drop;
        ip daddr { 127.0.0.0/8, OWN4 } accept
        ip6 daddr { ::1, OWN6 } accept
        tcp flags & (syn | ack) == syn meta mark != MARK drop
        meta nfproto ipv4 meta l4proto tcp tproxy ip to 127.0.0.1:9999 accept
        meta nfproto ipv6 meta l4proto tcp tproxy ip6 to [::1]:9999 accept
        meta nfproto ipv4 meta l4proto udp tproxy ip to 127.0.0.1:9999 accept
        meta nfproto ipv6 meta l4proto udp tproxy ip6 to [::1]:9999 accept
    }
}
END
";

type Job = Box<dyn FnOnce() + Send>;

/// A thread in a network namespace of its own.
#[derive(Debug, Clone)]
pub(crate) struct Inside {
    jobs: mpsc::Sender<Job>,
}

impl Inside {
    pub(crate) fn new() -> (Self, NetworkSockets) {
        let (jobs, todo) = mpsc::channel::<Job>();
        thread::spawn(move || {
            unshare(CloneFlags::CLONE_NEWNET).unwrap();
            for job in todo {
                job();
            }
        });
        let inside = Self { jobs };
        let sockets = inside.run(|| {
            let setup = SETUP.replace("OWN4", &OWN_ADDRESS_V4.to_string());
            let setup = setup.replace("OWN6", &OWN_ADDRESS_V6.to_string());
            shell(&setup.replace("MARK", &RELEASE_MARK.to_string()));
            sockets()
        });
        (inside, sockets)
    }

    /// Runs something in the sandbox, one after the other.
    pub(crate) fn run<T: Send + 'static>(&self, job: impl FnOnce() -> T + Send + 'static) -> T {
        self.start(job).join().unwrap()
    }

    /// Starts something in the sandbox, in a thread of its own: threads inherit the namespace.
    pub(crate) fn start<T: Send + 'static>(
        &self,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> thread::JoinHandle<T> {
        let (started, handle) = mpsc::channel();
        let _is_alive = self.jobs.send(Box::new(move || started.send(thread::spawn(job)).unwrap()));
        handle.recv().unwrap()
    }
}

fn sockets() -> NetworkSockets {
    let tcp = |domain| {
        let socket = Socket::new(domain, Type::STREAM, Some(Protocol::TCP)).unwrap();
        socket.set_reuse_address(true).unwrap();
        transparent(socket, domain, |socket| socket.listen(4096).unwrap())
    };
    let udp = |domain| {
        let socket = Socket::new(domain, Type::DGRAM, Some(Protocol::UDP)).unwrap();
        if domain == Domain::IPV4 {
            setsockopt(&socket, sockopt::Ipv4OrigDstAddr, &true).unwrap();
        } else {
            setsockopt(&socket, sockopt::Ipv6OrigDstAddr, &true).unwrap();
        }
        transparent(socket, domain, |_| {})
    };
    let raw = |domain| {
        let socket = Socket::new(domain, Type::RAW, Some(Protocol::from(255))).unwrap();
        socket.set_mark(RELEASE_MARK).unwrap();
        OwnedFd::from(socket)
    };
    NetworkSockets {
        tcp: vec![tcp(Domain::IPV4), tcp(Domain::IPV6)],
        udp: vec![udp(Domain::IPV4), udp(Domain::IPV6)],
        raw4: raw(Domain::IPV4),
        raw6: Some(raw(Domain::IPV6)),
        syn: syn(),
    }
}

fn transparent(socket: Socket, domain: Domain, then: impl Fn(&Socket)) -> OwnedFd {
    setsockopt(&socket, sockopt::IpTransparent, &true).unwrap();
    let address = if domain == Domain::IPV4 {
        SocketAddr::from((Ipv4Addr::LOCALHOST, PORT))
    } else {
        socket.set_only_v6(true).unwrap();
        SocketAddr::from((Ipv6Addr::LOCALHOST, PORT))
    };
    socket.bind(&SockAddr::from(address)).unwrap();
    then(&socket);
    OwnedFd::from(socket)
}

/// Hears SYNs that come in, of IPv4 and IPv6, without our mark.
fn syn() -> OwnedFd {
    const ALL_PROTOCOLS: i32 = 3;
    const ANCILLARY: u32 = 0u32.wrapping_sub(0x1000);
    let f = SockFilter::new;
    let filter = [
        f(0x20, 0, 0, ANCILLARY + 4), // which way it goes
        f(0x15, 16, 0, 4),            // out: heard again when it comes in
        f(0x20, 0, 0, ANCILLARY + 20),
        f(0x15, 14, 0, RELEASE_MARK), // released by us
        f(0x30, 0, 0, 0),             // version
        f(0x54, 0, 0, 0xf0),
        f(0x15, 5, 0, 0x60),
        f(0x15, 0, 10, 0x40),
        f(0x30, 0, 0, 9), // IPv4: TCP only, X is the length of the header
        f(0x15, 0, 8, 6),
        f(0xb1, 0, 0, 0),
        f(0x05, 0, 0, 3),
        f(0x30, 0, 0, 6), // IPv6: the same
        f(0x15, 0, 4, 6),
        f(0x01, 0, 0, 40),
        f(0x50, 0, 0, 13), // flags: SYN without ACK
        f(0x54, 0, 0, 0x12),
        f(0x15, 1, 0, 0x02),
        f(0x06, 0, 0, 0),
        f(0x06, 0, 0, 256),
    ];
    let protocol = i32::from(u16::try_from(ALL_PROTOCOLS).unwrap().to_be());
    let socket = Socket::new(Domain::PACKET, Type::DGRAM, Some(Protocol::from(protocol))).unwrap();
    socket.attach_filter(&filter).unwrap();
    OwnedFd::from(socket)
}

//! The sandbox's end of a network that follows a policy: its sockets belong to the daemon's side, and no program inside
//! may get at them, imitate them or go around them. For a sandbox whose policy allows none of the addresses here.

use std::{
    fs, io,
    io::{Read as _, Write as _},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket},
    os::fd::{AsRawFd as _, OwnedFd},
    time::Duration,
};

use rustix::net::{AddressFamily, SocketType, bind, listen, socket, sockopt};

use crate::{
    attempts::numbers,
    report::Report,
    settings::padded,
    sys::{Argument, call},
};

/// Where the sockets of the daemon's side are bound, and the mark of the packets that it lets pass.
const PROXY_V4: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const PROXY_V6: Ipv6Addr = Ipv6Addr::new(0x100, 0, 0, 0, 0, 0, 0, 1);
const PROXY_PORT: u16 = 61_443;
const RELEASE_MARK: u32 = 0x7761_7272;
/// The sandbox's own addresses.
const OWN_V4: Ipv4Addr = Ipv4Addr::new(10, 83, 66, 1);
const OWN_V6: Ipv6Addr = Ipv6Addr::new(0xfd77, 0x6172, 0x7265, 0x6e00, 0, 0, 0, 1);
/// Addresses outside, which the policy does not allow.
const OUTSIDE: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::new(93, 184, 216, 34)),
    IpAddr::V6(Ipv6Addr::new(0x2606, 0x4700, 0, 0, 0, 0, 0, 1)),
];
/// More than a guest has.
const DESCRIPTORS: i64 = 64;
const CONNECT_TIME: Duration = Duration::from_millis(300);

/// The guest's copies of the sockets.
pub(crate) fn descriptors() -> Report {
    let mut report = Report::new();
    for directory in ["fd", "fdinfo"] {
        let path = format!("/proc/1/{directory}");
        report.must_fail(path.clone(), fs::read_dir(&path).map(Iterator::count).and_then(some));
        for number in 3..DESCRIPTORS {
            let path = format!("{path}/{number}");
            report.must_fail(path.clone(), fs::File::open(&path));
        }
    }
    if let Ok(pidfd) = numbers(libc::SYS_pidfd_open, [1, 0]) {
        for number in 0..DESCRIPTORS {
            let fetched = numbers(libc::SYS_pidfd_getfd, [pidfd, number, 0]);
            report.must_fail(format!("pidfd_getfd {number}"), fetched);
        }
    }
    for number in 3..DESCRIPTORS {
        let own = fs::read_link(format!("/proc/self/fd/{number}")).unwrap_or_default();
        let own = own.to_string_lossy().into_owned();
        report.must(format!("own descriptor {number}"), !own.starts_with("socket:"), own);
    }
    report
}

fn some(count: usize) -> io::Result<()> {
    if count == 0 { Err(io::ErrorKind::NotFound.into()) } else { Ok(()) }
}

/// Sockets by which packets could be made, marked, seen or redirected.
pub(crate) fn rights() -> Report {
    let mut report = Report::new();
    let raw = libc::SOCK_RAW;
    for (name, family, kind, protocol) in [
        ("raw IPv4", libc::AF_INET, raw, libc::IPPROTO_RAW),
        ("raw IPv6", libc::AF_INET6, raw, libc::IPPROTO_RAW),
        ("raw TCP", libc::AF_INET, raw, libc::IPPROTO_TCP),
        ("raw UDP", libc::AF_INET6, raw, libc::IPPROTO_UDP),
        ("raw ICMP", libc::AF_INET, raw, libc::IPPROTO_ICMP),
        ("packets", libc::AF_PACKET, raw, 0x0300),
        ("packets without a link header", libc::AF_PACKET, libc::SOCK_DGRAM, 0x0300),
        ("netfilter", libc::AF_NETLINK, raw, libc::NETLINK_NETFILTER),
        ("socket diagnosis", libc::AF_NETLINK, raw, libc::NETLINK_SOCK_DIAG),
    ] {
        let made = numbers(libc::SYS_socket, [family.into(), kind.into(), protocol.into()]);
        report.must_fail(format!("socket for {name}"), made);
    }
    for family in [AddressFamily::INET, AddressFamily::INET6] {
        for kind in [SocketType::STREAM, SocketType::DGRAM] {
            let Ok(made) = socket(family, kind, None) else { continue };
            for (name, level, option, value) in [
                ("SO_MARK", libc::SOL_SOCKET, libc::SO_MARK, RELEASE_MARK),
                ("IP_TRANSPARENT", libc::SOL_IP, libc::IP_TRANSPARENT, 1),
                ("IPV6_TRANSPARENT", libc::SOL_IPV6, libc::IPV6_TRANSPARENT, 1),
            ] {
                report.must_fail(format!("{name} of {kind:?}"), set(&made, level, option, value));
            }
        }
    }
    // Routes and addresses by netlink, which programs may open to look.
    for (name, kind, body) in [
        ("delete the route", 25_u16, vec![2, 0, 0, 0, 254, 3, 254, 2, 0, 0, 0, 0]),
        ("take the link down", 16, vec![0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0]),
        ("delete the address", 21, vec![2, 32, 0, 0, 1, 0, 0, 0, 8, 0, 2, 0, 10, 83, 66, 1]),
    ] {
        report.must_fail(name, by_netlink(kind, &body));
    }
    report
}

fn set(socket: &OwnedFd, level: i32, option: i32, value: u32) -> Result<i64, i32> {
    let mut value = value.to_ne_bytes();
    let arguments = padded([
        Argument::Number(socket.as_raw_fd().into()),
        Argument::Number(level.into()),
        Argument::Number(option.into()),
        Argument::Memory(&mut value),
        Argument::Number(4),
    ]);
    call(libc::SYS_setsockopt, arguments)
}

/// One request that changes something, and the kernel's answer.
fn by_netlink(kind: u16, body: &[u8]) -> Result<(), i32> {
    const REQUEST_AND_ACKNOWLEDGE: u16 = 5;
    let failed = |error: rustix::io::Errno| error.raw_os_error();
    let made = socket(AddressFamily::NETLINK, SocketType::RAW, None).map_err(failed)?;
    let mut message = ((16 + body.len()) as u32).to_ne_bytes().to_vec();
    message.extend_from_slice(&kind.to_ne_bytes());
    message.extend_from_slice(&REQUEST_AND_ACKNOWLEDGE.to_ne_bytes());
    message.extend_from_slice(&[0; 8]);
    message.extend_from_slice(body);
    rustix::net::send(&made, &message, rustix::net::SendFlags::empty()).map_err(failed)?;
    let mut answer = [0; 512];
    let flags = rustix::net::RecvFlags::DONTWAIT;
    let (length, _) = rustix::net::recv(&made, &mut answer, flags).map_err(failed)?;
    match answer[..length].get(16..20) {
        Some([0, 0, 0, 0]) => Ok(()),
        Some(&[a, b, c, d]) => Err(-i32::from_ne_bytes([a, b, c, d])),
        _ => Err(libc::EIO),
    }
}

/// Takes the place of the daemon's sockets, or connects to them directly.
pub(crate) fn catch() -> Report {
    let mut report = Report::new();
    for kind in [SocketType::STREAM, SocketType::DGRAM] {
        for address in [IpAddr::V4(PROXY_V4), IpAddr::V4(Ipv4Addr::UNSPECIFIED), IpAddr::V6(PROXY_V6)] {
            let what = format!("bind {kind:?} to {address} port {PROXY_PORT}");
            report.must_fail(what, bound(kind, SocketAddr::new(address, PROXY_PORT)));
        }
    }
    let ours = [
        IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V4(OWN_V4),
        IpAddr::V6(Ipv6Addr::LOCALHOST),
        IpAddr::V6(OWN_V6),
        IpAddr::V4(PROXY_V4),
        IpAddr::V6(PROXY_V6),
    ];
    for address in ours.map(|address| SocketAddr::new(address, PROXY_PORT)) {
        report.must_fail(format!("connect to {address}"), TcpStream::connect_timeout(&address, CONNECT_TIME));
    }
    for outside in OUTSIDE {
        report.must_fail(format!("a server here for {outside}"), caught_connection(outside));
        report.must_fail(format!("datagrams here for {outside}"), caught_datagram(outside));
    }
    report
}

/// A socket with every permission to share its address.
fn bound(kind: SocketType, address: SocketAddr) -> io::Result<OwnedFd> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let made = socket(family, kind, None)?;
    sockopt::set_socket_reuseaddr(&made, true)?;
    sockopt::set_socket_reuseport(&made, true)?;
    bind(&made, &address)?;
    if kind == SocketType::STREAM {
        listen(&made, 1)?;
    }
    Ok(made)
}

/// Every address of the same family.
fn every_address(like: IpAddr) -> IpAddr {
    match like {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    }
}

/// A server of ours on every address must not get a connection that is for elsewhere.
fn caught_connection(outside: IpAddr) -> io::Result<()> {
    let any = every_address(outside);
    let server = TcpListener::from(bound(SocketType::STREAM, SocketAddr::new(any, 8443))?);
    server.set_nonblocking(true)?;
    // Also one on the very address, where the kernel allows it.
    let exact = bound(SocketType::STREAM, SocketAddr::new(outside, 8444)).map(TcpListener::from);
    if let Ok(exact) = &exact {
        exact.set_nonblocking(true)?;
    }
    let by_any = TcpStream::connect_timeout(&SocketAddr::new(outside, 8443), CONNECT_TIME);
    let by_exact = TcpStream::connect_timeout(&SocketAddr::new(outside, 8444), CONNECT_TIME);
    let got = server.accept().is_ok() || exact.is_ok_and(|exact| exact.accept().is_ok());
    if got || by_any.is_ok() || by_exact.is_ok() { Ok(()) } else { Err(io::ErrorKind::TimedOut.into()) }
}

fn caught_datagram(outside: IpAddr) -> io::Result<()> {
    let any = every_address(outside);
    let server = UdpSocket::from(bound(SocketType::DGRAM, SocketAddr::new(any, 8453))?);
    let client = UdpSocket::bind(SocketAddr::new(any, 0))?;
    client.send_to(b"x", SocketAddr::new(outside, 8453))?;
    server.set_read_timeout(Some(CONNECT_TIME))?;
    server.recv_from(&mut [0; 9]).map(drop)
}

/// `network-nobody`: what the policy does not allow does not answer.
pub(crate) fn nobody() -> Report {
    let mut report = Report::new();
    for address in
        ["93.184.216.34:443", "169.254.169.254:80", "10.0.0.1:22", "127.0.0.2:1", "[2606:4700::1]:443"]
    {
        let Ok(address) = address.parse::<SocketAddr>() else { continue };
        let said = TcpStream::connect_timeout(&address, CONNECT_TIME).and_then(|mut stream| {
            stream.set_read_timeout(Some(CONNECT_TIME))?;
            stream.write_all(b"GET / HTTP/1.0\r\n\r\n")?;
            stream.read(&mut [0])
        });
        report.must_fail(address.to_string(), said);
    }
    report
}

//! The sockets that packets for outside arrive at, and those by which they are answered.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    os::fd::OwnedFd,
};

use libc::sock_filter;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, ipproto, listen, socket_with, sockopt};

use super::{NamedPorts, NetworkEnd, PROXY_PORT, PROXY_V4, PROXY_V6};
use crate::sys;

/// Connections that the kernel accepted and our side did not yet. Each begins only when our side says so.
const WAITING_CONNECTIONS: i32 = 512;

pub(super) fn make(end: &NetworkEnd) -> io::Result<Vec<OwnedFd>> {
    if let Some(named) = &end.named {
        return make_named(end, named);
    }
    let proxies: Vec<IpAddr> =
        [Some(PROXY_V4.into()), end.v6.map(|_own| PROXY_V6.into())].into_iter().flatten().collect();
    let mut all = Vec::with_capacity(3 * proxies.len() + 1);
    for make in [tcp, udp] {
        for proxy in &proxies {
            all.push(make(*proxy)?);
        }
    }
    for proxy in &proxies {
        all.push(raw(family(*proxy), end.mark)?);
    }
    all.push(first_packets(end)?);
    Ok(all)
}

fn make_named(end: &NetworkEnd, named: &NamedPorts) -> io::Result<Vec<OwnedFd>> {
    // One socket of IPv6 takes both.
    let any: IpAddr =
        if end.v6.is_some() { Ipv6Addr::UNSPECIFIED.into() } else { Ipv4Addr::UNSPECIFIED.into() };
    let mut all = Vec::with_capacity(named.tcp.len() + named.udp.len() + 3);
    for port in &named.tcp {
        let socket = plain(SocketType::STREAM, any)?;
        sockopt::set_socket_reuseaddr(&socket, true)?;
        sockopt::set_tcp_nodelay(&socket, true)?;
        bind(&socket, &SocketAddr::from((any, *port)))?;
        listen(&socket, WAITING_CONNECTIONS)?;
        all.push(socket);
    }
    for port in &named.udp {
        let socket = plain(SocketType::DGRAM, any)?;
        sys::set_socket_option(&socket, libc::SOL_IP, libc::IP_RECVORIGDSTADDR, 1)?;
        if any.is_ipv6() {
            sys::set_socket_option(&socket, libc::SOL_IPV6, libc::IPV6_RECVORIGDSTADDR, 1)?;
        }
        bind(&socket, &SocketAddr::from((any, *port)))?;
        all.push(socket);
    }
    all.push(raw(AddressFamily::INET, end.mark)?);
    if end.v6.is_some() {
        all.push(raw(AddressFamily::INET6, end.mark)?);
    }
    all.push(first_packets(end)?);
    Ok(all)
}

fn plain(kind: SocketType, at: IpAddr) -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(family(at), kind, flags, None)?;
    if at.is_ipv6() {
        sockopt::set_ipv6_v6only(&socket, false)?;
    }
    Ok(socket)
}

fn family(address: IpAddr) -> AddressFamily {
    if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 }
}

/// A socket that takes packets for any address.
fn transparent(kind: SocketType, at: IpAddr) -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(family(at), kind, flags, None)?;
    match at {
        IpAddr::V4(_) => sys::set_socket_option(&socket, libc::SOL_IP, libc::IP_TRANSPARENT, 1)?,
        IpAddr::V6(_) => {
            sockopt::set_ipv6_v6only(&socket, true)?;
            sys::set_socket_option(&socket, libc::SOL_IPV6, libc::IPV6_TRANSPARENT, 1)?;
        }
    }
    Ok(socket)
}

fn tcp(at: IpAddr) -> io::Result<OwnedFd> {
    let socket = transparent(SocketType::STREAM, at)?;
    // Ends of connections inherit it. They are bound to the ports of servers outside, and without it no program inside
    // could listen on the same port.
    sockopt::set_socket_reuseaddr(&socket, true)?;
    // Inherited too: whoever carries bytes has waited for them already.
    sockopt::set_tcp_nodelay(&socket, true)?;
    bind(&socket, &SocketAddr::from((at, PROXY_PORT)))?;
    listen(&socket, WAITING_CONNECTIONS)?;
    Ok(socket)
}

/// Each datagram comes with its destination (`IP_ORIGDSTADDR`, `IPV6_ORIGDSTADDR`).
fn udp(at: IpAddr) -> io::Result<OwnedFd> {
    let socket = transparent(SocketType::DGRAM, at)?;
    let (level, option) = match at {
        IpAddr::V4(_) => (libc::SOL_IP, libc::IP_RECVORIGDSTADDR),
        IpAddr::V6(_) => (libc::SOL_IPV6, libc::IPV6_RECVORIGDSTADDR),
    };
    sys::set_socket_option(&socket, level, option, 1)?;
    bind(&socket, &SocketAddr::from((at, PROXY_PORT)))?;
    Ok(socket)
}

/// Sends whole packets, headers included. Nothing arrives at it.
fn raw(family: AddressFamily, mark: u32) -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(family, SocketType::RAW, flags, Some(ipproto::RAW))?;
    sys::set_socket_option(&socket, libc::SOL_SOCKET, libc::SO_MARK, mark as i32)?;
    Ok(socket)
}

/// Packet sockets see packets before the rules do.
fn first_packets(end: &NetworkEnd) -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    // It receives nothing before it is bound, and has its filter by then.
    let socket = socket_with(AddressFamily::PACKET, SocketType::DGRAM, flags, None)?;
    sys::attach_filter(&socket, &filter(end))?;
    sys::set_socket_option(&socket, libc::SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)?;
    sys::bind_to_link(&socket, libc::ETH_P_ALL as u16, 1)?;
    Ok(socket)
}

/// The option that leaves out sent packets: each is received right after, on the same link.
const PACKET_IGNORE_OUTGOING: i32 = 23;

/// Bytes of a packet that are kept: headers of first packets are shorter, and they carry no data.
const KEPT_BYTES: u32 = 256;

/// Instructions of the kernel's packet filter.
const LOAD_WORD: u16 = 0x20;
const LOAD_BYTE: u16 = 0x30;
const LOAD_BYTE_INDEXED: u16 = 0x50;
const INDEX_BY_HEADER: u16 = 0xb1;
const AND: u16 = 0x54;
const JUMP_IF_EQUAL: u16 = 0x15;
const RETURN: u16 = 0x06;
/// The position at which a load yields the packet's mark.
const MARK: u32 = (-0x1000_i32 + 20) as u32;

const TCP: u32 = 6;
const SYN_AND_ACK: u32 = 0x12;
const SYN: u32 = 0x02;
const LOOPBACK_NET: u32 = 127;
const V6_HEADER_BYTES: u32 = 40;

/// Passes first packets of TCP connections from the sandbox's own address to elsewhere that do not have our mark.
fn filter(end: &NetworkEnd) -> Vec<sock_filter> {
    let keep = instruction(RETURN, KEPT_BYTES);
    let own = end.v4.to_bits();
    let mut v4 = vec![instruction(LOAD_BYTE, 9)];
    v4.extend(unless_equal(TCP));
    v4.extend([
        instruction(INDEX_BY_HEADER, 0),
        instruction(LOAD_BYTE_INDEXED, 13),
        instruction(AND, SYN_AND_ACK),
    ]);
    v4.extend(unless_equal(SYN));
    v4.extend(unless_words_equal(12, &[own]));
    v4.extend(if_words_equal(16, &[own]));
    v4.extend([instruction(LOAD_BYTE, 16)]);
    v4.extend(if_equal(LOOPBACK_NET));
    v4.push(keep);

    let mut v6 = vec![instruction(LOAD_BYTE, 6)];
    v6.extend(unless_equal(TCP));
    v6.extend([instruction(LOAD_BYTE, V6_HEADER_BYTES + 13), instruction(AND, SYN_AND_ACK)]);
    v6.extend(unless_equal(SYN));
    match end.v6 {
        Some(own) => {
            v6.extend(unless_words_equal(8, &words(own)));
            v6.extend(if_words_equal(24, &words(own)));
            v6.extend(if_words_equal(24, &words(Ipv6Addr::LOCALHOST)));
            v6.push(keep);
        }
        None => v6.push(DROP),
    }

    let mut program = vec![instruction(LOAD_WORD, MARK)];
    program.extend(if_equal(end.mark));
    program.extend([instruction(LOAD_BYTE, 0), instruction(AND, 0xf0), jump(0x40, 0, v4.len() as u8)]);
    program.extend(v4);
    program.extend(unless_equal(0x60));
    program.extend(v6);
    program
}

fn words(address: Ipv6Addr) -> [u32; 4] {
    let bits = address.to_bits();
    [96, 64, 32, 0].map(|shift| (bits >> shift) as u32)
}

const fn instruction(code: u16, k: u32) -> sock_filter {
    sock_filter { code, jt: 0, jf: 0, k }
}

const fn jump(k: u32, jt: u8, jf: u8) -> sock_filter {
    sock_filter { code: JUMP_IF_EQUAL, jt, jf, k }
}

const DROP: sock_filter = instruction(RETURN, 0);

/// Drops the packet if the loaded value is this one; otherwise goes on.
fn if_equal(value: u32) -> [sock_filter; 2] {
    [jump(value, 0, 1), DROP]
}

fn unless_equal(value: u32) -> [sock_filter; 2] {
    [jump(value, 1, 0), DROP]
}

/// Drops the packet if these words are at an offset.
fn if_words_equal(offset: u32, values: &[u32]) -> Vec<sock_filter> {
    let mut program = Vec::new();
    for ((value, at), n_left) in values.iter().zip((offset..).step_by(4)).zip((0..values.len()).rev()) {
        let past_the_end = (2 * n_left + 1) as u8;
        program.extend([instruction(LOAD_WORD, at), jump(*value, 0, past_the_end)]);
    }
    program.push(DROP);
    program
}

fn unless_words_equal(offset: u32, values: &[u32]) -> Vec<sock_filter> {
    let loaded = values.iter().zip((offset..).step_by(4));
    loaded
        .flat_map(|(value, at)| {
            [[instruction(LOAD_WORD, at)].to_vec(), unless_equal(*value).to_vec()].concat()
        })
        .collect()
}

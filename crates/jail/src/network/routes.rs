//! Addresses and routes: everything outside is local, so that the kernel ends connections in here.

use std::{io, net::IpAddr};

use super::NetworkEnd;
use crate::netlink::{ACKNOWLEDGE, CREATE, EXCLUSIVE, REPLACE, ROUTES, Request};

/// The number of `lo` in every network namespace.
const LOOPBACK: u32 = 1;

const NEW_LINK: u16 = 16;
const NEW_ADDRESS: u16 = 20;
const NEW_ROUTE: u16 = 24;

const LINK_IS_UP: u32 = 1;

/// Attributes of addresses.
const ADDRESS: u16 = 1;
const LOCAL: u16 = 2;
/// The address needs no check for duplicates, which would delay it.
const NO_DUPLICATES: u8 = 0x02;

/// Attributes and fields of routes.
const OUT_LINK: u16 = 4;
const PREFERRED_SOURCE: u16 = 7;
const MAIN_TABLE: u8 = 254;
const BY_ADMINISTRATOR: u8 = 4;
const ON_HOST: u8 = 254;
const TO_HERE: u8 = 2;

pub(super) fn set(end: &NetworkEnd) -> io::Result<()> {
    set_with(end, EXCLUSIVE)
}

/// For a namespace in which some of it may be there.
pub(super) fn set_again(end: &NetworkEnd) -> io::Result<()> {
    set_with(end, REPLACE)
}

fn set_with(end: &NetworkEnd, existing: u16) -> io::Result<()> {
    let mut request = Request::default();
    bring_up(&mut request);
    for address in [Some(IpAddr::V4(end.v4)), end.v6.map(IpAddr::V6)].into_iter().flatten() {
        add_address(&mut request, address, existing);
        add_default_route(&mut request, address, existing);
    }
    request.send(ROUTES)
}

fn bring_up(request: &mut Request) {
    // `struct ifinfomsg`: family, type, index, flags, which flags change.
    let head = [0, LOOPBACK, LINK_IS_UP, LINK_IS_UP].map(u32::to_ne_bytes).concat();
    request.add(NEW_LINK, ACKNOWLEDGE, &head, |_| {});
}

fn add_address(request: &mut Request, address: IpAddr, existing: u16) {
    let (family, octets) = parts(address);
    let whole = (octets.len() * 8) as u8;
    // `struct ifaddrmsg`: family, prefix length, flags, scope, link.
    let mut head = vec![family, whole, NO_DUPLICATES, 0];
    head.extend_from_slice(&LOOPBACK.to_ne_bytes());
    request.add(NEW_ADDRESS, ACKNOWLEDGE | CREATE | existing, &head, |attributes| {
        attributes.bytes(LOCAL, &octets).bytes(ADDRESS, &octets);
    });
}

/// Every address is this host's own, and packets for it come from ours.
fn add_default_route(request: &mut Request, source: IpAddr, existing: u16) {
    let (family, octets) = parts(source);
    // `struct rtmsg`: family, lengths of destination and source, type of service, table, origin, scope, type, flags.
    let mut head = vec![family, 0, 0, 0, MAIN_TABLE, BY_ADMINISTRATOR, ON_HOST, TO_HERE];
    head.extend_from_slice(&[0; 4]);
    request.add(NEW_ROUTE, ACKNOWLEDGE | CREATE | existing, &head, |attributes| {
        attributes.number(OUT_LINK, LOOPBACK).bytes(PREFERRED_SOURCE, &octets);
    });
}

fn parts(address: IpAddr) -> (u8, Vec<u8>) {
    match address {
        IpAddr::V4(address) => (libc::AF_INET as u8, address.octets().to_vec()),
        IpAddr::V6(address) => (libc::AF_INET6 as u8, address.octets().to_vec()),
    }
}

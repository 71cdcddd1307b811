//! Which addresses belong to the public internet.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Names that never leave their own network, with everything beneath them.
const LOCAL_NAMES: [&str; 4] = ["localhost", "local", "internal", "home.arpa"];

/// Whether the name, by itself, stands for this machine or for its own network.
pub(crate) fn is_local_name(name: &str) -> bool {
    let name = name.trim_end_matches('.').to_ascii_lowercase();
    name.is_empty()
        || LOCAL_NAMES.iter().any(|suffix| name == *suffix || name.ends_with(&format!(".{suffix}")))
}

/// Whether anybody on the internet could reach the address.
pub(crate) fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address),
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    let is_shared = a == 100 && (64..128).contains(&b);
    let is_protocol = a == 192 && b == 0 && c == 0;
    let is_benchmark = a == 198 && (b == 18 || b == 19);
    !(a == 0
        || a >= 224
        || address.is_loopback()
        || address.is_private()
        || address.is_link_local()
        || address.is_documentation()
        || is_shared
        || is_protocol
        || is_benchmark)
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    let parts = address.segments();
    // IPv6 addresses that embed an IPv4 address: mapped, compatible, translated (64:ff9b::/96), 6to4.
    let embedded = match parts {
        [0, 0, 0, 0, 0, 0xffff | 0, ..] | [0x64, 0xff9b, 0, 0, 0, 0, ..] => Some((parts[6], parts[7])),
        [0x2002, high, low, ..] => Some((high, low)),
        _ => None,
    };
    if let Some((high, low)) = embedded {
        return is_public_v4(Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(low)));
    }
    // Everything but global unicast is local, multicast or reserved; so are Teredo and the documentation range within
    // it.
    parts[0] & 0xe000 == 0x2000 && !matches!(parts, [0x2001, 0 | 0xdb8, ..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses() {
        for public in ["8.8.8.8", "100.63.0.1", "172.32.0.1", "2606:4700::1", "64:ff9b::808:808"] {
            assert!(is_public(public.parse().unwrap()), "{public}");
        }
        for private in [
            "0.0.0.0",
            "0.1.2.3",
            "127.0.0.1",
            "127.255.0.1",
            "10.1.2.3",
            "172.16.0.1",
            "192.168.1.1",
            "169.254.169.254",
            "100.64.0.1",
            "100.127.255.255",
            "192.0.0.8",
            "192.0.2.1",
            "198.18.0.1",
            "224.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::ffff:127.0.0.1",
            "::ffff:10.0.0.1",
            "::127.0.0.1",
            "::ffff:0:127.0.0.1",
            "64:ff9b::7f00:1",
            "64:ff9b:1::808:808",
            "2002:7f00:1::",
            "2001::1",
            "2001:db8::1",
            "fe80::1",
            "fec0::1",
            "fc00::1",
            "fd00::1",
            "ff02::1",
        ] {
            assert!(!is_public(private.parse().unwrap()), "{private}");
        }
    }

    #[test]
    fn names() {
        for local in
            ["", ".", "localhost", "LOCALHOST.", "a.localhost", "printer.local", "metadata.google.internal"]
        {
            assert!(is_local_name(local), "{local}");
        }
        for other in ["registry.example", "localhost.example", "notlocal", "internal.example"] {
            assert!(!is_local_name(other), "{other}");
        }
    }
}

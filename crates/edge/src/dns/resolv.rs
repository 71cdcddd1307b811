//! The host's resolvers, from the text of its `/etc/resolv.conf`.

use std::net::{IpAddr, SocketAddr};

use crate::handling::DNS_PORT;

/// Most servers that are taken, as the C library does.
const MAX_SERVERS: usize = 3;

pub(crate) fn servers(text: &str) -> Vec<SocketAddr> {
    let lines = text.lines().map(|line| line.split(['#', ';']).next().unwrap_or_default());
    lines
        .filter_map(|line| line.trim().strip_prefix("nameserver"))
        .filter_map(|rest| rest.trim().split('%').next()?.parse::<IpAddr>().ok())
        .map(|address| SocketAddr::new(address, DNS_PORT))
        .take(MAX_SERVERS)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_read_as_the_c_library_reads_them() {
        let text = "# by hand\nsearch lan\nnameserver 127.0.0.53 # local\n  nameserver\t10.0.0.2\nnameserver x\noptions edns0\nnameserver fe80::1%eth0\nnameserver 9.9.9.9\n";
        let found: Vec<_> = servers(text).iter().map(ToString::to_string).collect();
        assert_eq!(found, ["127.0.0.53:53", "10.0.0.2:53", "[fe80::1]:53"]);
    }
}

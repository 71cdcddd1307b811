//! The listeners inside a sandbox, as the kernel's tables tell.

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
};

use engine::{Engine, PACKAGES_PORT, Principal, SandboxRef};
use futures_util::TryStreamExt as _;
use sandbox::{Error, ErrorKind, FileKind, Result, Thing};

/// Bytes of one table that are looked at.
const MAX_TABLE_BYTES: usize = 1024 * 1024;
const MAX_PORTS: usize = 1000;
/// Processes whose descriptors are looked at, and how many of each.
const MAX_PROCESSES: usize = 300;
const MAX_DESCRIPTORS: u32 = 1000;
const MAX_NAME_BYTES: usize = 64;
/// The kernel's number for a socket that listens.
const LISTEN: &str = "0A";

/// Where connections out of a sandbox arrive at the daemon's side (`PROXY_V4`, `PROXY_V6` of `jail`). Nothing inside
/// can listen there or connect to it.
const OUR_PROXIES: [SocketAddr; 2] = [
    SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), 61_443),
    SocketAddr::new(IpAddr::V6(Ipv6Addr::new(0x100, 0, 0, 0, 0, 0, 0, 1)), 61_443),
];

/// A socket that listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ListeningPort {
    pub(crate) port: u16,
    pub(crate) address: IpAddr,
    pub(crate) uid: u32,
    pub(crate) pid: Option<u32>,
    pub(crate) process: Option<String>,
    inode: u64,
}

/// The sandbox whose files are read.
struct Inside<'a> {
    engine: &'a Engine,
    who: &'a Principal,
    which: &'a SandboxRef,
}

/// The listening TCP ports, without the processes they belong to.
pub(crate) async fn listening_ports(
    engine: &Engine,
    who: &Principal,
    which: &SandboxRef,
) -> Result<Vec<ListeningPort>> {
    let inside = Inside { engine, who, which };
    let (mut ports, mut n_tables) = (Vec::new(), 0);
    for table in ["/proc/net/tcp", "/proc/net/tcp6"] {
        match inside.read(table, MAX_TABLE_BYTES).await {
            Ok(bytes) => {
                n_tables += 1;
                ports.extend(String::from_utf8_lossy(&bytes).lines().filter_map(listening));
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {
                // The sandbox is there, or the table has not been asked for.
                engine.sandbox(who, which).await?;
            }
            Err(error) => return Err(error),
        }
    }
    if n_tables == 0 {
        let message = format!("{which} has no /proc/net/tcp to read");
        return Err(Error::new(ErrorKind::Unsupported, message)
            .about(Thing::File, "/proc/net/tcp")
            .with_hint("Run a program such as ss -ltn inside."));
    }
    ports.retain(|port| !is_ours(port));
    ports.sort_by_key(|port| (port.port, port.address));
    ports.truncate(MAX_PORTS);
    Ok(ports)
}

/// The same with their processes.
pub(crate) async fn listening_processes(
    engine: &Engine,
    who: &Principal,
    which: &SandboxRef,
) -> Result<Vec<ListeningPort>> {
    let mut ports = listening_ports(engine, who, which).await?;
    Inside { engine, who, which }.find_processes(&mut ports).await;
    Ok(ports)
}

impl Inside<'_> {
    /// A file of /proc tells no size and gives a page or so at a time.
    async fn read(&self, path: &str, max: usize) -> Result<Vec<u8>> {
        let mut all = Vec::new();
        loop {
            let length = Some((max - all.len()) as u64);
            let reading = self.engine.read_file(self.who, self.which, path, all.len() as u64, length);
            let (_, mut stream) = reading.await?;
            let before = all.len();
            while let Some(chunk) = stream.try_next().await? {
                all.extend_from_slice(&chunk[..chunk.len().min(max - all.len())]);
            }
            if all.len() == before || all.len() >= max {
                return Ok(all);
            }
        }
    }

    /// Finds the processes whose descriptors lead to the sockets. What cannot be seen stays unknown.
    async fn find_processes(&self, ports: &mut [ListeningPort]) {
        let mut wanted: BTreeMap<String, Vec<usize>> = BTreeMap::new();
        for (index, port) in ports.iter().enumerate().filter(|(_, port)| port.inode != 0) {
            wanted.entry(format!("socket:[{}]", port.inode)).or_default().push(index);
        }
        let Ok(all) = self.engine.list(self.who, self.which, "/proc", false, u32::MAX).await else { return };
        let pids = all.entries.iter().filter(|entry| entry.kind == FileKind::Directory).filter_map(|entry| {
            let name = entry.path.rsplit('/').next()?;
            name.parse::<u32>().ok()
        });
        for pid in pids.take(MAX_PROCESSES).collect::<Vec<_>>() {
            if wanted.is_empty() {
                return;
            }
            let directory = format!("/proc/{pid}/fd");
            let Ok(open) = self.engine.list(self.who, self.which, &directory, false, MAX_DESCRIPTORS).await
            else {
                continue;
            };
            let targets = open.entries.into_iter().filter_map(|entry| entry.target);
            let mut found: Vec<usize> =
                targets.filter_map(|target| wanted.remove(&target)).flatten().collect();
            found.sort_unstable();
            if found.is_empty() {
                continue;
            }
            let name = self.read(&format!("/proc/{pid}/comm"), MAX_NAME_BYTES).await;
            let name = name.ok().map(|bytes| String::from_utf8_lossy(&bytes).trim_end().to_owned());
            for index in found {
                if let Some(port) = ports.get_mut(index) {
                    port.pid = Some(pid);
                    port.process.clone_from(&name);
                }
            }
        }
    }
}

/// One line of a table, if it is about a socket that listens.
fn listening(line: &str) -> Option<ListeningPort> {
    let mut fields = line.split_ascii_whitespace().skip(1);
    let (address, port) = fields.next()?.rsplit_once(':')?;
    if fields.nth(1)? != LISTEN {
        return None;
    }
    let port = u16::from_str_radix(port, 16).ok()?;
    let address = address_of(address)?;
    // After the state come queues, timer and retransmits.
    let uid = fields.nth(3)?.parse().ok()?;
    let inode = fields.nth(1)?.parse().ok()?;
    Some(ListeningPort { port, address, uid, pid: None, process: None, inode })
}

/// Warren's own: for package managers, and for the traffic to outside.
fn is_ours(port: &ListeningPort) -> bool {
    let is_for_packages = port.address.is_loopback() && port.port == PACKAGES_PORT;
    is_for_packages || OUR_PROXIES.contains(&SocketAddr::new(port.address, port.port))
}

/// Words of four bytes, each written as the machine's number.
fn address_of(hex: &str) -> Option<IpAddr> {
    let word = |at: usize| {
        let number = u32::from_str_radix(hex.get(at..at + 8)?, 16).ok()?;
        Some(number.to_ne_bytes())
    };
    match hex.len() {
        8 => Some(IpAddr::V4(Ipv4Addr::from(word(0)?))),
        32 => {
            let mut bytes = [0; 16];
            for (index, part) in bytes.chunks_mut(4).enumerate() {
                part.copy_from_slice(&word(index * 8)?);
            }
            let address = Ipv6Addr::from(bytes);
            Some(address.to_ipv4_mapped().map_or(IpAddr::V6(address), IpAddr::V4))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_read_where_its_socket_listens() {
        let port = |line: &str| {
            let port = listening(line)?;
            Some((port.port, port.address.to_string(), port.address.is_loopback(), port.uid, port.inode))
        };
        let head = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode";
        let near = "   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 4242 1 0 100 0 0 10 0";
        let connected = "   1: 0100007F:1F90 0100007F:D431 01 00000000:00000000 00:00000000 00000000     0        0 77 1 0 20 4 30 10 -1";
        let far = "   0: 00000000000000000000000000000000:0050 00000000000000000000000000000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4243 1 0 100 0 0 10 0";
        assert_eq!(port(near), Some((8080, "127.0.0.1".to_owned(), true, 1000, 4242)));
        assert_eq!(port(far), Some((80, "::".to_owned(), false, 0, 4243)));
        let proxy_v4 = "   0: 010200C0:F003 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 5 1 0 100 0 0 10 0";
        let proxy_v6 = "   0: 00000001000000000000000001000000:F003 00000000000000000000000000000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 6 1 0 100 0 0 10 0";
        let packages = "   0: 0100007F:42AE 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 7 1 0 100 0 0 10 0";
        for (line, ours) in
            [(proxy_v4, true), (proxy_v6, true), (packages, true), (near, false), (far, false)]
        {
            assert_eq!(listening(line).as_ref().map(is_ours), Some(ours), "{line}");
        }
        for other in [head, connected, "", "   0: 0100007F:1F90"] {
            assert_eq!(port(other), None, "{other}");
        }
    }
}

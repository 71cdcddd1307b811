//! `sandbox_ports`: what listens inside, as the kernel's tables tell.

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use engine::SandboxRef;
use sandbox::{Error, ErrorKind, FileKind};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{explained, read_up_to};
use crate::mcp::{Answer, Call, Failure, Tool, ToolResult};

/// Bytes of one table that are looked at.
const MAX_TABLE_BYTES: usize = 1024 * 1024;
const MAX_PORTS: usize = 1000;
/// Processes whose descriptors are looked at, and how many of each.
const MAX_PROCESSES: usize = 300;
const MAX_DESCRIPTORS: u32 = 1000;
const MAX_NAME_BYTES: usize = 64;
/// The kernel's number for a socket that listens.
const LISTEN: &str = "0A";

pub(super) fn tools() -> Vec<Tool> {
    tools! { Network;
        "sandbox_ports", "List listening ports", READS, ports:
            "List the listening TCP ports in a sandbox, with the process if known.";
    }
}

#[derive(Debug, Deserialize, JsonSchema)]
struct PortsArguments {
    name: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
struct Port {
    port: u16,
    address: String,
    /// Reachable only from inside.
    loopback: bool,
    uid: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pid: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    process: Option<String>,
    #[serde(skip)]
    #[schemars(skip)]
    inode: u64,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Ports {
    name: String,
    ports: Vec<Port>,
}

async fn ports(call: Call, arguments: PortsArguments) -> ToolResult<Ports> {
    let which = call.sandbox(&arguments.name)?;
    let mut ports = Vec::new();
    let mut n_tables = 0;
    for table in ["/proc/net/tcp", "/proc/net/tcp6"] {
        match read_up_to(&call, &which, table, 0, MAX_TABLE_BYTES).await {
            Ok((_, bytes, _)) => {
                n_tables += 1;
                ports.extend(String::from_utf8_lossy(&bytes).lines().filter_map(listening));
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {
                // The sandbox is there, or the table has not been asked for.
                call.engine().sandbox(&call.who, &which).await?;
            }
            Err(error) => return Err(explained(error)),
        }
    }
    if n_tables == 0 {
        let message = format!("{} has no /proc/net/tcp to read", arguments.name);
        return Err(Failure::from(Error::new(ErrorKind::Unsupported, message))
            .with_hint("Run a program such as ss -ltn with sandbox_exec."));
    }
    ports.sort_by(|one, other| (one.port, &one.address).cmp(&(other.port, &other.address)));
    ports.truncate(MAX_PORTS);
    find_processes(&call, &which, &mut ports).await;
    Ok(Answer::new(Ports { name: arguments.name, ports }))
}

/// One line of a table, if it is about a socket that listens.
fn listening(line: &str) -> Option<Port> {
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
    Some(Port {
        port,
        loopback: address.is_loopback(),
        address: address.to_string(),
        uid,
        pid: None,
        process: None,
        inode,
    })
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

/// Whose descriptors lead to the sockets. What cannot be seen stays unknown.
async fn find_processes(call: &Call, which: &SandboxRef, ports: &mut [Port]) {
    let mut wanted: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for (index, port) in ports.iter().enumerate().filter(|(_, port)| port.inode != 0) {
        wanted.entry(format!("socket:[{}]", port.inode)).or_default().push(index);
    }
    let engine = call.engine();
    let Ok(all) = engine.list(&call.who, which, "/proc", false, u32::MAX).await else { return };
    let pids = all.entries.iter().filter(|entry| entry.kind == FileKind::Directory).filter_map(|entry| {
        let name = entry.path.rsplit('/').next()?;
        name.parse::<u32>().ok()
    });
    for pid in pids.take(MAX_PROCESSES).collect::<Vec<_>>() {
        if wanted.is_empty() {
            return;
        }
        let directory = format!("/proc/{pid}/fd");
        let Ok(open) = engine.list(&call.who, which, &directory, false, MAX_DESCRIPTORS).await else {
            continue;
        };
        let targets = open.entries.into_iter().filter_map(|entry| entry.target);
        let mut found: Vec<usize> = targets.filter_map(|target| wanted.remove(&target)).flatten().collect();
        found.sort_unstable();
        if found.is_empty() {
            continue;
        }
        let name = read_up_to(call, which, &format!("/proc/{pid}/comm"), 0, MAX_NAME_BYTES).await;
        let name = name.ok().map(|(_, bytes, _)| String::from_utf8_lossy(&bytes).trim_end().to_owned());
        for index in found {
            if let Some(port) = ports.get_mut(index) {
                port.pid = Some(pid);
                port.process.clone_from(&name);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_read_where_its_socket_listens() {
        let port = |line: &str| {
            let port = listening(line)?;
            Some((port.port, port.address, port.loopback, port.uid, port.inode))
        };
        let head = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode";
        let near = "   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 4242 1 0 100 0 0 10 0";
        let connected = "   1: 0100007F:1F90 0100007F:D431 01 00000000:00000000 00:00000000 00000000     0        0 77 1 0 20 4 30 10 -1";
        let far = "   0: 00000000000000000000000000000000:0050 00000000000000000000000000000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4243 1 0 100 0 0 10 0";
        assert_eq!(port(near), Some((8080, "127.0.0.1".to_owned(), true, 1000, 4242)));
        assert_eq!(port(far), Some((80, "::".to_owned(), false, 0, 4243)));
        for other in [head, connected, "", "   0: 0100007F:1F90"] {
            assert_eq!(port(other), None, "{other}");
        }
    }
}

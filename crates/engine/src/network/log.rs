//! The last decisions about a sandbox's traffic, in memory.

use std::{
    collections::VecDeque,
    sync::{Mutex, PoisonError},
};

use jiff::Timestamp;
use sandbox::NetworkEvent;
use serde::{Deserialize, Serialize};

/// Entries that are kept for one sandbox; older ones go.
const MAX_ENTRIES: usize = 1000;

/// One decision about a sandbox's traffic, or several alike.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct NetworkLogEntry {
    /// Numbers only grow; those of entries that are gone are missing.
    pub number: u64,
    pub at: Timestamp,
    #[serde(flatten)]
    pub event: NetworkEvent,
}

#[derive(Debug, Default)]
pub(crate) struct NetworkLog(Mutex<Entries>);

#[derive(Debug, Default)]
struct Entries {
    last: u64,
    kept: VecDeque<NetworkLogEntry>,
}

impl NetworkLog {
    pub(crate) fn add(&self, at: Timestamp, event: NetworkEvent) -> NetworkLogEntry {
        let mut entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        entries.last += 1;
        let number = entries.last;
        if entries.kept.len() == MAX_ENTRIES {
            entries.kept.pop_front();
        }
        let entry = NetworkLogEntry { number, at, event };
        entries.kept.push_back(entry.clone());
        entry
    }

    pub(crate) fn read(&self, from: Option<u64>, limit: usize) -> Vec<NetworkLogEntry> {
        let entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match from {
            Some(from) => {
                entries.kept.iter().filter(|entry| entry.number >= from).take(limit).cloned().collect()
            }
            None => {
                let skipped = entries.kept.len().saturating_sub(limit);
                entries.kept.iter().skip(skipped).cloned().collect()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use sandbox::{NetworkEventKind, SandboxId, network::Protocol};

    use super::*;

    fn event(port: u16) -> NetworkEvent {
        NetworkEvent {
            sandbox: SandboxId::from_random([1; 8]),
            kind: NetworkEventKind::Denied,
            protocol: Protocol::Tcp,
            name: None,
            address: None,
            port,
            rule: String::new(),
            count: 1,
        }
    }

    #[test]
    fn the_oldest_go_and_numbers_stay() {
        let log = NetworkLog::default();
        for port in 0..MAX_ENTRIES as u16 + 5 {
            log.add(Timestamp::UNIX_EPOCH, event(port));
        }
        let numbers =
            |entries: Vec<NetworkLogEntry>| entries.iter().map(|entry| entry.number).collect::<Vec<_>>();
        assert_eq!(numbers(log.read(Some(0), 2)), [6, 7]);
        assert_eq!(numbers(log.read(None, 2)), [1004, 1005]);
        assert_eq!(log.read(None, usize::MAX).len(), MAX_ENTRIES);
    }
}

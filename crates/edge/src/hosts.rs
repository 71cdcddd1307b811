//! How much went to which host, for each sandbox: the busiest hosts by themselves, all others together.

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use sandbox::network::{DnsName, HostTraffic, NetworkHosts};

/// Hosts of one sandbox that are counted by themselves.
const MAX_HOSTS: usize = 256;

/// The hosts of one sandbox.
#[derive(Debug, Default)]
pub(crate) struct Hosts(Mutex<Table>);

#[derive(Debug, Default)]
struct Table {
    known: HashMap<Host, Arc<HostCounting>>,
    others: Arc<HostCounting>,
}

/// By its name where one is known.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Host {
    Name(DnsName),
    Address(IpAddr),
}

/// [`HostTraffic`] while it is counted.
#[derive(Debug, Default)]
pub(crate) struct HostCounting {
    pub(crate) connections: AtomicU64,
    pub(crate) denied: AtomicU64,
    sent_bytes: AtomicU64,
    received_bytes: AtomicU64,
}

impl HostCounting {
    pub(crate) fn sent(&self, bytes: u64) {
        self.sent_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn received(&self, bytes: u64) {
        self.received_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    fn read(&self, host: String) -> HostTraffic {
        let value = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        HostTraffic {
            host,
            connections: value(&self.connections),
            denied: value(&self.denied),
            sent_bytes: value(&self.sent_bytes),
            received_bytes: value(&self.received_bytes),
        }
    }

    fn add(&self, other: &HostTraffic) {
        self.connections.fetch_add(other.connections, Ordering::Relaxed);
        self.denied.fetch_add(other.denied, Ordering::Relaxed);
        self.sent(other.sent_bytes);
        self.received(other.received_bytes);
    }
}

impl Hosts {
    /// Where traffic to a host is counted. The counts of whoever is still counted are kept; a new host takes the place
    /// of the least busy one that nothing is open to.
    pub(crate) fn of(&self, name: Option<&DnsName>, address: Option<IpAddr>) -> Arc<HostCounting> {
        let host = match (name, address) {
            (Some(name), _) => Host::Name(name.clone()),
            (None, Some(address)) => Host::Address(address),
            (None, None) => return Arc::clone(&self.lock().others),
        };
        let mut table = self.lock();
        if let Some(known) = table.known.get(&host) {
            return Arc::clone(known);
        }
        if table.known.len() >= MAX_HOSTS && !table.make_room() {
            return Arc::clone(&table.others);
        }
        Arc::clone(table.known.entry(host).or_default())
    }

    /// The busiest first.
    pub(crate) fn read(&self) -> NetworkHosts {
        let table = self.lock();
        let named = |(host, counting): (&Host, &Arc<HostCounting>)| {
            counting.read(match host {
                Host::Name(name) => name.to_string(),
                Host::Address(address) => address.to_string(),
            })
        };
        let mut hosts: Vec<_> = table.known.iter().map(named).collect();
        hosts.sort_by(|one, other| other.weight().cmp(&one.weight()).then_with(|| one.host.cmp(&other.host)));
        NetworkHosts { hosts, others: table.others.read(String::new()) }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    /// Counts the least busy host with the others. Whether there was one that nothing is open to.
    fn make_room(&mut self) -> bool {
        // Whoever holds a clone still counts in it.
        let idle = self.known.iter().filter(|(_, counting)| Arc::strong_count(counting) == 1);
        let least = idle.min_by_key(|(_, counting)| counting.read(String::new()).weight());
        let Some((host, counting)) = least.map(|(host, counting)| (host.clone(), Arc::clone(counting)))
        else {
            return false;
        };
        self.others.add(&counting.read(String::new()));
        self.known.remove(&host);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(number: usize) -> DnsName {
        format!("h{number}.example").parse().unwrap()
    }

    #[test]
    fn the_busiest_hosts_are_told_and_all_others_summed() {
        let hosts = Hosts::default();
        let open = hosts.of(Some(&name(0)), None);
        for number in 1..1000 {
            let host = hosts.of(Some(&name(number)), None);
            host.denied.fetch_add(1, Ordering::Relaxed);
            if number == 500 {
                host.received(7);
            }
        }
        // It had nothing yet, but something was open to it.
        open.sent(1000);
        hosts.of(None, Some([192, 0, 2, 1].into())).connections.fetch_add(3, Ordering::Relaxed);
        let told = hosts.read();
        assert_eq!(told.hosts.len(), MAX_HOSTS);
        let first: Vec<_> = told.hosts.iter().take(3).map(|host| host.host.as_str()).collect();
        assert_eq!(first, ["h0.example", "h500.example", "192.0.2.1"]);
        let denied: u64 = told.hosts.iter().map(|host| host.denied).sum();
        assert_eq!(denied + told.others.denied, 999);
    }

    #[test]
    fn hosts_that_are_all_open_leave_no_room() {
        let hosts = Hosts::default();
        let open: Vec<_> = (0..MAX_HOSTS).map(|number| hosts.of(Some(&name(number)), None)).collect();
        hosts.of(Some(&name(MAX_HOSTS)), None).sent(5);
        assert_eq!((open.len(), hosts.read().others.sent_bytes), (MAX_HOSTS, 5));
    }
}

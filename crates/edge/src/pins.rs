//! Which names a sandbox resolved to which addresses. A rule for a name opens an address only while it is pinned to it.

use std::{
    collections::{BTreeSet, HashMap},
    net::IpAddr,
    time::{Duration, Instant},
};

use sandbox::network::{DnsName, canonical};

/// Shortest life of a pin: programs keep using an address after its record has expired.
const SHORTEST: Duration = Duration::from_secs(5 * 60);
/// Longest life of a pin, whatever a record says.
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);

/// Bounded: when it is full, the pin that would expire first makes room.
#[derive(Debug)]
pub(crate) struct Pins {
    limit: usize,
    until: HashMap<IpAddr, Vec<(DnsName, Instant)>>,
    order: BTreeSet<(Instant, IpAddr, DnsName)>,
}

impl Pins {
    pub(crate) fn new(limit: usize) -> Self {
        Self { limit, until: HashMap::new(), order: BTreeSet::new() }
    }

    pub(crate) fn pin(&mut self, name: &DnsName, address: IpAddr, ttl: Duration, now: Instant) {
        let address = canonical(address);
        let mut until = now + ttl.clamp(SHORTEST, LONGEST);
        if let Some(earlier) = self.remove(address, name) {
            until = until.max(earlier);
        }
        while self.order.len() >= self.limit {
            let Some((_, oldest, its_name)) = self.order.first().cloned() else { return };
            self.remove(oldest, &its_name);
        }
        self.until.entry(address).or_default().push((name.clone(), until));
        self.order.insert((until, address, name.clone()));
    }

    /// The names that lead to an address at this time.
    pub(crate) fn names(&self, address: IpAddr, now: Instant) -> Vec<DnsName> {
        let pinned = self.until.get(&canonical(address)).into_iter().flatten();
        pinned.filter(|(_, until)| *until > now).map(|(name, _)| name.clone()).collect()
    }

    fn remove(&mut self, address: IpAddr, name: &DnsName) -> Option<Instant> {
        let names = self.until.get_mut(&address)?;
        let at = names.iter().position(|(pinned, _)| pinned == name)?;
        let (name, until) = names.swap_remove(at);
        if names.is_empty() {
            self.until.remove(&address);
        }
        self.order.remove(&(until, address, name));
        Some(until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> DnsName {
        text.parse().unwrap()
    }

    #[test]
    fn a_pin_lives_as_long_as_its_record_and_at_least_five_minutes() {
        let (now, address) = (Instant::now(), "93.184.216.34".parse().unwrap());
        let mut pins = Pins::new(10);
        pins.pin(&name("short.example"), address, Duration::from_secs(1), now);
        pins.pin(&name("long.example"), address, Duration::from_secs(3600), now);
        let names = |after: u64| {
            let mut names = pins.names(address, now + Duration::from_secs(after));
            names.sort();
            names
        };
        assert_eq!(names(299), [name("long.example"), name("short.example")]);
        assert_eq!(names(301), [name("long.example")]);
        assert_eq!(names(3601), []);
        assert_eq!(pins.names("93.184.216.35".parse().unwrap(), now), []);
    }

    #[test]
    fn the_number_of_pins_is_bounded() {
        let now = Instant::now();
        let mut pins = Pins::new(3);
        for last in 1..=9 {
            pins.pin(
                &name("a.example"),
                IpAddr::from([93, 184, 216, last]),
                Duration::from_secs(1000 + u64::from(last)),
                now,
            );
        }
        let pinned: Vec<_> =
            (1..=9).filter(|last| !pins.names(IpAddr::from([93, 184, 216, *last]), now).is_empty()).collect();
        assert_eq!(pinned, [7, 8, 9]);
        assert_eq!((pins.order.len(), pins.until.len()), (3, 3));
    }
}

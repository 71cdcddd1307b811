//! Reports to the daemon: decisions, alike ones counted together, and how much went through.

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Instant,
};

pub use sandbox::network::NetworkTraffic as Counters;
use sandbox::{
    SandboxId,
    network::{DnsName, NetworkEvent, NetworkEventKind, Protocol},
};

use crate::limits::Rate;

/// Different events of one sandbox that wait to be told; further ones are only counted.
const MAX_WAITING: usize = 128;

/// One decision, without the sandbox and the count.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Decision {
    pub(crate) kind: NetworkEventKind,
    pub(crate) protocol: Protocol,
    pub(crate) name: Option<DnsName>,
    pub(crate) address: Option<IpAddr>,
    pub(crate) port: u16,
    pub(crate) rule: String,
}

/// The events of one sandbox that were not told yet.
#[derive(Debug)]
pub(crate) struct Events {
    sandbox: SandboxId,
    rate: Rate,
    waiting: Mutex<Waiting>,
}

#[derive(Debug, Default)]
struct Waiting {
    counts: HashMap<Decision, u32>,
    order: Vec<Decision>,
    /// Events that found no room, and the last of them.
    further: u32,
    last: Option<Decision>,
}

impl Events {
    pub(crate) fn new(sandbox: SandboxId, per_second: u32, now: Instant) -> Self {
        Self { sandbox, rate: Rate::new(per_second.into(), now), waiting: Mutex::default() }
    }

    pub(crate) fn change_rate(&self, per_second: u32) {
        self.rate.change(per_second.into());
    }

    pub(crate) fn add(&self, decision: Decision) {
        let mut waiting = self.lock();
        if let Some(count) = waiting.counts.get_mut(&decision) {
            *count = count.saturating_add(1);
        } else if waiting.order.len() < MAX_WAITING {
            waiting.counts.insert(decision.clone(), 1);
            waiting.order.push(decision);
        } else {
            waiting.further = waiting.further.saturating_add(1);
            waiting.last = Some(decision);
        }
    }

    /// Takes what may be told now.
    pub(crate) fn take(&self, now: Instant) -> Vec<NetworkEvent> {
        let mut waiting = self.lock();
        let mut taken = Vec::new();
        let free = waiting.order.iter().take_while(|_| self.rate.try_take(now)).count();
        for decision in waiting.order.drain(..free).collect::<Vec<_>>() {
            let count = waiting.counts.remove(&decision).unwrap_or(1);
            taken.push(self.event(decision, count));
        }
        if waiting.order.is_empty()
            && let Some(last) = waiting.last.take()
        {
            let count = std::mem::take(&mut waiting.further);
            let rule = format!("{} (and others, counted together)", last.rule);
            taken.push(self.event(Decision { name: None, address: None, rule, ..last }, count));
        }
        taken
    }

    fn event(&self, decision: Decision, count: u32) -> NetworkEvent {
        let Decision { kind, protocol, name, address, port, rule } = decision;
        NetworkEvent { sandbox: self.sandbox.clone(), kind, protocol, name, address, port, rule, count }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// [`Counters`] while they are counted.
#[derive(Debug, Default)]
pub(crate) struct Counting {
    pub(crate) connections: AtomicU64,
    pub(crate) denied: AtomicU64,
    pub(crate) failed: AtomicU64,
    pub(crate) questions: AtomicU64,
    pub(crate) datagrams: AtomicU64,
    pub(crate) sent_bytes: AtomicU64,
    pub(crate) received_bytes: AtomicU64,
}

impl Counting {
    pub(crate) fn read(&self) -> Counters {
        let value = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Counters {
            connections: value(&self.connections),
            denied: value(&self.denied),
            failed: value(&self.failed),
            questions: value(&self.questions),
            datagrams: value(&self.datagrams),
            sent_bytes: value(&self.sent_bytes),
            received_bytes: value(&self.received_bytes),
        }
    }
}

/// Counts one more.
pub(crate) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn denied(port: u16) -> Decision {
        Decision {
            kind: NetworkEventKind::Denied,
            protocol: Protocol::Tcp,
            name: None,
            address: Some(IpAddr::from([1, 2, 3, 4])),
            port,
            rule: "preset none".to_owned(),
        }
    }

    #[test]
    fn alike_events_are_one_and_floods_are_bounded() {
        let now = Instant::now();
        let events = Events::new(SandboxId::from_random([7; 8]), 20, now);
        for _ in 0..1000 {
            events.add(denied(80));
        }
        let told = events.take(now);
        assert_eq!(told.iter().map(|event| (event.port, event.count)).collect::<Vec<_>>(), [(80, 1000)]);

        for port in 0..10_000 {
            events.add(denied(port));
        }
        assert_eq!(events.take(now).len(), 19);
        let mut all = 19;
        for second in 1..10 {
            let told = events.take(now + Duration::from_secs(second));
            assert!(told.len() <= 21);
            all += told.iter().map(|event| event.count).sum::<u32>();
        }
        assert_eq!(all, 10_000);
    }
}

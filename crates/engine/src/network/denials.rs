//! The part of a sandbox's traffic that was denied while a command ran, for the command's caller.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use jiff::Timestamp;
use sandbox::{NetworkEvent, NetworkEventKind, NetworkHold, NetworkSpec, Preset, plan_network};
use tokio::{sync::watch, time::timeout};

use super::{NetworkLog, ceilings};
use crate::{Principal, core::Core, shared::Shared};

/// Different denials that are told; further ones are counted.
const MAX_DENIALS: usize = 3;
/// How long a network has to tell what happened so far. It takes a millisecond, unless the machine is very busy.
const CATCH_UP_TIME: Duration = Duration::from_millis(250);

/// The reach of a sandbox, and the traffic that it was denied.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NetworkDenials {
    pub reach: NetworkReach,
    /// The first ones; those for the same target are one.
    pub denied: Vec<NetworkDenial>,
    /// How many others there were.
    pub n_more: usize,
    /// Whether the caller may allow hosts of the internet. Others have to ask for them.
    pub may_widen: bool,
}

/// Traffic that was denied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NetworkDenial {
    pub event: NetworkEvent,
    /// The target that was wanted, written as a rule, if it is known.
    pub target: Option<String>,
    /// Whether the caller may allow the target. Others have to ask for it.
    pub may_allow: bool,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum NetworkReach {
    Nothing,
    #[default]
    Packages,
    /// Whatever its policy allows; without walls, whatever the host reaches.
    Policy,
}

impl NetworkDenials {
    pub(super) async fn since(core: &Core, who: &Principal, shared: &Shared, since: Timestamp) -> Self {
        let reach = reach(shared);
        let may_widen = may_allow(core, who, "public");
        if reach != NetworkReach::Policy {
            return Self { reach, may_widen, ..Self::default() };
        }
        core.caught_up.wait(core).await;
        let (denied, n_more) = shared.network.denied_since(since);
        let denied = denied.into_iter().map(|event| {
            let target = event.target();
            let may_allow = target.as_ref().is_some_and(|target| may_allow(core, who, target));
            NetworkDenial { event, target, may_allow }
        });
        Self { reach, denied: denied.collect(), n_more, may_widen }
    }
}

/// Whether the caller's own ceilings leave something of a rule.
fn may_allow(core: &Core, who: &Principal, rule: &str) -> bool {
    let spec = NetworkSpec { allow: vec![rule.to_owned()], ..NetworkSpec::preset(Preset::None) };
    who.may_change().is_ok() && plan_network(&spec, &ceilings(core, who)).is_ok()
}

fn reach(shared: &Shared) -> NetworkReach {
    let record = &shared.status.borrow().record;
    let hold = record.isolation.as_ref().map(|isolation| isolation.network).unwrap_or_default();
    if hold.is_edge() || hold == NetworkHold::Host {
        NetworkReach::Policy
    } else if record.plan.network.reaches_packages() {
        NetworkReach::Packages
    } else {
        NetworkReach::Nothing
    }
}

impl NetworkLog {
    fn denied_since(&self, since: Timestamp) -> (Vec<NetworkEvent>, usize) {
        let target = |event: &NetworkEvent| match &event.name {
            Some(name) => name.to_string(),
            None => format!("{:?} {} {}", event.address, event.port, event.protocol),
        };
        let mut denied: Vec<NetworkEvent> = Vec::new();
        for entry in self.read(None, usize::MAX) {
            let event = entry.event;
            let is_new = entry.at >= since && event.kind == NetworkEventKind::Denied;
            if is_new && denied.iter().all(|known| target(known) != target(&event)) {
                denied.push(event);
            }
        }
        let n_more = denied.len().saturating_sub(MAX_DENIALS);
        denied.truncate(MAX_DENIALS);
        (denied, n_more)
    }
}

/// Knows up to where the networks have told what happened.
#[derive(Debug, Default)]
pub(crate) struct CaughtUp {
    asked: AtomicU64,
    told: watch::Sender<u64>,
}

impl CaughtUp {
    pub(super) fn told(&self, number: u64) {
        self.told.send_if_modified(|told| {
            let is_newer = number > *told;
            *told = number.max(*told);
            is_newer
        });
    }

    /// Waits until everything that happened before is in the logs.
    pub(super) async fn wait(&self, core: &Core) {
        let number = self.asked.fetch_add(1, Ordering::Relaxed) + 1;
        let mut told = self.told.subscribe();
        let mut has_network = false;
        for network in core.backends.all().iter().filter_map(|backend| backend.network()) {
            network.catch_up(number);
            has_network = true;
        }
        if has_network {
            // Late news are in the log, and in no warning.
            drop(timeout(CATCH_UP_TIME, told.wait_for(|told| *told >= number)).await);
        }
    }
}

#[cfg(test)]
mod tests {
    use sandbox::{SandboxId, network::Protocol};

    use super::*;

    fn event(kind: NetworkEventKind, name: &str, port: u16) -> NetworkEvent {
        NetworkEvent {
            sandbox: SandboxId::from_random([1; 8]),
            kind,
            protocol: Protocol::Tcp,
            name: Some(name.parse().unwrap()),
            address: None,
            port,
            rule: String::new(),
            count: 1,
        }
    }

    #[test]
    fn denials_of_the_time_are_told_once_each_and_only_some() {
        let log = NetworkLog::default();
        let at = |second| Timestamp::from_second(second).unwrap();
        log.add(at(1), event(NetworkEventKind::Denied, "before.example", 443));
        log.add(at(2), event(NetworkEventKind::Allowed, "open.example", 443));
        for (second, name) in [(2, "a.example"), (3, "a.example"), (4, "b.example"), (5, "c.example")] {
            log.add(at(second), event(NetworkEventKind::Denied, name, 443));
        }
        log.add(at(6), event(NetworkEventKind::Denied, "d.example", 443));
        let (denied, n_more) = log.denied_since(at(2));
        let names: Vec<_> = denied.iter().map(|event| event.name.as_ref().unwrap().to_string()).collect();
        assert_eq!((names, n_more), (vec!["a.example".into(), "b.example".into(), "c.example".into()], 1));
    }
}

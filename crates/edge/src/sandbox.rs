//! One sandbox: its sockets, its plan, and everything of it that is open.

use std::{
    collections::HashMap,
    future::Future,
    io,
    net::{IpAddr, SocketAddr},
    os::fd::OwnedFd,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock,
        atomic::{AtomicU64, Ordering},
    },
    time::Instant,
};

use rustls::ClientConfig;
use sandbox::{
    HeldSecrets, SandboxId,
    network::{
        DnsName, NetworkEventKind, NetworkPlan, OWN_ADDRESS_V4, OWN_ADDRESS_V6, Protocol, Surroundings,
    },
};
use tokio::{
    sync::{Semaphore, watch},
    task::AbortHandle,
};

use crate::{
    dns::Resolver,
    events::{Counting, Decision, Events, count},
    handling::{self, Handling, Outcome},
    hosts::Hosts,
    limits::{MAX_DIALS, Rate},
    pins::Pins,
    raw::Raw,
    secrets::{MAX_BODIES, MAX_OPENED, Secrets},
    tcp::{hold::Held, pipes::Pipes, proxy::UpstreamProxy},
    udp::Flows,
};

/// State that all sandboxes share.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    pub(crate) around: RwLock<Arc<Surroundings>>,
    /// The host's own resolvers.
    pub(crate) resolvers: RwLock<Arc<[SocketAddr]>>,
    /// The host's proxy, if it has one.
    pub(crate) proxy: RwLock<Option<Arc<UpstreamProxy>>>,
    pub(crate) pipes: Pipes,
    /// How servers of hosts with secrets are verified; absent until the daemon says whom the host trusts.
    pub(crate) trusting: RwLock<Option<Arc<ClientConfig>>>,
}

impl Shared {
    pub(crate) fn trusting(&self) -> Option<Arc<ClientConfig>> {
        self.trusting.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The proxy through which a connection is made; most hosts have none.
    pub(crate) fn proxy_for(&self, opening: &Opening) -> Option<Arc<UpstreamProxy>> {
        let proxy = self.proxy.read().unwrap_or_else(PoisonError::into_inner).clone()?;
        let around = Arc::clone(&self.around.read().unwrap_or_else(PoisonError::into_inner));
        proxy.serves(opening.destination.ip(), &opening.names, &around).then_some(proxy)
    }
}

#[derive(Debug)]
pub(crate) struct Sandbox {
    pub(crate) id: SandboxId,
    pub(crate) shared: Arc<Shared>,
    plan: RwLock<Arc<NetworkPlan>>,
    pins: Mutex<Pins>,
    pub(crate) has_ipv6: bool,
    pub(crate) raw: Raw,
    /// Where its connections are accepted: by IPv4, and by IPv6 if it has that.
    listeners: OnceLock<Vec<Arc<OwnedFd>>>,
    pub(crate) held: Held,
    pub(crate) flows: Flows,
    pub(crate) resolver: Resolver,
    pub(crate) dials: Semaphore,
    pub(crate) connects: Rate,
    /// Bytes a second each way, if they are limited.
    pub(crate) throughput: RwLock<Option<Arc<[Rate; 2]>>>,
    pub(crate) events: Events,
    pub(crate) counting: Counting,
    pub(crate) hosts: Hosts,
    pub(crate) secrets: watch::Sender<Option<Arc<Secrets>>>,
    /// Connections to hosts with secrets.
    pub(crate) opened: Semaphore,
    /// Bodies that values are put into.
    pub(crate) bodies: Semaphore,
    open: Mutex<OpenTable>,
    next: AtomicU64,
}

#[derive(Debug, Default)]
struct OpenTable {
    entries: HashMap<u64, Open>,
    connections: usize,
    flows: usize,
}

impl OpenTable {
    fn number(&mut self, protocol: Protocol) -> &mut usize {
        match protocol {
            Protocol::Tcp => &mut self.connections,
            Protocol::Udp => &mut self.flows,
        }
    }
}

/// A connection from its SYN to its end, or a UDP flow.
#[derive(Debug)]
struct Open {
    protocol: Protocol,
    destination: SocketAddr,
    /// The names that led there when it was decided.
    names: Vec<DnsName>,
    handling: Handling,
    task: AbortHandle,
}

/// A connection that is opened, before it has a task.
#[derive(Debug, Clone)]
pub(crate) struct Opening {
    pub(crate) protocol: Protocol,
    pub(crate) destination: SocketAddr,
    pub(crate) names: Vec<DnsName>,
    pub(crate) handling: Handling,
}

impl Sandbox {
    pub(crate) fn new(
        id: SandboxId,
        plan: NetworkPlan,
        raw: Raw,
        has_ipv6: bool,
        shared: Arc<Shared>,
    ) -> Self {
        let (limits, now) = (&plan.limits, Instant::now());
        Self {
            events: Events::new(id.clone(), limits.events_per_second, now),
            pins: Mutex::new(Pins::new(as_size(limits.pins))),
            connects: Rate::new(limits.connects_per_second.into(), now),
            throughput: RwLock::new(throughput_of(&plan)),
            resolver: Resolver::new(limits.dns_per_second, now),
            dials: Semaphore::new(MAX_DIALS),
            id,
            shared,
            has_ipv6,
            raw,
            listeners: OnceLock::new(),
            plan: RwLock::new(Arc::new(plan)),
            held: Held::default(),
            flows: Flows::default(),
            counting: Counting::default(),
            hosts: Hosts::default(),
            secrets: watch::Sender::default(),
            opened: Semaphore::new(MAX_OPENED),
            bodies: Semaphore::new(MAX_BODIES),
            open: Mutex::default(),
            next: AtomicU64::new(0),
        }
    }

    /// Says once where its connections are accepted.
    pub(crate) fn listen(&self, listeners: &[Arc<OwnedFd>]) {
        self.listeners.get_or_init(|| listeners.to_vec());
    }

    pub(crate) fn listener(&self, is_ipv4: bool) -> Option<&OwnedFd> {
        self.listeners.get()?.get(usize::from(!is_ipv4)).map(|listener| &**listener)
    }

    pub(crate) fn plan(&self) -> Arc<NetworkPlan> {
        Arc::clone(&self.plan.read().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn around(&self) -> Arc<Surroundings> {
        Arc::clone(&self.shared.around.read().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn pins(&self) -> MutexGuard<'_, Pins> {
        self.pins.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs a task as an open connection or flow; `false` if there are `limit` already.
    pub(crate) fn open<F>(self: &Arc<Self>, opening: Opening, limit: u32, task: F) -> bool
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let mut open = self.lock_open();
        let number = open.number(opening.protocol);
        if *number >= as_size(limit) {
            return false;
        }
        *number += 1;
        let key = self.next.fetch_add(1, Ordering::Relaxed);
        let end = Closing { sandbox: Arc::clone(self), key };
        // The lock is held until the entry is there, so a task that ends at once finds it.
        let task = tokio::spawn(async move {
            let _end = end;
            task.await;
        });
        let Opening { protocol, destination, names, handling } = opening;
        open.entries.insert(key, Open { protocol, destination, names, handling, task: task.abort_handle() });
        true
    }

    /// Connections that are open now, from their SYN on.
    pub(crate) fn n_connections(&self) -> usize {
        self.lock_open().connections
    }

    /// Takes a new plan, and closes what it does not allow.
    pub(crate) fn update(&self, plan: NetworkPlan) {
        self.events.change_rate(plan.limits.events_per_second);
        self.connects.change(plan.limits.connects_per_second.into());
        self.resolver.change_rate(plan.limits.dns_per_second);
        *self.throughput.write().unwrap_or_else(PoisonError::into_inner) = throughput_of(&plan);
        *self.plan.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(plan);
        self.resolver.forget();
        self.judge_again();
    }

    /// Takes other secrets. Connections that could carry the old ones end.
    pub(crate) fn hold_secrets(&self, held: Option<HeldSecrets>) -> io::Result<()> {
        let is_known = match (&*self.secrets.borrow(), &held) {
            (Some(known), Some(held)) => known.are(held),
            (known, held) => known.is_none() && held.is_none(),
        };
        if is_known {
            return Ok(());
        }
        // Those that cannot be used must not leave others in their place.
        self.secrets.send_replace(None);
        let secrets = held.map(Secrets::new).transpose()?;
        self.secrets.send_replace(secrets.map(Arc::new));
        Ok(())
    }

    /// Closes what is no longer allowed.
    pub(crate) fn judge_again(&self) {
        let close: Vec<_> = self
            .lock_open()
            .entries
            .values()
            .filter_map(|open| Some((open.task.clone(), self.refusal(open)?)))
            .collect();
        for (task, decision) in close {
            task.abort();
            self.tell(decision);
        }
    }

    /// Why an open connection may not stay.
    fn refusal(&self, open: &Open) -> Option<Decision> {
        let outcome = handling::decide(self, open.protocol, open.destination, &open.names);
        let rule = match outcome {
            Outcome::Refuse { rule } => rule,
            Outcome::Take { handling, rule } => {
                let stays = match (&open.handling, handling) {
                    (_, Handling::Pass) | (Handling::Resolve, Handling::Resolve) => true,
                    (Handling::Named { names: before, .. }, Handling::Named { names, .. }) => {
                        before.iter().all(|name| names.contains(name))
                    }
                    _ => false,
                };
                if stays {
                    return None;
                }
                rule
            }
        };
        Some(Decision {
            kind: NetworkEventKind::Denied,
            protocol: open.protocol,
            name: open.names.first().cloned(),
            address: Some(open.destination.ip()),
            port: open.destination.port(),
            rule,
        })
    }

    /// Ends everything that is open.
    pub(crate) fn close_all(&self) {
        let tasks: Vec<_> = self.lock_open().entries.values().map(|open| open.task.clone()).collect();
        for task in tasks {
            task.abort();
        }
    }

    pub(crate) fn tell(&self, decision: Decision) {
        match decision.kind {
            NetworkEventKind::Denied => {
                count(&self.counting.denied);
                count(&self.hosts.of(decision.name.as_ref(), decision.address).denied);
            }
            NetworkEventKind::Failed => count(&self.counting.failed),
            NetworkEventKind::Allowed => {}
        }
        self.events.add(decision);
    }

    /// Whether an address is the sandbox's own, so that its kernel handles it without us.
    pub(crate) fn is_own(source: IpAddr, destination: IpAddr) -> bool {
        destination.is_loopback()
            || destination.is_unspecified()
            || destination == source
            || destination == IpAddr::V4(OWN_ADDRESS_V4)
            || destination == IpAddr::V6(OWN_ADDRESS_V6)
    }

    fn lock_open(&self) -> MutexGuard<'_, OpenTable> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Takes a task out of the list when it ends, however it ends.
struct Closing {
    sandbox: Arc<Sandbox>,
    key: u64,
}

impl Drop for Closing {
    fn drop(&mut self) {
        let mut open = self.sandbox.lock_open();
        if let Some(ended) = open.entries.remove(&self.key) {
            *open.number(ended.protocol) -= 1;
        }
    }
}

fn throughput_of(plan: &NetworkPlan) -> Option<Arc<[Rate; 2]>> {
    let per_second = plan.limits.bytes_per_second?.bytes();
    let now = Instant::now();
    Some(Arc::new([Rate::new(per_second, now), Rate::new(per_second, now)]))
}

fn as_size(count: u32) -> usize {
    usize::try_from(count).unwrap_or(usize::MAX)
}

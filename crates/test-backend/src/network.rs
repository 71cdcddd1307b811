//! A network that carries nothing, and keeps the secrets that it is told to hold where a test can look at them.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    },
};

use sandbox::{
    Authority, BackendError, BackendNetwork, Capabilities, Capability, DnsName, HeldSecrets, NetworkPlan,
    NetworkReport, PublishedPort, SandboxId, SandboxPlan, SecretKey,
};
use tokio::sync::broadcast;

use crate::lock;

#[derive(Debug)]
pub(crate) struct StandInNetwork {
    is_there: AtomicBool,
    held: Mutex<BTreeMap<SandboxId, HeldSecrets>>,
    n_authorities: AtomicUsize,
    reports: broadcast::Sender<NetworkReport>,
}

impl Default for StandInNetwork {
    fn default() -> Self {
        Self {
            is_there: AtomicBool::new(false),
            held: Mutex::default(),
            n_authorities: AtomicUsize::new(0),
            reports: broadcast::Sender::new(1),
        }
    }
}

impl StandInNetwork {
    pub(crate) fn begin(&self) {
        self.is_there.store(true, Relaxed);
    }

    pub(crate) fn get(&self) -> Option<&dyn BackendNetwork> {
        self.is_there.load(Relaxed).then_some(self)
    }

    pub(crate) fn held(&self, id: &SandboxId) -> Option<HeldSecrets> {
        lock(&self.held).get(id).cloned()
    }

    /// As a daemon does that dies.
    pub(crate) fn forget_all(&self) {
        lock(&self.held).clear();
    }

    /// With the network that it stands in for.
    pub(crate) fn add_to(&self, mut capabilities: Capabilities) -> Capabilities {
        if self.is_there.load(Relaxed) && !capabilities.has(Capability::Network) {
            capabilities.has.push(Capability::Network);
        }
        capabilities
    }

    /// Without a network that the real back end would have to make.
    pub(crate) fn take_from(&self, plan: &SandboxPlan) -> SandboxPlan {
        let mut plan = plan.clone();
        if self.is_there.load(Relaxed) {
            plan.network = NetworkPlan::default();
        }
        plan
    }
}

impl BackendNetwork for StandInNetwork {
    fn reports(&self) -> broadcast::Receiver<NetworkReport> {
        self.reports.subscribe()
    }

    /// Nothing happens here, so everything was told.
    fn catch_up(&self, number: u64) {
        // Nobody may be listening.
        drop(self.reports.send(NetworkReport::CaughtUp(number)));
    }

    fn surround(&self, _closed: Vec<SocketAddr>, _published: BTreeMap<u16, PublishedPort>) {}

    fn hold_secrets(&self, id: &SandboxId, secrets: Option<HeldSecrets>) {
        let mut held = lock(&self.held);
        match secrets {
            Some(secrets) => held.insert(id.clone(), secrets),
            None => held.remove(id),
        };
    }

    /// Numbered, so that a test sees whether it is still the same.
    fn make_authority(&self, hosts: &[DnsName]) -> Result<Authority, BackendError> {
        let number = self.n_authorities.fetch_add(1, Relaxed);
        let hosts: Vec<_> = hosts.iter().map(DnsName::as_str).collect();
        let certificate = format!("test authority {number} for {}\n", hosts.join(" "));
        Ok(Authority { certificate, key: SecretKey(format!("test key {number}")) })
    }
}

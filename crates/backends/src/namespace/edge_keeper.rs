//! Keeps an edge running while sandboxes have a network, and tells it which ones and by which policies.
//!
//! The edge is a process of its own, started with the first sandbox that needs it. If it dies, the connections that it
//! carried end, a new one is started, and every living sandbox is handed to it again; meanwhile first packets wait in
//! the sandboxes' own sockets and nothing leaves.

use std::{
    collections::BTreeMap,
    fs, io,
    net::SocketAddr,
    os::fd::OwnedFd,
    process::{Child, ChildStderr, ExitStatus},
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

use edge::{Around, Client, ClientError, EdgeReport, UpstreamProxy};
use jail::NetworkEnd;
use sandbox::{
    BackendError, HeldSecrets, NetworkHosts, NetworkPlan, NetworkReport, NetworkTraffic, PublishedPort,
    SandboxId, network::NetworkSockets,
};
use tokio::{
    io::AsyncReadExt as _,
    net::unix::pipe,
    sync::{Notify, OnceCell, broadcast},
};

use super::{names::PlaceNames, network};

/// Starts the process of an edge. Returns the daemon's end of its control socket.
pub type EdgeStarter = fn() -> io::Result<(OwnedFd, Child)>;

/// The pause before an edge that died is started again; twice as long after each further death, up to the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// An edge that lived this long died of something new.
const LIVED_LONG: Duration = Duration::from_secs(30);
/// How long the sockets of an earlier daemon's edge, which ends with it, may be in the way.
const IN_THE_WAY: Duration = Duration::from_secs(5);
/// How long an edge that no longer serves may take to end by itself.
const ENDING: Duration = Duration::from_secs(1);
/// Pause between two looks whether it has ended.
const LOOK_AGAIN: Duration = Duration::from_millis(10);
/// How much of its last words is kept.
const MAX_SAID_BYTES: u64 = 4096;
/// How often the host's resolvers are looked up again.
const RESOLVERS_EVERY: Duration = Duration::from_secs(10);
/// How long the lookup of the proxy's name may take.
const PROXY_PATIENCE: Duration = Duration::from_secs(3);
/// Addresses of the proxy that are tried.
const MAX_PROXY_ADDRESSES: usize = 8;
/// Events that wait for a slow reader.
const MAX_EVENTS: usize = 1024;

/// The proxy through which this host reaches the internet.
#[derive(Debug, Clone)]
pub struct HostProxy {
    /// A name or an address.
    pub host: String,
    pub port: u16,
    /// Without its addresses, which are looked up again and again.
    pub settings: UpstreamProxy,
}

#[derive(Debug)]
pub(crate) struct Edge(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    starter: EdgeStarter,
    proxy: Option<HostProxy>,
    reports: broadcast::Sender<NetworkReport>,
    state: Mutex<State>,
    /// Held while policies and secrets are read and sent, so that what is sent last is what was said last.
    telling: tokio::sync::Mutex<()>,
    /// Sandboxes, policies or surroundings changed.
    changed: Notify,
}

#[derive(Debug, Default)]
struct State {
    is_running: bool,
    /// The living edge.
    client: Option<Arc<Client>>,
    served: BTreeMap<SandboxId, Served>,
    secrets: BTreeMap<SandboxId, HeldSecrets>,
    closed: Vec<SocketAddr>,
    published: BTreeMap<u16, PublishedPort>,
    traffic: BTreeMap<SandboxId, Counted>,
}

/// The traffic on a sandbox's network: through earlier edges, and through this one.
#[derive(Debug, Clone, Copy, Default)]
struct Counted {
    before: NetworkTraffic,
    now: NetworkTraffic,
}

/// A sandbox with a network.
#[derive(Debug, Clone)]
struct Served {
    plan: NetworkPlan,
    end: Inside,
    /// Where it was started without a network: the sockets that were made later. Guests keep only those they begin
    /// with.
    made: Arc<OnceCell<Arc<NetworkSockets>>>,
}

/// The sandbox's end of a network.
#[derive(Debug, Clone)]
pub(crate) struct Inside {
    pub(crate) names: PlaceNames,
    /// As it is made if the guest has none.
    pub(crate) end: NetworkEnd,
}

impl Edge {
    pub(crate) fn new(starter: EdgeStarter, proxy: Option<HostProxy>) -> Self {
        Self(Arc::new(Shared {
            starter,
            proxy,
            reports: broadcast::Sender::new(MAX_EVENTS),
            state: Mutex::default(),
            telling: tokio::sync::Mutex::default(),
            changed: Notify::new(),
        }))
    }

    pub(crate) fn reports(&self) -> broadcast::Receiver<NetworkReport> {
        self.0.reports.subscribe()
    }

    pub(crate) fn catch_up(&self, number: u64) {
        let client = self.0.state().client.clone();
        let shared = Arc::clone(&self.0);
        tokio::spawn(async move {
            let told = match client {
                Some(client) => client.tell(number).await.is_ok(),
                None => false,
            };
            if !told {
                // Nobody serves, so nothing happens. Nobody may be listening.
                drop(shared.reports.send(NetworkReport::CaughtUp(number)));
            }
        });
    }

    /// Returns the traffic on the network of a sandbox; at most a second old.
    pub(crate) fn traffic(&self, id: &SandboxId) -> NetworkTraffic {
        let counted = self.0.state().traffic.get(id).copied().unwrap_or_default();
        counted.before + counted.now
    }

    /// Returns the traffic to each host of a sandbox. Nothing while no edge serves it.
    pub(crate) async fn hosts(&self, id: &SandboxId) -> Result<NetworkHosts, ClientError> {
        let client = self.0.state().client.clone();
        let Some(client) = client else { return Ok(NetworkHosts::default()) };
        match client.hosts(id).await {
            Err(ClientError::Gone | ClientError::Refused(_)) => Ok(NetworkHosts::default()),
            found => found,
        }
    }

    pub(crate) fn surround(&self, closed: Vec<SocketAddr>, published: BTreeMap<u16, PublishedPort>) {
        let mut state = self.0.state();
        (state.closed, state.published) = (closed, published);
        drop(state);
        self.0.changed.notify_one();
    }

    /// Keeps the secrets of a sandbox, and gives them to the edge if it serves the sandbox already.
    pub(crate) fn hold_secrets(&self, id: &SandboxId, secrets: Option<HeldSecrets>) {
        let mut state = self.0.state();
        match secrets {
            Some(secrets) => state.secrets.insert(id.clone(), secrets),
            None => state.secrets.remove(id),
        };
        let client = state.client.clone().filter(|_| state.served.contains_key(id));
        drop(state);
        if let (Some(client), Ok(runtime)) = (client, tokio::runtime::Handle::try_current()) {
            let (shared, id) = (Arc::clone(&self.0), id.clone());
            runtime.spawn(async move { shared.tell_secrets(&client, &id).await });
        }
    }

    /// Serves a sandbox from now on, by the sockets that its guest has. Returns at once: until it is served, its first
    /// packets wait. `made`: its sockets, if they were made after it was started.
    pub(crate) fn serve(
        &self,
        id: &SandboxId,
        plan: &NetworkPlan,
        end: Inside,
        made: Option<NetworkSockets>,
    ) {
        let mut state = self.0.state();
        let made = Arc::new(OnceCell::new_with(made.map(Arc::new)));
        state.served.insert(id.clone(), Served { plan: plan.clone(), end, made });
        let is_first = !std::mem::replace(&mut state.is_running, true);
        let client = state.client.clone();
        drop(state);
        if is_first {
            tokio::spawn(keep(Arc::downgrade(&self.0)));
        } else if let Some(client) = client {
            let (shared, id) = (Arc::clone(&self.0), id.clone());
            tokio::spawn(async move { shared.hand_over(&client, &id).await });
        }
    }

    /// Holds another policy for a sandbox that is served. When this returns, what it forbids is closed; an edge that is
    /// just being started gets it with the sandbox.
    pub(crate) async fn update(&self, id: &SandboxId, plan: &NetworkPlan) -> Result<(), ClientError> {
        let client = {
            let mut state = self.0.state();
            if let Some(served) = state.served.get_mut(id) {
                served.plan = plan.clone();
            }
            state.client.clone()
        };
        let Some(client) = client else { return Ok(()) };
        // Not between the reading of a plan and the handing over of its sandbox.
        let _telling = self.0.telling.lock().await;
        match client.update(id, plan).await {
            // Whoever hands the sandbox over, to this edge or the next, finds the new policy.
            Err(ClientError::Gone | ClientError::Refused(_)) => Ok(()),
            updated => updated,
        }
    }

    /// Ends everything of a sandbox on the network.
    pub(crate) fn forget(&self, id: &SandboxId) {
        let mut state = self.0.state();
        state.traffic.remove(id);
        if state.served.remove(id).is_none() {
            return;
        }
        let Some(client) = state.client.clone() else { return };
        drop(state);
        let id = id.clone();
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move { drop(client.drop_sandbox(&id).await) });
        }
    }
}

impl Served {
    /// Returns the sockets that the guest keeps; else those that were made later, which are made now if this daemon has
    /// none.
    async fn sockets(&self, id: &SandboxId) -> Result<Arc<NetworkSockets>, BackendError> {
        let Inside { names, end } = &self.end;
        if self.made.get().is_none()
            && let Some(sockets) = network::sockets(id, &names.socket()).await?
        {
            return Ok(Arc::new(sockets));
        }
        let make = || async { network::make_later(id, names, end.clone(), IN_THE_WAY).await.map(Arc::new) };
        self.made.get_or_try_init(make).await.cloned()
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives an edge the sockets of a sandbox. A sandbox that is gone by then is not served.
    async fn hand_over(&self, client: &Client, id: &SandboxId) {
        let Some(served) = self.state().served.get(id).cloned() else { return };
        let sockets = match served.sockets(id).await {
            Ok(sockets) => sockets,
            // It was removed meanwhile.
            Err(_gone) if !self.state().served.contains_key(id) => return,
            Err(error) => {
                tracing::warn!(sandbox = %id, %error, "its network is not served");
                return;
            }
        };
        let telling = self.telling.lock().await;
        // As it is now: it may have changed meanwhile.
        let (now, secrets) = {
            let state = self.state();
            (state.served.get(id).cloned(), state.secrets.get(id).cloned())
        };
        let Some(Served { plan, .. }) = now else { return };
        let added = client.add(id, &plan, secrets.as_ref(), &sockets).await;
        drop(telling);
        match added {
            Ok(()) | Err(ClientError::Gone) => {}
            Err(error) => tracing::warn!(sandbox = %id, %error, "its network is not served"),
        }
        if !self.state().served.contains_key(id) {
            drop(client.drop_sandbox(id).await);
        }
    }

    /// Gives an edge the secrets of a sandbox as they are now.
    async fn tell_secrets(&self, client: &Client, id: &SandboxId) {
        let _telling = self.telling.lock().await;
        let secrets = self.state().secrets.get(id).cloned();
        match client.hold_secrets(id, secrets.as_ref()).await {
            Ok(()) | Err(ClientError::Gone) => {}
            // It is not served yet, or no more: whoever serves it gives the secrets along.
            Err(error) => tracing::debug!(sandbox = %id, %error, "its secrets were not taken"),
        }
    }

    async fn around(&self) -> Around {
        let mut around = Around {
            proxy: self.found_proxy().await,
            resolv_conf: fs::read_to_string("/etc/resolv.conf").unwrap_or_default(),
            ..Around::default()
        };
        let state = self.state();
        around.surroundings.closed.clone_from(&state.closed);
        around.surroundings.published.clone_from(&state.published);
        around
    }

    /// The host's proxy with its addresses of now. One that cannot be found has none.
    async fn found_proxy(&self) -> Option<UpstreamProxy> {
        let HostProxy { host, port, settings } = self.proxy.as_ref()?;
        let looked_up = tokio::net::lookup_host((host.as_str(), *port));
        let addresses = match tokio::time::timeout(PROXY_PATIENCE, looked_up).await {
            Ok(Ok(addresses)) => addresses.take(MAX_PROXY_ADDRESSES).collect(),
            _ => {
                tracing::warn!(%host, "the proxy's name could not be resolved: sandboxes do not reach the internet");
                Vec::new()
            }
        };
        Some(UpstreamProxy { addresses, ..settings.clone() })
    }
}

/// Runs edges, one after the other, as long as the back end lives.
async fn keep(shared: Weak<Shared>) {
    let mut pause = FIRST_PAUSE;
    loop {
        let Some(strong) = shared.upgrade() else { return };
        let began = tokio::time::Instant::now();
        match run(&strong).await {
            Ok(ended) => tracing::error!(%ended, "the edge ended; connections of sandboxes were lost"),
            Err(error) => tracing::error!(%error, "the edge could not be started: sandboxes have no network"),
        }
        strong.state().client = None;
        drop(strong);
        if began.elapsed() > LIVED_LONG {
            pause = FIRST_PAUSE;
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// Starts one edge and serves by it until it ends. Returns how it ended.
async fn run(shared: &Arc<Shared>) -> io::Result<String> {
    let starter = shared.starter;
    let (control, mut process) = tokio::task::spawn_blocking(starter).await.map_err(io::Error::other)??;
    let said = tokio::spawn(last_words(process.stderr.take()));
    let served = serve_by(shared, control).await;
    let status = end(process).await?;
    let said = tokio::time::timeout(ENDING, said).await.ok().and_then(Result::ok).unwrap_or_default();
    let ended = if said.is_empty() { status.to_string() } else { format!("{status}: {}", said.trim_end()) };
    match served {
        Ok(()) => Ok(ended),
        Err(error) => Err(io::Error::other(format!("{error} ({ended})"))),
    }
}

/// Waits for the end of an edge that no longer serves. It may hang: then it is killed.
async fn end(mut process: Child) -> io::Result<ExitStatus> {
    let began = tokio::time::Instant::now();
    while began.elapsed() < ENDING {
        if let Some(status) = process.try_wait()? {
            return Ok(status);
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
    process.kill()?;
    tokio::task::spawn_blocking(move || process.wait()).await.map_err(io::Error::other)?
}

/// Reads what an edge writes to its standard error: nothing, unless it fails.
async fn last_words(stderr: Option<ChildStderr>) -> String {
    let stderr = stderr.and_then(|stderr| pipe::Receiver::from_owned_fd(stderr.into()).ok());
    let Some(mut stderr) = stderr else { return String::new() };
    let mut said = Vec::new();
    // An error ends it as the end does.
    drop((&mut stderr).take(MAX_SAID_BYTES).read_to_end(&mut said).await);
    // Whoever writes on must not wait for us.
    drop(tokio::io::copy(&mut stderr, &mut tokio::io::sink()).await);
    String::from_utf8_lossy(&said).into_owned()
}

/// Hands every sandbox to a new edge, and passes on what it tells until it ends.
async fn serve_by(shared: &Arc<Shared>, control: OwnedFd) -> io::Result<()> {
    let (client, mut told) = Client::new(control)?;
    let client = Arc::new(client);
    let mut known = shared.around().await;
    // Before the first sandbox: what is closed must never be open.
    client.around(&known).await.map_err(io::Error::other)?;
    client.trust(roots().await?).await.map_err(io::Error::other)?;
    let all: Vec<_> = {
        let mut state = shared.state();
        state.client = Some(Arc::clone(&client));
        for counted in state.traffic.values_mut() {
            *counted = Counted { before: counted.before + counted.now, now: NetworkTraffic::default() };
        }
        state.served.keys().cloned().collect()
    };
    for id in all {
        let (shared, client) = (Arc::clone(shared), Arc::clone(&client));
        tokio::spawn(async move { shared.hand_over(&client, &id).await });
    }
    let mut resolvers = tokio::time::interval(RESOLVERS_EVERY);
    loop {
        tokio::select! {
            report = told.recv() => match report {
                Some(report) => {
                    pass_on(shared, report);
                    continue;
                }
                None => break,
            },
            () = shared.changed.notified() => {}
            _ = resolvers.tick() => {}
        }
        let now = shared.around().await;
        if now != known && client.around(&now).await.is_ok() {
            known = now;
        }
    }
    Ok(())
}

/// The root certificates that the host trusts, which the edge has no files to find.
async fn roots() -> io::Result<Vec<Vec<u8>>> {
    let found = tokio::task::spawn_blocking(rustls_native_certs::load_native_certs);
    let found = found.await.map_err(io::Error::other)?;
    if found.certs.is_empty() {
        tracing::warn!(errors = ?found.errors, "this host has no root certificates: secrets reach no server");
    }
    Ok(found.certs.into_iter().map(|root| root.to_vec()).collect())
}

fn pass_on(shared: &Shared, told: EdgeReport) {
    // Nobody may be listening.
    let send = |report| drop(shared.reports.send(report));
    match told {
        EdgeReport::Events(reported) => reported.into_iter().map(NetworkReport::Event).for_each(send),
        EdgeReport::CaughtUp(number) => send(NetworkReport::CaughtUp(number)),
        EdgeReport::Counters(counted) => {
            let mut state = shared.state();
            for (id, now) in counted {
                if state.served.contains_key(&id) {
                    state.traffic.entry(id).or_default().now = now;
                }
            }
        }
        EdgeReport::Lost(n) => tracing::warn!("{n} reports of the edge were lost"),
    }
}

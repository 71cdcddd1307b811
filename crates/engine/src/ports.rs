//! Ports of a sandbox that are reachable from outside: recorded with the sandbox, and published by listeners of the
//! daemon while it runs.
//!
//! The driver makes the listeners follow the record each time it publishes a state ([`Listeners::follow`]), so they
//! come back with a restarted daemon and with a started sandbox. A port that a caller publishes is bound before it is
//! recorded: a port that is taken is refused, and a listener without a record dies with the daemon.

mod udp;

use std::{
    collections::BTreeMap,
    io,
    net::{IpAddr, SocketAddr, TcpListener, UdpSocket},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use guest_protocol::Target;
use sandbox::{
    Action, Capability, Error, ErrorKind, ExposedPort, MAX_EXPOSED_PORTS, Next, PortSpec, PortView, Result,
    SandboxId, SandboxState, Setting, Thing, network::Protocol,
};
use store::SandboxRecord;
use tokio::{io::copy_bidirectional_with_sizes, net::TcpStream, sync::Semaphore};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::{
    Engine, LinkLasts, LinkTarget, OpenLink, Principal, Quota, SandboxRef, Scope,
    access::Access,
    core::{Core, until},
    driver::Command,
    lifecycle::ask,
    shared::{Shared, Status},
};

/// Connections to one published port at the same time; the next ones wait in the kernel's queue.
const MAX_CONNECTIONS: usize = 256;
/// Bytes that one direction of a connection holds at a time; as much as one read inside brings.
const COPY_BYTES: usize = 64 * 1024;
/// Pause after an accept that failed for want of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// Ports below this one are for the system's own services: only the daemon's owner publishes there.
const FIRST_UNPRIVILEGED: u16 = 1024;

/// A listener that is bound and not yet used.
pub(crate) type Bound = (ExposedPort, Option<Listener>);

#[derive(Debug)]
pub(crate) enum Listener {
    Tcp(TcpListener),
    Udp(UdpSocket),
}

impl Listener {
    fn bind(at: SocketAddr, protocol: Protocol) -> io::Result<Self> {
        match protocol {
            Protocol::Tcp => {
                let listener = TcpListener::bind(at)?;
                listener.set_nonblocking(true)?;
                Ok(Self::Tcp(listener))
            }
            Protocol::Udp => {
                let socket = UdpSocket::bind(at)?;
                socket.set_nonblocking(true)?;
                Ok(Self::Udp(socket))
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        match self {
            Self::Tcp(listener) => listener.local_addr(),
            Self::Udp(socket) => socket.local_addr(),
        }
    }
}

/// A port inside.
type Inside = (u16, Protocol);

fn inside(exposed: &ExposedPort) -> Inside {
    (exposed.port, exposed.protocol)
}

/// The listeners of one sandbox.
#[derive(Debug, Default)]
pub(crate) struct Listeners(Mutex<Open>);

#[derive(Debug, Default)]
struct Open {
    /// Bound for a record that is being written, by the port inside.
    offered: BTreeMap<Inside, Listener>,
    by_port: BTreeMap<Inside, State>,
}

#[derive(Debug)]
enum State {
    /// Listens until this is dropped.
    Listening {
        at: SocketAddr,
        _until_dropped: DropGuard,
    },
    Failed {
        at: SocketAddr,
        why: String,
    },
}

impl State {
    fn at(&self) -> SocketAddr {
        match self {
            Self::Listening { at, .. } | Self::Failed { at, .. } => *at,
        }
    }
}

impl Listeners {
    fn open(&self) -> MutexGuard<'_, Open> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes listeners whose ports are about to be recorded.
    pub(crate) fn offer(&self, bound: Vec<Bound>) {
        let mut open = self.open();
        open.offered
            .extend(bound.into_iter().filter_map(|(exposed, listener)| Some((inside(&exposed), listener?))));
    }

    fn take_back(&self, port: Inside) {
        self.open().offered.remove(&port);
    }

    fn listens(&self, port: Inside, at: SocketAddr) -> bool {
        matches!(self.open().by_port.get(&port), Some(State::Listening { at: own, .. }) if *own == at)
    }

    fn failure(&self, port: Inside) -> Option<String> {
        match self.open().by_port.get(&port) {
            Some(State::Failed { why, .. }) => Some(why.clone()),
            Some(State::Listening { .. }) | None => None,
        }
    }

    /// Listens for what the record says, and for nothing else.
    pub(crate) fn follow(&self, core: &Arc<Core>, shared: &Arc<Shared>, record: &SandboxRecord) {
        let mut open = self.open();
        if record.ports.is_empty() && open.by_port.is_empty() && open.offered.is_empty() {
            return;
        }
        let is_live = matches!(record.state, SandboxState::Running | SandboxState::Paused);
        let wanted: BTreeMap<Inside, SocketAddr> = match is_live {
            true => record.ports.iter().filter_map(|port| Some((inside(port), port.host?))).collect(),
            false => BTreeMap::new(),
        };
        open.by_port.retain(|port, state| wanted.get(port) == Some(&state.at()));
        for (port, at) in wanted {
            if matches!(open.by_port.get(&port), Some(State::Listening { .. })) {
                continue;
            }
            let bound = open.offered.remove(&port).map_or_else(|| Listener::bind(at, port.1), Ok);
            let state = match bound.and_then(|listener| listen(core, shared, port, listener)) {
                Ok(until_dropped) => State::Listening { at, _until_dropped: until_dropped },
                Err(error) => {
                    tracing::warn!(sandbox = %shared.label(), "port {}/{} is not published on {at}: {error}", port.0, port.1);
                    State::Failed { at, why: format!("could not listen on {at}: {error}") }
                }
            };
            open.by_port.insert(port, state);
        }
        if record.state != SandboxState::Creating {
            open.offered.clear();
        }
        drop(open);
        core.own_listeners.send_modify(|_same| {});
    }

    /// Its sandbox is gone.
    pub(crate) fn close(&self) {
        *self.open() = Open::default();
    }
}

/// Accepts connections or datagrams until the guard is dropped or the engine closes.
fn listen(
    core: &Arc<Core>,
    shared: &Arc<Shared>,
    (port, _): Inside,
    listener: Listener,
) -> io::Result<DropGuard> {
    let over = CancellationToken::new();
    let until_dropped = over.clone().drop_guard();
    let door = Arc::new(Door { core: Arc::clone(core), shared: Arc::clone(shared), port, over });
    let (over, closing) = (door.over.clone(), core.closing.clone());
    match listener {
        Listener::Tcp(listener) => {
            let listener = tokio::net::TcpListener::from_std(listener)?;
            let accepting = async move { accept_all(&door, listener).await };
            core.drivers.spawn(async move { until(&over, until(&closing, accepting)).await });
        }
        Listener::Udp(socket) => {
            let serving = udp::serve(door, tokio::net::UdpSocket::from_std(socket)?);
            core.drivers.spawn(async move { until(&over, until(&closing, serving)).await });
        }
    }
    Ok(until_dropped)
}

/// A published port: what its connections need.
struct Door {
    core: Arc<Core>,
    shared: Arc<Shared>,
    port: u16,
    over: CancellationToken,
}

async fn accept_all(door: &Arc<Door>, listener: tokio::net::TcpListener) {
    let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        match listener.accept().await {
            Ok((outside, _peer)) => {
                let door = Arc::clone(door);
                door.core.drivers.clone().spawn(async move {
                    let (over, closing) = (door.over.clone(), door.core.closing.clone());
                    until(&over, until(&closing, carry(&door, outside))).await;
                    drop(place);
                });
            }
            Err(error) => {
                tracing::warn!("could not accept a connection to a published port: {error}");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// One connection, from the host's port to the one inside.
async fn carry(door: &Door, mut outside: TcpStream) {
    let Ok((life, guard)) = door.shared.enter(Action::Exec, &door.core.clock) else { return };
    let mut inside = match life.client.connect_port(Target::Tcp(door.port)).await {
        Ok(inside) => inside,
        Err(error) => {
            tracing::debug!(sandbox = %door.shared.label(), port = door.port, "a connection was not taken: {error}");
            return;
        }
    };
    outside.set_nodelay(true).ok();
    let copying = copy_bidirectional_with_sizes(&mut outside, &mut inside, COPY_BYTES, COPY_BYTES);
    if let Err(error) = copying.await {
        tracing::debug!("a connection to a published port ended: {error}");
    }
    drop(guard);
}

/// Binds the ports of a request. On failure none stays bound.
pub(crate) fn bind_all(core: &Core, who: &Principal, ports: &[PortSpec]) -> Result<Vec<Bound>> {
    ports.iter().map(|port| bind_one(core, who, port)).collect()
}

fn bind_one(core: &Core, who: &Principal, spec: &PortSpec) -> Result<Bound> {
    let Some(at) = spec.listen() else {
        let exposed =
            ExposedPort { port: spec.inside, protocol: spec.protocol, host: None, public: spec.public };
        return Ok((exposed, None));
    };
    check_address(core, who, at)?;
    let bound = Listener::bind(at, spec.protocol).and_then(|listener| Ok((listener.local_addr()?, listener)));
    let (at, listener) = bound.map_err(|error| cannot_listen(at, error))?;
    let (port, protocol) = (spec.inside, spec.protocol);
    Ok((ExposedPort { port, protocol, host: Some(at), public: spec.public }, Some(listener)))
}

/// Whether this caller may publish there.
pub(crate) fn check_address(core: &Core, who: &Principal, at: SocketAddr) -> Result<()> {
    let is_allowed = |allowed: &IpAddr| {
        *allowed == at.ip() || (allowed.is_unspecified() && same_family(*allowed, at.ip()))
    };
    if !at.ip().to_canonical().is_loopback() && !core.config.publish_on.iter().any(is_allowed) {
        return Err(Error::new(ErrorKind::Denied, format!("ports may not be published on {}", at.ip()))
            .about(Thing::Port, at.port().to_string())
            .with_next(Next::Configure(Setting::PublishAddresses)));
    }
    if at.port() != 0 && at.port() < FIRST_UNPRIVILEGED && !who.is_owner {
        return Err(Error::new(
            ErrorKind::Denied,
            format!("{} may not publish on port {}", who.name, at.port()),
        )
        .about(Thing::Port, at.port().to_string())
        .with_hint("Use a port of the host from 1024 on, or 0 for any free port."));
    }
    Ok(())
}

fn same_family(one: IpAddr, other: IpAddr) -> bool {
    one.is_ipv4() == other.is_ipv4()
}

fn cannot_listen(at: SocketAddr, error: io::Error) -> Error {
    let kind = match error.kind() {
        io::ErrorKind::AddrInUse => ErrorKind::AlreadyExists,
        io::ErrorKind::PermissionDenied => ErrorKind::Denied,
        io::ErrorKind::AddrNotAvailable => ErrorKind::InvalidRequest,
        _ => ErrorKind::Unavailable,
    };
    let why = match kind {
        ErrorKind::AlreadyExists => "another program uses this port",
        ErrorKind::InvalidRequest => "this machine does not have that address",
        ErrorKind::Denied if at.port() < 1024 => "ports below 1024 are not for this daemon's user",
        _ => "the host refuses",
    };
    let failed = Error::new(kind, format!("could not publish on {at}: {why}"))
        .about(Thing::Port, at.port().to_string())
        .with_hint("Choose another port of the host, or 0 for any free one.");
    // It says the same once more.
    if kind == ErrorKind::Denied { failed } else { failed.with_source(error) }
}

impl Engine {
    /// The exposed ports of a sandbox.
    #[crate::boxed]
    pub async fn exposed_ports(&self, who: &Principal, which: &SandboxRef) -> Result<Vec<PortView>> {
        Ok(self.core().find_to_look(who, which).await?.port_views())
    }

    /// Exposes a port in addition to how it is exposed already. A port of the host that is taken is refused.
    #[crate::boxed]
    pub async fn expose_port(
        &self,
        who: &Principal,
        which: &SandboxRef,
        spec: &PortSpec,
    ) -> Result<PortView> {
        spec.check()?;
        let core = self.core();
        let shared = core.find_to_change(who, which).await?;
        check_protocol(core, &shared, spec)?;
        let asked_for = (spec.inside, spec.protocol);
        let earlier = shared.port_records().into_iter().find(|port| inside(port) == asked_for);
        let is_same = match (spec.listen(), earlier.as_ref().and_then(|port| port.host)) {
            (Some(asked), Some(has)) => {
                asked.ip() == has.ip()
                    && (asked.port() == 0 || asked.port() == has.port())
                    && shared.listeners.listens(asked_for, has)
            }
            _ => false,
        };
        let exposed = match (is_same, earlier) {
            (true, Some(earlier)) => ExposedPort { public: earlier.public || spec.public, ..earlier },
            (_, earlier) => {
                let (mut exposed, listener) = bind_one(core, who, spec)?;
                if let Some(earlier) = earlier {
                    exposed.host = exposed.host.or(earlier.host);
                    exposed.public |= earlier.public;
                }
                shared.listeners.offer(vec![(exposed.clone(), listener)]);
                exposed
            }
        };
        if let Err(error) = ask(&shared, |reply| Command::Expose { exposed, reply }).await {
            shared.listeners.take_back(asked_for);
            return Err(error);
        }
        let mut views = shared.port_views().into_iter();
        let found = views.find(|view| (view.port, view.protocol) == asked_for);
        found.ok_or_else(|| no_such_port(spec.inside, &shared))
    }

    /// Withdraws an exposed port in every form, TCP and UDP. Connections through the host's port end.
    #[crate::boxed]
    pub async fn withdraw_port(&self, who: &Principal, which: &SandboxRef, port: u16) -> Result<()> {
        let shared = self.core().find_to_change(who, which).await?;
        if !shared.port_records().iter().any(|exposed| exposed.port == port) {
            return Err(no_such_port(port, &shared));
        }
        ask(&shared, |reply| Command::Withdraw { port, reply }).await
    }

    /// Opens a public port, which everybody may use without a key. Found by name, in the default namespace.
    pub fn open_public_port(&self, which: &SandboxRef, port: u16) -> Option<OpenLink> {
        let core = self.core();
        let found = core.find(&Principal::developer("everybody"), which).ok()?;
        let is_public = is_public(&found.port_records(), port);
        let (id, namespace) = (found.subject.id.clone(), found.subject.namespace.clone());
        is_public.then(|| OpenLink {
            who: Principal {
                name: format!("visitors of port {port} of {id}"),
                scope: Scope::Sandbox { namespace, id: id.clone() },
                key: None,
                access: Access::ReadWrite,
                quota: Quota::default(),
                network: None,
                is_owner: false,
                session: None,
                share: None,
            },
            sandbox: id,
            target: LinkTarget::Port { port },
            lasts: LinkLasts::WhilePublic,
        })
    }

    /// Returns when a port is not public any more, or its sandbox is gone.
    pub(crate) async fn public_port_ended(&self, sandbox: &SandboxId, port: u16) {
        let Some(mut status) = self.core().recorded(sandbox).map(|shared| shared.status.subscribe()) else {
            return;
        };
        let is_over = |status: &Status| status.gone.is_some() || !is_public(&status.record.ports, port);
        // Nobody can change it any more once the sender is gone.
        status.wait_for(is_over).await.map(drop).unwrap_or_default();
    }
}

fn is_public(exposed: &[ExposedPort], port: u16) -> bool {
    exposed.iter().any(|exposed| exposed.port == port && exposed.public)
}

/// Refuses a UDP port on a back end whose guests hand out no sockets.
fn check_protocol(core: &Core, shared: &Shared, spec: &PortSpec) -> Result<()> {
    let plan = &shared.status.borrow().record.plan;
    match spec.protocol {
        Protocol::Udp => core.backends.check(plan, Capability::UdpPorts),
        Protocol::Tcp => Ok(()),
    }
}

fn no_such_port(port: u16, shared: &Shared) -> Error {
    Error::not_found(format!("port {port} of {} is not exposed", shared.label()))
        .about(Thing::Port, port.to_string())
        .with_next(sandbox::Next::List(Thing::Port))
}

impl Shared {
    pub(crate) fn port_records(&self) -> Vec<ExposedPort> {
        self.status.borrow().record.ports.clone()
    }

    pub(crate) fn port_views(&self) -> Vec<PortView> {
        let view = |exposed: ExposedPort| PortView {
            failed: self.listeners.failure(inside(&exposed)),
            port: exposed.port,
            protocol: exposed.protocol,
            published: exposed.host,
            public: exposed.public,
        };
        self.port_records().into_iter().map(view).collect()
    }
}

/// Adds a port to a record, or replaces how it is exposed.
pub(crate) fn set(ports: &mut Vec<ExposedPort>, exposed: ExposedPort) -> Result<()> {
    match ports.iter().position(|port| inside(port) == inside(&exposed)) {
        Some(index) => ports[index] = exposed,
        None if ports.len() >= MAX_EXPOSED_PORTS => {
            return Err(Error::new(
                ErrorKind::LimitReached,
                format!("{MAX_EXPOSED_PORTS} ports are exposed, which is the limit for one sandbox"),
            )
            .about(Thing::Port, exposed.port.to_string())
            .with_hint("Withdraw one that is no longer needed."));
        }
        None => ports.push(exposed),
    }
    ports.sort_by_key(inside);
    Ok(())
}

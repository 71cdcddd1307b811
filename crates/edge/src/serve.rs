//! The process: sandboxes come and go by orders of the daemon, and everything ends with it.

use std::{
    collections::HashMap,
    io::{self, Write as _},
    os::fd::{AsFd, OwnedFd},
    process::ExitCode,
    sync::{Arc, PoisonError},
    time::{Duration, Instant},
};

use rustix::net::sockopt;
use sandbox::{
    HeldSecrets, SandboxId,
    network::{NetworkEvent, NetworkHosts, NetworkPlan, NetworkSockets, Surroundings},
};
use tokio::{io::Interest, runtime::Builder, task::AbortHandle};

use crate::{
    control::{self, Around, Order, Report, Request},
    dns::resolv,
    events::Counters,
    host::HostWatch,
    raw::Raw,
    sandbox::{Sandbox, Shared},
    secrets, sockets, tcp, udp,
    watched::{Watched, watch},
    workers::{WorkerSlot, Workers},
};

/// How soon after an event the daemon hears of it.
const EVENT_PAUSE: Duration = Duration::from_millis(50);
/// How long after the last new sandbox nothing of its beginning is used any more.
const SETTLING: Duration = Duration::from_secs(1);
/// How long after traffic what it needed is let go: rarely enough that a busy edge does not notice.
const AFTER_TRAFFIC: Duration = Duration::from_secs(10);
const COUNTER_PAUSE: Duration = Duration::from_secs(1);
/// Events, and counters, of one packet.
const MAX_REPORTED: usize = 64;

/// Serves sandboxes until the daemon closes its end of `control`. `settled` is called some time after sandboxes were
/// added, and after traffic, when what only these needed can be let go.
pub fn serve(control: OwnedFd, settled: fn()) -> ExitCode {
    let runtime = match Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            return failed("it could not start", &error);
        }
    };
    let ended = runtime.block_on(async { Edge::new(control, settled)?.run().await });
    runtime.shutdown_background();
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failed("it could not go on", &error),
    }
}

/// The daemon reads standard error, and logs it with the end of this process.
fn failed(what: &str, error: &io::Error) -> ExitCode {
    // If nobody reads, nobody can be told.
    drop(writeln!(io::stderr(), "{what}: {error}"));
    ExitCode::FAILURE
}

struct Edge {
    control: Watched,
    shared: Arc<Shared>,
    host: HostWatch,
    has_host_changed: bool,
    around: Around,
    sandboxes: HashMap<SandboxId, Served>,
    workers: Workers,
    /// Events that found no room in the socket.
    unsent: Vec<NetworkEvent>,
    counters_at: Instant,
    settled: fn(),
    /// When what was needed since the last time is let go.
    settles_at: Option<Instant>,
}

struct Served {
    sandbox: Arc<Sandbox>,
    tasks: Vec<AbortHandle>,
    reported: Counters,
    _place: WorkerSlot,
}

impl Drop for Served {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
        self.sandbox.close_all();
    }
}

impl Edge {
    fn new(control: OwnedFd, settled: fn()) -> io::Result<Self> {
        let mut edge = Self {
            control: watch(control, Interest::READABLE | Interest::WRITABLE)?,
            shared: Arc::default(),
            host: HostWatch::new(),
            has_host_changed: false,
            around: Around::default(),
            sandboxes: HashMap::new(),
            workers: Workers::start()?,
            unsent: Vec::new(),
            counters_at: Instant::now(),
            settled,
            settles_at: None,
        };
        edge.look_around();
        Ok(edge)
    }

    async fn run(&mut self) -> io::Result<()> {
        let mut tick = tokio::time::interval(EVENT_PAUSE);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                received = receive(&self.control) => match received {
                    Ok((request, descriptors)) => self.obey(request, descriptors).await?,
                    Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
                    Err(error) => return Err(error),
                },
                () = self.host.changed() => self.has_host_changed = true,
                _ = tick.tick() => {
                    // Changes come in bursts; one look is enough for all of them.
                    if std::mem::take(&mut self.has_host_changed) {
                        self.look_around();
                    }
                    self.report()?;
                    if self.settles_at.take_if(|at| Instant::now() >= *at).is_some() {
                        (self.settled)();
                    }
                }
            }
        }
    }

    async fn obey(
        &mut self,
        Request { number, order }: Request,
        descriptors: Vec<OwnedFd>,
    ) -> io::Result<()> {
        let report = match self.carry_out(order, descriptors) {
            Ok(hosts) => Report::Done { number, hosts },
            Err(error) => Report::Failed { number, why: error.to_string() },
        };
        self.control
            .async_io(Interest::WRITABLE, |control| control::send(control.as_fd(), &report, &[]))
            .await
    }

    fn carry_out(&mut self, order: Order, descriptors: Vec<OwnedFd>) -> io::Result<Option<NetworkHosts>> {
        match order {
            Order::Add { sandbox, plan, secrets } => {
                let sockets = sockets::sort_sockets(descriptors).ok_or_else(|| {
                    io::Error::new(io::ErrorKind::InvalidInput, "not the sockets of a sandbox")
                })?;
                // The old one ends before the new one hears anything.
                drop(self.sandboxes.remove(&sandbox));
                let shared = Arc::clone(&self.shared);
                let secrets = secrets.map(|secrets| *secrets);
                let served =
                    Served::start(sandbox.clone(), *plan, secrets, sockets, shared, self.workers.place()?)?;
                self.sandboxes.insert(sandbox, served);
                self.settles_at = Some(Instant::now() + SETTLING);
            }
            Order::Update { sandbox, plan } => {
                let served = self.sandboxes.get(&sandbox).ok_or_else(|| unknown(&sandbox))?;
                served.sandbox.update(*plan);
            }
            Order::Hold { sandbox, secrets } => {
                let served = self.sandboxes.get(&sandbox).ok_or_else(|| unknown(&sandbox))?;
                served.sandbox.hold_secrets(secrets.map(|secrets| *secrets))?;
            }
            Order::Trust { roots } => {
                let trusting = Some(Arc::new(secrets::trusting(roots)?));
                *self.shared.trusting.write().unwrap_or_else(PoisonError::into_inner) = trusting;
            }
            Order::Drop { sandbox } => {
                // What it did last is told before it is forgotten.
                if let Some(served) = self.sandboxes.remove(&sandbox) {
                    self.unsent.extend(served.sandbox.events.take(Instant::now()));
                }
            }
            Order::Hosts { sandbox } => {
                let served = self.sandboxes.get(&sandbox).ok_or_else(|| unknown(&sandbox))?;
                return Ok(Some(served.sandbox.hosts.read()));
            }
            Order::Tell { number } => {
                self.report()?;
                self.report_counters()?;
                self.try_send(&Report::CaughtUp(number))?;
            }
            Order::Around(around) => {
                self.around = *around;
                self.look_around();
            }
        }
        Ok(None)
    }

    /// Puts together what the edge sees and what the daemon said about the host.
    fn look_around(&mut self) {
        let Around { surroundings, resolv_conf, proxy } = &self.around;
        let mut all = surroundings.clone();
        let found = self.host.look();
        all.host.extend(found.host);
        all.on_link.extend(found.on_link);
        // Whoever reached it could have it connect to anything.
        all.closed.extend(proxy.iter().flat_map(|proxy| proxy.addresses.iter().copied()));
        *self.shared.proxy.write().unwrap_or_else(PoisonError::into_inner) = proxy.clone().map(Arc::new);
        *self.shared.resolvers.write().unwrap_or_else(PoisonError::into_inner) =
            resolv::servers(resolv_conf).into();
        if !self.shared.replace_around(all) {
            return;
        }
        for served in self.sandboxes.values() {
            served.sandbox.resolver.forget();
            served.sandbox.judge_again();
        }
    }

    /// Tells what happened, as far as the daemon listens.
    fn report(&mut self) -> io::Result<()> {
        let now = Instant::now();
        if self.unsent.len() < MAX_REPORTED {
            for served in self.sandboxes.values() {
                self.unsent.extend(served.sandbox.events.take(now));
            }
        }
        while !self.unsent.is_empty() {
            let some = self.unsent[..self.unsent.len().min(MAX_REPORTED)].to_vec();
            let length = some.len();
            if !self.try_send(&Report::Events(some))? {
                return Ok(());
            }
            self.unsent.drain(..length);
        }
        if now.duration_since(self.counters_at) >= COUNTER_PAUSE {
            self.counters_at = now;
            self.report_counters()?;
        }
        Ok(())
    }

    fn report_counters(&mut self) -> io::Result<()> {
        let changed: Vec<_> = self
            .sandboxes
            .iter()
            .map(|(id, served)| (id.clone(), served.sandbox.counting.read(), &served.reported))
            .filter(|(_, now, before)| now != *before)
            .map(|(id, now, _)| (id, now))
            .collect();
        if !changed.is_empty() {
            self.settles_at.get_or_insert_with(|| Instant::now() + AFTER_TRAFFIC);
        }
        for some in changed.chunks(MAX_REPORTED) {
            if !self.try_send(&Report::Counters(some.to_vec()))? {
                return Ok(());
            }
            for (id, counters) in some {
                if let Some(served) = self.sandboxes.get_mut(id) {
                    served.reported = *counters;
                }
            }
        }
        Ok(())
    }

    /// Whether there was room for the report.
    fn try_send(&self, report: &Report) -> io::Result<bool> {
        match control::send(self.control.as_fd(), report, &[]) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
            // The daemon is gone; the next read says so.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
            Err(error) => Err(error),
        }
    }
}

async fn receive(control: &Watched) -> io::Result<(Request, Vec<OwnedFd>)> {
    control.async_io(Interest::READABLE, |control| control::receive(control.as_fd())).await
}

fn unknown(sandbox: &SandboxId) -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, format!("the edge does not serve {sandbox}"))
}

impl Served {
    fn start(
        id: SandboxId,
        plan: NetworkPlan,
        secrets: Option<HeldSecrets>,
        sockets: NetworkSockets,
        shared: Arc<Shared>,
        place: WorkerSlot,
    ) -> io::Result<Self> {
        let here = place.handle.enter();
        let NetworkSockets { tcp, udp, raw4, raw6, syn } = sockets;
        let has_ipv6 = raw6.is_some();
        let sandbox = Arc::new(Sandbox::new(id, plan, Raw::new(raw4, raw6), has_ipv6, shared));
        sandbox.hold_secrets(secrets)?;
        let listeners: Vec<_> = tcp.into_iter().map(Arc::new).collect();
        let named = sockets::named_ports(&listeners);
        if named.is_none() {
            sandbox.listen(&listeners);
        }
        let mut tasks = Vec::new();
        for listener in listeners {
            // Its connections inherit it; sandboxes of earlier versions have listeners without.
            sockopt::set_tcp_nodelay(&*listener, true)?;
            let (sandbox, listener) = (Arc::clone(&sandbox), watch(listener, Interest::READABLE)?);
            let task = match &named {
                None => tokio::spawn(tcp::accept::accept(sandbox, listener)),
                Some(_) => tokio::spawn(tcp::named::accept(sandbox, listener)),
            };
            tasks.push(task.abort_handle());
        }
        for socket in udp {
            let socket = watch(socket, Interest::READABLE)?;
            tasks.push(tokio::spawn(udp::hear(Arc::clone(&sandbox), socket)).abort_handle());
        }
        let syn = watch(syn, Interest::READABLE)?;
        let task = match named {
            None => tokio::spawn(tcp::hold::hear(Arc::clone(&sandbox), syn)),
            Some(ports) => tokio::spawn(tcp::named::hear(Arc::clone(&sandbox), syn, ports)),
        };
        tasks.push(task.abort_handle());
        drop(here);
        Ok(Self { sandbox, tasks, reported: Counters::default(), _place: place })
    }
}

impl Shared {
    /// Whether they are others than before.
    fn replace_around(&self, around: Surroundings) -> bool {
        let mut current = self.around.write().unwrap_or_else(PoisonError::into_inner);
        let is_new = **current != around;
        if is_new {
            *current = Arc::new(around);
        }
        is_new
    }
}

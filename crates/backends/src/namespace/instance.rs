//! One live sandbox.

use std::{
    fs,
    io::ErrorKind,
    os::fd::OwnedFd,
    sync::{Arc, Mutex, OnceLock, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use guest_protocol::{Request, Response};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use sandbox::{
    BackendError, Enforcement, GuestStream, Instance, Isolation, LimitKind, LimitsPlan, NetworkHeld,
    NetworkHosts, NetworkPlan, NetworkTraffic, Next, SandboxId, SandboxPlan, Usage,
};
use tokio::{io::unix::AsyncFd, net::UnixStream, task::AbortHandle};

use super::{
    Host,
    accounting::{self, Quota},
    create,
    edge_keeper::Inside,
    error, hello,
    ids::IdLease,
    network, orphans, record, socket,
    sweep::END_TIME,
    watched,
};

#[derive(Debug)]
pub(crate) struct NamespaceInstance {
    host: Arc<Host>,
    id: SandboxId,
    /// As it was started.
    isolation: Isolation,
    /// The same with a network, if it got one since then.
    widened: OnceLock<Isolation>,
    /// The guest's, process 1 inside: readable once every process of the sandbox is dead.
    pidfd: AsyncFd<OwnedFd>,
    /// For whoever connects first.
    first_stream: Mutex<Option<UnixStream>>,
    /// Released when nothing of the sandbox is alive any more.
    lease: Mutex<Option<IdLease>>,
    /// One for each limit that is enforced by measuring.
    disk_watches: Vec<AbortHandle>,
}

impl NamespaceInstance {
    /// Must be called in a Tokio runtime.
    pub(crate) fn new(
        host: Arc<Host>,
        id: SandboxId,
        isolation: Isolation,
        pidfd: OwnedFd,
        quotas: Vec<Quota>,
    ) -> Result<Self, BackendError> {
        let pidfd = watched::readable(pidfd)
            .map_err(|error| error::from_io(format!("could not watch sandbox {id}"), error))?;
        let accounted = isolation
            .limits
            .iter()
            .find(|held| held.limit == LimitKind::Disk && held.enforcement == Enforcement::Accounting);
        let own = accounted.map(|held| Quota::of_own_files(&host, &id, held.value));
        let watches = own.into_iter().chain(quotas).map(|quota| {
            tokio::spawn(accounting::watch(Arc::clone(&host), id.clone(), quota)).abort_handle()
        });
        let disk_watches = watches.collect();
        Ok(Self {
            host,
            id,
            isolation,
            widened: OnceLock::new(),
            pidfd,
            first_stream: Mutex::default(),
            lease: Mutex::default(),
            disk_watches,
        })
    }

    /// Assigns the range of ids that it runs with.
    pub(crate) fn give(&mut self, lease: Option<IdLease>) {
        self.lease = Mutex::new(lease);
    }

    /// Uses this stream for the first connection.
    pub(crate) fn begin_with(&mut self, stream: Option<UnixStream>) {
        self.first_stream = Mutex::new(stream);
    }

    async fn freeze(&self, frozen: bool) -> Result<(), BackendError> {
        if !self.host.means.cgroups.can_freeze() {
            return Err(BackendError::Unsupported {
                what: "pausing needs a freezer cgroup, which cannot be used here".to_owned(),
                next: Some(Next::Diagnose),
            });
        }
        let (host, id) = (Arc::clone(&self.host), self.id.clone());
        let work = move || host.means.cgroups.freeze(id.as_str(), frozen);
        tokio::task::spawn_blocking(work).await.map_err(error::from_join)?.map_err(error::from_cgroup)
    }

    /// Fills in values that no cgroup counts by adding up the processes that the guest sees. Threads and the dead are
    /// not included.
    async fn ask_guest(&self, usage: &mut Usage) {
        let answer = hello::tell(&self.host, &self.id, &Request::Processes).await;
        let Some(Response::Processes { processes }) = answer else { return };
        let of_workload = || processes.iter().filter(|process| process.pid != 1);
        usage.memory_bytes =
            usage.memory_bytes.or(Some(of_workload().map(|process| process.memory_bytes).sum()));
        usage.cpu_micros = usage.cpu_micros.or(Some(of_workload().map(|process| process.cpu_micros).sum()));
        usage.pids = usage.pids.or(Some(of_workload().count() as u64));
    }

    /// Lets the edge serve its network, if it has one.
    pub(crate) fn serve_network(&self, plan: &NetworkPlan) {
        let Some(edge) = self.host.edge.get().filter(|_| self.isolation.has_edge()) else { return };
        match self.network_end(plan) {
            Ok(end) => edge.serve(&self.id, plan, end, None),
            Err(error) => tracing::warn!(sandbox = %self.id, %error, "its network is not served"),
        }
    }

    fn network_end(&self, plan: &NetworkPlan) -> Result<Inside, BackendError> {
        let end = network::end(&self.id, plan, &self.host.means.network)?;
        Ok(Inside { names: self.host.directories.place(&self.id), end })
    }

    /// Gives a sandbox that was started without a network one, and serves it.
    async fn widen(&self, plan: &NetworkPlan) -> Result<(), BackendError> {
        let Some(edge) = self.host.edge.get() else {
            let what = "nobody serves networks here".to_owned();
            return Err(BackendError::Unsupported { what, next: None });
        };
        let end = self.network_end(plan)?;
        // Only a program inside can be in the way, and may be for ever.
        let sockets = network::make_later(&self.id, &end.names, end.end.clone(), Duration::ZERO).await?;
        let network = network::statement(plan, Some(&end.end));
        let mut isolation = Isolation { network, ..self.isolation.clone() };
        isolation.warnings.extend(network::warning(Some(&end.end)));
        // A later daemon reads there that it has a network, and makes the sockets anew.
        let noted = record::Record::read(&end.names).and_then(|record| {
            let (isolation, named_ports) = (isolation.clone(), end.end.named.clone());
            record::Record { isolation, named_ports, ..record }.replace(&end.names)
        });
        noted.map_err(|error| error::from_io(format!("could not note the network of {}", self.id), error))?;
        let isolation = self.widened.get_or_init(|| isolation);
        tracing::info!(sandbox = %self.id, network = %isolation.network, "it has a network now");
        edge.serve(&self.id, plan, end, Some(sockets));
        Ok(())
    }

    /// Whether a plan names ports that the sandbox's network does not bring out. Refuses a plan that it never could.
    fn names_more_ports(&self, plan: &NetworkPlan) -> Result<bool, BackendError> {
        let record = record::Record::read(&self.host.directories.place(&self.id)).ok();
        let Some(has) = record.and_then(|record| record.named_ports) else { return Ok(false) };
        let end = network::end(&self.id, plan, &self.host.means.network)?;
        Ok(end.named.is_some_and(|needs| !network::reached(&has).cover(&network::reached(&needs))))
    }

    fn stop_watching(&self) {
        if let Some(edge) = self.host.edge.get() {
            edge.forget(&self.id);
        }
        for watch in &self.disk_watches {
            watch.abort();
        }
    }

    /// Removes the remaining host resources after the last process, in the background.
    fn clean_behind(&self) {
        self.stop_watching();
        let lease = self.lease.lock().unwrap_or_else(PoisonError::into_inner).take();
        let (host, id) = (Arc::clone(&self.host), self.id.clone());
        // Held while the task is registered, so that it cannot finish before that.
        let mut cleaning = self.host.cleaning.lock().unwrap_or_else(PoisonError::into_inner);
        let task = tokio::task::spawn_blocking(move || {
            clean(&host, &id);
            drop(lease);
            host.cleaning.lock().unwrap_or_else(PoisonError::into_inner).remove(&id);
        });
        cleaning.insert(self.id.clone(), task);
    }
}

/// Waits until the resources of an earlier run of the sandbox are gone: a new one takes the same names.
pub(crate) async fn wait_for_cleaning(host: &Host, id: &SandboxId) {
    let task = host.cleaning.lock().unwrap_or_else(PoisonError::into_inner).remove(id);
    if let Some(task) = task {
        drop(task.await);
    }
}

impl Drop for NamespaceInstance {
    fn drop(&mut self) {
        self.stop_watching();
    }
}

/// Opens a stream to the guest of a sandbox.
pub(crate) async fn connect(host: &Host, id: &SandboxId) -> Result<GuestStream, BackendError> {
    socket::connect(id, &host.directories.place(id).socket()).await
}

/// Removes the run directory and cgroups of a sandbox without processes.
pub(crate) fn clean(host: &Host, id: &SandboxId) {
    if let Err(error) = host.means.cgroups.remove(id.as_str()) {
        tracing::warn!(sandbox = %id, %error, "a cgroup stays until the next sweep");
    }
    match fs::remove_dir_all(host.directories.place(id).run) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            tracing::warn!(sandbox = %id, %error, "a run directory stays until the next sweep");
        }
        _ => {}
    }
}

impl NamespaceInstance {
    /// Where an edge serves its network.
    fn traffic(&self) -> Option<NetworkTraffic> {
        let edge = self.host.edge.get().filter(|_| self.isolation().has_edge())?;
        Some(edge.traffic(&self.id))
    }
}

#[async_trait]
impl Instance for NamespaceInstance {
    fn isolation(&self) -> &Isolation {
        self.widened.get().unwrap_or(&self.isolation)
    }

    async fn connect(&self) -> Result<GuestStream, BackendError> {
        let first = self.first_stream.lock().unwrap_or_else(PoisonError::into_inner).take();
        match first {
            Some(stream) => Ok(Box::new(stream)),
            None => connect(&self.host, &self.id).await,
        }
    }

    async fn stop(&self) -> Result<(), BackendError> {
        // A frozen process of version 1 does not even die.
        if self.host.means.cgroups.can_freeze() {
            drop(self.freeze(false).await);
        }
        match pidfd_send_signal(self.pidfd.get_ref(), Signal::KILL) {
            Ok(()) | Err(rustix::io::Errno::SRCH) => {}
            Err(error) => return Err(error::from_io(format!("could not kill {}", self.id), error.into())),
        }
        if tokio::time::timeout(END_TIME, self.ended()).await.is_err() {
            let what = format!("the end of {}, which was killed,", self.id);
            return Err(BackendError::TimedOut { what, after: END_TIME });
        }
        self.clean_behind();
        Ok(())
    }

    async fn pause(&self) -> Result<(), BackendError> {
        self.freeze(true).await
    }

    async fn resume(&self) -> Result<(), BackendError> {
        self.freeze(false).await
    }

    async fn usage(&self) -> Result<Usage, BackendError> {
        let disk_bytes = accounting::used(&self.host, &self.id).await?;
        Ok(Usage { disk_bytes, ..self.quick_usage().await? })
    }

    async fn quick_usage(&self) -> Result<Usage, BackendError> {
        let found = self.host.means.cgroups.usage(self.id.as_str());
        let mut usage = Usage {
            memory_bytes: found.memory_bytes,
            memory_peak_bytes: found.memory_peak_bytes,
            cpu_micros: found.cpu_micros,
            pids: found.pids,
            disk_bytes: None,
            oom_kills: found.oom_kills,
            network: self.traffic(),
        };
        if usage.memory_bytes.is_none() || usage.pids.is_none() || usage.cpu_micros.is_none() {
            self.ask_guest(&mut usage).await;
        }
        Ok(usage)
    }

    async fn hold_network(&self, plan: &NetworkPlan) -> Result<NetworkHeld, BackendError> {
        if !self.isolation().has_edge() {
            if !plan.needs_edge() {
                return Ok(NetworkHeld::Now);
            }
            return match self.widen(plan).await {
                Ok(()) => Ok(NetworkHeld::Now),
                Err(error) => {
                    tracing::warn!(sandbox = %self.id, %error, "it gets its network with its next start");
                    Ok(NetworkHeld::FromNextStart)
                }
            };
        }
        let names_more = self.names_more_ports(plan)?;
        if let Some(edge) = self.host.edge.get() {
            let failed = |error| BackendError::failed("the network's edge did not take the policy", error);
            edge.update(&self.id, plan).await.map_err(failed)?;
        }
        Ok(if names_more { NetworkHeld::FromNextStart } else { NetworkHeld::Now })
    }

    async fn network_hosts(&self) -> Result<NetworkHosts, BackendError> {
        let Some(edge) = self.host.edge.get().filter(|_| self.isolation.has_edge()) else {
            return Ok(NetworkHosts::default());
        };
        let failed = |error| BackendError::failed("the network's edge did not tell of its hosts", error);
        edge.hosts(&self.id).await.map_err(failed)
    }

    async fn hold_limits(&self, limits: &LimitsPlan) -> Result<(), BackendError> {
        let (host, id, limits) = (Arc::clone(&self.host), self.id.clone(), create::limits_of(limits));
        let work = move || host.means.cgroups.change(id.as_str(), &limits);
        tokio::task::spawn_blocking(work).await.map_err(error::from_join)?.map_err(error::from_cgroup)
    }

    async fn remarks(&self) -> Vec<String> {
        let record = record::Record::read(&self.host.directories.place(&self.id)).ok();
        self.host.image.remarks(record.and_then(|record| record.skeleton).as_deref()).await
    }

    async fn ended(&self) {
        // An error here would mean that the runtime is shutting down; nobody waits then.
        drop(self.pidfd.readable().await);
    }
}

/// A handle of the process that wrote this pid file, if it is still alive: never of a later process with the same
/// number.
pub(crate) fn find_process(pid: i32, start_time: u64) -> Option<OwnedFd> {
    let handle = pidfd_open(Pid::from_raw(pid)?, PidfdFlags::NONBLOCK).ok()?;
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, found) = jail::parse_stat(&stat)?;
    (found == start_time).then_some(handle)
}

/// The record and the guest of a living sandbox that answers.
async fn find(host: &Host, id: &SandboxId) -> Option<(record::Record, OwnedFd)> {
    let names = host.directories.place(id);
    let record = record::Record::read(&names).ok()?;
    let (pid, start_time) = record::read_pid(&names.pid())?;
    let pidfd = find_process(pid, start_time)?;
    hello::greets(host, id).await.then_some((record, pidfd))
}

/// Finds a sandbox that an earlier daemon made. `None`: it is gone, or it does not answer.
pub(crate) async fn adopt(
    host: &Arc<Host>,
    plan: &SandboxPlan,
) -> Result<Option<NamespaceInstance>, BackendError> {
    let id = &plan.id;
    let Some((record, pidfd)) = find(host, id).await else {
        // A caller who is told that it is gone may start it again.
        if let Some(guests) = host.inherited_guests.get(id) {
            orphans::end(guests).await;
        }
        return Ok(None);
    };
    let lease = host.inherited.lock().unwrap_or_else(PoisonError::into_inner).remove(id);
    let quotas = accounting::quotas(&host.located(plan));
    let mut instance = NamespaceInstance::new(Arc::clone(host), id.clone(), record.isolation, pidfd, quotas)?;
    instance.give(lease);
    instance.serve_network(&plan.network);
    Ok(Some(instance))
}

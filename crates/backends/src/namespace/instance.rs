//! One live sandbox.

use std::{
    fs,
    os::fd::OwnedFd,
    sync::Arc,
};

use async_trait::async_trait;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use sandbox::{BackendError, GuestStream, Instance, Isolation, SandboxId, Usage};
use tokio::{
    io::unix::AsyncFd,
    net::UnixStream,
};

use super::{Host, error, ids::IdLease, record, socket, watched};

#[derive(Debug)]
pub(crate) struct NamespaceInstance {
    host: Arc<Host>,
    id: SandboxId,
    isolation: Isolation,
    /// Of the guest, which is process 1 inside: readable once every process of the sandbox is dead.
    pidfd: AsyncFd<OwnedFd>,
    /// Given back when nothing of the sandbox lives any more.
    lease: std::sync::Mutex<Option<IdLease>>,
}

impl NamespaceInstance {
    pub(crate) fn new(
        host: Arc<Host>,
        id: SandboxId,
        isolation: Isolation,
        pidfd: OwnedFd,
        lease: Option<IdLease>,
    ) -> Result<Self, BackendError> {
        let pidfd = watched::readable(pidfd)
            .map_err(|error| error::from_io(format!("could not watch sandbox {id}"), error))?;
        Ok(Self { host, id, isolation, pidfd, lease: std::sync::Mutex::new(lease) })
    }

    async fn freeze(&self, frozen: bool) -> Result<(), BackendError> {
        if !self.host.means.cgroups.can_freeze() {
            return Err(BackendError::Unsupported {
                what: "pausing needs a freezer cgroup, which cannot be used here".to_owned(),
                hint: Some("Run `warren doctor` for what this host lacks.".to_owned()),
            });
        }
        let (host, id) = (Arc::clone(&self.host), self.id.clone());
        let work = move || host.means.cgroups.freeze(id.as_str(), frozen);
        tokio::task::spawn_blocking(work).await.map_err(error::from_join)?.map_err(error::from_cgroup)
    }

    /// What stays on the host after the last process, removed without keeping anybody waiting.
    fn clean_behind(&self) {
        let lease = self.lease.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take();
        let (host, id) = (Arc::clone(&self.host), self.id.clone());
        drop(tokio::task::spawn_blocking(move || {
            clean(&host, &id);
            drop(lease);
        }));
    }
}

/// Removes run directory and cgroups of a sandbox without processes.
pub(crate) fn clean(host: &Host, id: &SandboxId) {
    if let Err(error) = host.means.cgroups.remove(id.as_str()) {
        tracing::warn!(sandbox = %id, %error, "a cgroup stays until the next sweep");
    }
    match fs::remove_dir_all(host.directories.place(id).run) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            tracing::warn!(sandbox = %id, %error, "a run directory stays until the next sweep");
        }
        _ => {}
    }
}

#[async_trait]
impl Instance for NamespaceInstance {
    fn isolation(&self) -> &Isolation {
        &self.isolation
    }

    async fn connect(&self) -> Result<GuestStream, BackendError> {
        let failed = |error| error::from_io(format!("could not reach the guest of {}", self.id), error);
        let reach = socket::reachable(&self.host.directories.place(&self.id).socket()).map_err(failed)?;
        match UnixStream::connect(reach.path()).await {
            Ok(stream) => Ok(Box::new(stream)),
            Err(error)
                if matches!(error.kind(), std::io::ErrorKind::NotFound | std::io::ErrorKind::ConnectionRefused) =>
            {
                Err(BackendError::Gone(self.id.clone()))
            }
            Err(error) => Err(failed(error)),
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
        self.ended().await;
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
        let found = self.host.means.cgroups.usage(self.id.as_str());
        Ok(Usage {
            memory_bytes: found.memory_bytes,
            memory_peak_bytes: found.memory_peak_bytes,
            cpu_micros: found.cpu_micros,
            pids: found.pids,
            disk_bytes: None,
            oom_kills: found.oom_kills,
        })
    }

    async fn ended(&self) {
        // An error here would mean that the runtime is shutting down; nobody waits then.
        drop(self.pidfd.readable().await);
    }
}

/// A handle of the process that wrote this pid file, if it still lives: never of a later process with the same number.
pub(crate) fn find_process(pid: i32, start_time: u64) -> Option<OwnedFd> {
    let handle = pidfd_open(Pid::from_raw(pid)?, PidfdFlags::NONBLOCK).ok()?;
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, found) = jail::parse_stat(&stat)?;
    (found == start_time).then_some(handle)
}

/// Finds a sandbox that an earlier daemon made. `None`: it is gone, or it does not answer.
pub(crate) async fn adopt(host: &Arc<Host>, id: &SandboxId) -> Result<Option<NamespaceInstance>, BackendError> {
    let names = host.directories.place(id);
    let Ok(record) = record::Record::read(&names) else { return Ok(None) };
    let process = record::read_pid(&names.pid()).and_then(|(pid, start_time)| find_process(pid, start_time));
    let Some(pidfd) = process else { return Ok(None) };
    let lease = host.inherited.lock().unwrap_or_else(std::sync::PoisonError::into_inner).remove(id);
    let instance = NamespaceInstance::new(Arc::clone(host), id.clone(), record.isolation, pidfd, lease)?;
    if super::hello::greets(&instance).await { Ok(Some(instance)) } else { Ok(None) }
}

//! One live container.

use std::sync::Arc;

use async_trait::async_trait;
use sandbox::{BackendError, GuestStream, Instance, Isolation, Next, Usage};

use super::{Host, Walls};
use crate::{
    guest_process::{self, GuestProcess},
    namespace::{error, record::Record},
};

#[derive(Debug)]
pub(super) struct OciInstance {
    host: Arc<Host>,
    guest: GuestProcess,
    isolation: Isolation,
}

impl OciInstance {
    pub(super) fn new(host: Arc<Host>, guest: GuestProcess, isolation: Isolation) -> Self {
        Self { host, guest, isolation }
    }

    async fn freeze(&self, frozen: bool) -> Result<(), BackendError> {
        let why = match self.host.walls {
            Walls::UserSpaceKernel => "gVisor stops a sandbox as a whole, our guest with it",
            Walls::HostKernel if !self.host.cgroups.can_freeze() => {
                "it needs a freezer cgroup, which cannot be used here"
            }
            Walls::HostKernel => {
                let (host, id) = (Arc::clone(&self.host), self.guest.id.clone());
                let work = move || host.cgroups.freeze(id.as_str(), frozen);
                let done = tokio::task::spawn_blocking(work).await.map_err(error::from_join)?;
                return done.map_err(error::from_cgroup);
            }
        };
        Err(BackendError::Unsupported {
            what: format!("the back end {} cannot pause here: {why}", self.host.kind),
            next: Some(Next::Diagnose),
        })
    }
}

#[async_trait]
impl Instance for OciInstance {
    fn isolation(&self) -> &Isolation {
        &self.isolation
    }

    async fn connect(&self) -> Result<GuestStream, BackendError> {
        self.guest.connect().await
    }

    async fn stop(&self) -> Result<(), BackendError> {
        self.host.clear(&self.guest.id).await
    }

    async fn pause(&self) -> Result<(), BackendError> {
        self.freeze(true).await
    }

    async fn resume(&self) -> Result<(), BackendError> {
        self.freeze(false).await
    }

    async fn usage(&self) -> Result<Usage, BackendError> {
        let (host, id) = (Arc::clone(&self.host), self.guest.id.clone());
        let measure = move || guest_process::disk_usage(&host.files(&id));
        let disk_bytes = tokio::task::spawn_blocking(measure).await.map_err(error::from_join)?;
        Ok(Usage { disk_bytes: Some(disk_bytes), ..self.quick_usage().await? })
    }

    async fn quick_usage(&self) -> Result<Usage, BackendError> {
        let (host, id) = (Arc::clone(&self.host), self.guest.id.clone());
        let measure = move || {
            let found = host.cgroups.usage(id.as_str());
            // For gVisor the host sees its threads, which are not those inside.
            let pids = found.pids.filter(|_| host.walls == Walls::HostKernel);
            Usage {
                memory_bytes: found.memory_bytes,
                memory_peak_bytes: found.memory_peak_bytes,
                cpu_micros: found.cpu_micros,
                pids,
                disk_bytes: None,
                oom_kills: found.oom_kills,
                network: None,
            }
        };
        tokio::task::spawn_blocking(measure).await.map_err(error::from_join)
    }

    async fn remarks(&self) -> Vec<String> {
        let record = Record::read(&self.host.place(&self.guest.id)).ok();
        self.host.image.remarks(record.and_then(|record| record.skeleton).as_deref()).await
    }

    async fn ended(&self) {
        self.guest.ended().await;
    }
}

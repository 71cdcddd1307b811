//! Volumes, for callers: named files that outlive sandboxes, each in a namespace.

mod limits;
mod making;
mod open;
mod registry;
mod room;

use std::{collections::BTreeMap, fmt, path::PathBuf, sync::Arc, time::Duration};

use futures_util::{StreamExt, stream};
use jiff::Timestamp;
use sandbox::{
    ByteSize, Error, ErrorKind, Namespace, Result, SandboxName, Subject, Thing, VolumeId, VolumeKind,
    VolumeName, VolumeSpec, VolumeStorage, check_volume,
};
use serde::{Deserialize, Serialize};
use store::{VolumeRecord, VolumeState};
use tokio::{sync::oneshot, time::timeout};

pub use self::limits::VolumeLimits;
pub(crate) use self::{
    making::take_up,
    open::{Claim, Held},
    registry::Volumes,
    room::Room,
};
use crate::{
    Engine, Principal, Scope,
    core::{Core, until},
    error, names,
};

/// How long a list of volumes waits for measurements; unmeasured volumes are shown without a size.
const MEASURE_WITHIN: Duration = Duration::from_secs(2);
/// Volumes measured at once, each by a process, however many callers ask.
const MEASURE_AT_ONCE: usize = 4;

/// Why a volume is measured.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Measured {
    ToTell,
    ToWrite,
}

/// A caller's reference to a volume: a name in a namespace, by default the principal's own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VolumeRef {
    pub namespace: Option<Namespace>,
    pub name: VolumeName,
}

impl fmt::Display for VolumeRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.name.fmt(f)
    }
}

/// Files with a name of their own, which outlive sandboxes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Volume)]
pub struct VolumeView {
    pub name: VolumeName,
    pub namespace: Namespace,
    pub kind: VolumeKind,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<ByteSize>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quota: Option<ByteSize>,
    /// Bytes it takes on disk; absent where it was not measured in time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used: Option<ByteSize>,
    /// The enforcement of its quota, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quota_held: Option<String>,
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    pub created_at: Timestamp,
    /// Sandboxes that mount it, running or not.
    pub used_by: Vec<SandboxName>,
}

impl Engine {
    /// Makes a volume. A failure leaves nothing behind, even if the caller goes away in the middle.
    #[crate::boxed]
    pub async fn create_volume(&self, who: &Principal, spec: VolumeSpec) -> Result<VolumeView> {
        let core = self.core();
        who.may_create_in(&spec.namespace)?;
        core.keys.admit(who, core.clock.now())?;
        check_volume(&spec)?;
        let record = VolumeRecord {
            id: VolumeId::from_random(names::random_bytes()?),
            spec,
            state: VolumeState::Making,
            storage: None,
            created_at: core.clock.now(),
            owner: who.key.clone(),
        };
        core.volumes.reserve(who, record.clone())?;
        let made = self.finish_volume(making::make(Arc::clone(core), record)).await?;
        Ok(core.volume_view(&made, core.measure_in_time(&made).await))
    }

    /// Oldest first; those of one namespace, or of all that the caller sees.
    #[crate::boxed]
    pub async fn volumes(&self, who: &Principal, namespace: Option<&Namespace>) -> Result<Vec<VolumeView>> {
        let core = self.core();
        core.keys.admit(who, core.clock.now())?;
        let mut records = core.volumes.ready();
        records.retain(|record| {
            let own = &record.spec.namespace;
            who.sees(own) && namespace.is_none_or(|asked| asked == own)
        });
        let mut used = vec![None; records.len()];
        let measured = stream::iter(records.clone().into_iter().enumerate())
            .map(|(at, record)| async move { (at, core.measure_volume(&record, Measured::ToTell).await) })
            .buffer_unordered(MEASURE_AT_ONCE)
            .for_each(|(at, bytes)| {
                used[at] = bytes;
                std::future::ready(())
            });
        // Too many or too big to measure all in time; the rest is listed without a size.
        drop(timeout(MEASURE_WITHIN, measured).await);
        Ok(records.iter().zip(used).map(|(record, used)| core.volume_view(record, used)).collect())
    }

    #[crate::boxed]
    pub async fn volume(&self, who: &Principal, which: &VolumeRef) -> Result<VolumeView> {
        let record = self.core().find_volume(who, which)?;
        Ok(self.core().volume_view(&record, self.core().measure_in_time(&record).await))
    }

    /// Removes a volume with everything in it. Refused while a sandbox mounts it, running or not.
    #[crate::boxed]
    pub async fn remove_volume(&self, who: &Principal, which: &VolumeRef) -> Result<()> {
        who.may_change()?;
        let core = self.core();
        core.keys.admit(who, core.clock.now())?;
        let namespace = which.namespace.clone().unwrap_or_else(|| who.home_namespace());
        if !who.sees(&namespace) {
            return Err(no_such_volume(which));
        }
        let users = |id: &VolumeId| core.volume_users(id);
        match core.volumes.begin_removal(&namespace, &which.name, users)? {
            Some(record) => self.finish_volume(making::remove(Arc::clone(core), record)).await,
            None => match core.corrupt_volume(who, which) {
                Some(id) => self.finish_volume(making::remove_corrupt(Arc::clone(core), id)).await,
                None => Err(no_such_volume(which)),
            },
        }
    }

    /// Completes work that a caller who goes away must not interrupt.
    async fn finish_volume<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Result<T> {
        let (reply, answer) = oneshot::channel();
        let closing = self.core().closing.clone();
        self.core().drivers.spawn(async move {
            let done = async {
                // The caller may be gone.
                drop(reply.send(work.await));
            };
            until(&closing, done).await;
        });
        answer.await.map_err(|_dropped| error::closing())?
    }

    /// An instance that shows a volume's files.
    pub(crate) async fn open_volume(&self, volume: &VolumeRecord) -> Result<Held> {
        open::open(self.core(), volume).await
    }
}

impl Core {
    /// The volume that `who` means; an invisible one does not exist for them.
    pub(crate) fn find_volume(&self, who: &Principal, which: &VolumeRef) -> Result<VolumeRecord> {
        self.keys.admit(who, self.clock.now())?;
        let namespace = which.namespace.clone().unwrap_or_else(|| who.home_namespace());
        let found = self.volumes.named(&namespace, &which.name).filter(|_| who.sees(&namespace));
        match (found, self.corrupt_volume(who, which)) {
            (Some(record), _) => Ok(record),
            (None, Some(id)) => {
                let message = format!("cannot read the record of volume {id}");
                Err(Error::new(ErrorKind::Internal, message)
                    .with_hint(format!("Remove {id}; other volumes are not affected.")))
            }
            (None, None) => Err(no_such_volume(which)),
        }
    }

    /// A volume with an unreadable record is named by its id, by callers who see every namespace.
    fn corrupt_volume(&self, who: &Principal, which: &VolumeRef) -> Option<VolumeId> {
        let id: VolumeId = which.name.as_str().parse().ok()?;
        let is_corrupt = self.volumes.corrupt().iter().any(|row| row.id == id.as_str());
        (is_corrupt && who.scope == Scope::All).then_some(id)
    }

    async fn measure_in_time(self: &Arc<Self>, record: &VolumeRecord) -> Option<ByteSize> {
        timeout(MEASURE_WITHIN, self.measure_volume(record, Measured::ToTell)).await.ok().flatten()
    }

    /// Its disk usage, if it can be measured.
    pub(crate) async fn measure_volume(
        self: &Arc<Self>,
        record: &VolumeRecord,
        why: Measured,
    ) -> Option<ByteSize> {
        let turn = self.volumes.turns_to_measure(why).acquire_owned().await.ok()?;
        let (core, id) = (Arc::clone(self), record.id.clone());
        // In a task of its own: if the caller goes away, the measurement continues and keeps its turn until its end.
        let measured = tokio::spawn(async move {
            let measured = async {
                let used = core.backends.volumes()?.used(&id).await;
                used.map_err(|error| error::from_backend(error, &Subject::new(Thing::Volume, id.as_str())))
            };
            let measured = measured.await;
            drop(turn);
            measured
        });
        match measured.await.ok()? {
            Ok(bytes) => Some(ByteSize(bytes)),
            Err(error) => {
                tracing::warn!(volume = %record.id, error = &error as &dyn std::error::Error, "a volume cannot be measured");
                None
            }
        }
    }

    fn volume_view(&self, record: &VolumeRecord, used: Option<ByteSize>) -> VolumeView {
        let VolumeSpec { name, namespace, kind, size, quota, labels } = record.spec.clone();
        let held = match record.storage {
            Some(VolumeStorage::Image) => "By a file system of that size: no write can exceed it.",
            _ => {
                "By measuring while sandboxes use it, every half second to five seconds: a workload that exceeds the \
                 quota is killed. Writes through the API are refused before they exceed it."
            }
        };
        VolumeView {
            name,
            namespace,
            kind,
            size,
            quota,
            used,
            quota_held: quota.map(|_| held.to_owned()),
            labels,
            created_at: record.created_at,
            used_by: self.volume_users(&record.id),
        }
    }
}

pub(crate) fn directory_of(core: &Core, id: &VolumeId) -> PathBuf {
    core.config.home.join("volumes").join(id.as_str())
}

pub(crate) fn no_such_volume(which: impl fmt::Display) -> Error {
    Error::no_such(Thing::Volume, which.to_string())
}

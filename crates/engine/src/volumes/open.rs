//! Volumes in use by file requests: each is shown by an instance of its own, in which only our guest runs. It is kept
//! for a moment after a request, since the next one often follows soon.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use futures_util::FutureExt;
use sandbox::{Error, ErrorKind, Instance, Next, Result, SandboxId, Subject, Thing, VolumeId};
use store::VolumeRecord;
use tokio::time::Instant;

use super::no_such_volume;
use crate::{
    client::GuestClient,
    core::{Core, until},
    error, names,
};

/// How long an instance stays after the last request.
const KEPT: Duration = Duration::from_secs(5);
/// Most instances at once, each a process and its memory; the least recently used one makes room.
const MAX_OPEN_VOLUMES: usize = 32;

type Slot = Arc<tokio::sync::Mutex<Option<Arc<OpenVolume>>>>;

#[derive(Debug, Default)]
pub(crate) struct OpenVolumes {
    /// One slot for each recently used volume. Opening or closing its instance holds it.
    slots: Mutex<HashMap<VolumeId, Slot>>,
    open: Mutex<HashMap<VolumeId, Arc<OpenVolume>>>,
}

#[derive(Debug)]
pub(crate) struct OpenVolume {
    id: SandboxId,
    instance: Arc<dyn Instance>,
    client: Arc<GuestClient>,
    used: Mutex<Used>,
    claims: Arc<Claims>,
}

/// Bytes that callers are writing to a volume with a measured quota: no measurement includes them yet.
#[derive(Debug, Default)]
pub(crate) struct Claims {
    /// All bytes ever claimed, and those of completed claims.
    claimed: AtomicU64,
    over: AtomicU64,
}

/// One caller's share, from before its measurement until its last byte is written.
#[derive(Debug)]
pub(crate) struct Claim {
    all: Arc<Claims>,
    over_before: u64,
    own: u64,
}

impl Claim {
    /// All claims that the measurement may have missed, with these bytes.
    pub(crate) fn take(&mut self, bytes: u64) -> u64 {
        self.own = self.own.saturating_add(bytes);
        let claimed = self.all.claimed.fetch_add(bytes, Ordering::Relaxed).wrapping_add(bytes);
        claimed.wrapping_sub(self.over_before)
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.all.over.fetch_add(self.own, Ordering::Relaxed);
    }
}

#[derive(Debug)]
struct Used {
    n_now: usize,
    last: Instant,
}

impl OpenVolume {
    fn used(&self) -> MutexGuard<'_, Used> {
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Since when nobody uses it; `None` while somebody does.
    fn idle_since(&self) -> Option<Instant> {
        let used = self.used();
        (used.n_now == 0).then_some(used.last)
    }

    fn has_ended(&self) -> bool {
        self.instance.ended().now_or_never().is_some()
    }
}

/// An instance that stays at least until this is dropped.
#[derive(Debug)]
pub(crate) struct Held(Arc<OpenVolume>);

impl Held {
    fn new(opened: &Arc<OpenVolume>) -> Self {
        opened.used().n_now += 1;
        Self(Arc::clone(opened))
    }

    pub(crate) fn client(&self) -> &Arc<GuestClient> {
        &self.0.client
    }

    /// Must be made before the volume is measured.
    pub(crate) fn claim(&self) -> Claim {
        let all = Arc::clone(&self.0.claims);
        let over_before = all.over.load(Ordering::Relaxed);
        Claim { all, over_before, own: 0 }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut used = self.0.used();
        used.n_now -= 1;
        used.last = Instant::now();
    }
}

impl OpenVolumes {
    /// The ids of all instances: they are not leftovers.
    pub(crate) fn ids(&self) -> Vec<SandboxId> {
        self.open().values().map(|opened| opened.id.clone()).collect()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.open().is_empty()
    }

    fn open(&self) -> MutexGuard<'_, HashMap<VolumeId, Arc<OpenVolume>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn slot(&self, id: &VolumeId) -> Slot {
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        slots.retain(|_, slot| {
            Arc::strong_count(slot) > 1 || slot.try_lock().is_ok_and(|slot| slot.is_some())
        });
        Arc::clone(slots.entry(id.clone()).or_default())
    }

    /// Ends the instance of one volume and waits for that, whoever uses it.
    pub(super) async fn close(&self, id: &VolumeId) {
        let slot = self.slot(id);
        if let Some(opened) = slot.lock().await.take() {
            self.end(id, &opened).await;
        }
    }

    pub(crate) async fn close_all(&self) {
        let ids: Vec<_> = self.open().keys().cloned().collect();
        for id in ids {
            self.close(&id).await;
        }
    }

    async fn end(&self, id: &VolumeId, opened: &OpenVolume) {
        self.open().remove(id);
        if let Err(error) = opened.instance.stop().await {
            tracing::warn!(volume = %id, %error, "the instance that shows a volume does not end; the next daemon sweeps it");
        }
    }

    /// Makes room for one more.
    async fn make_room(&self) -> Result<()> {
        let idlest = {
            let open = self.open();
            if open.len() < MAX_OPEN_VOLUMES {
                return Ok(());
            }
            let idle = open.iter().filter_map(|(id, opened)| Some((opened.idle_since()?, id.clone())));
            idle.min().map(|(_, id)| id)
        };
        let Some(id) = idlest else {
            let message = format!("the files of {MAX_OPEN_VOLUMES} volumes are being used at once");
            return Err(Error::new(ErrorKind::LimitReached, message).with_next(Next::Retry));
        };
        // Another caller may hold its slot and want room too: neither waits for the other.
        if let Ok(mut slot) = self.slot(&id).try_lock()
            && slot.as_ref().is_some_and(|opened| opened.idle_since().is_some())
            && let Some(opened) = slot.take()
        {
            self.end(&id, &opened).await;
        }
        Ok(())
    }
}

/// The instance that shows a volume, made if there is none.
pub(super) async fn open(core: &Arc<Core>, volume: &VolumeRecord) -> Result<Held> {
    let in_use = &core.volumes.in_use;
    let slot = in_use.slot(&volume.id);
    let mut slot = slot.lock().await;
    // A removal marks the volume before it closes the instance.
    if core.volumes.get(&volume.id).is_none() {
        return Err(no_such_volume(&volume.spec.name));
    }
    if let Some(opened) = slot.as_ref().filter(|opened| !opened.has_ended()) {
        return Ok(Held::new(opened));
    }
    if let Some(opened) = slot.take() {
        in_use.end(&volume.id, &opened).await;
    }
    in_use.make_room().await?;
    let opened = make(core, volume).await?;
    in_use.open().insert(volume.id.clone(), Arc::clone(&opened));
    *slot = Some(Arc::clone(&opened));
    let (task_core, id, closing) = (Arc::clone(core), volume.id.clone(), core.closing.clone());
    let watched = Arc::clone(&opened);
    core.drivers.spawn(async move { until(&closing, close_when_idle(task_core, id, watched)).await });
    Ok(Held::new(&opened))
}

async fn make(core: &Arc<Core>, volume: &VolumeRecord) -> Result<Arc<OpenVolume>> {
    let label = Subject::new(Thing::Volume, volume.spec.name.as_str());
    let id = names::random_sandbox_id()?;
    // An instance in the making is not a leftover.
    let _making = core.making.read().await;
    let made = core.backends.volumes()?.open(&id, &volume.id).await;
    let instance: Arc<dyn Instance> = Arc::from(made.map_err(|error| error::from_backend(error, &label))?);
    let client = Arc::new(GuestClient::new(Arc::clone(&instance), core.config.deadlines, label));
    let used = Mutex::new(Used { n_now: 0, last: Instant::now() });
    Ok(Arc::new(OpenVolume { id, instance, client, used, claims: Arc::default() }))
}

async fn close_when_idle(core: Arc<Core>, id: VolumeId, opened: Arc<OpenVolume>) {
    let in_use = &core.volumes.in_use;
    loop {
        let until = opened.idle_since().unwrap_or_else(Instant::now) + KEPT;
        tokio::time::sleep_until(until).await;
        let slot = in_use.slot(&id);
        let mut slot = slot.lock().await;
        if !slot.as_ref().is_some_and(|shown| Arc::ptr_eq(shown, &opened)) {
            return;
        }
        if opened.idle_since().is_some_and(|since| since.elapsed() >= KEPT) {
            slot.take();
            return in_use.end(&id, &opened).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(all: &Arc<Claims>) -> Claim {
        Claim { all: Arc::clone(all), over_before: all.over.load(Ordering::Relaxed), own: 0 }
    }

    #[test]
    fn two_who_measured_at_the_same_time_do_not_have_the_same_room_twice() {
        let all = Arc::new(Claims::default());
        let (mut one, mut other) = (claim(&all), claim(&all));
        assert!(one.take(60) <= 100);
        assert!(other.take(60) > 100);
        drop(other);
        // It has written, after the third measured and before it writes itself.
        let mut third = claim(&all);
        drop(one);
        assert!(third.take(60) > 100);
        drop(third);
        assert!(claim(&all).take(100) <= 100);
    }
}

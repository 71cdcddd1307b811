//! Host ids for sandboxes of a root daemon: each live one has a private range.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, PoisonError},
};

use sandbox::SandboxId;

/// Ids of one sandbox: as many as a Linux system expects, including `nobody` (65534).
pub(crate) const RANGE: u32 = 65_536;
/// First and one past the last range that we use. Above the ids of `useradd`, `subuid` and systemd (whose containers
/// end at 0x6fff_ffff), and below those near the end that some tools take as negative.
const FIRST: u32 = 0x7000;
const LAST: u32 = 0xf000;

/// Whether this host id is in a range that some sandbox may have.
pub(crate) fn is_given_out(id: u32) -> bool {
    (FIRST..LAST).contains(&(id / RANGE))
}

/// The ranges in use.
#[derive(Debug, Clone, Default)]
pub(crate) struct IdRanges(Arc<Mutex<HashSet<u32>>>);

/// A range that is taken until this is dropped.
#[derive(Debug)]
pub(crate) struct IdLease {
    ranges: IdRanges,
    slot: u32,
}

impl IdLease {
    pub(crate) fn first_id(&self) -> u32 {
        self.slot * RANGE
    }
}

impl Drop for IdLease {
    fn drop(&mut self) {
        self.ranges.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.slot);
    }
}

impl IdRanges {
    /// Takes a free range. Starts the search at a range that depends on the id, so that independent daemons seldom
    /// collide. `None`: all are taken.
    pub(crate) fn take(&self, id: &SandboxId) -> Option<IdLease> {
        let mut taken = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = LAST - FIRST;
        let start =
            id.as_str().bytes().fold(0_u32, |hash, byte| hash.wrapping_mul(31).wrapping_add(byte.into()));
        let slot = (0..count)
            .map(|step| FIRST + (start % count + step) % count)
            .find(|slot| !taken.contains(slot))?;
        taken.insert(slot);
        Some(IdLease { ranges: self.clone(), slot })
    }

    /// Takes the range that begins with `first_id`, for a sandbox that already has it.
    pub(crate) fn take_again(&self, first_id: u32) -> Option<IdLease> {
        let slot = first_id / RANGE;
        let is_ours = first_id.is_multiple_of(RANGE) && (FIRST..LAST).contains(&slot);
        if !is_ours || !self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(slot) {
            return None;
        }
        Some(IdLease { ranges: self.clone(), slot })
    }
}

/// Ranges of an earlier daemon's sandboxes that are not adopted yet: kept until they are adopted or swept.
pub(crate) type Inherited = Mutex<HashMap<SandboxId, IdLease>>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_do_not_overlap_and_come_back() {
        let ranges = IdRanges::default();
        let id = SandboxId::from_random([1; 8]);
        let (first, second) = (ranges.take(&id).unwrap(), ranges.take(&id).unwrap());
        assert_eq!(first.first_id() + RANGE, second.first_id());
        assert!(ranges.take_again(first.first_id()).is_none());
        let (freed, _) = (first.first_id(), drop(first));
        assert_eq!(ranges.take_again(freed).map(|lease| lease.first_id()), Some(freed));
        assert!(ranges.take_again(0).is_none());
        assert!(ranges.take_again(freed + 1).is_none());
    }
}

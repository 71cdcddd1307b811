//! Limits of the number of volumes, and of the disk space of one key's volumes.

use sandbox::{ByteSize, Error, ErrorKind, Limit, Next, Result, VolumeSpec};
use store::VolumeRecord;

use crate::Principal;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VolumeLimits {
    /// Volumes of one daemon.
    pub count: usize,
    /// The most volumes made with one key.
    pub count_each: usize,
    /// Sizes and quotas of one key's volumes together. With this set, a key makes no volume without either.
    pub bytes_each: Option<ByteSize>,
}

impl Default for VolumeLimits {
    fn default() -> Self {
        Self { count: 4096, count_each: 512, bytes_each: None }
    }
}

impl VolumeLimits {
    /// Refuses one more volume of `who` beside `all`.
    pub(super) fn check<'a>(
        &self,
        who: &Principal,
        spec: &VolumeSpec,
        all: impl ExactSizeIterator<Item = &'a VolumeRecord>,
    ) -> Result<()> {
        if all.len() >= self.count {
            let n = all.len() as u64;
            let message = format!("the limit of {n} volumes is reached");
            return Err(Error::over_limit(Limit::Volumes, self.count as u64, n + 1, message));
        }
        if who.key.is_none() {
            return Ok(());
        }
        let own: Vec<_> = all.filter(|record| record.owner == who.key).collect();
        if own.len() >= self.count_each {
            let (most, has) = (self.count_each as u64, own.len() as u64);
            let message = format!("{} may have {most} volumes and already has {has}", who.name);
            return Err(Error::over_limit(Limit::Volumes, most, has + 1, message));
        }
        let Some(most) = self.bytes_each else { return Ok(()) };
        let Some(wanted) = most_bytes(spec) else {
            let message = format!("{} may not create a volume without a quota", who.name);
            return Err(Error::new(ErrorKind::Denied, message)
                .with_hint(format!("Set a quota; all volumes of the key together may have {most}.")));
        };
        // A volume made before there was a limit may have none of its own.
        let taken = own.iter().filter_map(|record| most_bytes(&record.spec)).fold(0, u64::saturating_add);
        if taken.saturating_add(wanted) > most.bytes() {
            let message = format!(
                "{} may have volumes of {most} in total, and already has {}",
                who.name,
                ByteSize(taken)
            );
            return Err(Error::new(ErrorKind::LimitReached, message).with_next(Next::Raise(Limit::Volumes)));
        }
        Ok(())
    }
}

/// The size that a volume can grow to.
fn most_bytes(spec: &VolumeSpec) -> Option<u64> {
    spec.size.or(spec.quota).map(ByteSize::bytes)
}

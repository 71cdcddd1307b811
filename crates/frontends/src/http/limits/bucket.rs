//! Token buckets: so many at once, so many a second, for each of many.

use std::{
    borrow::Borrow,
    collections::HashMap,
    hash::Hash,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

/// Askers that are remembered. The one who was silent longest is forgotten first.
const MAX_BUCKETS: usize = 4096;

/// One bucket for each key.
#[derive(Debug)]
pub(super) struct Buckets<K> {
    rate: f64,
    burst: f64,
    table: Mutex<HashMap<K, Bucket>>,
}

#[derive(Debug, Clone, Copy)]
struct Bucket {
    tokens: f64,
    at: Instant,
}

impl<K: Clone + Eq + Hash> Buckets<K> {
    /// `rate` tokens a second come back, up to `burst`. Both are positive.
    pub(super) fn new(rate: f64, burst: f64) -> Self {
        Self { rate, burst, table: Mutex::default() }
    }

    /// Takes a token, or tells when there will be one.
    pub(super) fn take<Q>(&self, key: &Q, now: Instant) -> Result<(), Duration>
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ToOwned<Owned = K> + ?Sized,
    {
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(bucket) = table.get_mut(key) {
            bucket.tokens = self.tokens(*bucket, now);
            bucket.at = now;
            self.wait(bucket.tokens)?;
            bucket.tokens -= 1.0;
            return Ok(());
        }
        if table.len() >= MAX_BUCKETS {
            self.make_room(&mut table, now);
        }
        table.insert(key.to_owned(), Bucket { tokens: self.burst - 1.0, at: now });
        Ok(())
    }

    fn tokens(&self, bucket: Bucket, now: Instant) -> f64 {
        let passed = now.saturating_duration_since(bucket.at).as_secs_f64();
        passed.mul_add(self.rate, bucket.tokens).min(self.burst)
    }

    fn wait(&self, tokens: f64) -> Result<(), Duration> {
        if tokens >= 1.0 { Ok(()) } else { Err(Duration::from_secs_f64((1.0 - tokens) / self.rate)) }
    }

    /// A bucket that is full again says nothing. If all say something, the oldest goes.
    fn make_room(&self, table: &mut HashMap<K, Bucket>, now: Instant) {
        table.retain(|_, bucket| self.tokens(*bucket, now) < self.burst);
        if table.len() >= MAX_BUCKETS
            && let Some(oldest) = table.iter().min_by_key(|(_, bucket)| bucket.at).map(|(key, _)| key.clone())
        {
            table.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_burst_then_the_rate() {
        let (buckets, now) = (Buckets::<String>::new(2.0, 3.0), Instant::now());
        for _ in 0..3 {
            buckets.take("ana", now).unwrap();
        }
        assert_eq!(buckets.take("ana", now), Err(SECOND / 2));
        buckets.take("bob", now).unwrap();
        buckets.take("ana", now + SECOND / 2).unwrap();
        assert!(buckets.take("ana", now + SECOND / 2).is_err());
        // A long rest gives no more than the burst.
        for _ in 0..3 {
            buckets.take("ana", now + 100 * SECOND).unwrap();
        }
        assert!(buckets.take("ana", now + 100 * SECOND).is_err());
    }

    #[test]
    fn the_table_is_bounded_and_forgets_the_oldest() {
        let (buckets, start) = (Buckets::<String>::new(0.001, 1.0), Instant::now());
        let key = |n: usize| format!("key {n}");
        for n in 0..=MAX_BUCKETS {
            buckets.take(&*key(n), start + Duration::from_millis(n as u64)).unwrap();
        }
        let end = start + Duration::from_millis(MAX_BUCKETS as u64);
        assert_eq!(buckets.table.lock().unwrap().len(), MAX_BUCKETS);
        assert!(buckets.take(&*key(1), end).is_err() && buckets.take(&*key(MAX_BUCKETS), end).is_err());
        buckets.take(&*key(0), end).unwrap();
    }

    #[test]
    fn full_buckets_are_forgotten_first() {
        let (buckets, now) = (Buckets::<String>::new(1.0, 1.0), Instant::now());
        for n in 0..MAX_BUCKETS {
            buckets.take(&*format!("key {n}"), now).unwrap();
        }
        buckets.take("new", now + SECOND).unwrap();
        assert_eq!(buckets.table.lock().unwrap().len(), 1);
    }
}

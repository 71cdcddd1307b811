//! Outputs on their way to whoever reads them. They may be large and a reader slow, so that only so much of them is
//! held at once.

use std::{sync::Arc, time::Duration};

use axum::body::Body;
use bytes::Bytes;
use futures_util::stream;
use sandbox::{Error, ErrorKind};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::http::Refusal;

/// The longest body that is sent whole. A longer one is sent in pieces: an answer in pieces is a stream and counts as
/// one.
const MAX_WHOLE_BYTES: usize = 64 * 1024;
const PIECE_BYTES: usize = 64 * 1024;
/// Bytes of outputs that those with a key have not taken yet, all of them together.
const MAX_KEY_BYTES: usize = 32 * 1024 * 1024;
/// The same of those with a link, so that whoever passes a link on does not pass all of it on.
const MAX_LINK_BYTES: usize = 32 * 1024 * 1024;
/// The wait that a refused reader is told. Nobody knows when a slow reader is done.
const RETRY_AFTER: Duration = Duration::from_secs(2);

/// The budgets for bytes on their way to readers. Clones share them.
#[derive(Debug, Clone)]
pub(crate) struct Serving {
    pub(crate) by_key: Budget,
    pub(crate) by_link: Budget,
}

impl Default for Serving {
    fn default() -> Self {
        Self { by_key: Budget::new(MAX_KEY_BYTES), by_link: Budget::new(MAX_LINK_BYTES) }
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Budget(Arc<Semaphore>);

impl Budget {
    fn new(n_bytes: usize) -> Self {
        Self(Arc::new(Semaphore::new(n_bytes)))
    }

    /// A body of these bytes. What is held for it is free when it was sent or given up.
    pub(crate) fn body(&self, bytes: Bytes) -> Result<Body, Refusal> {
        if bytes.len() <= MAX_WHOLE_BYTES {
            return Ok(Body::from(bytes));
        }
        let n_bytes = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        let held = Arc::clone(&self.0).try_acquire_many_owned(n_bytes).map_err(|_full| Refusal {
            error: Error::new(ErrorKind::LimitReached, "too many outputs are being sent to slow readers")
                .with_hint("Try again in a moment."),
            retry_after: Some(RETRY_AFTER),
        })?;
        Ok(in_pieces(bytes, held))
    }
}

fn in_pieces(bytes: Bytes, held: OwnedSemaphorePermit) -> Body {
    Body::from_stream(stream::unfold((bytes, held), async |(mut bytes, held)| {
        if bytes.is_empty() {
            return None;
        }
        // A copy: the last piece that waits to be sent must not keep all the others.
        let piece = Bytes::copy_from_slice(&bytes.split_to(bytes.len().min(PIECE_BYTES)));
        Some((Ok::<_, Error>(piece), (bytes, held)))
    }))
}

#[cfg(test)]
mod tests {
    use axum::body::{HttpBody as _, to_bytes};

    use super::*;

    #[tokio::test]
    async fn what_nobody_takes_is_held_only_so_often() {
        let budget = Budget::new(300 * 1024);
        let large = Bytes::from(vec![7; 140 * 1024]);
        let first = budget.body(large.clone()).unwrap();
        let second = budget.body(large.clone()).unwrap();
        assert_eq!(first.size_hint().exact(), None, "it counts as a stream");
        let refused = budget.body(large.clone()).unwrap_err();
        assert_eq!((refused.error.kind(), refused.retry_after), (ErrorKind::LimitReached, Some(RETRY_AFTER)));
        drop(budget.body(large.slice(..MAX_WHOLE_BYTES)).unwrap());
        drop(first);
        let third = budget.body(large.clone()).unwrap();
        assert_eq!(to_bytes(second, usize::MAX).await.unwrap(), large);
        drop(budget.body(large).unwrap());
        drop(third);
        assert_eq!(budget.0.available_permits(), 300 * 1024);
    }
}

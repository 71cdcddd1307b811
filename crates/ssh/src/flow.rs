//! Bytes from a client on their way to a reader inside, and when the client has to wait.
//!
//! The library reads packets in order and renews a channel's window as it reads, not as we consume. So the only way to
//! make a client wait is to stop reading its connection. That also stops the window adjustments for output in the
//! other direction, and a command that waits for its output to be taken reads no input: both would wait forever. So the
//! connection does not wait while output is stuck. It reads on, with small windows, until the adjustment arrives; what
//! comes before that is queued, within a limit for the whole connection.

use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use bytes::Bytes;
use tokio::{sync::Notify, time::timeout};
use tokio_util::sync::CancellationToken;

use crate::limits::{MAX_OVERFLOW_BYTES, MAX_QUEUED_BYTES, SMALL_WINDOW_BYTES, STUCK_AFTER, WINDOW_BYTES};

/// The state that all channels of a connection share.
#[derive(Debug, Default)]
pub(crate) struct Flow {
    /// Bytes in all queues.
    queued: AtomicUsize,
    /// Writers that wait to send output.
    waiting_outputs: AtomicUsize,
    /// Input is read on although its reader is behind, so that output gets through.
    is_overflowing: AtomicBool,
    taken: Notify,
    /// The connection has ended.
    pub(crate) over: CancellationToken,
}

/// Counts a writer as waiting until it is dropped.
pub(crate) struct WaitingOutput<'a>(&'a Flow);

impl Drop for WaitingOutput<'_> {
    fn drop(&mut self) {
        self.0.waiting_outputs.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The queues of a connection are full, and it may not wait.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Overflow;

impl Flow {
    pub(crate) fn output(&self) -> WaitingOutput<'_> {
        self.waiting_outputs.fetch_add(1, Ordering::Relaxed);
        WaitingOutput(self)
    }

    fn has_waiting_output(&self) -> bool {
        self.waiting_outputs.load(Ordering::Relaxed) > 0
    }

    /// The window that clients get now.
    pub(crate) fn window(&self) -> u32 {
        let is_behind = self.queued.load(Ordering::Relaxed) > MAX_QUEUED_BYTES;
        if is_behind { SMALL_WINDOW_BYTES } else { WINDOW_BYTES }
    }

    /// Returns when the connection may read its next packet, after one for this queue.
    pub(crate) async fn admit(&self, queue: &Queue) -> Result<(), Overflow> {
        loop {
            if queue.len() <= MAX_QUEUED_BYTES || self.over.is_cancelled() {
                self.is_overflowing.store(false, Ordering::Relaxed);
                return Ok(());
            }
            if self.is_overflowing.load(Ordering::Relaxed) && self.has_waiting_output() {
                return match self.queued.load(Ordering::Relaxed) < MAX_OVERFLOW_BYTES {
                    true => Ok(()),
                    false => Err(Overflow),
                };
            }
            let taken = self.taken.notified();
            if queue.len() <= MAX_QUEUED_BYTES {
                continue;
            }
            let waited = tokio::select! {
                waited = timeout(STUCK_AFTER, taken) => waited,
                () = self.over.cancelled() => Ok(()),
            };
            let is_stuck = waited.is_err() && self.has_waiting_output();
            self.is_overflowing.store(is_stuck, Ordering::Relaxed);
        }
    }
}

/// Bytes for the reader of one channel.
#[derive(Debug)]
pub(crate) struct Queue {
    flow: Arc<Flow>,
    state: Mutex<State>,
    arrived: Notify,
}

#[derive(Debug, Default)]
struct State {
    pieces: VecDeque<Bytes>,
    len: usize,
    /// Nothing more comes.
    has_ended: bool,
}

impl Queue {
    pub(crate) fn new(flow: Arc<Flow>) -> Arc<Self> {
        Arc::new(Self { flow, state: Mutex::default(), arrived: Notify::new() })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn len(&self) -> usize {
        self.lock().len
    }

    /// Bytes after the end are ignored.
    pub(crate) fn push(&self, piece: Bytes) {
        let mut state = self.lock();
        if state.has_ended || piece.is_empty() {
            return;
        }
        state.len += piece.len();
        self.flow.queued.fetch_add(piece.len(), Ordering::Relaxed);
        state.pieces.push_back(piece);
        drop(state);
        self.arrived.notify_one();
    }

    /// Nothing more comes; whatever has come can still be taken.
    pub(crate) fn end(&self) {
        self.lock().has_ended = true;
        self.arrived.notify_one();
    }

    /// Throws away everything: its reader is gone.
    pub(crate) fn discard(&self) {
        let mut state = self.lock();
        state.has_ended = true;
        let len = std::mem::take(&mut state.len);
        state.pieces.clear();
        drop(state);
        self.release(len);
        self.arrived.notify_one();
    }

    /// The next piece; `None` at the end. For one reader. Safe to drop and call again.
    pub(crate) async fn next(&self) -> Option<Bytes> {
        loop {
            let arrived = self.arrived.notified();
            match self.take() {
                Some(taken) => return taken,
                None => arrived.await,
            }
        }
    }

    /// The next piece, or the end of them; `None` if neither has come.
    fn take(&self) -> Option<Option<Bytes>> {
        let mut state = self.lock();
        let Some(piece) = state.pieces.pop_front() else { return state.has_ended.then_some(None) };
        state.len -= piece.len();
        drop(state);
        self.release(piece.len());
        Some(Some(piece))
    }

    fn release(&self, len: usize) {
        self.flow.queued.fetch_sub(len, Ordering::Relaxed);
        self.flow.taken.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(len: usize) -> Bytes {
        Bytes::from(vec![7; len])
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_waits_for_its_reader() {
        let flow = Arc::new(Flow::default());
        let queue = Queue::new(Arc::clone(&flow));
        queue.push(piece(MAX_QUEUED_BYTES));
        assert_eq!(flow.admit(&queue).await, Ok(()));
        queue.push(piece(1));
        assert_eq!(flow.window(), SMALL_WINDOW_BYTES);
        let admitted = tokio::spawn({
            let (flow, queue) = (Arc::clone(&flow), Arc::clone(&queue));
            async move { flow.admit(&queue).await }
        });
        tokio::time::sleep(STUCK_AFTER * 10).await;
        assert!(!admitted.is_finished(), "nothing was taken, and no output waits");
        assert_eq!(queue.next().await, Some(piece(MAX_QUEUED_BYTES)));
        assert_eq!(admitted.await.unwrap(), Ok(()));
        assert_eq!(flow.window(), WINDOW_BYTES);
        queue.end();
        assert_eq!((queue.next().await, queue.next().await), (Some(piece(1)), None));
    }

    #[tokio::test(start_paused = true)]
    async fn stuck_output_lets_input_through_within_a_limit() {
        let flow = Arc::new(Flow::default());
        let queue = Queue::new(Arc::clone(&flow));
        queue.push(piece(MAX_QUEUED_BYTES + 1));
        let output = flow.output();
        assert_eq!(flow.admit(&queue).await, Ok(()));
        queue.push(piece(MAX_OVERFLOW_BYTES));
        assert_eq!(flow.admit(&queue).await, Err(Overflow));
        drop(output);
        queue.discard();
        assert_eq!(flow.admit(&queue).await, Ok(()));
        queue.push(piece(1));
        assert_eq!(queue.next().await, None);
        assert_eq!(flow.queued.load(Ordering::Relaxed), 0);
    }
}

//! The messages that a session has sent lately, so that a client whose connection broke gets the rest on the next one.
//!
//! The library keeps the answer of a request only while it is being made: an answer that comes between two connections
//! would be lost. Here it waits for the client.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    io,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use futures_util::stream;
use rmcp::{
    model::{ServerJsonRpcMessage, ServerResult, Tool},
    transport::streamable_http_server::session::{
        EventStore, EventStoreError, EventStream, ServerSseMessage,
    },
};
use serde::Serialize;
use tokio::sync::watch;

/// How many complete streams are kept, and for how long: a client that comes back at all comes back soon.
const MAX_COMPLETE_STREAMS: usize = 8;
const KEPT_FOR: Duration = Duration::from_secs(120);
/// Bytes of one session, and of all sessions together. Beyond, the oldest streams that are complete are forgotten, even
/// one that holds an answer which nobody has read.
const MAX_SESSION_BYTES: usize = 8 * 1024 * 1024;
const MAX_ALL_BYTES: usize = 128 * 1024 * 1024;
/// Events of one stream, and their bytes. The newest one is the answer: within the bytes above it is kept whatever its
/// size.
const MAX_STREAM_EVENTS: usize = 256;
const MAX_STREAM_BYTES: usize = 1024 * 1024;
/// Streams of one session; the oldest is forgotten when there are more.
const MAX_STREAMS: usize = 64;

/// The events of one session.
#[derive(Debug)]
pub(super) struct EventLog {
    log: Mutex<Log>,
    /// Counts events, for those who wait for the next one.
    added: watch::Sender<u64>,
    budget: Arc<EventBudget>,
}

/// The bytes that all sessions together may keep.
#[derive(Debug)]
pub(super) struct EventBudget {
    max_bytes: usize,
    n_bytes: AtomicUsize,
    /// The logs of events, as many as there are sessions.
    logs: Mutex<Vec<Weak<EventLog>>>,
}

impl Default for EventBudget {
    fn default() -> Self {
        Self::of(MAX_ALL_BYTES)
    }
}

impl EventBudget {
    fn of(max_bytes: usize) -> Self {
        Self { max_bytes, n_bytes: AtomicUsize::new(0), logs: Mutex::default() }
    }

    fn is_exceeded(&self) -> bool {
        self.n_bytes.load(Ordering::Relaxed) > self.max_bytes
    }

    fn logs(&self) -> MutexGuard<'_, Vec<Weak<EventLog>>> {
        self.logs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets the oldest complete streams of all sessions until the rest fits.
    fn make_room(&self) {
        while self.is_exceeded() {
            let logs: Vec<_> = self.logs().iter().filter_map(Weak::upgrade).collect();
            let oldest = logs.iter().filter_map(|log| Some((log.log().oldest_complete()?, log)));
            let Some(((_, number), log)) = oldest.min_by_key(|((since, _), _)| *since) else { return };
            log.change(|log| log.forget(number));
        }
    }
}

impl Drop for EventLog {
    fn drop(&mut self) {
        self.budget.n_bytes.fetch_sub(self.log().n_bytes, Ordering::Relaxed);
        self.budget.logs().retain(|log| log.strong_count() > 0);
    }
}

#[derive(Debug, Default)]
struct Log {
    numbers: HashMap<String, u64>,
    /// By number, so the oldest comes first.
    streams: BTreeMap<u64, StreamLog>,
    n_streams: u64,
    n_bytes: usize,
}

#[derive(Debug, Default)]
struct StreamLog {
    id: String,
    events: VecDeque<Kept>,
    n_events: u64,
    n_bytes: usize,
    complete_since: Option<Instant>,
}

#[derive(Debug)]
struct Kept {
    number: u64,
    event: ServerSseMessage,
    n_bytes: usize,
}

/// `stream-event`, as the client hands it back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct EventPosition {
    stream: u64,
    event: u64,
}

impl EventPosition {
    fn parse(text: &str) -> Option<Self> {
        let (stream, event) = text.split_once('-')?;
        Some(Self { stream: stream.parse().ok()?, event: event.parse().ok()? })
    }
}

impl EventLog {
    pub(super) fn new(budget: &Arc<EventBudget>) -> Arc<Self> {
        let (log, added) = (Mutex::default(), watch::Sender::new(0));
        let log = Arc::new(Self { log, added, budget: Arc::clone(budget) });
        budget.logs().push(Arc::downgrade(&log));
        log
    }

    /// Changes what is kept, and books the difference.
    fn change<T>(&self, change: impl FnOnce(&mut Log) -> T) -> T {
        let mut log = self.log();
        let n_before = log.n_bytes;
        let changed = change(&mut log);
        self.budget.n_bytes.fetch_add(log.n_bytes, Ordering::Relaxed);
        self.budget.n_bytes.fetch_sub(n_before, Ordering::Relaxed);
        changed
    }

    /// Keeps nothing more of what was: the session is over, whoever may still hold on to it.
    pub(super) fn clear(&self) {
        self.change(|log| *log = Log { n_streams: log.n_streams, ..Log::default() });
        self.added.send_modify(|n| *n += 1);
    }

    fn log(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets what nobody will come back for.
    pub(super) fn prune(&self) {
        self.change(|log| log.prune(Instant::now()));
    }

    fn next_after(&self, position: EventPosition) -> Next {
        let log = self.log();
        let Some(stream) = log.streams.get(&position.stream) else { return Next::End };
        match stream.events.iter().find(|kept| kept.number > position.event) {
            Some(kept) => Next::Event(kept.number, kept.event.clone()),
            None if stream.complete_since.is_some() => Next::End,
            None => Next::Later,
        }
    }
}

enum Next {
    Event(u64, ServerSseMessage),
    Later,
    End,
}

impl Log {
    fn add(&mut self, stream_id: &str, event: &ServerSseMessage) -> EventPosition {
        let number = match self.numbers.get(stream_id) {
            Some(number) => *number,
            None => self.begin(stream_id),
        };
        let stream = self.streams.entry(number).or_default();
        stream.n_events += 1;
        let position = EventPosition { stream: number, event: stream.n_events };
        let mut event = event.clone();
        event.event_id = Some(format!("{}-{}", position.stream, position.event));
        let is_last = matches!(
            event.message.as_deref(),
            Some(ServerJsonRpcMessage::Response(_) | ServerJsonRpcMessage::Error(_))
        );
        if is_last {
            stream.complete_since = Some(Instant::now());
        }
        self.n_bytes -= stream.n_bytes;
        stream.keep(Kept { number: position.event, n_bytes: size(&event), event });
        self.n_bytes += stream.n_bytes;
        self.prune(Instant::now());
        position
    }

    fn oldest_complete(&self) -> Option<(Instant, u64)> {
        self.streams.iter().filter_map(|(number, stream)| Some((stream.complete_since?, *number))).min()
    }

    fn begin(&mut self, stream_id: &str) -> u64 {
        self.n_streams += 1;
        self.numbers.insert(stream_id.to_owned(), self.n_streams);
        let stream = StreamLog { id: stream_id.to_owned(), ..StreamLog::default() };
        self.streams.insert(self.n_streams, stream);
        if self.streams.len() > MAX_STREAMS
            && let Some(oldest) = self.streams.keys().next().copied()
        {
            self.forget(oldest);
        }
        self.n_streams
    }

    fn forget(&mut self, number: u64) {
        if let Some(stream) = self.streams.remove(&number) {
            self.numbers.remove(&stream.id);
            self.n_bytes -= stream.n_bytes;
        }
    }

    fn prune(&mut self, now: Instant) {
        let complete: Vec<_> = self
            .streams
            .iter()
            .filter_map(|(number, stream)| Some((*number, stream.complete_since?)))
            .collect();
        let n_surplus = complete.len().saturating_sub(MAX_COMPLETE_STREAMS);
        for (index, (number, since)) in complete.into_iter().enumerate() {
            if index < n_surplus || now.saturating_duration_since(since) > KEPT_FOR {
                self.forget(number);
            }
        }
        while self.n_bytes > MAX_SESSION_BYTES {
            let oldest = self.oldest_complete().map(|(_, number)| number);
            let Some(oldest) = oldest.or_else(|| self.streams.keys().next().copied()) else { return };
            self.forget(oldest);
        }
    }
}

impl StreamLog {
    fn keep(&mut self, kept: Kept) {
        self.n_bytes += kept.n_bytes;
        self.events.push_back(kept);
        while self.events.len() > 1
            && (self.events.len() > MAX_STREAM_EVENTS || self.n_bytes > MAX_STREAM_BYTES)
        {
            if let Some(oldest) = self.events.pop_front() {
                self.n_bytes -= oldest.n_bytes;
            }
        }
    }
}

#[async_trait::async_trait]
impl EventStore for EventLog {
    async fn store_event(
        &self,
        stream_id: &str,
        event: &ServerSseMessage,
    ) -> Result<String, EventStoreError> {
        let position = self.change(|log| log.add(stream_id, event));
        self.budget.make_room();
        self.added.send_modify(|n| *n += 1);
        Ok(format!("{}-{}", position.stream, position.event))
    }

    async fn replay_events_after(&self, last_event_id: &str) -> Result<EventStream, EventStoreError> {
        let _ = last_event_id;
        Err(io::Error::other("asked of a log that is not shared").into())
    }
}

/// Returns the events that came after the given one on its stream, and those to come, until the stream is complete.
pub(super) fn after(log: &Arc<EventLog>, last_event_id: &str) -> Option<EventStream> {
    let position = EventPosition::parse(last_event_id)?;
    if !log.log().streams.contains_key(&position.stream) {
        return None;
    }
    let state = (Arc::clone(log), log.added.subscribe(), position);
    Some(Box::pin(stream::unfold(state, |(log, mut added, position)| async move {
        loop {
            added.mark_unchanged();
            match log.next_after(position) {
                Next::Event(number, event) => {
                    let position = EventPosition { event: number, ..position };
                    return Some((event, (log, added, position)));
                }
                Next::Later => added.changed().await.ok()?,
                Next::End => return None,
            }
        }
    })))
}

/// Bytes that an event holds, about: as many as on the wire. The schemas in a list of tools belong to all its readers,
/// and to count a list is as much work as to send it.
fn size(event: &ServerSseMessage) -> usize {
    let message = match event.message.as_deref() {
        Some(ServerJsonRpcMessage::Response(response)) => match &response.result {
            ServerResult::ListToolsResult(list) => list.tools.len() * size_of::<Tool>(),
            _ => json_size(response),
        },
        message => message.map_or(0, json_size),
    };
    64 + message
}

/// Bytes of something as JSON, without writing them anywhere.
pub(super) fn json_size(value: &impl Serialize) -> usize {
    struct Count(usize);
    impl io::Write for Count {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut count = Count(0);
    // Counting cannot fail, and what cannot be written counts little.
    serde_json::to_writer(&mut count, value).ok();
    count.0
}

#[cfg(test)]
mod tests {
    use futures_util::StreamExt;
    use rmcp::{
        ErrorData,
        model::{EmptyResult, RequestId},
    };

    use super::*;

    fn note() -> ServerSseMessage {
        ServerSseMessage::retry(Duration::from_secs(1))
    }

    fn answer() -> ServerSseMessage {
        let result = ServerResult::EmptyResult(EmptyResult {});
        ServerSseMessage::from_message(ServerJsonRpcMessage::response(result, RequestId::Number(1)))
    }

    async fn rest(log: &Arc<EventLog>, after_id: &str) -> Option<Vec<String>> {
        let events = after(log, after_id)?;
        Some(events.map(|event| event.event_id.unwrap()).collect().await)
    }

    #[tokio::test]
    async fn a_stream_is_told_from_any_place_and_from_no_other_stream() {
        let log = EventLog::new(&Arc::default());
        let first = log.store_event("a", &note()).await.unwrap();
        log.store_event("b", &note()).await.unwrap();
        let second = log.store_event("a", &note()).await.unwrap();
        let last = log.store_event("a", &answer()).await.unwrap();
        assert_eq!(rest(&log, &first).await.unwrap(), [second.clone(), last.clone()]);
        assert_eq!(rest(&log, &second).await.unwrap(), std::slice::from_ref(&last));
        assert!(rest(&log, &last).await.unwrap().is_empty());
        assert!(rest(&log, "9-1").await.is_none() && rest(&log, "nonsense").await.is_none());
    }

    #[tokio::test]
    async fn only_so_much_is_kept() {
        let log = EventLog::new(&Arc::default());
        let mut ids = Vec::new();
        for n in 0..=MAX_COMPLETE_STREAMS {
            ids.push(log.store_event(&format!("s{n}"), &note()).await.unwrap());
            log.store_event(&format!("s{n}"), &answer()).await.unwrap();
        }
        assert!(rest(&log, &ids[0]).await.is_none(), "the oldest was forgotten");
        assert_eq!(rest(&log, &ids[1]).await.unwrap().len(), 1);
        log.change(|log| log.prune(Instant::now() + KEPT_FOR * 2));
        assert!(rest(&log, &ids[1]).await.is_none(), "so were those that nobody came back for");

        let first = log.store_event("long", &note()).await.unwrap();
        for _ in 0..2 * MAX_STREAM_EVENTS {
            log.store_event("long", &note()).await.unwrap();
        }
        log.store_event("long", &answer()).await.unwrap();
        let kept = rest(&log, &first).await.unwrap();
        assert_eq!(kept.len(), MAX_STREAM_EVENTS, "and the beginning of a long one, but never its answer");
        assert!(log.log().streams.len() <= MAX_STREAMS);
    }

    fn large_answer(n_bytes: usize) -> ServerSseMessage {
        let error = ErrorData::internal_error("x".repeat(n_bytes), None);
        ServerSseMessage::from_message(ServerJsonRpcMessage::error(error, Some(RequestId::Number(1))))
    }

    #[tokio::test]
    async fn answers_are_kept_as_long_as_they_fit() {
        let budget = Arc::new(EventBudget::of(2 * MAX_SESSION_BYTES));
        let logs = [(); 3].map(|()| EventLog::new(&budget));
        let mut first = Vec::new();
        for log in &logs {
            for n in 0..3 {
                let began = log.store_event(&format!("s{n}"), &note()).await.unwrap();
                log.store_event(&format!("s{n}"), &large_answer(MAX_SESSION_BYTES * 2 / 5)).await.unwrap();
                first.push(began);
            }
            assert!(log.log().n_bytes <= MAX_SESSION_BYTES, "no session keeps more than its part");
            assert!(!budget.is_exceeded(), "nor do all together");
        }
        assert!(rest(&logs[2], &first[6]).await.is_none(), "the oldest of the session was forgotten");
        assert_eq!(rest(&logs[2], &first[8]).await.unwrap().len(), 1);
        assert!(rest(&logs[0], &first[1]).await.is_none(), "and the oldest of all");
        let id = logs[2].store_event("huge", &large_answer(MAX_SESSION_BYTES * 2)).await.unwrap();
        assert!(rest(&logs[2], &id).await.is_none(), "an answer that is too large alone is not kept");
        logs.iter().for_each(|log| log.clear());
        assert_eq!(budget.n_bytes.load(Ordering::Relaxed), 0);
        logs[0].store_event("again", &answer()).await.unwrap();
        drop(logs);
        assert_eq!((budget.n_bytes.load(Ordering::Relaxed), budget.logs().len()), (0, 0));
    }
}

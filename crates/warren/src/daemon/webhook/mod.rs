//! Sends events to an address of the operator's, signed, in order, at least once.
//!
//! The store of events is the queue: a reader of it sends batch after batch, and keeps the number of the next event in
//! the data directory. While the receiver does not take a batch, it is sent again with growing pauses, and nothing
//! piles up in memory. If the store drops events meanwhile, the next batch begins by saying how many. If the receiver
//! refuses what is in a batch, the batch is cut in halves until the event that it refuses is alone.

mod cursor;
mod sign;

use std::time::Duration;

use engine::{Engine, Follow, Principal};
use futures_util::StreamExt as _;
use jiff::Timestamp;
use reqwest::{
    Client, StatusCode,
    header::{CONTENT_TYPE, HeaderMap, RETRY_AFTER},
    redirect,
};
use sandbox::{Error, ErrorKind, Event, EventKind, Result};
use serde::Serialize;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use self::{
    cursor::{Cursor, Found, OLDEST, Position},
    sign::Signer,
};
use crate::{config::Webhook, directories::Directories};

/// Events in one request.
const MAX_BATCH: usize = 100;
/// How long a receiver may take for one request.
const ANSWER_WITHIN: Duration = Duration::from_secs(15);
/// The first pause before a batch is sent again; each next one is twice as long.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// The longest pause that a receiver can ask for by `Retry-After`.
const LONGEST_ASKED_PAUSE: Duration = Duration::from_secs(600);
/// How often events that a receiver refuses are sent together before they are sent in two batches.
const TRIES_TOGETHER: u32 = 3;
/// How often one event that a receiver refuses is sent before it is left out, in about half a minute: the receiver may
/// refuse it for a reason that passes.
const TRIES_ALONE: u32 = 7;
/// Pause before events are read again after the store failed.
const READ_AGAIN_AFTER: Duration = Duration::from_secs(5);

/// The body of a request.
#[derive(Debug, Serialize)]
struct Message<'a> {
    #[serde(rename = "type")]
    sort: &'static str,
    timestamp: Timestamp,
    data: Batch<'a>,
}

#[derive(Debug, Serialize)]
struct Batch<'a> {
    events: &'a [Item],
}

#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Item {
    Event(Event),
    Lost(Lost),
}

/// Events that were dropped before they could be sent.
#[derive(Debug, Serialize)]
struct Lost {
    /// The number of the last event.
    number: u64,
    at: Timestamp,
    kind: &'static str,
    /// `null`: nobody knows, since the records are lost that counted them.
    count: Option<u64>,
}

impl Lost {
    fn before(event: &Event, count: Option<u64>) -> Item {
        let number = event.number.saturating_sub(1);
        Item::Lost(Self { number, at: Timestamp::now(), kind: "events_lost", count })
    }
}

/// Why a receiver did not take a batch.
struct NotTaken {
    why: String,
    status: Option<StatusCode>,
    /// The receiver asked for this pause.
    pause: Option<Duration>,
}

impl NotTaken {
    /// Whether it is about what is in the batch. Other errors of the 400s are about who sends, where to, or how often:
    /// another batch would not fare better.
    fn is_about_content(&self) -> bool {
        let about =
            [StatusCode::BAD_REQUEST, StatusCode::PAYLOAD_TOO_LARGE, StatusCode::UNPROCESSABLE_ENTITY];
        self.status.is_some_and(|status| about.contains(&status))
    }
}

pub(super) struct Sender {
    engine: Engine,
    client: Client,
    webhook: Webhook,
    signer: Signer,
    cursor: Cursor,
    found: Found,
    /// Events that were left out, of which the receiver does not know yet.
    n_left_out: u64,
}

impl Sender {
    pub(super) fn new(engine: &Engine, webhook: Webhook, directories: &Directories) -> Result<Self> {
        let cannot = |error: &dyn std::fmt::Display| {
            Error::new(ErrorKind::Unavailable, format!("cannot send events: {error}"))
        };
        // A redirect could lead anywhere; the operator named one address.
        let client = downloads::client_builder(Vec::new())
            .map_err(|error| cannot(&error))?
            .redirect(redirect::Policy::none())
            .timeout(ANSWER_WITHIN)
            .build()
            .map_err(|error| cannot(&error.without_url()))?;
        let signer = Signer::new(&webhook.secret)?;
        let history = engine.event_history().map(str::to_owned);
        let now = Position { history, last: engine.last_event_number() };
        let (cursor, found) = Cursor::open(&directories.home, now);
        match found {
            Found::Place => {}
            Found::Nonsense => tracing::warn!(
                "the webhook's place among the events cannot be read; all events that are kept are sent, some again"
            ),
            Found::OtherRecords => tracing::warn!(
                "the records of events are not those of the daemon before; the webhook begins with the oldest event"
            ),
        }
        engine.note_next_delivery(cursor.next);
        Ok(Self { engine: engine.clone(), client, webhook, signer, cursor, found, n_left_out: 0 })
    }

    /// Sends until the daemon stops. What it did not send, the next daemon does.
    pub(super) async fn run(mut self, stop: CancellationToken) {
        tokio::select! {
            () = stop.cancelled() => {}
            () = self.keep_sending() => {}
        }
    }

    async fn keep_sending(&mut self) {
        loop {
            if let Err(error) = self.read().await {
                tracing::warn!(error = &error as &dyn std::error::Error, "the webhook waits for the store");
                sleep(READ_AGAIN_AFTER).await;
            }
        }
    }

    /// Reads events from the cursor on and sends them; ends if they cannot be read.
    async fn read(&mut self) -> Result<()> {
        let who = Principal::operator("webhook");
        let events = self.engine.events(&who, Some(self.cursor.next), Follow::Yes).await?;
        let mut batches = events.ready_chunks(MAX_BATCH);
        while let Some(batch) = batches.next().await {
            let events = batch.into_iter().collect::<Result<Vec<_>>>()?;
            let Some(last) = events.last().map(|event| event.number) else { continue };
            let items = self.items(events);
            if !items.is_empty() {
                self.deliver(items).await;
            }
            self.cursor.advance(last.saturating_add(1)).await;
            self.engine.note_next_delivery(self.cursor.next);
        }
        // The engine closes.
        std::future::pending().await
    }

    fn items(&mut self, events: Vec<Event>) -> Vec<Item> {
        let mut expected = self.cursor.next;
        let mut items = Vec::new();
        if let Some(first) = events.first() {
            if std::mem::replace(&mut self.found, Found::Place) == Found::OtherRecords {
                items.push(Lost::before(first, None));
            }
            let n_left_out = std::mem::take(&mut self.n_left_out);
            if n_left_out > 0 {
                items.push(Lost::before(first, Some(n_left_out)));
            }
        }
        for event in events {
            let count = if expected == OLDEST { 0 } else { event.number.saturating_sub(expected) };
            if count > 0 {
                self.engine.count_lost_events(count);
                tracing::warn!(count, "events were dropped before the webhook's receiver took them");
                items.push(Lost::before(&event, Some(count)));
            }
            expected = event.number.saturating_add(1);
            if self.wants(event.kind) {
                items.push(Item::Event(event));
            }
        }
        items
    }

    fn wants(&self, kind: EventKind) -> bool {
        self.webhook.kinds.as_ref().is_none_or(|kinds| kinds.contains(&kind))
    }

    /// Sends events until they are taken, in halves if the receiver refuses what is in them.
    async fn deliver(&mut self, events: Vec<Item>) {
        let mut parts = vec![events];
        while let Some(mut part) = parts.pop() {
            if self.deliver_part(&part).await {
                continue;
            }
            if part.len() > 1 {
                let second = part.split_off(part.len().div_ceil(2));
                parts.extend([second, part]);
            } else {
                tracing::warn!(event = ?part, "the webhook's receiver refuses this event; it is left out");
                self.engine.count_lost_events(1);
                self.n_left_out += 1;
            }
        }
    }

    /// Sends one batch until it is taken, with the same id each time, so that a receiver can tell it from another.
    /// Returns false if the receiver refuses what is in it.
    async fn deliver_part(&self, events: &[Item]) -> bool {
        let now = Timestamp::now();
        let id = format!("msg_{:x}_{}", now.as_nanosecond(), self.cursor.next);
        let message = Message { sort: "warren.events", timestamp: now, data: Batch { events } };
        let body = bytes::Bytes::from(serde_json::to_vec(&message).unwrap_or_default());
        let (mut pause, mut n_refused) = (FIRST_PAUSE, 0);
        loop {
            let sent = self.send(&id, body.clone()).await;
            self.engine.count_delivery(sent.is_ok());
            let Err(not_taken) = sent else { return true };
            if not_taken.is_about_content() {
                n_refused += 1;
                let most = match (events.len(), not_taken.status) {
                    (1, _) => TRIES_ALONE,
                    (_, Some(StatusCode::PAYLOAD_TOO_LARGE)) => 1,
                    _ => TRIES_TOGETHER,
                };
                if n_refused >= most {
                    return false;
                }
            }
            let wait = jittered(pause).max(not_taken.pause.unwrap_or_default().min(LONGEST_ASKED_PAUSE));
            let why = &not_taken.why;
            tracing::warn!(id, pause = ?wait, "the webhook's receiver did not take a batch: {why}");
            sleep(wait).await;
            pause = pause.saturating_mul(2).min(LONGEST_PAUSE);
        }
    }

    async fn send(&self, id: &str, body: bytes::Bytes) -> Result<(), NotTaken> {
        let timestamp = Timestamp::now().as_second();
        let request = self
            .client
            .post(self.webhook.url.clone())
            .header(CONTENT_TYPE, "application/json")
            .header("user-agent", concat!("warren/", env!("CARGO_PKG_VERSION")))
            .header("webhook-id", id)
            .header("webhook-timestamp", timestamp)
            .header("webhook-signature", self.signer.sign(id, timestamp, &body))
            .body(body);
        // The body of the answer is not read.
        let answer = request.send().await.map_err(|error| NotTaken {
            why: downloads::reason(error),
            status: None,
            pause: None,
        })?;
        match answer.status() {
            status if status.is_success() => Ok(()),
            status => Err(NotTaken {
                why: format!("it answered {status}"),
                status: Some(status),
                pause: asked_pause(answer.headers()),
            }),
        }
    }
}

/// Between three and five quarters of it: daemons that lost the same receiver do not come back all at once.
fn jittered(pause: Duration) -> Duration {
    let mut byte = [0];
    getrandom::fill(&mut byte).unwrap_or_default();
    pause.mul_f64(0.75 + f64::from(byte[0]) / 512.0)
}

/// Seconds, or a date.
fn asked_pause(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    if let Ok(seconds) = text.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let date = jiff::fmt::rfc2822::parse(text).ok()?;
    Duration::try_from(date.timestamp().duration_since(Timestamp::now())).ok()
}

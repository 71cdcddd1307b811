//! Sends events to an address of the operator's, signed, in order, at least once.
//!
//! The store of events is the queue: a reader of it sends batch after batch, and keeps the number of the next event in
//! the data directory. While the receiver does not take a batch, it is sent again with growing pauses, and nothing
//! piles up in memory. If the store drops events meanwhile, the next batch begins by saying how many.

mod cursor;
mod sign;

use std::time::Duration;

use engine::{Engine, Follow, Principal};
use futures_util::StreamExt as _;
use jiff::Timestamp;
use reqwest::{Client, header::CONTENT_TYPE, redirect};
use sandbox::{Error, ErrorKind, Event, EventKind, Result};
use serde::Serialize;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use self::{cursor::Cursor, sign::Signer};
use crate::{config::Webhook, directories::Directories};

/// Events in one request.
const MAX_BATCH: usize = 100;
/// How long a receiver may take for one request.
const ANSWER_WITHIN: Duration = Duration::from_secs(15);
/// The first pause before a batch is sent again; each next one is twice as long.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// Pause before events are read again after the store failed.
const READ_AGAIN_AFTER: Duration = Duration::from_secs(5);

/// The body of a request.
#[derive(Debug, Serialize)]
struct Message {
    #[serde(rename = "type")]
    sort: &'static str,
    timestamp: Timestamp,
    data: Batch,
}

#[derive(Debug, Serialize)]
struct Batch {
    events: Vec<Item>,
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
    count: u64,
}

pub(super) struct Sender {
    engine: Engine,
    client: Client,
    webhook: Webhook,
    signer: Signer,
    cursor: Cursor,
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
        let cursor = Cursor::open(&directories.home, engine.last_event_number().saturating_add(1));
        Ok(Self { engine: engine.clone(), client, webhook, signer, cursor })
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
            self.cursor.advance(last.saturating_add(1));
        }
        // The engine closes.
        std::future::pending().await
    }

    fn items(&self, events: Vec<Event>) -> Vec<Item> {
        let mut expected = self.cursor.next;
        let mut items = Vec::new();
        for event in events {
            let count = event.number.saturating_sub(expected);
            if count > 0 {
                self.engine.count_lost_events(count);
                tracing::warn!(count, "events were dropped before the webhook's receiver took them");
                let number = event.number.saturating_sub(1);
                items.push(Item::Lost(Lost { number, at: Timestamp::now(), kind: "events_lost", count }));
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

    /// Sends a batch until it is taken. Its id stays the same, so that a receiver can tell it from another.
    async fn deliver(&self, events: Vec<Item>) {
        let now = Timestamp::now();
        let id = format!("msg_{:x}_{}", now.as_nanosecond(), self.cursor.next);
        let message = Message { sort: "warren.events", timestamp: now, data: Batch { events } };
        let body = bytes::Bytes::from(serde_json::to_vec(&message).unwrap_or_default());
        let mut pause = FIRST_PAUSE;
        loop {
            let sent = self.send(&id, body.clone()).await;
            self.engine.count_delivery(sent.is_ok());
            match sent {
                Ok(()) => return,
                Err(why) => tracing::warn!(id, ?pause, "the webhook's receiver did not take a batch: {why}"),
            }
            sleep(pause).await;
            pause = pause.saturating_mul(2).min(LONGEST_PAUSE);
        }
    }

    async fn send(&self, id: &str, body: bytes::Bytes) -> Result<(), String> {
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
        let answer = request.send().await.map_err(downloads::reason)?;
        match answer.status() {
            status if status.is_success() => Ok(()),
            status => Err(format!("it answered {status}")),
        }
    }
}

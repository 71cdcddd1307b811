//! Sends spans to the collector, in batches. A collector that does not answer costs spans, never a request.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use gateway::Url;
use reqwest::{Client, StatusCode, header::CONTENT_TYPE, redirect};
use sandbox::{Error, ErrorKind, Result};
use tokio::{
    sync::mpsc,
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;

use super::{EndedSpan, otlp, settings::Settings};

/// Spans in one request.
const MAX_BATCH: usize = 512;
/// How long the first span of a batch waits for others.
const GATHER: Duration = Duration::from_secs(1);
/// How often one batch is sent, and the pauses between.
const TRIES: u32 = 4;
const FIRST_PAUSE: Duration = Duration::from_millis(250);
/// How long the last batches may take when the daemon stops.
const LAST_WITHIN: Duration = Duration::from_secs(3);

/// The way to the collector. [`Traces::run`] sends.
#[derive(Debug)]
pub(in crate::daemon) struct Traces {
    settings: Settings,
    ended: mpsc::Receiver<EndedSpan>,
    dropped: Arc<AtomicU64>,
}

impl Traces {
    pub(super) fn new(settings: Settings, ended: mpsc::Receiver<EndedSpan>, dropped: Arc<AtomicU64>) -> Self {
        Self { settings, ended, dropped }
    }

    /// Sends until `stop`, and then what is left. Spans that end later are lost.
    pub(in crate::daemon) async fn run(mut self, stop: CancellationToken) {
        let sender = match self.sender() {
            Ok(sender) => sender,
            Err(error) => return tracing::error!("no traces are sent: {error}"),
        };
        tracing::info!(endpoint = shown(&self.settings.endpoint), "sending traces");
        let mut batch = Vec::with_capacity(MAX_BATCH);
        loop {
            tokio::select! {
                () = stop.cancelled() => break,
                () = gather(&mut self.ended, &mut batch) => {}
            }
            self.told_of_drops();
            tokio::select! {
                () = stop.cancelled() => break,
                () = sender.send(&mut batch) => {}
            }
        }
        let rest = async {
            while let Ok(span) = self.ended.try_recv() {
                batch.push(span);
                if batch.len() == MAX_BATCH {
                    sender.send(&mut batch).await;
                }
            }
            sender.send(&mut batch).await;
        };
        drop(timeout(LAST_WITHIN, rest).await);
    }

    fn sender(&self) -> Result<Sender> {
        let cannot = |error: &dyn std::fmt::Display| {
            Error::new(ErrorKind::Unavailable, format!("no client for the collector: {error}"))
        };
        let client = downloads::client_builder(Vec::new())
            .map_err(|error| cannot(&error))?
            .redirect(redirect::Policy::none())
            .timeout(self.settings.timeout)
            .default_headers(self.settings.headers.clone())
            .build()
            .map_err(|error| cannot(&error.without_url()))?;
        Ok(Sender { client, settings: self.settings.clone() })
    }

    fn told_of_drops(&self) {
        let dropped = self.dropped.swap(0, Ordering::Relaxed);
        if dropped > 0 {
            tracing::warn!(dropped, "spans were dropped: the collector is too slow");
        }
    }
}

/// The address without what may be a secret in it.
fn shown(url: &Url) -> String {
    let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
    format!("{}://{}{port}{}", url.scheme(), url.host_str().unwrap_or_default(), url.path())
}

/// Waits for a span, and a little for others.
async fn gather(ended: &mut mpsc::Receiver<EndedSpan>, batch: &mut Vec<EndedSpan>) {
    if batch.is_empty() && ended.recv_many(batch, 1).await == 0 {
        // The layer is gone, which lives as long as the process.
        return std::future::pending().await;
    }
    let filling = async {
        while batch.len() < MAX_BATCH && ended.recv_many(batch, MAX_BATCH - batch.len()).await > 0 {}
    };
    drop(timeout(GATHER, filling).await);
}

struct Sender {
    client: Client,
    settings: Settings,
}

impl Sender {
    /// Sends a batch, or gives it up.
    async fn send(&self, batch: &mut Vec<EndedSpan>) {
        if batch.is_empty() {
            return;
        }
        let body = bytes::Bytes::from(otlp::request(&self.settings.attributes, batch).to_string());
        let mut pause = FIRST_PAUSE;
        for n in 1..=TRIES {
            match self.attempt(body.clone()).await {
                Ok(()) => break,
                Err((why, may_help)) if may_help && n < TRIES => {
                    tracing::debug!("the collector did not take spans: {why}");
                }
                Err((why, _)) => {
                    tracing::warn!(lost = batch.len(), "the collector did not take spans: {why}");
                    break;
                }
            }
            sleep(pause).await;
            pause = pause.saturating_mul(2);
        }
        batch.clear();
    }

    /// The error says whether another attempt may help.
    async fn attempt(&self, body: bytes::Bytes) -> Result<(), (String, bool)> {
        let request = self.client.post(self.settings.endpoint.clone());
        let request = request.header(CONTENT_TYPE, "application/json").body(body);
        let status = match request.send().await {
            Ok(answer) => answer.status(),
            Err(error) => return Err((downloads::reason(error), true)),
        };
        // As the specification says which answers mean to come back.
        let may_help = matches!(
            status,
            StatusCode::TOO_MANY_REQUESTS
                | StatusCode::BAD_GATEWAY
                | StatusCode::SERVICE_UNAVAILABLE
                | StatusCode::GATEWAY_TIMEOUT
        );
        if status.is_success() { Ok(()) } else { Err((format!("it answered {status}"), may_help)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_is_shown_with_its_port_and_without_secrets() {
        let shown = |text: &str| shown(&Url::parse(text).unwrap());
        assert_eq!(
            shown("http://user:secret@collector:4318/v1/traces?key=secret"),
            "http://collector:4318/v1/traces"
        );
        assert_eq!(shown("https://collector/v1/traces"), "https://collector/v1/traces");
    }
}

//! One file on its way from an index to the disk. Clients read what is already there, at their own pace.

use std::{
    fs::File,
    io::Write as _,
    sync::{Arc, PoisonError, atomic::Ordering::Relaxed},
    time::{Duration, Instant},
};

use bytes::Bytes;
use futures_util::FutureExt as _;
use hyper::{
    StatusCode,
    header::{CONTENT_LENGTH, ETAG, LAST_MODIFIED},
};
use tokio::{sync::watch, time::timeout};

use super::{DownloadSlot, FileRequest, Link, Shared, pace::Pace, sha256_of};
use crate::{
    cache::Draft,
    config::shown,
    digest::{Hasher, Stated},
    error::{Failure, FailureKind},
    pages::now,
    reply::blocking,
    upstream::Answer,
};

/// How many bytes are gathered before they are hashed and written, while more are at hand.
const BATCH_BYTES: usize = 256 << 10;

/// How long a download goes on with nobody reading. A package manager that lost its patience comes back for the same
/// file.
const LINGER: Duration = Duration::from_secs(30);

/// How long a download waits for its place.
const PLACE_TIMEOUT: Duration = Duration::from_secs(60);

#[derive(Debug, Clone)]
pub(super) struct Progress {
    /// Bytes that can be read.
    pub(super) written: u64,
    pub(super) phase: Phase,
}

#[derive(Debug, Clone)]
pub(super) enum Phase {
    Asking,
    Coming(Arc<Head>),
    /// Whole, verified and kept.
    Done(Arc<Head>),
    /// Our copy is what the index has.
    Same,
    Failed(Failure),
}

/// The facts known once the index answered.
#[derive(Debug)]
pub(super) struct Head {
    /// Being written; also read from, by position.
    pub(super) file: File,
    pub(super) total: Option<u64>,
    pub(super) last_modified: Option<String>,
    etag: Option<String>,
}

#[derive(Debug)]
pub(super) struct Download {
    shared: Arc<Shared>,
    wanted: FileRequest,
    key: String,
    progress: watch::Sender<Progress>,
    /// Our part of `Shared::unfinished`.
    unfinished: u64,
    _place: DownloadSlot,
}

impl Drop for Download {
    fn drop(&mut self) {
        self.shared.unfinished.fetch_sub(self.unfinished, Relaxed);
        self.shared.under_way.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.key);
    }
}

/// The draft and its hash, moved to where disk work is done and back.
struct Sink {
    head: Arc<Head>,
    hasher: Hasher,
}

impl Download {
    pub(super) fn new(
        shared: Arc<Shared>,
        wanted: FileRequest,
        key: String,
        place: DownloadSlot,
    ) -> (Self, watch::Receiver<Progress>) {
        let (progress, receiver) = watch::channel(Progress { written: 0, phase: Phase::Asking });
        (Self { shared, wanted, key, progress, unfinished: 0, _place: place }, receiver)
    }

    pub(super) async fn run(mut self) {
        let phase = match self.fetch().await {
            Ok(phase) => phase,
            Err(failure) => {
                if matches!(self.progress.borrow().phase, Phase::Coming(_)) {
                    // The clients only see the body break off. An earlier failure is reported by whoever asked.
                    self.shared.counters.failed(&failure.detail);
                }
                Phase::Failed(failure)
            }
        };
        self.progress.send_modify(|progress| progress.phase = phase);
    }

    async fn fetch(&mut self) -> Result<Phase, Failure> {
        let shared = Arc::clone(&self.shared);
        self.check_address()?;
        let Ok(Ok(_place)) = timeout(PLACE_TIMEOUT, shared.places.acquire()).await else {
            return Err(Failure::new(FailureKind::Busy, "too many downloads at a time"));
        };
        let answer = shared.upstream.ask(&self.wanted.ask, shared.upstream.patience().file).await?;
        match answer.status() {
            StatusCode::OK => self.receive(answer).await,
            StatusCode::NOT_MODIFIED => {
                let etag = answer.header(ETAG).map(str::to_owned);
                self.touch(etag).await?;
                Ok(Phase::Same)
            }
            status => {
                let detail = format!("{} answered {}", shown(&answer.url), status.as_u16());
                Err(Failure::new(FailureKind::Status(status.as_u16()), detail))
            }
        }
    }

    /// Without TLS, and from a host that nobody configured, only a file with a strong stated hash is fetched.
    fn check_address(&self) -> Result<(), Failure> {
        let url = &self.wanted.ask.url;
        let is_vouched = self.wanted.stated.as_ref().is_some_and(|stated| stated.algorithm.is_strong());
        if url.scheme() == "https"
            || is_vouched
            || self.shared.upstream.is_trusted(self.wanted.ask.manager, url)
        {
            return Ok(());
        }
        let detail = format!("{} is named without TLS and without a strong hash", shown(url));
        Err(Failure::new(FailureKind::Forbidden, detail))
    }

    async fn receive(&mut self, mut answer: Answer) -> Result<Phase, Failure> {
        let total = answer.header(CONTENT_LENGTH).and_then(|length| length.parse().ok());
        if total.is_some_and(|total| total > self.shared.cache.max_bytes()) {
            return Err(self.too_large());
        }
        let shared = Arc::clone(&self.shared);
        let (draft, file) = blocking(move || shared.cache.draft()).await.map_err(disk)?;
        let head = Arc::new(Head {
            file,
            total,
            last_modified: answer.header(LAST_MODIFIED).map(str::to_owned),
            etag: answer.header(ETAG).map(str::to_owned),
        });
        self.progress.send_modify(|progress| progress.phase = Phase::Coming(Arc::clone(&head)));
        let mut sink = Sink { head: Arc::clone(&head), hasher: Hasher::new(self.wanted.stated.as_ref()) };
        let mut unread_since = None;
        let mut pace = Pace::new(Instant::now());
        while let Some(batch) = next_batch(&mut answer).await? {
            let length = batch.iter().map(|bytes| bytes.len() as u64).sum();
            sink = self.write(sink, batch).await?;
            if !pace.is_kept(length, Instant::now()) {
                let detail = format!("{} comes too slowly", shown(&answer.url));
                return Err(Failure::new(FailureKind::TimedOut, detail));
            }
            self.check_readers(&mut unread_since)?;
        }
        self.keep(draft, sink).await?;
        Ok(Phase::Done(head))
    }

    async fn write(&mut self, mut sink: Sink, batch: Vec<Bytes>) -> Result<Sink, Failure> {
        let length: u64 = batch.iter().map(|bytes| bytes.len() as u64).sum();
        self.unfinished += length;
        let unfinished = self.shared.unfinished.fetch_add(length, Relaxed) + length;
        if self.unfinished > self.shared.cache.max_bytes() {
            return Err(self.too_large());
        }
        if unfinished > self.shared.cache.max_bytes() {
            return Err(Failure::new(
                FailureKind::Busy,
                "unfinished downloads take as much as the cache may",
            ));
        }
        let sink = blocking(move || {
            for bytes in batch {
                sink.hasher.update(&bytes);
                (&sink.head.file).write_all(&bytes)?;
            }
            Ok(sink)
        })
        .await
        .map_err(disk)?;
        self.progress.send_modify(|progress| progress.written += length);
        Ok(sink)
    }

    fn check_readers(&self, unread_since: &mut Option<Instant>) -> Result<(), Failure> {
        // The map holds one receiver.
        if self.progress.receiver_count() > 1 {
            *unread_since = None;
            return Ok(());
        }
        if unread_since.get_or_insert_with(Instant::now).elapsed() > LINGER {
            let detail = format!("{} was left by everybody who wanted it", shown(&self.wanted.ask.url));
            return Err(Failure::new(FailureKind::Busy, detail));
        }
        Ok(())
    }

    async fn keep(&self, draft: Draft, sink: Sink) -> Result<(), Failure> {
        let shared = Arc::clone(&self.shared);
        let stated = self.wanted.stated.clone();
        let link_key = sha256_of(&self.wanted).is_none().then(|| self.key.clone());
        let from = shown(&self.wanted.ask.url);
        let kept = tokio::task::spawn_blocking(move || {
            let (sha256, hex) = sink.hasher.finish();
            if let Some(failure) = mismatch(stated.as_ref(), &hex, &from) {
                shared.counters.count(|stats| stats.mismatches += 1);
                return Err(failure);
            }
            shared.cache.keep_blob(draft, &sink.head.file, &sha256).map_err(disk)?;
            if let Some(key) = link_key {
                let (etag, last_modified) = (sink.head.etag.clone(), sink.head.last_modified.clone());
                let link = Link { sha256, etag, last_modified, checked_at: now() };
                shared.cache.put_record(&key, &link).map_err(disk)?;
            }
            Ok(())
        });
        kept.await.map_err(|error| Failure::new(FailureKind::Disk, error.to_string()))?
    }

    /// Records that the link was checked just now.
    async fn touch(&self, etag: Option<String>) -> Result<(), Failure> {
        let shared = Arc::clone(&self.shared);
        let key = self.key.clone();
        blocking(move || {
            if let Some(link) = shared.cache.record::<Link>(&key)? {
                let link = Link { checked_at: now(), etag: etag.or(link.etag), ..link };
                shared.cache.put_record(&key, &link)?;
            }
            Ok(())
        })
        .await
        .map_err(disk)
    }

    fn too_large(&self) -> Failure {
        let detail = format!("{} is larger than the whole cache may be", shown(&self.wanted.ask.url));
        Failure::new(FailureKind::TooLarge, detail)
    }
}

/// Waits for a chunk, and takes further ones that are already there.
async fn next_batch(answer: &mut Answer) -> Result<Option<Vec<Bytes>>, Failure> {
    let Some(first) = answer.chunk().await? else { return Ok(None) };
    let mut size = first.len();
    let mut batch = vec![first];
    while size < BATCH_BYTES {
        match answer.chunk().now_or_never() {
            Some(Ok(Some(bytes))) => {
                size += bytes.len();
                batch.push(bytes);
            }
            Some(Err(failure)) => return Err(failure),
            // Nothing yet, or the end, which the next call sees again.
            Some(Ok(None)) | None => break,
        }
    }
    Ok(Some(batch))
}

fn mismatch(stated: Option<&Stated>, hex: &str, from: &str) -> Option<Failure> {
    let stated = stated.filter(|stated| stated.hex != hex)?;
    let detail = format!(
        "{from} is not what the index states: its {} is {hex} and not {}",
        stated.algorithm.name(),
        stated.hex
    );
    Some(Failure::new(FailureKind::Garbled, detail))
}

fn disk(error: std::io::Error) -> Failure {
    Failure::new(FailureKind::Disk, format!("the package cache: {error}"))
}

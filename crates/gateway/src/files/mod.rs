//! Files: from the cache, or while they come from the index, shared by everybody who wants the same one.

mod download;
mod pace;
mod range;
mod reply;

use std::{
    collections::HashMap,
    fs::File,
    sync::{Arc, Mutex, PoisonError, atomic::AtomicU64},
    time::Duration,
};

use hyper::{HeaderMap, Response};
use serde::{Deserialize, Serialize};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

use self::download::{Download, Head, Phase, Progress};
use crate::{
    cache::Cache,
    clients::Client,
    config::Manager,
    digest::{Algorithm, Stated},
    error::{Failure, FailureKind, Refusal},
    missing::Missing,
    pages::now,
    reply::{Body, blocking},
    stats::Counters,
    upstream::{Ask, Upstream},
};

/// Downloads at a time. Any more wait.
const MAX_DOWNLOADS: usize = 64;

/// A request of a client for one file.
#[derive(Debug, Clone)]
pub(crate) struct FileRequest {
    /// For sentences: "the file six-1.0.tar.gz".
    pub(crate) what: String,
    pub(crate) ask: Ask,
    pub(crate) stated: Option<Stated>,
    /// Whether the index is asked again for a file that is in the cache.
    pub(crate) change: Change,
    pub(crate) content_type: &'static str,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Change {
    /// The name identifies the content.
    Never,
    /// As with pages: a copy is used while it is fresh.
    Sometimes,
    /// The index is asked each time whether it changed.
    Often,
}

#[derive(Debug)]
pub(crate) struct Files {
    shared: Arc<Shared>,
    fresh_for: Duration,
    missing: Missing,
}

/// State that all downloads share.
#[derive(Debug)]
struct Shared {
    cache: Arc<Cache>,
    upstream: Arc<Upstream>,
    counters: Arc<Counters>,
    under_way: Mutex<HashMap<String, watch::Receiver<Progress>>>,
    places: Semaphore,
    /// Bytes on disk that are not yet a file of the cache.
    unfinished: AtomicU64,
}

/// The content behind an address, or behind a stated hash that is not a SHA-256.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Link {
    sha256: String,
    etag: Option<String>,
    last_modified: Option<String>,
    checked_at: u64,
}

/// A client's share of a download. The download outlives the client for a while, and counts as the client's for that
/// time.
#[derive(Debug)]
struct DownloadSlot {
    _permit: OwnedSemaphorePermit,
    /// Keeps the client's count alive, so that a client that comes back finds it as it was.
    _client: Arc<Client>,
}

#[derive(Debug)]
enum FileSource {
    Whole(Whole),
    Coming(Arc<Head>, watch::Receiver<Progress>),
}

#[derive(Debug)]
struct Whole {
    file: File,
    size: u64,
    sha256: String,
    link: Option<Link>,
}

impl Files {
    pub(crate) fn new(
        cache: Arc<Cache>,
        upstream: Arc<Upstream>,
        counters: Arc<Counters>,
        fresh_for: Duration,
    ) -> Self {
        let shared = Shared {
            cache,
            upstream,
            counters,
            under_way: Mutex::default(),
            places: Semaphore::new(MAX_DOWNLOADS),
            unfinished: AtomicU64::new(0),
        };
        Self { shared: Arc::new(shared), fresh_for, missing: Missing::default() }
    }

    /// The answer to a client whose request had these headers.
    pub(crate) async fn get(
        &self,
        client: &Arc<Client>,
        wanted: FileRequest,
        headers: &HeaderMap,
    ) -> Result<Response<Body>, Refusal> {
        let content_type = wanted.content_type;
        let counters = &self.shared.counters;
        match self.find(client, wanted, range::is_reload(headers)).await? {
            FileSource::Whole(whole) => Ok(reply::from_blob(whole, headers, content_type, counters)),
            FileSource::Coming(head, progress) => {
                Ok(reply::from_download(head, progress, content_type, counters))
            }
        }
    }

    async fn find(
        &self,
        client: &Arc<Client>,
        wanted: FileRequest,
        is_reload: bool,
    ) -> Result<FileSource, Refusal> {
        let key = key(&wanted);
        let Some(whole) = self.shared.look(&wanted, &key).await? else {
            if let Some(refusal) = self.missing.get(&key) {
                return Err(refusal);
            }
            return self.fetch(client, wanted, key, None).await;
        };
        let is_good = match wanted.change {
            Change::Never => !is_reload || whole.link.is_none(),
            Change::Sometimes => !is_reload && is_within(whole.link.as_ref(), self.fresh_for),
            Change::Often => false,
        };
        if is_good {
            return Ok(self.hit(whole));
        }
        if self.shared.upstream.is_away(&wanted.ask.url) {
            self.shared.counters.count(|stats| stats.stale += 1);
            return Ok(self.hit(whole));
        }
        self.fetch(client, wanted, key, Some(whole)).await
    }

    async fn fetch(
        &self,
        client: &Arc<Client>,
        mut wanted: FileRequest,
        key: String,
        old: Option<Whole>,
    ) -> Result<FileSource, Refusal> {
        if let Some(link) = old.as_ref().and_then(|whole| whole.link.as_ref()) {
            wanted.ask.etag.clone_from(&link.etag);
            wanted.ask.last_modified.clone_from(&link.last_modified);
        }
        let what = wanted.what.clone();
        // Before there is a download that others join: who waits for a place of its own must not keep them from the
        // file.
        let Ok(place) = Arc::clone(&client.downloads).acquire_owned().await else {
            return Err(Failure::new(FailureKind::Busy, "the gateway ends").told(&what));
        };
        let place = DownloadSlot { _permit: place, _client: Arc::clone(client) };
        let mut progress = self.shared.join(wanted, &key, place);
        let phase = match progress.wait_for(|progress| !matches!(progress.phase, Phase::Asking)).await {
            Ok(now) => now.phase.clone(),
            Err(_gone) => {
                Phase::Failed(Failure::new(FailureKind::Unreachable, "a download ended without a word"))
            }
        };
        match (phase, old) {
            (Phase::Coming(head) | Phase::Done(head), _) => {
                self.shared.counters.count(|stats| stats.misses += 1);
                Ok(FileSource::Coming(head, progress))
            }
            (Phase::Same, Some(whole)) => Ok(self.hit(whole)),
            (Phase::Failed(failure), Some(whole)) if failure.is_passing() => {
                self.shared.counters.failed(&failure.detail);
                self.shared.counters.count(|stats| stats.stale += 1);
                Ok(self.hit(whole))
            }
            (Phase::Failed(failure), _) => Err(self.failed(&key, &what, &failure)),
            (Phase::Same | Phase::Asking, _) => {
                let failure =
                    Failure::new(FailureKind::Garbled, format!("{what}: not modified, but we never had it"));
                Err(self.failed(&key, &what, &failure))
            }
        }
    }

    fn hit(&self, whole: Whole) -> FileSource {
        self.shared.counters.count(|stats| stats.hits += 1);
        FileSource::Whole(whole)
    }

    fn failed(&self, key: &str, what: &str, failure: &Failure) -> Refusal {
        let refusal = failure.told(what);
        if let FailureKind::Status(404 | 410) = failure.kind {
            self.missing.insert(key, &refusal);
        } else {
            self.shared.counters.note(failure);
        }
        refusal
    }
}

impl Shared {
    async fn look(self: &Arc<Self>, wanted: &FileRequest, key: &str) -> Result<Option<Whole>, Refusal> {
        let shared = Arc::clone(self);
        let direct = sha256_of(wanted).map(str::to_owned);
        let key = key.to_owned();
        blocking(move || {
            let (sha256, link) = match direct {
                Some(sha256) => (sha256, None),
                None => match shared.cache.record::<Link>(&key)? {
                    Some(link) => (link.sha256.clone(), Some(link)),
                    None => return Ok(None),
                },
            };
            Ok(shared.cache.blob(&sha256)?.map(|(file, size)| Whole { file, size, sha256, link }))
        })
        .await
        .map_err(|error| Refusal::disk(&self.counters, &error))
    }

    /// The download of this file: the one under way, or a new one.
    fn join(
        self: &Arc<Self>,
        wanted: FileRequest,
        key: &str,
        place: DownloadSlot,
    ) -> watch::Receiver<Progress> {
        let mut under_way = self.under_way.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(progress) = under_way.get(key) {
            return progress.clone();
        }
        let (download, progress) = Download::new(Arc::clone(self), wanted, key.to_owned(), place);
        under_way.insert(key.to_owned(), progress.clone());
        drop(under_way);
        tokio::spawn(download.run());
        progress
    }
}

/// A strong hash that a page states names the file wherever it comes from. With a weak hash or none, the name holds for
/// one address and one manager.
fn key(wanted: &FileRequest) -> String {
    let Ask { manager, url, .. } = &wanted.ask;
    match &wanted.stated {
        Some(stated) if stated.algorithm.is_strong() && is_by_page(wanted) => {
            format!("{}:{}", stated.algorithm.name(), stated.hex)
        }
        Some(stated) => format!("{manager:?} {}:{} {url}", stated.algorithm.name(), stated.hex),
        None => format!("{manager:?} url {url}"),
    }
}

/// Not with apt: there the client states the hash, and could name anything that others fetched.
fn is_by_page(wanted: &FileRequest) -> bool {
    wanted.ask.manager != Manager::Apt
}

fn sha256_of(wanted: &FileRequest) -> Option<&str> {
    wanted
        .stated
        .as_ref()
        .filter(|stated| stated.algorithm == Algorithm::Sha256 && is_by_page(wanted))
        .map(|stated| stated.hex.as_str())
}

fn is_within(link: Option<&Link>, max_age: Duration) -> bool {
    link.and_then(|link| now().checked_sub(link.checked_at))
        .is_some_and(|age| Duration::from_secs(age) < max_age)
}

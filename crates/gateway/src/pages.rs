//! Index pages: fetched, read once, kept in the forms in which clients get them, used while fresh or when the index is
//! away.

use std::{
    collections::HashMap,
    fs::File,
    io::{self, Read as _},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use flate2::read::MultiGzDecoder;
use hyper::{
    StatusCode,
    header::{CONTENT_ENCODING, CONTENT_TYPE, ETAG, LAST_MODIFIED},
};
use serde::{Deserialize, Serialize};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::timeout,
};
use url::Url;

use crate::{
    cache::Cache,
    clients::Client,
    config::shown,
    error::{Failure, FailureKind, Refusal},
    missing::Missing,
    reply::blocking,
    stats::Counters,
    table::{self, Named, Table},
    upstream::{Answer, Ask, Upstream},
};

/// Largest page that is taken, in bytes, after decompression. The largest on the public indexes are some twenty
/// megabytes.
const MAX_PAGE_BYTES: usize = 32 << 20;

/// Pages that are fetched at a time, and of those the ones that are read at a time: reading takes several times a
/// page's size.
const MAX_FETCHES: usize = 16;
const MAX_READERS: usize = 2;

/// The most memory that all pages that were fetched and not yet read may hold, in KiB, and how long one that grows
/// waits for room.
const MAX_HELD_KIB: usize = 128 << 10;
const ROOM_TIMEOUT: Duration = Duration::from_secs(10);

/// Lookups of a file in the table of a page, at a time. Each goes through the whole table.
const MAX_LOOKUPS: usize = 2;

#[derive(Debug)]
pub(crate) struct Pages {
    cache: Arc<Cache>,
    upstream: Arc<Upstream>,
    counters: Arc<Counters>,
    fresh_for: Duration,
    turns: Mutex<HashMap<String, Arc<tokio::sync::Mutex<()>>>>,
    missing: Missing,
    fetches: Semaphore,
    readers: Arc<Semaphore>,
    held_kib: Arc<Semaphore>,
    lookups: Arc<Semaphore>,
}

/// Which page, where it is, and how it is read.
pub(crate) struct PageRequest {
    pub(crate) key: String,
    /// For sentences: "the project six".
    pub(crate) what: String,
    pub(crate) ask: Ask,
    pub(crate) read: Reader,
}

pub(crate) type Reader = Box<dyn FnOnce(&Fetched) -> Result<Content, String> + Send>;

/// An answer of the index.
pub(crate) struct Fetched {
    pub(crate) body: Vec<u8>,
    pub(crate) content_type: String,
    pub(crate) url: Url,
}

/// The content of a page, in the forms in which clients get it.
#[derive(Debug, Default)]
pub(crate) struct Content {
    pub(crate) forms: Vec<Form>,
    pub(crate) files: Table,
}

#[derive(Debug)]
pub(crate) struct Form {
    pub(crate) name: &'static str,
    pub(crate) body: Vec<u8>,
    /// The offsets at which our own address is inserted.
    pub(crate) cuts: Vec<u64>,
}

/// A page in the cache.
#[derive(Debug, Serialize, Deserialize)]
struct Record {
    etag: Option<String>,
    last_modified: Option<String>,
    checked_at: u64,
    forms: Vec<KeptForm>,
    /// A blob: the [`Table`].
    files: String,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct KeptForm {
    name: String,
    blob: String,
    cuts: Vec<u64>,
}

/// A page whose files are open, so that an eviction takes nothing away.
#[derive(Debug)]
pub(crate) struct Page {
    record: Record,
    forms: Vec<(File, u64)>,
    files: File,
}

#[derive(Debug)]
pub(crate) struct OpenForm {
    pub(crate) file: File,
    pub(crate) size: u64,
    /// The content's name, for validators.
    pub(crate) sha256: String,
    pub(crate) cuts: Vec<u64>,
}

impl Page {
    pub(crate) fn form(self, name: &str) -> Option<OpenForm> {
        let number = self.record.forms.iter().position(|form| form.name == name)?;
        let kept = self.record.forms.into_iter().nth(number)?;
        let (file, size) = self.forms.into_iter().nth(number)?;
        Some(OpenForm { file, size, sha256: kept.blob, cuts: kept.cuts })
    }
}

impl Pages {
    pub(crate) fn new(
        cache: Arc<Cache>,
        upstream: Arc<Upstream>,
        counters: Arc<Counters>,
        fresh_for: Duration,
    ) -> Self {
        Self {
            cache,
            upstream,
            counters,
            fresh_for,
            turns: Mutex::default(),
            missing: Missing::default(),
            fetches: Semaphore::new(MAX_FETCHES),
            readers: Arc::new(Semaphore::new(MAX_READERS)),
            held_kib: Arc::new(Semaphore::new(MAX_HELD_KIB)),
            lookups: Arc::new(Semaphore::new(MAX_LOOKUPS)),
        }
    }

    /// A page for a client: not older than it may be, unless the index is away.
    pub(crate) async fn get(&self, client: &Client, wanted: PageRequest) -> Result<Page, Refusal> {
        self.get_within(client, wanted, self.fresh_for).await
    }

    /// A page in which a file is looked up. The client was given the file's name by it, so its age does not matter.
    pub(crate) async fn get_any_age(&self, client: &Client, wanted: PageRequest) -> Result<Page, Refusal> {
        self.get_within(client, wanted, Duration::MAX).await
    }

    /// A page of any age, if it is in the cache.
    pub(crate) async fn peek(&self, key: &str) -> Result<Option<Page>, Refusal> {
        self.load(key).await
    }

    /// The file of that name, if the page names it.
    pub(crate) async fn file(&self, page: Page, name: &str) -> io::Result<Option<Named>> {
        let place = Arc::clone(&self.lookups).acquire_owned().await;
        let name = name.to_owned();
        blocking(move || {
            // Held by the work itself, which goes on after its client has left.
            let _place = place;
            table::find(&page.files, &name)
        })
        .await
    }

    async fn get_within(
        &self,
        client: &Client,
        wanted: PageRequest,
        max_age: Duration,
    ) -> Result<Page, Refusal> {
        if let Some(page) = self.load(&wanted.key).await?.filter(|page| is_within(&page.record, max_age)) {
            self.hit(max_age);
            return Ok(page);
        }
        // Before the page's turn: a client that waits for its own limit must not keep others from the page.
        let patience = self.upstream.patience().page;
        let Ok(Ok(_place)) = timeout(patience, client.fetches.acquire()).await else {
            return Err(too_many_fetches().told(&wanted.what));
        };
        let key = wanted.key.clone();
        let turn = Arc::clone(
            self.turns.lock().unwrap_or_else(PoisonError::into_inner).entry(key.clone()).or_default(),
        );
        let holding = turn.lock().await;
        let outcome = self.get_in_turn(wanted, max_age).await;
        drop(holding);
        let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
        // One is the map's, one is ours: nobody else waits for this page.
        if Arc::strong_count(&turn) <= 2 {
            turns.remove(&key);
        }
        outcome
    }

    async fn get_in_turn(&self, wanted: PageRequest, max_age: Duration) -> Result<Page, Refusal> {
        let old = self.load(&wanted.key).await?;
        if let Some(page) = old {
            if is_within(&page.record, max_age) {
                self.hit(max_age);
                return Ok(page);
            }
            if self.upstream.is_away(&wanted.ask.url) {
                return Ok(self.stale(page));
            }
            return self.refresh(wanted, Some(page)).await;
        }
        if let Some(refusal) = self.missing.get(&wanted.key) {
            return Err(refusal);
        }
        self.refresh(wanted, None).await
    }

    async fn refresh(&self, mut wanted: PageRequest, old: Option<Page>) -> Result<Page, Refusal> {
        if let Some(page) = &old {
            wanted.ask.etag.clone_from(&page.record.etag);
            wanted.ask.last_modified.clone_from(&page.record.last_modified);
        }
        let (key, what) = (wanted.key.clone(), wanted.what.clone());
        match (self.fetch(wanted).await, old) {
            (Ok(Some(record)), _) => {
                self.counters.count(|stats| stats.misses += 1);
                self.store(&key, record).await
            }
            (Ok(None), Some(page)) => {
                self.counters.count(|stats| stats.hits += 1);
                let record = Record { checked_at: now(), ..page.record };
                self.store(&key, record).await
            }
            (Ok(None), None) => {
                let detail = format!("{what}: not modified, says the index, but we never had it");
                Err(self.failed(&key, &what, &Failure::new(FailureKind::Garbled, detail)))
            }
            (Err(failure), Some(page)) if failure.is_passing() => {
                self.counters.failed(&failure.detail);
                Ok(self.stale(page))
            }
            (Err(failure), _) => Err(self.failed(&key, &what, &failure)),
        }
    }

    fn failed(&self, key: &str, what: &str, failure: &Failure) -> Refusal {
        let refusal = failure.told(what);
        if let FailureKind::Status(404 | 410) = failure.kind {
            self.missing.insert(key, &refusal);
        } else {
            self.counters.note(failure);
        }
        refusal
    }

    /// A page in which a file is looked up is not what the client asked for.
    fn hit(&self, max_age: Duration) {
        if max_age != Duration::MAX {
            self.counters.count(|stats| stats.hits += 1);
        }
    }

    fn stale(&self, page: Page) -> Page {
        self.counters.count(|stats| stats.hits += 1);
        self.counters.count(|stats| stats.stale += 1);
        page
    }

    /// `None`: not modified.
    async fn fetch(&self, wanted: PageRequest) -> Result<Option<Record>, Failure> {
        let PageRequest { ask, read, .. } = wanted;
        let patience = self.upstream.patience();
        let Ok(Ok(_place)) = timeout(patience.page, self.fetches.acquire()).await else {
            return Err(too_many_fetches());
        };
        let mut answer = self.upstream.ask(&ask, patience.page).await?;
        match answer.status() {
            StatusCode::OK => {}
            StatusCode::NOT_MODIFIED => return Ok(None),
            status => {
                let detail = format!("{} answered {}", shown(&answer.url), status.as_u16());
                return Err(Failure::new(FailureKind::Status(status.as_u16()), detail));
            }
        }
        let (body, room) = self.body(&mut answer).await?;
        let encoding = answer.header(CONTENT_ENCODING).unwrap_or("identity").to_ascii_lowercase();
        let fetched = Fetched {
            body,
            content_type: answer.header(CONTENT_TYPE).unwrap_or_default().to_ascii_lowercase(),
            url: answer.url.clone(),
        };
        let etag = answer.header(ETAG).map(str::to_owned);
        let last_modified = answer.header(LAST_MODIFIED).map(str::to_owned);
        let (forms, files) = self.read(fetched, room, encoding, read).await?;
        Ok(Some(Record { etag, last_modified, checked_at: now(), forms, files }))
    }

    /// A whole body, and the room that it takes.
    async fn body(&self, answer: &mut Answer) -> Result<(Vec<u8>, Room), Failure> {
        let mut body = Vec::new();
        let mut room = Room::new();
        while let Some(chunk) = answer.chunk().await? {
            let size = body.len() + chunk.len();
            if size > MAX_PAGE_BYTES {
                let detail = format!("{} is larger than {MAX_PAGE_BYTES} bytes", shown(&answer.url));
                return Err(Failure::new(FailureKind::TooLarge, detail));
            }
            room.grow(&self.held_kib, size).await?;
            body.extend_from_slice(&chunk);
        }
        Ok((body, room))
    }

    async fn read(
        &self,
        mut fetched: Fetched,
        room: Room,
        encoding: String,
        read: Reader,
    ) -> Result<(Vec<KeptForm>, String), Failure> {
        // Never closed.
        let place = Arc::clone(&self.readers).acquire_owned().await;
        let cache = Arc::clone(&self.cache);
        let from = shown(&fetched.url);
        let work = move || {
            // Held by the work itself, which goes on after its client has left.
            let (_place, _room) = (place, room);
            fetched.body = decompressed(fetched.body, &encoding)?;
            let content = read(&fetched).map_err(|reason| garbled(format!("{from}: {reason}")))?;
            drop(fetched);
            put(&cache, content)
                .map_err(|error| Failure::new(FailureKind::Disk, format!("the cache: {error}")))
        };
        let done = tokio::task::spawn_blocking(work).await;
        done.map_err(|error| garbled(format!("reading a page: {error}")))?
    }

    async fn store(&self, key: &str, record: Record) -> Result<Page, Refusal> {
        let cache = Arc::clone(&self.cache);
        let key = key.to_owned();
        let stored = blocking(move || {
            cache.put_record(&key, &record)?;
            open(&cache, record)
        });
        match stored.await {
            Ok(Some(page)) => Ok(page),
            Ok(None) => Err(Refusal::disk(&self.counters, &io::Error::other("smaller than one page"))),
            Err(error) => Err(Refusal::disk(&self.counters, &error)),
        }
    }

    async fn load(&self, key: &str) -> Result<Option<Page>, Refusal> {
        let cache = Arc::clone(&self.cache);
        let key = key.to_owned();
        blocking(move || match cache.record::<Record>(&key)? {
            Some(record) => open(&cache, record),
            None => Ok(None),
        })
        .await
        .map_err(|error| Refusal::disk(&self.counters, &error))
    }
}

/// The share of [`MAX_HELD_KIB`] that one page takes.
struct Room {
    permits: Option<OwnedSemaphorePermit>,
}

impl Room {
    fn new() -> Self {
        Self { permits: None }
    }

    /// Pages that wait for each other's room do so for a bounded time, then one gives up.
    async fn grow(&mut self, held_kib: &Arc<Semaphore>, bytes: usize) -> Result<(), Failure> {
        let has = self.permits.as_ref().map_or(0, OwnedSemaphorePermit::num_permits);
        let missing = bytes.div_ceil(1 << 10).saturating_sub(has);
        if missing == 0 {
            return Ok(());
        }
        let full = || Failure::new(FailureKind::Busy, "the pages under way take all the memory they may");
        let missing = u32::try_from(missing).map_err(|_large: std::num::TryFromIntError| full())?;
        let waiting = timeout(ROOM_TIMEOUT, Arc::clone(held_kib).acquire_many_owned(missing)).await;
        let Ok(Ok(more)) = waiting else { return Err(full()) };
        match &mut self.permits {
            Some(permits) => permits.merge(more),
            None => self.permits = Some(more),
        }
        Ok(())
    }
}

fn too_many_fetches() -> Failure {
    Failure::new(FailureKind::Busy, "too many pages are fetched at a time")
}

/// `None` when a part of it was evicted.
fn open(cache: &Cache, record: Record) -> io::Result<Option<Page>> {
    let mut forms = Vec::new();
    for form in &record.forms {
        match cache.blob(&form.blob)? {
            Some(blob) => forms.push(blob),
            None => return Ok(None),
        }
    }
    let Some((files, _size)) = cache.blob(&record.files)? else { return Ok(None) };
    Ok(Some(Page { record, forms, files }))
}

fn put(cache: &Cache, content: Content) -> io::Result<(Vec<KeptForm>, String)> {
    let mut forms = Vec::new();
    for Form { name, body, cuts } in content.forms {
        forms.push(KeptForm { name: name.to_owned(), blob: cache.put_blob(&body)?, cuts });
    }
    let files = cache.put_blob(&serde_json::to_vec(&content.files)?)?;
    Ok((forms, files))
}

fn decompressed(body: Vec<u8>, encoding: &str) -> Result<Vec<u8>, Failure> {
    match encoding {
        "" | "identity" => Ok(body),
        "gzip" | "x-gzip" => {
            let mut out = Vec::new();
            let limit = MAX_PAGE_BYTES as u64 + 1;
            MultiGzDecoder::new(body.as_slice())
                .take(limit)
                .read_to_end(&mut out)
                .map_err(|error| garbled(format!("a page that cannot be decompressed: {error}")))?;
            if out.len() > MAX_PAGE_BYTES {
                return Err(Failure::new(FailureKind::TooLarge, "a page that swells past what is taken"));
            }
            Ok(out)
        }
        other => Err(garbled(format!("a page compressed in a way that was not asked for: {other:.40}"))),
    }
}

fn is_within(record: &Record, max_age: Duration) -> bool {
    // A time in the future means that the clock was set back, so the page's age is unknown.
    max_age == Duration::MAX
        || now().checked_sub(record.checked_at).is_some_and(|age| Duration::from_secs(age) < max_age)
}

/// Seconds since 1970.
pub(crate) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

fn garbled(detail: String) -> Failure {
    Failure::new(FailureKind::Garbled, detail)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use flate2::{Compression, write::GzEncoder};
    use futures_util::FutureExt as _;

    use super::*;

    fn gzipped(pieces: usize) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        let piece = vec![b' '; 1 << 20];
        for _ in 0..pieces {
            encoder.write_all(&piece).unwrap();
        }
        encoder.finish().unwrap()
    }

    fn pages(home: &std::path::Path) -> Pages {
        let counters = Arc::new(Counters::default());
        let config = crate::GatewayConfig::new(home);
        let upstream = Arc::new(Upstream::new(&config, Arc::clone(&counters)).unwrap());
        let cache = Arc::new(Cache::open(home, 1 << 30).unwrap());
        Pages::new(cache, upstream, counters, Duration::MAX)
    }

    #[test]
    fn many_lookups_in_a_large_page_take_their_turns() {
        // With one thread for the disk, work that we queue is done after all that was queued before.
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().max_blocking_threads(1).build();
        runtime.unwrap().block_on(async {
            let home = tempfile::tempdir().unwrap();
            let pages = pages(home.path());
            let named =
                |number| Named { url: format!("http://a.example/{number}").parse().unwrap(), stated: None };
            let files = (0..20_000).map(|number| (format!("huge-{number}.zip"), named(number))).collect();
            let (forms, files) = put(&pages.cache, Content { forms: Vec::new(), files }).unwrap();
            let record = Record { etag: None, last_modified: None, checked_at: now(), forms, files };
            pages.store("huge", record).await.unwrap();

            let names: Vec<_> = (0..32).map(|number| format!("huge-{number}.zip")).collect();
            let mut looks = Vec::new();
            for name in &names {
                let page = pages.peek("huge").await.unwrap().unwrap();
                looks.push(Box::pin(pages.file(page, name)));
            }
            let taken = pages.lookups.acquire_many(u32::try_from(MAX_LOOKUPS).unwrap()).await.unwrap();
            for look in &mut looks {
                assert!(look.now_or_never().is_none());
            }
            blocking(|| Ok(())).await.unwrap();
            for look in &mut looks {
                assert!(look.now_or_never().is_none(), "looked up without a place");
            }
            drop(taken);
            for (number, found) in futures_util::future::join_all(looks).await.into_iter().enumerate() {
                assert_eq!(found.unwrap(), Some(named(number)));
            }
            assert_eq!(pages.lookups.available_permits(), MAX_LOOKUPS, "all of them come back");
        });
    }

    #[tokio::test(start_paused = true)]
    async fn pages_under_way_share_one_room() {
        let held = Arc::new(Semaphore::new(MAX_HELD_KIB));
        let mut rooms = Vec::new();
        for _ in 0..MAX_HELD_KIB / (MAX_PAGE_BYTES >> 10) {
            let mut room = Room::new();
            room.grow(&held, 1).await.unwrap();
            room.grow(&held, MAX_PAGE_BYTES).await.unwrap();
            rooms.push(room);
        }
        let mut late = Room::new();
        assert_eq!(late.grow(&held, 1).await.unwrap_err().kind, FailureKind::Busy);
        rooms.pop();
        late.grow(&held, MAX_PAGE_BYTES).await.unwrap();
        drop((rooms, late));
        assert_eq!(held.available_permits(), MAX_HELD_KIB, "all of it comes back");
    }

    #[test]
    fn pages_come_out_of_their_compression() {
        assert_eq!(decompressed(gzipped(1), "gzip").unwrap(), vec![b' '; 1 << 20]);
        assert_eq!(decompressed(b"as it is".to_vec(), "").unwrap(), b"as it is");
    }

    #[test]
    fn a_bomb_does_not_go_off() {
        let bomb = gzipped(MAX_PAGE_BYTES / (1 << 20) + 1);
        assert!(bomb.len() < 1 << 20, "or it is no bomb");
        assert_eq!(decompressed(bomb, "gzip").unwrap_err().kind, FailureKind::TooLarge);
        assert_eq!(decompressed(b"no gzip".to_vec(), "gzip").unwrap_err().kind, FailureKind::Garbled);
        assert_eq!(decompressed(vec![], "br").unwrap_err().kind, FailureKind::Garbled);
    }
}

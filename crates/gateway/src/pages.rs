//! Index pages: fetched, read once, kept in the forms in which clients get them, used while fresh or when the index is away.

use std::{
    borrow::Cow,
    collections::{BTreeMap, HashMap},
    fmt,
    fs::File,
    io::{self, Read as _},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use flate2::read::MultiGzDecoder;
use hyper::{
    StatusCode,
    header::{CONTENT_ENCODING, CONTENT_TYPE, ETAG, LAST_MODIFIED},
};
use serde::{
    Deserialize, Deserializer, Serialize,
    de::{DeserializeSeed, IgnoredAny, MapAccess, Visitor},
};
use tokio::sync::Semaphore;
use url::Url;

use crate::{
    cache::{self, Cache},
    config::shown,
    digest::Stated,
    error::{Failure, FailureKind, Refusal},
    reply::blocking,
    stats::{self, Counters},
    upstream::{Ask, Upstream},
};

/// Largest page that is taken, in bytes, after decompression. The largest on the public indexes are some ten megabytes.
const MAX_PAGE_BYTES: usize = 64 << 20;

/// Pages that are fetched at a time, and of those the ones that are read at a time: reading takes several times a page's size.
const MAX_FETCHES: usize = 16;
const MAX_READERS: usize = 2;

/// How long "not there" is remembered, and of how many pages.
const MISSING_FOR: Duration = Duration::from_secs(20);
const MAX_MISSING: usize = 1024;

#[derive(Debug)]
pub(crate) struct Pages {
    cache: Arc<Cache>,
    upstream: Arc<Upstream>,
    counters: Arc<Counters>,
    fresh_for: Duration,
    turns: Mutex<HashMap<String, Arc<tokio::sync::Mutex<()>>>>,
    missing: Mutex<HashMap<String, (Instant, Refusal)>>,
    fetches: Semaphore,
    readers: Arc<Semaphore>,
}

/// Which page, where it is, and how it is read.
pub(crate) struct Wanted {
    pub(crate) key: String,
    /// For sentences: "the project six".
    pub(crate) what: String,
    pub(crate) ask: Ask,
    pub(crate) read: Reader,
}

pub(crate) type Reader = Box<dyn FnOnce(&Fetched) -> Result<Content, String> + Send>;

/// What came from the index.
pub(crate) struct Fetched {
    pub(crate) body: Vec<u8>,
    pub(crate) content_type: String,
    pub(crate) url: Url,
}

/// What a page says, and how clients are told.
#[derive(Debug, Default)]
pub(crate) struct Content {
    pub(crate) forms: Vec<Form>,
    pub(crate) files: Table,
}

#[derive(Debug)]
pub(crate) struct Form {
    pub(crate) name: &'static str,
    pub(crate) body: Vec<u8>,
    /// Where our own address is to be put in.
    pub(crate) cuts: Vec<u64>,
}

/// The files that a page names, by the name that they have with us.
pub(crate) type Table = BTreeMap<String, Named>;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Named {
    pub(crate) url: Url,
    pub(crate) stated: Option<Stated>,
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

/// A page at hand. The forms are open, so that an eviction takes nothing away.
#[derive(Debug)]
pub(crate) struct Page {
    record: Record,
    forms: Vec<(File, u64)>,
    files: (File, u64),
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

    /// The file of that name, if the page names it.
    pub(crate) async fn file(self, name: &str) -> io::Result<Option<Named>> {
        let name = name.to_owned();
        blocking(move || {
            let (file, size) = &self.files;
            let table = cache::read_whole(file, *size)?;
            Ok(Lookup { name: &name }.deserialize(&mut serde_json::Deserializer::from_slice(&table))?)
        })
        .await
    }
}

/// Finds one file in a [`Table`] without building the table: those of large projects have ten thousand entries.
struct Lookup<'a> {
    name: &'a str,
}

impl<'de> DeserializeSeed<'de> for Lookup<'_> {
    type Value = Option<Named>;

    fn deserialize<D: Deserializer<'de>>(self, table: D) -> Result<Self::Value, D::Error> {
        table.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Lookup<'_> {
    type Value = Option<Named>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a table of files")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut found = None;
        while let Some(name) = map.next_key::<Cow<'_, str>>()? {
            if name == self.name {
                found = Some(map.next_value()?);
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(found)
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
            missing: Mutex::default(),
            fetches: Semaphore::new(MAX_FETCHES),
            readers: Arc::new(Semaphore::new(MAX_READERS)),
        }
    }

    /// A page for a client: not older than it may be, unless the index is away.
    pub(crate) async fn get(&self, wanted: Wanted) -> Result<Page, Refusal> {
        self.get_within(wanted, self.fresh_for).await
    }

    /// A page in which a file is looked up. The client was given the file's name by it, so its age does not matter.
    pub(crate) async fn get_any_age(&self, wanted: Wanted) -> Result<Page, Refusal> {
        self.get_within(wanted, Duration::MAX).await
    }

    /// A page of any age, if it is in the cache.
    pub(crate) async fn peek(&self, key: &str) -> Result<Option<Page>, Refusal> {
        self.load(key).await
    }

    async fn get_within(&self, wanted: Wanted, max_age: Duration) -> Result<Page, Refusal> {
        if let Some(page) = self.load(&wanted.key).await?.filter(|page| is_within(&page.record, max_age)) {
            self.hit(max_age);
            return Ok(page);
        }
        let key = wanted.key.clone();
        let turn = Arc::clone(
            self.turns.lock().unwrap_or_else(PoisonError::into_inner).entry(key.clone()).or_default(),
        );
        let holding = turn.lock().await;
        let outcome = self.get_in_turn(wanted, max_age).await;
        drop(holding);
        let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
        // The map's and ours: nobody else waits for this page.
        if Arc::strong_count(&turn) <= 2 {
            turns.remove(&key);
        }
        outcome
    }

    async fn get_in_turn(&self, wanted: Wanted, max_age: Duration) -> Result<Page, Refusal> {
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
        if let Some(refusal) = self.known_missing(&wanted.key) {
            return Err(refusal);
        }
        self.refresh(wanted, None).await
    }

    async fn refresh(&self, mut wanted: Wanted, old: Option<Page>) -> Result<Page, Refusal> {
        if let Some(page) = &old {
            wanted.ask.etag.clone_from(&page.record.etag);
            wanted.ask.last_modified.clone_from(&page.record.last_modified);
        }
        let (key, what) = (wanted.key.clone(), wanted.what.clone());
        match (self.fetch(wanted).await, old) {
            (Ok(Some(record)), _) => {
                stats::add(&self.counters.misses, 1);
                self.store(&key, record).await
            }
            (Ok(None), Some(page)) => {
                stats::add(&self.counters.hits, 1);
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
            let mut missing = self.missing.lock().unwrap_or_else(PoisonError::into_inner);
            missing.retain(|_, (since, _)| since.elapsed() < MISSING_FOR);
            if missing.len() < MAX_MISSING {
                missing.insert(key.to_owned(), (Instant::now(), refusal.clone()));
            }
        } else {
            self.counters.failed(&failure.detail);
        }
        refusal
    }

    fn known_missing(&self, key: &str) -> Option<Refusal> {
        let missing = self.missing.lock().unwrap_or_else(PoisonError::into_inner);
        missing
            .get(key)
            .filter(|(since, _)| since.elapsed() < MISSING_FOR)
            .map(|(_, refusal)| refusal.clone())
    }

    /// A page in which a file is looked up is not what the client asked for.
    fn hit(&self, max_age: Duration) {
        if max_age != Duration::MAX {
            stats::add(&self.counters.hits, 1);
        }
    }

    fn stale(&self, page: Page) -> Page {
        stats::add(&self.counters.hits, 1);
        stats::add(&self.counters.stale, 1);
        page
    }

    /// `None`: not modified.
    async fn fetch(&self, wanted: Wanted) -> Result<Option<Record>, Failure> {
        let Wanted { ask, read, .. } = wanted;
        let patience = self.upstream.patience();
        let waiting = tokio::time::timeout(patience.page, self.fetches.acquire()).await;
        let Ok(Ok(_place)) = waiting else {
            return Err(Failure::new(FailureKind::Busy, "too many pages are fetched at a time"));
        };
        let mut answer = self.upstream.ask(&ask, patience.page).await?;
        match answer.status {
            StatusCode::OK => {}
            StatusCode::NOT_MODIFIED => {
                self.upstream.done(answer);
                return Ok(None);
            }
            status => {
                let detail = format!("{} answered {}", shown(&answer.url), status.as_u16());
                return Err(Failure::new(FailureKind::Status(status.as_u16()), detail));
            }
        }
        let body = answer.read(MAX_PAGE_BYTES).await?;
        let encoding = answer.header(CONTENT_ENCODING).unwrap_or("identity").to_ascii_lowercase();
        let fetched = Fetched {
            body,
            content_type: answer.header(CONTENT_TYPE).unwrap_or_default().to_ascii_lowercase(),
            url: answer.url.clone(),
        };
        let etag = answer.header(ETAG).map(str::to_owned);
        let last_modified = answer.header(LAST_MODIFIED).map(str::to_owned);
        self.upstream.done(answer);
        let (forms, files) = self.read(fetched, encoding, read).await?;
        Ok(Some(Record { etag, last_modified, checked_at: now(), forms, files }))
    }

    async fn read(
        &self,
        mut fetched: Fetched,
        encoding: String,
        read: Reader,
    ) -> Result<(Vec<KeptForm>, String), Failure> {
        // Never closed.
        let _place = Arc::clone(&self.readers).acquire_owned().await;
        let cache = Arc::clone(&self.cache);
        let from = shown(&fetched.url);
        let work = move || {
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

/// `None` when a part of it was evicted.
fn open(cache: &Cache, record: Record) -> io::Result<Option<Page>> {
    let mut forms = Vec::new();
    for form in &record.forms {
        match cache.blob(&form.blob)? {
            Some(blob) => forms.push(blob),
            None => return Ok(None),
        }
    }
    let Some(files) = cache.blob(&record.files)? else { return Ok(None) };
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
    // From the future: the clock was set back, and nothing is known of the page's age.
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

    use super::*;

    fn gzipped(pieces: usize) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        let piece = vec![b' '; 1 << 20];
        for _ in 0..pieces {
            encoder.write_all(&piece).unwrap();
        }
        encoder.finish().unwrap()
    }

    #[test]
    fn one_file_is_found_among_many() {
        let named = |url: &str| Named { url: url.parse().unwrap(), stated: None };
        let table: Table = [("a \"b\"", "http://a.example/"), ("c", "http://c.example/")]
            .map(|(name, url)| (name.to_owned(), named(url)))
            .into();
        let text = serde_json::to_vec(&table).unwrap();
        let look =
            |name| Lookup { name }.deserialize(&mut serde_json::Deserializer::from_slice(&text)).unwrap();
        assert_eq!(look("a \"b\""), Some(named("http://a.example/")));
        assert_eq!(look("c"), Some(named("http://c.example/")));
        assert_eq!(look("d"), None);
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

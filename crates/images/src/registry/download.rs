//! One layer from a registry into a file, through broken connections.

use std::{
    any::Any,
    fs::File,
    io::{self, Read as _, Seek as _, SeekFrom, Write as _},
    path::Path,
    sync::Arc,
    time::Duration,
};

use futures_util::FutureExt as _;
use reqwest::{Response, StatusCode, header::CONTENT_RANGE};
use tokio::{sync::mpsc, task::JoinHandle};

use super::{Endpoint, OnRetry, Session, client, wait_after};
use crate::{
    blocking::blocking,
    digest::{Digest, Hasher},
    error::{Error, Result},
};

/// Chunks queued between the network and the disk.
const QUEUE: usize = 64;
/// How much is read at a time when an older part is hashed again.
const READ_BYTES: usize = 256 * 1024;
/// An attempt that brought less than this brought nothing: a registry cannot keep us asking by handing out single
/// bytes.
const PROGRESS_BYTES: u64 = 64 * 1024;
/// The slowest registry that is worth waiting for. The idle timeout alone would wait a year for one that sends a byte a
/// minute.
const SLOWEST_BYTES_PER_SECOND: u64 = 8 * 1024;

/// The part of a blob that is on disk already.
#[derive(Debug)]
struct Part {
    file: File,
    hasher: Hasher,
    /// Lives as long as anybody may still write to the file, which is longer than a download that is given up.
    _held: Held,
}

/// A guard that keeps others from the file.
pub(crate) type Held = Arc<dyn Any + Send + Sync>;

impl Part {
    /// Resumes the part that an earlier attempt left, or begins a new one.
    fn open(path: &Path, size: u64, held: Held) -> Result<Self> {
        let mut file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)
            .map_err(Error::io("open", path))?;
        let mut hasher = Hasher::default();
        let mut buffer = vec![0; READ_BYTES];
        loop {
            let read = file.read(&mut buffer).map_err(Error::io("read", path))?;
            if read == 0 {
                break;
            }
            hasher.update(&buffer[..read]);
        }
        let mut part = Self { file, hasher, _held: held };
        if part.hasher.bytes() > size {
            part.restart().map_err(Error::io("empty", path))?;
        }
        Ok(part)
    }

    fn restart(&mut self) -> io::Result<()> {
        self.hasher = Hasher::default();
        self.file.set_len(0)?;
        self.file.seek(SeekFrom::Start(0)).map(drop)
    }
}

/// A blob, and where it goes.
pub(crate) struct BlobDownload<'a> {
    pub(crate) digest: &'a Digest,
    pub(crate) size: u64,
    pub(crate) path: &'a Path,
    pub(crate) held: Held,
    /// Called with the number of bytes so far.
    pub(crate) on_bytes: &'a (dyn Fn(u64) + Send + Sync),
    pub(crate) on_retry: OnRetry<'a>,
}

impl Session {
    /// Downloads and verifies a blob. After a failure that may pass, the file keeps what came, for the next time; after
    /// any other it is removed.
    pub(crate) async fn blob(&self, wanted: &BlobDownload<'_>) -> Result<()> {
        let result = self.at_each_endpoint(|endpoint| self.blob_at(endpoint, wanted).boxed()).await;
        if let Err(error) = &result
            && !error.is_retryable()
        {
            let _the_first_error_counts = tokio::fs::remove_file(wanted.path).await;
        }
        result
    }

    async fn blob_at(&self, endpoint: &Endpoint, wanted: &BlobDownload<'_>) -> Result<()> {
        let (path, size, held) = (wanted.path.to_owned(), wanted.size, Arc::clone(&wanted.held));
        let mut part = blocking(move || Part::open(&path, size, held)).await?;
        let mut was_begun = part.hasher.bytes() > 0;
        loop {
            part = self.rest_of_blob(endpoint, wanted, part).await?;
            let got = part.hasher.clone().finish();
            if *wanted.digest == got {
                return Ok(());
            }
            // There is nothing to resume: the next attempt begins anew.
            part.restart().map_err(Error::io("empty", wanted.path))?;
            if !was_begun {
                return wanted.digest.expect(&got, self.describe(endpoint, "blobs", wanted.digest.as_str()));
            }
            // The beginning came from an earlier attempt, and may be what is wrong.
            was_begun = false;
        }
    }

    /// Asks again as long as that brings something new.
    async fn rest_of_blob(
        &self,
        endpoint: &Endpoint,
        wanted: &BlobDownload<'_>,
        mut part: Part,
    ) -> Result<Part> {
        let mut attempt = 1;
        while part.hasher.bytes() < wanted.size {
            let before = part.hasher.bytes();
            let error;
            (part, error) = self.attempt(endpoint, wanted, part).await?;
            let Some(error) = error else { continue };
            if part.hasher.bytes() >= before + PROGRESS_BYTES {
                attempt = 1;
            }
            let Some(wait) = wait_after(&error, attempt, &self.options.retry) else { return Err(error) };
            (wanted.on_retry)(wait, &error);
            tokio::time::sleep(wait).await;
            attempt += 1;
        }
        Ok(part)
    }

    /// Asks once for what is missing. The outer error is about our disk; the inner one about the registry.
    async fn attempt(
        &self,
        endpoint: &Endpoint,
        wanted: &BlobDownload<'_>,
        mut part: Part,
    ) -> Result<(Part, Option<Error>)> {
        let from = part.hasher.bytes();
        let answer = self.get(endpoint, "blobs", wanted.digest.as_str(), (from > 0).then_some(from)).await;
        let response = match answer {
            Ok(response) => response,
            Err(error) => return Ok((part, Some(error))),
        };
        let start = match begins_at(&response, from, wanted.size) {
            Some(start) => start,
            // It does not serve this range, so it is asked for the whole blob.
            None if from > 0 && is_about_range(response.status()) => {
                part.restart().map_err(Error::io("empty", wanted.path))?;
                return Ok((part, None));
            }
            None => {
                let what = self.describe(endpoint, "blobs", wanted.digest.as_str());
                return Ok((part, Some(client::refused(&what, &response))));
            }
        };
        if start != from {
            part.restart().map_err(Error::io("empty", wanted.path))?;
        }
        self.receive(endpoint, wanted, response, part).await
    }

    async fn receive(
        &self,
        endpoint: &Endpoint,
        wanted: &BlobDownload<'_>,
        mut response: Response,
        part: Part,
    ) -> Result<(Part, Option<Error>)> {
        let what = self.describe(endpoint, "blobs", wanted.digest.as_str());
        let size = wanted.size;
        let mut had = part.hasher.bytes();
        let limit = self.timeouts().request + Duration::from_secs((size - had) / SLOWEST_BYTES_PER_SECOND);
        let deadline = tokio::time::Instant::now() + limit;
        let (queue, writer) = write_behind(part, wanted.path);
        let failure = loop {
            let chunk = match tokio::time::timeout_at(deadline, response.chunk()).await {
                Err(_elapsed) => break Some(Error::TimedOut { what: what.clone(), after: limit }),
                Ok(Err(error)) => break Some(client::failed(&what, error, self.timeouts().idle)),
                Ok(Ok(None)) if had < size => {
                    break Some(Error::corrupt(&what, format!("{size} bytes"), had.to_string()));
                }
                Ok(Ok(None)) => break None,
                Ok(Ok(Some(chunk))) => chunk,
            };
            had += chunk.len() as u64;
            if had > size {
                break Some(Error::corrupt(&what, format!("{size} bytes"), "more"));
            }
            (wanted.on_bytes)(had);
            if queue.send(chunk).await.is_err() {
                // The disk failed; the writer reports how.
                break None;
            }
        };
        drop(queue);
        let part =
            writer.await.map_err(|error| Error::invalid(format!("the writer of {what} died: {error}")))??;
        Ok((part, failure))
    }
}

fn is_about_range(status: StatusCode) -> bool {
    matches!(status, StatusCode::PARTIAL_CONTENT | StatusCode::RANGE_NOT_SATISFIABLE)
}

/// Where the answer's body begins in the blob; `None` when it is no part of it.
fn begins_at(response: &Response, from: u64, size: u64) -> Option<u64> {
    match response.status() {
        StatusCode::OK => Some(0),
        StatusCode::PARTIAL_CONTENT => {
            let range = response.headers().get(CONTENT_RANGE)?.to_str().ok()?;
            let (range, total) = range.strip_prefix("bytes ")?.split_once('/')?;
            let start: u64 = range.split_once('-')?.0.parse().ok()?;
            (start == from && (total == "*" || total.parse() == Ok(size))).then_some(start)
        }
        _ => None,
    }
}

/// Hashes and writes on a thread of its own, while the next bytes come.
fn write_behind<B>(mut part: Part, path: &Path) -> (mpsc::Sender<B>, JoinHandle<Result<Part>>)
where
    B: AsRef<[u8]> + Send + 'static,
{
    let (queue, mut chunks) = mpsc::channel::<B>(QUEUE);
    let path = path.to_owned();
    let writer = tokio::task::spawn_blocking(move || {
        while let Some(chunk) = chunks.blocking_recv() {
            part.file.write_all(chunk.as_ref()).map_err(Error::io("write", &path))?;
            part.hasher.update(chunk.as_ref());
        }
        Ok(part)
    });
    (queue, writer)
}

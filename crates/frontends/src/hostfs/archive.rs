//! Archives on the host, for what is not copied into a sandbox: read and written by descriptor too.

use std::{
    io::{self, BufWriter, Read, Write},
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use bytes::Bytes;
use engine::ByteStream;
use futures_util::{StreamExt as _, stream};
use rustix::io::Errno;
use sandbox::{Error, ErrorKind, Result};

use super::{
    CHUNK_BYTES, HostCaller,
    copy::{Source, Tally, blocking, find},
    place::{Access, failed},
    sink::{self, Draft, Top},
    source::{self, Opened, Stop},
};
use crate::pipe::{self, PipeReader};

/// Names that one listing takes.
const MAX_NAMES: usize = 10_000;

impl Source {
    /// Its absolute path, for people.
    pub(crate) fn shown(&self) -> String {
        self.shown.to_string_lossy().into_owned()
    }

    pub(crate) fn is_directory(&self) -> bool {
        matches!(self.opened, Opened::Directory(_))
    }

    /// Names of what is in a directory, at most [`MAX_NAMES`], sorted.
    pub(crate) async fn names(&self) -> Result<Vec<String>> {
        let Opened::Directory(directory) = &self.opened else {
            return Err(failed("list", &self.shown, Errno::NOTDIR));
        };
        let shown = self.shown.clone();
        let entries = rustix::fs::Dir::read_from(directory).map_err(|error| failed("list", &shown, error))?;
        blocking(move || {
            let mut names = Vec::new();
            for entry in entries.take(MAX_NAMES) {
                let entry = entry.map_err(|error| failed("list", &shown, error))?;
                // What is no text cannot be named by a caller either.
                names.extend(entry.file_name().to_str().ok().map(str::to_owned));
            }
            names.sort_unstable();
            Ok(names)
        })
        .await
    }

    /// A file's bytes; of a directory all that is beneath it, as a tar. Blocks.
    pub(crate) fn into_reader(self) -> Box<dyn Read + Send> {
        let directory = match self.opened {
            Opened::File { file, .. } => return Box::new(file),
            Opened::Directory(directory) => directory,
        };
        let (pieces, received) = pipe::pieces();
        tokio::task::spawn_blocking(move || {
            let end = match source::send_tree(directory, &self.shown, pieces.clone(), Tally::default()) {
                Ok(_) => Ok(Bytes::new()),
                Err(Stop::Gone) => return,
                Err(Stop::Failed(error)) => Err(Error::new(ErrorKind::Unavailable, error.to_string())),
            };
            pieces.blocking_send(end).unwrap_or(());
        });
        Box::new(PipeReader::new(received))
    }

    /// The same for who does not block.
    pub(crate) fn into_stream(self) -> ByteStream {
        let (pieces, received) = pipe::pieces();
        tokio::task::spawn_blocking(move || {
            let sent = match self.opened {
                Opened::File { mut file, .. } => {
                    source::send_file(&mut file, &self.shown, &pieces, &mut Tally::default())
                }
                Opened::Directory(directory) => {
                    source::send_tree(directory, &self.shown, pieces.clone(), Tally::default()).map(drop)
                }
            };
            if let Err(Stop::Failed(error)) = sent {
                let broken = Error::new(ErrorKind::Unavailable, error.to_string());
                pieces.blocking_send(Err(broken)).unwrap_or(());
            }
        });
        stream::unfold(received, |mut received| async {
            received.recv().await.map(|piece| (piece, received))
        })
        .boxed()
    }
}

/// A file of the host that is being written beside its place. Dropped before [`NewFile::commit`] it is gone, whoever still
/// writes to it.
#[derive(Debug)]
pub(crate) struct NewFile {
    shown: PathBuf,
    shared: Arc<Mutex<Writing>>,
}

#[derive(Debug)]
struct Writing {
    draft: Option<Draft>,
    n_bytes: u64,
}

impl NewFile {
    /// Missing directories are made.
    pub(crate) async fn begin(caller: impl Into<HostCaller<'_>>, path: &str, mode: u32) -> Result<Self> {
        let caller = caller.into();
        let (shown, place) = find(caller, path, Access::Write).await?;
        let at = shown.clone();
        let draft = blocking(move || {
            let told = |error| failed("write", &at, error);
            let directory = sink::begin(&place, Top::File).map_err(told)?;
            let name = at.file_name().ok_or_else(|| told(Errno::ISDIR))?.to_owned();
            Draft::begin(Arc::new(directory), name, mode).map_err(told)
        })
        .await
        .map_err(|error| caller.how_to_allow(error))?;
        Ok(Self { shown, shared: Arc::new(Mutex::new(Writing { draft: Some(draft), n_bytes: 0 })) })
    }

    pub(crate) fn writer(&self) -> impl Write + Send + 'static {
        BufWriter::with_capacity(CHUNK_BYTES, Writer { shared: Arc::clone(&self.shared) })
    }

    /// Puts it into its place. Returns its path and its length.
    pub(crate) async fn commit(self) -> Result<(String, u64)> {
        let (draft, n_bytes) = {
            let mut writing = lock(&self.shared);
            (writing.draft.take(), writing.n_bytes)
        };
        let shown = self.shown.clone();
        blocking(move || {
            let draft = draft.ok_or_else(|| failed("write", &shown, Errno::IO))?;
            draft.commit().map_err(|error| failed("write", &shown, error))
        })
        .await?;
        Ok((self.shown.to_string_lossy().into_owned(), n_bytes))
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        lock(&self.shared).draft = None;
    }
}

struct Writer {
    shared: Arc<Mutex<Writing>>,
}

impl Write for Writer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut writing = lock(&self.shared);
        let draft = writing.draft.as_mut().ok_or(io::ErrorKind::BrokenPipe)?;
        draft.write(bytes)?;
        writing.n_bytes += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn lock(shared: &Mutex<Writing>) -> MutexGuard<'_, Writing> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

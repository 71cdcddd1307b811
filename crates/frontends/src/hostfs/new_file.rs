//! An archive that is written to the host.

use std::{
    io::{self, BufWriter, Write},
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use hostfiles::Draft;
use rustix::io::Errno;
use sandbox::Result;

use super::{
    HostCaller,
    copy::{blocking, locate},
    error::{failed, worded},
    location::Access,
};

/// The bytes gathered before they are written.
const BUFFER_BYTES: usize = 128 * 1024;

/// A file of the host that is being written beside its place. Dropped before [`NewFile::commit`] it is gone, whoever
/// still writes to it.
#[derive(Debug)]
pub(crate) struct NewFile {
    shown: PathBuf,
    draft: Shared,
}

type Shared = Arc<Mutex<Option<Draft>>>;

impl NewFile {
    /// Missing directories are made.
    pub(crate) async fn begin(caller: impl Into<HostCaller<'_>>, path: &str, mode: u32) -> Result<Self> {
        let caller = caller.into();
        let location = locate(caller, path, Access::Write).await?;
        let shown = location.shown.clone();
        let draft = blocking(move || location.begin_file(mode)).await;
        let draft = draft.map_err(|error| caller.how_to_allow(error))?;
        Ok(Self { shown, draft: Arc::new(Mutex::new(Some(draft))) })
    }

    pub(crate) fn writer(&self) -> impl Write + Send + 'static {
        BufWriter::with_capacity(BUFFER_BYTES, Writer(Arc::clone(&self.draft)))
    }

    /// Puts it into its place. Returns its path and its length.
    pub(crate) async fn commit(self) -> Result<(String, u64)> {
        let draft = lock(&self.draft).take().ok_or_else(|| failed("write", &self.shown, Errno::IO))?;
        let n_bytes = draft.n_bytes();
        blocking(move || draft.commit().map_err(worded)).await?;
        Ok((self.shown.to_string_lossy().into_owned(), n_bytes))
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        *lock(&self.draft) = None;
    }
}

struct Writer(Shared);

impl Write for Writer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut draft = lock(&self.0);
        draft.as_mut().ok_or(io::ErrorKind::BrokenPipe)?.append(bytes)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn lock(draft: &Shared) -> MutexGuard<'_, Option<Draft>> {
    draft.lock().unwrap_or_else(PoisonError::into_inner)
}

//! Where a build keeps bytes that strangers send: whole archives, never unpacked on the host.

use std::{
    fs::{self, DirBuilder, File},
    io::{self, Read, Seek as _, Write as _},
    os::unix::fs::DirBuilderExt as _,
    path::{Path, PathBuf},
};

use futures_util::StreamExt as _;
use sandbox::{ByteSize, Error, ErrorKind, Result};

use super::MAX_CONTEXT;
use crate::{ByteStream, disk::may_block, error, names};

/// Below the home.
const BUILDS: &str = "builds";

/// Bytes copied at a time.
const COPY_BYTES: usize = 256 * 1024;

/// How much is taken, from what, and whether somebody still waits for it.
pub(super) struct Limit<'a> {
    pub(super) what: &'a str,
    pub(super) left: u64,
    /// Fails once nobody does.
    pub(super) wanted: &'a dyn Fn() -> Result<()>,
}

/// A private directory that goes with this value; what a killed daemon left goes at the next start.
#[derive(Debug)]
pub(super) struct Spool {
    directory: PathBuf,
    n_files: std::sync::atomic::AtomicUsize,
}

impl Spool {
    pub(super) fn make(home: &Path) -> Result<Self> {
        let builds = home.join(BUILDS);
        let private = |path: &Path| DirBuilder::new().mode(0o700).create(path);
        match private(&builds) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(error::from_io("create the directory", &builds, error));
            }
            _ => {}
        }
        let directory = builds.join(names::random_exec_id()?.as_str());
        private(&directory).map_err(|error| error::from_io("create the directory", &directory, error))?;
        Ok(Self { directory, n_files: Default::default() })
    }

    /// Makes an empty file without a name that can be read again: its space comes back however the file is closed.
    pub(super) fn file(&self) -> Result<File> {
        let number = self.n_files.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let path = self.directory.join(number.to_string());
        let file = File::options().read(true).write(true).create_new(true).open(&path);
        let file = file.and_then(|file| fs::remove_file(&path).map(|()| file));
        file.map_err(|error| error::from_io("create the file", &path, error))
    }

    /// Takes in all that a reader gives. On a thread that may block.
    pub(super) fn fill(&self, mut reader: impl Read, limit: &mut Limit<'_>) -> Result<File> {
        let mut file = self.file()?;
        let mut buffer = vec![0; COPY_BYTES];
        loop {
            (limit.wanted)()?;
            let n = match reader.read(&mut buffer) {
                Ok(0) => break,
                Ok(n) => n,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(Error::invalid(format!("cannot read {}: {error}", limit.what))),
            };
            limit.left =
                limit.left.checked_sub(n as u64).ok_or_else(|| too_large(limit.what, MAX_CONTEXT))?;
            file.write_all(&buffer[..n])
                .map_err(|error| error::from_io("write to", &self.directory, error))?;
        }
        file.rewind().map_err(|error| error::from_io("read again in", &self.directory, error))?;
        Ok(file)
    }

    /// Takes in a whole stream; `left` is what may still come.
    pub(super) async fn take(&self, mut bytes: ByteStream, left: &mut u64, what: &str) -> Result<File> {
        let mut file = self.file()?;
        while let Some(chunk) = bytes.next().await {
            let chunk = chunk?;
            let rest = left.checked_sub(chunk.len() as u64);
            *left = rest.ok_or_else(|| too_large(what, MAX_CONTEXT))?;
            may_block(|| file.write_all(&chunk))
                .map_err(|error| error::from_io("write to", &self.directory, error))?;
        }
        Ok(file)
    }
}

impl Drop for Spool {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.directory) {
            tracing::warn!(directory = %self.directory.display(), %error, "what a build was given stays");
        }
    }
}

fn too_large(what: &str, most: ByteSize) -> Error {
    let message = format!("{what} has more than {most}, the limit of a build");
    Error::new(ErrorKind::LimitReached, message)
        .with_hint("Exclude files that the build does not need with a .dockerignore.")
}

/// Takes away what builds of an earlier daemon left.
pub(crate) fn sweep(home: &Path) {
    let builds = home.join(BUILDS);
    match fs::remove_dir_all(&builds) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            tracing::warn!(directory = %builds.display(), %error, "what earlier builds left stays");
        }
        _ => {}
    }
}

/// The archive as it is without compression by gzip; by others it is refused.
pub(super) fn decompressed(spool: &Spool, file: File, wanted: &dyn Fn() -> Result<()>) -> Result<File> {
    use std::os::unix::fs::FileExt as _;
    let unreadable = |error: io::Error| Error::invalid(format!("cannot read the build context: {error}"));
    let mut start = [0; 6];
    let n = file.read_at(&mut start, 0).map_err(unreadable)?;
    match &start[..n] {
        [0x1f, 0x8b, ..] => {}
        [b'B', b'Z', b'h', ..] | [0xfd, b'7', b'z', b'X', b'Z', ..] | [0x28, 0xb5, 0x2f, 0xfd, ..] => {
            return Err(Error::new(
                ErrorKind::Unsupported,
                "the build context is compressed, but not with gzip",
            )
            .with_hint("Send it as a plain tar, or compressed with gzip."));
        }
        _ => return Ok(file),
    }
    let mut file = file;
    file.rewind().map_err(unreadable)?;
    let reader = flate2::read::MultiGzDecoder::new(io::BufReader::new(file));
    let what = "the build context, uncompressed,";
    spool.fill(reader, &mut Limit { what, left: MAX_CONTEXT.bytes(), wanted })
}

//! Where a build keeps bytes that strangers send: whole archives, never unpacked on the host.

use std::{
    fs::{self, DirBuilder, File},
    io::{self, Write as _},
    os::unix::fs::DirBuilderExt as _,
    path::{Path, PathBuf},
};

use futures_util::StreamExt as _;
use sandbox::{ByteSize, Error, ErrorKind, Result};

use crate::{ByteStream, disk::may_block, error, names};

/// Below the home.
const BUILDS: &str = "builds";

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
                return Err(error::from_io("make the directory", &builds, error));
            }
            _ => {}
        }
        let directory = builds.join(names::random_exec_id()?.as_str());
        private(&directory).map_err(|error| error::from_io("make the directory", &directory, error))?;
        Ok(Self { directory, n_files: Default::default() })
    }

    /// An empty file that can be read again.
    pub(super) fn file(&self) -> Result<File> {
        let number = self.n_files.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let path = self.directory.join(number.to_string());
        let file = File::options().read(true).write(true).create_new(true).open(&path);
        file.map_err(|error| error::from_io("make the file", &path, error))
    }

    /// Takes in a whole stream of at most `most` bytes.
    pub(super) async fn take(&self, mut bytes: ByteStream, most: ByteSize, what: &str) -> Result<File> {
        let mut file = self.file()?;
        let mut total = 0_u64;
        while let Some(chunk) = bytes.next().await {
            let chunk = chunk?;
            total += chunk.len() as u64;
            if total > most.bytes() {
                return Err(too_large(what, most));
            }
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

pub(super) fn too_large(what: &str, most: ByteSize) -> Error {
    let message = format!("{what} has more than {most}, the most that a build takes");
    Error::new(ErrorKind::LimitReached, message)
        .with_hint("Leave out what the build does not need with a .dockerignore.")
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
pub(super) fn decompressed(spool: &Spool, file: File, most: ByteSize) -> Result<File> {
    use std::os::unix::fs::FileExt as _;
    let unreadable = |error: io::Error| Error::invalid(format!("the context cannot be read: {error}"));
    let mut start = [0; 6];
    let n = file.read_at(&mut start, 0).map_err(unreadable)?;
    match &start[..n] {
        [0x1f, 0x8b, ..] => {}
        [b'B', b'Z', b'h', ..] | [0xfd, b'7', b'z', b'X', b'Z', ..] | [0x28, 0xb5, 0x2f, 0xfd, ..] => {
            return Err(Error::new(
                ErrorKind::Unsupported,
                "the context is compressed by other means than gzip",
            )
            .with_hint("Send it as a plain tar, or compressed with gzip."));
        }
        _ => return Ok(file),
    }
    use std::io::{Read as _, Seek as _};
    let mut file = file;
    file.rewind().map_err(unreadable)?;
    let mut plain = spool.file()?;
    let reader = flate2::read::MultiGzDecoder::new(io::BufReader::new(file));
    let copied = io::copy(&mut reader.take(most.bytes() + 1), &mut plain).map_err(unreadable)?;
    if copied > most.bytes() {
        return Err(too_large("the context, uncompressed,", most));
    }
    Ok(plain)
}

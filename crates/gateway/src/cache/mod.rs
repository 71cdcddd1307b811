//! The cache on disk: fetched files by content, and small records by key.
//!
//! ```text
//!   lock                       held while a gateway is open: one writer
//!   tmp/<random>               being written; swept at opening
//!   blobs/sha256/<aa>/<hex>    a file, named by its content; read-only
//!   index/<aa>/<hex>           a record in JSON, named by the SHA-256 of its key
//! ```
//!
//! A name in `blobs` or `index` appears only by renaming a file that is whole and synced. The time of last use is the
//! file's modification time; nothing about single files is held in memory.

mod evict;

use std::{
    fs::{self, File, OpenOptions, TryLockError},
    io::{self, Write as _},
    os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
    sync::Mutex,
    time::SystemTime,
};

use serde::{Serialize, de::DeserializeOwned};

use crate::{digest, error::GatewayError};

/// A record larger than this is not one of ours. In bytes.
const MAX_RECORD_BYTES: u64 = 4 << 20;

#[derive(Debug)]
pub(crate) struct Cache {
    root: PathBuf,
    max_bytes: u64,
    /// Bytes on disk; `None` until they were counted.
    used: Mutex<Option<u64>>,
    /// Holds the lock while it is open.
    _lock: File,
}

/// A file that is being written. It is removed when this is dropped before the file was kept.
#[derive(Debug)]
pub(crate) struct Draft {
    path: PathBuf,
    is_kept: bool,
}

impl Drop for Draft {
    fn drop(&mut self) {
        if !self.is_kept {
            // Whatever stays is swept at the next opening.
            drop(fs::remove_file(&self.path));
        }
    }
}

impl Cache {
    pub(crate) fn open(root: &Path, max_bytes: u64) -> Result<Self, GatewayError> {
        let failed = |source| GatewayError::Cache { path: root.to_owned(), source };
        for directory in ["tmp", "blobs/sha256", "index"] {
            fs::create_dir_all(root.join(directory)).map_err(failed)?;
        }
        // Nobody else on this host is to read which packages others install, nor to write what sandboxes will run.
        fs::set_permissions(root, fs::Permissions::from_mode(0o700)).map_err(failed)?;
        let lock = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .mode(0o600)
            .open(root.join("lock"))
            .map_err(failed)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(GatewayError::Held { path: root.to_owned() }),
            Err(TryLockError::Error(source)) => return Err(failed(source)),
        }
        for entry in fs::read_dir(root.join("tmp")).map_err(failed)? {
            fs::remove_file(entry.map_err(failed)?.path()).map_err(failed)?;
        }
        Ok(Self { root: root.to_owned(), max_bytes, used: Mutex::new(None), _lock: lock })
    }

    pub(crate) fn max_bytes(&self) -> u64 {
        self.max_bytes
    }

    /// A new file to write to and, through the same descriptor, to read from.
    pub(crate) fn draft(&self) -> io::Result<(Draft, File)> {
        let mut random = [0; 16];
        getrandom::fill(&mut random).map_err(io::Error::other)?;
        let path = self.root.join("tmp").join(digest::sha256_hex(&random));
        let file = OpenOptions::new().create_new(true).read(true).write(true).mode(0o400).open(&path)?;
        Ok((Draft { path, is_kept: false }, file))
    }

    /// The draft becomes the blob `sha256`. Its content was verified by the caller.
    pub(crate) fn keep_blob(&self, draft: Draft, file: &File, sha256: &str) -> io::Result<()> {
        self.keep(draft, file, &self.blob_path(sha256))
    }

    /// Returns the blob's name.
    pub(crate) fn put_blob(&self, bytes: &[u8]) -> io::Result<String> {
        let sha256 = digest::sha256_hex(bytes);
        if self.blob(&sha256)?.is_none() {
            let (draft, mut file) = self.draft()?;
            file.write_all(bytes)?;
            self.keep_blob(draft, &file, &sha256)?;
        }
        Ok(sha256)
    }

    /// An open blob and its size. Its modification time becomes now.
    pub(crate) fn blob(&self, sha256: &str) -> io::Result<Option<(File, u64)>> {
        open_used(&self.blob_path(sha256))
    }

    pub(crate) fn put_record<T: Serialize>(&self, key: &str, record: &T) -> io::Result<()> {
        let (draft, mut file) = self.draft()?;
        file.write_all(&serde_json::to_vec(record)?)?;
        self.keep(draft, &file, &self.record_path(key))
    }

    /// A record that cannot be read counts as none: it is fetched again.
    pub(crate) fn record<T: DeserializeOwned>(&self, key: &str) -> io::Result<Option<T>> {
        match open_used(&self.record_path(key))? {
            Some((file, size)) if size <= MAX_RECORD_BYTES => {
                let bytes = read_whole(&file, size)?;
                Ok(serde_json::from_slice(&bytes).ok())
            }
            _ => Ok(None),
        }
    }

    fn keep(&self, mut draft: Draft, file: &File, place: &Path) -> io::Result<()> {
        file.sync_all()?;
        let size = file.metadata()?.len();
        let replaced = fs::metadata(place).map_or(0, |metadata| metadata.len());
        if let Some(parent) = place.parent() {
            fs::create_dir_all(parent)?;
        }
        fs::rename(&draft.path, place)?;
        draft.is_kept = true;
        self.account(size, replaced)
    }

    fn blob_path(&self, sha256: &str) -> PathBuf {
        beneath(&self.root.join("blobs/sha256"), sha256)
    }

    fn record_path(&self, key: &str) -> PathBuf {
        beneath(&self.root.join("index"), &digest::sha256_hex(key.as_bytes()))
    }
}

/// `hex` is ours or was checked to be 64 hexadecimal digits.
fn beneath(directory: &Path, hex: &str) -> PathBuf {
    directory.join(hex.get(..2).unwrap_or("xx")).join(hex)
}

fn open_used(path: &Path) -> io::Result<Option<(File, u64)>> {
    match File::open(path) {
        Ok(file) => {
            // Without the time of last use the cache still works; it only evicts in a worse order.
            drop(file.set_modified(SystemTime::now()));
            let size = file.metadata()?.len();
            Ok(Some((file, size)))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// The whole of a file whose size was bounded by the caller.
pub(crate) fn read_whole(file: &File, size: u64) -> io::Result<Vec<u8>> {
    use std::os::unix::fs::FileExt as _;
    let mut bytes = vec![0; usize::try_from(size).map_err(io::Error::other)?];
    file.read_exact_at(&mut bytes, 0)?;
    Ok(bytes)
}

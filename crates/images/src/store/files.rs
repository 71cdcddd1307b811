//! Files that are whole or not there.

use std::{
    fs::{self, File},
    io::{self, Write as _},
    path::{Path, PathBuf},
};

use crate::error::{Error, Result};

/// A name that nobody else uses, for something half-made.
pub(crate) fn scratch_name(prefix: &str) -> String {
    let mut random = [0; 8];
    if getrandom::fill(&mut random).is_err() {
        // No random numbers this early in a machine's life: the clock will do, as whoever makes the file insists that
        // it is new.
        let nanoseconds = jiff::Timestamp::now().as_nanosecond();
        random.copy_from_slice(&nanoseconds.to_le_bytes()[..8]);
    }
    format!("{prefix}{:016x}", u64::from_le_bytes(random))
}

/// Writes `bytes` to `directory/name`, through a scratch file in `scratch` on the same file system.
pub(crate) fn publish_bytes(scratch: &Path, directory: &Path, name: &str, bytes: &[u8]) -> Result<()> {
    let half_made = scratch.join(scratch_name("write-"));
    let written = File::create_new(&half_made)
        .and_then(|mut file| {
            file.write_all(bytes)?;
            file.sync_all()
        })
        .map_err(Error::io("write", &half_made));
    let published = written.and_then(|()| publish(&half_made, &directory.join(name)));
    if published.is_err() {
        let _the_first_error_counts = fs::remove_file(&half_made);
    }
    published
}

/// Gives something whole, synced by the caller, its name.
pub(crate) fn publish(half_made: &Path, name: &Path) -> Result<()> {
    fs::rename(half_made, name).map_err(Error::io("publish", name))?;
    match name.parent() {
        Some(parent) => sync_directory(parent),
        None => Ok(()),
    }
}

pub(crate) fn sync_directory(directory: &Path) -> Result<()> {
    File::open(directory).and_then(|open| open.sync_all()).map_err(Error::io("sync", directory))
}

/// The names in a directory; none in one that is not there.
pub(crate) fn names(directory: &Path) -> Result<Vec<(String, PathBuf)>> {
    let entries = match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(Error::io("list", directory))?,
    };
    entries
        .map(|entry| {
            let entry = entry.map_err(Error::io("list", directory))?;
            Ok((entry.file_name().to_string_lossy().into_owned(), entry.path()))
        })
        .collect()
}

/// Removes a file that may be gone already, and answers its length.
pub(crate) fn remove_file(file: &Path) -> Result<u64> {
    let gone = |error: &io::Error| error.kind() == io::ErrorKind::NotFound;
    let bytes = match fs::symlink_metadata(file) {
        Err(error) if gone(&error) => return Ok(0),
        metadata => metadata.map_err(Error::io("look at", file))?.len(),
    };
    match fs::remove_file(file) {
        Err(error) if !gone(&error) => Err(Error::io("remove", file)(error)),
        _ => Ok(bytes),
    }
}

pub(crate) fn file_length(file: &Path) -> Option<u64> {
    fs::metadata(file).ok().filter(fs::Metadata::is_file).map(|metadata| metadata.len())
}

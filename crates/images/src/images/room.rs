//! The disk space that images may take.

use std::{fs::File, path::Path, sync::PoisonError};

use super::Inner;
use crate::{
    digest::Digest,
    error::{Error, Result},
    unpack::{MAX_DISK_BYTES, UnpackOptions, Unpacked, measured_layer},
};

/// For somebody who writes without knowing how much it will be in all.
#[derive(Debug)]
pub(super) struct Room<'a> {
    inner: &'a Inner,
    /// For what is taken in all.
    most: u64,
    taken: u64,
    left: u64,
}

impl Room<'_> {
    /// Makes sure that `bytes` more fit below the cap; images that nobody uses go if need be.
    pub(super) fn take(&mut self, bytes: u64) -> Result<()> {
        self.taken = self.taken.saturating_add(bytes);
        if self.taken > self.most {
            // Nothing that went would help.
            return Err(Error::TooLarge {
                what: "the archive".to_owned(),
                limit: "max_layer_bytes".into(),
                most: self.most,
            });
        }
        if bytes > self.left {
            self.inner.make_room(bytes)?;
            self.left = self.inner.left()?;
        }
        let no_room = || Error::NoSpace { what: "the archive below the cap on images".to_owned() };
        self.left = self.left.checked_sub(bytes).ok_or_else(no_room)?;
        Ok(())
    }
}

impl Inner {
    /// Opens an account of the space that is left below the cap now.
    pub(super) fn room(&self, most: u64) -> Result<Room<'_>> {
        Ok(Room { inner: self, most, taken: 0, left: self.left()? })
    }

    /// No more than all images together may take.
    pub(super) fn below_cap(&self, limit: u64) -> u64 {
        self.options.disk_cap.map_or(limit, |cap| limit.min(cap))
    }

    /// Returns the bytes left below the cap, counting everything that is here.
    fn left(&self) -> Result<u64> {
        let Some(cap) = self.options.disk_cap else { return Ok(u64::MAX) };
        let (blobs, layers, partial) = self.store.usage()?;
        Ok(cap.saturating_sub(blobs + layers + partial))
    }

    /// Collects images until `bytes` more fit below the cap; `false` when they still do not.
    pub(super) fn make_room(&self, bytes: u64) -> Result<bool> {
        let Some(cap) = self.options.disk_cap else { return Ok(true) };
        let fits = || -> Result<bool> {
            let (blobs, layers, partial) = self.store.usage()?;
            Ok((blobs + layers + partial).saturating_add(bytes) <= cap)
        };
        if fits()? {
            return Ok(true);
        }
        if self.store.bytes_in_use()?.saturating_add(bytes) > cap {
            // Nothing that went would help.
            return Ok(false);
        }
        self.store.drop_partial()?;
        self.store.evict(fits)?;
        fits()
    }

    /// Unpacks the layer into what is left below the cap; images that nobody uses go if that is too little.
    pub(super) fn unpack(&self, blob: &Path, expected: Option<&Digest>) -> Result<Unpacked> {
        let lock = || self.room.lock().unwrap_or_else(PoisonError::into_inner);
        let _alone = self.options.disk_cap.map(|_cap| lock());
        let unpacked = self.unpack_into_left(blob, expected);
        if !unpacked.as_ref().is_err_and(is_out_of_room) {
            return unpacked;
        }
        // How much it needs nobody knows before it is read to its end, which is seldom worth it.
        let bytes = measured_layer(open(blob)?, &self.unpack_options()?)?;
        if !self.make_room(bytes)? {
            return Err(no_room());
        }
        let unpacked = self.unpack_into_left(blob, expected);
        // Somebody else took it meanwhile: downloads do not wait for us.
        unpacked.map_err(|error| if is_out_of_room(&error) { no_room() } else { error })
    }

    fn unpack_into_left(&self, blob: &Path, expected: Option<&Digest>) -> Result<Unpacked> {
        self.store.unpack(open(blob)?, expected, &self.unpack_options()?)
    }

    fn unpack_options(&self) -> Result<UnpackOptions> {
        let limits = &self.options.limits;
        Ok(UnpackOptions {
            opaque: self.options.opaque,
            max_entries: limits.max_entries,
            max_layer_bytes: self.below_cap(limits.max_layer_bytes),
            max_directory_bytes: limits.max_directory_bytes,
            max_disk_bytes: self.left()?,
        })
    }
}

fn open(blob: &Path) -> Result<File> {
    File::open(blob).map_err(Error::io("open", blob))
}

fn is_out_of_room(error: &Error) -> bool {
    matches!(error, Error::TooLarge { limit, .. } if limit == MAX_DISK_BYTES)
}

fn no_room() -> Error {
    Error::NoSpace { what: "the unpacked layer below the cap on images".to_owned() }
}

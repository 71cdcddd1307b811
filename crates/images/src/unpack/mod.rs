//! One layer from its blob to a directory that can be the lower layer of an overlay.
//!
//! No network, no async, no global state: a reader and a directory come in, so that a helper process in a user
//! namespace can call this with ids that its caller does not have. Whatever the archive says, nothing outside the
//! directory is read or written: every path is walked by descriptor, component by component, and no symbolic link is
//! ever followed.
//!
//! Three threads: one decompresses, one hashes, one reads the archive and writes files.

mod feed;
mod measure;
mod tree;
mod unpacker;
mod write;

use std::{io::Read, os::fd::BorrowedFd, thread};

use archive::{Format, Member, ReadLimits, Reader};
use serde::{Deserialize, Serialize};

use self::feed::Source;
pub use self::unpacker::{InProcess, Unpacker};
pub(crate) use self::{measure::measured_layer, write::is_kept};

use crate::{
    digest::Digest,
    error::{Error, Result, shortened},
};

/// Most warnings kept by their text; the rest is counted.
const MAX_WARNINGS: usize = 32;
/// Longest warning. A name may be a megabyte of anything, and all of this goes through one packet from whoever unpacks.
const MAX_WARNING_CHARS: usize = 200;

/// The limit of [`UnpackOptions::max_disk_bytes`], as an error has it.
pub(crate) const MAX_DISK_BYTES: &str = "max_disk_bytes";

/// Extended attributes of a file are 64 KiB at most, a path 4 KiB. A part is at least a block in practice; these are a
/// file of a gigabyte with every second one a hole.
const READ_LIMITS: ReadLimits = ReadLimits { header_bytes: 1024 * 1024, parts: 128 * 1024 };

/// The archive of a layer.
pub(crate) type Members<'a> = Reader<&'a mut Source>;

fn members(source: &mut Source) -> Members<'_> {
    Reader::new(source, Format::Any, READ_LIMITS)
}

/// How a layer is laid out, and what is too much.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnpackOptions {
    pub opaque: OpaqueMark,
    /// Most entries of one layer.
    pub max_entries: u64,
    /// Most bytes of one layer, uncompressed.
    pub max_layer_bytes: u64,
    /// Most bytes of names and attributes of directories, which are held until the layer's end.
    pub max_directory_bytes: u64,
    /// Most bytes that its files and directories may take on disk, to a block. Holes take none.
    pub max_disk_bytes: u64,
}

impl Default for UnpackOptions {
    fn default() -> Self {
        Self {
            opaque: OpaqueMark::default(),
            max_entries: crate::Limits::default().max_entries,
            max_layer_bytes: crate::Limits::default().max_layer_bytes,
            max_directory_bytes: crate::Limits::default().max_directory_bytes,
            max_disk_bytes: u64::MAX,
        }
    }
}

/// The extended attribute that makes a directory hide those below it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum OpaqueMark {
    /// `user.overlay.opaque`, for overlays mounted with `userxattr`.
    #[default]
    User,
    /// `trusted.overlay.opaque`, for those mounted without; only root may set it.
    Trusted,
}

impl OpaqueMark {
    pub(crate) fn attribute(self) -> &'static str {
        match self {
            Self::User => "user.overlay.opaque",
            Self::Trusted => "trusted.overlay.opaque",
        }
    }
}

/// The result of unpacking a layer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unpacked {
    /// Digest of the uncompressed archive.
    pub diff_id: Digest,
    /// Length of the uncompressed archive.
    pub tar_bytes: u64,
    /// The space that the files take on disk, to a block.
    pub disk_bytes: u64,
    pub n_entries: u64,
    /// The layer hides everything below it, which an overlay cannot be told by a mark on its root.
    pub hides_lower: bool,
    pub warnings: Warnings,
}

/// Warnings about whatever could not be kept as the archive has it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Warnings {
    pub texts: Vec<String>,
    /// How many more there were.
    pub more: u64,
}

impl Warnings {
    fn add(&mut self, text: impl FnOnce() -> String) {
        if self.texts.len() < MAX_WARNINGS {
            self.texts.push(shortened(text(), MAX_WARNING_CHARS));
        } else {
            self.more += 1;
        }
    }
}

/// Reads an archive (plain, gzip or zstd) member by member, without writing any of them anywhere.
pub(crate) fn read_archive(
    archive: impl Read + Send,
    max_bytes: u64,
    mut visit: impl FnMut(&Member, &mut Members<'_>) -> Result<()>,
) -> Result<()> {
    let (feed, mut source) = feed::pipe();
    thread::scope(|scope| {
        let feeder = scope.spawn(|| feed.run(archive, max_bytes));
        let mut read = || {
            let mut members = members(&mut source);
            while let Some(member) = members.next()? {
                visit(&member, &mut members)?;
            }
            members.into_inner().drain();
            Ok(())
        };
        let read = read();
        drop(source);
        both(read, joined(feeder.join())).map_err(Error::shortened)
    })
}

/// Joins the results of both ends. When the archive ends early, the one that decompresses knows why.
fn both<W>(written: Result<W>, fed: Result<()>) -> Result<W> {
    match (written, fed) {
        (Ok(written), fed) => fed.map(|()| written),
        (Err(Error::Corrupt { .. }), Err(cause)) => Err(cause),
        (Err(error), _) => Err(error),
    }
}

fn joined<T>(result: thread::Result<T>) -> T {
    result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Unpacks the layer `blob` (plain, gzip or zstd) into `directory`, which should be empty and seen by nobody else.
///
/// On error `directory` holds some part of the layer and is to be thrown away. Nothing is synced.
pub fn unpack_layer(
    blob: impl Read + Send,
    directory: BorrowedFd<'_>,
    options: &UnpackOptions,
) -> Result<Unpacked> {
    let (feed, tap, mut source) = feed::tapped_pipe();
    thread::scope(|scope| {
        let feeder = scope.spawn(|| feed.run(blob, options.max_layer_bytes));
        let hasher = scope.spawn(|| tap.run());
        let written = write::Writer::new(directory, options).write_all(&mut source);
        // The others stop when nobody reads.
        drop(source);
        let written = both(written, joined(feeder.join())).map_err(Error::shortened)?;
        let (diff_id, tar_bytes) = joined(hasher.join());
        Ok(Unpacked {
            diff_id,
            tar_bytes,
            disk_bytes: written.disk_bytes,
            n_entries: written.n_entries,
            hides_lower: written.hides_lower,
            warnings: written.warnings,
        })
    })
}

//! Room in a volume with a measured quota: bytes are claimed before they are written.

use std::sync::Arc;

use archive::{BLOCK, header_type};
use futures_util::StreamExt;
use guest_protocol::Request;
use sandbox::{ByteSize, Error, ErrorKind, FileEntry, Limit, Next, Result, Thing, VolumeStorage};
use store::VolumeRecord;

use super::{Claim, Held, Measured};
use crate::{ByteStream, core::Core, files};

/// Minimum cost of a new file or directory, as in measurements of disks.
const LEAST_BYTES: u64 = 4096;
/// Most entries of a tree that is copied under a quota: more cannot be added up beforehand.
const MAX_COUNTED: u32 = 10_000;

/// The bytes that may still be written; kept until that is done.
#[derive(Debug)]
pub(crate) struct Room {
    /// As measured.
    free: u64,
    claim: Claim,
    quota: ByteSize,
    name: String,
}

impl Room {
    /// Claims the request's minimum; `None` if it takes nothing, or the volume's quota is enforced otherwise.
    pub(crate) async fn for_request(
        core: &Arc<Core>,
        volume: &VolumeRecord,
        held: &Held,
        request: &Request,
    ) -> Result<Option<Self>> {
        let is_measured =
            request.properties().fills_files && volume.storage == Some(VolumeStorage::Directory);
        let Some(quota) = volume.spec.quota.filter(|_| is_measured) else { return Ok(None) };
        let claim = held.claim();
        let used = core.measure_volume(volume, Measured::ToWrite).await.ok_or_else(|| {
            Error::new(ErrorKind::Unavailable, format!("cannot measure volume {}", volume.spec.name))
                .with_next(Next::Retry)
        })?;
        let free = quota.bytes().saturating_sub(used.bytes());
        let room = Self { free, claim, quota, name: volume.spec.name.to_string() };
        let least = match request {
            Request::Copy { from, .. } => size_of(held, from).await?,
            _ => LEAST_BYTES,
        };
        room.less(least).map(Some)
    }

    /// The bytes of an upload, which break off where they would exceed the quota.
    pub(crate) fn bound(self, request: &Request, bytes: ByteStream) -> ByteStream {
        if matches!(request, Request::TarIn { .. }) {
            let mut counter = Counter::default();
            return bounded(bytes, self, move |chunk| counter.count(chunk));
        }
        bounded(bytes, self, |chunk| chunk.len() as u64)
    }

    fn less(mut self, bytes: u64) -> Result<Self> {
        let claimed = self.claim.take(bytes);
        if claimed <= self.free {
            return Ok(self);
        }
        let message = format!("volume {} would exceed its quota of {}", self.name, self.quota);
        let quota = self.quota.bytes();
        let asked = (quota - self.free.min(quota)).saturating_add(claimed);
        Err(Error::over_limit(Limit::VolumeQuota, quota, asked, message).about(Thing::Volume, self.name))
    }
}

/// The bytes, and an error in place of the first that would exceed the quota. `cost`: what a chunk counts as.
fn bounded(bytes: ByteStream, room: Room, mut cost: impl FnMut(&[u8]) -> u64 + Send + 'static) -> ByteStream {
    bytes
        .scan(Some(room), move |room, chunk| {
            let passed = match (room.take(), &chunk) {
                (Some(left), Ok(chunk)) => left.less(cost(chunk)),
                (Some(left), Err(_)) => Ok(left),
                (None, _) => return std::future::ready(None),
            };
            std::future::ready(Some(match passed {
                Ok(left) => {
                    *room = Some(left);
                    chunk
                }
                Err(error) => Err(error),
            }))
        })
        .boxed()
}

/// Counts what a tar stream takes when unpacked: its bytes, but a whole block for each header. That also covers the
/// unused part of the file's last block.
///
/// Everything with the checksum of a header counts as one, even in the middle of a file: a parser that follows an
/// archive's own sizes can be made to take headers for content.
struct Counter {
    block: [u8; BLOCK],
    n_filled: usize,
}

impl Default for Counter {
    fn default() -> Self {
        Self { block: [0; BLOCK], n_filled: 0 }
    }
}

impl Counter {
    fn count(&mut self, mut chunk: &[u8]) -> u64 {
        let mut counted = chunk.len() as u64;
        while !chunk.is_empty() {
            let (now, rest) = chunk.split_at(chunk.len().min(BLOCK - self.n_filled));
            self.block[self.n_filled..][..now.len()].copy_from_slice(now);
            self.n_filled += now.len();
            chunk = rest;
            if self.n_filled == BLOCK {
                self.n_filled = 0;
                if makes_something(&self.block) {
                    counted += LEAST_BYTES - BLOCK as u64;
                }
            }
        }
        counted
    }
}

/// Whether this is a header, and not one that only tells more about the next: long names and extended headers.
fn makes_something(block: &[u8; BLOCK]) -> bool {
    header_type(block).is_some_and(|kind| !b"LKxg".contains(&kind))
}

/// The size of a copy.
async fn size_of(held: &Held, path: &str) -> Result<u64> {
    let top = files::entry(files::ask(held.client(), &files::stat_request(path, true)?).await?)?;
    let counted = |entry: &FileEntry| entry.size.max(LEAST_BYTES);
    if top.kind != sandbox::FileKind::Directory {
        return Ok(counted(&top));
    }
    let request = files::list_request(path, true, MAX_COUNTED)?;
    let listing = files::listing(files::ask(held.client(), &request).await?, MAX_COUNTED)?;
    if listing.truncated {
        let message = format!("{path} has more than {MAX_COUNTED} entries, too many to copy under a quota");
        return Err(
            Error::new(ErrorKind::LimitReached, message).with_hint("Copy its directories one by one.")
        );
    }
    Ok(listing.entries.iter().map(counted).fold(LEAST_BYTES, u64::saturating_add))
}

#[cfg(test)]
mod tests {
    use tar::{Builder, EntryType, Header};

    use super::*;

    fn entry(archive: &mut Builder<Vec<u8>>, kind: EntryType, name: &str, content: &[u8]) {
        let mut header = Header::new_gnu();
        header.set_entry_type(kind);
        header.set_mode(0o644);
        header.set_size(content.len() as u64);
        archive.append_data(&mut header, name, content).unwrap();
    }

    /// The same however the stream is cut.
    #[track_caller]
    fn counted(archive: &[u8]) -> u64 {
        let counts = [1, 511, 512, 700, archive.len()].map(|n_bytes| {
            let mut counter = Counter::default();
            archive.chunks(n_bytes).map(|chunk| counter.count(chunk)).sum::<u64>()
        });
        assert!(counts.iter().all(|count| *count == counts[0]), "{counts:?}");
        counts[0]
    }

    #[test]
    fn each_entry_of_an_archive_counts_as_what_it_takes() {
        let mut archive = Builder::new(vec![]);
        let sizes = [0, 1, 512, 4095, 4096, 4097];
        for (number, size) in sizes.into_iter().enumerate() {
            entry(&mut archive, EntryType::Regular, &format!("file{number}"), &vec![b'x'; size]);
        }
        for number in 0..100 {
            entry(&mut archive, EntryType::Directory, &format!("directory{number}/"), &[]);
        }
        let archive = archive.into_inner().unwrap();
        let taken: u64 = sizes.iter().map(|size| (*size as u64).next_multiple_of(4096).max(4096)).sum();
        let counted = counted(&archive);
        assert!(counted >= taken + 100 * 4096, "{counted}");
        assert_eq!(counted, archive.len() as u64 + 106 * (4096 - 512));
    }

    #[test]
    fn a_long_name_counts_with_its_bytes_and_a_header_in_a_file_as_a_header() {
        let mut inner = Builder::new(vec![]);
        entry(&mut inner, EntryType::Regular, &"long".repeat(40), b"x");
        let inner = inner.into_inner().unwrap();
        assert_eq!(counted(&inner), inner.len() as u64 + 4096 - 512);
        let mut outer = Builder::new(vec![]);
        entry(&mut outer, EntryType::Regular, "inner.tar", &inner);
        let outer = outer.into_inner().unwrap();
        assert_eq!(counted(&outer), outer.len() as u64 + 2 * (4096 - 512));
    }

    #[test]
    fn what_is_no_archive_counts_with_its_bytes() {
        for byte in [0, b' ', b'0', b'x', 0xff] {
            assert_eq!(counted(&[byte; 10_000]), 10_000);
        }
    }
}

//! Files of volumes, with or without a sandbox: asked of a guest that sees the volume as its root and nothing else, so links
//! lead nowhere but into the volume.

use std::time::Duration;

use futures_util::StreamExt;
use guest_protocol::{Request, Response};
use sandbox::{ByteSize, Error, ErrorKind, FileEntry, Result, VolumeStorage};
use store::VolumeRecord;

use crate::{
    ByteStream, Engine, Listing, Principal, VolumeRef, WriteOptions, error,
    files::{self, Answer},
    volumes::{Claim, Held, Measured},
};

/// What every new file or directory counts as at least, as where disks are measured.
const LEAST_BYTES: u64 = 4096;
/// What a tar stream is made of: each header is one of these and begins at a multiple of its size.
const TAR_BLOCK_BYTES: usize = 512;
/// Most entries of a tree that is copied under a quota: more cannot be added up before.
const MAX_COUNTED: u32 = 10_000;

impl Engine {
    pub async fn volume_stat(
        &self,
        who: &Principal,
        which: &VolumeRef,
        path: &str,
        follow: bool,
    ) -> Result<FileEntry> {
        let request = files::stat_request(path, follow)?;
        files::entry(self.ask_volume(who, which, &request).await?)
    }

    /// Entries of a directory, or of all beneath it, sorted; at most `limit`.
    pub async fn volume_list(
        &self,
        who: &Principal,
        which: &VolumeRef,
        path: &str,
        recursive: bool,
        limit: u32,
    ) -> Result<Listing> {
        let request = files::list_request(path, recursive, limit)?;
        files::listing(self.ask_volume(who, which, &request).await?, limit)
    }

    /// The file as it was when opened, and its bytes from `offset`, at most `length`.
    pub async fn volume_read_file(
        &self,
        who: &Principal,
        which: &VolumeRef,
        path: &str,
        offset: u64,
        length: Option<u64>,
    ) -> Result<(FileEntry, ByteStream)> {
        let request = Request::Read { path: files::checked(path)?, offset, length };
        let (_, held) = self.enter_volume(who, which, &request).await?;
        let label = held.client().label().to_owned();
        let read = held.client().download(&request, length).await;
        let (answer, bytes) = read.map_err(|error| error::from_guest(error, &label))?;
        match answer {
            Response::Reading { entry } => Ok((files::file_entry(entry), kept_open(bytes, held))),
            other => Err(Answer(other, label).wrong()),
        }
    }

    /// Writes a file and returns its bytes. Replacing is whole or not at all, also when the quota is passed in the middle.
    pub async fn volume_write_file(
        &self,
        who: &Principal,
        which: &VolumeRef,
        path: &str,
        options: WriteOptions,
        bytes: ByteStream,
    ) -> Result<u64> {
        let request = files::write_request(path, options)?;
        let (volume, held) = self.enter_volume(who, which, &request).await?;
        let bytes = match self.room_in(&volume, &held).await? {
            Some(room) => bounded(bytes, room.less(LEAST_BYTES)?, |chunk| chunk.len() as u64),
            None => bytes,
        };
        let patience = self.core().config.deadlines.answer;
        upload(&held, &request, bytes, patience).await
    }

    pub async fn volume_mkdir(
        &self,
        who: &Principal,
        which: &VolumeRef,
        path: &str,
        parents: bool,
        mode: Option<u32>,
    ) -> Result<()> {
        let request = files::mkdir_request(path, parents, mode)?;
        let (volume, held) = self.enter_volume(who, which, &request).await?;
        let _room = match self.room_in(&volume, &held).await? {
            Some(room) => Some(room.less(LEAST_BYTES)?),
            None => None,
        };
        done(ask(&held, &request).await?)
    }

    pub async fn volume_remove_path(
        &self,
        who: &Principal,
        which: &VolumeRef,
        path: &str,
        recursive: bool,
    ) -> Result<()> {
        let request = Request::Remove { path: files::checked(path)?, recursive };
        done(self.ask_volume(who, which, &request).await?)
    }

    pub async fn volume_copy_path(
        &self,
        who: &Principal,
        which: &VolumeRef,
        from: &str,
        to: &str,
        recursive: bool,
    ) -> Result<()> {
        let request = Request::Copy { from: files::checked(from)?, to: files::checked(to)?, recursive };
        let (volume, held) = self.enter_volume(who, which, &request).await?;
        let _room = match self.room_in(&volume, &held).await? {
            Some(room) => Some(room.less(size_of(&held, from).await?)?),
            None => None,
        };
        done(ask(&held, &request).await?)
    }

    pub async fn volume_rename_path(
        &self,
        who: &Principal,
        which: &VolumeRef,
        from: &str,
        to: &str,
        replace: bool,
    ) -> Result<()> {
        let request = Request::Rename { from: files::checked(from)?, to: files::checked(to)?, replace };
        done(self.ask_volume(who, which, &request).await?)
    }

    /// A tar stream of `path`.
    pub async fn volume_pack(&self, who: &Principal, which: &VolumeRef, path: &str) -> Result<ByteStream> {
        let request = Request::TarOut { path: files::checked(path)? };
        let (_, held) = self.enter_volume(who, which, &request).await?;
        let label = held.client().label().to_owned();
        let packed = held.client().download(&request, None).await;
        match packed.map_err(|error| error::from_guest(error, &label))? {
            (Response::Packing, bytes) => Ok(kept_open(bytes, held)),
            (other, _) => Err(Answer(other, label).wrong()),
        }
    }

    /// Unpacks a tar stream into the directory `path`; returns the bytes it read. Under a quota that is only measured, the
    /// stream's own bytes count, each header as a whole block, and what is unpacked by then stays.
    pub async fn volume_unpack(
        &self,
        who: &Principal,
        which: &VolumeRef,
        path: &str,
        bytes: ByteStream,
    ) -> Result<u64> {
        let request = Request::TarIn { path: files::checked(path)?, keep_ids: false };
        let (volume, held) = self.enter_volume(who, which, &request).await?;
        let bytes = match self.room_in(&volume, &held).await? {
            Some(room) => {
                let mut counter = Counter::default();
                bounded(bytes, room.less(LEAST_BYTES)?, move |chunk| counter.count(chunk))
            }
            None => bytes,
        };
        upload(&held, &request, bytes, self.core().config.deadlines.long_answer).await
    }

    async fn enter_volume(
        &self,
        who: &Principal,
        which: &VolumeRef,
        request: &Request,
    ) -> Result<(VolumeRecord, Held)> {
        if request.properties().changes {
            who.may_change()?;
        }
        let volume = self.core().find_volume(who, which)?;
        let held = self.open_volume(&volume).await?;
        Ok((volume, held))
    }

    async fn ask_volume(&self, who: &Principal, which: &VolumeRef, request: &Request) -> Result<Answer> {
        let (_, held) = self.enter_volume(who, which, request).await?;
        ask(&held, request).await
    }

    /// What may still be written to a volume whose quota only measuring holds; `None` for all others.
    async fn room_in(&self, volume: &VolumeRecord, held: &Held) -> Result<Option<Room>> {
        let Some(quota) = volume.spec.quota.filter(|_| volume.storage == Some(VolumeStorage::Directory))
        else {
            return Ok(None);
        };
        let claim = held.claim();
        let used = self.core().measure_volume(volume, Measured::ToWrite).await.ok_or_else(|| {
            Error::new(ErrorKind::Unavailable, format!("volume {} cannot be measured", volume.spec.name))
                .with_hint("Try again; without that its quota would not be held.")
        })?;
        let free = quota.bytes().saturating_sub(used.bytes());
        Ok(Some(Room { free, claim, quota, name: volume.spec.name.to_string() }))
    }
}

/// The place stays until the stream is dropped.
fn kept_open(bytes: ByteStream, held: Held) -> ByteStream {
    bytes
        .inspect(move |_| {
            let _held = &held;
        })
        .boxed()
}

/// What may still be written; kept until that is done.
#[derive(Debug)]
struct Room {
    /// As it was measured.
    free: u64,
    claim: Claim,
    quota: ByteSize,
    name: String,
}

impl Room {
    fn less(mut self, bytes: u64) -> Result<Self> {
        if self.claim.take(bytes, self.free) { Ok(self) } else { Err(self.passed()) }
    }

    fn passed(&self) -> Error {
        let message = format!("volume {} would pass its quota of {}", self.name, self.quota);
        Error::new(ErrorKind::LimitReached, message)
            .with_hint("Remove files from it, or use a volume with a higher quota.")
    }
}

/// The bytes, and an error in place of the first that would pass the quota. `cost` says what a chunk counts as.
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

/// Counts what a tar stream takes when it is unpacked: its bytes, but a whole block for each header. That is also what the last
/// block of the header's file may take beyond its bytes.
///
/// Whatever has the checksum of a header counts as one, also in the middle of a file: whoever follows the sizes that an archive
/// gives can be led to take headers for content.
struct Counter {
    block: [u8; TAR_BLOCK_BYTES],
    n_filled: usize,
}

impl Default for Counter {
    fn default() -> Self {
        Self { block: [0; TAR_BLOCK_BYTES], n_filled: 0 }
    }
}

impl Counter {
    fn count(&mut self, mut chunk: &[u8]) -> u64 {
        let mut counted = chunk.len() as u64;
        while !chunk.is_empty() {
            let (now, rest) = chunk.split_at(chunk.len().min(TAR_BLOCK_BYTES - self.n_filled));
            self.block[self.n_filled..][..now.len()].copy_from_slice(now);
            self.n_filled += now.len();
            chunk = rest;
            if self.n_filled == TAR_BLOCK_BYTES {
                self.n_filled = 0;
                if makes_something(tar::Header::from_byte_slice(&self.block)) {
                    counted += LEAST_BYTES - TAR_BLOCK_BYTES as u64;
                }
            }
        }
        counted
    }
}

/// Whether this is a header, and not one that only tells more about the next.
fn makes_something(header: &tar::Header) -> bool {
    // Its own field counts as spaces.
    let (before, after) = (&header.as_bytes()[..148], &header.as_bytes()[156..]);
    let sum = before.iter().chain(after).fold(8 * u32::from(b' '), |sum, byte| sum + u32::from(*byte));
    let kind = header.entry_type();
    let tells_more = kind.is_gnu_longname()
        || kind.is_gnu_longlink()
        || kind.is_pax_local_extensions()
        || kind.is_pax_global_extensions();
    !tells_more && header.cksum().is_ok_and(|expected| expected == sum)
}

/// What a copy of this would take.
async fn size_of(held: &Held, path: &str) -> Result<u64> {
    let top = files::entry(ask(held, &files::stat_request(path, true)?).await?)?;
    let counted = |entry: &FileEntry| entry.size.max(LEAST_BYTES);
    if top.kind != sandbox::FileKind::Directory {
        return Ok(counted(&top));
    }
    let request = files::list_request(path, true, MAX_COUNTED)?;
    let listing = files::listing(ask(held, &request).await?, MAX_COUNTED)?;
    if listing.truncated {
        let message = format!("{path} has more than {MAX_COUNTED} entries, too many to copy under a quota");
        return Err(
            Error::new(ErrorKind::LimitReached, message).with_hint("Copy its directories one by one.")
        );
    }
    Ok(listing.entries.iter().map(counted).fold(LEAST_BYTES, u64::saturating_add))
}

async fn ask(held: &Held, request: &Request) -> Result<Answer> {
    let label = held.client().label();
    let answer = held.client().call(request).await.map_err(|error| error::from_guest(error, label))?;
    Ok(Answer(answer, label.to_owned()))
}

async fn upload(held: &Held, request: &Request, bytes: ByteStream, patience: Duration) -> Result<u64> {
    let label = held.client().label();
    let answer = held.client().upload(request, bytes, Some(patience)).await;
    match answer.map_err(|error| error::from_guest(error, label))? {
        Response::Written { bytes } => Ok(bytes),
        other => Err(Answer(other, label.to_owned()).wrong()),
    }
}

fn done(answer: Answer) -> Result<()> {
    match answer {
        Answer(Response::Done, _) => Ok(()),
        answer => Err(answer.wrong()),
    }
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

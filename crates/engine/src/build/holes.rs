//! Files with holes, as GNU tar writes them: the archive holds the parts between the holes and a map of them.

use std::{
    fs::File,
    io::{self, Read},
    ops::Range,
    os::unix::fs::FileExt as _,
};

use sha2::{Digest as _, Sha256};
use tar::{Archive, EntryType, GnuExtSparseHeader, Header};

use super::pieces::Section;

const BLOCK: u64 = 512;
/// The beginning of the map and the file's size, in the header.
const MAP_IN_HEADER: Range<usize> = 386..495;
/// How keys of extended headers begin that tell of holes in another way.
const PAX_KEYS: &str = "GNU.sparse.";

/// Where such a file is in an archive. Only the bytes that are there are ever counted through, not the holes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Stored {
    header: u64,
    /// Behind the header: the rest of the map, and the parts.
    length: u64,
}

impl Stored {
    /// Of a member whose map the reader of archives has been through.
    pub(super) fn of(file: &File, member: &tar::Entry<'_, impl Read>) -> io::Result<Self> {
        let header = member.raw_header_position();
        let mut length = 0;
        let mut more = member.header().as_gnu().is_some_and(tar::GnuHeader::is_extended);
        while more {
            let mut extension = GnuExtSparseHeader::new();
            file.read_exact_at(extension.as_mut_bytes(), header + BLOCK + length)?;
            length += BLOCK;
            more = extension.is_extended();
        }
        Ok(Self { header, length: length.saturating_add(member.header().entry_size()?) })
    }

    /// Takes over the map and the size, which say what [`Self::section`] holds.
    pub(super) fn dress(&self, file: &File, header: &mut Header) -> io::Result<()> {
        let stored = self.header(file)?;
        header.set_entry_type(EntryType::GNUSparse);
        header.set_size(stored.entry_size()?);
        header.as_mut_bytes()[MAP_IN_HEADER].copy_from_slice(&stored.as_bytes()[MAP_IN_HEADER]);
        Ok(())
    }

    pub(super) fn section<'a>(&self, file: &'a File) -> Section<'a> {
        Section { file, at: self.header + BLOCK, left: self.length }
    }

    pub(super) fn length(&self) -> u64 {
        self.length
    }

    /// What tells it from others, without what [`Self::section`] holds.
    pub(super) fn begin_hash(&self, file: &File) -> io::Result<Sha256> {
        let mut hasher = Sha256::new();
        hasher.update(&self.header(file)?.as_bytes()[MAP_IN_HEADER]);
        Ok(hasher)
    }

    /// Lets `read` have the file's bytes, zeros where it has holes: as many as there may be, so `read` must know its measure.
    pub(super) fn filled<T>(
        &self,
        file: &File,
        read: impl FnOnce(&mut dyn Read) -> io::Result<T>,
    ) -> io::Result<T> {
        let whole = Section { file, at: self.header, left: self.length.saturating_add(BLOCK) };
        let mut archive = Archive::new(whole);
        let mut members = archive.entries()?;
        let mut member = members.next().ok_or(io::ErrorKind::UnexpectedEof)??;
        read(&mut member)
    }

    fn header(&self, file: &File) -> io::Result<Header> {
        let mut header = Header::new_gnu();
        file.read_exact_at(header.as_mut_bytes(), self.header)?;
        Ok(header)
    }
}

/// What the reader of archives has to pass on its way from this member to the next one. Others are read to their end.
pub(super) fn unread(member: &tar::Entry<'_, impl Read>) -> u64 {
    let header = member.header();
    if header.entry_type().is_gnu_sparse() { header.entry_size().unwrap_or(0) } else { 0 }
}

/// Whether a member that looks like any other file is a map and parts.
pub(super) fn is_in_pax(member: &mut tar::Entry<'_, impl Read>) -> io::Result<bool> {
    let Some(extensions) = member.pax_extensions()? else { return Ok(false) };
    Ok(extensions.flatten().any(|extension| extension.key_bytes().starts_with(PAX_KEYS.as_bytes())))
}

#[cfg(test)]
mod tests {
    use std::io::{Seek as _, Write as _};

    use futures_util::TryStreamExt as _;
    use sandbox::{ErrorKind, Result};
    use tar::{Builder, GnuSparseHeader};

    use super::*;
    use crate::build::{
        context::{Budget, Context, Odd, Reading},
        pieces::{self, Piece, Source},
    };

    fn octal(field: &mut [u8; 12], number: u64) {
        field.copy_from_slice(format!("{number:011o}\0").as_bytes());
    }

    fn map<'a>(parts: &[(u64, u64)], slots: impl Iterator<Item = &'a mut GnuSparseHeader>) {
        for ((offset, length), slot) in parts.iter().zip(slots) {
            octal(&mut slot.offset, *offset);
            octal(&mut slot.numbytes, *length);
        }
    }

    /// A file of `size` bytes with these parts, which are all `x`.
    fn put(archive: &mut Builder<File>, name: &str, parts: &[(u64, u64)], size: u64) {
        let stored: u64 = parts.iter().map(|(_, length)| length).sum();
        let mut header = Header::new_gnu();
        header.set_entry_type(EntryType::GNUSparse);
        header.set_mode(0o640);
        header.set_size(stored);
        let gnu = header.as_gnu_mut().unwrap();
        octal(&mut gnu.realsize, size);
        map(parts, gnu.sparse.iter_mut());
        let mut data = Vec::new();
        let mut rest = parts.get(4..).unwrap_or_default().chunks(21).peekable();
        gnu.isextended[0] = u8::from(rest.peek().is_some());
        while let Some(some) = rest.next() {
            let mut extension = GnuExtSparseHeader::new();
            map(some, extension.sparse.iter_mut());
            extension.isextended[0] = u8::from(rest.peek().is_some());
            data.extend_from_slice(extension.as_bytes());
        }
        data.resize(data.len() + usize::try_from(stored).unwrap(), b'x');
        archive.append_data(&mut header, name, &data[..]).unwrap();
    }

    fn plain(archive: &mut Builder<File>, name: &str, data: &[u8]) {
        let mut header = Header::new_gnu();
        header.set_size(data.len() as u64);
        archive.append_data(&mut header, name, data).unwrap();
    }

    fn read(archive: Builder<File>) -> Result<Context> {
        let file = archive.into_inner().unwrap();
        Context::read(file, Reading { what: "it", odd: Odd::LeftOut, wanted: &|| Ok(()) })
    }

    fn builder() -> Builder<File> {
        Builder::new(tempfile::tempfile().unwrap())
    }

    /// More parts than two blocks of the map hold.
    fn many() -> Vec<(u64, u64)> {
        (0..50).map(|n| (4096 * (2 * n + 1), 512)).chain([(500_000, 0)]).collect()
    }

    #[tokio::test]
    async fn holes_are_passed_on_as_holes() {
        let mut archive = builder();
        let deep = format!("{}/many", "d".repeat(150));
        put(&mut archive, &deep, &many(), 500_000);
        // More than any header may have, which is not read when the map is.
        put(&mut archive, "large", &[(0, 3 << 20), (7 << 30, 0)], 7 << 30);
        plain(&mut archive, "after", b"after");
        let context = read(archive).unwrap();
        assert_eq!(context.n_left_out, 0);
        assert_eq!(context.read_file("after", 100).unwrap().unwrap(), b"after");
        let filled = context.read_file(&deep, 1_000_000).unwrap().unwrap();
        assert_eq!(filled.len(), 500_000);
        for (at, byte) in filled.iter().enumerate() {
            let is_part = at / 4096 % 2 == 1 && at % 4096 < 512 && at / 4096 < 100;
            assert_eq!(*byte, if is_part { b'x' } else { 0 }, "{at}");
        }

        let found = context.find(".", &mut Budget::default()).unwrap().remove(0);
        let bytes = Source::Archive(std::sync::Arc::new(context.file().try_clone().unwrap()));
        let pieces = found.entries.into_iter().map(|(name, mut entry)| {
            entry.uid = 7;
            Piece { name, entry, bytes: bytes.clone() }
        });
        let mut written = tempfile::tempfile().unwrap();
        let mut stream = pieces::stream_of(pieces.collect());
        while let Some(piece) = stream.try_next().await.unwrap() {
            written.write_all(&piece).unwrap();
        }
        // The holes of the large one are not there.
        assert!(written.metadata().unwrap().len() < 4 << 20);
        written.rewind().unwrap();
        let mut seen = Archive::new(written);
        for entry in seen.entries().unwrap() {
            let mut entry = entry.unwrap();
            let name = entry.path().unwrap().display().to_string();
            if name == deep {
                let mut again = Vec::new();
                entry.read_to_end(&mut again).unwrap();
                assert!(again == filled && entry.header().uid().unwrap() == 7);
            } else if name == "large" {
                assert_eq!(entry.size(), 7 << 30);
            } else {
                assert_eq!(name, "after");
            }
        }
    }

    #[test]
    fn the_same_parts_elsewhere_are_another_file() {
        let digest = |parts: &[(u64, u64)]| {
            let mut archive = builder();
            put(&mut archive, "file", parts, 100_000);
            let context = read(archive).unwrap();
            let found = context.find("file", &mut Budget::default()).unwrap().remove(0);
            crate::build::context::digest(&found, crate::build::context::Owners::Root)
        };
        let one = digest(&[(4096, 512), (100_000, 0)]);
        assert_eq!(one, digest(&[(4096, 512), (100_000, 0)]));
        assert_ne!(one, digest(&[(8192, 512), (100_000, 0)]));
    }

    #[test]
    fn only_what_is_copied_has_a_limit() {
        let mut archive = builder();
        put(&mut archive, "endless", &[(0, 512), (7 << 30, 0)], 7 << 30);
        for n in 0..9 {
            put(&mut archive, &format!("all/{n}"), &[(7 << 30, 0)], 7 << 30);
        }
        put(&mut archive, "all/10", &[(7 << 30, 0)], 7 << 30);
        let context = read(archive).unwrap();
        context.find("endless", &mut Budget::default()).unwrap();
        let error = context.find("all", &mut Budget::default()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::LimitReached);
        let error = context.read_file("endless", 1000).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidRequest);
    }

    #[test]
    fn what_is_no_map_is_refused() {
        for parts in [&[(4096, 512)][..], &[(4096, 512), (0, 512), (10_000, 0)], &[(0, 512), (20_000, 0)]] {
            let mut archive = builder();
            put(&mut archive, "bad", parts, 10_000);
            assert_eq!(read(archive).unwrap_err().kind(), ErrorKind::InvalidRequest, "{parts:?}");
        }
        // The map would be taken for the file.
        let mut archive = builder();
        archive.append_pax_extensions([("GNU.sparse.major", &b"1"[..])]).unwrap();
        plain(&mut archive, "GNUSparseFile.1/file", b"1\n0\n512\n");
        let error = read(archive).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    }
}

//! Files with holes in an archive, which holds only the parts between the holes.

use std::{
    fs::File,
    io::{self, Read},
    os::unix::fs::FileExt as _,
};

use archive::Part;

/// A file with holes as others see it: zeros where it has holes.
pub(super) struct Filled<'a> {
    file: &'a File,
    /// Where the next of the parts is in the archive.
    stored_at: u64,
    size: u64,
    parts: &'a [Part],
    at: u64,
}

impl<'a> Filled<'a> {
    /// `offset` is where the first part is in the archive.
    pub(super) fn new(file: &'a File, offset: u64, size: u64, parts: &'a [Part]) -> Self {
        Self { file, stored_at: offset, size, parts, at: 0 }
    }
}

impl Read for Filled<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while let [part, rest @ ..] = self.parts
            && part.end() <= self.at
        {
            self.parts = rest;
        }
        let (end, is_hole) = match self.parts.first() {
            Some(part) if part.offset <= self.at => (part.end(), false),
            Some(part) => (part.offset, true),
            None => (self.size, true),
        };
        let most = usize::try_from(end - self.at).unwrap_or(usize::MAX).min(buffer.len());
        let buffer = &mut buffer[..most];
        let n = if is_hole {
            buffer.fill(0);
            most
        } else {
            let n = self.file.read_at(buffer, self.stored_at)?;
            self.stored_at += n as u64;
            n
        };
        self.at += n as u64;
        Ok(n)
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufReader, Seek as _, Write as _};

    use archive::{Format, Kind, ReadLimits, Reader};
    use futures_util::TryStreamExt as _;
    use sandbox::{ErrorKind, Result};
    use tar::{Builder, EntryType, GnuExtSparseHeader, GnuSparseHeader, Header};

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
        let limits = ReadLimits { header_bytes: 1 << 20, parts: 100 };
        let mut reader = Reader::new(BufReader::new(written), Format::Own, limits);
        while let Some(member) = reader.next().unwrap() {
            let Kind::File(content) = &member.kind else { panic!("{member:?}") };
            if member.path == deep.as_bytes() {
                let mut again = vec![0; 500_000];
                let put = |at: u64, bytes: &[u8]| {
                    again[usize::try_from(at).unwrap()..][..bytes.len()].copy_from_slice(bytes);
                    Ok::<_, archive::Error>(())
                };
                reader.content(content, put).unwrap();
                assert!(again == filled && content.size == 500_000 && member.uid == 7);
            } else if member.path == b"large" {
                assert_eq!(content.size, 7 << 30);
            } else {
                assert_eq!(member.path, b"after");
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
        // It says that it has a map, and not which.
        let mut archive = builder();
        archive.append_pax_extensions([("GNU.sparse.major", &b"1"[..])]).unwrap();
        plain(&mut archive, "GNUSparseFile.1/file", b"1\n0\n512\n");
        assert_eq!(read(archive).unwrap_err().kind(), ErrorKind::InvalidRequest);
        let mut archive = builder();
        archive.append_pax_extensions([("GNU.sparse.major", &b"2"[..])]).unwrap();
        plain(&mut archive, "GNUSparseFile.1/file", b"1\n0\n512\n");
        assert_eq!(read(archive).unwrap_err().kind(), ErrorKind::Unsupported);
    }

    #[test]
    fn holes_in_extended_headers_are_read_too() {
        let mut archive = builder();
        let records = [
            ("GNU.sparse.major", &b"1"[..]),
            ("GNU.sparse.minor", b"0"),
            ("GNU.sparse.name", b"dir/file"),
            ("GNU.sparse.realsize", b"2000"),
        ];
        archive.append_pax_extensions(records).unwrap();
        let mut content = b"2\n1000\n4\n2000\n0\n".to_vec();
        content.resize(512, 0);
        content.extend_from_slice(b"data");
        plain(&mut archive, "dir/GNUSparseFile.1/file", &content);
        let file = read(archive).unwrap().read_file("dir/file", 2000).unwrap().unwrap();
        assert!(file.len() == 2000 && &file[1000..1004] == b"data");
        assert!(archive::is_zero(&file[..1000]) && archive::is_zero(&file[1004..]));
    }
}

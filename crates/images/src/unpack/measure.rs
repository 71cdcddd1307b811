//! Measures the space that a layer would take on disk, without writing it.

use std::{collections::HashSet, io::Read};

use archive::{Kind, Member};

use super::{
    UnpackOptions, read_archive,
    tree::path_names,
    write::{DISK_BLOCK, blocks},
};
use crate::error::{Error, Result};

/// Returns no less than [`unpack_layer`](super::unpack_layer) would count for the layer `blob`. Members that it would
/// refuse do not matter here.
pub(crate) fn measured_layer(blob: impl Read + Send, options: &UnpackOptions) -> Result<u64> {
    let mut measure = Measure { options, directories: HashSet::new(), held: 0, bytes: 0 };
    read_archive(blob, options.max_layer_bytes, |member, _data| measure.add(member))?;
    Ok(measure.bytes)
}

struct Measure<'a> {
    options: &'a UnpackOptions,
    directories: HashSet<Vec<u8>>,
    /// Bytes of names in `directories`.
    held: u64,
    bytes: u64,
}

impl Measure<'_> {
    fn add(&mut self, member: &Member) -> Result<()> {
        let Ok(names) = path_names(&member.path) else { return Ok(()) };
        if let Kind::File(content) = &member.kind {
            self.bytes = self.bytes.saturating_add(blocks(content));
        }
        match (&member.kind, names.split_last()) {
            (Kind::Directory, _) | (_, None) => self.add_directories(&names),
            (_, Some((_name, parents))) => self.add_directories(parents),
        }
    }

    /// From the lowest upwards: one that is known has parents that are.
    fn add_directories(&mut self, names: &[&[u8]]) -> Result<()> {
        for depth in (1..=names.len()).rev() {
            let path = names[..depth].join(&b'/');
            let length = path.len() as u64;
            if !self.directories.insert(path) {
                break;
            }
            self.held += length;
            self.bytes = self.bytes.saturating_add(DISK_BLOCK);
        }
        self.check()
    }

    /// They are held in memory, here as well.
    fn check(&self) -> Result<()> {
        let too_large = |what: &str, limit: &'static str, most: u64| {
            Err(Error::TooLarge { what: what.to_owned(), limit: limit.into(), most })
        };
        if self.directories.len() as u64 > self.options.max_entries {
            return too_large("the number of entries in the layer", "max_entries", self.options.max_entries);
        }
        if self.held > self.options.max_directory_bytes {
            let what = "what the layer says of its directories";
            return too_large(what, "max_directory_bytes", self.options.max_directory_bytes);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::{fs::File, os::fd::AsFd as _};

    use super::*;
    use crate::unpack::unpack_layer;

    fn add(tar: &mut tar::Builder<Vec<u8>>, path: &str, kind: tar::EntryType, data: &[u8]) {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(kind);
        header.set_size(data.len() as u64);
        header.set_mode(0o755);
        tar.append_data(&mut header, path, data).unwrap();
    }

    #[test]
    fn what_is_measured_is_what_is_written() {
        let mut tar = tar::Builder::new(Vec::new());
        add(&mut tar, "./", tar::EntryType::Directory, b"");
        add(&mut tar, "a/", tar::EntryType::Directory, b"");
        add(&mut tar, "a/small", tar::EntryType::Regular, b"x");
        add(&mut tar, "a/large", tar::EntryType::Regular, &[1; 5000]);
        add(&mut tar, "a/empty", tar::EntryType::Regular, b"");
        add(&mut tar, "deep/without/entries/file", tar::EntryType::Regular, b"x");
        add(&mut tar, "deep/without/.wh.gone", tar::EntryType::Regular, b"");
        add(&mut tar, "a/small", tar::EntryType::Regular, b"again");
        let tar = tar.into_inner().unwrap();

        let directory = tempfile::tempdir().unwrap();
        let into = File::open(directory.path()).unwrap();
        let mut options = UnpackOptions::default();
        let written = unpack_layer(&tar[..], into.as_fd(), &options).unwrap().disk_bytes;
        assert_eq!(written, 9 * DISK_BLOCK);
        assert_eq!(measured_layer(&tar[..], &options).unwrap(), written);

        options.max_disk_bytes = written - 1;
        let directory = tempfile::tempdir().unwrap();
        let into = File::open(directory.path()).unwrap();
        let error = unpack_layer(&tar[..], into.as_fd(), &options).unwrap_err();
        assert!(matches!(&error, Error::TooLarge { limit, .. } if limit == "max_disk_bytes"), "{error}");
    }
}

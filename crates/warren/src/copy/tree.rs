//! Trees as tar streams on this side, packed and unpacked by a blocking thread at the other end of a short channel.

use std::{
    fs, io,
    io::{Read, Write},
    path::{Path, PathBuf},
};

use bytes::Bytes;
use futures_util::{Stream, StreamExt as _};
use sandbox::{Error, ErrorKind};
use tar::EntryType;
use tokio::sync::mpsc;

use crate::{
    error::{CommandResult, io_failure},
    output,
};

/// Pieces of a tar stream that may wait for the other side, and their size.
const PIECES: usize = 8;
const PIECE_BYTES: usize = 128 * 1024;

/// Packs `source`, its entries named beneath `prefix`; an empty prefix means only what is in it.
pub(super) fn pack(
    source: PathBuf,
    prefix: PathBuf,
) -> impl Stream<Item = io::Result<Bytes>> + Send + 'static {
    let (sender, receiver) = mpsc::channel(PIECES);
    tokio::task::spawn_blocking(move || {
        let mut builder =
            tar::Builder::new(io::BufWriter::with_capacity(PIECE_BYTES, Sending(sender.clone())));
        builder.follow_symlinks(false);
        let packed = builder.append_dir_all(&prefix, &source).and_then(|()| builder.into_inner()?.flush());
        if let Err(error) = packed {
            // Whoever reads the stream learns of it as the stream's end.
            let named = io::Error::new(error.kind(), format!("{}: {error}", source.display()));
            sender.blocking_send(Err(named)).ok();
        }
    });
    futures_util::stream::unfold(receiver, |mut receiver| async move {
        receiver.recv().await.map(|piece| (piece, receiver))
    })
}

struct Sending(mpsc::Sender<io::Result<Bytes>>);

impl Write for Sending {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0
            .blocking_send(Ok(Bytes::copy_from_slice(bytes)))
            .map_err(|_closed| io::Error::from(io::ErrorKind::BrokenPipe))?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Unpacks a tar stream into `directory`, which must be fresh: then nothing in the stream can lead out of it.
pub(super) async fn unpack(
    bytes: impl Stream<Item = io::Result<Bytes>> + Send + Unpin,
    directory: PathBuf,
) -> CommandResult<()> {
    let (sender, receiver) = mpsc::channel(PIECES);
    let unpacking = tokio::task::spawn_blocking(move || {
        let mut source = Receiving { receiver, rest: Bytes::new() };
        let unpacked = unpack_entries(&mut source, &directory);
        // Read what follows the end of the archive, or the sender would see a closed channel.
        io::copy(&mut source, &mut io::sink()).ok();
        unpacked
    });
    let mut bytes = bytes;
    let mut failure = None;
    while let Some(piece) = bytes.next().await {
        match piece {
            Ok(piece) => {
                if sender.send(piece).await.is_err() {
                    break;
                }
            }
            Err(error) => {
                failure = Some(error);
                break;
            }
        }
    }
    drop(sender);
    let unpacked = unpacking.await.map_err(io::Error::other)?;
    match failure {
        Some(error) => Err(Error::new(ErrorKind::Unavailable, "the tree could not be read to its end")
            .with_source(error)
            .into()),
        None => unpacked.map_err(|error| io_failure("the tree could not be unpacked", error)),
    }
}

fn unpack_entries(source: impl Read, directory: &Path) -> io::Result<()> {
    let mut archive = tar::Archive::new(source);
    archive.set_preserve_permissions(false);
    archive.set_overwrite(true);
    for entry in archive.entries()? {
        let mut entry = entry?;
        match entry.header().entry_type() {
            EntryType::Regular
            | EntryType::Continuous
            | EntryType::GNUSparse
            | EntryType::Directory
            | EntryType::Symlink
            | EntryType::Link => drop(entry.unpack_in(directory)?),
            _ => {
                let path = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
                output::warn(&format!(
                    "{} is left out: not a file, directory or link",
                    output::printable(&path)
                ));
            }
        }
    }
    Ok(())
}

struct Receiving {
    receiver: mpsc::Receiver<Bytes>,
    rest: Bytes,
}

impl Read for Receiving {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        while self.rest.is_empty() {
            match self.receiver.blocking_recv() {
                Some(piece) => self.rest = piece,
                None => return Ok(0),
            }
        }
        let n = self.rest.len().min(out.len());
        out[..n].copy_from_slice(&self.rest.split_to(n));
        Ok(n)
    }
}

/// Moves what is in `from` into `into`: directories are merged, everything else is replaced. Links are moved, never followed.
pub(super) fn merge(from: &Path, into: &Path) -> io::Result<()> {
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (source, target) = (entry.path(), into.join(entry.file_name()));
        let is_directory = entry.file_type()?.is_dir();
        match fs::symlink_metadata(&target) {
            Ok(found) if found.is_dir() && is_directory => merge(&source, &target)?,
            Ok(found) if found.is_dir() != is_directory => {
                let message = format!("{} is in the way", target.display());
                return Err(io::Error::new(io::ErrorKind::AlreadyExists, message));
            }
            Ok(_) => fs::rename(&source, &target)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => fs::rename(&source, &target)?,
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn archive(entries: &[(&str, EntryType, &str)]) -> Vec<u8> {
        let mut builder = tar::Builder::new(Vec::new());
        for (path, kind, text) in entries {
            let mut header = tar::Header::new_gnu();
            header.set_entry_type(*kind);
            header.set_mode(0o644);
            let is_link = matches!(kind, EntryType::Symlink | EntryType::Link);
            header.set_size(if is_link { 0 } else { text.len() as u64 });
            // By hand: the builder itself refuses such names.
            header.as_mut_bytes()[..path.len()].copy_from_slice(path.as_bytes());
            if is_link {
                header.set_link_name_literal(text).unwrap();
            }
            header.set_cksum();
            builder.append(&header, if is_link { &b""[..] } else { text.as_bytes() }).unwrap();
        }
        builder.into_inner().unwrap()
    }

    #[test]
    fn a_hostile_tree_stays_where_it_is_put() {
        let place = tempfile::tempdir().unwrap();
        let (outside, staging) = (place.path().join("outside"), place.path().join("staging"));
        fs::create_dir(&outside).unwrap();
        fs::create_dir(&staging).unwrap();
        let tricks = [
            archive(&[("../outside/a", EntryType::Regular, "x")]),
            archive(&[
                ("link", EntryType::Symlink, outside.to_str().unwrap()),
                ("link/b", EntryType::Regular, "x"),
            ]),
            archive(&[("hard", EntryType::Link, "../outside/secret")]),
            archive(&[("dev", EntryType::Char, "")]),
        ];
        fs::write(outside.join("secret"), "mine").unwrap();
        for trick in tricks {
            // Refused or made harmless: either is fine.
            unpack_entries(&trick[..], &staging).ok();
        }
        let left: Vec<_> = fs::read_dir(&outside).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left, ["secret"]);
        assert!(!staging.join("hard").exists() && !staging.join("dev").exists());
    }

    #[test]
    fn merging_keeps_what_else_is_there() {
        let place = tempfile::tempdir().unwrap();
        let (from, into) = (place.path().join("from"), place.path().join("into"));
        fs::create_dir_all(from.join("d")).unwrap();
        fs::create_dir_all(into.join("d")).unwrap();
        fs::write(from.join("d/new"), "new").unwrap();
        fs::write(into.join("d/old"), "old").unwrap();
        merge(&from, &into).unwrap();
        assert!(into.join("d/new").exists() && into.join("d/old").exists());
        fs::write(from.join("e"), "file").unwrap();
        fs::create_dir(into.join("e")).unwrap();
        assert_eq!(merge(&from, &into).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
    }
}

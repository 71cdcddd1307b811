//! `TarOut`: a tree as a tar stream.

use std::{
    ffi::OsStr,
    io::{self, ErrorKind::BrokenPipe, Read, Write},
    os::{fd::AsFd, unix::ffi::OsStrExt},
    path::{Path, PathBuf},
};

use archive::{Content, Kind, Member, Pieces, Writer};
use bytes::Bytes;
use guest_protocol::{MAX_DATA_BYTES, Response};
use rustix::fs::{FileType, Stat};
use tokio::sync::mpsc;

use super::{
    Answer, Cancel, absolute,
    entry::{EntryAt, kind_of, open_directory, open_regular_at},
    failure, in_background, named,
    walk::{Flow, Item, Trouble, Visit, walk},
};
use crate::{
    background, wire,
    wire::{ConnectionError, FrameReader, FrameWriter},
};

/// Pieces of the stream that wait to be sent.
const QUEUED_PIECES: usize = 4;

/// The top of a tree that is being packed.
struct Top {
    path: PathBuf,
    /// The first component of every entry's name.
    name: PathBuf,
    stat: Stat,
    entry: Option<EntryAt>,
}

fn top(path: &str) -> Answer<Top> {
    let path = absolute(path)?;
    let read = |error| failure(named("pack", &path), error);
    // The root has no name of its own.
    if path.parent().is_none() {
        let stat = rustix::fs::stat(&path).map_err(read)?;
        return Ok(Top { path, name: PathBuf::new(), stat, entry: None });
    }
    let entry = EntryAt::of(&path)?;
    let stat = entry.stat().map_err(read)?;
    let name = PathBuf::from(OsStr::from_bytes(entry.name.to_bytes()));
    Ok(Top { path, name, stat, entry: Some(entry) })
}

pub(crate) async fn pack(
    reader: &mut FrameReader<'_>,
    writer: FrameWriter<'_>,
    path: String,
) -> wire::Result<Answer<()>> {
    let top = match in_background(reader, move |_| top(&path)).await? {
        Ok(top) => top,
        Err(failure) => return Ok(Err(failure)),
    };
    let (sender, mut pieces) = mpsc::channel(QUEUED_PIECES);
    let cancel = Cancel::default();
    let theirs = cancel.clone();
    let job = background::spawn_archive(move || {
        let send = |piece| sender.blocking_send(Bytes::from(piece)).map_err(|_gone| BrokenPipe.into());
        pack_top(&top, Pieces::new(MAX_DATA_BYTES, send), &theirs)
    });
    let job = match job {
        Ok(job) => job,
        Err(failure) => return Ok(Err(failure)),
    };
    writer.respond(&Response::Packing).await?;
    while let Some(piece) = pieces.recv().await {
        if let Err(error) = writer.data(&piece).await {
            cancel.cancel();
            return Err(error);
        }
    }
    // The body has begun, so the only honest answer to a failure is an end that is no end.
    job.done().await.flatten().map_err(ConnectionError::BrokenBody)?;
    writer.end().await?;
    Ok(Ok(()))
}

fn pack_top(top: &Top, writer: impl Write, cancel: &Cancel) -> Answer<()> {
    let mut archive = Writer::new(writer);
    if let Some(entry) = &top.entry {
        let parent = entry.directory.as_fd();
        let (name, visit) = (entry.name.as_c_str(), Visit::Enter);
        append(
            &mut archive,
            &top.name,
            &Item { parent, name, relative: Path::new(""), stat: &top.stat, visit },
        )?;
    }
    if kind_of(&top.stat) == FileType::Directory {
        walk(open_directory(&top.path)?, &top.path, Trouble::Skip, cancel, |item| {
            if item.visit == Visit::Enter {
                append(&mut archive, &top.name.join(item.relative), item)?;
            }
            Ok(Flow::Into)
        })?;
    }
    archive.finish().map(drop).map_err(|error| failure(named("pack", &top.path), error))
}

/// Appends one entry. What vanishes or changes its kind before it is opened is left out.
fn append(archive: &mut Writer<impl Write>, name: &Path, item: &Item<'_>) -> Answer<()> {
    // Times are to the second: a fraction would need a header of its own for each entry.
    let member = |kind, stat| Member::of(name.as_os_str().as_bytes(), kind, stat).to_the_second();
    let appended = match kind_of(item.stat) {
        FileType::RegularFile => {
            let Ok((file, stat)) = open_regular_at(item.parent, item.name) else { return Ok(()) };
            let size = u64::try_from(stat.st_size).unwrap_or(0);
            archive.add(&member(Kind::File(Content::whole(size)), &stat), Exactly { file, left: size })
        }
        FileType::Directory => archive.begin(&member(Kind::Directory, item.stat)),
        FileType::Symlink => {
            let Ok(target) = rustix::fs::readlinkat(item.parent, item.name, vec![]) else { return Ok(()) };
            archive.begin(&member(Kind::Symlink { target: target.into_bytes() }, item.stat))
        }
        FileType::Fifo => archive.begin(&member(Kind::Fifo, item.stat)),
        // Sockets and devices mean nothing elsewhere.
        _ => return Ok(()),
    };
    appended.map_err(|error| failure(named("pack", name), error))
}

/// A file as long as its header says: cut when it has grown, filled with zeros when it has shrunk, so that the entries
/// behind it stay where they belong.
struct Exactly {
    file: std::fs::File,
    left: u64,
}

impl Read for Exactly {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let wanted = usize::try_from(self.left).unwrap_or(usize::MAX).min(buffer.len());
        let buffer = &mut buffer[..wanted];
        let n = match self.file.read(buffer) {
            Ok(0) | Err(_) if wanted > 0 => {
                buffer.fill(0);
                wanted
            }
            result => result?,
        };
        self.left -= n as u64;
        Ok(n)
    }
}

//! `Write`: whole or not at all. The bytes go to a file beside the target, which takes its place at the body's end.

use std::{
    fs::File,
    io::{IoSlice, Write},
    os::fd::AsFd,
    path::Path,
    sync::atomic::{AtomicU64, Ordering},
};

use bytes::Bytes;
use guest_protocol::{Failure, FailureKind, Response, WriteMode};
use rustix::{
    fs::{AtFlags, FileType, Gid, Mode, OFlags, RenameFlags, Stat, Uid},
    io::Errno,
};

use super::{
    Answer, absolute, broken,
    change::mode_of,
    failure, named,
    place::{Place, QUIET, kind_of, make_directories},
    wrong_state,
};
use crate::{background, background::Running, wire, wire::FrameReader};

/// Bytes gathered before they are handed to a thread; as many again are being written meanwhile.
const BATCH_BYTES: usize = 1024 * 1024;
/// Bits of a new file for which none were asked.
const USUAL_MODE: u32 = 0o644;

/// Whether a failed request's body must still be read away: not when it was read to its end.
pub(crate) use crate::exec::BodyLeft;

/// What was asked, as in `Request::Write`.
#[derive(Debug)]
struct Wanted {
    path: String,
    write: WriteMode,
    mode: Option<u32>,
    parents: bool,
}

pub(crate) async fn write(
    reader: &mut FrameReader<'_>,
    path: String,
    write: WriteMode,
    mode: Option<u32>,
    parents: bool,
) -> wire::Result<Result<Response, (Failure, BodyLeft)>> {
    let mut wanted = Some(Wanted { path, write, mode, parents });
    let mut job: Option<Running<Answer<Draft>>> = None;
    let mut total = 0;
    loop {
        let (batch, is_end) = gather(reader).await?;
        total += batch.iter().map(|bytes| bytes.len() as u64).sum::<u64>();
        let draft = match job.take() {
            Some(job) => match job.done().await.flatten() {
                Ok(draft) => Some(draft),
                Err(failure) => return Ok(Err((failure, left(is_end)))),
            },
            None => None,
        };
        let wanted = wanted.take();
        let step = move || {
            let mut draft = match (draft, wanted) {
                (Some(draft), _) => draft,
                (None, Some(wanted)) => Draft::begin(&wanted)?,
                (None, None) => return Err(broken()),
            };
            draft.append(&batch)?;
            Ok(draft)
        };
        if is_end {
            let done = match background::spawn(move || step()?.commit()) {
                Ok(running) => running.done().await.flatten(),
                Err(failure) => Err(failure),
            };
            return Ok(match done {
                Ok(()) => Ok(Response::Written { bytes: total }),
                Err(failure) => Err((failure, BodyLeft::No)),
            });
        }
        job = match background::spawn(step) {
            Ok(running) => Some(running),
            Err(failure) => return Ok(Err((failure, BodyLeft::Yes))),
        };
    }
}

fn left(is_end: bool) -> BodyLeft {
    if is_end { BodyLeft::No } else { BodyLeft::Yes }
}

/// Takes frames until there is enough to write, or the end.
async fn gather(reader: &mut FrameReader<'_>) -> wire::Result<(Vec<Bytes>, bool)> {
    let (mut batch, mut bytes) = (Vec::new(), 0);
    while bytes < BATCH_BYTES {
        match reader.body().await? {
            Some(part) => {
                bytes += part.len();
                batch.push(part);
            }
            None => return Ok((batch, true)),
        }
    }
    Ok((batch, false))
}

/// A write that has begun. Dropped before [`Draft::commit`], it leaves everything as it was.
#[derive(Debug)]
pub(super) struct Draft {
    place: Place,
    file: File,
    kind: Kind,
    is_committed: bool,
}

#[derive(Debug)]
enum Kind {
    /// A file of this name beside the target.
    Beside { name: std::ffi::CString, replace: bool },
    /// The target itself, with its length before.
    Append { before: u64, written: u64 },
}

impl Draft {
    fn begin(wanted: &Wanted) -> Answer<Self> {
        let path = absolute(&wanted.path)?;
        let mode = wanted.mode.map(mode_of).transpose()?;
        if wanted.parents
            && let Some(parent) = path.parent()
        {
            make_directories(parent, Mode::from_raw_mode(0o755))?;
        }
        match wanted.write {
            WriteMode::Append => Self::append_to(&path, mode),
            WriteMode::Replace => {
                let place = Place::followed(&path)?;
                let existing = existing_file(&place)?;
                Self::beside(place, existing.as_ref(), mode, true)
            }
            WriteMode::CreateNew => {
                let place = Place::of(&path)?;
                if place.stat().is_ok() {
                    return Err(failure(named("create", &path), Errno::EXIST));
                }
                Self::beside(place, None, mode, false)
            }
        }
    }

    /// A new file next to `place`, with the owner and mode of the one that it will replace.
    pub(super) fn beside(
        place: Place,
        existing: Option<&Stat>,
        mode: Option<Mode>,
        replace: bool,
    ) -> Answer<Self> {
        let (file, name) = temporary(&place)?;
        let draft = Self { place, file, kind: Kind::Beside { name, replace }, is_committed: false };
        let mode = match existing {
            Some(stat) => {
                let (uid, gid) = (Uid::from_raw(stat.st_uid), Gid::from_raw(stat.st_gid));
                rustix::fs::fchown(&draft.file, Some(uid), Some(gid))
                    .map_err(|error| failure(named("keep the owner of", &draft.place.path), error))?;
                Mode::from_raw_mode(stat.st_mode & 0o7777)
            }
            None => mode.unwrap_or(Mode::from_raw_mode(USUAL_MODE)),
        };
        rustix::fs::fchmod(&draft.file, mode)
            .map_err(|error| failure(named("set the mode of", &draft.place.path), error))?;
        Ok(draft)
    }

    fn append_to(path: &Path, mode: Option<Mode>) -> Answer<Self> {
        let place = Place::followed(path)?;
        existing_file(&place)?;
        let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::NOFOLLOW | QUIET;
        let failed = |error| failure(named("open", path), error);
        let file = match rustix::fs::openat(&place.directory, &place.name, flags, Mode::empty()) {
            Ok(file) => file,
            Err(Errno::NOENT) => return Self::beside(place, None, mode, false),
            Err(error) => return Err(failed(error)),
        };
        let stat = rustix::fs::fstat(&file).map_err(failed)?;
        if kind_of(&stat) != FileType::RegularFile {
            return Err(wrong_state(format!("{} is not a file", path.display())));
        }
        let before = u64::try_from(stat.st_size).unwrap_or(0);
        Ok(Self { place, file: file.into(), kind: Kind::Append { before, written: 0 }, is_committed: false })
    }

    pub(super) fn file(&self) -> &File {
        &self.file
    }

    fn append(&mut self, batch: &[Bytes]) -> Answer<()> {
        let mut pieces: Vec<IoSlice<'_>> = batch.iter().map(|bytes| IoSlice::new(bytes)).collect();
        let mut pieces = &mut pieces[..];
        IoSlice::advance_slices(&mut pieces, 0);
        while !pieces.is_empty() {
            match self.file.write_vectored(pieces) {
                Ok(0) => return Err(failure(named("write", &self.place.path), Errno::NOSPC)),
                Ok(n) => {
                    if let Kind::Append { written, .. } = &mut self.kind {
                        *written += n as u64;
                    }
                    IoSlice::advance_slices(&mut pieces, n);
                }
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(failure(named("write", &self.place.path), error)),
            }
        }
        Ok(())
    }

    pub(super) fn commit(mut self) -> Answer<()> {
        if let Kind::Beside { name, replace } = &self.kind {
            let flags = if *replace { RenameFlags::empty() } else { RenameFlags::NOREPLACE };
            let directory = self.place.directory.as_fd();
            rustix::fs::renameat_with(directory, name, directory, &self.place.name, flags)
                .map_err(|error| failure(named("write", &self.place.path), error))?;
        }
        self.is_committed = true;
        Ok(())
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        if self.is_committed {
            return;
        }
        match &self.kind {
            Kind::Beside { name, .. } => {
                // Whoever removed it before us did our work.
                rustix::fs::unlinkat(&self.place.directory, name, AtFlags::empty()).ok();
            }
            Kind::Append { before, written } => {
                let length = self.file.metadata().map(|metadata| metadata.len());
                // Only when nobody else has appended meanwhile: their bytes are not ours to cut.
                if *written > 0 && length.is_ok_and(|length| length == before + written) {
                    self.file.set_len(*before).ok();
                }
            }
        }
    }
}

/// What stands at a place that is about to be written: a file or nothing.
fn existing_file(place: &Place) -> Answer<Option<Stat>> {
    match place.stat() {
        Ok(stat) if kind_of(&stat) == FileType::RegularFile => Ok(Some(stat)),
        Ok(stat) if kind_of(&stat) == FileType::Directory => {
            Err(wrong_state(format!("{} is a directory", place.path.display())))
        }
        Ok(_) => Err(wrong_state(format!("{} is not a file", place.path.display()))),
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(failure(named("write", &place.path), error)),
    }
}

/// Makes a file of a name that nobody has yet, in the same directory.
fn temporary(place: &Place) -> Answer<(File, std::ffi::CString)> {
    static COUNTER: AtomicU64 = AtomicU64::new(0);
    const ATTEMPTS: usize = 100;
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | QUIET;
    for _ in 0..ATTEMPTS {
        let number = COUNTER.fetch_add(1, Ordering::Relaxed);
        let salt = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .map_or(0, |since| since.subsec_nanos());
        let name = super::place::c_name(format!(".warren-{number}-{salt}.part").as_ref())?;
        match rustix::fs::openat(&place.directory, &name, flags, Mode::RUSR | Mode::WUSR) {
            Ok(fd) => return Ok((fd.into(), name)),
            Err(Errno::EXIST) => {}
            Err(error) => return Err(failure(named("write", &place.path), error)),
        }
    }
    Err(Failure::new(FailureKind::Internal, named("find a free name beside", &place.path)))
}

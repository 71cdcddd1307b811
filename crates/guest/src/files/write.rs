//! `Write`: whole or not at all, except for writes in place. The bytes go to a temporary file beside the target, which
//! replaces it when the body ends.

use std::{
    fs::File,
    io::Write,
    os::{fd::AsFd, unix::fs::FileExt},
    path::Path,
    sync::atomic::{AtomicU64, Ordering},
};

use guest_protocol::{Failure, FailureKind, Response, WriteMode};
use rustix::{
    fs::{AtFlags, FileType, Gid, Mode, OFlags, RenameFlags, Stat, Uid},
    io::Errno,
};

use super::{
    Answer, absolute,
    change::mode_of,
    charged::Body,
    entry::{EntryAt, QUIET, kind_of, make_directories},
    failure, named, wrong_state,
};

/// Default permission bits of a new file.
const USUAL_MODE: u32 = 0o644;

/// The fields of `Request::Write`.
#[derive(Debug)]
pub(super) struct WriteRequest {
    pub(super) path: String,
    pub(super) write: WriteMode,
    pub(super) mode: Option<u32>,
    pub(super) parents: bool,
}

/// The name of the temporary file. The process that starts the writer knows it, and can remove the file of a dead one.
#[derive(Debug)]
pub(super) struct DraftName(String);

impl DraftName {
    /// A fresh random name.
    pub(super) fn new() -> Self {
        static COUNTER: AtomicU64 = AtomicU64::new(0);
        let number = COUNTER.fetch_add(1, Ordering::Relaxed);
        let salt = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .map_or(0, |since| since.subsec_nanos());
        Self(format!(".warren-{}-{number}-{salt}.part", std::process::id()))
    }
}

pub(super) fn write(request: &WriteRequest, name: &DraftName, body: &mut Body) -> Answer {
    let mut draft = Draft::begin(request, name)?;
    let failed = |error| failure(format!("could not write {}", request.path), error);
    while let Some(piece) = body.piece().map_err(failed)? {
        draft.append(&piece)?;
    }
    draft.commit()?;
    Ok(Response::Written { bytes: body.total })
}

/// Removes the temporary file of a writer that was killed.
pub(super) fn forget(path: &str, name: &DraftName) {
    let entry = absolute(path).and_then(|path| EntryAt::followed(&path));
    if let Ok(entry) = entry {
        rustix::fs::unlinkat(&entry.directory, name.0.as_str(), AtFlags::empty()).ok();
    }
}

/// A write in progress. Dropped before [`Draft::commit`], it leaves everything as it was.
#[derive(Debug)]
pub(super) struct Draft {
    entry: EntryAt,
    file: File,
    kind: Kind,
    is_committed: bool,
}

#[derive(Debug)]
enum Kind {
    /// A temporary file of this name beside the target.
    Beside { name: std::ffi::CString, replace: bool },
    /// The target itself, with its length before.
    Append { before: u64, written: u64 },
    /// The target itself, and where the next byte goes.
    InPlace { position: u64 },
}

impl Draft {
    fn begin(request: &WriteRequest, name: &DraftName) -> Answer<Self> {
        let path = absolute(&request.path)?;
        let mode = request.mode.map(mode_of).transpose()?;
        if request.parents
            && let Some(parent) = path.parent()
        {
            make_directories(parent, Mode::from_raw_mode(0o755))?;
        }
        match request.write {
            WriteMode::Append => Self::append_to(&path, mode, name),
            WriteMode::At(position) => Self::in_place(&path, mode, position),
            WriteMode::Replace => {
                let entry = EntryAt::followed(&path)?;
                let existing = existing_file(&entry)?;
                Self::beside(entry, existing.as_ref(), mode, true, name)
            }
            WriteMode::CreateNew => {
                let entry = EntryAt::of(&path)?;
                if entry.stat().is_ok() {
                    return Err(failure(named("create", &path), Errno::EXIST));
                }
                Self::beside(entry, None, mode, false, name)
            }
        }
    }

    /// A temporary file beside the target, with the owner and mode of the file it will replace.
    pub(super) fn beside(
        entry: EntryAt,
        existing: Option<&Stat>,
        mode: Option<Mode>,
        replace: bool,
        name: &DraftName,
    ) -> Answer<Self> {
        let (file, name) = temporary(&entry, name)?;
        let draft = Self { entry, file, kind: Kind::Beside { name, replace }, is_committed: false };
        let mode = match existing {
            Some(stat) => {
                let (uid, gid) = (Uid::from_raw(stat.st_uid), Gid::from_raw(stat.st_gid));
                rustix::fs::fchown(&draft.file, Some(uid), Some(gid))
                    .map_err(|error| failure(named("keep the owner of", &draft.entry.path), error))?;
                Mode::from_raw_mode(stat.st_mode & 0o7777)
            }
            None => mode.unwrap_or(Mode::from_raw_mode(USUAL_MODE)),
        };
        rustix::fs::fchmod(&draft.file, mode)
            .map_err(|error| failure(named("set the mode of", &draft.entry.path), error))?;
        Ok(draft)
    }

    fn append_to(path: &Path, mode: Option<Mode>, name: &DraftName) -> Answer<Self> {
        let entry = EntryAt::followed(path)?;
        existing_file(&entry)?;
        let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::NOFOLLOW | QUIET;
        let failed = |error| failure(named("open", path), error);
        let file = match rustix::fs::openat(&entry.directory, &entry.name, flags, Mode::empty()) {
            Ok(file) => file,
            Err(Errno::NOENT) => return Self::beside(entry, None, mode, false, name),
            Err(error) => return Err(failed(error)),
        };
        let stat = rustix::fs::fstat(&file).map_err(failed)?;
        if kind_of(&stat) != FileType::RegularFile {
            return Err(wrong_state(format!("{} is not a file", path.display())));
        }
        let before = u64::try_from(stat.st_size).unwrap_or(0);
        Ok(Self { entry, file: file.into(), kind: Kind::Append { before, written: 0 }, is_committed: false })
    }

    fn in_place(path: &Path, mode: Option<Mode>, position: u64) -> Answer<Self> {
        let entry = EntryAt::followed(path)?;
        existing_file(&entry)?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::NOFOLLOW | QUIET;
        let mode = mode.unwrap_or(Mode::from_raw_mode(USUAL_MODE));
        let failed = |error| failure(named("open", path), error);
        let file: File =
            rustix::fs::openat(&entry.directory, &entry.name, flags, mode).map_err(failed)?.into();
        if kind_of(&rustix::fs::fstat(&file).map_err(failed)?) != FileType::RegularFile {
            return Err(wrong_state(format!("{} is not a file", path.display())));
        }
        Ok(Self { entry, file, kind: Kind::InPlace { position }, is_committed: false })
    }

    pub(super) fn file(&self) -> &File {
        &self.file
    }

    fn append(&mut self, mut piece: &[u8]) -> Answer<()> {
        while !piece.is_empty() {
            let written = match self.kind {
                Kind::InPlace { position } => self.file.write_at(piece, position),
                _ => self.file.write(piece),
            };
            match written {
                Ok(0) => return Err(failure(named("write", &self.entry.path), Errno::NOSPC)),
                Ok(n) => {
                    if let Kind::Append { written: position, .. } | Kind::InPlace { position } =
                        &mut self.kind
                    {
                        *position += n as u64;
                    }
                    piece = &piece[n..];
                }
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(failure(named("write", &self.entry.path), error)),
            }
        }
        Ok(())
    }

    pub(super) fn commit(mut self) -> Answer<()> {
        if let Kind::Beside { name, replace } = &self.kind {
            let flags = if *replace { RenameFlags::empty() } else { RenameFlags::NOREPLACE };
            let directory = self.entry.directory.as_fd();
            rustix::fs::renameat_with(directory, name, directory, &self.entry.name, flags)
                .map_err(|error| failure(named("write", &self.entry.path), error))?;
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
                // If somebody else removed it first, that is fine.
                rustix::fs::unlinkat(&self.entry.directory, name, AtFlags::empty()).ok();
            }
            Kind::Append { before, written } => {
                let length = self.file.metadata().map(|metadata| metadata.len());
                // Only if nobody else has appended meanwhile: their bytes must stay.
                if *written > 0 && length.is_ok_and(|length| length == before + written) {
                    self.file.set_len(*before).ok();
                }
            }
            Kind::InPlace { .. } => {}
        }
    }
}

/// The file about to be written, if there is one.
fn existing_file(entry: &EntryAt) -> Answer<Option<Stat>> {
    match entry.stat() {
        Ok(stat) if kind_of(&stat) == FileType::RegularFile => Ok(Some(stat)),
        Ok(stat) if kind_of(&stat) == FileType::Directory => {
            Err(wrong_state(format!("{} is a directory", entry.path.display())))
        }
        Ok(_) => Err(wrong_state(format!("{} is not a file", entry.path.display()))),
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(failure(named("write", &entry.path), error)),
    }
}

/// Makes a temporary file of that name in the same directory, or of another name if that one is taken.
fn temporary(entry: &EntryAt, name: &DraftName) -> Answer<(File, std::ffi::CString)> {
    const ATTEMPTS: usize = 100;
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | QUIET;
    for attempt in 0..ATTEMPTS {
        let name = if attempt == 0 { name } else { &DraftName::new() };
        let name = super::entry::c_name(name.0.as_ref())?;
        match rustix::fs::openat(&entry.directory, &name, flags, Mode::RUSR | Mode::WUSR) {
            Ok(fd) => return Ok((fd.into(), name)),
            Err(Errno::EXIST) => {}
            Err(error) => return Err(failure(named("write", &entry.path), error)),
        }
    }
    Err(Failure::new(FailureKind::Internal, named("find a free name beside", &entry.path)))
}

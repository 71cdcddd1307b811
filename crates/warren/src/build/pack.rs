//! The build context as a tar stream, without the files that `.dockerignore` matches.

use std::{
    fs, io,
    os::unix::ffi::OsStringExt as _,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use archive::{Content, Kind, Member, Pieces, Writer};
use bytes::Bytes;
use engine::{BuildIgnore, OUTSIDE_DOCKERFILE};
use futures_util::Stream;
use sandbox::Error;
use tokio::sync::mpsc;

use crate::error::{CommandResult, io_failure};

/// How many pieces of the stream may be queued for the other side, and their size.
const PIECES: usize = 8;
const PIECE_BYTES: usize = 128 * 1024;
/// Largest `.dockerignore`.
const MAX_IGNORE_BYTES: u64 = 1024 * 1024;
const IGNORE: &str = ".dockerignore";

/// The files to pack.
#[derive(Debug)]
pub(crate) struct Packing {
    directory: PathBuf,
    ignore: BuildIgnore,
    /// Sent even if they are ignored: the daemon needs them, and leaves them out of the image itself.
    pub(crate) always: Vec<String>,
    /// A Dockerfile that is outside the directory.
    pub(crate) beside: Option<Vec<u8>>,
    /// Real paths of the daemon's spool directories: a context that contained them would never end.
    pub(crate) left_out: Vec<PathBuf>,
}

impl Packing {
    pub(crate) fn of(directory: PathBuf) -> CommandResult<Self> {
        let file = directory.join(IGNORE);
        let named = |error| io_failure(file.display().to_string(), error);
        let ignore = match fs::metadata(&file) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => BuildIgnore::default(),
            found => {
                if found.map_err(named)?.len() > MAX_IGNORE_BYTES {
                    return Err(
                        Error::invalid(format!("{IGNORE} has more than {MAX_IGNORE_BYTES} bytes")).into()
                    );
                }
                let text = fs::read(&file).map_err(named)?;
                BuildIgnore::parse(&String::from_utf8_lossy(&text)).map_err(Error::invalid)?
            }
        };
        Ok(Self { directory, ignore, always: vec![IGNORE.to_owned()], beside: None, left_out: Vec::new() })
    }

    fn keeps(&self, name: &str) -> bool {
        !self.ignore.excludes(name) || self.always.iter().any(|always| always == name)
    }

    /// Whether anything below the directory may be included.
    fn enters(&self, name: &str) -> bool {
        let holds_always = || self.always.iter().any(|always| always.starts_with(&format!("{name}/")));
        self.keeps(name) || self.ignore.takes_back() || holds_always()
    }

    fn write(&self, archive: &mut Writer<impl io::Write>) -> io::Result<()> {
        if let Some(text) = &self.beside {
            let content = Kind::File(Content::whole(text.len() as u64));
            archive.add(&Member::new(OUTSIDE_DOCKERFILE, content, 0o644), &text[..])?;
        }
        let mut open = vec![String::new()];
        while let Some(directory) = open.pop() {
            let path = self.directory.join(&directory);
            let mut entries = fs::read_dir(&path)
                .and_then(|entries| entries.collect::<io::Result<Vec<_>>>())
                .map_err(|error| named(&path, &error))?;
            entries.sort_by_key(fs::DirEntry::file_name);
            for entry in entries {
                let path = entry.path();
                if self.left_out.contains(&path) {
                    continue;
                }
                let file_name = entry.file_name();
                let shown = file_name.to_string_lossy();
                let name =
                    if directory.is_empty() { shown.into_owned() } else { format!("{directory}/{shown}") };
                let kind = entry.file_type().map_err(|error| named(&path, &error))?;
                // Apply the rules first: ignored files may have any name.
                let is_wanted = self.keeps(&name) || (kind.is_dir() && self.enters(&name));
                if is_wanted && file_name.to_str().is_none() {
                    return Err(named(&path, &io::Error::other("its name is not UTF-8")));
                }
                if kind.is_dir() && self.enters(&name) {
                    open.push(name.clone());
                }
                if self.keeps(&name) {
                    append(archive, &path, name, kind).map_err(|error| named(&path, &error))?;
                }
            }
        }
        Ok(())
    }
}

fn append(
    archive: &mut Writer<impl io::Write>,
    path: &Path,
    name: String,
    kind: fs::FileType,
) -> io::Result<()> {
    let member =
        |kind| io::Result::Ok(Member::of(name.as_str(), kind, &rustix::fs::lstat(path)?).to_the_second());
    if kind.is_file() {
        let file = fs::File::open(path)?;
        let stat = rustix::fs::fstat(&file)?;
        let member = Member::of(name, Kind::File(Content::default()), &stat).to_the_second();
        archive.add_file(member, &file, u64::try_from(stat.st_size).unwrap_or_default())?;
    } else if kind.is_dir() {
        archive.begin(&member(Kind::Directory)?)?;
    } else if kind.is_symlink() {
        let target = fs::read_link(path)?.into_os_string().into_vec();
        archive.begin(&member(Kind::Symlink { target })?)?;
    }
    // Sockets, pipes and devices have no meaning in an image.
    Ok(())
}

fn named(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

/// Why a context could not be packed. The receiver of the stream sees only that it broke off.
#[derive(Debug, Clone, Default)]
pub(crate) struct Trouble(Arc<Mutex<Option<String>>>);

impl Trouble {
    fn note(&self, error: &io::Error) {
        // The receiver closed the stream, and knows better why.
        if error.kind() != io::ErrorKind::BrokenPipe {
            *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(error.to_string());
        }
    }

    pub(crate) fn error(&self) -> Option<Error> {
        let message = self.0.lock().unwrap_or_else(PoisonError::into_inner).take()?;
        Some(
            Error::invalid(format!("cannot send the build context: {message}"))
                .with_hint("Fix the file, or exclude it with a .dockerignore."),
        )
    }
}

/// Packs on a separate thread, as fast as the stream is read.
pub(crate) fn pack(
    packing: Packing,
    trouble: Trouble,
) -> impl Stream<Item = io::Result<Bytes>> + Send + 'static {
    let (sender, receiver) = mpsc::channel(PIECES);
    tokio::task::spawn_blocking(move || {
        let send = |piece| {
            sender.blocking_send(Ok(Bytes::from(piece))).map_err(|_gone| io::ErrorKind::BrokenPipe.into())
        };
        let mut archive = Writer::new(Pieces::new(PIECE_BYTES, send));
        let packed = packing.write(&mut archive).and_then(|()| Ok(archive.finish()?));
        if let Err(error) = packed {
            trouble.note(&error);
            // The receiver sees this as the end of the stream.
            sender.blocking_send(Err(error)).ok();
        }
    });
    futures_util::stream::unfold(receiver, |mut receiver| async move {
        receiver.recv().await.map(|piece| (piece, receiver))
    })
}

#[cfg(test)]
mod tests {
    use std::{ffi::OsStr, os::unix::ffi::OsStrExt as _};

    use super::*;

    #[test]
    fn a_name_that_no_rule_leaves_out_must_be_text() {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join(OsStr::from_bytes(b"no\xfftext")), "").unwrap();
        let packing = Packing::of(directory.path().to_owned()).unwrap();
        let error = packing.write(&mut Writer::new(Vec::new())).unwrap_err();
        assert!(error.to_string().contains("not UTF-8"), "{error}");
    }

    #[test]
    fn what_is_ignored_stays_but_for_what_the_daemon_needs() {
        let directory = tempfile::tempdir().unwrap();
        let put = |name: &str, text: &str| {
            let path = directory.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        put(".dockerignore", "*\n!src\nsrc/*.tmp\n");
        put("src/a", "a");
        put("src/b.tmp", "b");
        put("target/x", "x");
        fs::write(directory.path().join(OsStr::from_bytes(b"no\xfftext")), "").unwrap();
        put("deploy/Dockerfile", "FROM scratch");
        put("src/home/builds/spool", "the context itself");
        let mut packing = Packing::of(directory.path().to_owned()).unwrap();
        packing.always.push("deploy/Dockerfile".to_owned());
        packing.beside = Some(b"FROM a".to_vec());
        packing.left_out.push(directory.path().join("src/home"));
        let mut archive = Writer::new(Vec::new());
        packing.write(&mut archive).unwrap();
        let bytes = archive.finish().unwrap();
        let mut archive = tar::Archive::new(&bytes[..]);
        let mut names: Vec<String> = archive
            .entries()
            .unwrap()
            .map(|entry| entry.unwrap().path().unwrap().display().to_string())
            .collect();
        names.sort();
        assert_eq!(names, [".dockerignore", OUTSIDE_DOCKERFILE, "deploy/Dockerfile", "src/", "src/a"]);
    }
}

//! The build context as a tar stream, without the files that `.dockerignore` matches.

use std::{
    fs, io,
    io::Write as _,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use bytes::Bytes;
use engine::{BuildIgnore, OUTSIDE_DOCKERFILE};
use futures_util::Stream;
use sandbox::Error;
use tar::{Builder, EntryType, Header};
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

    fn write(&self, archive: &mut Builder<impl io::Write>) -> io::Result<()> {
        if let Some(text) = &self.beside {
            let mut header = Header::new_gnu();
            header.set_entry_type(EntryType::Regular);
            header.set_mode(0o644);
            header.set_size(text.len() as u64);
            archive.append_data(&mut header, OUTSIDE_DOCKERFILE, &text[..])?;
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
                // Sockets, pipes and devices have no meaning in an image.
                if self.keeps(&name) && (kind.is_dir() || kind.is_file() || kind.is_symlink()) {
                    archive.append_path_with_name(&path, &name).map_err(|error| named(&path, &error))?;
                }
            }
        }
        Ok(())
    }
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
        let mut builder = Builder::new(io::BufWriter::with_capacity(PIECE_BYTES, Sending(sender.clone())));
        builder.follow_symlinks(false);
        let packed = packing.write(&mut builder).and_then(|()| builder.into_inner()?.flush());
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

struct Sending(mpsc::Sender<io::Result<Bytes>>);

impl io::Write for Sending {
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

#[cfg(test)]
mod tests {
    use std::{ffi::OsStr, os::unix::ffi::OsStrExt as _};

    use super::*;

    #[test]
    fn a_name_that_no_rule_leaves_out_must_be_text() {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join(OsStr::from_bytes(b"no\xfftext")), "").unwrap();
        let packing = Packing::of(directory.path().to_owned()).unwrap();
        let error = packing.write(&mut Builder::new(Vec::new())).unwrap_err();
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
        let mut archive = Builder::new(Vec::new());
        packing.write(&mut archive).unwrap();
        let bytes = archive.into_inner().unwrap();
        let mut archive = tar::Archive::new(&bytes[..]);
        let mut names: Vec<String> = archive
            .entries()
            .unwrap()
            .map(|entry| entry.unwrap().path().unwrap().display().to_string())
            .collect();
        names.sort();
        assert_eq!(names, [".dockerignore", OUTSIDE_DOCKERFILE, "deploy/Dockerfile", "src", "src/a"]);
    }
}

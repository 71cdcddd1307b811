//! Writing files and trees to the host, in a thread of their own that is told what to do step by step.

use std::{
    ffi::{OsStr, OsString},
    fs::File,
    io::Write,
    os::fd::{AsFd, OwnedFd},
    path::Path,
    process,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use bytes::Bytes;
use rustix::{
    fs::{AtFlags, FileType, Mode, OFlags, fchmod, openat, renameat, statat, symlinkat, unlinkat},
    io::Errno,
};
use sandbox::{Error, ErrorKind, Result};
use tokio::sync::mpsc;

use super::{
    beneath::{kind, make_directories, make_directory},
    place::{Place, failed},
};

/// Names tried for a file on its way.
const MAX_TRIES: usize = 16;

/// One step.
#[derive(Debug)]
pub(super) enum Order {
    /// Into a directory, which is made if it is not there.
    Enter(OsString),
    Leave,
    /// A file begins; its bytes follow, and then its end.
    File {
        name: OsString,
        mode: u32,
    },
    Bytes(Bytes),
    Close,
    Link {
        name: OsString,
        target: OsString,
    },
    /// All was told. Without it the copy has been given up.
    Finish,
}

/// What the place itself is to become.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Top {
    File,
    Directory,
}

/// Follows the orders. Whoever sends them learns from a closed queue that something failed, and from here what.
pub(super) fn run(place: &Place, top: Top, mut orders: mpsc::Receiver<Order>) -> Result<()> {
    let base = begin(place, top).map_err(|error| failed("write", &place.shown, error))?;
    let mut sink = Sink { shown: &place.shown, directories: vec![Arc::new(base)], draft: None };
    while let Some(order) = orders.blocking_recv() {
        match order {
            Order::Finish => return Ok(()),
            order => sink.follow(order)?,
        }
    }
    // Given up by the one who asked; nobody reads this.
    Err(Error::new(ErrorKind::Cancelled, "the copy was cancelled"))
}

/// The directory that things are put into.
pub(super) fn begin(place: &Place, top: Top) -> Result<OwnedFd, Errno> {
    match top {
        Top::Directory if place.is_root() => place.open(OFlags::PATH | OFlags::DIRECTORY),
        Top::Directory => make_directories(place.root(), &place.beneath, place.bounds()),
        // The allowed directory itself, or a single file that is allowed: its neighbours are not.
        Top::File if place.is_root() => Err(Errno::ISDIR),
        Top::File => {
            let above = place.beneath.parent().filter(|above| !above.as_os_str().is_empty());
            make_directories(place.root(), above.unwrap_or(Path::new(".")), place.bounds())
        }
    }
}

struct Sink<'a> {
    shown: &'a Path,
    /// The innermost comes last; never empty.
    directories: Vec<Arc<OwnedFd>>,
    draft: Option<Draft>,
}

impl Sink<'_> {
    fn here(&self) -> Result<Arc<OwnedFd>, Errno> {
        self.directories.last().cloned().ok_or(Errno::NOTDIR)
    }

    fn follow(&mut self, order: Order) -> Result<()> {
        let told = |name: &OsStr, error| failed("write", &self.shown.join(name), error);
        let here = self.here().map_err(|error| told(OsStr::new(""), error))?;
        match order {
            Order::Enter(name) => {
                let entered = make_directory(here.as_fd(), &name).map_err(|error| told(&name, error))?;
                self.directories.push(Arc::new(entered));
            }
            Order::Leave => drop(self.directories.pop()),
            Order::File { name, mode } => {
                let draft = Draft::begin(here, name.clone(), mode).map_err(|error| told(&name, error))?;
                self.draft = Some(draft);
            }
            Order::Bytes(bytes) => {
                if let Some(draft) = &mut self.draft {
                    draft.write(&bytes).map_err(|error| told(&draft.name, error))?;
                }
            }
            Order::Close => {
                if let Some(draft) = self.draft.take() {
                    let name = draft.name.clone();
                    draft.commit().map_err(|error| told(&name, error))?;
                }
            }
            Order::Link { name, target } => {
                symlink(&here, &name, &target).map_err(|error| told(&name, error))?;
            }
            Order::Finish => {}
        }
        Ok(())
    }
}

/// A link takes the place of a link, and of nothing else.
fn symlink(directory: &OwnedFd, name: &OsStr, target: &OsStr) -> Result<(), Errno> {
    match symlinkat(target, directory, name) {
        Err(Errno::EXIST) => {}
        result => return result,
    }
    let there = statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)?;
    if kind(&there) != FileType::Symlink {
        return Err(Errno::EXIST);
    }
    unlinkat(directory, name, AtFlags::empty())?;
    symlinkat(target, directory, name)
}

/// A file that is being written beside its place. Dropped before its end it is gone.
#[derive(Debug)]
pub(super) struct Draft {
    directory: Arc<OwnedFd>,
    beside: String,
    name: OsString,
    mode: u32,
    file: File,
    is_in_place: bool,
}

impl Draft {
    pub(super) fn begin(directory: Arc<OwnedFd>, name: OsString, mode: u32) -> Result<Self, Errno> {
        // Told early; moving into place is what decides.
        let there = statat(&*directory, &*name, AtFlags::SYMLINK_NOFOLLOW);
        if there.is_ok_and(|stat| !matches!(kind(&stat), FileType::RegularFile | FileType::Symlink)) {
            return Err(Errno::EXIST);
        }
        for _ in 0..MAX_TRIES {
            let beside = unused_name();
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            match openat(&*directory, &*beside, flags, Mode::RUSR | Mode::WUSR) {
                Ok(fd) => {
                    let file = File::from(fd);
                    return Ok(Self { directory, beside, name, mode, file, is_in_place: false });
                }
                Err(Errno::EXIST) => {}
                Err(error) => return Err(error),
            }
        }
        Err(Errno::EXIST)
    }

    pub(super) fn write(&mut self, bytes: &[u8]) -> Result<(), Errno> {
        let written = self.file.write_all(bytes);
        written.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
    }

    pub(super) fn commit(mut self) -> Result<(), Errno> {
        fchmod(&self.file, Mode::from_raw_mode(self.mode & 0o777))?;
        renameat(&*self.directory, &*self.beside, &*self.directory, &*self.name)?;
        self.is_in_place = true;
        Ok(())
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        if !self.is_in_place {
            // Whoever removed it before us did what was wanted.
            unlinkat(&*self.directory, &*self.beside, AtFlags::empty()).unwrap_or(());
        }
    }
}

fn unused_name() -> String {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    format!(".warren-{}-{}.part", process::id(), COUNT.fetch_add(1, Ordering::Relaxed))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::hostfs::{Access, HostPolicy, HostRoot};

    /// Follows some orders and then hears nothing more.
    fn follow(directory: &Path, orders: Vec<Order>) -> Result<()> {
        let roots = vec![HostRoot { path: directory.to_owned(), write: true }];
        let policy = HostPolicy { roots, ..HostPolicy::default() };
        let place = Place::find(&policy, &directory.join("out"), Access::Write).unwrap();
        let (sender, inbox) = mpsc::channel(16);
        for order in orders {
            sender.try_send(order).unwrap();
        }
        drop(sender);
        run(&place, Top::Directory, inbox)
    }

    #[test]
    fn a_copy_that_is_given_up_leaves_no_part_of_a_file() {
        let home = tempfile::tempdir().unwrap();
        let file = || Order::File { name: "a".into(), mode: 0o4755 };
        let half = vec![file(), Order::Bytes("half".into())];
        assert_eq!(follow(home.path(), half).unwrap_err().kind(), ErrorKind::Cancelled);
        assert_eq!(fs::read_dir(home.path().join("out")).unwrap().count(), 0);
        let whole = vec![file(), Order::Bytes("whole".into()), Order::Close, Order::Finish];
        follow(home.path(), whole).unwrap();
        assert_eq!(fs::read_to_string(home.path().join("out/a")).unwrap(), "whole");
        // A bit that lends the owner's rights does not come out of a sandbox.
        use std::os::unix::fs::PermissionsExt;
        let mode = fs::metadata(home.path().join("out/a")).unwrap().permissions().mode();
        assert_eq!(mode & 0o7777, 0o755);
    }

    #[test]
    fn a_link_replaces_a_link_only() {
        let home = tempfile::tempdir().unwrap();
        let link = |target: &str| Order::Link { name: "l".into(), target: target.into() };
        follow(home.path(), vec![link("one"), link("two"), Order::Finish]).unwrap();
        assert_eq!(fs::read_link(home.path().join("out/l")).unwrap(), Path::new("two"));
        let file = Order::File { name: "f".into(), mode: 0o644 };
        let over = Order::Link { name: "f".into(), target: "x".into() };
        let failure = follow(home.path(), vec![file, Order::Close, over, Order::Finish]).unwrap_err();
        assert_eq!(failure.kind(), ErrorKind::WrongState);
    }
}

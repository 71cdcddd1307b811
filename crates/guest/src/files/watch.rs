//! `Watch`: changes of files, by inotify.

use std::{
    collections::HashMap,
    ffi::OsStr,
    mem::MaybeUninit,
    os::{
        fd::OwnedFd,
        unix::ffi::{OsStrExt, OsStringExt},
    },
    path::{Path, PathBuf},
};

use guest_protocol::{Failure, FailureKind, Response, WatchEvent, WatchKind};
use rustix::{
    fs::{
        FileType,
        inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags},
    },
    io::Errno,
};
use tokio::io::unix::AsyncFd;

use super::{
    Answer, Cancel, absolute,
    entry::{kind_of, open_directory},
    failure, in_background, named,
    walk::{Flow, Trouble, Visit, walk},
};
use crate::{
    background, sys, wire,
    wire::{ConnectionError, FrameReader, FrameWriter},
};

/// Directories that one watch follows at most. The kernel's own limit for a user may be lower.
const MAX_WATCHES: usize = 8192;
/// Bytes of events taken from the kernel at once.
const EVENT_BUFFER_BYTES: usize = 16 * 1024;

const INTEREST: WatchFlags = WatchFlags::CREATE
    .union(WatchFlags::MODIFY)
    .union(WatchFlags::ATTRIB)
    .union(WatchFlags::DELETE)
    .union(WatchFlags::DELETE_SELF)
    .union(WatchFlags::MOVE)
    .union(WatchFlags::EXCL_UNLINK);

pub(crate) async fn watch(
    reader: &mut FrameReader<'_>,
    writer: FrameWriter<'_>,
    path: String,
    recursive: bool,
) -> wire::Result<Answer<()>> {
    let begun = in_background(reader, move |cancel| {
        let path = absolute(&path)?;
        let inotify = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)
            .map_err(|error| failure(named("watch", &path), error))?;
        let mut tree = Tree { root: path.clone(), recursive, paths: HashMap::new() };
        tree.begin(&inotify, cancel)?;
        Ok((inotify, tree))
    })
    .await?;
    let (inotify, tree) = match begun {
        Ok(begun) => begun,
        Err(failure) => return Ok(Err(failure)),
    };
    let inotify = sys::watched(inotify)?;
    writer.respond(&Response::Watching).await?;
    tokio::select! {
        result = send_events(writer, inotify, tree) => result?,
        () = reader.gone() => {}
    }
    Ok(Ok(()))
}

async fn send_events(writer: FrameWriter<'_>, inotify: AsyncFd<OwnedFd>, mut tree: Tree) -> wire::Result<()> {
    loop {
        let mut ready = inotify.readable().await?;
        let Some(happened) = read_events(inotify.get_ref())? else {
            ready.clear_ready();
            continue;
        };
        // Following new directories may block; the descriptor goes to the thread and back.
        let fd = inotify.get_ref().try_clone()?;
        let told = background::spawn(move || {
            let events = tree.take(&fd, happened);
            (tree, events)
        });
        let told = told.map_err(ConnectionError::BrokenBody)?.done().await;
        let (same, events) = told.map_err(ConnectionError::BrokenBody)?;
        tree = same;
        for event in events {
            let json = serde_json::to_vec(&event).map_err(std::io::Error::other)?;
            writer.data(&json).await?;
        }
    }
}

/// One event of the kernel.
struct Happened {
    watch: i32,
    flags: ReadFlags,
    cookie: u32,
    name: Option<PathBuf>,
}

/// The events available now; `None` if there are none.
fn read_events(inotify: &OwnedFd) -> std::io::Result<Option<Vec<Happened>>> {
    let mut buffer = vec![MaybeUninit::uninit(); EVENT_BUFFER_BYTES];
    let mut reader = Reader::new(inotify, &mut buffer);
    let mut happened = Vec::new();
    loop {
        match reader.next() {
            Ok(event) => happened.push(Happened {
                watch: event.wd(),
                flags: event.events(),
                cookie: event.cookie(),
                name: event.file_name().map(|name| OsStr::from_bytes(name.to_bytes()).into()),
            }),
            Err(Errno::AGAIN) if happened.is_empty() => return Ok(None),
            Err(Errno::AGAIN) => return Ok(Some(happened)),
            Err(Errno::INTR) => continue,
            Err(error) => return Err(error.into()),
        }
        if reader.is_buffer_empty() {
            return Ok(Some(happened));
        }
    }
}

/// The watched directories, by the kernel's number of each.
struct Tree {
    root: PathBuf,
    recursive: bool,
    paths: HashMap<i32, PathBuf>,
}

impl Tree {
    fn begin(&mut self, inotify: &OwnedFd, cancel: &Cancel) -> Answer<()> {
        let root = self.root.clone();
        self.add(inotify, &root).map_err(|error| failure(named("watch", &root), error))?;
        let stat = rustix::fs::stat(&root).map_err(|error| failure(named("watch", &root), error))?;
        if self.recursive && kind_of(&stat) == FileType::Directory {
            self.add_below(inotify, &root, cancel, &mut |_, _| {})?;
        }
        Ok(())
    }

    fn add(&mut self, inotify: &OwnedFd, path: &Path) -> Result<(), Errno> {
        if self.paths.len() >= MAX_WATCHES {
            return Err(Errno::NOSPC);
        }
        let flags = if path == self.root { INTEREST } else { INTEREST | WatchFlags::DONT_FOLLOW };
        let watch = inotify::add_watch(inotify, path, flags)?;
        self.paths.insert(watch, path.to_owned());
        Ok(())
    }

    /// Watches every directory below `path`, and shows every existing entry.
    fn add_below(
        &mut self,
        inotify: &OwnedFd,
        path: &Path,
        cancel: &Cancel,
        found: &mut dyn FnMut(PathBuf, FileType),
    ) -> Answer<()> {
        walk(open_directory(path)?, path, Trouble::Skip, cancel, |item| {
            if item.visit == Visit::Leave {
                return Ok(Flow::Into);
            }
            let child = path.join(item.relative);
            let kind = kind_of(item.stat);
            if kind == FileType::Directory {
                match self.add(inotify, &child) {
                    Ok(()) | Err(Errno::NOENT | Errno::ACCESS | Errno::NOTDIR) => {}
                    Err(Errno::NOSPC) => {
                        let message =
                            format!("{} holds more than {MAX_WATCHES} directories", self.root.display());
                        return Err(Failure::new(FailureKind::LimitReached, message));
                    }
                    Err(error) => return Err(failure(named("watch", &child), error)),
                }
            }
            found(child, kind);
            Ok(Flow::Into)
        })?;
        Ok(())
    }

    /// Turns kernel events into events for the host.
    fn take(&mut self, inotify: &OwnedFd, happened: Vec<Happened>) -> Vec<WatchEvent> {
        let mut events = EventList::default();
        let mut moved_from: Option<(u32, PathBuf)> = None;
        for event in happened {
            if event.flags.contains(ReadFlags::QUEUE_OVERFLOW) {
                events.push(WatchKind::Overflow, &self.root, None);
                continue;
            }
            let Some(directory) = self.paths.get(&event.watch).cloned() else { continue };
            if event.flags.contains(ReadFlags::IGNORED) {
                self.paths.remove(&event.watch);
                continue;
            }
            let path = event.name.as_ref().map_or_else(|| directory.clone(), |name| directory.join(name));
            let is_directory = event.flags.contains(ReadFlags::ISDIR);
            // The two halves of a rename follow each other; a first half alone means the file left the watched tree.
            if let Some((cookie, from)) = moved_from.take() {
                if event.flags.contains(ReadFlags::MOVED_TO) && event.cookie == cookie {
                    self.renamed(&from, &path);
                    events.push(WatchKind::Renamed, &path, Some(&from));
                    continue;
                }
                self.left(inotify, &from);
                events.push(WatchKind::Removed, &from, None);
            }
            if event.flags.contains(ReadFlags::MOVED_FROM) {
                moved_from = Some((event.cookie, path));
            } else if event.flags.intersects(ReadFlags::CREATE | ReadFlags::MOVED_TO) {
                events.push(WatchKind::Created, &path, None);
                if is_directory && self.recursive {
                    self.follow(inotify, &path, &mut events);
                }
            } else if event.flags.contains(ReadFlags::DELETE) {
                events.push(WatchKind::Removed, &path, None);
            } else if event.flags.intersects(ReadFlags::DELETE_SELF) {
                // Below the root, its parent reports it too.
                if path == self.root {
                    events.push(WatchKind::Removed, &path, None);
                }
            } else if event.flags.intersects(ReadFlags::MODIFY | ReadFlags::ATTRIB) {
                events.push(WatchKind::Modified, &path, None);
            }
        }
        if let Some((_, from)) = moved_from {
            self.left(inotify, &from);
            events.push(WatchKind::Removed, &from, None);
        }
        events.events
    }

    /// A directory appeared: watches it, and reports its existing entries.
    fn follow(&mut self, inotify: &OwnedFd, path: &Path, events: &mut EventList) {
        let cancel = Cancel::default();
        let added = self.add(inotify, path).map_err(|error| failure(named("watch", path), error));
        let added = added.and_then(|()| {
            self.add_below(inotify, path, &cancel, &mut |child, _| {
                events.push(WatchKind::Created, &child, None);
            })
        });
        // A directory that is gone again is no loss, but too many directories are.
        if added.is_err_and(|failure| failure.kind == FailureKind::LimitReached) {
            events.push(WatchKind::Overflow, &self.root, None);
        }
    }

    fn renamed(&mut self, from: &Path, to: &Path) {
        for path in self.paths.values_mut() {
            if let Ok(rest) = path.strip_prefix(from) {
                *path = if rest.as_os_str().is_empty() { to.to_owned() } else { to.join(rest) };
            }
        }
    }

    /// Stops watching a directory that was moved away.
    fn left(&mut self, inotify: &OwnedFd, from: &Path) {
        self.paths.retain(|watch, path| {
            let is_gone = path.starts_with(from);
            if is_gone {
                inotify::remove_watch(inotify, *watch).ok();
            }
            !is_gone
        });
    }
}

#[derive(Default)]
struct EventList {
    events: Vec<WatchEvent>,
}

impl EventList {
    fn push(&mut self, kind: WatchKind, path: &Path, from: Option<&Path>) {
        let text =
            |path: &Path| String::from_utf8_lossy(&path.as_os_str().to_owned().into_vec()).into_owned();
        let event = WatchEvent { kind, path: text(path), from: from.map(text) };
        // A file written in many steps changed once.
        if self.events.last() != Some(&event) {
            self.events.push(event);
        }
    }
}

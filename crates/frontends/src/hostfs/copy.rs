//! Copying between the host and a sandbox, both ways: streams, bounded memory, counted.

use std::{ffi::OsString, path::PathBuf};

use engine::{ByteStream, Engine, SandboxRef};
use futures_util::{StreamExt, TryStreamExt, stream};
use sandbox::{Error, ErrorKind, FileEntry, FileKind, Result};
use tokio::sync::mpsc;

use super::{
    HostCaller, MAX_BYTES, MAX_DEPTH, MAX_ENTRIES, MAX_NAMED_SKIPS, QUEUE,
    place::{Access, Place, meant},
    sink::{self, Order, Top},
    source::{self, Opened, Stop, stays_inside},
};

/// Entries of one directory of a sandbox: what one answer of the guest holds.
const MAX_LISTED: u32 = 10_000;

/// What a copy did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Copied {
    /// The host's side, absolute.
    pub(crate) host_path: String,
    pub(crate) files: u64,
    pub(crate) directories: u64,
    pub(crate) links: u64,
    pub(crate) bytes: u64,
    /// What was left out, and the first of it by name.
    pub(crate) skipped: u64,
    pub(crate) skipped_paths: Vec<String>,
}

impl Copied {
    /// What the caller should know of what was left out.
    pub(crate) fn warning(&self) -> Option<String> {
        (self.skipped > 0).then(|| {
            let what = if self.skipped == 1 { "1 entry was" } else { &format!("{} entries were", self.skipped) };
            let more = if self.skipped > self.skipped_paths.len() as u64 { ", …" } else { "" };
            format!(
                "{what} skipped: pipes, sockets, devices, links that lead out of the tree, and files that disappeared meanwhile \
                 ({}{more}).",
                self.skipped_paths.join(", "),
            )
        })
    }
}

/// Counts, and holds the limits.
#[derive(Debug, Default)]
pub(super) struct Tally {
    copied: Copied,
}

impl Tally {
    pub(super) fn copied(self) -> Copied {
        self.copied
    }

    pub(super) fn room_for(&self, n_more: u64) -> Result<()> {
        let Copied { files, directories, links, skipped, .. } = &self.copied;
        if files + directories + links + skipped + n_more > MAX_ENTRIES {
            let message = format!("there are more than {MAX_ENTRIES} files to copy");
            return Err(
                Error::new(ErrorKind::LimitReached, message).with_hint("Copy a subdirectory, or an archive.")
            );
        }
        Ok(())
    }

    pub(super) fn file(&mut self, size: u64) -> Result<()> {
        self.room_for(1)?;
        self.copied.files += 1;
        self.bytes(size)
    }

    pub(super) fn bytes(&mut self, n_more: u64) -> Result<()> {
        self.copied.bytes = self.copied.bytes.saturating_add(n_more);
        if self.copied.bytes > MAX_BYTES {
            let message = format!("there are more than {MAX_BYTES} bytes to copy");
            return Err(Error::new(ErrorKind::LimitReached, message).with_hint("Copy less at once."));
        }
        Ok(())
    }

    pub(super) fn directory(&mut self) -> Result<()> {
        self.room_for(1)?;
        self.copied.directories += 1;
        Ok(())
    }

    pub(super) fn link(&mut self) -> Result<()> {
        self.room_for(1)?;
        self.copied.links += 1;
        Ok(())
    }

    pub(super) fn skip(&mut self, path: &str) {
        self.copied.skipped += 1;
        if self.copied.skipped_paths.len() < MAX_NAMED_SKIPS {
            self.copied.skipped_paths.push(path.to_owned());
        }
    }
}

pub(super) fn too_deep(path: &impl std::fmt::Display) -> Error {
    let message = format!("{path} has more than {MAX_DEPTH} levels of directories");
    Error::new(ErrorKind::LimitReached, message).with_hint("Copy a subdirectory.")
}

pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(broken)?
}

fn broken(error: tokio::task::JoinError) -> Error {
    Error::new(ErrorKind::Internal, "the copy broke off").with_source(error)
}

pub(super) async fn find(caller: HostCaller<'_>, path: &str, access: Access) -> Result<(PathBuf, Place)> {
    let shown = meant(caller, path)?;
    if access == Access::Write {
        // The engine never sees this write, so it cannot refuse it.
        caller.who.may_change()?;
    }
    let (policy, wanted) = (caller.policy.clone(), shown.clone());
    let place = blocking(move || Place::find(&policy, &wanted, access)).await;
    Ok((shown, place.map_err(|error| caller.how_to_allow(error))?))
}

/// A file or directory of the host that may be read, held open: what is copied later is this one, whatever is at its path
/// by then.
#[derive(Debug)]
pub(crate) struct Source {
    pub(super) shown: PathBuf,
    pub(super) opened: Opened,
}

impl Source {
    pub(crate) async fn open(caller: impl Into<HostCaller<'_>>, path: &str) -> Result<Self> {
        let caller = caller.into();
        let (shown, place) = find(caller, path, Access::Read).await?;
        let opened = blocking(move || source::open(&place)).await;
        let opened = opened.map_err(|error| caller.how_to_allow(error))?;
        Ok(Self { shown, opened })
    }

    /// Refuses a directory where a patch of a file was asked for, and the other way round.
    pub(crate) fn check_kind(&self, wants_directory: bool) -> Result<()> {
        let (is, right) = match self.opened {
            Opened::Directory(_) if !wants_directory => ("a directory", "copyDir"),
            Opened::File { .. } if wants_directory => ("a file", "copyFile"),
            _ => return Ok(()),
        };
        Err(Error::invalid(format!("{} on the host is {is}", self.shown.display()))
            .with_hint(format!("Use a patch of kind {right}.")))
    }
}

pub(super) fn received(incoming: mpsc::Receiver<sandbox::Result<bytes::Bytes>>) -> ByteStream {
    stream::unfold(incoming, |mut incoming| async { incoming.recv().await.map(|chunk| (chunk, incoming)) })
        .boxed()
}

/// Copies a file or directory of a sandbox to the host. A file becomes `host_path`; what is in a directory comes beneath
/// it. Missing directories are made.
///
/// `watched` sees the bytes of each file go by.
pub(crate) async fn copy_out(
    caller: HostCaller<'_>,
    engine: &Engine,
    which: &SandboxRef,
    path: &str,
    host_path: &str,
    watched: impl Fn(ByteStream) -> ByteStream,
) -> Result<Copied> {
    let (shown, place) = find(caller, host_path, Access::Write).await?;
    let entry = engine.stat(caller.who, which, path, true).await?;
    let top = match entry.kind {
        FileKind::File => Top::File,
        FileKind::Directory => Top::Directory,
        FileKind::Symlink | FileKind::Fifo | FileKind::Socket | FileKind::Device => {
            let message = format!("{path} is neither a file nor a directory");
            return Err(Error::new(ErrorKind::WrongState, message)
                .with_hint("Pipes, sockets and devices cannot be copied; give a file or a directory."));
        }
    };
    let (orders, inbox) = mpsc::channel(QUEUE);
    let writer = tokio::task::spawn_blocking(move || sink::run(&place, top, inbox));
    let mut copy = CopyOut { caller, engine, which, watched, orders, tally: Tally::default() };
    let read = match (top, shown.file_name()) {
        (Top::File, name) => copy.file(path, name.unwrap_or_default().to_owned(), entry.mode).await,
        (Top::Directory, _) => copy.tree(path.to_owned()).await,
    };
    if read.is_ok() {
        copy.orders.send(Order::Finish).await.unwrap_or(());
    }
    let CopyOut { orders, tally, .. } = copy;
    drop(orders);
    // What the host refused comes first: the reading side only saw that nobody takes its orders.
    match (writer.await.map_err(broken)?, read) {
        (Ok(()), Ok(())) => Ok(Copied { host_path: shown.to_string_lossy().into_owned(), ..tally.copied }),
        (_, Err(Stop::Failed(error))) | (Err(error), _) => Err(caller.how_to_allow(error)),
        (Ok(()), Err(Stop::Gone)) => Err(Error::new(ErrorKind::Internal, "the copy broke off")),
    }
}

/// Reads a sandbox's files and has them written.
struct CopyOut<'a, W> {
    caller: HostCaller<'a>,
    engine: &'a Engine,
    which: &'a SandboxRef,
    watched: W,
    orders: mpsc::Sender<Order>,
    tally: Tally,
}

impl<W: Fn(ByteStream) -> ByteStream> CopyOut<'_, W> {
    async fn order(&self, order: Order) -> Result<(), Stop> {
        self.orders.send(order).await.map_err(|_closed| Stop::Gone)
    }

    async fn file(&mut self, path: &str, name: OsString, mode: u32) -> Result<(), Stop> {
        let (_, bytes) = self.engine.read_file(self.caller.who, self.which, path, 0, None).await?;
        let mut bytes = (self.watched)(bytes);
        self.tally.file(0)?;
        self.order(Order::File { name, mode }).await?;
        while let Some(chunk) = bytes.try_next().await? {
            self.tally.bytes(chunk.len() as u64)?;
            self.order(Order::Bytes(chunk)).await?;
        }
        self.order(Order::Close).await
    }

    /// Everything beneath a directory, with a stack of what is left to do in each.
    async fn tree(&mut self, path: String) -> Result<(), Stop> {
        let top = path.trim_end_matches('/').to_owned();
        let mut stack = vec![(top.clone(), self.list(&path).await?.into_iter())];
        while let Some((directory, entries)) = stack.last_mut() {
            let Some(entry) = entries.next() else {
                stack.pop();
                if !stack.is_empty() {
                    self.order(Order::Leave).await?;
                }
                continue;
            };
            // The guest is not to be trusted: only a plain name is taken from what it says.
            let Some(name) = plain_name(&entry) else {
                self.tally.skip(&entry.path);
                continue;
            };
            let inner = format!("{directory}/{name}");
            match entry.kind {
                FileKind::Directory => {
                    if stack.len() >= MAX_DEPTH {
                        return Err(too_deep(&inner).into());
                    }
                    self.tally.directory()?;
                    self.order(Order::Enter(name.into())).await?;
                    let entries = self.list(&inner).await?;
                    stack.push((inner, entries.into_iter()));
                }
                FileKind::File => match self.file(&inner, name.into(), entry.mode).await {
                    Err(Stop::Failed(error)) if error.kind() == ErrorKind::NotFound => {
                        self.tally.skip(&inner);
                    }
                    result => result?,
                },
                FileKind::Symlink => {
                    let target = entry.target.filter(|target| stays_inside(target.as_ref(), stack.len() - 1));
                    match target {
                        Some(target) if !target.contains('\0') => {
                            self.tally.link()?;
                            self.order(Order::Link { name: name.into(), target: target.into() }).await?;
                        }
                        _ => self.tally.skip(&inner),
                    }
                }
                FileKind::Fifo | FileKind::Socket | FileKind::Device => self.tally.skip(&inner),
            }
        }
        Ok(())
    }

    async fn list(&self, path: &str) -> Result<Vec<FileEntry>, Stop> {
        let found = self.engine.list(self.caller.who, self.which, path, false, MAX_LISTED).await?;
        if found.truncated {
            let message = format!("{path} has more than {} entries", found.entries.len());
            return Err(Error::new(ErrorKind::LimitReached, message)
                .with_hint("Pack it with tar inside the sandbox, and copy the archive.")
                .into());
        }
        Ok(found.entries)
    }
}

/// The last name of an entry, if it can be written down as one.
fn plain_name(entry: &FileEntry) -> Option<String> {
    let name = entry.path.rsplit('/').next()?;
    let is_plain = !matches!(name, "" | "." | "..") && !name.contains(['\0', char::REPLACEMENT_CHARACTER]);
    is_plain.then(|| name.to_owned())
}

//! Copying between the host and a sandbox, both ways: streams, bounded memory, counted.

use std::{ffi::OsString, path::PathBuf};

use engine::{ByteStream, SandboxRef, WriteOptions};
use futures_util::{StreamExt, TryStreamExt, stream};
use sandbox::{Error, ErrorKind, FileEntry, FileKind, WriteMode};
use tokio::sync::mpsc;

use super::{
    MAX_BYTES, MAX_DEPTH, MAX_ENTRIES, MAX_NAMED_SKIPS, QUEUE,
    place::{Access, Place, meant},
    sink::{self, Order, Top},
    source::{self, Opened, Stop, stays_inside},
};
use crate::mcp::{
    call::Call,
    envelope::{Failure, HOST_PATH_DENIED},
};

/// Entries of one directory of a sandbox: what one answer of the guest holds.
const MAX_LISTED: u32 = 10_000;
/// A caller who waits is told after each so many bytes.
const BYTES_PER_STEP: u64 = 8 * 1024 * 1024;

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
                "{what} left out: pipes, sockets, devices, links that lead out of the tree, and what went away meanwhile \
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

    pub(super) fn room_for(&self, n_more: u64) -> Result<(), Failure> {
        let Copied { files, directories, links, skipped, .. } = &self.copied;
        if files + directories + links + skipped + n_more > MAX_ENTRIES {
            let message = format!("there are more than {MAX_ENTRIES} files to copy");
            return Err(Error::new(ErrorKind::LimitReached, message)
                .with_hint("Copy a directory further down, or an archive.")
                .into());
        }
        Ok(())
    }

    pub(super) fn file(&mut self, size: u64) -> Result<(), Failure> {
        self.room_for(1)?;
        self.copied.files += 1;
        self.bytes(size)
    }

    pub(super) fn bytes(&mut self, n_more: u64) -> Result<(), Failure> {
        self.copied.bytes = self.copied.bytes.saturating_add(n_more);
        if self.copied.bytes > MAX_BYTES {
            let message = format!("there are more than {MAX_BYTES} bytes to copy");
            return Err(Error::new(ErrorKind::LimitReached, message).with_hint("Copy less at once.").into());
        }
        Ok(())
    }

    pub(super) fn directory(&mut self) -> Result<(), Failure> {
        self.room_for(1)?;
        self.copied.directories += 1;
        Ok(())
    }

    pub(super) fn link(&mut self) -> Result<(), Failure> {
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

pub(super) fn too_deep(path: &impl std::fmt::Display) -> Failure {
    let message = format!("{path} has more than {MAX_DEPTH} directories within each other");
    Error::new(ErrorKind::LimitReached, message).with_hint("Copy a directory further down.").into()
}

pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Failure> + Send + 'static,
) -> Result<T, Failure> {
    tokio::task::spawn_blocking(work).await.map_err(broken)?
}

fn broken(error: tokio::task::JoinError) -> Failure {
    Error::new(ErrorKind::Internal, "the copy broke off").with_source(error).into()
}

pub(super) async fn find(call: &Call, path: &str, access: Access) -> Result<(PathBuf, Place), Failure> {
    let shown = meant(call, path)?;
    if access == Access::Write {
        // The engine never sees this write, so it cannot refuse it.
        call.who.may_change()?;
    }
    let settings = std::sync::Arc::clone(&call.settings);
    let wanted = shown.clone();
    let place = blocking(move || Place::find(&settings.host, &wanted, access)).await;
    let place = place.map_err(|failure| told_where_to_allow(call, failure))?;
    Ok((shown, place))
}

/// What is allowed comes from the command line of `warren mcp` for clients on stdio, who say where they stand, and from
/// that of the daemon for those on HTTP.
pub(super) fn told_where_to_allow(call: &Call, failure: Failure) -> Failure {
    if failure.code != HOST_PATH_DENIED {
        return failure;
    }
    let command = if call.settings.host.working_directory.is_some() { "warren mcp" } else { "warren serve" };
    failure.with_hint(format!(
        "Only a person at the host can allow it: `{command} --allow-host-path DIR` to read beneath DIR, \
         `{command} --allow-host-path DIR:rw` to write too."
    ))
}

/// A file or directory of the host that may be read, held open: what is copied later is this one, whatever is at its path
/// by then.
#[derive(Debug)]
pub(crate) struct Source {
    pub(super) shown: PathBuf,
    pub(super) opened: Opened,
}

impl Source {
    pub(crate) async fn open(call: &Call, path: &str) -> Result<Self, Failure> {
        let (shown, place) = find(call, path, Access::Read).await?;
        let opened = blocking(move || source::open(&place)).await;
        let opened = opened.map_err(|failure| told_where_to_allow(call, failure))?;
        Ok(Self { shown, opened })
    }

    /// Refuses a directory where a patch of a file was asked for, and the other way round.
    pub(crate) fn check_kind(&self, wants_directory: bool) -> Result<(), Failure> {
        let (is, right) = match self.opened {
            Opened::Directory(_) if !wants_directory => ("a directory", "copyDir"),
            Opened::File { .. } if wants_directory => ("a file", "copyFile"),
            _ => return Ok(()),
        };
        Err(Failure::invalid(format!("{} on the host is {is}", self.shown.display()))
            .with_hint(format!("Use a patch of kind {right}.")))
    }

    /// Copies into a sandbox. A file becomes `path`; what is in a directory comes beneath `path`. Missing directories are
    /// made.
    pub(crate) async fn copy_into(
        self,
        call: &Call,
        which: &SandboxRef,
        path: &str,
    ) -> Result<Copied, Failure> {
        let (chunks, incoming) = mpsc::channel(QUEUE);
        let bytes = told(call, received(incoming));
        let host_path = self.shown.to_string_lossy().into_owned();
        let engine = call.engine();
        let (reader, written) = match self.opened {
            Opened::File { mut file, mode } => {
                let reader = tokio::task::spawn_blocking(move || {
                    let mut tally = Tally::default();
                    stopped(source::send_file(&mut file, &self.shown, &chunks, &mut tally), &chunks)?;
                    Ok(tally)
                });
                let options =
                    WriteOptions { mode: WriteMode::Replace, permissions: Some(mode), parents: true };
                (reader, engine.write_file(&call.who, which, path, options, bytes).await)
            }
            Opened::Directory(directory) => {
                engine.mkdir(&call.who, which, path, true, None).await?;
                let reader = tokio::task::spawn_blocking(move || {
                    let sent = source::send_tree(directory, &self.shown, chunks.clone(), Tally::default());
                    stopped(sent, &chunks)
                });
                (reader, engine.unpack(&call.who, which, path, false, bytes).await)
            }
        };
        // What went wrong at the host comes first: the sandbox only saw that the bytes broke off.
        let tally = match reader.await.map_err(broken)? {
            Ok(tally) => tally,
            Err(Stop::Failed(failure)) => return Err(failure),
            Err(Stop::Gone) => Tally::default(),
        };
        written?;
        Ok(Copied { host_path, ..tally.copied })
    }
}

/// A copy that stopped must not look like one that is complete.
pub(super) fn stopped<T>(result: Result<T, Stop>, chunks: &source::Chunks) -> Result<T, Stop> {
    if result.is_err() {
        let broken = Error::new(ErrorKind::Cancelled, "the host's files could not be read to the end");
        chunks.blocking_send(Err(broken)).unwrap_or(());
    }
    result
}

pub(super) fn received(incoming: mpsc::Receiver<sandbox::Result<bytes::Bytes>>) -> ByteStream {
    stream::unfold(incoming, |mut incoming| async { incoming.recv().await.map(|chunk| (chunk, incoming)) })
        .boxed()
}

/// Tells a caller who waits how far the bytes are.
pub(super) fn told(call: &Call, bytes: ByteStream) -> ByteStream {
    if !call.progress.is_wanted() {
        return bytes;
    }
    let progress = call.progress.clone();
    let mut done = 0_u64;
    bytes
        .then(move |chunk| {
            let before = done / BYTES_PER_STEP;
            done += chunk.as_ref().map_or(0, |chunk| chunk.len() as u64);
            let (progress, done, is_due) = (progress.clone(), done, done / BYTES_PER_STEP > before);
            async move {
                if is_due {
                    progress.tell(done as f64, None, format!("{done} bytes copied")).await;
                }
                chunk
            }
        })
        .boxed()
}

/// Copies a file or directory of a sandbox to the host. A file becomes `host_path`; what is in a directory comes beneath
/// it. Missing directories are made.
pub(crate) async fn copy_out(
    call: &Call,
    which: &SandboxRef,
    path: &str,
    host_path: &str,
) -> Result<Copied, Failure> {
    let (shown, place) = find(call, host_path, Access::Write).await?;
    let entry = call.engine().stat(&call.who, which, path, true).await?;
    let top = match entry.kind {
        FileKind::File => Top::File,
        FileKind::Directory => Top::Directory,
        FileKind::Symlink | FileKind::Fifo | FileKind::Socket | FileKind::Device => {
            let message = format!("{path} is neither a file nor a directory");
            return Err(Error::new(ErrorKind::WrongState, message)
                .with_hint("Pipes, sockets and devices are not copied; name a file or a directory.")
                .into());
        }
    };
    let (orders, inbox) = mpsc::channel(QUEUE);
    let writer = tokio::task::spawn_blocking(move || sink::run(&place, top, inbox));
    let mut copy = CopyOut { call, which, orders, tally: Tally::default() };
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
        (_, Err(Stop::Failed(failure))) | (Err(failure), _) => Err(told_where_to_allow(call, failure)),
        (Ok(()), Err(Stop::Gone)) => Err(Error::new(ErrorKind::Internal, "the copy broke off").into()),
    }
}

/// Reads a sandbox's files and has them written.
struct CopyOut<'a> {
    call: &'a Call,
    which: &'a SandboxRef,
    orders: mpsc::Sender<Order>,
    tally: Tally,
}

impl CopyOut<'_> {
    async fn order(&self, order: Order) -> Result<(), Stop> {
        self.orders.send(order).await.map_err(|_closed| Stop::Gone)
    }

    async fn file(&mut self, path: &str, name: OsString, mode: u32) -> Result<(), Stop> {
        let engine = self.call.engine();
        let (_, bytes) =
            engine.read_file(&self.call.who, self.which, path, 0, None).await.map_err(Failure::from)?;
        let mut bytes = told(self.call, bytes);
        self.tally.file(0)?;
        self.order(Order::File { name, mode }).await?;
        while let Some(chunk) = bytes.try_next().await.map_err(Failure::from)? {
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
                    Err(Stop::Failed(failure)) if failure.code == ErrorKind::NotFound.as_str() => {
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
        let engine = self.call.engine();
        let listed = engine.list(&self.call.who, self.which, path, false, MAX_LISTED).await;
        let found = listed.map_err(Failure::from)?;
        if found.truncated {
            let message = format!("{path} has more than {} entries", found.entries.len());
            return Err(Failure::from(
                Error::new(ErrorKind::LimitReached, message)
                    .with_hint("Pack it inside with sandbox_exec (tar) and copy the archive."),
            )
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

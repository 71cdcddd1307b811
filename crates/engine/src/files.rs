//! Files of sandboxes and volumes, watching, and ports: requests to a guest, which stays awake during a pause. A volume
//! has a guest of its own whose root is the volume, so links lead only into the volume.

mod inside;

use std::sync::Arc;

use futures_util::{StreamExt, stream::BoxStream};
use guest_protocol::{EntryKind, FailureKind, GrepMatch, Request, Response, Target, WatchEvent};
use sandbox::{Action, Error, FileEntry, FileKind, Result, SandboxId, Subject, Thing, WriteMode, path_from};
use serde::{Deserialize, Serialize};

pub use self::inside::InsideListener;
use crate::{
    ByteStream, Engine, Principal, SandboxRef, VolumeRef,
    client::{GuestClient, GuestError, PortStream},
    error,
    shared::{ActivityGuard, Life},
    volumes::{Held, Room},
};

/// Longest path that the kernel accepts, without its NUL.
const MAX_PATH_BYTES: usize = 4095;
const MAX_PATTERN_BYTES: usize = 4096;
/// Most results of one listing, glob or grep: the answer is one frame.
const MAX_RESULTS: u32 = 10_000;
/// Where distributions put bash.
const BASH: [&str; 2] = ["/bin/bash", "/usr/local/bin/bash"];
/// All permission bits.
const MAX_MODE: u32 = 0o7777;

/// The owner of the files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FilesOf<'a> {
    Sandbox(&'a SandboxRef),
    Volume(&'a VolumeRef),
}

impl<'a> From<&'a SandboxRef> for FilesOf<'a> {
    fn from(which: &'a SandboxRef) -> Self {
        Self::Sandbox(which)
    }
}

impl<'a> From<&'a VolumeRef> for FilesOf<'a> {
    fn from(which: &'a VolumeRef) -> Self {
        Self::Volume(which)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listing {
    pub entries: Vec<FileEntry>,
    pub truncated: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Paths {
    pub paths: Vec<String>,
    pub truncated: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Matches {
    pub matches: Vec<GrepMatch>,
    pub truncated: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GrepQuery {
    pub root: String,
    pub pattern: String,
    /// A glob that file names must match.
    pub include: Option<String>,
    pub ignore_case: bool,
    /// The pattern is plain text, not a regular expression.
    pub literal: bool,
    pub limit: u32,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WriteOptions {
    pub mode: WriteMode,
    /// Permission bits of a new file.
    pub permissions: Option<u32>,
    /// Make missing directories.
    pub parents: bool,
}

impl Engine {
    pub async fn stat(
        &self,
        who: &Principal,
        which: impl Into<FilesOf<'_>>,
        path: &str,
        follow: bool,
    ) -> Result<FileEntry> {
        let which = which.into();
        let request = stat_request(&self.absolute(who, which, path).await?, follow)?;
        entry(self.ask_guest(who, which, &request).await?)
    }

    /// Entries of a directory, or of its whole tree, sorted; at most `limit`.
    pub async fn list(
        &self,
        who: &Principal,
        which: impl Into<FilesOf<'_>>,
        path: &str,
        recursive: bool,
        limit: u32,
    ) -> Result<Listing> {
        let which = which.into();
        let request = list_request(&self.absolute(who, which, path).await?, recursive, limit)?;
        listing(self.ask_guest(who, which, &request).await?, limit)
    }

    pub async fn glob(
        &self,
        who: &Principal,
        which: impl Into<FilesOf<'_>>,
        root: &str,
        pattern: &str,
        limit: u32,
    ) -> Result<Paths> {
        let limit = limit.min(MAX_RESULTS);
        let which = which.into();
        let root = self.absolute(who, which, root).await?;
        let request = Request::Glob { root, pattern: checked_pattern(pattern)?, limit };
        match self.ask_guest(who, which, &request).await? {
            Answer(Response::Paths { paths, truncated }, _) => {
                let (paths, truncated) = cut(paths, truncated, limit);
                Ok(Paths { paths, truncated })
            }
            answer => Err(answer.wrong()),
        }
    }

    pub async fn grep(
        &self,
        who: &Principal,
        which: impl Into<FilesOf<'_>>,
        query: GrepQuery,
    ) -> Result<Matches> {
        let limit = query.limit.min(MAX_RESULTS);
        let which = which.into();
        let request = Request::Grep {
            root: self.absolute(who, which, &query.root).await?,
            pattern: checked_pattern(&query.pattern)?,
            include: query.include.as_deref().map(checked_pattern).transpose()?,
            ignore_case: query.ignore_case,
            literal: query.literal,
            limit,
        };
        match self.ask_guest(who, which, &request).await? {
            Answer(Response::Matches { matches, truncated }, _) => {
                let (matches, truncated) = cut(matches, truncated, limit);
                Ok(Matches { matches, truncated })
            }
            answer => Err(answer.wrong()),
        }
    }

    /// The file as it was when opened, and its bytes from `offset`, at most `length`.
    pub async fn read_file(
        &self,
        who: &Principal,
        which: impl Into<FilesOf<'_>>,
        path: &str,
        offset: u64,
        length: Option<u64>,
    ) -> Result<(FileEntry, ByteStream)> {
        let which = which.into();
        let request = Request::Read { path: self.absolute(who, which, path).await?, offset, length };
        match self.download(who, which, &request, length).await? {
            (Answer(Response::Reading { entry }, _), bytes) => Ok((file_entry(entry), bytes)),
            (answer, _) => Err(answer.wrong()),
        }
    }

    /// Writes a file and returns its size. Replacing is whole or not at all, even if the caller goes away or a volume's
    /// quota is exceeded in the middle.
    pub async fn write_file(
        &self,
        who: &Principal,
        which: impl Into<FilesOf<'_>>,
        path: &str,
        options: WriteOptions,
        bytes: ByteStream,
    ) -> Result<u64> {
        let which = which.into();
        let request = write_request(&self.absolute(who, which, path).await?, options)?;
        self.upload(who, which, &request, bytes, self.core().config.deadlines.answer).await
    }

    pub async fn mkdir(
        &self,
        who: &Principal,
        which: impl Into<FilesOf<'_>>,
        path: &str,
        parents: bool,
        mode: Option<u32>,
    ) -> Result<()> {
        let which = which.into();
        let path = self.absolute(who, which, path).await?;
        self.order(who, which, mkdir_request(&path, parents, mode)?).await
    }

    pub async fn remove_path(
        &self,
        who: &Principal,
        which: impl Into<FilesOf<'_>>,
        path: &str,
        recursive: bool,
    ) -> Result<()> {
        let which = which.into();
        let path = self.absolute(who, which, path).await?;
        self.order(who, which, Request::Remove { path, recursive }).await
    }

    pub async fn copy_path(
        &self,
        who: &Principal,
        which: impl Into<FilesOf<'_>>,
        from: &str,
        to: &str,
        recursive: bool,
    ) -> Result<()> {
        let which = which.into();
        let (from, to) = (self.absolute(who, which, from).await?, self.absolute(who, which, to).await?);
        self.order(who, which, Request::Copy { from, to, recursive }).await
    }

    pub async fn rename_path(
        &self,
        who: &Principal,
        which: impl Into<FilesOf<'_>>,
        from: &str,
        to: &str,
        replace: bool,
    ) -> Result<()> {
        let which = which.into();
        let (from, to) = (self.absolute(who, which, from).await?, self.absolute(who, which, to).await?);
        self.order(who, which, Request::Rename { from, to, replace }).await
    }

    /// `target` is text for the link; it may be relative and need not exist.
    pub async fn symlink(
        &self,
        who: &Principal,
        which: impl Into<FilesOf<'_>>,
        target: &str,
        path: &str,
    ) -> Result<()> {
        let target = checked_text("link target", target, MAX_PATH_BYTES)?;
        let which = which.into();
        let path = self.absolute(who, which, path).await?;
        self.order(who, which, Request::Symlink { target, path }).await
    }

    pub async fn read_link(
        &self,
        who: &Principal,
        which: impl Into<FilesOf<'_>>,
        path: &str,
    ) -> Result<String> {
        let which = which.into();
        let path = self.absolute(who, which, path).await?;
        match self.ask_guest(who, which, &Request::Readlink { path }).await? {
            Answer(Response::Link { target }, _) => Ok(target),
            answer => Err(answer.wrong()),
        }
    }

    pub async fn chmod(
        &self,
        who: &Principal,
        which: impl Into<FilesOf<'_>>,
        path: &str,
        mode: u32,
        recursive: bool,
    ) -> Result<()> {
        let mode = checked_mode(mode)?;
        let which = which.into();
        let path = self.absolute(who, which, path).await?;
        self.order(who, which, Request::Chmod { path, mode, recursive }).await
    }

    pub async fn chown(
        &self,
        who: &Principal,
        which: impl Into<FilesOf<'_>>,
        path: &str,
        uid: Option<u32>,
        gid: Option<u32>,
        recursive: bool,
    ) -> Result<()> {
        let which = which.into();
        let path = self.absolute(who, which, path).await?;
        self.order(who, which, Request::Chown { path, uid, gid, recursive }).await
    }

    /// A tar stream of `path`.
    pub async fn pack(
        &self,
        who: &Principal,
        which: impl Into<FilesOf<'_>>,
        path: &str,
    ) -> Result<ByteStream> {
        let which = which.into();
        let request = Request::TarOut { path: self.absolute(who, which, path).await? };
        match self.download(who, which, &request, None).await? {
            (Answer(Response::Packing, _), bytes) => Ok(bytes),
            (answer, _) => Err(answer.wrong()),
        }
    }

    /// Unpacks a tar stream into the directory `path`; returns the bytes read. Under a volume's measured quota, the
    /// stream's own bytes count, each header as a whole block, and the files unpacked by then stay.
    pub async fn unpack(
        &self,
        who: &Principal,
        which: impl Into<FilesOf<'_>>,
        path: &str,
        keep_ids: bool,
        bytes: ByteStream,
    ) -> Result<u64> {
        let which = which.into();
        let request = Request::TarIn { path: self.absolute(who, which, path).await?, keep_ids };
        self.upload(who, which, &request, bytes, self.core().config.deadlines.long_answer).await
    }

    /// Changes below `path`, until the stream is dropped or the sandbox stops.
    pub async fn watch(
        &self,
        who: &Principal,
        which: impl Into<FilesOf<'_>>,
        path: &str,
        recursive: bool,
    ) -> Result<BoxStream<'static, Result<WatchEvent>>> {
        let which = which.into();
        let request = Request::Watch { path: self.absolute(who, which, path).await?, recursive };
        let entered = self.enter(who, which, &request).await?;
        let label = entered.client().label().to_owned();
        let messages =
            entered.client().messages(&request).await.map_err(|error| error::from_guest(error, &label))?;
        let events = held(messages, entered).map(move |message| {
            serde_json::from_slice(&message?).map_err(|error| {
                error::from_guest(GuestError::Nonsense("a change that cannot be read"), &label)
                    .with_source(error)
            })
        });
        Ok(events.boxed())
    }

    /// Opens a stream to a port or a socket inside.
    #[crate::boxed]
    pub async fn connect(&self, who: &Principal, which: &SandboxRef, target: Target) -> Result<PortStream> {
        match &target {
            Target::Tcp(0) => {
                return Err(Error::invalid("0 is not a port").with_hint("Ports go from 1 to 65535."));
            }
            Target::Tcp(_) => {}
            Target::Unix(path) => drop(checked(path)?),
        }
        let request = Request::Connect { target: target.clone() };
        let entered = self.enter(who, which.into(), &request).await?;
        let stream = entered.client().connect_port(target.clone()).await;
        let stream = stream.map_err(|error| {
            let label = entered.client().label();
            match (&target, error) {
                (Target::Tcp(port), GuestError::Refused(failure))
                    if failure.kind == FailureKind::WrongState =>
                {
                    error::nobody_listens(*port, label)
                }
                (_, error) => error::from_guest(error, label),
            }
        })?;
        Ok(stream.hold(entered))
    }

    /// The shell that reads command lines in this sandbox: its own, or bash where there is one, or `sh`.
    pub async fn shell(&self, who: &Principal, which: &SandboxRef) -> Result<String> {
        let own = self.core().find_to_look(who, which).await?.status.borrow().record.plan.shell.clone();
        if let Some(own) = own {
            return Ok(own);
        }
        let (life, _guard) =
            self.core().find_to_look(who, which).await?.enter(Action::Files, &self.core().clock)?;
        default_shell(&life.client).await.map_err(|error| error::from_guest(error, life.client.label()))
    }

    /// A path as guests take it: a relative one starts at the sandbox's working directory, or at the volume's root.
    #[crate::boxed]
    async fn absolute<'a>(&self, who: &'a Principal, which: FilesOf<'a>, path: &'a str) -> Result<String> {
        let path = checked_text("path", path, MAX_PATH_BYTES)?;
        if path.starts_with('/') {
            return Ok(path);
        }
        let directory = match which {
            FilesOf::Sandbox(which) => {
                self.core().find_to_look(who, which).await?.status.borrow().record.plan.cwd.clone()
            }
            FilesOf::Volume(_) => "/".to_owned(),
        };
        // The path that was given may be as long as a path can be; then nothing is there.
        checked(&path_from(&directory, &path))
            .map_err(|_too_long| Error::not_found(format!("no path below {directory} is that long")))
    }

    /// Whether this caller may connect to ports of this sandbox now. For front ends that keep connections open.
    #[crate::boxed]
    pub async fn may_connect(&self, who: &Principal, which: &SandboxRef) -> Result<SandboxId> {
        let shared = self.core().find_to_change(who, which).await?;
        // Counts as a use of the sandbox, as a connection would.
        drop(shared.enter(Action::Exec, &self.core().clock)?);
        Ok(shared.subject.id.clone())
    }

    /// The guest for this request, if the caller may use it.
    #[crate::boxed]
    async fn enter<'a>(&self, who: &'a Principal, which: FilesOf<'a>, request: &Request) -> Result<Entered> {
        let properties = request.properties();
        if properties.changes {
            who.may_change()?;
        }
        match which {
            FilesOf::Sandbox(which) => {
                let action = if properties.needs_workload { Action::Exec } else { Action::Files };
                let shared = self.core().find_to_look(who, which).await?;
                let (life, mut guard) = shared.enter(action, &self.core().clock)?;
                if properties.writes_files {
                    guard.begin_writing(&shared).await;
                }
                Ok(Entered::Sandbox { life, _guard: guard })
            }
            FilesOf::Volume(which) => {
                let volume = self.core().find_volume(who, which)?;
                let held = self.open_volume(&volume).await?;
                let room = Room::for_request(self.core(), &volume, &held, request).await?;
                Ok(Entered::Volume { held, room })
            }
        }
    }

    pub(crate) async fn ask_guest(
        &self,
        who: &Principal,
        which: impl Into<FilesOf<'_>>,
        request: &Request,
    ) -> Result<Answer> {
        self.enter(who, which.into(), request).await?.ask(request).await
    }

    /// A request without a result.
    pub(crate) async fn order(
        &self,
        who: &Principal,
        which: impl Into<FilesOf<'_>>,
        request: Request,
    ) -> Result<()> {
        match self.ask_guest(who, which, &request).await? {
            Answer(Response::Done, _) => Ok(()),
            answer => Err(answer.wrong()),
        }
    }

    /// The guest's first answer, and the bytes that follow it.
    #[crate::boxed]
    async fn download<'a>(
        &self,
        who: &'a Principal,
        which: FilesOf<'a>,
        request: &Request,
        length: Option<u64>,
    ) -> Result<(Answer, ByteStream)> {
        let entered = self.enter(who, which, request).await?;
        let label = entered.client().label().to_owned();
        let (answer, bytes) = entered
            .client()
            .download(request, length)
            .await
            .map_err(|error| error::from_guest(error, &label))?;
        Ok((Answer(answer, label), held(bytes, entered)))
    }

    #[crate::boxed]
    async fn upload<'a>(
        &self,
        who: &'a Principal,
        which: FilesOf<'a>,
        request: &Request,
        bytes: ByteStream,
        answer_within: std::time::Duration,
    ) -> Result<u64> {
        let mut entered = self.enter(who, which, request).await?;
        let bytes = entered.bounded(request, bytes);
        let label = entered.client().label();
        let answer = entered.client().upload(request, bytes, Some(answer_within)).await;
        match answer.map_err(|error| error::from_guest(error, label))? {
            Response::Written { bytes } => Ok(bytes),
            other => Err(Answer(other, label.to_owned()).wrong()),
        }
    }
}

/// A guest that is kept while this is held.
#[derive(Debug)]
enum Entered {
    Sandbox { life: Arc<Life>, _guard: ActivityGuard },
    Volume { held: Held, room: Option<Room> },
}

impl Entered {
    fn client(&self) -> &Arc<GuestClient> {
        match self {
            Self::Sandbox { life, .. } => &life.client,
            Self::Volume { held, .. } => held.client(),
        }
    }

    #[crate::boxed]
    async fn ask(&self, request: &Request) -> Result<Answer> {
        ask(self.client(), request).await
    }

    /// Ends an upload that would exceed a volume's measured quota.
    fn bounded(&mut self, request: &Request, bytes: ByteStream) -> ByteStream {
        match self {
            Self::Volume { room, .. } => match room.take() {
                Some(room) => room.bound(request, bytes),
                None => bytes,
            },
            Self::Sandbox { .. } => bytes,
        }
    }
}

pub(crate) async fn ask(client: &GuestClient, request: &Request) -> Result<Answer> {
    let answer = client.call(request).await.map_err(|error| {
        let error = error::from_guest(error, client.label());
        match request.context() {
            Some(context) => error.about(Thing::Context, context),
            None => error,
        }
    })?;
    Ok(Answer(answer, client.label().to_owned()))
}

/// bash where there is one, or `sh`.
pub(crate) async fn default_shell(client: &GuestClient) -> Result<String, GuestError> {
    for bash in BASH {
        let request = Request::Stat { path: bash.to_owned(), follow: true };
        match client.call(&request).await {
            Ok(Response::Entry { entry }) if entry.kind == EntryKind::File => {
                return Ok(bash.to_owned());
            }
            Ok(_) => {}
            Err(GuestError::Refused(failure)) if failure.kind == FailureKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(sandbox::DEFAULT_SHELL.to_owned())
}

pub(crate) fn stat_request(path: &str, follow: bool) -> Result<Request> {
    Ok(Request::Stat { path: checked(path)?, follow })
}

pub(crate) fn list_request(path: &str, recursive: bool, limit: u32) -> Result<Request> {
    Ok(Request::List { path: checked(path)?, recursive, limit: limit.min(MAX_RESULTS) })
}

pub(crate) fn write_request(path: &str, options: WriteOptions) -> Result<Request> {
    let write = match options.mode {
        WriteMode::Replace => guest_protocol::WriteMode::Replace,
        WriteMode::Append => guest_protocol::WriteMode::Append,
        WriteMode::CreateNew => guest_protocol::WriteMode::CreateNew,
    };
    let mode = options.permissions.map(checked_mode).transpose()?;
    Ok(Request::Write { path: checked(path)?, write, mode, parents: options.parents })
}

pub(crate) fn mkdir_request(path: &str, parents: bool, mode: Option<u32>) -> Result<Request> {
    Ok(Request::Mkdir { path: checked(path)?, parents, mode: mode.map(checked_mode).transpose()? })
}

pub(crate) fn entry(answer: Answer) -> Result<FileEntry> {
    match answer {
        Answer(Response::Entry { entry }, _) => Ok(file_entry(entry)),
        answer => Err(answer.wrong()),
    }
}

pub(crate) fn listing(answer: Answer, limit: u32) -> Result<Listing> {
    match answer {
        Answer(Response::Entries { entries, truncated }, _) => {
            let (entries, truncated) = cut(entries, truncated, limit.min(MAX_RESULTS));
            Ok(Listing { entries: entries.into_iter().map(file_entry).collect(), truncated })
        }
        answer => Err(answer.wrong()),
    }
}

/// The guest's answer, and the sandbox or volume it belongs to.
pub(crate) struct Answer(pub(crate) Response, pub(crate) Subject);

impl Answer {
    pub(crate) fn wrong(self) -> Error {
        error::from_guest(GuestError::Nonsense("another answer than was asked for"), &self.1)
    }
}

/// Keeps the guest, and counts as work, until the stream is dropped.
fn held(bytes: ByteStream, entered: Entered) -> ByteStream {
    bytes
        .inspect(move |_| {
            let _held = &entered;
        })
        .boxed()
}

fn cut<T>(mut items: Vec<T>, truncated: bool, limit: u32) -> (Vec<T>, bool) {
    let is_too_long = items.len() > limit as usize;
    items.truncate(limit as usize);
    (items, truncated || is_too_long)
}

pub(crate) fn checked(path: &str) -> Result<String> {
    let path = checked_text("path", path, MAX_PATH_BYTES)?;
    if !path.starts_with('/') {
        return Err(Error::invalid(format!("the path {path:?} is not absolute"))
            .with_hint("Give a path that starts with /."));
    }
    Ok(path)
}

fn checked_pattern(pattern: &str) -> Result<String> {
    checked_text("pattern", pattern, MAX_PATTERN_BYTES)
}

fn checked_text(what: &str, text: &str, limit: usize) -> Result<String> {
    if text.is_empty() {
        return Err(Error::invalid(format!("the {what} is empty")));
    }
    if text.len() > limit {
        return Err(Error::invalid(format!(
            "a {what} has at most {limit} bytes, but this one has {}",
            text.len()
        )));
    }
    if text.contains('\0') {
        return Err(Error::invalid(format!("the {what} {text:?} contains a NUL byte")));
    }
    Ok(text.to_owned())
}

fn checked_mode(mode: u32) -> Result<u32> {
    if mode > MAX_MODE {
        return Err(Error::invalid(format!("{mode:o} are not permission bits; the maximum is {MAX_MODE:o}")));
    }
    Ok(mode)
}

pub(crate) fn file_entry(entry: guest_protocol::FileEntry) -> FileEntry {
    let kind = match entry.kind {
        EntryKind::File => FileKind::File,
        EntryKind::Directory => FileKind::Directory,
        EntryKind::Symlink => FileKind::Symlink,
        EntryKind::Fifo => FileKind::Fifo,
        EntryKind::Socket => FileKind::Socket,
        EntryKind::Device => FileKind::Device,
    };
    FileEntry {
        path: entry.path,
        kind,
        size: entry.size,
        mode: entry.mode,
        uid: entry.uid,
        gid: entry.gid,
        modified_at_ms: entry.modified_at_ms,
        target: entry.target,
    }
}

#[cfg(test)]
mod tests {
    use sandbox::ErrorKind;

    use super::*;

    #[test]
    fn only_absolute_paths_that_a_kernel_takes_are_sent() {
        assert_eq!(checked("/a b/ü").unwrap(), "/a b/ü");
        for path in ["", "etc/passwd", "../x", "/a\0b", &format!("/{}", "x".repeat(4095))] {
            assert_eq!(checked(path).unwrap_err().kind(), ErrorKind::InvalidRequest, "{path:?}");
        }
        assert!(checked_mode(0o10000).is_err());
    }
}

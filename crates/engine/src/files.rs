//! Files, ports and watching: asked of the guest, which a pause leaves awake.

use futures_util::{StreamExt, stream::BoxStream};
use guest_protocol::{EntryKind, GrepMatch, Request, Response, Target, WatchEvent};
use sandbox::{Action, Error, FileEntry, FileKind, Result, Subject, Thing, WriteMode};
use serde::{Deserialize, Serialize};

use crate::{
    ByteStream, Engine, Principal, SandboxRef,
    client::{GuestError, PortStream},
    error,
    shared::{ActivityGuard, Life},
};

/// Longest path that the kernel takes, without its NUL.
const MAX_PATH_BYTES: usize = 4095;
const MAX_PATTERN_BYTES: usize = 4096;
/// Most that one listing, glob or grep may ask for: the answer is one frame.
const MAX_RESULTS: u32 = 10_000;
/// All permission bits there are.
const MAX_MODE: u32 = 0o7777;

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
    /// The pattern is text, not a regular expression.
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
        which: &SandboxRef,
        path: &str,
        follow: bool,
    ) -> Result<FileEntry> {
        entry(self.ask_guest(who, which, &stat_request(path, follow)?).await?)
    }

    /// Entries of a directory, or of all beneath it, sorted; at most `limit`.
    pub async fn list(
        &self,
        who: &Principal,
        which: &SandboxRef,
        path: &str,
        recursive: bool,
        limit: u32,
    ) -> Result<Listing> {
        let request = list_request(path, recursive, limit)?;
        listing(self.ask_guest(who, which, &request).await?, limit)
    }

    pub async fn glob(
        &self,
        who: &Principal,
        which: &SandboxRef,
        root: &str,
        pattern: &str,
        limit: u32,
    ) -> Result<Paths> {
        let limit = limit.min(MAX_RESULTS);
        let request = Request::Glob { root: checked(root)?, pattern: checked_pattern(pattern)?, limit };
        match self.ask_guest(who, which, &request).await? {
            Answer(Response::Paths { paths, truncated }, _) => {
                let (paths, truncated) = cut(paths, truncated, limit);
                Ok(Paths { paths, truncated })
            }
            answer => Err(answer.wrong()),
        }
    }

    pub async fn grep(&self, who: &Principal, which: &SandboxRef, query: GrepQuery) -> Result<Matches> {
        let limit = query.limit.min(MAX_RESULTS);
        let request = Request::Grep {
            root: checked(&query.root)?,
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
        which: &SandboxRef,
        path: &str,
        offset: u64,
        length: Option<u64>,
    ) -> Result<(FileEntry, ByteStream)> {
        let request = Request::Read { path: checked(path)?, offset, length };
        let (life, guard) = self.enter(who, which, &request).await?;
        let (answer, bytes) = life
            .client
            .download(&request, length)
            .await
            .map_err(|error| error::from_guest(error, life.client.label()))?;
        match answer {
            Response::Reading { entry } => Ok((file_entry(entry), held(bytes, guard))),
            other => Err(Answer(other, life.client.label().to_owned()).wrong()),
        }
    }

    /// Writes a file and returns its bytes. Replacing is whole or not at all, also when the caller goes away.
    pub async fn write_file(
        &self,
        who: &Principal,
        which: &SandboxRef,
        path: &str,
        options: WriteOptions,
        bytes: ByteStream,
    ) -> Result<u64> {
        let request = write_request(path, options)?;
        self.upload(who, which, &request, bytes, self.core().config.deadlines.answer).await
    }

    pub async fn mkdir(
        &self,
        who: &Principal,
        which: &SandboxRef,
        path: &str,
        parents: bool,
        mode: Option<u32>,
    ) -> Result<()> {
        self.order(who, which, mkdir_request(path, parents, mode)?).await
    }

    pub async fn remove_path(
        &self,
        who: &Principal,
        which: &SandboxRef,
        path: &str,
        recursive: bool,
    ) -> Result<()> {
        self.order(who, which, Request::Remove { path: checked(path)?, recursive }).await
    }

    pub async fn copy_path(
        &self,
        who: &Principal,
        which: &SandboxRef,
        from: &str,
        to: &str,
        recursive: bool,
    ) -> Result<()> {
        self.order(who, which, Request::Copy { from: checked(from)?, to: checked(to)?, recursive }).await
    }

    pub async fn rename_path(
        &self,
        who: &Principal,
        which: &SandboxRef,
        from: &str,
        to: &str,
        replace: bool,
    ) -> Result<()> {
        self.order(who, which, Request::Rename { from: checked(from)?, to: checked(to)?, replace }).await
    }

    /// `target` is text for the link; it may be relative and need not exist.
    pub async fn symlink(&self, who: &Principal, which: &SandboxRef, target: &str, path: &str) -> Result<()> {
        let target = checked_text("link target", target, MAX_PATH_BYTES)?;
        self.order(who, which, Request::Symlink { target, path: checked(path)? }).await
    }

    pub async fn read_link(&self, who: &Principal, which: &SandboxRef, path: &str) -> Result<String> {
        match self.ask_guest(who, which, &Request::Readlink { path: checked(path)? }).await? {
            Answer(Response::Link { target }, _) => Ok(target),
            answer => Err(answer.wrong()),
        }
    }

    pub async fn chmod(
        &self,
        who: &Principal,
        which: &SandboxRef,
        path: &str,
        mode: u32,
        recursive: bool,
    ) -> Result<()> {
        let mode = checked_mode(mode)?;
        self.order(who, which, Request::Chmod { path: checked(path)?, mode, recursive }).await
    }

    pub async fn chown(
        &self,
        who: &Principal,
        which: &SandboxRef,
        path: &str,
        uid: Option<u32>,
        gid: Option<u32>,
        recursive: bool,
    ) -> Result<()> {
        self.order(who, which, Request::Chown { path: checked(path)?, uid, gid, recursive }).await
    }

    /// A tar stream of `path`.
    pub async fn pack(&self, who: &Principal, which: &SandboxRef, path: &str) -> Result<ByteStream> {
        let request = Request::TarOut { path: checked(path)? };
        let (life, guard) = self.enter(who, which, &request).await?;
        let (answer, bytes) = life
            .client
            .download(&request, None)
            .await
            .map_err(|error| error::from_guest(error, life.client.label()))?;
        match answer {
            Response::Packing => Ok(held(bytes, guard)),
            other => Err(Answer(other, life.client.label().to_owned()).wrong()),
        }
    }

    /// Unpacks a tar stream into the directory `path`; returns the bytes it read.
    pub async fn unpack(
        &self,
        who: &Principal,
        which: &SandboxRef,
        path: &str,
        keep_ids: bool,
        bytes: ByteStream,
    ) -> Result<u64> {
        let request = Request::TarIn { path: checked(path)?, keep_ids };
        self.upload(who, which, &request, bytes, self.core().config.deadlines.long_answer).await
    }

    /// Changes beneath `path`, until the stream is dropped or the sandbox stops.
    pub async fn watch(
        &self,
        who: &Principal,
        which: &SandboxRef,
        path: &str,
        recursive: bool,
    ) -> Result<BoxStream<'static, Result<WatchEvent>>> {
        let request = Request::Watch { path: checked(path)?, recursive };
        let (life, guard) = self.enter(who, which, &request).await?;
        let label = life.client.label().to_owned();
        let messages =
            life.client.messages(&request).await.map_err(|error| error::from_guest(error, &label))?;
        let events = held(messages, guard).map(move |message| {
            serde_json::from_slice(&message?).map_err(|error| {
                error::from_guest(GuestError::Nonsense("a change that cannot be read"), &label)
                    .with_source(error)
            })
        });
        Ok(events.boxed())
    }

    /// Opens a stream to a port or a socket inside.
    pub async fn connect(&self, who: &Principal, which: &SandboxRef, target: Target) -> Result<PortStream> {
        match &target {
            Target::Tcp(0) => {
                return Err(Error::invalid("0 is not a port").with_hint("Ports go from 1 to 65535."));
            }
            Target::Tcp(_) => {}
            Target::Unix(path) => drop(checked(path)?),
        }
        let request = Request::Connect { target };
        let (life, guard) = self.enter(who, which, &request).await?;
        let stream = life.client.connect_port(&request).await;
        let stream = stream.map_err(|error| error::from_guest(error, life.client.label()))?;
        Ok(stream.hold(guard))
    }

    /// The place that this request may be sent to.
    async fn enter(
        &self,
        who: &Principal,
        which: &SandboxRef,
        request: &Request,
    ) -> Result<(std::sync::Arc<Life>, ActivityGuard)> {
        let properties = request.properties();
        if properties.changes {
            who.may_change()?;
        }
        let action = if properties.needs_workload { Action::Exec } else { Action::Files };
        let shared = self.core().find_to_look(who, which).await?;
        let (life, mut guard) = shared.enter(action, &self.core().clock)?;
        if properties.writes_files {
            guard.begin_writing(&shared).await;
        }
        Ok((life, guard))
    }

    pub(crate) async fn ask_guest(
        &self,
        who: &Principal,
        which: &SandboxRef,
        request: &Request,
    ) -> Result<Answer> {
        let (life, _guard) = self.enter(who, which, request).await?;
        let label = life.client.label();
        let answer = life.client.call(request).await.map_err(|error| {
            let error = error::from_guest(error, label);
            match request.context() {
                Some(context) => error.about(Thing::Context, context),
                None => error,
            }
        })?;
        Ok(Answer(answer, label.to_owned()))
    }

    /// A request that is done or refused, with nothing to tell.
    pub(crate) async fn order(&self, who: &Principal, which: &SandboxRef, request: Request) -> Result<()> {
        match self.ask_guest(who, which, &request).await? {
            Answer(Response::Done, _) => Ok(()),
            answer => Err(answer.wrong()),
        }
    }

    async fn upload(
        &self,
        who: &Principal,
        which: &SandboxRef,
        request: &Request,
        bytes: ByteStream,
        answer_within: std::time::Duration,
    ) -> Result<u64> {
        let (life, _guard) = self.enter(who, which, request).await?;
        let label = life.client.label();
        let answer = life.client.upload(request, bytes, Some(answer_within)).await;
        match answer.map_err(|error| error::from_guest(error, label))? {
            Response::Written { bytes } => Ok(bytes),
            other => Err(Answer(other, label.to_owned()).wrong()),
        }
    }
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

/// What the guest said, and whose guest it is.
pub(crate) struct Answer(pub(crate) Response, pub(crate) Subject);

impl Answer {
    pub(crate) fn wrong(self) -> Error {
        error::from_guest(GuestError::Nonsense("another answer than was asked for"), &self.1)
    }
}

/// Counts as work until the stream is dropped.
fn held(bytes: ByteStream, guard: ActivityGuard) -> ByteStream {
    bytes
        .inspect(move |_| {
            let _held = &guard;
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
            .with_hint("Give a path that begins with /."));
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
            "a {what} has at most {limit} bytes, this one has {}",
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
        return Err(Error::invalid(format!("{mode:o} are not permission bits; the most is {MAX_MODE:o}")));
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

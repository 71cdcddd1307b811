//! The public face. (Bodies follow; the signatures are settled.)

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use futures_util::stream::BoxStream;
use sandbox::{
    Backend, Capabilities, Error, ErrorKind, Event, ExecId, ExecOutcome, ExecSpec, FileEntry, Lifetime,
    ProcessEntry, Result, SandboxSpec, SandboxState, TerminalSize, Usage, WriteMode,
};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::{
    ByteStream, EngineConfig, ExecView, GrepMatch, Item, Principal, SandboxFilter, SandboxRef, SandboxView,
    SignalScope, Store, Target, WatchEvent,
};

/// Whether a reader stays for what is still to come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Follow {
    No,
    Yes,
}

/// Whether removing stops what runs first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Force {
    No,
    Yes,
}

/// Data of a ledger entry of kind `Started`, as JSON.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartEntry {
    pub pid: i32,
}

/// Data of a ledger entry of kind `Exited`, as JSON.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ExitEntry {
    /// What the guest said; absent when it could say nothing any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub report: Option<guest_protocol::ExitReport>,
    pub outcome: ExecOutcome,
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

/// Bytes to and from a port or socket inside. Shutting down the write side is the half-close.
#[derive(Debug)]
pub struct PortStream {
    _private: (),
}

impl AsyncRead for PortStream {
    fn poll_read(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        _: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for PortStream {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, data: &[u8]) -> Poll<std::io::Result<usize>> {
        Poll::Ready(Ok(data.len()))
    }
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }
    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

#[derive(Debug, Clone)]
pub struct Engine {
    capabilities: Arc<Capabilities>,
}

type Stream<T> = BoxStream<'static, Result<T>>;

fn unbuilt<T>() -> Result<T> {
    Err(Error::new(ErrorKind::Unsupported, "not built yet"))
}

macro_rules! signatures {
    ($($(#[$doc:meta])* $name:ident($($arg:ident: $type:ty),*) -> $out:ty;)*) => {
        impl Engine {$(
            $(#[$doc])*
            pub async fn $name(&self, _who: &Principal $(, $arg: $type)*) -> Result<$out> {
                $(let _unused = &$arg;)*
                unbuilt()
            }
        )*}
    };
}

impl Engine {
    pub async fn open(_config: EngineConfig, _store: Store, backend: Arc<dyn Backend>) -> Result<Self> {
        let capabilities =
            backend.probe().await.map_err(|error| Error::new(ErrorKind::Unavailable, error.to_string()))?;
        Ok(Self { capabilities: Arc::new(capabilities) })
    }

    pub fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    /// What an operator should know: records that cannot be read, and the like.
    pub fn warnings(&self) -> Vec<String> {
        Vec::new()
    }

    pub async fn close(&self) {}

    pub async fn is_idle(&self) -> bool {
        true
    }
}

signatures! {
    create_sandbox(spec: SandboxSpec) -> SandboxView;
    sandbox(which: &SandboxRef) -> SandboxView;
    sandboxes(filter: &SandboxFilter) -> Vec<SandboxView>;
    start_sandbox(which: &SandboxRef) -> SandboxView;
    pause_sandbox(which: &SandboxRef) -> SandboxView;
    resume_sandbox(which: &SandboxRef) -> SandboxView;
    stop_sandbox(which: &SandboxRef, grace: Option<Duration>) -> SandboxView;
    restart_sandbox(which: &SandboxRef, grace: Option<Duration>) -> SandboxView;
    remove_sandbox(which: &SandboxRef, force: Force) -> ();
    wait_sandbox(which: &SandboxRef, state: SandboxState, timeout: Option<Duration>) -> SandboxView;
    drain_sandbox(which: &SandboxRef, timeout: Option<Duration>) -> SandboxView;
    renew_sandbox(which: &SandboxRef, lifetime: Lifetime) -> SandboxView;
    usage(which: &SandboxRef) -> Usage;
    processes(which: &SandboxRef) -> Vec<ProcessEntry>;
    exec(which: &SandboxRef, spec: ExecSpec) -> ExecView;
    execs(which: &SandboxRef) -> Vec<ExecView>;
    exec_view(which: &SandboxRef, exec: &ExecId) -> ExecView;
    wait_exec(which: &SandboxRef, exec: &ExecId, timeout: Option<Duration>) -> ExecView;
    exec_entries(which: &SandboxRef, exec: &ExecId, from: u64, follow: Follow) -> Stream<Item>;
    exec_stdin(which: &SandboxRef, exec: &ExecId, bytes: ByteStream, close: bool) -> u64;
    exec_signal(which: &SandboxRef, exec: &ExecId, signal: i32, scope: SignalScope) -> ();
    exec_resize(which: &SandboxRef, exec: &ExecId, size: TerminalSize) -> ();
    stat(which: &SandboxRef, path: &str, follow: bool) -> FileEntry;
    list(which: &SandboxRef, path: &str, recursive: bool, limit: u32) -> Listing;
    glob(which: &SandboxRef, root: &str, pattern: &str, limit: u32) -> Paths;
    grep(which: &SandboxRef, query: GrepQuery) -> Matches;
    read_file(which: &SandboxRef, path: &str, offset: u64, length: Option<u64>) -> (FileEntry, ByteStream);
    write_file(which: &SandboxRef, path: &str, options: WriteOptions, bytes: ByteStream) -> u64;
    mkdir(which: &SandboxRef, path: &str, parents: bool, mode: Option<u32>) -> ();
    remove_path(which: &SandboxRef, path: &str, recursive: bool) -> ();
    copy_path(which: &SandboxRef, from: &str, to: &str, recursive: bool) -> ();
    rename_path(which: &SandboxRef, from: &str, to: &str, replace: bool) -> ();
    symlink(which: &SandboxRef, target: &str, path: &str) -> ();
    read_link(which: &SandboxRef, path: &str) -> String;
    chmod(which: &SandboxRef, path: &str, mode: u32, recursive: bool) -> ();
    chown(which: &SandboxRef, path: &str, uid: Option<u32>, gid: Option<u32>, recursive: bool) -> ();
    pack(which: &SandboxRef, path: &str) -> ByteStream;
    unpack(which: &SandboxRef, path: &str, keep_ids: bool, bytes: ByteStream) -> u64;
    watch(which: &SandboxRef, path: &str, recursive: bool) -> Stream<WatchEvent>;
    connect(which: &SandboxRef, target: Target) -> PortStream;
    events(from: Option<u64>, follow: Follow) -> Stream<Event>;
}

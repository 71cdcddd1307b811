//! What a host asks and a guest answers. Fields are added optional; messages are added and never redefined.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Request {
    Ping,
    /// Starts a command. The same id again starts nothing and answers as the first time.
    ExecStart(ExecStart),
    /// Turns the connection into the exec's event stream, beginning with event `from` (1 is the first). Events below the
    /// last acknowledged one are gone. A second attach takes over: the earlier connection is closed.
    ExecAttach {
        id: String,
        from: u64,
    },
    /// Body: bytes for stdin. `close`: the body's end is the end of stdin. Answers `Written` when all of it is in the pipe.
    ExecStdin {
        id: String,
        close: bool,
    },
    ExecSignal {
        id: String,
        signal: i32,
        scope: SignalScope,
    },
    ExecResize {
        id: String,
        size: TerminalSize,
    },
    /// Every exec that the guest still knows. One is forgotten once its `Closed` event was acknowledged.
    ExecList,

    /// Starts an interpreter that waits for cells. A context of that name is an `AlreadyExists`.
    ContextCreate(ContextStart),
    ContextList,
    /// Ends the context's interpreter; the next cell gets a fresh one. A running cell is killed, those in the queue stay.
    ContextReset {
        name: String,
    },
    /// Ends the context and whatever runs or waits in it.
    ContextRemove {
        name: String,
    },
    /// Branches a live interpreter. `force`: in spite of hazards, which then become warnings.
    ContextFork {
        name: String,
        into: String,
        force: bool,
    },
    /// Which languages can run here. `path`: where to look for their programs.
    Languages {
        path: String,
    },

    Stat {
        path: String,
        follow: bool,
    },
    /// Entries of a directory, not sorted by the kernel but by us. `limit` bounds them; `truncated` tells.
    List {
        path: String,
        recursive: bool,
        limit: u32,
    },
    /// Paths beneath `root` that match a glob (`**/*.rs`). Never follows symlinks.
    Glob {
        root: String,
        pattern: String,
        limit: u32,
    },
    /// Lines that match a regular expression in files beneath `root`; binary files are skipped.
    Grep {
        root: String,
        pattern: String,
        #[serde(default)]
        include: Option<String>,
        ignore_case: bool,
        literal: bool,
        limit: u32,
    },
    /// Response body: the bytes from `offset`, at most `length`.
    Read {
        path: String,
        offset: u64,
        length: Option<u64>,
    },
    /// Body: the bytes. `parents`: make missing directories. `mode`: permission bits of a new file.
    Write {
        path: String,
        write: WriteMode,
        mode: Option<u32>,
        parents: bool,
    },
    Mkdir {
        path: String,
        parents: bool,
        mode: Option<u32>,
    },
    Remove {
        path: String,
        recursive: bool,
    },
    Copy {
        from: String,
        to: String,
        recursive: bool,
    },
    Rename {
        from: String,
        to: String,
        replace: bool,
    },
    Symlink {
        target: String,
        path: String,
    },
    Readlink {
        path: String,
    },
    Chmod {
        path: String,
        mode: u32,
        recursive: bool,
    },
    Chown {
        path: String,
        uid: Option<u32>,
        gid: Option<u32>,
        recursive: bool,
    },
    /// Response body: a tar stream of `path`; entries are named beneath its last component.
    TarOut {
        path: String,
    },
    /// Body: a tar stream, unpacked into the directory `path`. Entries that would leave it are refused. Ids are kept where
    /// `keep_ids`, else everything belongs to root inside.
    TarIn {
        path: String,
        keep_ids: bool,
    },
    /// Response body without end: each `Data` frame is one [`WatchEvent`] as JSON.
    Watch {
        path: String,
        recursive: bool,
    },

    /// Opens a stream to a port or socket inside. See the crate's head for what follows.
    Connect {
        target: Target,
    },
    /// Listens on a TCP port of loopback inside, for as long as the connection stays. Response body without end: each `Data`
    /// frame is one [`Incoming`] as JSON, a client that waits for `Accept`. Port 0: any.
    Listen {
        port: u16,
    },
    /// Takes a client of a listener over; from then on as after `Connect`.
    Accept {
        incoming: u64,
    },
    Processes,
    /// Kills every process of the workload. The guest stays.
    KillAll {
        disk: bool,
    },
    /// Ends everything: SIGTERM to the workload, or the signal that it wants to be ended by; SIGKILL after `grace_ms`, last
    /// events flushed, then the guest exits.
    Shutdown {
        grace_ms: u64,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        signal: Option<i32>,
    },
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ExecStart {
    pub id: String,
    pub command: Vec<String>,
    /// The whole environment; only `HOME` is added where it is missing, as the sandbox's own files say.
    pub env: BTreeMap<String, String>,
    pub cwd: String,
    /// As written by the caller; looked up in `/etc/passwd` and `/etc/group` inside.
    pub user: String,
    #[serde(default)]
    pub rlimits: Vec<Rlimit>,
    #[serde(default)]
    pub terminal: Option<TerminalSize>,
    /// Keep stdin open for `ExecStdin`.
    #[serde(default)]
    pub stdin: bool,
    #[serde(default)]
    pub timeout_ms: Option<u64>,
    /// Present: a piece of code instead of a command, and `command` is empty.
    #[serde(default)]
    pub cell: Option<CellStart>,
    /// Tell before the end which files beneath the working directory were made or changed meanwhile ([`crate::Rich::Files`]).
    #[serde(default)]
    pub track_files: bool,
}

/// A piece of code to run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CellStart {
    /// In the host's spelling: `python`, `javascript`, `bash`, `ruby`…
    pub language: String,
    /// Where its state lives. Made with what the exec names (environment, directory, user) when it is not there. Absent for
    /// languages that keep none.
    #[serde(default)]
    pub context: Option<String>,
    pub code: String,
    /// After an interrupt or at the time limit: how long the interpreter has to end the cell and keep its state.
    pub grace_ms: u64,
}

/// An interpreter to start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ContextStart {
    pub name: String,
    pub language: String,
    pub env: BTreeMap<String, String>,
    pub cwd: String,
    pub user: String,
    #[serde(default)]
    pub rlimits: Vec<Rlimit>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ContextSummary {
    pub name: String,
    pub language: String,
    pub state: ContextState,
    /// Absent while no interpreter runs: before the first cell of a reset context.
    #[serde(default)]
    pub pid: Option<i32>,
    /// Cells that ended in it since it was made.
    pub cells: u64,
    /// Cells that wait for their turn.
    pub queued: u32,
    pub cwd: String,
    /// Name of the context that it was forked from.
    #[serde(default)]
    pub parent: Option<String>,
    #[serde(default)]
    pub memory_bytes: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ContextState {
    Starting,
    Idle,
    Busy,
    /// Its interpreter ended; the next cell gets a new one, without the state.
    Lost,
}

/// A language and what would run it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LanguageFound {
    pub name: String,
    pub program: String,
    /// Whether cells share state.
    pub stateful: bool,
}

/// A client of a listener inside, waiting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Incoming {
    pub incoming: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rlimit {
    /// Lower case, without `RLIMIT_`.
    pub resource: String,
    pub soft: u64,
    pub hard: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TerminalSize {
    pub rows: u16,
    pub cols: u16,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum SignalScope {
    /// The exec's first process.
    Process,
    /// Its whole process group.
    Group,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Target {
    /// A TCP port on loopback.
    Tcp(u16),
    /// A Unix socket's path.
    Unix(String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum WriteMode {
    Replace,
    Append,
    CreateNew,
    /// In place from this byte on: what is before and after it stays, and a gap is a hole. Makes the file where it is
    /// missing. Not undone when the body breaks off.
    At(u64),
}

/// Whether bytes follow a message, and to what end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Body {
    None,
    /// `Data* End`.
    Bytes,
    /// `Data*` until the connection closes.
    Endless,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Response {
    Done,
    Started {
        pid: i32,
    },
    /// The command never ran. A value, not a failure: the request worked.
    NotStarted {
        reason: StartFailure,
        message: String,
    },
    /// Event frames follow. `next`: number of the first one that will come.
    Attached {
        next: u64,
    },
    Written {
        bytes: u64,
    },
    Execs {
        execs: Vec<ExecSummary>,
    },
    Entry {
        entry: FileEntry,
    },
    Entries {
        entries: Vec<FileEntry>,
        truncated: bool,
    },
    Paths {
        paths: Vec<String>,
        truncated: bool,
    },
    Matches {
        matches: Vec<GrepMatch>,
        truncated: bool,
    },
    /// A body follows. `entry`: the file as it was when opened.
    Reading {
        entry: FileEntry,
    },
    /// A tar body follows.
    Packing,
    /// [`WatchEvent`]s follow.
    Watching,
    /// The stream to the port is open.
    Connected,
    Link {
        target: String,
    },
    Processes {
        processes: Vec<Process>,
    },
    Contexts {
        contexts: Vec<ContextSummary>,
    },
    /// The context that was made, reset or forked. `warnings`: hazards that a fork passed over, as sentences.
    Context {
        context: Box<ContextSummary>,
        warnings: Vec<String>,
    },
    Languages {
        languages: Vec<LanguageFound>,
    },
    /// [`Incoming`]s follow.
    Listening {
        port: u16,
    },
}

impl Response {
    pub fn body(&self) -> Body {
        match self {
            Self::Reading { .. } | Self::Packing => Body::Bytes,
            Self::Watching | Self::Listening { .. } => Body::Endless,
            _ => Body::None,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum StartFailure {
    NotFound,
    NotExecutable,
    BadWorkingDirectory,
    BadUser,
    LimitReached,
    Other,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ExecSummary {
    pub id: String,
    pub status: ExecStatus,
    /// The last event's number so far.
    pub last_event: u64,
    /// Everything up to here was acknowledged.
    pub acked: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ExecStatus {
    Running,
    /// The first process ended; others hold its output open.
    Exited,
    Closed,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EntryKind {
    File,
    Directory,
    Symlink,
    Fifo,
    Socket,
    Device,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FileEntry {
    pub path: String,
    pub kind: EntryKind,
    pub size: u64,
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    pub modified_at_ms: i64,
    #[serde(default)]
    pub target: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GrepMatch {
    pub path: String,
    /// From 1.
    pub line: u64,
    /// The line without its end, cut to a readable length.
    pub text: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WatchEvent {
    pub kind: WatchKind,
    pub path: String,
    /// Where a rename came from, when it was watched too.
    #[serde(default)]
    pub from: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum WatchKind {
    Created,
    Modified,
    Removed,
    Renamed,
    /// Events were lost; look again.
    Overflow,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Process {
    pub pid: i32,
    pub parent: i32,
    pub user: u32,
    pub state: char,
    pub memory_bytes: u64,
    pub cpu_micros: u64,
    pub command: Vec<String>,
    #[serde(default)]
    pub exec: Option<String>,
}

/// Why a request could not be done. The connection stays usable.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "camelCase")]
#[error("{message}")]
pub struct Failure {
    pub kind: FailureKind,
    /// Names the path or the exec.
    pub message: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum FailureKind {
    InvalidRequest,
    NotFound,
    AlreadyExists,
    Denied,
    /// A directory where a file was needed, a stdin that is closed, an exec that ended.
    WrongState,
    /// No space, too many files, a cap of ours.
    LimitReached,
    Unsupported,
    Internal,
}

impl Failure {
    pub fn new(kind: FailureKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into() }
    }
}

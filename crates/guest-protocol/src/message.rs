//! Requests of a host and answers of a guest. New fields are optional; messages are added and never redefined.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Request {
    Ping,
    /// Starts a command. A repeated id starts nothing and gets the first answer again.
    ExecStart(ExecStart),
    /// Turns the connection into the exec's event stream, beginning with event `from` (1 is the first). Events below
    /// the last acknowledged one are gone. A second attach takes over: the earlier connection is closed.
    ExecAttach {
        id: String,
        from: u64,
    },
    /// Body: bytes for stdin. `close`: stdin ends with the body. Answers `Written` when all of it is in the pipe.
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
    /// Every exec that the guest still knows. An exec is forgotten once its `Closed` event was acknowledged.
    ExecList,

    /// Starts an interpreter that waits for cells. Fails with `AlreadyExists` if the context exists.
    ContextCreate(ContextStart),
    ContextList,
    /// Ends the context's interpreter; the next cell gets a fresh one. A running cell is killed, queued ones stay.
    ContextReset {
        name: String,
    },
    /// Ends the context and every cell that runs or waits in it.
    ContextRemove {
        name: String,
    },
    /// Branches a live interpreter. `force`: despite hazards, which then become warnings.
    ContextFork {
        name: String,
        into: String,
        force: bool,
    },
    /// The languages that can run here. `path`: where to look for their programs.
    Languages {
        path: String,
    },

    Stat {
        path: String,
        follow: bool,
    },
    /// Entries of a directory, sorted by name, at most `limit`; `truncated` says if there are more.
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
    /// Body: a tar stream, unpacked into the directory `path`. Entries that would leave it are refused. Ids are kept
    /// where `keep_ids`, else everything belongs to root inside.
    TarIn {
        path: String,
        keep_ids: bool,
    },
    /// Response body without end: each `Data` frame is one [`WatchEvent`] as JSON.
    Watch {
        path: String,
        recursive: bool,
    },

    /// Opens a stream to a port or socket inside. The crate's documentation says what follows.
    Connect {
        target: Target,
    },
    /// Connects to a port of loopback inside and hands the socket out: it is attached to the response (`SCM_RIGHTS`).
    /// Refused with `Unsupported` unless the host is connected by a Unix socket that carries descriptors.
    ConnectFd {
        port: u16,
        protocol: PortProtocol,
    },
    /// Starts an SFTP server (version 3) inside: a process of the workload that acts as `user` and begins in `cwd`.
    /// `read_only`: it refuses to change anything. `hand_out`: its socket is attached to the response (`SCM_RIGHTS`),
    /// with the same refusal as for `ConnectFd`; else it continues like `Connect`.
    Sftp {
        user: String,
        cwd: String,
        read_only: bool,
        hand_out: bool,
    },
    /// Listens on a TCP port of loopback inside for as long as the connection stays. Response body without end: each
    /// `Data` frame is one [`Incoming`] as JSON, a client that waits for `Accept`. Port 0: any free port.
    Listen {
        port: u16,
    },
    /// Takes over a client of a listener; continues like `Connect`.
    Accept {
        incoming: u64,
    },
    /// The sockets of the sandbox's network, which are attached to the response (`SCM_RIGHTS`). Refused unless the host
    /// is connected by a Unix socket, and if there are none.
    NetworkSockets,
    Processes,
    /// Kills every process of the workload. The guest stays.
    KillAll {
        disk: bool,
    },
    /// Ends everything: SIGTERM (or the given signal) to the workload, SIGKILL after `grace_ms`, last events flushed,
    /// then the guest exits.
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
    /// The whole environment; only a missing `HOME` is added, from the sandbox's own `/etc/passwd`.
    pub env: BTreeMap<String, String>,
    pub cwd: String,
    /// As written by the caller; looked up in `/etc/passwd` and `/etc/group` inside.
    pub user: String,
    #[serde(default)]
    pub rlimits: Vec<Rlimit>,
    #[serde(default)]
    pub terminal: Option<TerminalSize>,
    /// Modes of the terminal that the caller states. A guest that does not know the field makes the usual terminal.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub terminal_modes: Vec<TerminalMode>,
    /// Keep stdin open for `ExecStdin`.
    #[serde(default)]
    pub stdin: bool,
    #[serde(default)]
    pub timeout_ms: Option<u64>,
    /// A piece of code instead of a command; `command` is empty then.
    #[serde(default)]
    pub cell: Option<CellStart>,
    /// Report the files below the working directory that the exec created or changed, before its end
    /// ([`crate::Rich::Files`]).
    #[serde(default)]
    pub track_files: bool,
}

/// A piece of code to run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CellStart {
    /// In the host's spelling: `python`, `javascript`, `bash`, `ruby`…
    pub language: String,
    /// The context that holds its state. If missing, it is created with the exec's environment, directory and user.
    /// Absent for languages without state.
    #[serde(default)]
    pub context: Option<String>,
    pub code: String,
    /// How long the interpreter has to end the cell and keep its state, after an interrupt or at the time limit.
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

/// A language and the program that runs it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InstalledLanguage {
    pub name: String,
    pub program: String,
    /// Whether cells share state.
    pub stateful: bool,
}

/// A waiting client of a listener inside.
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

/// Number and value as in SSH (RFC 4254, section 8).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TerminalMode {
    pub opcode: u8,
    pub value: u32,
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
pub enum PortProtocol {
    Tcp,
    Udp,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum WriteMode {
    Replace,
    Append,
    CreateNew,
    /// Writes in place from this byte on: the rest stays, and a gap is a hole. Creates a missing file. Not undone if
    /// the body breaks off.
    At(u64),
}

/// Whether bytes follow a message, and where they end.
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
    /// The connected socket is attached to this frame.
    Socket,
    Link {
        target: String,
    },
    Processes {
        processes: Vec<Process>,
    },
    Contexts {
        contexts: Vec<ContextSummary>,
    },
    /// The context that was created, reset or forked. `warnings`: hazards that a forced fork ignored, as sentences.
    Context {
        context: Box<ContextSummary>,
        warnings: Vec<String>,
    },
    Languages {
        languages: Vec<InstalledLanguage>,
    },
    /// [`Incoming`]s follow.
    Listening {
        port: u16,
    },
    /// The sockets are attached to this frame, as `count` descriptors.
    NetworkSockets {
        count: u32,
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
    /// Number of the last event so far.
    pub last_event: u64,
    /// Every event up to this number was acknowledged.
    pub acked: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ExecStatus {
    Running,
    /// The first process ended; others still hold its output open.
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
    /// The old path of a rename, if it was watched too.
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

/// Why a request failed. The connection stays usable.
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
    /// No space, too many files, one of our own limits.
    LimitReached,
    Unsupported,
    Internal,
}

impl Failure {
    pub fn new(kind: FailureKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into() }
    }
}

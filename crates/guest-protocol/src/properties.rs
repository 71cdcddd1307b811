//! Everything host and guest must know about a request besides its fields, in one table.

use crate::{Request, Response, Target, WriteMode};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "a row of a table, not a state")]
pub struct Properties {
    /// It can change something inside, so read-only callers are refused.
    pub changes: bool,
    /// Doing it twice is the same as doing it once.
    pub repeatable: bool,
    /// The guest itself changes files for it.
    pub writes_files: bool,
    /// It creates or fills files, which takes memory on a tmpfs. Not set for requests that only change or remove files:
    /// they must work when memory is full.
    pub fills_files: bool,
    /// `Data* End` follows the request.
    pub has_body: bool,
    /// The workload must not be paused.
    pub needs_workload: bool,
    /// It walks a tree or waits for an interpreter to start, so the answer may take long.
    pub is_slow: bool,
}

const LOOK: Properties = Properties {
    changes: false,
    repeatable: true,
    writes_files: false,
    fills_files: false,
    has_body: false,
    needs_workload: false,
    is_slow: false,
};
const CHANGE: Properties = Properties { changes: true, repeatable: false, ..LOOK };
const WRITE: Properties = Properties { writes_files: true, ..CHANGE };
const FILL: Properties = Properties { fills_files: true, ..WRITE };

impl Request {
    /// Without a wildcard: a new request does not compile until it has a row here.
    pub fn properties(&self) -> Properties {
        match self {
            Self::Ping
            | Self::ExecAttach { .. }
            | Self::ExecList
            | Self::ContextList
            | Self::Languages { .. }
            | Self::Stat { .. }
            | Self::Read { .. }
            | Self::Readlink { .. }
            | Self::TarOut { .. }
            | Self::Watch { .. }
            | Self::Processes => LOOK,
            Self::Glob { .. } | Self::Grep { .. } => Properties { is_slow: true, ..LOOK },
            Self::List { recursive, .. } => Properties { is_slow: *recursive, ..LOOK },
            Self::ExecStart(_)
            | Self::ExecResize { .. }
            | Self::NetworkSockets
            | Self::KillAll { .. }
            | Self::Shutdown { .. } => Properties { repeatable: true, ..CHANGE },
            Self::ExecStdin { .. } => Properties { has_body: true, ..CHANGE },
            Self::ExecSignal { .. } | Self::ContextRemove { .. } => CHANGE,
            Self::ContextReset { .. } => Properties { is_slow: true, ..CHANGE },
            Self::ContextCreate(_) | Self::ContextFork { .. } => {
                Properties { needs_workload: true, is_slow: true, ..CHANGE }
            }
            // A server inside may do anything for its client.
            Self::Connect { .. } | Self::ConnectFd { .. } | Self::Listen { .. } => {
                Properties { repeatable: true, needs_workload: true, ..CHANGE }
            }
            Self::Accept { .. } => Properties { needs_workload: true, ..CHANGE },
            // Whether it may change files is in the request itself, and the workload's own processes write them.
            Self::Sftp { read_only, .. } => Properties { changes: !read_only, needs_workload: true, ..LOOK },
            Self::Write { .. } | Self::TarIn { .. } => Properties { has_body: true, ..FILL },
            Self::Mkdir { .. } | Self::Symlink { .. } => FILL,
            Self::Copy { .. } => Properties { is_slow: true, ..FILL },
            Self::Rename { .. } => WRITE,
            Self::Remove { recursive, .. } => Properties { is_slow: *recursive, ..WRITE },
            Self::Chmod { recursive, .. } | Self::Chown { recursive, .. } => {
                Properties { repeatable: true, is_slow: *recursive, ..WRITE }
            }
        }
    }

    /// The protocol version that introduced this request. A host does not send it to an older guest.
    pub fn since(&self) -> u32 {
        match self {
            Self::Sftp { .. } => 6,
            Self::ConnectFd { .. } => 5,
            Self::NetworkSockets => 4,
            Self::Write { write: WriteMode::At(_), .. } => 3,
            Self::ContextCreate(_)
            | Self::ContextList
            | Self::ContextReset { .. }
            | Self::ContextRemove { .. }
            | Self::ContextFork { .. }
            | Self::Languages { .. }
            | Self::Listen { .. }
            | Self::Accept { .. } => 2,
            Self::ExecStart(start) if start.cell.is_some() => 2,
            _ => 1,
        }
    }

    /// Every path in it that the guest itself opens.
    pub fn paths_mut(&mut self) -> Vec<&mut String> {
        match self {
            Self::ExecStart(start) => vec![&mut start.cwd],
            Self::Sftp { cwd, .. } => vec![cwd],
            Self::ContextCreate(start) => vec![&mut start.cwd],
            Self::Stat { path, .. }
            | Self::List { path, .. }
            | Self::Glob { root: path, .. }
            | Self::Grep { root: path, .. }
            | Self::Read { path, .. }
            | Self::Write { path, .. }
            | Self::Mkdir { path, .. }
            | Self::Remove { path, .. }
            | Self::Symlink { path, .. }
            | Self::Readlink { path }
            | Self::Chmod { path, .. }
            | Self::Chown { path, .. }
            | Self::TarOut { path }
            | Self::TarIn { path, .. }
            | Self::Watch { path, .. }
            | Self::Connect { target: Target::Unix(path) } => vec![path],
            Self::Copy { from, to, .. } | Self::Rename { from, to, .. } => vec![from, to],
            _ => Vec::new(),
        }
    }

    /// The context that a request is about.
    pub fn context(&self) -> Option<&str> {
        match self {
            Self::ContextCreate(start) => Some(&start.name),
            Self::ContextReset { name } | Self::ContextRemove { name } | Self::ContextFork { name, .. } => {
                Some(name)
            }
            _ => None,
        }
    }

    /// Whether `answer` answers this kind of request.
    pub fn accepts(&self, answer: &Response) -> bool {
        match self {
            Self::ExecStart(_) => matches!(answer, Response::Started { .. } | Response::NotStarted { .. }),
            Self::ExecAttach { .. } => matches!(answer, Response::Attached { .. }),
            Self::ExecStdin { .. } | Self::Write { .. } | Self::TarIn { .. } => {
                matches!(answer, Response::Written { .. })
            }
            Self::ExecList => matches!(answer, Response::Execs { .. }),
            Self::Stat { .. } => matches!(answer, Response::Entry { .. }),
            Self::List { .. } => matches!(answer, Response::Entries { .. }),
            Self::Glob { .. } => matches!(answer, Response::Paths { .. }),
            Self::Grep { .. } => matches!(answer, Response::Matches { .. }),
            Self::Read { .. } => matches!(answer, Response::Reading { .. }),
            Self::Readlink { .. } => matches!(answer, Response::Link { .. }),
            Self::TarOut { .. } => matches!(answer, Response::Packing),
            Self::Watch { .. } => matches!(answer, Response::Watching),
            Self::Connect { .. } | Self::Accept { .. } | Self::Sftp { hand_out: false, .. } => {
                matches!(answer, Response::Connected)
            }
            Self::ConnectFd { .. } | Self::Sftp { hand_out: true, .. } => matches!(answer, Response::Socket),
            Self::Listen { .. } => matches!(answer, Response::Listening { .. }),
            Self::ContextList => matches!(answer, Response::Contexts { .. }),
            Self::ContextCreate(_) | Self::ContextReset { .. } | Self::ContextFork { .. } => {
                matches!(answer, Response::Context { .. })
            }
            Self::Languages { .. } => matches!(answer, Response::Languages { .. }),
            Self::NetworkSockets => matches!(answer, Response::NetworkSockets { .. }),
            Self::Processes => matches!(answer, Response::Processes { .. }),
            Self::Ping
            | Self::ExecSignal { .. }
            | Self::ExecResize { .. }
            | Self::ContextRemove { .. }
            | Self::Mkdir { .. }
            | Self::Remove { .. }
            | Self::Copy { .. }
            | Self::Rename { .. }
            | Self::Symlink { .. }
            | Self::Chmod { .. }
            | Self::Chown { .. }
            | Self::KillAll { .. }
            | Self::Shutdown { .. } => matches!(answer, Response::Done),
        }
    }
}

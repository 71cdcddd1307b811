//! What may be answered to what.

use guest_protocol::{Request, Response};

use super::GuestError;

/// Refuses an answer that belongs to another request, with the connection it came over.
pub(super) fn checked(request: &Request, answer: Response) -> Result<Response, GuestError> {
    let fits = match request {
        Request::ExecStart(_) => matches!(answer, Response::Started { .. } | Response::NotStarted { .. }),
        Request::ExecAttach { .. } => matches!(answer, Response::Attached { .. }),
        Request::ExecStdin { .. } | Request::Write { .. } | Request::TarIn { .. } => {
            matches!(answer, Response::Written { .. })
        }
        Request::ExecList => matches!(answer, Response::Execs { .. }),
        Request::Stat { .. } => matches!(answer, Response::Entry { .. }),
        Request::List { .. } => matches!(answer, Response::Entries { .. }),
        Request::Glob { .. } => matches!(answer, Response::Paths { .. }),
        Request::Grep { .. } => matches!(answer, Response::Matches { .. }),
        Request::Read { .. } => matches!(answer, Response::Reading { .. }),
        Request::Readlink { .. } => matches!(answer, Response::Link { .. }),
        Request::TarOut { .. } => matches!(answer, Response::Packing),
        Request::Watch { .. } => matches!(answer, Response::Watching),
        Request::Connect { .. } | Request::Accept { .. } => matches!(answer, Response::Connected),
        Request::Listen { .. } => matches!(answer, Response::Listening { .. }),
        Request::ContextList => matches!(answer, Response::Contexts { .. }),
        Request::ContextCreate(_) | Request::ContextReset { .. } | Request::ContextFork { .. } => {
            matches!(answer, Response::Context { .. })
        }
        Request::Languages { .. } => matches!(answer, Response::Languages { .. }),
        Request::Processes => matches!(answer, Response::Processes { .. }),
        Request::Ping
        | Request::ExecSignal { .. }
        | Request::ExecResize { .. }
        | Request::ContextRemove { .. }
        | Request::Mkdir { .. }
        | Request::Remove { .. }
        | Request::Copy { .. }
        | Request::Rename { .. }
        | Request::Symlink { .. }
        | Request::Chmod { .. }
        | Request::Chown { .. }
        | Request::KillAll { .. }
        | Request::Shutdown { .. } => matches!(answer, Response::Done),
    };
    if fits { Ok(answer) } else { Err(GuestError::Nonsense("an answer to another question")) }
}

/// Whether doing it twice is the same as doing it once.
pub(super) fn is_repeatable(request: &Request) -> bool {
    match request {
        Request::Ping
        | Request::ExecStart(_)
        | Request::ExecAttach { .. }
        | Request::ExecResize { .. }
        | Request::ExecList
        | Request::ContextList
        | Request::Languages { .. }
        | Request::Listen { .. }
        | Request::Stat { .. }
        | Request::List { .. }
        | Request::Glob { .. }
        | Request::Grep { .. }
        | Request::Read { .. }
        | Request::Readlink { .. }
        | Request::Chmod { .. }
        | Request::Chown { .. }
        | Request::TarOut { .. }
        | Request::Watch { .. }
        | Request::Connect { .. }
        | Request::Processes
        | Request::KillAll { .. }
        | Request::Shutdown { .. } => true,
        Request::ExecStdin { .. }
        | Request::ExecSignal { .. }
        | Request::ContextCreate(_)
        | Request::ContextReset { .. }
        | Request::ContextRemove { .. }
        | Request::ContextFork { .. }
        | Request::Accept { .. }
        | Request::Write { .. }
        | Request::Mkdir { .. }
        | Request::Remove { .. }
        | Request::Copy { .. }
        | Request::Rename { .. }
        | Request::Symlink { .. }
        | Request::TarIn { .. } => false,
    }
}

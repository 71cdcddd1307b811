//! The requests that a driver takes.

use std::{collections::BTreeMap, time::Duration};

use sandbox::{
    Error, ExecSpec, ExposedPort, Lifetime, Limits, NetworkRequest, Policy, Result, SandboxName, SnapshotId,
};
use store::ExecRecord;
use tokio::sync::oneshot;
use tracing::Span;

use super::{Captured, RequestStep};
use crate::{Force, NetworkChange, Principal};

/// Identifies a caller that waits for a drain.
pub(crate) type DrainCaller = u64;
pub(crate) type Reply<T> = oneshot::Sender<Result<T>>;

#[derive(Debug)]
pub(crate) enum Command {
    Start {
        reply: Reply<()>,
    },
    Stop {
        grace: Option<Duration>,
        reply: Reply<()>,
    },
    Restart {
        grace: Option<Duration>,
        reply: Reply<()>,
    },
    Pause {
        reply: Reply<()>,
    },
    Resume {
        reply: Reply<()>,
    },
    Remove {
        force: Force,
        reply: Reply<()>,
    },
    /// Accept no new execs, and stop when the running ones have ended.
    Drain {
        caller: DrainCaller,
        reply: Reply<()>,
    },
    /// This caller no longer waits. The drain ends with the last one who does.
    EndDrain {
        caller: DrainCaller,
    },
    Renew {
        lifetime: Lifetime,
        reply: Reply<()>,
    },
    /// Set the labels that have a value, and remove the others.
    Relabel {
        changes: BTreeMap<String, Option<String>>,
        reply: Reply<()>,
    },
    Exec {
        spec: Box<ExecSpec>,
        /// The request's span.
        span: Span,
        /// Whoever asks, in words.
        asked_by: String,
        request_hash: Option<String>,
        reply: Reply<ExecRecord>,
    },
    /// Copy its files into a new snapshot, while nothing in it moves.
    Capture {
        into: SnapshotId,
        reply: Reply<Captured>,
    },
    Rename {
        name: SandboxName,
        /// The earlier name is released, not just lent.
        for_good: bool,
        reply: Reply<()>,
    },
    /// Record that a port is exposed, and listen for it.
    Expose {
        exposed: ExposedPort,
        reply: Reply<()>,
    },
    Withdraw {
        port: u16,
        reply: Reply<()>,
    },
    /// Record other limits, and hold them.
    ChangeLimits {
        limits: Limits,
        /// The principal whose quota the memory counts against.
        who: Box<Principal>,
        reply: Reply<()>,
    },
    /// Record another network policy, and hold it.
    ChangeNetwork {
        change: Box<NetworkChange>,
        /// The caller's ceilings.
        ceilings: Vec<Policy>,
        reply: Reply<()>,
    },
    /// Record a request for more network, or its answer, and hold what follows from it.
    StepRequest {
        step: Box<RequestStep>,
        reply: Reply<NetworkRequest>,
    },
    /// Its secrets changed.
    HoldSecrets {
        reply: Reply<()>,
    },
    /// Release the sandbox; it lives on.
    Close {
        reply: Reply<()>,
    },
}

impl Command {
    /// Answers with an error, whatever was asked.
    pub(super) fn refuse(self, error: Error) {
        match self {
            Self::Start { reply }
            | Self::Stop { reply, .. }
            | Self::Restart { reply, .. }
            | Self::Pause { reply }
            | Self::Resume { reply }
            | Self::Remove { reply, .. }
            | Self::Drain { reply, .. }
            | Self::Renew { reply, .. }
            | Self::Relabel { reply, .. }
            | Self::Rename { reply, .. }
            | Self::Expose { reply, .. }
            | Self::Withdraw { reply, .. }
            | Self::HoldSecrets { reply }
            | Self::ChangeNetwork { reply, .. }
            | Self::ChangeLimits { reply, .. }
            | Self::Close { reply } => refuse(reply, error),
            Self::Exec { reply, .. } => refuse(reply, error),
            Self::StepRequest { reply, .. } => refuse(reply, error),
            Self::Capture { reply, .. } => refuse(reply, error),
            Self::EndDrain { .. } => {}
        }
    }
}

pub(super) fn refuse<T>(reply: Reply<T>, error: Error) {
    // The caller may be gone; then nobody needs to know.
    drop(reply.send(Err(error)));
}

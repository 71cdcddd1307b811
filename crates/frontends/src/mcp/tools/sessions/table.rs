//! Exec sessions that wait for input nobody may ever send: after a while without a call and without output their stdin
//! is closed, so that a shell or an interpreter ends by itself. Nothing is killed.
//!
//! One task looks after all of them. It sleeps until the first is due and ends with the last, so a daemon without
//! sessions has none. A daemon that is started anew does not know the sessions of the one before it.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use engine::{Principal, SandboxRef};
use sandbox::ExecId;
use tokio::{
    sync::Notify,
    time::{Instant, sleep_until, timeout},
};

use crate::mcp::{Call, Mcp, WeakMcp, tools::exec::byte_stream};

/// Sessions that are looked after. One more makes us forget the one that would have been due first; its stdin stays
/// open.
const MAX_SESSIONS: usize = 4096;
/// How long a writer who is at work may keep us from closing.
const CLOSE_PATIENCE: Duration = Duration::from_secs(10);
/// A time to live that no clock could hold is this long.
const FAR: Duration = Duration::from_secs(365 * 24 * 60 * 60);

#[derive(Debug, Default)]
pub(crate) struct Sessions {
    table: Mutex<Table>,
    /// The first due time may have changed.
    changed: Notify,
}

#[derive(Debug, Default)]
struct Table {
    by_exec: HashMap<ExecId, Session>,
    is_swept: bool,
}

#[derive(Debug, Clone)]
struct Session {
    /// By its id.
    which: SandboxRef,
    ttl: Duration,
    due: Instant,
    /// Number of the last ledger entry when it was last looked at.
    last_entry: u64,
}

impl Sessions {
    /// Looks after a session from now on.
    pub(crate) fn watch(call: &Call, which: &SandboxRef, exec: &ExecId) {
        let sessions = call.mcp.sessions();
        let ttl = call.settings.session_ttl().min(FAR);
        let due = Instant::now() + ttl;
        let session = Session { which: which.clone(), ttl, due, last_entry: 0 };
        let mut table = sessions.lock();
        if table.by_exec.len() >= MAX_SESSIONS
            && let Some(first) = table.first_due().map(|(exec, _)| exec.clone())
        {
            table.by_exec.remove(&first);
        }
        table.by_exec.insert(exec.clone(), session);
        if !std::mem::replace(&mut table.is_swept, true) {
            tokio::spawn(sweep(Arc::clone(sessions), call.mcp.downgrade()));
        }
        drop(table);
        sessions.changed.notify_one();
    }

    /// Someone called about it.
    pub(crate) fn touch(&self, exec: &ExecId) {
        if let Some(session) = self.lock().by_exec.get_mut(exec) {
            session.due = Instant::now() + session.ttl;
        }
    }

    pub(crate) fn forget(&self, exec: &ExecId) {
        self.lock().by_exec.remove(exec);
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// When the first is due; `None` ends the task that looks after them.
    fn next_due(&self) -> Option<Instant> {
        let mut table = self.lock();
        let due = table.first_due().map(|(_, session)| session.due);
        table.is_swept = due.is_some();
        due
    }

    fn due_now(&self) -> Vec<(ExecId, Session)> {
        let now = Instant::now();
        let table = self.lock();
        let due = table.by_exec.iter().filter(|(_, session)| session.due <= now);
        due.map(|(exec, session)| (exec.clone(), session.clone())).collect()
    }
}

impl Table {
    fn first_due(&self) -> Option<(&ExecId, &Session)> {
        self.by_exec.iter().min_by_key(|(_, session)| session.due)
    }
}

/// Looks after all sessions until none is left, or nobody serves MCP any more.
async fn sweep(sessions: Arc<Sessions>, mcp: WeakMcp) {
    while let Some(due) = sessions.next_due() {
        tokio::select! {
            () = sleep_until(due) => {}
            () = sessions.changed.notified() => continue,
        }
        let Some(mcp) = mcp.upgrade() else { return };
        for (exec, session) in sessions.due_now() {
            look_after(&mcp, &sessions, exec, session).await;
        }
    }
}

async fn look_after(mcp: &Mcp, sessions: &Sessions, exec: ExecId, session: Session) {
    let Session { which, last_entry, .. } = session;
    // Not in the name of whoever started it, whose key may have ended before the command.
    let who = Principal::operator("session sweep");
    let view = match mcp.engine().exec_view(&who, &which, &exec).await {
        Ok(view) if view.outcome.is_none() => view,
        // Over, or gone with its sandbox.
        _ => return sessions.forget(&exec),
    };
    if view.last_entry > last_entry {
        // It printed since. When exactly is not asked: it is given the whole time again.
        if let Some(session) = sessions.lock().by_exec.get_mut(&exec) {
            session.last_entry = view.last_entry;
            session.due = Instant::now() + session.ttl;
        }
        return;
    }
    sessions.forget(&exec);
    tracing::info!(%exec, "closing the stdin of a session that nobody uses");
    let engine = mcp.engine().clone();
    mcp.spawn(async move {
        let close = engine.exec_stdin(&who, &which, &exec, byte_stream(Bytes::new()), true);
        match timeout(CLOSE_PATIENCE, close).await {
            Ok(Ok(_)) | Err(_) => {}
            Ok(Err(error)) => {
                tracing::debug!(%exec, error = &error as &dyn std::error::Error, "stdin not closed");
            }
        }
    });
}

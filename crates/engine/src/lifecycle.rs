//! Start, stop, pause, resume, restart, remove, wait, drain, renew: requested here, performed by the driver.

use std::{
    collections::BTreeMap,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use guest_protocol::{Process, Request, Response};
use sandbox::{
    Action, Error, ErrorKind, Lifetime, Limits, Next, ProcessEntry, Result, SandboxName, SandboxState,
    Subject, Thing, Usage,
};
use store::StoreError;
use tokio::{sync::oneshot, time::timeout};

use crate::{
    Engine, Principal, SandboxRef, SandboxView, build,
    client::GuestError,
    config::MAX_STOP_GRACE,
    core::Changeable,
    create::check_lifetime,
    disk::remove_directory,
    driver::{Command, Reply},
    error,
    shared::{Activity, Gone, Shared},
};

/// Whether a removal stops a running sandbox first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Force {
    No,
    Yes,
}

impl Engine {
    #[crate::boxed]
    pub async fn start_sandbox(&self, who: &Principal, which: &SandboxRef) -> Result<SandboxView> {
        self.command(who, which, |reply| Command::Start { reply }).await
    }

    /// Freezes the workload; files stay reachable.
    #[crate::boxed]
    pub async fn pause_sandbox(&self, who: &Principal, which: &SandboxRef) -> Result<SandboxView> {
        self.command(who, which, |reply| Command::Pause { reply }).await
    }

    #[crate::boxed]
    pub async fn resume_sandbox(&self, who: &Principal, which: &SandboxRef) -> Result<SandboxView> {
        self.command(who, which, |reply| Command::Resume { reply }).await
    }

    /// Asks the workload to end, and kills it after `grace`. Files stay. Stopping a stopped sandbox is fine; stopping
    /// again with less grace shortens the wait.
    #[crate::boxed]
    pub async fn stop_sandbox(
        &self,
        who: &Principal,
        which: &SandboxRef,
        grace: Option<Duration>,
    ) -> Result<SandboxView> {
        check_grace(grace)?;
        self.command(who, which, |reply| Command::Stop { grace, reply }).await
    }

    #[crate::boxed]
    pub async fn restart_sandbox(
        &self,
        who: &Principal,
        which: &SandboxRef,
        grace: Option<Duration>,
    ) -> Result<SandboxView> {
        check_grace(grace)?;
        self.command(who, which, |reply| Command::Restart { grace, reply }).await
    }

    /// Deletes record, files and logs.
    #[crate::boxed]
    pub async fn remove_sandbox(&self, who: &Principal, which: &SandboxRef, force: Force) -> Result<()> {
        // Checked before unreadable records, which have no other guard.
        who.may_change()?;
        self.core().keys.admit(who, self.core().clock.now())?;
        if force == Force::Yes
            && let Some((id, _)) = self.core().corrupt_row(who, which)
        {
            return self.remove_corrupt(&id).await;
        }
        let shared = self.core().find_to_remove(who, which, force).await?;
        ask(&shared, |reply| Command::Remove { force, reply }).await
    }

    /// A sandbox with an unreadable record can still be removed: everything is found by the id alone.
    async fn remove_corrupt(&self, id: &sandbox::SandboxId) -> Result<()> {
        let core = self.core();
        let label = Subject::new(Thing::Sandbox, id.as_str());
        // It is unknown which of them had it.
        for backend in core.backends.all() {
            backend.remove(id).await.map_err(|error| error::from_backend(error, &label))?;
        }
        remove_directory(&core.config.sandbox_directory(id)).await?;
        match core.store.remove_sandbox(id.clone()).await {
            Ok(()) | Err(StoreError::Missing { .. }) => {}
            Err(error) => return Err(error::from_store(error)),
        }
        core.forget_corrupt(id);
        Ok(())
    }

    /// Returns when the sandbox is in `state`; fails with `TimedOut`, or at once if it can no longer get there.
    #[crate::boxed]
    pub async fn wait_sandbox(
        &self,
        who: &Principal,
        which: &SandboxRef,
        state: SandboxState,
        time: Option<Duration>,
    ) -> Result<SandboxView> {
        let shared = self.core().find_to_look(who, which).await?;
        let mut status = shared.status.subscribe();
        let closing = self.core().closing.clone();
        let reached = async {
            let settled = status.wait_for(|status| {
                let now = status.record.state;
                status.gone.is_some() || now == state || now == SandboxState::Failed
            });
            let status = settled.await.map_err(|_closed| error::closing())?;
            match (&status.gone, status.record.state) {
                (Some(Gone::Removed), _) => Err(error::no_such_sandbox(which)),
                (Some(Gone::NotMade(refusal)), _) => Err(refusal.clone()),
                (None, now) if now == state => Ok(()),
                (None, _) => {
                    let label = shared.label();
                    let message = format!("{label} has failed and will not be {state}");
                    Err(Error::wrong_state(&label, SandboxState::Failed, message)
                        .with_next(Next::Replace(label.name)))
                }
            }
        };
        let waited = with_timeout(time, async {
            tokio::select! { result = reached => result, () = closing.cancelled() => Err(error::closing()) }
        });
        match waited.await {
            Some(result) => result.map(|()| shared.view()),
            None => {
                let now = shared.state();
                Err(Error::new(
                    ErrorKind::TimedOut,
                    format!("{} is still {now}, not {state}", shared.label()),
                )
                .with_hint("Wait longer, or check what it is doing."))
            }
        }
    }

    /// Accepts no new execs, and stops when the running ones have ended. After `time` it accepts new ones again, unless
    /// another caller still waits for the drain.
    #[crate::boxed]
    pub async fn drain_sandbox(
        &self,
        who: &Principal,
        which: &SandboxRef,
        time: Option<Duration>,
    ) -> Result<SandboxView> {
        let shared = self.core().find_to_change(who, which).await?;
        let caller = shared.n_drains.fetch_add(1, Ordering::Relaxed);
        let drained = with_timeout(time, ask(&shared, |reply| Command::Drain { caller, reply })).await;
        match drained {
            Some(result) => result.map(|()| shared.view()),
            None => {
                // Only fails if the driver is gone, and the drain with it.
                shared.inbox.send(Command::EndDrain { caller }).await.unwrap_or(());
                let n_left = shared.view().n_running_execs;
                Err(Error::new(
                    ErrorKind::TimedOut,
                    format!("{n_left} commands are still running in {}", shared.label()),
                )
                .with_hint("It accepts new commands again. Drain with more time, or stop it."))
            }
        }
    }

    /// Replaces its lifetime, counted from now. Refused if it comes too late: a renewed sandbox is unchanged. A sandbox
    /// that is removed at its end can be renewed while stopped, since its time runs on.
    #[crate::boxed]
    pub async fn renew_sandbox(
        &self,
        who: &Principal,
        which: &SandboxRef,
        lifetime: Lifetime,
    ) -> Result<SandboxView> {
        check_lifetime(&lifetime)?;
        self.command(who, which, |reply| Command::Renew { lifetime, reply }).await
    }

    /// Gives the sandbox another name.
    #[crate::boxed]
    pub async fn rename_sandbox(
        &self,
        who: &Principal,
        which: &SandboxRef,
        name: SandboxName,
    ) -> Result<SandboxView> {
        self.command(who, which, |reply| Command::Rename { name, for_good: true, reply }).await
    }

    /// Changes limits at once: memory, swap, processors and processes. Limits that are absent stay.
    #[crate::boxed]
    pub async fn change_limits(
        &self,
        who: &Principal,
        which: &SandboxRef,
        limits: Limits,
    ) -> Result<SandboxView> {
        let who_asks = who.clone();
        self.command(who, which, |reply| Command::ChangeLimits { limits, who: Box::new(who_asks), reply })
            .await
    }

    /// Sets the labels that have a value, and removes the others.
    #[crate::boxed]
    pub async fn relabel_sandbox(
        &self,
        who: &Principal,
        which: &SandboxRef,
        changes: BTreeMap<String, Option<String>>,
    ) -> Result<SandboxView> {
        build::check_label_keys(changes.keys())?;
        self.command(who, which, |reply| Command::Relabel { changes, reply }).await
    }

    #[crate::boxed]
    pub async fn usage(&self, who: &Principal, which: &SandboxRef) -> Result<Usage> {
        let shared = self.core().find_to_look(who, which).await?;
        let life = look(&shared)?;
        life.instance.usage().await.map_err(|error| error::from_backend(error, &shared.label()))
    }

    #[crate::boxed]
    pub async fn processes(&self, who: &Principal, which: &SandboxRef) -> Result<Vec<ProcessEntry>> {
        let shared = self.core().find_to_look(who, which).await?;
        let life = look(&shared)?;
        let answer = life.client.call(&Request::Processes).await;
        match answer.map_err(|error| error::from_guest(error, &shared.label()))? {
            Response::Processes { processes } => Ok(processes.into_iter().map(process_entry).collect()),
            _ => {
                Err(error::from_guest(GuestError::Nonsense("another answer than processes"), &shared.label()))
            }
        }
    }

    async fn command(
        &self,
        who: &Principal,
        which: &SandboxRef,
        command: impl FnOnce(Reply<()>) -> Command,
    ) -> Result<SandboxView> {
        let shared = self.core().find_to_change(who, which).await?;
        // Held only during the request itself: a sandbox must be able to go idle while a caller waits for that.
        drop(Activity::begin(&shared.activity, Arc::clone(&self.core().clock)));
        ask(&shared, command).await?;
        Ok(shared.view())
    }
}

fn check_grace(grace: Option<Duration>) -> Result<()> {
    match grace.filter(|grace| *grace > MAX_STOP_GRACE) {
        Some(grace) => Err(Error::invalid(format!(
            "the grace period {grace:?} exceeds the maximum of {MAX_STOP_GRACE:?}"
        ))
        .with_hint("Use a shorter one, or drain the sandbox to let its commands finish.")),
        None => Ok(()),
    }
}

/// Looking is not work: it does not keep a sandbox from being idle.
fn look(shared: &Shared) -> Result<Arc<crate::shared::Life>> {
    let status = shared.status.borrow();
    let state = status.record.state;
    status
        .life
        .clone()
        .filter(|_| state.allows(Action::Files))
        .ok_or_else(|| error::wrong_state(&shared.label(), state, Action::Files))
}

/// Sends a command to the driver and waits for its answer.
pub(crate) async fn ask<T>(shared: &Changeable, command: impl FnOnce(Reply<T>) -> Command) -> Result<T> {
    let (reply, answer) = oneshot::channel();
    let gone = || match shared.status.borrow().gone {
        Some(_) => error::no_such_sandbox(shared.name()),
        None => error::closing(),
    };
    shared.inbox.send(command(reply)).await.map_err(|_unsent| gone())?;
    answer.await.map_err(|_dropped| gone())?
}

/// `None` if the time passed first.
pub(crate) async fn with_timeout<T>(time: Option<Duration>, work: impl Future<Output = T>) -> Option<T> {
    match time {
        Some(time) => timeout(time, work).await.ok(),
        None => Some(work.await),
    }
}

fn process_entry(process: Process) -> ProcessEntry {
    ProcessEntry {
        pid: process.pid,
        parent: process.parent,
        user: process.user,
        state: process.state,
        memory_bytes: process.memory_bytes,
        cpu_micros: process.cpu_micros,
        command: process.command,
        exec: process.exec,
    }
}

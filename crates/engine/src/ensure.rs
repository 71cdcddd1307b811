//! Makes sure that a sandbox exists and runs, before something is done in it.

use std::time::Duration;

use sandbox::{Error, ErrorKind, ExecSpec, Namespace, RequestId, Result, SandboxState};

use crate::{
    Engine, ExecView, Principal, SandboxRef, SandboxView,
    create::{Attempt, earlier},
};

/// How often an exec is tried in a sandbox that others keep stopping.
const MAX_ATTEMPTS: usize = 3;
/// How long a stop in progress may take before its sandbox can be started again.
const STOP_PATIENCE: Duration = Duration::from_secs(30);
/// How long a sandbox that another caller is making may take.
const CREATE_PATIENCE: Duration = Duration::from_secs(30);

/// A sandbox that may exist already.
#[derive(Debug, Clone, Default)]
pub struct SandboxIdentity {
    pub namespace: Namespace,
    /// The sandbox of this name or id.
    pub which: Option<SandboxRef>,
    /// The sandbox that this request made.
    pub request_id: Option<RequestId>,
    /// The hash of that request. Without one, any request with the id matches.
    pub request_hash: Option<String>,
}

/// A sandbox that exists.
#[derive(Debug)]
pub struct Ensured {
    pub view: SandboxView,
    /// It was made for this caller.
    pub is_new: bool,
}

impl Ensured {
    fn found(view: SandboxView) -> Self {
        Self { view, is_new: false }
    }
}

impl Engine {
    /// Finds a sandbox, or awaits `make`. Callers with the same request id take turns, so that only the first one makes
    /// it.
    pub async fn ensure_exists<E: From<Error>>(
        &self,
        who: &Principal,
        identity: &SandboxIdentity,
        make: impl Future<Output = Result<Ensured, E>>,
    ) -> Result<Ensured, E> {
        who.may_change()?;
        self.core().keys.admit(who, self.core().clock.now())?;
        let mut _turn = None;
        if let Some(request) = &identity.request_id {
            _turn = Some(self.core().requests.take((identity.namespace.clone(), request.clone())).await);
            if let Some(view) = self.requested(who, identity, request).await? {
                return Ok(Ensured::found(view));
            }
        }
        if let Some(view) = self.made(who, identity).await? {
            return Ok(Ensured::found(view));
        }
        match make.await {
            Ok(made) => Ok(made),
            // Another caller may have made it meanwhile, which is just as good.
            Err(error) => self.made(who, identity).await?.map(Ensured::found).ok_or(error),
        }
    }

    /// The sandbox that the same request made before, or is making now.
    #[crate::boxed]
    async fn requested(
        &self,
        who: &Principal,
        identity: &SandboxIdentity,
        request: &RequestId,
    ) -> Result<Option<SandboxView>> {
        let namespace = &identity.namespace;
        let known = self.core().requested(who, namespace, request).filter(|_| who.sees(namespace));
        let Some(shared) = known else { return Ok(None) };
        match earlier(self.core(), &shared, identity.request_hash.as_deref()).await? {
            Attempt::Made(shared, _) => Ok(Some(shared.view())),
            Attempt::Again => Ok(None),
        }
    }

    /// The sandbox of the requested name. Waits for one that another caller is making.
    #[crate::boxed]
    async fn made(&self, who: &Principal, identity: &SandboxIdentity) -> Result<Option<SandboxView>> {
        let Some(which) = &identity.which else { return Ok(None) };
        match self.sandbox(who, which).await {
            Ok(view) if view.state == SandboxState::Creating => {
                self.wait_sandbox(who, which, SandboxState::Running, Some(CREATE_PATIENCE)).await.map(Some)
            }
            Ok(view) => Ok(Some(view)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Starts a stopped sandbox; `None` if there was nothing to start. Waits for a stop in progress: an earlier call
    /// may have been answered before the sandbox that was started for it is down again.
    #[crate::boxed]
    pub async fn ensure_running(&self, who: &Principal, which: &SandboxRef) -> Result<Option<SandboxView>> {
        let view = self.core().find_to_change(who, which).await?.view();
        let is_stopping = match view.state {
            SandboxState::Stopped => false,
            SandboxState::Stopping => true,
            SandboxState::Running if view.draining && view.n_running_execs == 0 => true,
            // In other states the exec itself reports the problem.
            _ => return Ok(None),
        };
        if is_stopping {
            self.wait_sandbox(who, which, SandboxState::Stopped, Some(STOP_PATIENCE)).await?;
        }
        self.start_sandbox(who, which).await.map(Some)
    }

    /// Like [`Engine::exec`], but starts a stopped sandbox first. Returns the sandbox if it was started.
    #[crate::boxed]
    pub async fn exec_ensuring_running(
        &self,
        who: &Principal,
        which: &SandboxRef,
        spec: ExecSpec,
    ) -> Result<(ExecView, Option<SandboxView>)> {
        let mut started = self.ensure_running(who, which).await?;
        for _ in 1..MAX_ATTEMPTS {
            match self.exec(who, which, spec.clone()).await {
                // Another caller's stop came in between.
                Err(error) if error.kind() == ErrorKind::WrongState => {
                    started = self.ensure_running(who, which).await?.or(started);
                }
                done => return done.map(|exec| (exec, started)),
            }
        }
        Ok((self.exec(who, which, spec).await?, started))
    }
}

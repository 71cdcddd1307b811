//! Calls about sandboxes.

use std::time::Duration;

use frontends::rest::v1;
use sandbox::{Error, ErrorKind, ExecSpec, SandboxSpec, SandboxState, Usage};

use super::{Client, Target};
use crate::{
    error::CommandResult,
    pulls::{self, Show},
};

pub(super) fn millis(span: Option<Duration>) -> Option<u128> {
    span.map(|span| span.as_millis())
}

impl Client {
    /// The path of one sandbox, in the namespace that the command was given.
    pub(super) fn of(&self, sandbox: &str, tail: &[&str]) -> Target {
        let mut segments = vec!["sandboxes", sandbox];
        segments.extend(tail);
        Target::new(&segments).maybe("namespace", self.namespace())
    }

    /// Like `create`, but also shows the progress of the image's pull, if there is one.
    pub(crate) async fn create_showing(&self, spec: &SandboxSpec, show: Show) -> CommandResult<v1::Sandbox> {
        if spec.image.is_host() {
            return self.create(spec).await;
        }
        let lines = self.post_for_lines(Target::new(&["sandboxes"]), spec).await?;
        match pulls::follow(lines, show).await? {
            v1::PullEvent::Created { sandbox } => Ok(*sandbox),
            _ => {
                Err(Error::new(ErrorKind::Internal, "the daemon pulled the image but created no sandbox")
                    .into())
            }
        }
    }

    pub(crate) async fn create(&self, spec: &SandboxSpec) -> CommandResult<v1::Sandbox> {
        self.post_json(Target::new(&["sandboxes"]), spec).await
    }

    /// Makes a sandbox and starts a command in it, in one request.
    pub(crate) async fn run(
        &self,
        spec: &SandboxSpec,
        exec: &ExecSpec,
    ) -> CommandResult<(v1::Sandbox, v1::Exec)> {
        let (sandbox, exec) = (spec.clone(), Some(exec.clone()));
        let request = v1::RunRequest { sandbox, exec, code: None };
        let ran: v1::RunResult = self.post_json(Target::new(&["runs"]), &request).await?;
        let nothing =
            || Error::new(ErrorKind::Internal, "the daemon created a sandbox and ran nothing in it");
        Ok((ran.sandbox, ran.exec.ok_or_else(nothing)?.exec))
    }

    /// `filters` are pairs with the API's keys: `state`, `label`, `name`.
    pub(crate) async fn list(&self, filters: &[(String, String)]) -> CommandResult<Vec<v1::Sandbox>> {
        let mut target = Target::new(&["sandboxes"]).maybe("namespace", self.namespace());
        for (key, value) in filters {
            target = target.with(key, value);
        }
        Ok(self.get::<v1::SandboxList>(target).await?.sandboxes)
    }

    pub(crate) async fn inspect(&self, sandbox: &str) -> CommandResult<v1::Sandbox> {
        self.get(self.of(sandbox, &[])).await
    }

    pub(crate) async fn change(
        &self,
        sandbox: &str,
        change: &v1::SandboxChange,
    ) -> CommandResult<v1::Sandbox> {
        self.patch_json(self.of(sandbox, &[]), change).await
    }

    pub(crate) async fn remove(&self, sandbox: &str, force: bool) -> CommandResult<()> {
        self.delete(self.of(sandbox, &[]).with("force", force)).await
    }

    /// `start`, `pause` or `resume`.
    pub(crate) async fn act(&self, sandbox: &str, verb: &str) -> CommandResult<v1::Sandbox> {
        self.post(self.of(sandbox, &[verb])).await
    }

    /// `stop` or `restart`.
    pub(crate) async fn act_with_grace(
        &self,
        sandbox: &str,
        verb: &str,
        grace: Option<Duration>,
    ) -> CommandResult<v1::Sandbox> {
        self.post(self.of(sandbox, &[verb]).maybe("graceMs", millis(grace))).await
    }

    /// Accepts no new commands, lets running ones finish, then stops.
    pub(crate) async fn drain_sandbox(
        &self,
        sandbox: &str,
        timeout: Option<Duration>,
    ) -> CommandResult<v1::Sandbox> {
        self.post(self.of(sandbox, &["drain"]).maybe("timeoutMs", millis(timeout))).await
    }

    pub(crate) async fn wait_for_state(
        &self,
        sandbox: &str,
        state: SandboxState,
        timeout: Option<Duration>,
    ) -> CommandResult<v1::Sandbox> {
        let target = self.of(sandbox, &["wait"]).with("state", state);
        self.get(target.maybe("timeoutMs", millis(timeout))).await
    }

    pub(crate) async fn usage(&self, sandbox: &str) -> CommandResult<Usage> {
        self.get(self.of(sandbox, &["usage"])).await
    }

    pub(crate) async fn processes(&self, sandbox: &str) -> CommandResult<v1::ProcessList> {
        self.get(self.of(sandbox, &["processes"])).await
    }
}

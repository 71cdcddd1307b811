//! Calls about execs.

use std::{io, time::Duration};

use bytes::Bytes;
use frontends::rest::v1;
use futures_util::Stream;
use hyper::Method;
use sandbox::{ExecSpec, TerminalSize};

use super::{Client, sandboxes::millis};
use crate::error::CommandResult;

impl Client {
    pub(crate) async fn exec(&self, sandbox: &str, spec: &ExecSpec) -> CommandResult<v1::Exec> {
        let result: v1::ExecResult = self.post_json(self.of(sandbox, &["execs"]), spec).await?;
        Ok(result.exec)
    }

    /// Runs a command to its end; the answer holds the output, up to a limit.
    pub(crate) async fn exec_and_wait(
        &self,
        sandbox: &str,
        spec: &ExecSpec,
    ) -> CommandResult<v1::ExecResult> {
        self.post_json(self.of(sandbox, &["execs"]).with("wait", true), spec).await
    }

    pub(crate) async fn execs(&self, sandbox: &str) -> CommandResult<Vec<v1::Exec>> {
        Ok(self.get::<v1::ExecList>(self.of(sandbox, &["execs"])).await?.execs)
    }

    pub(crate) async fn exec_view(&self, sandbox: &str, exec: &str) -> CommandResult<v1::Exec> {
        self.get(self.of(sandbox, &["execs", exec])).await
    }

    pub(crate) async fn wait_exec(
        &self,
        sandbox: &str,
        exec: &str,
        timeout: Option<Duration>,
    ) -> CommandResult<v1::Exec> {
        self.get(self.of(sandbox, &["execs", exec, "wait"]).maybe("timeoutMs", millis(timeout))).await
    }

    /// Streams bytes to stdin, and closes it when they end.
    pub(crate) async fn feed_stdin(
        &self,
        sandbox: &str,
        exec: &str,
        bytes: impl Stream<Item = io::Result<Bytes>> + Send + 'static,
    ) -> CommandResult<u64> {
        let target = self.of(sandbox, &["execs", exec, "stdin"]).with("close", true);
        let written: v1::StdinWritten = self.upload(Method::POST, target, bytes).await?;
        Ok(written.bytes)
    }

    pub(crate) async fn signal(&self, sandbox: &str, exec: &str, signal: i32) -> CommandResult<()> {
        let body = v1::SignalRequest { signal, scope: v1::SignalScope::Group };
        self.post_json_quiet(self.of(sandbox, &["execs", exec, "signal"]), &body).await
    }

    pub(crate) async fn resize(&self, sandbox: &str, exec: &str, size: TerminalSize) -> CommandResult<()> {
        let body = v1::ResizeRequest { rows: size.rows, cols: size.cols };
        self.post_json_quiet(self.of(sandbox, &["execs", exec, "resize"]), &body).await
    }
}

//! Calls of the runtime's program.

use std::{
    fs::{self, File},
    io,
    os::fd::BorrowedFd,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use sandbox::{BackendError, SandboxId};

use crate::namespace::error;

/// How long one call may take. `runsc` on a busy machine takes seconds.
const CALL_TIME: Duration = Duration::from_secs(60);
/// How much of a runtime's output is shown.
const MAX_SHOWN_CHARS: usize = 600;

#[derive(Debug, Clone)]
pub(super) struct Runtime {
    pub(super) program: PathBuf,
    /// Before the verb.
    flags: Vec<String>,
    /// Where it keeps the state of its containers.
    state: PathBuf,
}

impl Runtime {
    pub(super) fn new(program: PathBuf, flags: &[&str], state: PathBuf) -> Self {
        let flags = flags.iter().map(|flag| (*flag).to_owned()).collect();
        Self { program, flags, state }
    }

    fn command(&self) -> std::process::Command {
        let mut command = std::process::Command::new(&self.program);
        command.arg("--root").arg(&self.state).args(&self.flags).stdin(Stdio::null()).current_dir("/");
        command
    }

    /// The first line of its version output.
    pub(super) async fn version(&self) -> Result<String, BackendError> {
        let mut command = std::process::Command::new(&self.program);
        command.arg("--version").stdin(Stdio::null());
        let output = self.finish("--version", command).await?;
        Ok(String::from_utf8_lossy(&output).lines().next().unwrap_or_default().to_owned())
    }

    /// Makes and starts a detached container. Its output goes to a file, because the container inherits it.
    pub(super) async fn run(
        &self,
        id: &SandboxId,
        bundle: &Path,
        pid_file: &Path,
        handed: &[BorrowedFd<'_>],
    ) -> Result<(), BackendError> {
        let log = bundle.join("runtime.log");
        let failed = |error| error::from_io(format!("could not start {}", self.program.display()), error);
        let out = File::create(&log).map_err(failed)?;
        let mut command = self.command();
        command.args(["run", "--detach", "--bundle"]).arg(bundle).arg("--pid-file").arg(pid_file);
        if !handed.is_empty() {
            jail::inherit(&mut command, handed).map_err(failed)?;
            command.arg("--preserve-fds").arg(handed.len().to_string());
        }
        command.arg(id.as_str()).stdout(out.try_clone().map_err(failed)?).stderr(out);
        let mut child = tokio::process::Command::from(command).kill_on_drop(true).spawn().map_err(failed)?;
        let status = tokio::time::timeout(CALL_TIME, child.wait()).await;
        let status = status.map_err(|_elapsed| self.too_slow("run"))?.map_err(failed)?;
        if status.success() {
            return Ok(());
        }
        Err(self.refused("run", &fs::read(&log).unwrap_or_default()))
    }

    /// Ends a container and forgets it, whatever its state. A missing one is not an error.
    pub(super) async fn delete(&self, id: &SandboxId) -> Result<(), BackendError> {
        if !self.ids().contains(id) {
            return Ok(());
        }
        let mut command = self.command();
        command.args(["delete", "--force", id.as_str()]);
        self.finish("delete", command).await.map(drop)
    }

    /// The containers that it has state of: `runc` has a directory of that name, `runsc` has files that begin with it.
    pub(super) fn ids(&self) -> Vec<SandboxId> {
        let names = fs::read_dir(&self.state).into_iter().flatten().flatten();
        let names = names.filter_map(|entry| entry.file_name().into_string().ok());
        names.filter_map(|name| name.split(['_', '.']).next()?.parse().ok()).collect()
    }

    async fn finish(&self, verb: &str, command: std::process::Command) -> Result<Vec<u8>, BackendError> {
        let call = tokio::process::Command::from(command).kill_on_drop(true).output();
        let output = tokio::time::timeout(CALL_TIME, call).await.map_err(|_elapsed| self.too_slow(verb))?;
        let output = output.map_err(|error: io::Error| {
            error::from_io(format!("could not run {} {verb}", self.program.display()), error)
        })?;
        if output.status.success() { Ok(output.stdout) } else { Err(self.refused(verb, &output.stderr)) }
    }

    fn too_slow(&self, verb: &str) -> BackendError {
        let what = format!("{} {verb}", self.program.display());
        BackendError::TimedOut { what, after: CALL_TIME }
    }

    fn refused(&self, verb: &str, said: &[u8]) -> BackendError {
        let said: String = String::from_utf8_lossy(said)
            .chars()
            .map(|c| if c.is_control() { ' ' } else { c })
            .take(MAX_SHOWN_CHARS)
            .collect();
        let what = format!("{} {verb} failed: {}", self.program.display(), said.trim());
        BackendError::Failed { what, source: None }
    }
}

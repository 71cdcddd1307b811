//! The doctor of a running daemon: `warren doctor`, as a process of its own, because it forks.

use std::{path::PathBuf, process::Stdio, time::Duration};

use frontends::rest::{Doctor, v1::Diagnosis};
use futures_util::future::{BoxFuture, FutureExt as _};
use sandbox::{Error, ErrorKind, Result};
use tokio::{
    io::AsyncReadExt as _,
    process::{Child, Command},
    sync::Mutex,
    time::timeout,
};

use crate::{directories::Directories, env};

/// This program, also after its file was replaced.
const OWN_PROGRAM: &str = "/proc/self/exe";
/// The longest that `doctor` may take. It makes a sandbox as a test, which takes a second or two.
const DONE_WITHIN: Duration = Duration::from_secs(60);
/// Longest answer that is read.
const MAX_ANSWER_BYTES: u64 = 1024 * 1024;

/// Looks at this machine, one look at a time.
#[derive(Debug)]
pub(super) struct OwnDoctor {
    directories: Directories,
    turn: Mutex<()>,
}

impl OwnDoctor {
    pub(super) fn new(directories: &Directories) -> Self {
        Self { directories: directories.clone(), turn: Mutex::default() }
    }

    async fn look(&self) -> Result<Diagnosis> {
        let _turn = self.turn.lock().await;
        let mut child = self.start()?;
        let mut answer = Vec::new();
        let reading = async {
            if let Some(output) = child.stdout.take() {
                output.take(MAX_ANSWER_BYTES).read_to_end(&mut answer).await?;
            }
            // Its exit code says whether something is missing, which is in the answer too.
            child.wait().await
        };
        match timeout(DONE_WITHIN, reading).await {
            Ok(Ok(_status)) => {}
            Ok(Err(error)) => return Err(failed(error)),
            Err(_elapsed) => {
                let message = format!("the doctor was not done within {} seconds", DONE_WITHIN.as_secs());
                return Err(Error::new(ErrorKind::TimedOut, message).with_hint("Run `warren doctor` there."));
            }
        }
        serde_json::from_slice(&answer).map_err(failed)
    }

    fn start(&self) -> Result<Child> {
        let Directories { home, run, .. } = &self.directories;
        Command::new(PathBuf::from(OWN_PROGRAM))
            .args(["doctor", "--json"])
            .env(env::HOME_DIRECTORY, home)
            .env(env::RUN_DIRECTORY, run)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .map_err(failed)
    }
}

impl Doctor for OwnDoctor {
    fn diagnose(&self) -> BoxFuture<'_, Result<Diagnosis>> {
        self.look().boxed()
    }
}

fn failed(error: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::new(ErrorKind::Internal, "the doctor gave no answer")
        .with_source(error)
        .with_hint("Run `warren doctor` on the daemon's machine.")
}

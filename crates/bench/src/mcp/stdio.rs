//! A process that answers lines.

use std::process::Stdio;

use anyhow::{Result, bail};
use serde_json::Value;
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    process::{Child, ChildStdin, ChildStdout, Command},
};

/// Killed when it is dropped.
pub(super) struct Pipe {
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
    _child: Child,
}

impl Pipe {
    pub(super) async fn spawn(command: &mut Command) -> Result<Self> {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()?;
        let (Some(stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
            bail!("a child without pipes");
        };
        Ok(Self { stdin, stdout: BufReader::new(stdout), _child: child })
    }

    pub(super) async fn tell(&mut self, message: &Value) -> Result<()> {
        self.stdin.write_all(format!("{message}\n").as_bytes()).await?;
        Ok(())
    }

    /// Sends a line and reads lines until one has its id.
    pub(super) async fn ask(&mut self, message: &Value) -> Result<Value> {
        self.tell(message).await?;
        loop {
            let mut line = String::new();
            if self.stdout.read_line(&mut line).await? == 0 {
                bail!("it ended without an answer to {message}");
            }
            let answer: Value = serde_json::from_str(&line)?;
            if answer.get("id") == message.get("id") {
                return Ok(answer);
            }
        }
    }
}

//! A process that is asked by lines.

use std::{io, process::Stdio};

use serde_json::Value;
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    process::{Child, ChildStdin, ChildStdout, Command},
};

use crate::error::CommandResult;

/// Killed when it is dropped.
pub(super) struct Pipe {
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
    _child: Child,
}

impl Pipe {
    pub(super) async fn spawn(command: &mut Command) -> CommandResult<Self> {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()?;
        let (Some(stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(io::Error::other("a child without pipes").into());
        };
        Ok(Self { stdin, stdout: BufReader::new(stdout), _child: child })
    }

    pub(super) async fn tell(&mut self, message: &Value) -> CommandResult<()> {
        self.stdin.write_all(format!("{message}\n").as_bytes()).await?;
        Ok(())
    }

    /// Sends a line and reads lines until one has its id.
    pub(super) async fn ask(&mut self, message: &Value) -> CommandResult<Value> {
        self.tell(message).await?;
        loop {
            let mut line = String::new();
            if self.stdout.read_line(&mut line).await? == 0 {
                return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
            }
            let answer: Value = serde_json::from_str(&line).map_err(io::Error::other)?;
            if answer.get("id") == message.get("id") {
                return Ok(answer);
            }
        }
    }
}

//! Reads the log of an exec to its end, even if connections break.

use std::{collections::VecDeque, io};

use bytes::{Bytes, BytesMut};
use engine::{Entry, EntryBody};
use frontends::rest::v1::{ENTRIES_MEDIA_TYPE, decode_frames};
use futures_util::{Stream, StreamExt, stream::BoxStream};
use sandbox::{Error, ErrorKind, ExecId, SandboxId};

use super::{Client, Target, call::byte_stream};
use crate::error::{CommandError, CommandResult};

/// How many connections may break in a row without a single entry between them.
const MAX_BREAKS: u32 = 5;

/// A cursor over an exec's log. If the daemon stops in the middle, the cursor finds (or starts) the next one and
/// continues where it was.
pub(crate) struct EntryStream {
    client: Client,
    sandbox: SandboxId,
    exec: ExecId,
    next: u64,
    follow: bool,
    stream: Option<BoxStream<'static, io::Result<Bytes>>>,
    buffer: BytesMut,
    ready: VecDeque<Entry>,
    breaks: u32,
    /// The answer that is being read has had an entry.
    has_entries: bool,
    has_ended: bool,
}

impl EntryStream {
    pub(crate) fn new(client: &Client, sandbox: &SandboxId, exec: &ExecId, from: u64, follow: bool) -> Self {
        Self {
            client: client.clone(),
            sandbox: sandbox.clone(),
            exec: exec.clone(),
            next: from,
            follow,
            stream: None,
            buffer: BytesMut::new(),
            ready: VecDeque::new(),
            breaks: 0,
            has_entries: false,
            has_ended: false,
        }
    }

    /// All entries that have arrived; none at the end of the log.
    pub(crate) async fn next_batch(&mut self) -> CommandResult<Vec<Entry>> {
        while self.ready.is_empty() {
            if self.has_ended {
                return Ok(Vec::new());
            }
            self.read_more().await?;
        }
        Ok(self.ready.drain(..).collect())
    }

    async fn read_more(&mut self) -> CommandResult<()> {
        if self.stream.is_none() {
            self.buffer.clear();
            self.has_entries = false;
            match self.open().await {
                Ok(stream) => self.stream = Some(stream.boxed()),
                // The daemon died during the request; the next attempt finds or starts another.
                Err(error) if error.kind() == Some(ErrorKind::Unavailable) && self.breaks < MAX_BREAKS => {
                    self.breaks += 1;
                    return Ok(());
                }
                Err(error) => return Err(error),
            }
        }
        let Some(stream) = self.stream.as_mut() else { return Ok(()) };
        match stream.next().await {
            Some(Ok(bytes)) => {
                self.buffer.extend_from_slice(&bytes);
                self.take_frames()
            }
            Some(Err(error)) => self.broke(error),
            None => self.ended().await,
        }
    }

    async fn open(&self) -> CommandResult<impl Stream<Item = io::Result<Bytes>> + Send + use<>> {
        let target =
            Target::new(&["sandboxes", self.sandbox.as_str(), "execs", self.exec.as_str(), "entries"])
                .with("from", self.next)
                .with("follow", self.follow);
        Ok(byte_stream(self.client.stream(target, ENTRIES_MEDIA_TYPE).await?))
    }

    fn take_frames(&mut self) -> CommandResult<()> {
        let entries = decode_frames(&mut self.buffer).map_err(|error| {
            Error::new(ErrorKind::Internal, "the daemon sent an answer that this command does not understand")
                .with_source(error)
        })?;
        for entry in entries {
            self.next = entry.number + 1;
            self.has_entries = true;
            self.breaks = 0;
            // With `follow` the stream ends after this one; without it there may be more to come.
            self.has_ended |= self.follow && matches!(entry.body, EntryBody::Exited(_));
            self.ready.push_back(entry);
        }
        Ok(())
    }

    /// The answer ended. Without `follow` that is the end of the log. With it, either the daemon is shutting down, or
    /// the command had ended before and there is nothing from this entry on.
    async fn ended(&mut self) -> CommandResult<()> {
        if !self.follow || self.is_past_the_end().await? {
            self.has_ended = true;
            return Ok(());
        }
        self.broke(io::Error::from(io::ErrorKind::UnexpectedEof))
    }

    /// Whether a command that has ended left nothing from the next entry on.
    async fn is_past_the_end(&self) -> CommandResult<bool> {
        if self.has_entries {
            return Ok(false);
        }
        // It may have ended after the answer did, so that it has entries which nobody has read.
        let view = self.client.exec_view(self.sandbox.as_str(), self.exec.as_str()).await?;
        Ok(view.outcome.is_some() && self.next > view.last_entry)
    }

    fn broke(&mut self, error: io::Error) -> CommandResult<()> {
        self.stream = None;
        self.breaks += 1;
        if self.breaks <= MAX_BREAKS {
            return Ok(());
        }
        let message = format!("could not read all output of {}", self.exec);
        Err(CommandError::from(
            Error::new(ErrorKind::Unavailable, message)
                .with_source(error)
                .with_hint(format!("Read it again with `warren logs {} {}`.", self.sandbox, self.exec)),
        ))
    }
}

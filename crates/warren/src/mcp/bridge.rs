//! Passes messages both ways. If the daemon stops, the bridge moves on to the next one without the client noticing.

use std::{io, process::ExitCode, time::Duration};

use sandbox::{Error, ErrorKind, Result};
use tokio::{
    io::{AsyncWriteExt, BufReader, Stdout},
    sync::mpsc,
    time::Instant,
};

use super::{
    line::{self, Line},
    link::{Connection, Link},
    memory::{Lost, Memory},
    message::{self, Asked, Message},
};
use crate::error::{CommandError, CommandResult};

/// Longest message of a client; the daemon accepts no longer ones.
const MAX_MESSAGE_BYTES: usize = 16 * 1024 * 1024;

/// A daemon that is about to stop may still accept a connection: how often to try the next one, for how long after the
/// first try, and the pause between two.
const MAX_TRIES: u32 = 6;
const TRY_LIMIT: Duration = Duration::from_secs(5);
const TRY_PAUSE: Duration = Duration::from_millis(50);
/// How long to wait for the last answers of a daemon that has stopped reading.
const LAST_WORDS_LIMIT: Duration = Duration::from_secs(1);

/// Serves stdio until the client closes it.
pub(crate) async fn run(link: &Link) -> CommandResult {
    let input = line::queue(BufReader::new(tokio::io::stdin()), MAX_MESSAGE_BYTES);
    let bridge = Bridge { link, input, output: tokio::io::stdout(), memory: Memory::default() };
    match bridge.run().await {
        // The client is gone.
        Err(CommandError::BrokenPipe) => Ok(ExitCode::SUCCESS),
        result => result,
    }
}

struct Bridge<'a> {
    link: &'a Link,
    input: mpsc::Receiver<Line>,
    output: Stdout,
    memory: Memory,
}

impl Bridge<'_> {
    async fn run(mut self) -> CommandResult {
        let mut connection = match self.revive(&[]).await {
            Ok(connection) => Some(connection),
            Err(error) => return self.refuse_first(error).await,
        };
        let mut has_ended = false;
        loop {
            tokio::select! {
                biased;
                heard = hear(&mut connection) => match heard {
                    Some(line) => {
                        self.memory.received(&line);
                        self.tell(&line).await?;
                    }
                    None => {
                        connection = self.lost(connection).await?;
                        if let (true, Some(connection)) = (has_ended, &mut connection) {
                            connection.finish().await.ok();
                        }
                    }
                },
                said = self.input.recv(), if !has_ended => match said {
                    Some(Line::Whole(line)) => self.pass_on(&mut connection, &line).await?,
                    // A broken stdin has ended, which the next read reports.
                    Some(Line::Reset) => {}
                    Some(Line::TooLong) => self.tell(&message::too_long(MAX_MESSAGE_BYTES)).await?,
                    None => {
                        has_ended = true;
                        if let Some(connection) = &mut connection {
                            // If the daemon is gone, the next read reports it.
                            connection.finish().await.ok();
                        }
                    }
                },
            }
            if has_ended && connection.is_none() {
                return Ok(ExitCode::SUCCESS);
            }
        }
    }

    async fn tell(&mut self, line: &[u8]) -> io::Result<()> {
        self.output.write_all(line).await?;
        self.output.flush().await
    }

    async fn pass_on(&mut self, connection: &mut Option<Connection>, line: &[u8]) -> io::Result<()> {
        if let Some(answer) = message::unreadable(line) {
            return self.tell(&answer).await;
        }
        // Terminates, because nothing is sent again more than once.
        while let Some(open) = connection {
            if open.send(line).await.is_ok() {
                self.memory.sent(line);
                return Ok(());
            }
            // The daemon is gone and has not read this line; it may have answered earlier ones.
            let deadline = Instant::now() + LAST_WORDS_LIMIT;
            while let Ok(Some(heard)) = tokio::time::timeout_at(deadline, open.next()).await {
                self.memory.received(&heard);
                self.tell(&heard).await?;
            }
            *connection = self.lost(connection.take()).await?;
        }
        match self.revive(&[line]).await {
            Ok(revived) => {
                *connection = Some(revived);
                self.memory.sent(line);
                Ok(())
            }
            Err(error) => self.refuse(line, &error).await,
        }
    }

    /// Connects to the next daemon, tells it what the last one knew about this client, and passes the lines on. On any
    /// failure, no daemon has read the last line.
    async fn revive(&self, lines: &[&[u8]]) -> Result<Connection> {
        let begun = Instant::now();
        let mut n_tries = 0;
        loop {
            n_tries += 1;
            match self.try_to_revive(lines).await {
                Err(error)
                    if error.kind() == ErrorKind::Unavailable
                        && n_tries < MAX_TRIES
                        && begun.elapsed() < TRY_LIMIT =>
                {
                    tokio::time::sleep(TRY_PAUSE).await;
                }
                result => return result,
            }
        }
    }

    async fn try_to_revive(&self, lines: &[&[u8]]) -> Result<Connection> {
        let mut connection = self.link.connect().await?;
        let begins =
            |line: &&[u8]| Message::read(line).is_some_and(|it| it.method.as_deref() == Some("initialize"));
        if !lines.iter().any(begins) {
            // One after the other, in the client's order; the client has the answers already.
            for said in self.memory.retold() {
                connection.send(&said).await.map_err(broken)?;
                let id = Message::read(&said).and_then(|message| message.id);
                while let Some(id) = &id {
                    let heard = connection.next().await.ok_or_else(gone)?;
                    if Message::read(&heard).is_some_and(|it| it.is_answer() && it.id.as_ref() == Some(id)) {
                        break;
                    }
                }
            }
        }
        for line in lines {
            connection.send(line).await.map_err(broken)?;
        }
        Ok(connection)
    }

    /// The daemon is gone. Repeats safe requests to the next one, and tells the client which others were lost.
    async fn lost(&mut self, connection: Option<Connection>) -> io::Result<Option<Connection>> {
        let is_last_unread = connection.is_some_and(|connection| connection.is_last_unread());
        let Lost { again, never } = self.memory.take_open(is_last_unread);
        for asked in never {
            self.tell(&asked.lost()).await?;
        }
        let lines: Vec<_> = again.iter().filter_map(|open| open.line.as_deref()).collect();
        if lines.is_empty() {
            return Ok(None);
        }
        match self.revive(&lines).await {
            Ok(revived) => {
                again.into_iter().for_each(|open| self.memory.resent(open));
                Ok(Some(revived))
            }
            Err(error) => {
                for open in again {
                    self.tell(&open.asked.refused(&error)).await?;
                }
                Ok(None)
            }
        }
    }

    async fn refuse(&mut self, line: &[u8], error: &Error) -> io::Result<()> {
        match Message::read(line).and_then(Asked::of) {
            Some(asked) => self.tell(&asked.refused(error)).await,
            None => Ok(()),
        }
    }

    /// There is no daemon: the first request is answered with the reason.
    async fn refuse_first(&mut self, error: Error) -> CommandResult {
        while let Some(said) = self.input.recv().await {
            if let Line::Whole(line) = said
                && Message::read(&line).is_some_and(|message| message.is_request())
            {
                self.refuse(&line, &error).await?;
                break;
            }
        }
        CommandError::from(error).report(false);
        Ok(ExitCode::FAILURE)
    }
}

async fn hear(connection: &mut Option<Connection>) -> Option<Vec<u8>> {
    match connection {
        Some(connection) => connection.next().await,
        None => std::future::pending().await,
    }
}

fn gone() -> Error {
    Error::new(ErrorKind::Unavailable, "the daemon stopped before it received this request")
        .with_hint("Call it again.")
}

fn broken(error: io::Error) -> Error {
    Error::new(ErrorKind::Unavailable, "lost the connection to the daemon")
        .with_source(error)
        .with_hint("Call it again.")
}

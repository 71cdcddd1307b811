//! Passes messages both ways. A daemon that goes away is followed by the next one, and the client need not know.

use std::{io, process::ExitCode};

use sandbox::{Error, ErrorKind, Result};
use tokio::{
    io::{AsyncWriteExt, BufReader, Stdout},
    sync::mpsc,
};

use super::{
    line::{self, Line},
    link::{Connection, Link},
    memory::Memory,
    message::{self, Message},
};
use crate::error::{CommandError, CommandResult};

/// Longest message of a client; the daemon takes no longer ones.
const MAX_MESSAGE_BYTES: usize = 16 * 1024 * 1024;

/// Serves stdio until the client closes it.
pub(crate) async fn run(link: &Link) -> CommandResult {
    let input = line::queue(BufReader::new(tokio::io::stdin()), MAX_MESSAGE_BYTES);
    let bridge = Bridge { link, input, output: tokio::io::stdout(), memory: Memory::default() };
    match bridge.run().await {
        // Nobody is left to talk to.
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
        let mut connection = match self.link.connect().await {
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
                        connection = None;
                        self.answer_open().await?;
                    }
                },
                said = self.input.recv(), if !has_ended => match said {
                    Some(Line::Whole(line)) => self.pass_on(&mut connection, &line).await?,
                    Some(Line::TooLong) => self.tell(&message::too_long(MAX_MESSAGE_BYTES)).await?,
                    None => {
                        has_ended = true;
                        if let Some(connection) = &mut connection {
                            // If it is gone, that is what is heard next.
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
        if let Some(open) = connection {
            if open.send(line).await.is_ok() {
                self.memory.sent(line);
                return Ok(());
            }
            // It went away unheard, so it has not heard this line either.
            *connection = None;
            self.answer_open().await?;
        }
        match self.revive(line).await {
            Ok(revived) => {
                *connection = Some(revived);
                self.memory.sent(line);
                Ok(())
            }
            Err(error) => self.refuse(line, &error).await,
        }
    }

    /// Connects to the next daemon, tells it what the last one knew of this client, and passes the line on.
    async fn revive(&mut self, line: &[u8]) -> Result<Connection> {
        let mut connection = self.link.connect().await?;
        let is_beginning = Message::read(line).is_some_and(|it| it.method.as_deref() == Some("initialize"));
        if !is_beginning {
            // One after the other, as the client said them; it has had the answers already.
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
        connection.send(line).await.map_err(broken)?;
        Ok(connection)
    }

    /// Tells the client which of its requests the daemon took along.
    async fn answer_open(&mut self) -> io::Result<()> {
        for id in self.memory.take_open() {
            self.tell(&message::unavailable(&id, &gone())).await?;
        }
        Ok(())
    }

    async fn refuse(&mut self, line: &[u8], error: &Error) -> io::Result<()> {
        match Message::read(line) {
            Some(Message { id: Some(id), method: Some(_), .. }) => {
                self.tell(&message::unavailable(&id, error)).await
            }
            _ => Ok(()),
        }
    }

    /// There is no daemon: whoever asks first is told why.
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
    Error::new(ErrorKind::Unavailable, "the daemon ended while it worked on this")
        .with_hint("Ask again: what ran in sandboxes runs on, and sandbox_exec_list shows it.")
}

fn broken(error: io::Error) -> Error {
    Error::new(ErrorKind::Unavailable, "the connection to the daemon broke").with_source(error)
}

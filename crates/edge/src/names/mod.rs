//! Connections that are allowed as certain names only, held to what they say on the wire.

use std::{io, time::Duration};

use rustix::net::{Shutdown, shutdown};
use sandbox::network::DnsName;
use tokio::{net::TcpStream, time::timeout};

use crate::tcp::{connection::Pair, splice::write_all};

pub(crate) mod first;
pub(crate) mod http;
pub(crate) mod side;
pub(crate) mod tls;

/// How long a client may take to say its name.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);
/// How much it may say until then. A ClientHello with keys of post-quantum algorithms has about 2 KiB.
pub(crate) const MAX_SAID: usize = 64 * 1024;
/// How long, and how much, is read after a refusal, so that the refusal is not lost in a reset.
const PARTING: Duration = Duration::from_secs(1);
const MAX_PARTING: usize = 256 * 1024;
const READ_BYTES: usize = 16 * 1024;

/// The finding from the first bytes. `said`: those bytes, to be sent on unchanged.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Checked {
    Passes { said: Vec<u8>, name: Option<DnsName> },
    IsHttp { said: Vec<u8> },
    Refused { answer: &'static [u8], why: String, name: Option<DnsName> },
}

/// Why reading the first bytes came to no result.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Cut {
    TooLong,
    TooSlow,
    Ended,
}

/// Reads until `look` has an answer, within the limits of size and time.
pub(crate) async fn read_until<T>(
    stream: &TcpStream,
    said: &mut Vec<u8>,
    mut look: impl FnMut(&[u8]) -> Option<T>,
) -> io::Result<Result<T, Cut>> {
    let reading = async {
        let mut buffer = vec![0; READ_BYTES];
        loop {
            if let Some(found) = look(said) {
                return Ok(Ok(found));
            }
            if said.len() >= MAX_SAID {
                return Ok(Err(Cut::TooLong));
            }
            stream.readable().await?;
            let room = buffer.len().min(MAX_SAID - said.len());
            match stream.try_read(&mut buffer[..room]) {
                Ok(0) => return Ok(Err(Cut::Ended)),
                Ok(read) => said.extend(&buffer[..read]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
    };
    timeout(PATIENCE, reading).await.unwrap_or(Ok(Err(Cut::TooSlow)))
}

/// Answers a refused client, and ends the connection such that it can read the answer.
pub(crate) async fn part(pair: &Pair, answer: &[u8]) -> io::Result<()> {
    write_all(&pair.inside, answer).await?;
    shutdown(&pair.inside, Shutdown::Write)?;
    let mut buffer = vec![0; READ_BYTES];
    let mut left = MAX_PARTING;
    let reading = async {
        while left > 0 && pair.inside.readable().await.is_ok() {
            match pair.inside.try_read(&mut buffer) {
                Ok(0) => break,
                Ok(read) => left = left.saturating_sub(read),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(_gone) => break,
            }
        }
    };
    if timeout(PARTING, reading).await.is_ok() && left > 0 {
        pair.is_done();
    }
    Ok(())
}

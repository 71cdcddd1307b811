//! Bytes for an exec's stdin, with back-pressure all the way to the host.

use std::{io, os::fd::OwnedFd, rc::Rc};

use guest_protocol::{Failure, FailureKind, Response};
use rustix::termios::SpecialCodeIndex;
use tokio::io::unix::AsyncFd;

use super::shown;
use crate::{Guest, wire, wire::FrameReader};

/// The writing end of an exec's stdin.
#[derive(Debug)]
pub(crate) struct Stdin {
    fd: Option<Rc<AsyncFd<OwnedFd>>>,
    is_terminal: bool,
    /// Whether the last byte left a line unfinished: then a terminal needs the end-of-file character twice.
    in_line: bool,
}

/// Why bytes could not be delivered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Refused {
    /// It was never open, was closed, or the process closed it.
    Closed,
    /// The host went away while we waited.
    HostGone,
}

impl Stdin {
    pub(crate) fn closed() -> Self {
        Self { fd: None, is_terminal: false, in_line: false }
    }

    pub(crate) fn pipe(fd: AsyncFd<OwnedFd>) -> Self {
        Self { fd: Some(Rc::new(fd)), is_terminal: false, in_line: false }
    }

    pub(crate) fn terminal(master: Rc<AsyncFd<OwnedFd>>) -> Self {
        Self { fd: Some(master), is_terminal: true, in_line: false }
    }

    async fn write(&mut self, bytes: &[u8], reader: &mut FrameReader<'_>) -> Result<(), Refused> {
        let fd = Rc::clone(self.fd.as_ref().ok_or(Refused::Closed)?);
        tokio::select! {
            written = write_all(&fd, bytes) => {
                if written.is_err() {
                    self.fd = None;
                    return Err(Refused::Closed);
                }
            }
            () = reader.gone() => return Err(Refused::HostGone),
        }
        if let Some(last) = bytes.last() {
            self.in_line = *last != b'\n';
        }
        Ok(())
    }

    async fn close(&mut self, reader: &mut FrameReader<'_>) -> Result<(), Refused> {
        if self.is_terminal {
            let fd = Rc::clone(self.fd.as_ref().ok_or(Refused::Closed)?);
            let attributes = rustix::termios::tcgetattr(fd.get_ref());
            let end = attributes.map_or(4, |attributes| attributes.special_codes[SpecialCodeIndex::VEOF]);
            let ends = if self.in_line { &[end, end][..] } else { &[end] };
            self.write(ends, reader).await?;
            self.in_line = false;
        } else {
            self.fd = None;
        }
        Ok(())
    }
}

async fn write_all(fd: &AsyncFd<OwnedFd>, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        let mut ready = fd.writable().await?;
        match ready.try_io(|fd| Ok(rustix::io::write(fd, bytes)?)) {
            Ok(Ok(n)) => bytes = &bytes[n..],
            Ok(Err(error)) if error.kind() == io::ErrorKind::Interrupted => {}
            Ok(Err(error)) => return Err(error),
            Err(_not_ready) => {}
        }
    }
    Ok(())
}

/// Serves `ExecStdin`. On a failure the rest of the body is still in `reader`.
pub(crate) async fn feed_stdin(
    guest: &Guest,
    reader: &mut FrameReader<'_>,
    id: &str,
    close: bool,
) -> wire::Result<Result<Response, (Failure, BodyLeft)>> {
    let closed = |left| {
        let message = format!("stdin of exec {} is not open", shown(id));
        Ok(Err((Failure::new(FailureKind::WrongState, message), left)))
    };
    let exec = match guest.execs.find(id) {
        Ok(exec) => exec,
        Err(failure) => return Ok(Err((failure, BodyLeft::Yes))),
    };
    // One writer at a time; the others wait their turn, or until their host disconnects.
    let mut stdin = tokio::select! {
        stdin = exec.stdin.lock() => stdin,
        () = reader.gone() => return Err(wire::ConnectionError::Gone),
    };
    if stdin.fd.is_none() {
        return closed(BodyLeft::Yes);
    }
    let mut written = 0;
    while let Some(bytes) = reader.body().await? {
        match stdin.write(&bytes, reader).await {
            Ok(()) => written += bytes.len() as u64,
            Err(Refused::Closed) => return closed(BodyLeft::Yes),
            Err(Refused::HostGone) => return Err(wire::ConnectionError::Gone),
        }
    }
    if close {
        match stdin.close(reader).await {
            Ok(()) => {}
            Err(Refused::Closed) => return closed(BodyLeft::No),
            Err(Refused::HostGone) => return Err(wire::ConnectionError::Gone),
        }
    }
    Ok(Ok(Response::Written { bytes: written }))
}

/// Whether the rest of a failed request's body must still be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BodyLeft {
    Yes,
    No,
}

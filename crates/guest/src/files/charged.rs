//! Requests that take memory, performed by a process that is charged to the sandbox.
//!
//! Data written to a tmpfs stays in memory, and the kernel charges it to the writer. We sit in a cgroup without limits,
//! so a child of ours in the workload's cgroup writes instead. If the sandbox runs out of memory, the kernel kills that
//! child or the workload, never us.
//!
//! The child gets the body over a socket, in frames, and answers over the same one. When we close our end, the host is
//! gone.

use std::{
    io::{self, BufRead, Read, Write as _},
    os::{fd::AsFd, unix::net::UnixStream},
    panic::{AssertUnwindSafe, catch_unwind},
    rc::Rc,
    sync::Arc,
};

use bytes::{Buf, Bytes, BytesMut};
use guest_protocol::{Decoder, Failure, FailureKind, Frame, FrameKind, Request, Response, encode};
use rustix::buffer::spare_capacity;

use super::{Answer, Cancel, broken, unpack, write};
use crate::{
    Guest, background,
    exec::BodyLeft,
    server, sys, wire,
    wire::{ConnectionError, FrameReader, FrameWriter},
};

/// Bytes that the child reads from its socket at once.
const READ_BYTES: usize = 256 * 1024;

/// Lets a child perform the request, and passes it the body.
pub(crate) async fn perform(
    guest: &Rc<Guest>,
    reader: &mut FrameReader<'_>,
    request: Request,
) -> wire::Result<Result<Response, (Failure, BodyLeft)>> {
    let mut body_left = if request.properties().has_body { BodyLeft::Yes } else { BodyLeft::No };
    let _turn = tokio::select! {
        turn = guest.charged_turns.acquire() => turn.ok(),
        () = reader.gone(), if body_left == BodyLeft::No => return Err(ConnectionError::Gone),
    };
    let _archive = match &request {
        Request::TarIn { .. } => match background::archive_turn() {
            Ok(turn) => Some(turn),
            Err(failure) => return Ok(Err((failure, body_left))),
        },
        _ => None,
    };
    let oom_kills = guest.oom_kills();
    let draft = write::DraftName::new();
    let link = match start(guest, &request, &draft) {
        Ok(link) => link,
        Err(error) => return Ok(Err((super::failure("no process for a file operation", error), body_left))),
    };
    if body_left == BodyLeft::Yes && pass_body(reader, &link).await? {
        body_left = BodyLeft::No;
    }
    let answer = match body_left {
        BodyLeft::No => tokio::select! {
            answer = receive(&link) => answer,
            () = reader.gone() => return Err(ConnectionError::Gone),
        },
        // It ended before the body did, so its answer is there.
        BodyLeft::Yes => receive(&link).await,
    };
    if let Some(answer) = answer {
        return Ok(answer.map_err(|failure| (failure, body_left)));
    }
    if let Request::Write { path, .. } = request {
        // It could not clean up after itself.
        background::spawn(move || write::forget(&path, &draft)).ok();
    }
    let failure = if guest.oom_kills() > oom_kills {
        Failure::new(FailureKind::LimitReached, "the sandbox ran out of memory: a file operation was killed")
    } else {
        Failure::new(FailureKind::Internal, "a file operation was killed from inside the sandbox")
    };
    Ok(Err((failure, body_left)))
}

fn start(guest: &Guest, request: &Request, draft: &write::DraftName) -> io::Result<tokio::net::UnixStream> {
    let (ours, theirs) = UnixStream::pair()?;
    ours.set_nonblocking(true)?;
    let ours = tokio::net::UnixStream::from_std(ours)?;
    let cgroup = guest.memory_cgroup.as_ref().map(AsFd::as_fd);
    sys::fork_worker(theirs.into(), cgroup, |link| serve(UnixStream::from(link), request, draft))?;
    guest.has_children.set(true);
    Ok(ours)
}

/// Passes the body on; returns whether it was complete. It is not if the child ended earlier.
async fn pass_body(reader: &mut FrameReader<'_>, link: &tokio::net::UnixStream) -> wire::Result<bool> {
    let writer = FrameWriter::new(link);
    loop {
        let piece = reader.body().await?;
        let passed = async {
            match &piece {
                Some(piece) => writer.data(piece).await,
                None => writer.end().await,
            }
        };
        let passed = tokio::select! {
            passed = passed => passed,
            () = reader.gone() => return Err(ConnectionError::Gone),
        };
        match (piece, passed) {
            (None, _) => return Ok(true),
            (Some(_), Ok(())) => {}
            (Some(_), Err(_)) => return Ok(false),
        }
    }
}

/// The child's answer; `None` when it ended without one.
async fn receive(link: &tokio::net::UnixStream) -> Option<Answer> {
    let mut reader = FrameReader::new(link);
    let frame = match reader.next().await {
        // It ended without reading everything we sent; the kernel reports that once, before the answer.
        Err(ConnectionError::Io(error)) if error.kind() == io::ErrorKind::ConnectionReset => {
            reader.next().await
        }
        received => received,
    };
    let frame = frame.ok()??;
    match frame.kind {
        FrameKind::Response => frame.parse().ok().map(Ok),
        FrameKind::Failure => frame.parse().ok().map(Err),
        _ => None,
    }
}

/// The child: performs the request and answers. It has one thread and must not take any of our locks.
fn serve(link: UnixStream, request: &Request, draft: &write::DraftName) {
    let link = Arc::new(link);
    let answer = catch_unwind(AssertUnwindSafe(|| work(&link, request.clone(), draft)));
    let frame = match answer.unwrap_or_else(|_panicked| Err(broken())) {
        Ok(response) => Frame::json(FrameKind::Response, &response),
        Err(failure) => Frame::json(FrameKind::Failure, &failure),
    };
    let mut bytes = BytesMut::new();
    if frame.and_then(|frame| encode(&frame, &mut bytes)).is_ok() {
        // If this fails, nobody waits for it.
        (&*link).write_all(&bytes).ok();
    }
}

fn work(link: &Arc<UnixStream>, request: Request, draft: &write::DraftName) -> Answer {
    let mut body = Body::new(Arc::clone(link));
    let cancel = Cancel::at_hangup(Arc::clone(link));
    match request {
        Request::Write { path, write, mode, parents } => {
            write::write(&write::WriteRequest { path, write, mode, parents }, draft, &mut body)
        }
        Request::TarIn { path, keep_ids } => unpack::unpack(&path, keep_ids, &mut body, cancel),
        other => server::file_job(other, &cancel),
    }
}

/// A request's body as a file to read from, in the child.
pub(super) struct Body {
    link: Arc<UnixStream>,
    decoder: Decoder,
    received: BytesMut,
    chunk: Vec<u8>,
    piece: Bytes,
    has_ended: bool,
    /// Bytes read so far.
    pub(super) total: u64,
}

impl Body {
    fn new(link: Arc<UnixStream>) -> Self {
        let (decoder, received, piece) = (Decoder::default(), BytesMut::new(), Bytes::new());
        Self { link, decoder, received, chunk: Vec::new(), piece, has_ended: false, total: 0 }
    }

    /// The next piece; `None` at the end.
    pub(super) fn piece(&mut self) -> io::Result<Option<Bytes>> {
        while !self.has_ended {
            match self.decoder.decode(&mut self.received).map_err(io::Error::other)? {
                Some(frame) if frame.kind == FrameKind::Data => {
                    self.total += frame.payload.len() as u64;
                    return Ok(Some(frame.payload));
                }
                Some(_end) => self.has_ended = true,
                None => {
                    // Never zeroed: most bodies are small, and a page that is not touched is not charged.
                    self.chunk.clear();
                    self.chunk.reserve(READ_BYTES);
                    match rustix::io::read(&*self.link, spare_capacity(&mut self.chunk))? {
                        0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                        _ => self.received.extend_from_slice(&self.chunk),
                    }
                }
            }
        }
        Ok(None)
    }
}

impl BufRead for Body {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        while self.piece.is_empty() {
            match self.piece()? {
                Some(piece) => self.piece = piece,
                None => break,
            }
        }
        Ok(&self.piece)
    }

    fn consume(&mut self, n: usize) {
        self.piece.advance(n);
    }
}

impl Read for Body {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = self.fill_buf()?.read(buffer)?;
        self.consume(n);
        Ok(n)
    }
}

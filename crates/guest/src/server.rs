//! The listener, and one task for each connection.

use std::{rc::Rc, sync::Arc, time::Duration};

use guest_protocol::{Failure, FailureKind, Frame, FrameKind, Hello, PROTOCOL_VERSION, Request, Response};
use tokio::{
    net::{UnixListener, UnixStream},
    sync::Semaphore,
    task::spawn_local,
};

use crate::{
    Guest, end,
    exec::{self, BodyLeft},
    limits::MAX_CONNECTIONS,
    processes, sys, wire,
    wire::{FrameReader, FrameWriter},
};

/// How long accepting rests when descriptors have run out.
const ACCEPT_REST: Duration = Duration::from_millis(50);

/// Accepts for ever.
pub(crate) async fn accept(guest: Rc<Guest>, listener: UnixListener) {
    let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, _)) => {
                let guest = Rc::clone(&guest);
                spawn_local(async move {
                    // A connection ends for reasons of the host's; the execs do not care.
                    serve(&guest, stream).await.ok();
                    drop(place);
                    sys::give_back_memory();
                });
            }
            Err(_out_of_descriptors) => tokio::time::sleep(ACCEPT_REST).await,
        }
    }
}

async fn serve(guest: &Rc<Guest>, stream: UnixStream) -> wire::Result<()> {
    let mut reader = FrameReader::new(&stream);
    let writer = FrameWriter::new(&stream);
    let hello = Hello { version: PROTOCOL_VERSION, build: env!("CARGO_PKG_VERSION").to_owned() };
    writer.send(&Frame::json(FrameKind::Hello, &hello)?).await?;
    while let Some(frame) = reader.next().await? {
        if frame.kind != FrameKind::Request {
            return Err(guest_protocol::ProtocolError::Unexpected { expected: "a request", got: frame.kind }.into());
        }
        let request = match frame.parse::<Request>() {
            Ok(request) => request,
            Err(error) => {
                // Whether a body follows cannot be known, so the connection ends here.
                let message = format!("a request that cannot be read: {error}");
                return writer.fail(&Failure::new(FailureKind::InvalidRequest, message)).await;
            }
        };
        drop(frame);
        let mut connection = Connection { guest, reader: &mut reader, writer };
        if connection.answer(request).await? == Next::Close {
            return Ok(());
        }
    }
    Ok(())
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    Request,
    Close,
}

/// What serving one request needs.
pub(crate) struct Connection<'a, 'b> {
    pub(crate) guest: &'a Rc<Guest>,
    pub(crate) reader: &'a mut FrameReader<'b>,
    pub(crate) writer: FrameWriter<'b>,
}

impl Connection<'_, '_> {
    async fn answer(&mut self, request: Request) -> wire::Result<Next> {
        let guest = self.guest;
        match request {
            Request::Ping => self.tell(Ok(Response::Done)).await,
            Request::ExecStart(start) => {
                let answer = exec::start(guest, start).await;
                self.tell(answer).await
            }
            Request::ExecAttach { id, from } => {
                match exec::attach(guest, self.reader, self.writer, &id, from).await? {
                    Ok(()) => Ok(Next::Close),
                    Err(failure) => self.tell(Err(failure)).await,
                }
            }
            Request::ExecStdin { id, close } => {
                match exec::feed_stdin(guest, self.reader, &id, close).await? {
                    Ok(response) => self.tell(Ok(response)).await,
                    Err((failure, BodyLeft::No)) => self.tell(Err(failure)).await,
                    Err((failure, BodyLeft::Yes)) => self.refuse_body(failure).await,
                }
            }
            Request::ExecSignal { id, signal, scope } => {
                self.tell(guest.execs.signal(&id, signal, scope)).await
            }
            Request::ExecResize { id, size } => self.tell(guest.execs.resize(&id, size)).await,
            Request::ExecList => self.tell(Ok(guest.execs.list())).await,
            Request::Processes => self.tell(Ok(processes::list(&guest.execs))).await,
            Request::KillAll { disk } => {
                let answer = end::kill_all(guest, disk).await;
                self.tell(Ok(answer)).await
            }
            Request::Shutdown { grace_ms } => {
                let answer = end::shut_down(guest, Duration::from_millis(grace_ms)).await;
                // Whether or not the host still listens, the guest leaves now.
                let told = self.tell(Ok(answer)).await;
                guest.leave.notify_one();
                told.map(|_| Next::Close)
            }
            other => {
                let failure = Failure::new(FailureKind::Unsupported, "not built yet");
                if other.has_body() { self.refuse_body(failure).await } else { self.tell(Err(failure)).await }
            }
        }
    }

    async fn tell(&self, answer: Result<Response, Failure>) -> wire::Result<Next> {
        match answer {
            Ok(response) => self.writer.respond(&response).await?,
            Err(failure) => self.writer.fail(&failure).await?,
        }
        Ok(Next::Request)
    }

    /// Tells the failure at once, so that a host may stop sending, and reads the rest of the body away.
    async fn refuse_body(&mut self, failure: Failure) -> wire::Result<Next> {
        self.writer.fail(&failure).await?;
        self.reader.skip_body().await?;
        Ok(Next::Request)
    }
}


//! One connection: requests and their answers.

use std::{rc::Rc, time::Duration};

use guest_protocol::{Failure, FailureKind, Frame, FrameKind, Hello, Request, Response};
use tokio::{net::UnixStream, task::spawn_local};

use crate::{
    Guest, code, connect, end,
    exec::{self, BodyLeft},
    files::{self, Cancel, Grep},
    listen, processes, sftp, wire,
    wire::{FrameReader, FrameWriter},
};

/// Serves one connection until it ends. Execs outlive it.
pub(crate) async fn serve_connection(guest: &Rc<Guest>, stream: UnixStream) {
    serve(guest, stream).await.ok();
    guest.was_active.notify_one();
}

async fn serve(guest: &Rc<Guest>, stream: UnixStream) -> wire::Result<()> {
    let mut reader = FrameReader::new(&stream);
    let writer = FrameWriter::new(&stream);
    let hello = Hello::of_build(env!("CARGO_PKG_VERSION"));
    writer.send(&Frame::json(FrameKind::Hello, &hello)?).await?;
    while let Some(frame) = reader.next().await? {
        if frame.kind != FrameKind::Request {
            return Err(
                guest_protocol::ProtocolError::Unexpected { expected: "a request", got: frame.kind }.into()
            );
        }
        let request = match readable(&frame) {
            Ok(request) => guest.meant(request),
            // A body may follow, so the connection ends here.
            Err(failure) => return writer.fail(&failure).await,
        };
        drop(frame);
        let mut connection = Connection { guest, reader: &mut reader, writer };
        if connection.answer(request).await? == Next::Close {
            return Ok(());
        }
    }
    Ok(())
}

/// The request in a frame, if it can be read and its host uses a version that we support.
fn readable(frame: &Frame) -> Result<Request, Failure> {
    let unreadable =
        |error| Failure::new(FailureKind::InvalidRequest, format!("a request that cannot be read: {error}"));
    let agreed = frame.agree_with_host().map_err(unreadable)?;
    agreed.map_err(|mismatch| Failure::new(FailureKind::Unsupported, mismatch.to_string()))?;
    frame.parse().map_err(unreadable)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    Request,
    Close,
}

/// The state for serving one request.
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
                let taken = exec::feed_stdin(guest, self.reader, &id, close).await?;
                self.took(taken).await
            }
            Request::ExecSignal { id, signal, scope } => {
                self.tell(guest.execs.signal(&id, signal, scope)).await
            }
            Request::ExecResize { id, size } => self.tell(guest.execs.resize(&id, size)).await,
            Request::ExecList => self.tell(Ok(guest.execs.list())).await,
            Request::Processes => {
                let mut execs = guest.execs.by_session();
                execs.extend(guest.contexts.by_session());
                let answer = files::in_background(self.reader, move |_| Ok(processes::list(&execs))).await?;
                self.tell(answer).await
            }
            Request::KillAll { disk } => {
                let answer = end::kill_all(guest, disk).await;
                self.tell(Ok(answer)).await
            }
            Request::Shutdown { grace_ms, signal } => {
                let answer = end::shut_down(guest, Duration::from_millis(grace_ms), signal).await;
                // The guest exits now, whether or not the host still listens.
                let told = self.tell(Ok(answer)).await;
                guest.leave.notify_one();
                told.map(|_| Next::Close)
            }
            Request::Connect { target } => match connect::connect(self.reader, self.writer, target).await? {
                Ok(()) => Ok(Next::Close),
                Err(failure) => self.tell(Err(failure)).await,
            },
            Request::ConnectFd { port, protocol } => {
                let handed_out = match guest.network.check_handing_out() {
                    Ok(()) => connect::hand_out(self.writer, port, protocol).await?,
                    refused => refused,
                };
                self.sent(handed_out).await
            }
            Request::Sftp { user, cwd, read_only, hand_out } => {
                let start = sftp::Start { user, cwd, read_only };
                if hand_out {
                    let handed_out = sftp::hand_out(guest, self.reader, self.writer, &start).await?;
                    return self.sent(handed_out).await;
                }
                match sftp::join(guest, self.reader, self.writer, &start).await? {
                    Ok(()) => Ok(Next::Close),
                    Err(failure) => self.tell(Err(failure)).await,
                }
            }
            Request::Listen { port } => match listen::listen(guest, self.reader, self.writer, port).await? {
                Ok(()) => Ok(Next::Close),
                Err(failure) => self.tell(Err(failure)).await,
            },
            Request::Accept { incoming } => {
                match listen::accept(guest, self.reader, self.writer, incoming).await? {
                    Ok(()) => Ok(Next::Close),
                    Err(failure) => self.tell(Err(failure)).await,
                }
            }
            Request::NetworkSockets => {
                guest.network.hand_out(self.writer).await?;
                Ok(Next::Request)
            }
            Request::ContextCreate(_)
            | Request::ContextList
            | Request::ContextReset { .. }
            | Request::ContextRemove { .. }
            | Request::ContextFork { .. } => {
                // A task of its own: it continues even if the host does not wait for it.
                let answer = spawn_local(answer_context(Rc::clone(guest), request));
                tokio::select! {
                    answer = answer => self.tell(answer.unwrap_or_else(|_| Err(broke_off()))).await,
                    () = self.reader.gone() => Err(wire::ConnectionError::Gone),
                }
            }
            Request::Languages { path } => {
                let answer = files::in_background(self.reader, move |_| Ok(code::languages(&path))).await?;
                self.tell(answer).await
            }
            files => {
                let changes = files.properties().writes_files;
                let next = self.answer_files(files).await;
                if changes {
                    files::changed::touched();
                }
                next
            }
        }
    }

    async fn answer_files(&mut self, request: Request) -> wire::Result<Next> {
        match request {
            Request::Read { path, offset, length } => {
                let sent = files::read(self.reader, self.writer, path, offset, length).await?;
                self.sent(sent).await
            }
            Request::TarOut { path } => {
                let sent = files::pack(self.reader, self.writer, path).await?;
                self.sent(sent).await
            }
            Request::Watch { path, recursive } => {
                match files::watch(self.reader, self.writer, path, recursive).await? {
                    Ok(()) => Ok(Next::Close),
                    Err(failure) => self.tell(Err(failure)).await,
                }
            }
            charged if charged.properties().fills_files => {
                let taken = files::perform(self.guest, self.reader, charged).await?;
                self.took(taken).await
            }
            other => {
                let answer = files::in_background(self.reader, move |cancel| file_job(other, cancel)).await?;
                self.tell(answer).await
            }
        }
    }

    /// Called after a response whose body was sent, or a refusal.
    async fn sent(&self, sent: Result<(), Failure>) -> wire::Result<Next> {
        match sent {
            Ok(()) => Ok(Next::Request),
            Err(failure) => self.tell(Err(failure)).await,
        }
    }

    /// Called after a request whose body was taken, or a refusal with some of it still to come.
    async fn took(&mut self, taken: Result<Response, (Failure, BodyLeft)>) -> wire::Result<Next> {
        match taken {
            Ok(response) => self.tell(Ok(response)).await,
            Err((failure, BodyLeft::No)) => self.tell(Err(failure)).await,
            Err((failure, BodyLeft::Yes)) => self.refuse_body(failure).await,
        }
    }

    async fn tell(&self, answer: Result<Response, Failure>) -> wire::Result<Next> {
        match answer {
            Ok(response) => self.writer.respond(&response).await?,
            Err(failure) => self.writer.fail(&failure).await?,
        }
        Ok(Next::Request)
    }

    /// Reports the failure at once, so that a host may stop sending, and skips the rest of the body.
    async fn refuse_body(&mut self, failure: Failure) -> wire::Result<Next> {
        self.writer.fail(&failure).await?;
        self.reader.skip_body().await?;
        Ok(Next::Request)
    }
}

fn broke_off() -> Failure {
    Failure::new(FailureKind::Internal, "a request on contexts broke off")
}

async fn answer_context(guest: Rc<Guest>, request: Request) -> Result<Response, Failure> {
    let guest = &guest;
    match request {
        Request::ContextCreate(start) => code::create(guest, start).await,
        Request::ContextList => Ok(code::list(guest)),
        Request::ContextReset { name } => code::reset(guest, &name).await,
        Request::ContextRemove { name } => code::remove(guest, &name).await,
        Request::ContextFork { name, into, force } => code::fork(guest, &name, into, force).await,
        other => Err(Failure::new(FailureKind::Internal, format!("{other:?} is not about contexts"))),
    }
}

/// Requests on files whose answer is one message.
pub(crate) fn file_job(request: Request, cancel: &Cancel) -> Result<Response, Failure> {
    match request {
        Request::Stat { path, follow } => files::stat(&path, follow),
        Request::List { path, recursive, limit } => files::list(&path, recursive, limit, cancel),
        Request::Glob { root, pattern, limit } => files::glob(&root, &pattern, limit, cancel),
        Request::Grep { root, pattern, include, ignore_case, literal, limit } => {
            files::grep(&Grep { root, pattern, include, ignore_case, literal, limit }, cancel)
        }
        Request::Mkdir { path, parents, mode } => files::mkdir(&path, parents, mode),
        Request::Remove { path, recursive } => files::remove(&path, recursive, cancel),
        Request::Copy { from, to, recursive } => files::copy(&from, &to, recursive, cancel),
        Request::Rename { from, to, replace } => files::rename(&from, &to, replace),
        Request::Symlink { target, path } => files::symlink(&target, &path),
        Request::Readlink { path } => files::readlink(&path),
        Request::Chmod { path, mode, recursive } => files::chmod(&path, mode, recursive, cancel),
        Request::Chown { path, uid, gid, recursive } => files::chown(&path, uid, gid, recursive, cancel),
        other => Err(Failure::new(FailureKind::Internal, format!("{other:?} is not about files"))),
    }
}

//! The client of the guest protocol: one for each live sandbox.
//!
//! The guest is hostile. Everything it sends is bounded and checked; a silent guest runs into a deadline; after any
//! misbehaviour the connection is dropped, and only that connection suffers.

mod body;
mod descriptor;
mod error;
mod exec;
mod listen;
mod port;
mod socket;
mod wire;

use std::{
    fmt,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures_util::StreamExt;
use guest_protocol::{FailureKind, FrameKind, PortProtocol, Request, Response, Target};
use sandbox::{Instance, Subject};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

pub use self::port::PortStream;
use self::{descriptor::GuestDescriptor, wire::within};
pub(crate) use self::{
    error::GuestError,
    exec::{ExecStream, StartAnswer},
    listen::GuestListener,
    socket::InsideSocket,
    wire::Wire,
};
use crate::{ByteStream, config::Deadlines};

/// Connections kept open between requests, so that a request costs no connect. Each holds a few KiB on either side.
const MAX_IDLE_CONNECTIONS: usize = 4;
/// Sockets inside one sandbox that the daemon holds at the same time. Further streams go through the guest, which has a
/// limit of its own.
const MAX_SOCKETS_INSIDE: usize = 256;

pub(crate) struct GuestClient {
    instance: Arc<dyn Instance>,
    idle: Mutex<Vec<Wire>>,
    deadlines: Deadlines,
    /// The instance has ended or is about to.
    over: CancellationToken,
    sockets: Arc<Semaphore>,
    /// The guest cannot hand out sockets.
    is_without_sockets: AtomicBool,
    /// Names the sandbox in messages.
    label: Subject,
}

impl fmt::Debug for GuestClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GuestClient").field("sandbox", &self.label).finish_non_exhaustive()
    }
}

impl GuestClient {
    pub(crate) fn new(instance: Arc<dyn Instance>, deadlines: Deadlines, label: Subject) -> Self {
        Self {
            instance,
            idle: Mutex::default(),
            deadlines,
            over: CancellationToken::new(),
            sockets: Arc::new(Semaphore::new(MAX_SOCKETS_INSIDE)),
            is_without_sockets: AtomicBool::new(false),
            label,
        }
    }

    /// Cancelled when the instance has ended or is about to.
    pub(crate) fn over(&self) -> &CancellationToken {
        &self.over
    }

    pub(crate) fn label(&self) -> &Subject {
        &self.label
    }

    /// Asks and returns the answer.
    pub(crate) async fn call(&self, request: &Request) -> Result<Response, GuestError> {
        within(self.patience(request), self.call_patiently(request)).await
    }

    async fn call_patiently(&self, request: &Request) -> Result<Response, GuestError> {
        let (answer, wire) = self.ask(request).await?;
        self.keep(wire);
        Ok(answer)
    }

    /// Asks with a body and returns the answer.
    ///
    /// `patience` bounds how long the guest may leave one piece unread, and how long it may take to answer after the
    /// end. `None`: it may take as long as the reader inside.
    pub(crate) async fn upload(
        &self,
        request: &Request,
        mut bytes: ByteStream,
        patience: Option<Duration>,
    ) -> Result<Response, GuestError> {
        let mut wire = within(self.deadlines.hello, self.checkout()).await?;
        wire.greeting().await?;
        wire.request(request).await?;
        loop {
            // The guest may answer in the middle: a refusal (no space, no such exec), or the end of an archive before
            // the end of our bytes. It need not read the rest first.
            tokio::select! {
                biased;
                early = wire.answer() => return early_answer(request, early?),
                chunk = bytes.next() => match chunk {
                    Some(Ok(chunk)) => {
                        if let Err(error) = maybe_within(patience, wire.send_data(&chunk)).await {
                            return Err(self.reason_of_broken_upload(&mut wire, error).await);
                        }
                    }
                    Some(Err(error)) => return Err(GuestError::Source(error)),
                    None => break,
                },
            }
        }
        if let Err(error) = wire.send(FrameKind::End, &[]).await {
            return Err(self.reason_of_broken_upload(&mut wire, error).await);
        }
        let answer = maybe_within(patience, wire.answer()).await;
        let answer = answer.and_then(|answer| checked(request, answer));
        if matches!(answer, Ok(_) | Err(GuestError::Refused(_))) {
            self.keep(wire);
        }
        answer
    }

    /// A guest that closes in the middle of an upload has often sent the reason just before.
    async fn reason_of_broken_upload(&self, wire: &mut Wire, broken: GuestError) -> GuestError {
        match within(self.deadlines.last_words, wire.answer()).await {
            Err(refused @ GuestError::Refused(_)) => refused,
            _ => broken,
        }
    }

    /// Asks for something whose answer has a body; the body is a stream that can be dropped at any time.
    pub(crate) async fn download(
        self: &Arc<Self>,
        request: &Request,
        at_most: Option<u64>,
    ) -> Result<(Response, ByteStream), GuestError> {
        let (answer, wire) = within(self.patience(request), self.ask(request)).await?;
        Ok((answer, body::bytes(Arc::clone(self), wire, at_most)))
    }

    /// Frames of an endless body, each a whole message.
    pub(crate) async fn messages(self: &Arc<Self>, request: &Request) -> Result<ByteStream, GuestError> {
        let (_watching, wire) = within(self.patience(request), self.ask(request)).await?;
        Ok(body::bytes(Arc::clone(self), wire, None))
    }

    /// A stream to a port or socket inside: past the guest where it hands out sockets, else through it.
    pub(crate) async fn connect_port(&self, target: Target) -> Result<PortStream, GuestError> {
        if let Target::Tcp(port) = target
            && let Some(socket) = self.connect_socket(port, PortProtocol::Tcp).await?
        {
            return Ok(PortStream::of_socket(socket));
        }
        let request = &Request::Connect { target };
        let (_connected, wire) = within(self.patience(request), self.ask(request)).await?;
        Ok(PortStream::new(wire))
    }

    /// A connected socket of the sandbox. `None` if the guest cannot hand one out, or too many are held already.
    pub(crate) async fn connect_socket(
        &self,
        port: u16,
        protocol: PortProtocol,
    ) -> Result<Option<InsideSocket>, GuestError> {
        if self.is_without_sockets.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let Ok(place) = Arc::clone(&self.sockets).try_acquire_owned() else { return Ok(None) };
        let request = Request::ConnectFd { port, protocol };
        let handed_out = within(self.patience(&request), self.ask_for_socket(&request)).await;
        let socket = match handed_out {
            Ok(Some(socket)) => socket,
            Ok(None) | Err(GuestError::TooOld { .. }) => {
                self.is_without_sockets.store(true, Ordering::Relaxed);
                return Ok(None);
            }
            Err(GuestError::Refused(failure)) if failure.kind == FailureKind::Unsupported => {
                self.is_without_sockets.store(true, Ordering::Relaxed);
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        socket::check(&socket, port, protocol).map_err(GuestError::Nonsense)?;
        Ok(Some(InsideSocket::new(socket, self.over.clone().cancelled_owned(), place)?))
    }

    /// A stream to an SFTP server inside: past the guest where it hands out its socket, else through it.
    pub(crate) async fn open_sftp(&self, mut request: Request) -> Result<PortStream, GuestError> {
        if let Some(socket) = self.sftp_socket(&request).await? {
            return Ok(PortStream::of_socket(socket));
        }
        if let Request::Sftp { hand_out, .. } = &mut request {
            *hand_out = false;
        }
        let (_connected, wire) = within(self.patience(&request), self.ask(&request)).await?;
        Ok(PortStream::new(wire))
    }

    async fn sftp_socket(&self, request: &Request) -> Result<Option<InsideSocket>, GuestError> {
        if self.is_without_sockets.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let Ok(place) = Arc::clone(&self.sockets).try_acquire_owned() else { return Ok(None) };
        match within(self.patience(request), self.ask_for_socket(request)).await {
            Ok(Some(socket)) => {
                socket::check_stream(&socket).map_err(GuestError::Nonsense)?;
                Ok(Some(InsideSocket::new(socket, self.over.clone().cancelled_owned(), place)?))
            }
            Ok(None) => Ok(None),
            Err(GuestError::Refused(failure)) if failure.kind == FailureKind::Unsupported => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The descriptor in the answer, not yet checked. `None` if none can come.
    async fn ask_for_socket(&self, request: &Request) -> Result<Option<GuestDescriptor>, GuestError> {
        let mut wire = self.checkout().await?;
        if !wire.carries_descriptors() {
            self.keep(wire);
            return Ok(None);
        }
        let was_used = wire.is_used();
        let mut answer = exchange_for_descriptors(&mut wire, request).await;
        if was_used && answer.as_ref().is_err_and(GuestError::is_lost_stream) {
            // It went stale while it was idle.
            wire = self.fresh().await?;
            answer = exchange_for_descriptors(&mut wire, request).await;
        }
        if matches!(answer, Ok(_) | Err(GuestError::Refused(_) | GuestError::TooOld { .. })) {
            self.keep(wire);
        }
        // A kernel that drops descriptors on the way drops all of them.
        Ok(answer?.pop())
    }

    /// Opens a connection ahead of the next request.
    pub(crate) async fn warm(&self) {
        let is_needed = self.idle().is_empty();
        if is_needed && let Ok(wire) = within(self.deadlines.hello, self.fresh()).await {
            let mut idle = self.idle();
            if idle.len() < MAX_IDLE_CONNECTIONS {
                idle.push(wire);
            }
        }
    }

    /// Sends a request and reads its answer, on an idle connection if there is one. The connection is returned only
    /// with an answer; a refusal keeps it.
    async fn ask(&self, request: &Request) -> Result<(Response, Wire), GuestError> {
        let mut wire = self.checkout().await?;
        let was_used = wire.is_used();
        let mut answer = exchange(&mut wire, request).await;
        if was_used
            && request.properties().repeatable
            && answer.as_ref().is_err_and(GuestError::is_lost_stream)
        {
            // It went stale while it was idle.
            wire = self.fresh().await?;
            answer = exchange(&mut wire, request).await;
        }
        match answer {
            Ok(answer) => Ok((answer, wire)),
            Err(error) => {
                if matches!(error, GuestError::Refused(_)) {
                    self.keep(wire);
                }
                Err(error)
            }
        }
    }

    async fn checkout(&self) -> Result<Wire, GuestError> {
        let idle = self.idle().pop();
        match idle {
            Some(wire) => Ok(wire),
            None => self.fresh().await,
        }
    }

    async fn fresh(&self) -> Result<Wire, GuestError> {
        let stream = self.instance.connect().await.map_err(GuestError::Connect)?;
        Ok(Wire::new(stream, self.deadlines.hello))
    }

    fn keep(&self, mut wire: Wire) {
        let mut idle = self.idle();
        if wire.is_clean() && idle.len() < MAX_IDLE_CONNECTIONS {
            wire.rest();
            idle.push(wire);
        }
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<Wire>> {
        // A panic leaves nothing half done in there, so a poisoned pool is still good.
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn patience(&self, request: &Request) -> Duration {
        if request.properties().is_slow { self.deadlines.long_answer } else { self.deadlines.answer }
    }
}

fn early_answer(request: &Request, answer: Response) -> Result<Response, GuestError> {
    match request {
        Request::TarIn { .. } => checked(request, answer),
        _ => Err(GuestError::Nonsense("an answer before the end of the body")),
    }
}

async fn maybe_within<T>(
    patience: Option<Duration>,
    work: impl Future<Output = Result<T, GuestError>>,
) -> Result<T, GuestError> {
    match patience {
        Some(after) => within(after, work).await,
        None => work.await,
    }
}

async fn exchange(wire: &mut Wire, request: &Request) -> Result<Response, GuestError> {
    wire.request(request).await?;
    checked(request, wire.answer().await?)
}

async fn exchange_for_descriptors(
    wire: &mut Wire,
    request: &Request,
) -> Result<Vec<GuestDescriptor>, GuestError> {
    wire.request(request).await?;
    let (answer, descriptors) = wire.answer_with_descriptors().await?;
    checked(request, answer).map(|_socket| descriptors)
}

/// Refuses an answer that belongs to another request, dropping its connection.
fn checked(request: &Request, answer: Response) -> Result<Response, GuestError> {
    if request.accepts(&answer) {
        Ok(answer)
    } else {
        Err(GuestError::Nonsense("an answer to another question"))
    }
}

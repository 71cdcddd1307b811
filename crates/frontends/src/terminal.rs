//! Terminals over WebSocket, for every front end that has them. Each is an exec with a terminal; what it prints is read
//! from the ledger, so any number of clients may attach, and come back without loss.

use std::time::Duration;

use axum::{
    extract::ws::{CloseFrame, Message, WebSocket, WebSocketUpgrade},
    response::Response,
};
use bytes::Bytes;
use engine::{Engine, Entry, ExecView, Follow, Principal, SandboxRef, SignalScope};
use futures_util::{FutureExt as _, StreamExt, future::BoxFuture, stream, stream::BoxStream};
use sandbox::{Error, ExecId, Result, TerminalSize};
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use crate::http::{ActivityGuard, Refusal, StreamLease, StreamPlace};

/// Longest frame of a client.
const MAX_FRAME_BYTES: usize = 1024 * 1024;
/// The time between two pings: shorter than the idle limit of common proxies. A client that is gone is noticed by them.
const PING_EVERY: Duration = Duration::from_secs(15);
/// The daemon leaves; the client may come back.
const GOING_AWAY: u16 = 1001;

/// The request in a client's message.
pub(crate) enum Input {
    Write(Bytes),
    /// The end of stdin.
    End,
    Resize(TerminalSize),
    Signal(i32),
    Answer(Message),
    Nothing,
}

/// How a front end speaks to its clients.
pub(crate) trait Framing: Send {
    fn hello(&self) -> Option<Message>;

    /// The messages for an entry of the ledger.
    fn output(&mut self, entry: Result<Entry>) -> Vec<Message>;

    fn input(&self, message: Message) -> Input;

    /// Returns the message that a client's request was refused.
    fn refused(&self, error: &Error) -> Message;

    /// The last words, when the program has ended.
    fn end(&self, exec: &ExecView) -> Vec<Message>;
}

/// The exec, who attaches, and the first entry they want.
pub(crate) struct Terminal {
    pub(crate) engine: Engine,
    pub(crate) who: Principal,
    pub(crate) which: SandboxRef,
    pub(crate) exec: ExecId,
    pub(crate) from: u64,
}

/// One client at a terminal.
pub(crate) struct Attached {
    terminal: Terminal,
    framing: Box<dyn Framing>,
    entries: BoxStream<'static, Result<Entry>>,
    key_ended: BoxFuture<'static, ()>,
    stop: CancellationToken,
    _place: Option<StreamPlace>,
    _activity: Option<ActivityGuard>,
}

impl Attached {
    /// Takes a place among the caller's streams and begins to read the ledger.
    pub(crate) async fn new(
        terminal: Terminal,
        framing: Box<dyn Framing>,
        lease: Option<StreamLease>,
    ) -> Result<Result<Self, Refusal>> {
        let place = match lease.as_ref().map(StreamLease::take) {
            Some(Err(refusal)) => return Ok(Err(refusal)),
            Some(Ok(place)) => place,
            None => None,
        };
        let Terminal { engine, who, which, exec, from } = &terminal;
        let entries = engine.exec_entries(who, which, exec, *from, Follow::Yes).await?;
        let key_ended = lease.map_or_else(|| std::future::pending().boxed(), |lease| lease.ended());
        let stop = CancellationToken::new();
        Ok(Ok(Self { terminal, framing, entries, key_ended, stop, _place: place, _activity: None }))
    }

    /// Ends with the daemon, and keeps it from leaving because it is idle.
    #[must_use]
    pub(crate) fn while_serving(self, stop: CancellationToken, activity: ActivityGuard) -> Self {
        Self { stop, _activity: Some(activity), ..self }
    }

    pub(crate) fn answer(self, upgrade: WebSocketUpgrade) -> Response {
        upgrade.max_message_size(MAX_FRAME_BYTES).on_upgrade(|socket| self.serve(socket).boxed())
    }

    async fn serve(mut self, mut socket: WebSocket) {
        let key_ended = std::mem::replace(&mut self.key_ended, std::future::pending().boxed());
        let stop = self.stop.clone();
        tokio::select! {
            // Also while a client that does not read makes a message wait.
            () = key_ended => return,
            () = stop.cancelled() => {}
            // The program has ended, or the client is gone.
            _ = self.talk(&mut socket) => return,
        }
        let close = CloseFrame { code: GOING_AWAY, reason: "the daemon stops".into() };
        // A client that is gone need not be told.
        socket.send(Message::Close(Some(close))).await.ok();
    }

    /// Ends with nothing when the client is gone.
    async fn talk(&mut self, socket: &mut WebSocket) -> Option<()> {
        if let Some(hello) = self.framing.hello() {
            socket.send(hello).await.ok()?;
        }
        let mut pings = interval(PING_EVERY);
        pings.set_missed_tick_behavior(MissedTickBehavior::Delay);
        pings.reset();
        loop {
            let messages = tokio::select! {
                entry = self.entries.next() => match entry {
                    Some(entry) => self.framing.output(entry),
                    None => break,
                },
                message = socket.recv() => {
                    let input = self.framing.input(message?.ok()?);
                    match self.terminal.act(input).await {
                        Ok(answer) => answer.into_iter().collect(),
                        Err(error) => vec![self.framing.refused(&error)],
                    }
                }
                _ = pings.tick() => vec![Message::Ping(Bytes::new())],
            };
            for message in messages {
                socket.send(message).await.ok()?;
            }
        }
        let exec = self.terminal.view().await.ok()?;
        for message in self.framing.end(&exec) {
            socket.send(message).await.ok()?;
        }
        Some(())
    }
}

impl Terminal {
    /// Does what a client asks for. What it is told of that, if anything.
    async fn act(&self, input: Input) -> Result<Option<Message>> {
        let Self { engine, who, which, exec, .. } = self;
        match input {
            Input::Write(bytes) => self.write(vec![Ok(bytes)], false).await?,
            Input::End => self.write(Vec::new(), true).await?,
            Input::Resize(size) => engine.exec_resize(who, which, exec, size).await?,
            Input::Signal(number) => engine.exec_signal(who, which, exec, number, SignalScope::Group).await?,
            Input::Answer(answer) => return Ok(Some(answer)),
            Input::Nothing => {}
        }
        Ok(None)
    }

    async fn write(&self, bytes: Vec<Result<Bytes>>, close: bool) -> Result<()> {
        let Self { engine, who, which, exec, .. } = self;
        engine.exec_stdin(who, which, exec, stream::iter(bytes).boxed(), close).await.map(drop)
    }

    async fn view(&self) -> Result<ExecView> {
        let Self { engine, who, which, exec, .. } = self;
        engine.exec_view(who, which, exec).await
    }
}

//! Channels: what the connection and the task of a channel share, and a channel as its task sees it.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use bytes::Bytes;
use russh::{
    ChannelId, ChannelWriteHalf, Sig,
    server::{Handle, Msg},
};
use sandbox::Error;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio_util::sync::CancellationToken;

use crate::{
    command::Control,
    flow::{Flow, Queue},
    limits::{MAX_CHANNELS, MAX_QUEUED_CONTROLS},
    words,
};

/// The number of stderr among a channel's streams.
const STDERR: u32 = 1;
/// The exit status for what is not the command's own: what `ssh` itself uses.
const FAILED: u32 = 255;

/// The client is gone; nobody needs to be told.
#[derive(Debug)]
pub(crate) struct Gone;

/// One of the channels that a connection may have.
pub(crate) type Place = OwnedSemaphorePermit;

/// The open channels of a connection that have a task.
#[derive(Debug)]
pub(crate) struct Channels {
    pub(crate) flow: Arc<Flow>,
    places: Arc<Semaphore>,
    by_id: Mutex<HashMap<ChannelId, Entry>>,
}

#[derive(Debug)]
struct Entry {
    input: Arc<Queue>,
    closed: CancellationToken,
    controls: mpsc::Sender<Control>,
    /// Until the task takes it.
    received: Option<mpsc::Receiver<Control>>,
}

impl Entry {
    fn new(flow: &Arc<Flow>) -> Self {
        let (controls, received) = mpsc::channel(MAX_QUEUED_CONTROLS);
        let (input, closed) = (Queue::new(Arc::clone(flow)), CancellationToken::new());
        Self { input, closed, controls, received: Some(received) }
    }
}

impl Channels {
    pub(crate) fn new() -> Arc<Self> {
        let places = Arc::new(Semaphore::new(MAX_CHANNELS));
        Arc::new(Self { flow: Arc::default(), places, by_id: Mutex::default() })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ChannelId, Entry>> {
        // Every change in there is one insert or remove; a panic elsewhere leaves it consistent.
        self.by_id.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `None` if the connection has as many channels as it may have.
    pub(crate) fn place(&self) -> Option<Place> {
        Arc::clone(&self.places).try_acquire_owned().ok()
    }

    /// Begins to keep a channel's input. Called before any of it can come.
    pub(crate) fn prepare(&self, id: ChannelId) {
        self.lock().entry(id).or_insert_with(|| Entry::new(&self.flow));
    }

    /// The channel of a task, and what its client asks besides. It may have been prepared, or may be about to be.
    pub(crate) fn begin(
        self: &Arc<Self>,
        writer: ChannelWriteHalf<Msg>,
        handle: Handle,
        place: Place,
    ) -> (Channel, mpsc::Receiver<Control>) {
        let mut by_id = self.lock();
        let entry = by_id.entry(writer.id()).or_insert_with(|| Entry::new(&self.flow));
        let (input, closed) = (Arc::clone(&entry.input), entry.closed.clone());
        // A channel has one task; a second one would hear nothing.
        let received = entry.received.take().unwrap_or_else(|| mpsc::channel(1).1);
        drop(by_id);
        (Channel { input, closed, writer, handle, channels: Arc::clone(self), _place: place }, received)
    }

    pub(crate) fn input(&self, id: ChannelId) -> Option<Arc<Queue>> {
        self.lock().get(&id).map(|entry| Arc::clone(&entry.input))
    }

    /// Passes a request on. One too many at once is dropped: nobody sends as many signals or sizes.
    pub(crate) fn control(&self, id: ChannelId, control: Control) {
        if let Some(entry) = self.lock().get(&id) {
            entry.controls.try_send(control).ok();
        }
    }

    /// The client has closed the channel, or the task is done.
    pub(crate) fn close(&self, id: ChannelId) {
        if let Some(entry) = self.lock().remove(&id) {
            entry.input.end();
            entry.closed.cancel();
        }
    }

    /// The connection is gone.
    pub(crate) fn close_all(&self) {
        self.flow.over.cancel();
        let all: Vec<_> = self.lock().drain().map(|(_, entry)| entry).collect();
        for entry in all {
            entry.input.end();
            entry.closed.cancel();
        }
    }
}

/// A channel as its task has it. Dropped, it is forgotten; [`Channel::close`] tells the client first.
#[derive(Debug)]
pub(crate) struct Channel {
    pub(crate) input: Arc<Queue>,
    /// The client has closed it.
    pub(crate) closed: CancellationToken,
    writer: ChannelWriteHalf<Msg>,
    handle: Handle,
    channels: Arc<Channels>,
    _place: Place,
}

impl Channel {
    /// Sends output, waiting while the client takes none.
    pub(crate) async fn send(&self, bytes: Bytes) -> Result<(), Gone> {
        let _waiting = self.channels.flow.output();
        tokio::select! {
            sent = self.writer.data_bytes(bytes) => sent.map_err(|_closed| Gone),
            () = self.closed.cancelled() => Err(Gone),
        }
    }

    pub(crate) async fn send_stderr(&self, bytes: Bytes) -> Result<(), Gone> {
        let _waiting = self.channels.flow.output();
        tokio::select! {
            sent = self.writer.extended_data_bytes(STDERR, bytes) => sent.map_err(|_closed| Gone),
            () = self.closed.cancelled() => Err(Gone),
        }
    }

    /// Tells why something cannot be done, and ends the channel.
    pub(crate) async fn fail(self, error: &Error) {
        drop(self.send_stderr(words::message(error).into()).await);
        self.exit(FAILED).await;
    }

    pub(crate) async fn exit(self, status: u32) {
        self.writer.exit_status(status).await.ok();
        self.close().await;
    }

    pub(crate) async fn exit_by_signal(self, signal: Sig) {
        let (id, none) = (self.writer.id(), String::new());
        self.handle.exit_signal_request(id, signal, false, none.clone(), none).await.ok();
        self.close().await;
    }

    /// Nothing more is sent; the client may still send.
    pub(crate) async fn end_output(&self) {
        self.writer.eof().await.ok();
    }

    pub(crate) async fn close(self) {
        self.writer.eof().await.ok();
        self.writer.close().await.ok();
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        // Nobody takes its input any more, so the connection must not wait for that.
        self.input.discard();
        self.channels.close(self.writer.id());
    }
}

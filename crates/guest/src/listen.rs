//! `Listen` and `Accept`: a port inside whose clients are handed to the host, one connection each.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    io,
    net::{Ipv4Addr, SocketAddr},
    rc::Rc,
};

use guest_protocol::{Failure, FailureKind, Incoming, Response};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::Notify,
    time::{Instant, sleep, sleep_until},
};

use crate::{
    Guest, connect,
    limits::{ACCEPT_REST, MAX_LISTENERS, MAX_WAITING_CLIENTS, TAKEN_WITHIN},
    wire,
    wire::{ConnectionError, FrameReader, FrameWriter},
};

/// Clients of all listeners that wait for the host.
#[derive(Debug, Default)]
pub(crate) struct Listeners {
    n_listeners: Cell<usize>,
    last: Cell<u64>,
    waiting: RefCell<BTreeMap<u64, TcpStream>>,
    /// Notified when the host took one: there is room for another.
    taken: Notify,
}

/// One listener. When it ends, its waiting clients are dropped.
struct Listener {
    guest: Rc<Guest>,
    socket: TcpListener,
    /// Its clients that may still wait, oldest first.
    clients: Vec<(u64, Instant)>,
}

impl Drop for Listener {
    fn drop(&mut self) {
        let listeners = &self.guest.listeners;
        let mut waiting = listeners.waiting.borrow_mut();
        self.clients.iter().for_each(|(number, _)| drop(waiting.remove(number)));
        listeners.n_listeners.set(listeners.n_listeners.get() - 1);
    }
}

/// Reports clients until the host closes the connection. `Ok(Err)` is a refusal after which the connection can go on.
pub(crate) async fn listen(
    guest: &Rc<Guest>,
    reader: &mut FrameReader<'_>,
    writer: FrameWriter<'_>,
    port: u16,
) -> wire::Result<Result<(), Failure>> {
    let (mut listener, port) = match Listener::bind(guest, port).await {
        Ok(bound) => bound,
        Err(failure) => return Ok(Err(failure)),
    };
    writer.respond(&Response::Listening { port }).await?;
    tokio::select! {
        () = reader.gone() => Err(ConnectionError::Gone),
        told = listener.tell(writer) => told.map(Ok),
    }
}

/// Joins a waiting client with this connection.
pub(crate) async fn accept(
    guest: &Rc<Guest>,
    reader: &mut FrameReader<'_>,
    writer: FrameWriter<'_>,
    incoming: u64,
) -> wire::Result<Result<(), Failure>> {
    let client = guest.listeners.waiting.borrow_mut().remove(&incoming);
    match client {
        Some(client) => {
            guest.listeners.taken.notify_waiters();
            connect::join(reader, writer, client).await.map(Ok)
        }
        None => Ok(Err(Failure::new(FailureKind::NotFound, format!("no client {incoming} waits")))),
    }
}

impl Listener {
    async fn bind(guest: &Rc<Guest>, port: u16) -> Result<(Self, u16), Failure> {
        let n_listeners = guest.listeners.n_listeners.get();
        if n_listeners >= MAX_LISTENERS {
            let message = format!("{MAX_LISTENERS} ports are listened on already");
            return Err(Failure::new(FailureKind::LimitReached, message));
        }
        let refused = |error: io::Error| refused(port, &error);
        // Loopback only, whatever network the sandbox may get: the host's service is for inside.
        let socket =
            TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, port))).await.map_err(refused)?;
        let port = socket.local_addr().map_err(refused)?.port();
        guest.listeners.n_listeners.set(guest.listeners.n_listeners.get() + 1);
        Ok((Self { guest: Rc::clone(guest), socket, clients: Vec::new() }, port))
    }

    async fn tell(&mut self, writer: FrameWriter<'_>) -> wire::Result<()> {
        let guest = Rc::clone(&self.guest);
        let listeners = &guest.listeners;
        loop {
            self.forget_taken();
            let oldest = self.clients.first().map(|(_, since)| *since + TAKEN_WITHIN);
            let has_room = self.clients.len() < MAX_WAITING_CLIENTS;
            tokio::select! {
                accepted = self.socket.accept(), if has_room => match accepted {
                    Ok((stream, _)) => {
                        let incoming = self.keep(stream);
                        writer.data(&serde_json::to_vec(&incoming).unwrap_or_default()).await?;
                    }
                    Err(_out_of_descriptors) => sleep(ACCEPT_REST).await,
                },
                () = listeners.taken.notified(), if !has_room => {}
                () = sleep_until(oldest.unwrap_or_else(Instant::now)), if oldest.is_some() => self.drop_oldest(),
            }
        }
    }

    fn keep(&mut self, stream: TcpStream) -> Incoming {
        stream.set_nodelay(true).ok();
        let listeners = &self.guest.listeners;
        let number = listeners.last.get() + 1;
        listeners.last.set(number);
        listeners.waiting.borrow_mut().insert(number, stream);
        self.clients.push((number, Instant::now()));
        Incoming { incoming: number }
    }

    fn forget_taken(&mut self) {
        let waiting = self.guest.listeners.waiting.borrow();
        self.clients.retain(|(number, _)| waiting.contains_key(number));
    }

    /// Nobody took it in time: closing it tells the client more than silence would.
    fn drop_oldest(&mut self) {
        if let Some((number, _)) = self.clients.first() {
            self.guest.listeners.waiting.borrow_mut().remove(number);
        }
    }
}

fn refused(port: u16, error: &io::Error) -> Failure {
    let message = format!("could not listen on port {port}: {error}");
    match error.kind() {
        io::ErrorKind::AddrInUse => Failure::new(FailureKind::AlreadyExists, message),
        io::ErrorKind::PermissionDenied => Failure::new(FailureKind::Denied, message),
        _ => Failure::new(FailureKind::WrongState, message),
    }
}

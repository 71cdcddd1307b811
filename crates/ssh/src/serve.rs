//! Accepting connections, and ending them: after a log-out, a revoked key, a login that never comes.

use std::{
    borrow::Cow,
    collections::HashMap,
    net::{IpAddr, SocketAddr},
    sync::{Arc, Mutex, PoisonError},
};

use engine::{Engine, Principal};
use russh::{
    Disconnect, SshId,
    server::{Config, run_stream},
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpListener,
    sync::{OwnedSemaphorePermit, Semaphore, SetOnce},
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;

use crate::{
    HostKey, Settings,
    channel::Channels,
    connection::{Connection, LoggedIn},
    cut::Cut,
    limits::{
        ACCEPT_PAUSE, ASK_ALIVE_EVERY, LOGIN_WITHIN, MAX_CONNECTIONS, MAX_LOGIN_ATTEMPTS, MAX_SILENT_ASKS,
        MAX_STRANGERS, MAX_STRANGERS_EACH, PACKET_BYTES, REFUSAL_TIME, WINDOW_BYTES,
    },
};

/// How the other end of a connection is known before it logs in.
#[derive(Debug, Clone)]
pub enum Caller {
    /// Known by the socket that it uses: whoever runs the daemon.
    Owner(Principal),
    Stranger(SocketAddr),
}

/// The SSH server. Clones share everything.
#[derive(Debug, Clone)]
pub struct Ssh {
    engine: Engine,
    settings: Arc<Settings>,
    config: Arc<Config>,
    places: Arc<Semaphore>,
    strangers: Arc<Strangers>,
    stop: CancellationToken,
}

impl Ssh {
    /// `stop` ends every connection.
    pub fn new(engine: Engine, host_key: HostKey, settings: Settings, stop: CancellationToken) -> Self {
        Self {
            engine,
            settings: Arc::new(settings),
            config: Arc::new(config(host_key)),
            places: Arc::new(Semaphore::new(MAX_CONNECTIONS)),
            strangers: Arc::default(),
            stop,
        }
    }

    /// Serves strangers until the server is stopped.
    pub async fn listen(&self, listener: TcpListener) {
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                () = self.stop.cancelled() => return,
            };
            match accepted {
                Ok((stream, peer)) => {
                    // Small packets must not wait for others.
                    stream.set_nodelay(true).ok();
                    // One too many is closed at once, which costs us nothing more.
                    let Some(place) = Strangers::place(&self.strangers, peer.ip()) else { continue };
                    let ssh = self.clone();
                    tokio::spawn(async move { ssh.serve(stream, Caller::Stranger(peer), Some(place)).await });
                }
                Err(error) => {
                    tracing::warn!("could not accept an SSH connection: {error}");
                    sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    /// Serves one connection of a known caller to its end.
    pub async fn serve_known(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        who: Principal,
    ) {
        self.serve(stream, Caller::Owner(who), None).await;
    }

    async fn serve(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        caller: Caller,
        stranger: Option<StrangerPlace>,
    ) {
        let Ok(_place) = Arc::clone(&self.places).try_acquire_owned() else { return };
        let (cut, channels, login) = (self.stop.child_token(), Channels::new(), Arc::new(SetOnce::new()));
        let _cut_at_the_end = cut.clone().drop_guard();
        let connection = Connection::new(
            self.engine.clone(),
            Arc::clone(&self.settings),
            caller,
            Arc::clone(&channels),
            Arc::clone(&login),
        );
        let stream = Cut::new(stream, cut.clone());
        let begun = timeout(LOGIN_WITHIN, run_stream(Arc::clone(&self.config), stream, connection)).await;
        let Ok(Ok(mut session)) = begun else { return };
        let handle = session.handle();
        // The session is a task of its own, which ends when its stream does.
        tokio::select! {
            ended = &mut session => return tell_end(ended),
            () = sleep(LOGIN_WITHIN) => {}
            _ = login.wait() => {}
        }
        drop(stranger);
        if let Some(logged_in) = login.get() {
            tokio::select! {
                ended = &mut session => return tell_end(ended),
                () = self.ended(logged_in) => {}
                () = self.stop.cancelled() => {}
            }
        }
        // Told only if the client listens; it is cut off in any case.
        let goodbye = handle.disconnect(Disconnect::ByApplication, "goodbye".to_owned(), String::new());
        drop(timeout(ACCEPT_PAUSE, goodbye).await);
        drop(timeout(ACCEPT_PAUSE, &mut session).await);
        channels.close_all();
    }

    /// Returns when the login is no longer valid.
    async fn ended(&self, LoggedIn { login, public_key }: &LoggedIn) {
        let unbound = async {
            match public_key {
                Some(key) => self.engine.ssh_key_removed(&login.who, key).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = self.engine.principal_ended(&login.who) => {}
            () = unbound => {}
        }
    }
}

fn tell_end(ended: Result<(), russh::Error>) {
    if let Err(error) = ended {
        tracing::debug!("an SSH connection ended: {error}");
    }
}

/// The comment is for clients that look for this name to learn the order of the arguments of `SYMLINK`.
const SERVER_ID: &str = concat!("SSH-2.0-Warren_", env!("CARGO_PKG_VERSION"), " like OpenSSH");

fn config(host_key: HostKey) -> Config {
    Config {
        server_id: SshId::Standard(Cow::Borrowed(SERVER_ID)),
        methods: (&[russh::MethodKind::PublicKey, russh::MethodKind::Password][..]).into(),
        auth_rejection_time: REFUSAL_TIME,
        auth_rejection_time_initial: Some(std::time::Duration::ZERO),
        keys: vec![host_key.0],
        window_size: WINDOW_BYTES,
        maximum_packet_size: PACKET_BYTES,
        // Its queues are not used; see `connection.rs`.
        channel_buffer_size: 1,
        event_buffer_size: 64,
        max_auth_attempts: MAX_LOGIN_ATTEMPTS,
        inactivity_timeout: None,
        keepalive_interval: Some(ASK_ALIVE_EVERY),
        keepalive_max: MAX_SILENT_ASKS,
        nodelay: true,
        ..Config::default()
    }
}

/// Those who have not logged in yet, by address.
#[derive(Debug)]
struct Strangers {
    places: Arc<Semaphore>,
    by_address: Mutex<HashMap<IpAddr, usize>>,
}

impl Default for Strangers {
    fn default() -> Self {
        Self { places: Arc::new(Semaphore::new(MAX_STRANGERS)), by_address: Mutex::default() }
    }
}

/// Held until the stranger has logged in or is gone.
struct StrangerPlace {
    strangers: Arc<Strangers>,
    address: IpAddr,
    _place: OwnedSemaphorePermit,
}

impl Strangers {
    fn place(strangers: &Arc<Self>, address: IpAddr) -> Option<StrangerPlace> {
        let place = Arc::clone(&strangers.places).try_acquire_owned().ok()?;
        let mut by_address = strangers.by_address.lock().unwrap_or_else(PoisonError::into_inner);
        let count = by_address.entry(address).or_default();
        if *count >= MAX_STRANGERS_EACH {
            return None;
        }
        *count += 1;
        Some(StrangerPlace { strangers: Arc::clone(strangers), address, _place: place })
    }
}

impl Drop for StrangerPlace {
    fn drop(&mut self) {
        let mut by_address = self.strangers.by_address.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = by_address.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                by_address.remove(&self.address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_address_cannot_shut_out_the_others() {
        let strangers = Arc::<Strangers>::default();
        let (one, other) = (IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 0, 0, 2]));
        let flood: Vec<_> = (0..MAX_STRANGERS).filter_map(|_| Strangers::place(&strangers, one)).collect();
        assert_eq!(flood.len(), MAX_STRANGERS_EACH);
        assert!(Strangers::place(&strangers, one).is_none());
        assert!(Strangers::place(&strangers, other).is_some());
        drop(flood);
        assert!(Strangers::place(&strangers, one).is_some());
        assert!(strangers.by_address.lock().unwrap().is_empty());
    }
}

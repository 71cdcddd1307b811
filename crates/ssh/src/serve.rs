//! Accepting connections, and ending them: after a log-out, a revoked key, a login that never comes.

use std::{
    borrow::Cow,
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

use engine::{Engine, Principal};
use russh::{
    Disconnect, SshId,
    server::{Config, run_stream},
};
use sandbox::KeyId;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpListener,
    sync::{Semaphore, SetOnce},
    time::{Instant, sleep, sleep_until, timeout, timeout_at},
};
use tokio_util::sync::CancellationToken;

use crate::{
    HostKey, Settings,
    channel::Channels,
    connection::{Connection, LoggedIn},
    cut::Cut,
    limits::{
        ACCEPT_PAUSE, ASK_ALIVE_EVERY, LOGIN_WITHIN, MAX_LOGIN_ATTEMPTS, MAX_OWNER_CONNECTIONS,
        MAX_SILENT_ASKS, MAX_STRANGERS, MAX_STRANGERS_EACH, PACKET_BYTES, REFUSAL_TIME, WINDOW_BYTES,
    },
    places::{Place, Places},
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
    /// The places of clients that have not logged in yet, by address.
    strangers: Arc<Places<IpAddr>>,
    /// The places of clients that have, by key.
    guests: Arc<Places<Option<KeyId>>>,
    /// The owner's own, so that nobody else can use them up.
    owners: Arc<Semaphore>,
    stop: CancellationToken,
}

impl Ssh {
    /// `stop` ends every connection.
    pub fn new(engine: Engine, host_key: HostKey, settings: Settings, stop: CancellationToken) -> Self {
        let guests = Places::new(settings.max_connections, settings.max_connections_each);
        Self {
            engine,
            settings: Arc::new(settings),
            config: Arc::new(config(host_key)),
            strangers: Places::new(MAX_STRANGERS, MAX_STRANGERS_EACH),
            guests,
            owners: Arc::new(Semaphore::new(MAX_OWNER_CONNECTIONS)),
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
                    let Some(place) = self.strangers.take(peer.ip()) else { continue };
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
        let Ok(_place) = self.owners.try_acquire() else { return };
        self.serve(stream, Caller::Owner(who), None).await;
    }

    async fn serve(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        caller: Caller,
        stranger: Option<Place<IpAddr>>,
    ) {
        // One deadline for all that comes before the login.
        let deadline = Instant::now() + LOGIN_WITHIN;
        let (cut, channels, login) = (self.stop.child_token(), Channels::new(), Arc::new(SetOnce::new()));
        let _cut_at_the_end = cut.clone().drop_guard();
        let connection = Connection::new(
            self.engine.clone(),
            Arc::clone(&self.settings),
            caller,
            Arc::clone(&self.guests),
            Arc::clone(&channels),
            Arc::clone(&login),
        );
        let stream = Cut::new(stream, cut.clone());
        let begun = timeout_at(deadline, run_stream(Arc::clone(&self.config), stream, connection)).await;
        let Ok(Ok(mut session)) = begun else { return };
        let handle = session.handle();
        // The session is a task of its own, which ends when its stream does.
        tokio::select! {
            ended = &mut session => return tell_end(ended),
            () = sleep_until(deadline) => {}
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

//! One connection: who logs in, and what its channels are asked to do. Nothing here waits for a sandbox: that is done
//! by the task of each channel.

use std::{collections::HashMap, net::IpAddr, sync::Arc};

use bytes::Bytes;
use engine::{Engine, Principal, Target};
use russh::{
    ChannelId, ChannelOpenFailure, ChannelWriteHalf, Disconnect, MethodKind, MethodSet, Pty, Sig,
    keys::Certificate,
    server::{Auth, ChannelOpenHandle, Handler, Msg, PublicKeyOffer, Session, VerifiedPublicKey},
};
use sandbox::{Error, ErrorKind, KeyId};
use tokio::{sync::SetOnce, time::Instant};
use tokio_util::sync::CancellationToken;

use crate::{
    Caller, Settings,
    authority::Permissions,
    channel::{self, Channel, Channels},
    command::{self, Control, Preparation, Program, line_of, terminal_modes, terminal_size},
    forward,
    limits::{MAX_LISTENERS, MAX_VARIABLE_BYTES, MAX_VARIABLES},
    login::{Login, call},
    places::{Place, Places},
    sftp, words,
};

const SFTP: &str = "sftp";

/// A connection's state, of which there is one for each.
pub(crate) struct Connection {
    engine: Engine,
    settings: Arc<Settings>,
    caller: Caller,
    begun: Instant,
    guests: Arc<Places<Option<KeyId>>>,
    /// Its place among those who have logged in. The owner needs none.
    place: Option<Place<Option<KeyId>>>,
    /// The caller that has proven who it is, just before the login.
    accepted: Option<Accepted>,
    /// Set once, when the client has logged in.
    login: Arc<SetOnce<LoggedIn>>,
    channels: Arc<Channels>,
    /// Session channels that have not been asked to do anything yet.
    waiting: HashMap<ChannelId, (russh::ChannelWriteHalf<Msg>, Preparation, channel::Place)>,
    /// Ports inside that are listened on, by number.
    listeners: HashMap<u32, CancellationToken>,
    /// The last refusal of a login, for the audit.
    refusal: Option<Error>,
}

/// An accepted login.
struct Accepted {
    name: String,
    who: Principal,
    permissions: Permissions,
    public_key: Option<Vec<u8>>,
}

/// A login, and what it was proven by.
#[derive(Debug)]
pub(crate) struct LoggedIn {
    pub(crate) login: Arc<Login>,
    /// The public key, if it was one that is bound to a key.
    pub(crate) public_key: Option<Vec<u8>>,
}

impl Connection {
    pub(crate) fn new(
        engine: Engine,
        settings: Arc<Settings>,
        caller: Caller,
        guests: Arc<Places<Option<KeyId>>>,
        channels: Arc<Channels>,
        login: Arc<SetOnce<LoggedIn>>,
    ) -> Self {
        Self {
            engine,
            settings,
            caller,
            begun: Instant::now(),
            guests,
            place: None,
            accepted: None,
            login,
            channels,
            waiting: HashMap::new(),
            listeners: HashMap::new(),
            refusal: None,
        }
    }

    fn peer(&self) -> Option<IpAddr> {
        match &self.caller {
            Caller::Stranger(address) => Some(address.ip()),
            Caller::Owner(_) => None,
        }
    }

    fn login(&self) -> Option<Arc<Login>> {
        self.login.get().map(|logged_in| Arc::clone(&logged_in.login))
    }

    fn accept(
        &mut self,
        name: &str,
        who: Principal,
        permissions: Permissions,
        public_key: Option<Vec<u8>>,
    ) -> Auth {
        self.refusal = None;
        self.accepted = Some(Accepted { name: name.to_owned(), who, permissions, public_key });
        Auth::Accept
    }

    fn refuse(&mut self, error: Error) -> Auth {
        self.refusal = Some(error);
        Auth::Reject { proceed_with_methods: Some(methods()), partial_success: false }
    }

    /// Takes a place among those who have logged in.
    fn take_place(&mut self, who: &Principal) -> Result<(), Error> {
        if let Caller::Stranger(_) = self.caller {
            self.place = Some(self.guests.take(who.key.clone()).ok_or_else(too_many)?);
        }
        Ok(())
    }

    /// Takes a session channel that is asked to run something. Answers the client if that is not possible.
    fn begin(&mut self, id: ChannelId, session: &mut Session) -> Result<Option<Begun>, russh::Error> {
        let (Some(login), Some((writer, preparation, place))) = (self.login(), self.waiting.remove(&id))
        else {
            session.channel_failure(id)?;
            return Ok(None);
        };
        let (channel, controls) = self.channels.begin(writer, session.handle(), place);
        session.channel_success(id)?;
        Ok(Some(Begun { login, channel, preparation, controls }))
    }
}

/// A session channel that is about to do something.
struct Begun {
    login: Arc<Login>,
    channel: Channel,
    preparation: Preparation,
    controls: tokio::sync::mpsc::Receiver<Control>,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.channels.close_all();
        let engine = self.engine.clone();
        if let Some(logged_in) = self.login.get() {
            let login = Arc::clone(&logged_in.login);
            tokio::spawn(async move { login.leave().await });
        } else if let Some(refusal) = self.refusal.take() {
            let record = call("login".to_owned(), self.begun.elapsed(), Some(&refusal), None);
            tokio::spawn(async move { engine.record_unknown_call(record).await });
        }
    }
}

fn methods() -> MethodSet {
    MethodSet::from(&[MethodKind::PublicKey, MethodKind::Password][..])
}

fn refused() -> Error {
    Error::new(ErrorKind::Unauthenticated, "unknown key")
}

fn too_many() -> Error {
    Error::new(ErrorKind::LimitReached, "too many SSH connections are open: by this key, or by all together")
}

/// Returns the name of a client program from its first line: `SSH-2.0-OpenSSH_9.2p1 Debian-2`.
fn client_name(id: &[u8]) -> String {
    let line = String::from_utf8_lossy(id);
    let name = line.strip_prefix("SSH-2.0-").unwrap_or(&line);
    name.chars().filter(|character| !character.is_control()).collect()
}

impl Handler for Connection {
    type Error = russh::Error;

    async fn auth_none(&mut self, user: &str) -> Result<Auth, Self::Error> {
        Ok(match &self.caller {
            Caller::Owner(who) => {
                let who = who.clone();
                self.accept(user, who, Permissions::ALL, None)
            }
            Caller::Stranger(address) if self.settings.is_dev => {
                let who = Principal::developer(format!("ssh from {}", address.ip()));
                self.accept(user, who, Permissions::ALL, None)
            }
            // Every client asks this first, to learn the other ways.
            Caller::Stranger(_) => {
                Auth::Reject { proceed_with_methods: Some(methods()), partial_success: false }
            }
        })
    }

    async fn auth_password(&mut self, user: &str, password: &str) -> Result<Auth, Self::Error> {
        Ok(match self.engine.authenticate_key(password).await {
            Ok(who) => self.accept(user, who, Permissions::ALL, None),
            Err(error) => self.refuse(error),
        })
    }

    async fn auth_publickey_offered(
        &mut self,
        _user: &str,
        offer: PublicKeyOffer<'_>,
    ) -> Result<Auth, Self::Error> {
        // The key of a certificate is offered like any other, so where there are certificates only the signed request
        // tells.
        if !self.settings.authorities.is_empty() {
            return Ok(Auth::Accept);
        }
        let Ok(key) = offer.public_key.to_bytes() else { return Ok(self.refuse(refused())) };
        Ok(match self.engine.authenticate_ssh_key(&key).await {
            Ok(_) => Auth::Accept,
            Err(error) => self.refuse(error),
        })
    }

    async fn auth_publickey(&mut self, user: &str, key: VerifiedPublicKey<'_>) -> Result<Auth, Self::Error> {
        // SHA-1 proves nothing any more.
        if matches!(key.algorithm, russh::keys::Algorithm::Rsa { hash: None }) {
            return Ok(self.refuse(refused()));
        }
        let Ok(key) = key.public_key.to_bytes() else { return Ok(self.refuse(refused())) };
        Ok(match self.engine.authenticate_ssh_key(&key).await {
            Ok(who) => self.accept(user, who, Permissions::ALL, Some(key)),
            Err(error) => self.refuse(error),
        })
    }

    async fn auth_openssh_certificate(
        &mut self,
        user: &str,
        certificate: &Certificate,
    ) -> Result<Auth, Self::Error> {
        let settings = Arc::clone(&self.settings);
        Ok(match settings.authorities.principal(&self.engine, certificate, self.peer()).await {
            Ok((who, permissions)) => self.accept(user, who, permissions, None),
            Err(error) => self.refuse(error),
        })
    }

    async fn auth_succeeded(&mut self, session: &mut Session) -> Result<(), Self::Error> {
        let Some(Accepted { name, who, permissions, public_key }) = self.accepted.take() else {
            return Ok(());
        };
        let (engine, client) = (self.engine.clone(), client_name(session.remote_sshid()));
        let login = Login::new(engine, who, permissions, &self.settings, &name, client);
        let taken = self.take_place(&login.who);
        match &taken {
            // The library asks once only.
            Ok(()) => drop(self.login.set(LoggedIn { login: Arc::clone(&login), public_key })),
            Err(error) => session.disconnect(Disconnect::TooManyConnections, &error.to_string(), "")?,
        }
        let begun = self.begun;
        tokio::spawn(async move { login.record("login", begun, taken.err().as_ref()).await });
        Ok(())
    }

    async fn channel_open_session(
        &mut self,
        channel: russh::Channel<Msg>,
        reply: ChannelOpenHandle,
        _session: &mut Session,
    ) -> Result<(), Self::Error> {
        match self.channels.place() {
            Some(place) => {
                let writer = written_only(channel);
                self.waiting.insert(writer.id(), (writer, Preparation::default(), place));
                reply.accept().await;
            }
            None => reply.reject(ChannelOpenFailure::ResourceShortage).await,
        }
        Ok(())
    }

    async fn channel_open_direct_tcpip(
        &mut self,
        channel: russh::Channel<Msg>,
        host: &str,
        port: u32,
        _originator: &str,
        _originator_port: u32,
        reply: ChannelOpenHandle,
        session: &mut Session,
    ) -> Result<(), Self::Error> {
        let Some(login) = self.login() else { return Ok(()) };
        match forward::target(&login, host, port) {
            Ok(target) => self.open_stream(login, channel, target, reply, session).await,
            Err(error) => {
                let since = Instant::now();
                let action = format!("connect {host}:{port}");
                tokio::spawn(async move { login.record(action, since, Some(&error)).await });
                reply.reject(ChannelOpenFailure::AdministrativelyProhibited).await;
            }
        }
        Ok(())
    }

    async fn channel_open_direct_streamlocal(
        &mut self,
        channel: russh::Channel<Msg>,
        path: &str,
        reply: ChannelOpenHandle,
        session: &mut Session,
    ) -> Result<(), Self::Error> {
        let Some(login) = self.login().filter(|login| login.permissions.forwarding) else { return Ok(()) };
        self.open_stream(login, channel, Target::Unix(path.to_owned()), reply, session).await;
        Ok(())
    }

    async fn channel_open_confirmation(
        &mut self,
        id: ChannelId,
        _packet: u32,
        _window: u32,
        _session: &mut Session,
    ) -> Result<(), Self::Error> {
        // A channel that we opened, whose task will take it over: its input may come at once.
        self.channels.prepare(id);
        Ok(())
    }

    async fn channel_close(&mut self, id: ChannelId, _session: &mut Session) -> Result<(), Self::Error> {
        self.waiting.remove(&id);
        self.channels.close(id);
        Ok(())
    }

    async fn channel_eof(&mut self, id: ChannelId, _session: &mut Session) -> Result<(), Self::Error> {
        if let Some(input) = self.channels.input(id) {
            input.end();
        }
        Ok(())
    }

    async fn data(&mut self, id: ChannelId, data: &[u8], session: &mut Session) -> Result<(), Self::Error> {
        let Some(input) = self.channels.input(id) else { return Ok(()) };
        input.push(Bytes::copy_from_slice(data));
        if self.channels.flow.admit(&input).await.is_err() {
            let told = "warren: too much input waits for this command while its output is not read\r\n";
            session.extended_data(id, 1, told)?;
            session.close(id)?;
            self.channels.close(id);
        }
        Ok(())
    }

    fn adjust_window(&mut self, _id: ChannelId, _current: u32) -> u32 {
        self.channels.flow.window()
    }

    async fn pty_request(
        &mut self,
        id: ChannelId,
        term: &str,
        cols: u32,
        rows: u32,
        _width: u32,
        _height: u32,
        modes: &[(Pty, u32)],
        session: &mut Session,
    ) -> Result<(), Self::Error> {
        let is_permitted = self.login().is_some_and(|login| login.permissions.terminal);
        match self.waiting.get_mut(&id).filter(|_| is_permitted) {
            Some((_, preparation, _)) => {
                preparation.terminal = Some(terminal_size(cols, rows));
                preparation.terminal_modes = terminal_modes(modes);
                if !term.is_empty() && term.len() <= MAX_VARIABLE_BYTES && !term.contains('\0') {
                    preparation.env.insert("TERM".to_owned(), term.to_owned());
                }
                session.channel_success(id)
            }
            None => session.channel_failure(id),
        }
    }

    async fn env_request(
        &mut self,
        id: ChannelId,
        name: &str,
        value: &str,
        session: &mut Session,
    ) -> Result<(), Self::Error> {
        let is_fine = self.settings.accepts_env(name)
            && !name.contains(['=', '\0'])
            && !value.contains('\0')
            && name.len() + value.len() <= MAX_VARIABLE_BYTES;
        match self.waiting.get_mut(&id).filter(|_| is_fine) {
            Some((_, preparation, _)) if preparation.env.len() < MAX_VARIABLES => {
                preparation.env.insert(name.to_owned(), value.to_owned());
                session.channel_success(id)
            }
            _ => session.channel_failure(id),
        }
    }

    async fn shell_request(&mut self, id: ChannelId, session: &mut Session) -> Result<(), Self::Error> {
        if let Some(Begun { login, channel, preparation, controls }) = self.begin(id, session)? {
            tokio::spawn(command::run(login, channel, Program::Shell, preparation, controls));
        }
        Ok(())
    }

    async fn exec_request(
        &mut self,
        id: ChannelId,
        line: &[u8],
        session: &mut Session,
    ) -> Result<(), Self::Error> {
        if let Some(Begun { login, channel, preparation, controls }) = self.begin(id, session)? {
            match line_of(line) {
                Ok(line) => {
                    let program = Program::Line(line);
                    tokio::spawn(command::run(login, channel, program, preparation, controls));
                }
                Err(error) => drop(tokio::spawn(command::refuse(login, channel, error))),
            }
        }
        Ok(())
    }

    async fn subsystem_request(
        &mut self,
        id: ChannelId,
        name: &str,
        session: &mut Session,
    ) -> Result<(), Self::Error> {
        if name != SFTP {
            return session.channel_failure(id);
        }
        if let Some(Begun { login, channel, .. }) = self.begin(id, session)? {
            tokio::spawn(sftp::run(login, channel));
        }
        Ok(())
    }

    async fn window_change_request(
        &mut self,
        id: ChannelId,
        cols: u32,
        rows: u32,
        _width: u32,
        _height: u32,
        session: &mut Session,
    ) -> Result<(), Self::Error> {
        let size = terminal_size(cols, rows);
        match self.waiting.get_mut(&id) {
            Some((_, preparation, _)) if preparation.terminal.is_some() => preparation.terminal = Some(size),
            _ => self.channels.control(id, Control::Resize(size)),
        }
        session.channel_success(id)
    }

    async fn signal(
        &mut self,
        id: ChannelId,
        signal: Sig,
        _session: &mut Session,
    ) -> Result<(), Self::Error> {
        if let Some(number) = words::signal_number(&signal) {
            self.channels.control(id, Control::Signal(number));
        }
        Ok(())
    }

    async fn tcpip_forward(
        &mut self,
        address: &str,
        port: &mut u32,
        session: &mut Session,
    ) -> Result<bool, Self::Error> {
        let Some(login) = self.login().filter(|_| self.listeners.len() < MAX_LISTENERS) else {
            return Ok(false);
        };
        // An answer is needed before the next request; the sandbox has its own deadline for it.
        let listener = match forward::listen(&login, *port).await {
            Ok(listener) => listener,
            Err(error) => {
                tracing::debug!(%error, "a port inside is not listened on");
                return Ok(false);
            }
        };
        *port = listener.port().into();
        let stop = CancellationToken::new();
        self.listeners.insert(*port, stop.clone());
        let (handle, channels) = (session.handle(), Arc::clone(&self.channels));
        tokio::spawn(forward::serve_listener(listener, address.to_owned(), handle, channels, stop));
        Ok(true)
    }

    async fn cancel_tcpip_forward(
        &mut self,
        _address: &str,
        port: u32,
        _session: &mut Session,
    ) -> Result<bool, Self::Error> {
        Ok(match self.listeners.remove(&port) {
            Some(stop) => {
                stop.cancel();
                true
            }
            None => false,
        })
    }
}

impl Connection {
    /// Connects to a port or socket inside, and accepts the channel when that has worked.
    async fn open_stream(
        &mut self,
        login: Arc<Login>,
        channel: russh::Channel<Msg>,
        target: Target,
        reply: ChannelOpenHandle,
        session: &mut Session,
    ) {
        let Some(place) = self.channels.place() else {
            return reply.reject(ChannelOpenFailure::ResourceShortage).await;
        };
        let (channel, _controls) = self.channels.begin(written_only(channel), session.handle(), place);
        tokio::spawn(async move {
            match forward::connect(&login, target).await {
                Ok(stream) => {
                    reply.accept().await;
                    forward::carry(channel, stream).await;
                }
                Err(_recorded) => reply.reject(ChannelOpenFailure::ConnectFailed).await,
            }
        });
    }
}

/// Input is taken from the library's calls, so the channel's own queue, which would fill up, is not needed.
fn written_only(channel: russh::Channel<Msg>) -> ChannelWriteHalf<Msg> {
    channel.split().1
}

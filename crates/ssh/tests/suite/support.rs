//! The parts that the stories share: a server over real sandboxes, and a client.

use std::{borrow::Cow, net::SocketAddr, sync::Arc, time::Duration};

use engine::{Engine, EngineConfig, ManualClock, NewKey, Principal, SandboxRef, Store};
use russh::{
    ChannelMsg, Sig,
    client::{self, AuthResult, Handle, Msg},
    keys::{
        PrivateKey, PrivateKeyWithHashAlg, PublicKey, PublicKeyOrCertificate,
        ssh_key::private::{Ed25519Keypair, Ed25519PrivateKey},
    },
};
use sandbox::{KeySpec, SandboxSpec};
use ssh::{HostKey, Settings, Ssh};
use tempfile::TempDir;
use test_backend::TestBackend;
use tokio::{io::DuplexStream, net::TcpListener, sync::mpsc, task::JoinHandle};
use tokio_util::sync::CancellationToken;

/// No story takes this long, unless something hangs.
pub(crate) const PATIENCE: Duration = Duration::from_secs(90);

pub(crate) async fn in_time<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, work).await.expect("nothing hangs")
}

/// A daemon's engine with an SSH server in front.
pub(crate) struct World {
    pub(crate) engine: Engine,
    pub(crate) clock: ManualClock,
    pub(crate) owner: Principal,
    pub(crate) address: SocketAddr,
    pub(crate) ssh: Ssh,
    pub(crate) stop: CancellationToken,
    _home: TempDir,
}

impl World {
    pub(crate) async fn new() -> Self {
        Self::with(Settings::default()).await
    }

    pub(crate) async fn with(settings: Settings) -> Self {
        let home = tempfile::tempdir().unwrap();
        let store = Store::open(home.path()).unwrap();
        let backend = Arc::new(TestBackend::new());
        let (config, clock) = (EngineConfig::new(home.path()), ManualClock::default());
        let engine = Engine::open_with_clock(config, store, backend, Arc::new(clock.clone())).await.unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let stop = CancellationToken::new();
        let host_key = HostKey::load_or_make(home.path()).unwrap();
        let ssh = Ssh::new(engine.clone(), host_key, settings, stop.clone());
        let server = ssh.clone();
        tokio::spawn(async move { server.listen(listener).await });
        Self { engine, clock, owner: Principal::operator("tester"), address, ssh, stop, _home: home }
    }

    pub(crate) async fn sandbox(&self, name: &str) -> SandboxRef {
        self.sandbox_in(name, "default").await
    }

    pub(crate) async fn sandbox_in(&self, name: &str, namespace: &str) -> SandboxRef {
        let spec = SandboxSpec {
            name: Some(name.parse().unwrap()),
            namespace: namespace.parse().unwrap(),
            ..SandboxSpec::default()
        };
        self.engine.create_sandbox(&self.owner, spec).await.unwrap().id.into()
    }

    pub(crate) async fn key(&self, label: &str, spec: KeySpec) -> NewKey {
        let spec = KeySpec { label: Some(label.to_owned()), ..spec };
        self.engine.create_key(&self.owner, spec).await.unwrap()
    }

    /// A key of the daemon's with a private key of SSH that is bound to it.
    pub(crate) async fn ssh_key(&self, label: &str, spec: KeySpec) -> (NewKey, PrivateKey) {
        let (key, private) = (self.key(label, spec).await, private_key(label));
        self.engine.add_ssh_key(&self.owner, label, &public_line(private.public_key())).await.unwrap();
        (key, private)
    }

    pub(crate) async fn connect(&self) -> Client {
        self.connect_with(client::Config::default()).await
    }

    pub(crate) async fn connect_with(&self, config: client::Config) -> Client {
        let (forwarded, incoming) = mpsc::unbounded_channel();
        let events = events(forwarded);
        let handle = in_time(client::connect(Arc::new(config), self.address, events)).await.unwrap();
        Client { handle, incoming }
    }

    /// Logs in with a new key that may do everything.
    pub(crate) async fn login(&self, name: &str) -> Client {
        let key =
            self.key(&format!("login-{}", name.replace(['/', '+', ':'], "-")), KeySpec::default()).await;
        let mut client = self.connect().await;
        assert!(client.password(name, &key.secret).await);
        client
    }
}

impl World {
    /// A connection over the owner's own socket, and the server's end of it.
    pub(crate) fn dial_as_owner(&self) -> (DuplexStream, JoinHandle<()>) {
        let (ours, theirs) = tokio::io::duplex(64 * 1024);
        let (ssh, owner) = (self.ssh.clone(), self.owner.clone());
        (ours, tokio::spawn(async move { ssh.serve_known(theirs, owner).await }))
    }

    pub(crate) async fn login_as_owner(&self, name: &str) -> Client {
        let mut client = Client::over(self.dial_as_owner().0).await;
        let done = in_time(client.handle.authenticate_none(name)).await.unwrap();
        assert!(matches!(done, AuthResult::Success));
        client
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// The same for the same seed.
pub(crate) fn private_key(seed: &str) -> PrivateKey {
    let mut bytes = [7; Ed25519PrivateKey::BYTE_SIZE];
    for (slot, byte) in bytes.iter_mut().zip(seed.bytes()) {
        *slot = byte;
    }
    PrivateKey::from(Ed25519Keypair::from_seed(&bytes))
}

pub(crate) fn public_line(key: &PublicKey) -> String {
    format!("{} ana@laptop", key.to_openssh().unwrap())
}

pub(crate) fn events(forwarded: mpsc::UnboundedSender<russh::Channel<Msg>>) -> Events {
    Events { forwarded }
}

pub(crate) struct Events {
    forwarded: mpsc::UnboundedSender<russh::Channel<Msg>>,
}

impl client::Handler for Events {
    type Error = russh::Error;

    async fn check_server_key(&mut self, _key: &PublicKeyOrCertificate) -> Result<bool, Self::Error> {
        Ok(true)
    }

    async fn server_channel_open_forwarded_tcpip(
        &mut self,
        channel: russh::Channel<Msg>,
        _address: &str,
        _port: u32,
        _originator: &str,
        _originator_port: u32,
        reply: client::ChannelOpenHandle,
        _session: &mut client::Session,
    ) -> Result<(), Self::Error> {
        reply.accept().await;
        self.forwarded.send(channel).ok();
        Ok(())
    }
}

pub(crate) struct Client {
    pub(crate) handle: Handle<Events>,
    pub(crate) incoming: mpsc::UnboundedReceiver<russh::Channel<Msg>>,
}

/// The result of a command.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Ran {
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    pub(crate) status: Option<u32>,
    pub(crate) signal: Option<String>,
}

impl Ran {
    pub(crate) fn ok(stdout: &str) -> Self {
        Self { stdout: stdout.to_owned(), status: Some(0), ..Self::default() }
    }
}

impl Client {
    pub(crate) async fn over(stream: DuplexStream) -> Self {
        let (forwarded, incoming) = mpsc::unbounded_channel();
        let connecting = client::connect_stream(Arc::default(), stream, events(forwarded));
        Self { handle: in_time(connecting).await.unwrap(), incoming }
    }

    /// Returns when the server has ended the connection.
    pub(crate) async fn ended(&self) {
        in_time(async {
            while !self.handle.is_closed() {
                tokio::task::yield_now().await;
            }
        })
        .await;
    }

    pub(crate) async fn password(&mut self, name: &str, password: &str) -> bool {
        matches!(in_time(self.handle.authenticate_password(name, password)).await, Ok(AuthResult::Success))
    }

    pub(crate) async fn public_key(&mut self, name: &str, key: &PrivateKey) -> bool {
        let key = PrivateKeyWithHashAlg::new(Arc::new(key.clone()), None);
        matches!(in_time(self.handle.authenticate_publickey(name, key)).await, Ok(AuthResult::Success))
    }

    pub(crate) async fn session(&self) -> russh::Channel<Msg> {
        in_time(self.handle.channel_open_session()).await.unwrap()
    }

    pub(crate) async fn run(&self, line: &str) -> Ran {
        self.run_with(line, b"").await
    }

    /// Runs a command with this input.
    pub(crate) async fn run_with(&self, line: &str, input: &[u8]) -> Ran {
        let channel = self.session().await;
        channel.exec(true, line).await.unwrap();
        channel.data(input).await.unwrap();
        channel.eof().await.unwrap();
        finish(channel).await
    }
}

/// Everything that a channel still brings.
pub(crate) async fn finish(mut channel: russh::Channel<Msg>) -> Ran {
    let mut ran = Ran::default();
    while let Some(message) = in_time(channel.wait()).await {
        note(&mut ran, message);
    }
    ran
}

pub(crate) fn note(ran: &mut Ran, message: ChannelMsg) {
    match message {
        ChannelMsg::Data { data } => ran.stdout.push_str(&text(&data)),
        ChannelMsg::ExtendedData { data, ext: 1 } => ran.stderr.push_str(&text(&data)),
        ChannelMsg::ExitStatus { exit_status } => ran.status = Some(exit_status),
        ChannelMsg::ExitSignal { signal_name, .. } => {
            let name: Cow<'_, str> = match &signal_name {
                Sig::Custom(name) => name.as_str().into(),
                known => format!("{known:?}").into(),
            };
            ran.signal = Some(name.into_owned());
        }
        _ => {}
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Waits until a channel has printed this.
pub(crate) async fn printed(channel: &mut russh::Channel<Msg>, expected: &str) -> String {
    let mut ran = Ran::default();
    in_time(async {
        while !ran.stdout.contains(expected) {
            match channel.wait().await {
                Some(message) => note(&mut ran, message),
                None => panic!("it ended without {expected:?}: {ran:?}"),
            }
        }
    })
    .await;
    ran.stdout
}

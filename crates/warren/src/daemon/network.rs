//! The daemon on TCP: its address, how it authenticates clients, and how commands find it.

use std::{
    fmt, fs, io,
    net::{Ipv4Addr, SocketAddr},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    str::FromStr,
    sync::Arc,
    time::{Duration, Instant},
};

use engine::{Engine, Principal};
use frontends::http::{
    Authenticate, Authority, DevAuth, Gate, Hosts, KeyAuth, LimitSettings, Limits, Origin, Tls,
};
use frontends::links::BaseUrl;
use sandbox::{Error, ErrorKind, Result};
use serde::{Deserialize, Serialize};
use tokio::net::TcpListener;

use crate::{directories::Directories, env};

/// Default address of a daemon in the foreground.
const DEFAULT_ADDRESS: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 5555);
/// File in the run directory with the daemon's TCP address.
const NOTE_NAME: &str = "http.json";
/// How long a newly started daemon may take to listen, and how often its address note is checked.
const PATIENCE: Duration = Duration::from_secs(20);
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// Where to listen on TCP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Listen {
    Nowhere,
    At(SocketAddr),
}

impl FromStr for Listen {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        if text == "none" {
            return Ok(Self::Nowhere);
        }
        // The one name that people use and that needs no DNS lookup.
        let numeric = text
            .strip_prefix("localhost:")
            .map_or_else(|| text.to_owned(), |port| format!("127.0.0.1:{port}"));
        numeric.parse().map(Self::At).map_err(|_malformed| {
            Error::invalid(format!("{text:?} is not an address to listen on"))
                .with_hint("Use an address and a port, such as 127.0.0.1:5555 or [::1]:5555, or none.")
        })
    }
}

/// Certificate and key, in PEM files.
#[derive(Debug)]
pub(crate) struct TlsFiles {
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
}

/// The TCP options of `warren serve`.
#[derive(Debug)]
pub(crate) struct NetworkOptions {
    /// If absent, the variable or the default decides.
    pub(crate) listen: Option<Listen>,
    /// The default of the dialect that the daemon speaks, where that has its own.
    pub(crate) dialect_address: Option<SocketAddr>,
    pub(crate) is_dev: bool,
    pub(crate) tls: Option<TlsFiles>,
    pub(crate) allowed_hosts: Vec<Authority>,
    pub(crate) allowed_origins: Vec<Origin>,
    pub(crate) limits: LimitSettings,
}

/// The TCP settings, checked before the port is opened.
#[derive(Debug)]
pub(super) struct Plan {
    address: SocketAddr,
    tls: Option<Tls>,
    dev: Option<DevAuth>,
    hosts: Hosts,
    limits: LimitSettings,
}

impl Plan {
    /// None if the daemon does not listen on TCP. A daemon that a command started listens only if told to.
    pub(super) fn new(options: &NetworkOptions, is_detached: bool) -> Result<Option<Self>> {
        let of_variable = env::text(env::LISTEN).map(|text| text.parse()).transpose().map_err(of_variable)?;
        let default = options.dialect_address.unwrap_or(DEFAULT_ADDRESS);
        let unasked = if is_detached { Listen::Nowhere } else { Listen::At(default) };
        let address = match options.listen.or(of_variable).unwrap_or(unasked) {
            Listen::At(address) => address,
            Listen::Nowhere if options.is_dev || options.tls.is_some() => return Err(needs_address()),
            Listen::Nowhere => return Ok(None),
        };
        let dev = options.is_dev.then(|| DevAuth::for_address(address)).transpose()?;
        let tls = options
            .tls
            .as_ref()
            .map(|TlsFiles { certificate, key }| Tls::from_files(certificate, key))
            .transpose()?;
        let hosts = Hosts {
            allowed_hosts: options.allowed_hosts.clone(),
            allowed_origins: options.allowed_origins.clone(),
            is_tls: tls.is_some(),
        };
        Ok(Some(Self { address, tls, dev, hosts, limits: options.limits }))
    }

    /// Opens the port, and writes the address note.
    pub(super) async fn listen(self, directories: &Directories) -> Result<Network> {
        let Self { address, tls, dev, hosts, limits } = self;
        let failed = |error| cannot_listen(address, error);
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        let url = Url { is_tls: tls.is_some(), address: listener.local_addr().map_err(failed)? };
        let note = Note::write(directories, &url)?;
        Ok(Network { listener, tls, dev, hosts, limits, url, note })
    }
}

/// An open TCP port.
#[derive(Debug)]
pub(super) struct Network {
    pub(super) listener: TcpListener,
    pub(super) tls: Option<Tls>,
    pub(super) note: Note,
    dev: Option<DevAuth>,
    hosts: Hosts,
    limits: LimitSettings,
    url: Url,
}

impl Network {
    /// Access checks and rate limits.
    pub(super) fn gate(&self, engine: &Engine) -> Gate {
        let auth: Arc<dyn Authenticate> = match self.dev {
            Some(dev) => Arc::new(dev),
            None => Arc::new(KeyAuth::new(engine.clone())),
        };
        Gate::tcp(engine.clone(), auth, self.hosts.clone(), Arc::new(Limits::new(self.limits)))
    }

    /// Base URL of links for clients that do not use TCP.
    pub(super) fn base(&self) -> Option<BaseUrl> {
        self.url.to_string().parse().ok()
    }

    /// Logs the address and what is still missing.
    pub(super) async fn introduce(&self, engine: &Engine) {
        let url = &self.url;
        tracing::info!("MCP: {url}/mcp · REST: {url}/v1");
        if self.dev.is_some() {
            tracing::warn!("--dev: every program on this machine can do everything here, without a key");
            return;
        }
        if !url.is_tls && !url.address.ip().to_canonical().is_loopback() {
            tracing::warn!(
                "keys are sent unencrypted to {}: use --tls-cert and --tls-key, or allow only a proxy to connect",
                url.address
            );
        }
        // A failure to list keys is logged elsewhere.
        if engine.keys(&Principal::operator("daemon")).await.is_ok_and(|keys| keys.is_empty()) {
            tracing::info!(
                "no key exists yet, so no TCP client can connect: create one with `warren key create`"
            );
        }
    }
}

/// The daemon's URL on this machine.
#[derive(Debug, Clone, Copy)]
struct Url {
    is_tls: bool,
    address: SocketAddr,
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut address = self.address;
        // One cannot connect to the unspecified address.
        if address.ip().is_unspecified() {
            address.set_ip(Ipv4Addr::LOCALHOST.into());
        }
        write!(f, "{}://{address}", if self.is_tls { "https" } else { "http" })
    }
}

/// The address note: a file with the daemon's URL. Removed at the end.
#[derive(Debug)]
pub(crate) struct Note {
    path: PathBuf,
}

#[derive(Debug, Serialize, Deserialize)]
struct NoteBody {
    url: String,
    pid: u32,
}

impl Note {
    fn write(directories: &Directories, url: &Url) -> Result<Self> {
        let path = directories.run.join(NOTE_NAME);
        let failed = |error: io::Error| {
            Error::new(ErrorKind::Unavailable, format!("could not write {}", path.display()))
                .with_source(error)
        };
        let body = NoteBody { url: url.to_string(), pid: std::process::id() };
        let text = serde_json::to_vec(&body).map_err(|error| failed(error.into()))?;
        replace(&path, &text).map_err(failed)?;
        Ok(Self { path })
    }

    /// The daemon's TCP address, from the note in its run directory. Waits for a daemon that was just started.
    pub(crate) async fn wait_for_address(run: &Path) -> Result<SocketAddr> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(address) = Self::address(run) {
                return Ok(address);
            }
            if Instant::now() >= deadline {
                let message = format!("the daemon in {} does not listen on TCP", run.display());
                return Err(Error::new(ErrorKind::TimedOut, message)
                    .with_hint("Run `warren doctor` to see what this host lacks."));
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    fn address(run: &Path) -> Option<SocketAddr> {
        let body: NoteBody = serde_json::from_slice(&fs::read(run.join(NOTE_NAME)).ok()?).ok()?;
        body.url.split_once("://")?.1.parse().ok()
    }

    /// Called under the lock: an existing file belongs to a daemon that died.
    pub(super) fn remove_old(directories: &Directories) {
        remove(&directories.run.join(NOTE_NAME));
    }

    pub(super) fn remove(&self) {
        remove(&self.path);
    }
}

/// Written atomically, so that nobody reads half of it.
fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    use std::io::Write as _;
    let new = path.with_extension("json.new");
    let mut file = fs::OpenOptions::new().create(true).write(true).truncate(true).mode(0o600).open(&new)?;
    file.write_all(bytes)?;
    fs::rename(&new, path)
}

fn remove(path: &Path) {
    match fs::remove_file(path) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => tracing::warn!("could not remove {}: {error}", path.display()),
    }
}

fn of_variable(error: Error) -> Error {
    error.reworded(|words| format!("invalid {}: {words}", env::LISTEN))
}

fn needs_address() -> Error {
    Error::invalid("--dev and --tls-cert are for TCP, but this daemon does not listen on TCP")
        .with_hint("Give an address, such as --listen 127.0.0.1:5555.")
}

fn cannot_listen(address: SocketAddr, error: io::Error) -> Error {
    let hint = match error.kind() {
        io::ErrorKind::AddrInUse => {
            "Another program uses this address. Choose another with --listen: port 0 for any free port, or none."
        }
        io::ErrorKind::PermissionDenied => "Choose a port above 1023 with --listen.",
        _ => "Choose an address of this machine with --listen, or use --listen none.",
    };
    Error::new(ErrorKind::Unavailable, format!("could not listen on {address}: {error}"))
        .with_source(error)
        .with_hint(hint)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(listen: &str) -> NetworkOptions {
        NetworkOptions {
            listen: Some(listen.parse().unwrap()),
            dialect_address: None,
            is_dev: false,
            tls: None,
            allowed_hosts: Vec::new(),
            allowed_origins: Vec::new(),
            limits: LimitSettings::default(),
        }
    }

    #[test]
    fn addresses_are_read_and_wrong_ones_named() {
        let at = |text: &str| Listen::At(text.parse().unwrap());
        assert_eq!("none".parse::<Listen>().unwrap(), Listen::Nowhere);
        assert_eq!("localhost:80".parse::<Listen>().unwrap(), at("127.0.0.1:80"));
        assert_eq!("[::]:0".parse::<Listen>().unwrap(), at("[::]:0"));
        for wrong in ["", "5555", "127.0.0.1", "example.com:80", "localhost:", "127.0.0.1:99999"] {
            let error = wrong.parse::<Listen>().unwrap_err();
            assert!(error.to_string().contains(&format!("{wrong:?}")), "{error}");
        }
    }

    #[test]
    fn a_dialect_has_an_address_of_its_own_unless_told_otherwise() {
        let own = "127.0.0.1:8181".parse().unwrap();
        let plan = |listen| {
            let options = NetworkOptions { listen, dialect_address: Some(own), ..options("none") };
            Plan::new(&options, false).unwrap().unwrap().address
        };
        assert_eq!(plan(None), own);
        assert_eq!(plan(Some("127.0.0.1:0".parse().unwrap())), "127.0.0.1:0".parse().unwrap());
    }

    #[test]
    fn an_open_door_is_for_this_machine_only() {
        let dev = |listen| Plan::new(&NetworkOptions { is_dev: true, ..options(listen) }, false);
        assert!(dev("127.0.0.1:0").unwrap().unwrap().dev.is_some());
        assert!(dev("0.0.0.0:0").unwrap_err().to_string().contains("0.0.0.0:0"));
    }

    #[test]
    fn what_is_for_tcp_needs_tcp() {
        assert!(Plan::new(&options("none"), false).unwrap().is_none());
        let error = Plan::new(&NetworkOptions { is_dev: true, ..options("none") }, false).unwrap_err();
        assert!(crate::error::hint(&error).unwrap().contains("--listen"), "{error}");
    }

    #[tokio::test]
    async fn a_port_that_is_taken_is_named() {
        let place = tempfile::tempdir().unwrap();
        let directories = Directories { home: place.path().to_owned(), run: place.path().to_owned() };
        let first = Plan::new(&options("127.0.0.1:0"), false).unwrap().unwrap();
        let first = first.listen(&directories).await.unwrap();
        let text = fs::read_to_string(place.path().join(NOTE_NAME)).unwrap();
        assert!(text.contains(&format!("{{\"url\":\"{}\"", first.url)), "{text}");
        assert_eq!(Note::wait_for_address(place.path()).await.unwrap(), first.url.address);
        let address = first.url.address.to_string();
        let second = Plan::new(&options(&address), false).unwrap().unwrap();
        let error = second.listen(&directories).await.unwrap_err();
        assert!(
            error.to_string().contains(&address) && crate::error::hint(&error).unwrap().contains("--listen"),
            "{error}"
        );
        first.note.remove();
        assert!(!place.path().join(NOTE_NAME).exists());
    }

    #[test]
    fn everywhere_is_reached_here() {
        let url = |address: &str, is_tls| Url { is_tls, address: address.parse().unwrap() }.to_string();
        assert_eq!(url("0.0.0.0:80", false), "http://127.0.0.1:80");
        assert_eq!(url("[::1]:443", true), "https://[::1]:443");
    }
}

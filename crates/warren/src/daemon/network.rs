//! The daemon on TCP: its listeners, and how it authenticates clients.

use std::{
    io,
    net::{Ipv4Addr, SocketAddr},
    path::PathBuf,
    sync::Arc,
};

use engine::{Engine, Principal};
use frontends::{
    http::{Authenticate, Authority, DevAuth, Gate, Hosts, KeyAuth, LimitSettings, Limits, Origin, Tls},
    links::BaseUrl,
    mcp::Dialect,
    ports::PortDomain,
};
use sandbox::{Error, ErrorKind, Result};
use tokio::net::TcpListener;

use super::{
    address::{AlsoListen, Listen, MAX_FURTHER},
    note::{FurtherUrl, Note, Url},
};
use crate::{directories::Directories, env};

/// Default address of a daemon in the foreground.
const DEFAULT_ADDRESS: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 5555);

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
    /// The dialect of the first listener's plain paths.
    pub(crate) dialect: Dialect,
    /// The default of that dialect, where it has its own.
    pub(crate) dialect_address: Option<SocketAddr>,
    /// Further listeners, from the command line.
    pub(crate) also: Vec<AlsoListen>,
    /// Further listeners, from the configuration file: for every daemon that listens on TCP.
    pub(crate) also_configured: Vec<AlsoListen>,
    pub(crate) is_dev: bool,
    pub(crate) tls: Option<TlsFiles>,
    pub(crate) allowed_hosts: Vec<Authority>,
    pub(crate) allowed_origins: Vec<Origin>,
    pub(crate) port_domain: Option<PortDomain>,
    pub(crate) limits: LimitSettings,
}

impl NetworkOptions {
    /// Every address to listen on, with its plain dialect. A daemon that a command started listens only if told to.
    fn addresses(&self, is_detached: bool) -> Result<Vec<AlsoListen>> {
        let of_variable = env::text(env::LISTEN).map(|text| text.parse()).transpose().map_err(of_variable)?;
        let default = self.dialect_address.unwrap_or(DEFAULT_ADDRESS);
        let unasked = if is_detached { Listen::Nowhere } else { Listen::At(default) };
        let mut all = Vec::new();
        if let Listen::At(address) = self.listen.or(of_variable).unwrap_or(unasked) {
            all.push(AlsoListen { address, dialect: self.dialect });
        }
        all.extend(&self.also);
        if !is_detached || !all.is_empty() {
            all.extend(&self.also_configured);
        }
        refuse_surplus(&all)?;
        Ok(all)
    }
}

/// The TCP settings, checked before anything is changed.
#[derive(Debug)]
pub(super) struct Plan {
    listeners: Vec<Listener<Option<TcpListener>>>,
    tls: Option<Tls>,
    dev: Option<DevAuth>,
    hosts: Hosts,
    limits: LimitSettings,
}

/// One address, with what its plain paths speak.
#[derive(Debug)]
pub(super) struct Listener<S> {
    pub(super) address: SocketAddr,
    pub(super) plain: Dialect,
    pub(super) socket: S,
}

impl Plan {
    /// None if the daemon does not listen on TCP.
    pub(super) fn new(options: &NetworkOptions, is_detached: bool) -> Result<Option<Self>> {
        let addresses = options.addresses(is_detached)?;
        if addresses.is_empty() {
            return if options.is_dev || options.tls.is_some() { Err(needs_address()) } else { Ok(None) };
        }
        let mut dev = None;
        for also in addresses.iter().filter(|_| options.is_dev) {
            dev = Some(DevAuth::for_address(also.address)?);
        }
        let tls = options
            .tls
            .as_ref()
            .map(|TlsFiles { certificate, key }| Tls::from_files(certificate, key))
            .transpose()?;
        let hosts = Hosts {
            allowed_hosts: options.allowed_hosts.clone(),
            allowed_origins: options.allowed_origins.clone(),
            is_tls: tls.is_some(),
            port_domain: options.port_domain.clone(),
        };
        let listeners = addresses
            .into_iter()
            .map(|AlsoListen { address, dialect }| Listener { address, plain: dialect, socket: None })
            .collect();
        Ok(Some(Self { listeners, tls, dev, hosts, limits: options.limits }))
    }

    /// Opens the ports that are not open yet, except those in `held`, which a daemon still has that is to be replaced.
    /// Connections wait in the kernel's queue until [`Network`] is served.
    pub(super) async fn open_ports(&mut self, held: &[u16]) -> Result<()> {
        for listener in &mut self.listeners {
            let address = listener.address;
            if listener.socket.is_some() || held.contains(&address.port()) {
                continue;
            }
            let failed = |error| cannot_listen(address, error);
            let socket = TcpListener::bind(address).await.map_err(failed)?;
            listener.address = socket.local_addr().map_err(failed)?;
            listener.socket = Some(socket);
        }
        Ok(())
    }

    /// Opens what is left to open, and writes the address note.
    pub(super) async fn listen(mut self, directories: &Directories) -> Result<Network> {
        self.open_ports(&[]).await?;
        let Self { listeners, tls, dev, hosts, limits } = self;
        let open = |Listener { address, plain, socket }: Listener<Option<TcpListener>>| {
            socket.map(|socket| Listener { address, plain, socket })
        };
        let listeners: Vec<_> = listeners.into_iter().filter_map(open).collect();
        let url = |listener: &Listener<_>| Url { is_tls: tls.is_some(), address: listener.address };
        let urls: Vec<_> = listeners.iter().map(|listener| (url(listener), listener.plain.name)).collect();
        let Some(((first, _), further)) = urls.split_first() else { return Err(needs_address()) };
        let also = further
            .iter()
            .map(|(url, dialect)| FurtherUrl { url: url.to_string(), dialect: (*dialect).to_owned() });
        let note = Note::write(directories, first, also.collect())?;
        Ok(Network { listeners, tls, dev, hosts, limits, urls, note })
    }
}

/// The open ports.
#[derive(Debug)]
pub(super) struct Network {
    pub(super) listeners: Vec<Listener<TcpListener>>,
    pub(super) tls: Option<Tls>,
    pub(super) note: Note,
    dev: Option<DevAuth>,
    hosts: Hosts,
    limits: LimitSettings,
    /// As the listeners, with the names of their dialects.
    urls: Vec<(Url, &'static str)>,
}

impl Network {
    /// Returns the addresses that it listens on.
    pub(super) fn addresses(&self) -> Vec<SocketAddr> {
        self.listeners.iter().filter_map(|listener| listener.socket.local_addr().ok()).collect()
    }

    /// Access checks and rate limits, which all listeners share: another port gives nobody more.
    pub(super) fn gate(&self, engine: &Engine) -> Gate {
        let auth: Arc<dyn Authenticate> = match self.dev {
            Some(dev) => Arc::new(dev),
            None => Arc::new(KeyAuth::new(engine.clone())),
        };
        Gate::tcp(engine.clone(), auth, self.hosts.clone(), Arc::new(Limits::new(self.limits)))
    }

    /// Base URL of links for clients that do not use TCP.
    pub(super) fn base(&self) -> Option<BaseUrl> {
        self.urls.first()?.0.to_string().parse().ok()
    }

    /// Logs the addresses and what is still missing.
    pub(super) async fn introduce(&self, engine: &Engine) {
        for (n, (url, dialect)) in self.urls.iter().enumerate() {
            match n {
                0 => tracing::info!("MCP: {url}/mcp · REST: {url}/v1"),
                _ => tracing::info!("{dialect}: {url}/mcp · {url}/sse"),
            }
        }
        if self.dev.is_some() {
            tracing::warn!("--dev: every program on this machine can do everything here, without a key");
            return;
        }
        for (url, _) in &self.urls {
            if !url.is_tls && !url.address.ip().to_canonical().is_loopback() {
                tracing::warn!(
                    "keys are sent unencrypted to {}: use --tls-cert and --tls-key, or allow only a proxy to connect",
                    url.address
                );
            }
        }
        // A failure to list keys is logged elsewhere.
        if engine.keys(&Principal::operator("daemon")).await.is_ok_and(|keys| keys.is_empty()) {
            tracing::info!(
                "no key exists yet, so no TCP client can connect: create one with `warren key create`"
            );
        }
    }
}

fn refuse_surplus(all: &[AlsoListen]) -> Result<()> {
    if all.len() > MAX_FURTHER + 1 {
        let message = format!("{} further listeners are too many: the limit is {MAX_FURTHER}", all.len() - 1);
        return Err(Error::invalid(message).with_hint("Every dialect is also served at /mcp/DIALECT."));
    }
    for (n, also) in all.iter().enumerate() {
        if also.address.port() != 0 && all[..n].iter().any(|other| other.address == also.address) {
            let message = format!("two listeners have the same address, {}", also.address);
            return Err(
                Error::invalid(message).with_hint("Give each its own port in --listen and --also-listen.")
            );
        }
    }
    Ok(())
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
            "Another program uses this address. Choose another with --listen or --also-listen: port 0 for any free port, \
             or none."
        }
        io::ErrorKind::PermissionDenied => "Choose a port above 1023 with --listen or --also-listen.",
        _ => "Choose an address of this machine with --listen or --also-listen, or use --listen none.",
    };
    Error::new(ErrorKind::Unavailable, format!("could not listen on {address}: {error}"))
        .with_source(error)
        .with_hint(hint)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use frontends::mcp::NATIVE;

    use super::*;

    fn options(listen: &str) -> NetworkOptions {
        NetworkOptions {
            listen: Some(listen.parse().unwrap()),
            dialect: NATIVE,
            dialect_address: None,
            also: Vec::new(),
            also_configured: Vec::new(),
            is_dev: false,
            tls: None,
            allowed_hosts: Vec::new(),
            allowed_origins: Vec::new(),
            port_domain: None,
            limits: LimitSettings::default(),
        }
    }

    fn also(text: &str) -> Vec<AlsoListen> {
        vec![text.parse().unwrap()]
    }

    fn addresses(options: &NetworkOptions, is_detached: bool) -> Vec<String> {
        let all = options.addresses(is_detached).unwrap();
        all.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_dialect_has_an_address_of_its_own_unless_told_otherwise() {
        let own = "127.0.0.1:8181".parse().unwrap();
        let plan = |listen| {
            let options = NetworkOptions { listen, dialect_address: Some(own), ..options("none") };
            Plan::new(&options, false).unwrap().unwrap().listeners[0].address
        };
        assert_eq!(plan(None), own);
        assert_eq!(plan(Some("127.0.0.1:0".parse().unwrap())), "127.0.0.1:0".parse().unwrap());
    }

    #[test]
    fn further_listeners_come_after_the_first() {
        let both = NetworkOptions {
            also: also("127.0.0.1:1=microsandbox"),
            also_configured: also("127.0.0.1:2=mcp-sandbox"),
            ..options("127.0.0.1:3")
        };
        let expected = ["127.0.0.1:3=warren", "127.0.0.1:1=microsandbox", "127.0.0.1:2=mcp-sandbox"];
        assert_eq!(addresses(&both, false), expected);
        assert_eq!(addresses(&both, true), expected);
        let configured = NetworkOptions { also: Vec::new(), listen: Some(Listen::Nowhere), ..both };
        assert_eq!(addresses(&configured, false), ["127.0.0.1:2=mcp-sandbox"]);
        assert!(addresses(&configured, true).is_empty(), "a daemon that a command started");
    }

    #[test]
    fn the_same_address_twice_and_too_many_are_refused() {
        let twice = NetworkOptions { also: also("127.0.0.1:9=warren"), ..options("127.0.0.1:9") };
        let error = Plan::new(&twice, false).unwrap_err();
        assert!(error.to_string().contains("127.0.0.1:9"), "{error}");
        let any = also("127.0.0.1:0=warren");
        let most = NetworkOptions { also: any.repeat(MAX_FURTHER), ..options("127.0.0.1:0") };
        assert!(Plan::new(&most, false).is_ok());
        let more = NetworkOptions { also: any.repeat(MAX_FURTHER + 1), ..options("127.0.0.1:0") };
        assert!(Plan::new(&more, false).unwrap_err().to_string().contains("17"));
    }

    #[test]
    fn an_open_door_is_for_this_machine_only() {
        let dev = |listen| Plan::new(&NetworkOptions { is_dev: true, ..options(listen) }, false);
        assert!(dev("127.0.0.1:0").unwrap().unwrap().dev.is_some());
        assert!(dev("0.0.0.0:0").unwrap_err().to_string().contains("0.0.0.0:0"));
        let further =
            NetworkOptions { is_dev: true, also: also("0.0.0.0:7=warren"), ..options("127.0.0.1:0") };
        assert!(Plan::new(&further, false).unwrap_err().to_string().contains("0.0.0.0:7"));
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
        let directories = Directories::at(place.path().to_owned(), place.path().to_owned());
        let first = NetworkOptions { also: also("127.0.0.1:0=microsandbox"), ..options("127.0.0.1:0") };
        let first = Plan::new(&first, false).unwrap().unwrap();
        let first = first.listen(&directories).await.unwrap();
        let body = Note::read(place.path()).unwrap();
        let urls: Vec<_> = first.urls.iter().map(|(url, dialect)| (url.to_string(), *dialect)).collect();
        assert_eq!((body.url.as_str(), "warren"), (urls[0].0.as_str(), urls[0].1));
        assert_eq!(
            (body.also[0].url.as_str(), body.also[0].dialect.as_str()),
            (urls[1].0.as_str(), urls[1].1)
        );
        let address = first.listeners[0].address;
        assert_eq!(Note::wait_for_address(place.path()).await.unwrap(), address);
        let address = first.listeners[1].address.to_string();
        let second =
            NetworkOptions { also: also(&format!("{address}=mcp-sandbox")), ..options("127.0.0.1:0") };
        let mut second = Plan::new(&second, false).unwrap().unwrap();
        second.open_ports(&Note::ports(place.path())).await.unwrap();
        let error = second.open_ports(&[]).await.unwrap_err();
        assert!(
            error.to_string().contains(&address)
                && crate::error::hint(&error).unwrap().contains("--also-listen"),
            "{error}"
        );
        first.note.remove();
        assert!(fs::read_dir(place.path()).unwrap().next().is_none());
    }
}

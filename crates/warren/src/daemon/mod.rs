//! The daemon: engine, back end and front ends in one process.
//!
//! Its life: detach from the terminal (if a command started it), take the lock, start the spawner, open the store and
//! the engine, listen (on a Unix socket, and on TCP if told to), report that it is ready; at the end stop listening,
//! let requests finish, close. Sandboxes outlive it.

pub(crate) mod address;
mod backend;
mod descriptors;
pub(crate) mod dialect_address;
mod doctor;
mod idle;
mod lock;
mod log;
mod memory;
mod metrics;
mod network;
mod note;
mod ready;
mod recover;
mod service;
mod socket;
mod ssh;
mod take_over;
mod trace;
mod webhook;

use std::{io, path::Path, process::ExitCode, sync::Arc, time::Duration};

use engine::{Engine, EngineConfig, ImageOptions, SystemClock, Unpacker};
use frontends::{
    dialects,
    http::{self, Activity, Gate, PeerCredentials, SocketAuth, TcpPlaces},
    links::{LinkSettings, Links},
    mcp::{self, Dialect, Mcp},
    metrics as metrics_routes,
    rest::{self, Rest},
    web,
};
use sandbox::{Error, ErrorKind, Result};
use store::{Store, StoreError};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

pub(crate) use self::{
    address::{AlsoListen, Listen},
    lock::LockNote,
    log::LogFormat,
    network::{NetworkOptions, TlsFiles},
    note::Note,
    ready::Readiness,
    recover::{Recovered, recover},
    take_over::{holder, stop},
};
use self::{
    backend::Running,
    doctor::OwnDoctor,
    lock::Asked,
    metrics::MetricsListener,
    network::{Listener, Network, Plan},
    ready::Announcer,
    service::ServiceManager,
    socket::Socket,
    ssh::SshListeners,
    take_over::Replaced,
    trace::Traces,
};
use crate::{config::Config, directories::Directories, error::CommandResult, packages::HostGateway};

/// Worker threads: enough to answer while one of them is busy; each costs memory.
const WORKER_THREADS: usize = 2;
/// Heaps of the C library: enough for the workers, and a fifth less memory than with one per thread.
const HEAPS: u8 = 2;
/// Threads for blocking work (ledger files, SQLite), which exit when idle.
const MAX_BLOCKING_THREADS: usize = 32;
/// How long requests in flight may take at shutdown.
const STOP_GRACE: Duration = Duration::from_secs(5);

/// Which MCP server clients get.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum McpProfile {
    #[default]
    Warren,
    /// The server that the official conformance suite expects, over the same transports; only in test builds.
    Conformance,
}

#[derive(Debug)]
pub(crate) struct ServeOptions {
    pub(crate) directories: Directories,
    pub(crate) config: Config,
    /// If absent, the variable or the default decides.
    pub(crate) idle_exit: Option<Duration>,
    pub(crate) log: Option<String>,
    /// If absent, systemd's journal where it started us, else text.
    pub(crate) log_format: Option<LogFormat>,
    /// Started by a command: no terminal, and stdout is a pipe to that command.
    pub(crate) is_detached: bool,
    /// Settings for MCP clients that bring none of their own, which is all of them on HTTP.
    pub(crate) mcp: mcp::Settings,
    pub(crate) mcp_profile: McpProfile,
    /// The dialect of plain `/mcp` and `/sse`.
    pub(crate) dialect: Dialect,
    /// Replaces a running daemon.
    pub(crate) takes_over: bool,
    pub(crate) network: NetworkOptions,
    /// The command line's settings.
    pub(crate) links: LinkSettings,
}

impl ServeOptions {
    /// A command started it because none was running; such a command says when it may leave again.
    fn is_unasked(&self) -> bool {
        self.is_detached && self.idle_exit.is_some()
    }
}

/// Runs the daemon until it stops.
pub(crate) fn serve(options: ServeOptions) -> CommandResult {
    let announcer = Announcer::new(options.is_detached);
    let result = start(&options, &announcer);
    if let Err(error) = &result {
        announcer.failed(error);
    }
    result?;
    Ok(ExitCode::SUCCESS)
}

fn start(options: &ServeOptions, announcer: &Announcer) -> Result<()> {
    if options.is_detached {
        // Fails only for the leader of a process group, which then has no terminal to detach from.
        rustix::process::setsid().ok();
    }
    let traces = log::init(options.log.as_deref(), options.log_format)?;
    let open_files = descriptors::raise_limit();
    jail::limit_heaps(HEAPS);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(WORKER_THREADS)
        .max_blocking_threads(MAX_BLOCKING_THREADS)
        .thread_keep_alive(Duration::from_secs(5))
        .enable_all()
        .build()
        .map_err(|error| unavailable("could not start threads", error))?;
    let result = runtime.block_on(traced(traces, run(options, open_files, announcer)));
    runtime.shutdown_timeout(Duration::from_secs(1));
    result
}

/// Sends traces until the daemon has ended, and then what is left of them.
async fn traced(traces: Option<Traces>, daemon: impl Future<Output = Result<()>>) -> Result<()> {
    let Some(traces) = traces else { return daemon.await };
    let over = CancellationToken::new();
    let sending = tokio::spawn(traces.run(over.clone()));
    let result = daemon.await;
    over.cancel();
    sending.await.unwrap_or_default();
    result
}

async fn run(options: &ServeOptions, open_files: Option<u64>, announcer: &Announcer) -> Result<()> {
    let directories = &options.directories;
    // Checked before another daemon is stopped, because this one must be able to replace it.
    let mut plan = Plan::new(&options.network, options.is_detached)?;
    let webhook = options.config.events.webhook()?;
    let ssh_settings = options.config.ssh.settings(options.network.is_dev)?;
    directories.make()?;
    let (lock, mut run_lock) = if options.is_unasked() {
        take_over::take_locks(directories, Asked::ByCommand)?
    } else {
        if let Some(plan) = &mut plan {
            plan.open_ports(&Note::ports(&directories.run)).await?;
        }
        let replaced = if options.takes_over { Replaced::Any } else { Replaced::Unasked };
        take_over::take_over(directories, replaced).await?
    };
    // A port that is taken ends the start before a record is read or a sandbox adopted.
    if let Some(plan) = &mut plan {
        plan.open_ports(&[]).await?;
    }
    let ssh_port = ssh::open_port(options.config.ssh.listen, options.network.is_dev).await?;
    let metrics = MetricsListener::open(options.config.metrics.listen).await?;
    Note::remove_old(directories);
    // Its spawner starts while the records are read.
    let offered = options.config.backends.clone();
    let proxy = options.config.network.host_proxy();
    let pool = options.config.pool;
    let starting = tokio::spawn(backend::start(directories.clone(), open_files, offered, proxy, pool));
    let store = Store::open(&directories.home).map_err(|error| no_records(&directories.home, error))?;
    let Running { backends, default, unpacker } = starting.await.map_err(|error| {
        Error::new(ErrorKind::Internal, "the start of the back end was lost").with_source(error)
    })??;
    let engine =
        Engine::open_all(engine_config(options, unpacker), store, backends, Arc::new(SystemClock)).await?;
    let webhook = webhook.map(|webhook| webhook::Sender::new(&engine, webhook, directories)).transpose()?;
    let socket = Socket::listen(directories.socket()?)?;
    let ssh =
        SshListeners::open(directories, ssh_port, ssh_settings).inspect_err(|_failed| socket.remove())?;
    // After the socket: whoever finds the address note can use all of the daemon.
    let network = match plan {
        Some(plan) => Some(plan.listen(directories).await.inspect_err(|_failed| socket.remove())?),
        None => None,
    };
    let stop = CancellationToken::new();
    let activity = Activity::default();
    stop_on_signals(&stop).map_err(|error| unavailable("could not listen for signals", error))?;

    let backends: Vec<_> = engine.backends().iter().map(|found| found.backend.as_str()).collect();
    tracing::info!(socket = %socket.path().display(), backends = backends.join(" "), "ready");
    lock.say_serving(true);
    announcer.ready();
    let service = ServiceManager::of(options.is_detached);
    service.ready();
    let mut own: Vec<_> = network.as_ref().map(Network::addresses).unwrap_or_default();
    own.extend(ssh.address());
    own.extend(metrics.as_ref().map(MetricsListener::address));
    if !own.is_empty() {
        engine.close_to_sandboxes(own);
    }
    if let Some(address) = ssh.address() {
        tracing::info!(%address, "serving SSH");
    }
    if let Some(listener) = &metrics {
        tracing::info!("metrics: http://{}/metrics", listener.address());
    }
    if let Some(network) = &network {
        network.introduce(&engine).await;
    }

    let settings =
        LinkSettings { listener: network.as_ref().and_then(Network::base), ..options.links.clone() };
    let links = Links::new(engine.clone(), settings);
    let rest = Rest::new(engine.clone(), activity.clone(), stop.clone())
        .with_links(links.clone())
        .with_build(crate::cli::VERSION)
        .with_doctor(Arc::new(OwnDoctor::new(directories)));
    let mcp = Mcp::with_links(engine.clone(), options.mcp.clone(), links);
    let named = match options.mcp_profile {
        McpProfile::Warren => mcp::named_router(&mcp, dialects::ALL, &stop, &activity),
        McpProfile::Conformance => http::Router::new(),
    };
    let parts = Parts {
        shared: rest::router(rest)
            .merge(named)
            .merge(web::router(web::Page::new(dashboard::FILES)))
            .merge(metrics_routes::router(engine.clone())),
        mcp: mcp.clone(),
        profile: options.mcp_profile,
        activity: activity.clone(),
        stop: stop.clone(),
    };
    let routes = parts.routes(options.dialect).inspect_err(|_refused| socket.remove())?;
    let owner = rustix::process::geteuid().as_raw();
    let owner = SocketAuth::new(PeerCredentials { owner }, engine.clone());
    let app = http::app(routes, Gate::unix(engine.clone(), Arc::new(owner)));
    // Removed first: the next command then finds no daemon and starts a new one, which waits for the lock.
    let hide = || {
        service.stopping();
        lock.say_serving(false);
        socket.remove();
    };
    let serving = http::serve_unix(socket.listener(), app, activity.clone(), stop.clone(), STOP_GRACE, hide);
    let on_network = serve_network(network, &parts, &engine);
    let idling = idle::stop_when_idle(options.idle_exit, engine.clone(), activity.clone(), stop.clone());
    let slimming = memory::give_back(stop.clone());
    let ssh_socket = ssh.socket();
    let sockets = [&socket, &*ssh_socket];
    let keeping = socket::keep_in_place(&sockets, directories, &mut run_lock, &stop);
    let on_ssh = ssh.serve(engine.clone(), activity.clone(), stop.clone());
    let telling = async {
        if let Some(sender) = webhook {
            sender.run(stop.clone()).await;
        }
    };
    let on_metrics = serve_metrics(metrics, &engine, &stop);
    tokio::join!(serving, on_network, on_ssh, on_metrics, telling, idling, slimming, keeping);

    mcp.close().await;
    engine.close().await;
    default.close_pool().await;
    tracing::info!("stopped");
    drop((lock, run_lock));
    Ok(())
}

fn no_records(home: &Path, error: StoreError) -> Error {
    let message = format!("could not open the records in {}", home.display());
    Error::new(ErrorKind::Unavailable, message).with_next(error.next()).with_source(error)
}

fn engine_config(options: &ServeOptions, unpacker: Arc<dyn Unpacker>) -> EngineConfig {
    let (home, config) = (&options.directories.home, &options.config);
    let mut engine = EngineConfig::new(home);
    engine.run = Some(options.directories.run.clone());
    engine.keeps_history = true;
    if !config.packages_disabled {
        engine.packages = Some(Arc::new(HostGateway::new(config.clone(), home)));
    }
    // Opened by the engine once its records are read, so that an image that a sandbox uses never counts as unused.
    config.defaults.apply(&mut engine);
    config.snapshots.apply(&mut engine);
    config.volumes.apply(&mut engine.volumes);
    engine.publish_on.clone_from(&config.ports.publish_on);
    engine.network_ceiling.clone_from(&config.network.ceiling);
    engine.images = Some(ImageOptions { unpacker, ..config.images.options() });
    engine
}

/// The parts that the routes of a listener are made from.
struct Parts {
    /// The same for all listeners, whatever their plain paths speak.
    shared: http::Router,
    mcp: Mcp,
    profile: McpProfile,
    activity: Activity,
    stop: CancellationToken,
}

impl Parts {
    /// The routes of one listener, whose plain paths speak `plain`. Other front ends are merged here.
    fn routes(&self, plain: Dialect) -> Result<http::Router> {
        let Self { shared, mcp, profile, activity, stop } = self;
        let mcp_routes = match profile {
            McpProfile::Warren => mcp::plain_router(mcp, plain, stop, activity),
            McpProfile::Conformance => mcp::conformance_router(stop.clone(), activity.clone())
                .ok_or_else(|| Error::invalid("this build of Warren has no conformance profile"))?,
        };
        Ok(shared.clone().merge(mcp_routes).merge(dialects::routes(mcp, plain, activity, stop)))
    }
}

/// Serves TCP until the daemon stops, if it listens there.
async fn serve_network(network: Option<Network>, parts: &Parts, engine: &Engine) {
    let Some(network) = network else { return };
    let gate = network.gate(engine).with_ports(&parts.activity, &parts.stop);
    let places = TcpPlaces::default();
    let Network { listeners, tls, note, .. } = network;
    let serving = listeners.into_iter().filter_map(|Listener { plain, socket, .. }| {
        // The same parts made the routes of the Unix socket, so this cannot fail.
        let app = http::app(parts.routes(plain).ok()?, gate.clone().speaking(plain.name));
        let Parts { activity, stop, .. } = parts;
        let (tls, places) = (tls.clone(), places.clone());
        Some(http::serve_tcp(socket, app, tls, places, activity.clone(), stop.clone(), STOP_GRACE))
    });
    futures_util::future::join_all(serving).await;
    note.remove();
}

async fn serve_metrics(listener: Option<MetricsListener>, engine: &Engine, stop: &CancellationToken) {
    if let Some(listener) = listener {
        listener.serve(engine.clone(), stop.clone()).await;
    }
}

fn stop_on_signals(stop: &CancellationToken) -> io::Result<()> {
    for kind in [SignalKind::terminate(), SignalKind::interrupt(), SignalKind::hangup()] {
        let mut received = signal(kind)?;
        let stop = stop.clone();
        tokio::spawn(async move {
            if received.recv().await.is_some() {
                stop.cancel();
            }
        });
    }
    Ok(())
}

fn unavailable(what: &str, error: io::Error) -> Error {
    Error::new(ErrorKind::Unavailable, what).with_source(error)
}

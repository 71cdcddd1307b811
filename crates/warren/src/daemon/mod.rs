//! The daemon: engine, back end and front ends in one process.
//!
//! Its life: detach from the terminal (if a command started it), take the lock, start the spawner, open the store and
//! the engine, listen (on a Unix socket, and on TCP if told to), report that it is ready; at the end stop listening,
//! let requests finish, close. Sandboxes outlive it.

mod backend;
mod descriptors;
pub(crate) mod dialect_address;
mod idle;
mod lock;
mod log;
mod memory;
mod network;
mod ready;
mod recover;
mod socket;
mod take_over;

use std::{io, path::Path, process::ExitCode, sync::Arc, time::Duration};

use engine::{Engine, EngineConfig, ImageOptions, SystemClock, Unpacker};
use frontends::{
    dialects,
    http::{self, Activity, Gate, PeerCredentials},
    links::{LinkSettings, Links},
    mcp::{self, Dialect, Mcp},
    rest::{self, Rest},
};
use sandbox::{Error, ErrorKind, Result};
use store::{Store, StoreError};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use self::{
    backend::Running,
    network::{Network, Plan},
    ready::Announcer,
    socket::Socket,
};
pub(crate) use self::{
    network::{Listen, NetworkOptions, Note, TlsFiles},
    ready::Readiness,
    recover::{Recovered, recover},
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
    /// Started by a command: no terminal, and stdout is a pipe to that command.
    pub(crate) is_detached: bool,
    /// Settings for MCP clients that bring none of their own, which is all of them on HTTP.
    pub(crate) mcp: mcp::Settings,
    pub(crate) mcp_profile: McpProfile,
    /// What plain `/mcp` and `/sse` speak.
    pub(crate) dialect: Dialect,
    /// Replaces a running daemon.
    pub(crate) takes_over: bool,
    pub(crate) network: NetworkOptions,
    /// The command line's settings.
    pub(crate) links: LinkSettings,
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
    log::init(options.log.as_deref())?;
    let open_files = descriptors::raise_limit();
    jail::limit_heaps(HEAPS);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(WORKER_THREADS)
        .max_blocking_threads(MAX_BLOCKING_THREADS)
        .thread_keep_alive(Duration::from_secs(5))
        .enable_all()
        .build()
        .map_err(|error| unavailable("could not start threads", error))?;
    let result = runtime.block_on(run(options, open_files, announcer));
    runtime.shutdown_timeout(Duration::from_secs(1));
    result
}

async fn run(options: &ServeOptions, open_files: Option<u64>, announcer: &Announcer) -> Result<()> {
    let directories = &options.directories;
    // Checked before another daemon is stopped, because this one must be able to replace it.
    let plan = Plan::new(&options.network, options.is_detached)?;
    directories.make()?;
    let locks = if options.takes_over {
        take_over::take_over(directories).await?
    } else {
        take_over::take_locks(directories)?
    };
    Note::remove_old(directories);
    // Its spawner starts while the records are read.
    let offered = options.config.backends.clone();
    let starting = tokio::spawn(backend::start(directories.clone(), open_files, offered));
    let store = Store::open(&directories.home).map_err(|error| no_records(&directories.home, error))?;
    let Running { backends, unpacker } = starting.await.map_err(|error| {
        Error::new(ErrorKind::Internal, "the start of the back end was lost").with_source(error)
    })??;
    let engine =
        Engine::open_all(engine_config(options, unpacker), store, backends, Arc::new(SystemClock)).await?;
    let (socket, listener) = Socket::listen(directories.socket()?)?;
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
    announcer.ready();
    if let Some(network) = &network {
        network.introduce(&engine).await;
    }

    // Other front ends are merged here: `routes.merge(..)`.
    let settings =
        LinkSettings { listener: network.as_ref().and_then(Network::base), ..options.links.clone() };
    let links = Links::new(engine.clone(), settings);
    let rest = Rest::new(engine.clone(), activity.clone(), stop.clone()).with_links(links.clone());
    let routes = rest::router(rest);
    let mcp = Mcp::with_links(engine.clone(), options.mcp.clone(), links);
    let mcp_routes = mcp_routes(options.mcp_profile, options.dialect, &mcp, &activity, &stop);
    let routes = routes.merge(mcp_routes.inspect_err(|_refused| socket.remove())?);
    let routes = routes.merge(dialects::routes(&mcp, options.dialect));
    let owner = rustix::process::geteuid().as_raw();
    let app = http::app(routes.clone(), Gate::unix(engine.clone(), Arc::new(PeerCredentials { owner })));
    // Removed first: the next command then finds no daemon and starts a new one, which waits for the lock.
    let hide = || socket.remove();
    let serving = http::serve_unix(listener, app, activity.clone(), stop.clone(), STOP_GRACE, hide);
    let on_network = serve_network(network, routes, &engine, &activity, &stop);
    let idling = idle::stop_when_idle(options.idle_exit, engine.clone(), activity.clone(), stop.clone());
    let slimming = memory::give_back(stop.clone());
    tokio::join!(serving, on_network, idling, slimming);

    mcp.close().await;
    engine.close().await;
    tracing::info!("stopped");
    drop(locks);
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
    if !config.packages_disabled {
        engine.packages = Some(Arc::new(HostGateway::new(config.clone(), home)));
    }
    // Opened by the engine once its records are read, so that an image that a sandbox uses never counts as unused.
    config.snapshots.apply(&mut engine);
    config.volumes.apply(&mut engine.volumes);
    engine.images = Some(ImageOptions { unpacker, ..config.images.options() });
    engine
}

fn mcp_routes(
    profile: McpProfile,
    dialect: Dialect,
    mcp: &Mcp,
    activity: &Activity,
    stop: &CancellationToken,
) -> Result<http::Router> {
    match profile {
        McpProfile::Warren => Ok(mcp::router(mcp, dialect, dialects::ALL, stop, activity)),
        McpProfile::Conformance => mcp::conformance_router(stop.clone(), activity.clone())
            .ok_or_else(|| Error::invalid("this build of Warren has no conformance profile")),
    }
}

/// Serves TCP until `stop`, if the daemon listens there.
async fn serve_network(
    network: Option<Network>,
    routes: http::Router,
    engine: &Engine,
    activity: &Activity,
    stop: &CancellationToken,
) {
    let Some(network) = network else { return };
    let app = http::app(routes, network.gate(engine));
    let Network { listener, tls, note, .. } = network;
    http::serve_tcp(listener, app, tls, activity.clone(), stop.clone(), STOP_GRACE).await;
    note.remove();
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

//! `warren serve`

use std::{io, net::IpAddr, path::PathBuf, process::ExitCode, time::Duration};

use frontends::{
    dialects::MCP_SANDBOX,
    http::{Authority, DEFAULT_REQUESTS_PER_SECOND, DEFAULT_STREAMS_PER_PRINCIPAL, LimitSettings, Origin},
    links::{BaseUrl, LinkSettings},
    mcp::{Dialect, NATIVE, Settings},
    ports::PortDomain,
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
    process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal},
};
use sandbox::{Error, ErrorKind, Result};

use super::Context;
use crate::{
    arguments,
    client::StartMode,
    config::Config,
    daemon::{
        self, AlsoListen, Listen, LogFormat, McpProfile, NetworkOptions, ServeOptions, TlsFiles,
        dialect_address,
    },
    error::CommandResult,
    mcp::{self, McpArgs, opensandbox::OpenSandboxArgs},
    output,
};

/// How long --stop waits: the daemon ends what it is about first.
const STOP_TIME: Timespec = Timespec { tv_sec: 30, tv_nsec: 0 };
/// Upper bound of the rate limit; beyond it, connections are the limit.
const MAX_STREAMS: u64 = 1024;

/// Run the daemon
///
/// Each data directory has one daemon. It listens on a Unix socket for its owner, and on TCP for MCP and REST clients,
/// which need a key (`warren key create`). SIGTERM and SIGINT stop it; sandboxes keep running, and the next daemon
/// adopts them.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  warren serve
  warren serve --dev
  warren serve --stop
  warren serve --listen 0.0.0.0:5555 --tls-cert cert.pem --tls-key key.pem
  warren serve --home /tmp/try --log debug
  warren serve --ssh 127.0.0.1:2222
  warren serve --dialect mcp-sandbox
  warren serve --dev --also-listen 127.0.0.1:8181=mcp-sandbox")]
pub(crate) struct Args {
    /// Also offer the back end `process`: NO ISOLATION, its sandboxes can do everything the daemon's user can
    #[arg(long)]
    allow_process: bool,
    /// Configuration file [env: WARREN_CONFIG]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// TCP address, with port 0 for any free port, or none [default: 127.0.0.1:5555; with --dialect opensandbox
    /// 127.0.0.1:8080; with --dialect mcp-sandbox APP_HOST and APP_PORT, or 127.0.0.1:8181] [env: WARREN_LISTEN]
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<Listen>,
    /// Further TCP address, and the dialect that its /mcp and /sse speak; may be repeated, or be a list with commas
    #[arg(long, value_name = "ADDRESS=DIALECT", value_delimiter = ',')]
    also_listen: Vec<AlsoListen>,
    /// Require no key on TCP: everyone on this machine can do everything. Loopback addresses only
    #[arg(long)]
    dev: bool,
    /// Use TLS on TCP with this certificate and its chain (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// Private key of the certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Host name that TCP clients may use besides localhost and the daemon's address; may be repeated
    #[arg(long = "allowed-host", value_name = "HOST")]
    allowed_hosts: Vec<Authority>,
    /// Origin of web pages that may use the daemon, such as https://app.example; may be repeated
    #[arg(long = "allowed-origin", value_name = "ORIGIN")]
    allowed_origins: Vec<Origin>,
    /// Domain whose subdomains are ports of sandboxes, such as apps.example or https://apps.example; needs a wildcard
    /// in DNS [default: only <port>-<sandbox>.localhost]
    #[arg(long, value_name = "DOMAIN")]
    port_domain: Option<PortDomain>,
    /// Address beside 127.0.0.1 on which ports may be published; may be repeated
    #[arg(long = "publish-on", value_name = "ADDRESS")]
    publish_on: Vec<IpAddr>,
    /// Requests per second for each key on TCP, with bursts of twice as many; 0 for no limit
    #[arg(long, value_name = "N", default_value_t = DEFAULT_REQUESTS_PER_SECOND)]
    rate_limit: u32,
    /// Open streams for each key on TCP; all keys together may have twice as many
    #[arg(long, value_name = "N", default_value_t = DEFAULT_STREAMS_PER_PRINCIPAL as u64,
          value_parser = clap::value_parser!(u64).range(1..=MAX_STREAMS))]
    max_streams: u64,
    /// How long links to files are valid
    #[arg(long, value_name = "SPAN", value_parser = arguments::duration, default_value = "1h")]
    link_ttl: Duration,
    /// Base URL for links, as browsers reach the daemon: scheme, host and port [default: the address the client used]
    #[arg(long, value_name = "URL")]
    public_url: Option<BaseUrl>,
    /// Also serve SSH on this TCP address, such as 127.0.0.1:2222, or none [default: ssh.listen of the configuration]
    #[arg(long, value_name = "ADDRESS")]
    ssh: Option<Listen>,
    /// Replace a running daemon; its sandboxes keep running
    #[arg(long)]
    take_over: bool,
    /// Stop the running daemon; its sandboxes keep running, and the next command starts another daemon
    #[arg(long, conflicts_with_all = ["take_over", "listen", "dev", "detached"])]
    stop: bool,
    /// Exit after this long with no sandbox alive and no requests
    #[arg(long, value_name = "SPAN", value_parser = arguments::duration)]
    idle_exit: Option<Duration>,
    /// What to log: error, warn, info, debug, trace, or a filter by module [env: WARREN_LOG]
    #[arg(long, value_name = "FILTER")]
    log: Option<String>,
    /// How the log is written [default: log.format of the configuration, else journald if systemd started the daemon,
    /// else text]
    #[arg(long, value_enum, value_name = "FORMAT")]
    log_format: Option<LogFormat>,
    /// Detach from the terminal and report on stdout when ready; used by commands that start the daemon
    #[arg(long, hide = true)]
    detached: bool,
    /// Settings for MCP clients
    #[arg(long, value_enum, hide = true, default_value_t)]
    mcp_profile: McpProfile,
    /// What /mcp and /sse speak; every dialect is also served at /mcp/DIALECT and /sse/DIALECT
    #[arg(long, value_parser = mcp::dialects(), default_value = NATIVE.name)]
    dialect: Dialect,
    #[command(flatten)]
    mcp: McpArgs,
    #[command(flatten)]
    opensandbox: OpenSandboxArgs,
}

pub(crate) fn run(context: &Context, args: &Args) -> CommandResult {
    if args.stop {
        return stop(context);
    }
    // The environment of the command that happened to start the daemon must not affect its other users.
    let mcp = if args.detached { Settings::default() } else { args.mcp.settings(None)? };
    let mut config = match args.dialect.name == MCP_SANDBOX.name {
        true => Config::load_mcp_sandbox(args.config.as_deref())?,
        false => Config::load(args.config.as_deref())?,
    };
    config.backends.process |= args.allow_process;
    config.ports.domain = args.port_domain.clone().or(config.ports.domain);
    config.ports.publish_on.extend(&args.publish_on);
    match args.ssh {
        Some(Listen::At(address)) => config.ssh.listen = Some(address),
        Some(Listen::Nowhere) => config.ssh.listen = None,
        // A daemon that some command started serves nobody on the network.
        None if args.detached => config.ssh.listen = None,
        None => {}
    }
    if args.detached {
        config.metrics.listen = None;
    }
    let log_format = args.log_format.or(config.log_format);
    let port_domain = config.ports.domain.clone();
    let network = network(args, &config)?;
    daemon::serve(ServeOptions {
        directories: context.directories.clone(),
        config,
        idle_exit: args.idle_exit,
        log: args.log.clone(),
        log_format,
        is_detached: args.detached,
        mcp,
        mcp_profile: args.mcp_profile,
        dialect: args.dialect,
        takes_over: args.take_over,
        network,
        links: LinkSettings {
            ttl: args.link_ttl,
            public: args.public_url.clone(),
            listener: None,
            port_domain,
        },
    })
}

fn stop(context: &Context) -> CommandResult {
    // The connection goes with its runtime: the daemon would wait for another request on it.
    let found = super::block_on(async { Ok(context.client_that(StartMode::Never).await?.daemon()) });
    let daemon = match found {
        Ok(daemon) => daemon.and_then(|daemon| daemon.pid).and_then(Pid::from_raw),
        Err(error) if error.kind() == Some(ErrorKind::Unavailable) => {
            output::note("no daemon runs");
            return Ok(ExitCode::SUCCESS);
        }
        Err(error) => return Err(error),
    };
    let daemon = daemon.ok_or_else(|| {
        Error::new(ErrorKind::Unsupported, "the daemon runs where its process cannot be seen")
    })?;
    let failed = |error: Errno| {
        Error::new(ErrorKind::Denied, format!("could not stop the daemon (pid {})", daemon.as_raw_pid()))
            .with_source(io::Error::from(error))
    };
    let process = pidfd_open(daemon, PidfdFlags::empty()).map_err(failed)?;
    pidfd_send_signal(&process, Signal::TERM).map_err(failed)?;
    let mut ended = [PollFd::new(&process, PollFlags::IN)];
    if poll(&mut ended, Some(&STOP_TIME)).map_err(failed)? == 0 {
        let message =
            format!("the daemon (pid {}) has not ended after {} s", daemon.as_raw_pid(), STOP_TIME.tv_sec);
        return Err(Error::new(ErrorKind::TimedOut, message).into());
    }
    output::note("the daemon has stopped; sandboxes keep running");
    Ok(ExitCode::SUCCESS)
}

/// The address by either way of naming it.
fn listen(args: &Args) -> Result<Option<Listen>> {
    let (theirs, ignored) = args.opensandbox.for_serve(args.dialect)?;
    if !ignored.is_empty() {
        let names = ignored.join(", ");
        output::warn(&format!("no effect on the daemon, whose clients bring their own keys: {names}"));
    }
    match (args.listen, theirs) {
        (Some(_), Some(_)) => Err(Error::invalid("--listen and --host or --port both name an address")
            .with_hint("Give one of the two.")),
        (listen, theirs) => Ok(listen.or(theirs.map(Listen::At))),
    }
}

fn network(args: &Args, config: &Config) -> Result<NetworkOptions> {
    let tls = args.tls_cert.clone().zip(args.tls_key.clone());
    let listen = listen(args)?;
    Ok(NetworkOptions {
        listen,
        dialect: args.dialect,
        also: args.also_listen.clone(),
        also_configured: config.also_listen.clone(),
        dialect_address: match listen {
            Some(_) => None,
            None => dialect_address::of(args.dialect, &config.mcp_sandbox)?,
        },
        is_dev: args.dev,
        tls: tls.map(|(certificate, key)| TlsFiles { certificate, key }),
        allowed_hosts: args.allowed_hosts.clone(),
        allowed_origins: args.allowed_origins.clone(),
        port_domain: config.ports.domain.clone(),
        limits: LimitSettings {
            requests_per_second: (args.rate_limit > 0).then_some(args.rate_limit),
            streams_per_principal: usize::try_from(args.max_streams).unwrap_or(usize::MAX),
        },
    })
}

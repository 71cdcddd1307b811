//! `warren serve`

use std::{path::PathBuf, time::Duration};

use frontends::{
    http::{Authority, DEFAULT_REQUESTS_PER_SECOND, DEFAULT_STREAMS_PER_PRINCIPAL, LimitSettings, Origin},
    links::{BaseUrl, LinkSettings},
    mcp::Settings,
};

use super::Context;
use crate::{
    arguments,
    config::Config,
    daemon::{self, BackendChoice, Listen, McpProfile, NetworkOptions, ServeOptions, TlsFiles},
    error::CommandResult,
    mcp::McpArgs,
};

/// Beyond this, connections are the limit.
const MAX_STREAMS: u64 = 1024;

/// Run the daemon
///
/// One daemon for each data directory. It listens on a Unix socket for its owner, and on TCP for MCP and REST clients, who
/// show a key (`warren key create`). SIGTERM and SIGINT stop it; sandboxes live on, and the next daemon adopts them.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  warren serve
  warren serve --dev
  warren serve --listen 0.0.0.0:5555 --tls-cert cert.pem --tls-key key.pem
  warren serve --backend fake --home /tmp/try --log debug")]
pub(crate) struct Args {
    /// How sandboxes are made that name no back end: `fake` makes none and pretends [env: WARREN_BACKEND]
    #[arg(long, value_enum)]
    backend: Option<BackendChoice>,
    /// Offer the back end `process` too: NO WALLS, whoever may make sandboxes can do all that the daemon's user can
    #[arg(long)]
    allow_process: bool,
    /// Configuration file [env: WARREN_CONFIG]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Address on TCP, port 0 for a free one, or none; 127.0.0.1:5555 [env: WARREN_LISTEN]
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<Listen>,
    /// Ask for no key on TCP: everyone on this machine may do everything. On loopback addresses only
    #[arg(long)]
    dev: bool,
    /// Speak TLS on TCP with this certificate and its chain (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// The certificate's private key (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Another name by which TCP clients may ask for the daemon, beside localhost and its address; may be repeated
    #[arg(long = "allowed-host", value_name = "HOST")]
    allowed_hosts: Vec<Authority>,
    /// Whose web pages may use the daemon, like https://app.example; may be repeated
    #[arg(long = "allowed-origin", value_name = "ORIGIN")]
    allowed_origins: Vec<Origin>,
    /// Requests a second that each key may send on TCP, and twice as many at once; 0 for no limit
    #[arg(long, value_name = "N", default_value_t = DEFAULT_REQUESTS_PER_SECOND)]
    rate_limit: u32,
    /// Streams that each key may hold open on TCP; all keys together hold twice as many
    #[arg(long, value_name = "N", default_value_t = DEFAULT_STREAMS_PER_PRINCIPAL as u64,
          value_parser = clap::value_parser!(u64).range(1..=MAX_STREAMS))]
    max_streams: u64,
    /// How long links to files hold that clients are given
    #[arg(long, value_name = "SPAN", value_parser = arguments::duration, default_value = "1h")]
    link_ttl: Duration,
    /// Where browsers reach the daemon, for links: scheme, host and port. Unless given, where the client asked
    #[arg(long, value_name = "URL")]
    public_url: Option<BaseUrl>,
    /// Take the place of a daemon that runs: it is asked to end, and its sandboxes live on
    #[arg(long)]
    take_over: bool,
    /// Leave after idling this long with nothing alive
    #[arg(long, value_name = "SPAN", value_parser = arguments::duration)]
    idle_exit: Option<Duration>,
    /// What to log: error, warn, info, debug, trace, or a filter by module [env: WARREN_LOG]
    #[arg(long, value_name = "FILTER")]
    log: Option<String>,
    /// Leave the terminal, and tell on stdout when ready: how a command starts a daemon
    #[arg(long, hide = true)]
    detached: bool,
    /// What MCP clients are served
    #[arg(long, value_enum, hide = true, default_value_t)]
    mcp_profile: McpProfile,
    #[command(flatten)]
    mcp: McpArgs,
}

pub(crate) fn run(context: &Context, args: &Args) -> CommandResult {
    // The variables of whichever command happened to start the daemon are not for everyone who uses it.
    let mcp = if args.detached { Settings::default() } else { args.mcp.settings(None)? };
    let mut config = Config::load(args.config.as_deref())?;
    config.backends.process |= args.allow_process;
    daemon::serve(ServeOptions {
        directories: context.directories.clone(),
        config,
        backend: args.backend,
        idle_exit: args.idle_exit,
        log: args.log.clone(),
        is_detached: args.detached,
        mcp,
        mcp_profile: args.mcp_profile,
        takes_over: args.take_over,
        network: network(args),
        links: LinkSettings { ttl: args.link_ttl, public: args.public_url.clone(), listener: None },
    })
}

fn network(args: &Args) -> NetworkOptions {
    let tls = args.tls_cert.clone().zip(args.tls_key.clone());
    NetworkOptions {
        listen: args.listen,
        is_dev: args.dev,
        tls: tls.map(|(certificate, key)| TlsFiles { certificate, key }),
        allowed_hosts: args.allowed_hosts.clone(),
        allowed_origins: args.allowed_origins.clone(),
        limits: LimitSettings {
            requests_per_second: (args.rate_limit > 0).then_some(args.rate_limit),
            streams_per_principal: usize::try_from(args.max_streams).unwrap_or(usize::MAX),
        },
    }
}

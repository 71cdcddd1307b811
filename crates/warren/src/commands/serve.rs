//! `warren serve`

use std::time::Duration;

use frontends::mcp::Settings;

use super::Context;
use crate::{
    arguments,
    daemon::{self, BackendChoice, ServeOptions},
    error::CommandResult,
    mcp::McpArgs,
};

/// Run the daemon
///
/// One daemon for each data directory. SIGTERM and SIGINT stop it; sandboxes live on, and the next daemon adopts them.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  warren serve
  warren serve --backend fake --home /tmp/try --log debug")]
pub(crate) struct Args {
    /// How sandboxes are made: `fake` makes none and pretends [env: WARREN_BACKEND]
    #[arg(long, value_enum)]
    backend: Option<BackendChoice>,
    /// Leave after idling this long with nothing alive
    #[arg(long, value_name = "SPAN", value_parser = arguments::duration)]
    idle_exit: Option<Duration>,
    /// What to log: error, warn, info, debug, trace, or a filter by module [env: WARREN_LOG]
    #[arg(long, value_name = "FILTER")]
    log: Option<String>,
    /// Leave the terminal, and tell on stdout when ready: how a command starts a daemon
    #[arg(long, hide = true)]
    detached: bool,
    #[command(flatten)]
    mcp: McpArgs,
}

pub(crate) fn run(context: &Context, args: &Args) -> CommandResult {
    // The variables of whichever command happened to start the daemon are not for everyone who uses it.
    let mcp = if args.detached { Settings::default() } else { args.mcp.settings(None)? };
    daemon::serve(ServeOptions {
        directories: context.directories.clone(),
        backend: args.backend,
        idle_exit: args.idle_exit,
        log: args.log.clone(),
        is_detached: args.detached,
        mcp,
    })
}

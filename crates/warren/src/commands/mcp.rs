//! `warren mcp`

use frontends::mcp::{Dialect, Greeting};

use super::Context;
use crate::{
    client::StartMode,
    error::CommandResult,
    mcp::{self, Link, McpArgs, VARIABLES_HELP},
};

/// Serve MCP on stdio
///
/// For editors and agents that start their own servers. Messages go to the shared daemon, which is started if it is not
/// running; sandboxes keep running when the client disconnects. Only messages are written to stdout.
#[derive(Debug, clap::Args)]
#[command(after_long_help = VARIABLES_HELP, after_help = "Examples:
  warren mcp
  warren mcp --toolsets core,files --allow-host-path .:rw
  warren mcp --namespace team-a --toolsets all
  warren mcp --dialect microsandbox-mcp")]
pub(crate) struct Args {
    /// Tools and answers of another system, for its clients [default: what the daemon serves at /mcp]
    #[arg(long, value_parser = mcp::dialects())]
    dialect: Option<Dialect>,
    #[command(flatten)]
    mcp: McpArgs,
}

pub(crate) async fn run(context: &Context, args: &Args) -> CommandResult {
    let settings = args.mcp.settings(Some(&std::env::current_dir()?))?;
    let greeting = Greeting { settings, namespace: context.namespace.clone() };
    mcp::run(&Link::new(context.client_options(StartMode::IfNeeded), &greeting, args.dialect)).await
}

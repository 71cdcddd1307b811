//! `warren mcp`

use frontends::mcp::{Dialect, Greeting, http_path};

use super::Context;
use crate::{
    client::StartMode,
    error::CommandResult,
    mcp::{
        self, Link, McpArgs, VARIABLES_HELP,
        opensandbox::{OpenSandboxArgs, Way},
    },
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
  warren mcp --dialect microsandbox-mcp
  warren mcp --dialect opensandbox --transport streamable-http --port 8000 --api-key wrn_…")]
pub(crate) struct Args {
    /// Tools and answers of another system, for its clients [default: what the daemon serves at /mcp]
    #[arg(long, value_parser = mcp::dialects())]
    dialect: Option<Dialect>,
    #[command(flatten)]
    mcp: McpArgs,
    #[command(flatten)]
    opensandbox: OpenSandboxArgs,
}

pub(crate) async fn run(context: &Context, args: &Args) -> CommandResult {
    let Way { listen, key } = args.opensandbox.for_mcp(args.dialect)?;
    let options = context.client_options(StartMode::IfNeeded);
    if let Some((address, key)) = listen.zip(key.as_ref()) {
        return mcp::serve_http(options, address, key, &http_path(args.dialect.map(|dialect| dialect.name)))
            .await;
    }
    let settings = args.mcp.settings(Some(&std::env::current_dir()?))?;
    let greeting = Greeting { settings, namespace: context.namespace.clone() };
    mcp::run(&Link::new(options, &greeting, args.dialect).with_key(key)).await
}

//! The daemon's log: events with fields, on stderr. A command that starts a daemon redirects stderr to a file.

use std::io::IsTerminal as _;

use sandbox::{Error, Result};
use tracing_subscriber::{EnvFilter, fmt};

use crate::env;

/// The MCP library logs every connection at `info`, every mistake of a client at `warn`, and clients that disconnect at
/// `error`; our own code logs what matters.
const DEFAULT_FILTER: &str = "info,rmcp=error,rmcp::service=off";

pub(super) fn init(flag: Option<&str>) -> Result<()> {
    let asked = flag.map(str::to_owned).or_else(|| env::text(env::LOG));
    let text = asked.unwrap_or_else(|| DEFAULT_FILTER.to_owned());
    let filter = EnvFilter::try_new(&text).map_err(|error| {
        Error::invalid(format!("{text:?} is not a log filter: {error}"))
            .with_hint("Use error, warn, info, debug, trace, or a filter such as info,engine=debug.")
    })?;
    fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal() && env::text("NO_COLOR").is_none())
        .with_target(true)
        .try_init()
        .ok();
    Ok(())
}

//! `warren link`

use std::{process::ExitCode, str::FromStr, time::Duration};

use frontends::rest::v1;
use sandbox::{Error, ErrorKind, Next, Result};

use super::Context;
use crate::{arguments, error::CommandResult, output};

/// Print a link to a file in a sandbox, for a browser
///
/// Anyone with the link can read that one file while the sandbox runs, until the link expires or the sandbox is
/// removed.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  warren link dev:/root/plot.png
  warren link dev:/root/report.pdf --ttl 1d")]
pub(crate) struct Args {
    /// SANDBOX:PATH
    #[arg(value_name = "SANDBOX:PATH")]
    file: SandboxFile,
    /// How long the link is valid, up to a week
    #[arg(long, value_name = "SPAN", value_parser = arguments::duration)]
    ttl: Option<Duration>,
}

/// A file in a sandbox.
#[derive(Debug, Clone)]
struct SandboxFile {
    sandbox: String,
    path: String,
}

impl FromStr for SandboxFile {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text.split_once(':') {
            Some((sandbox, path)) if !sandbox.is_empty() && !path.is_empty() => {
                Ok(Self { sandbox: sandbox.to_owned(), path: path.to_owned() })
            }
            _ => Err(Error::invalid(format!("{text:?} is not SANDBOX:PATH"))
                .with_hint("Write SANDBOX:PATH, such as dev:/root/plot.png.")),
        }
    }
}

pub(crate) async fn run(context: &Context, args: Args) -> CommandResult {
    let Args { file: SandboxFile { sandbox, path }, ttl } = args;
    // Rounded up, so that a part of a second does not become zero.
    let ttl_seconds =
        ttl.map(|ttl| ttl.as_millis().div_ceil(1000)).map(|s| u64::try_from(s).unwrap_or(u64::MAX));
    let linked = context.client().await?.link(&sandbox, &v1::LinkRequest { path, ttl_seconds }).await;
    let link = linked.map_err(|failed| {
        failed.map(|error| match error.next() {
            // What is not a file: the daemon's advice is a route of its API.
            Some(Next::Advice(_)) if error.kind() == ErrorKind::WrongState => error.with_hint(format!(
                "A link leads to one file; `warren exec {sandbox} ls DIRECTORY` shows files."
            )),
            _ => error,
        })
    })?;
    if context.json {
        output::json(&link)?;
    } else {
        output::line(&link.url)?;
    }
    Ok(ExitCode::SUCCESS)
}

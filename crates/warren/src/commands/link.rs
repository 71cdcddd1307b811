//! `warren link`

use std::{process::ExitCode, str::FromStr, time::Duration};

use frontends::rest::v1;
use sandbox::{Error, Result};

use super::Context;
use crate::{arguments, error::CommandResult, output};

/// Print a link to a file of a sandbox, for a browser
///
/// Whoever has the link may read that one file until it expires, while the sandbox runs. It ends with the sandbox.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  warren link dev:/root/plot.png
  warren link dev:/root/report.pdf --ttl 1d")]
pub(crate) struct Args {
    /// SANDBOX:PATH
    #[arg(value_name = "SANDBOX:PATH")]
    file: Place,
    /// How long it holds, up to a week
    #[arg(long, value_name = "SPAN", value_parser = arguments::duration)]
    ttl: Option<Duration>,
}

/// A file in a sandbox.
#[derive(Debug, Clone)]
struct Place {
    sandbox: String,
    path: String,
}

impl FromStr for Place {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text.split_once(':') {
            Some((sandbox, path)) if !sandbox.is_empty() && path.starts_with('/') => {
                Ok(Self { sandbox: sandbox.to_owned(), path: path.to_owned() })
            }
            _ => Err(Error::invalid(format!("{text:?} is not a file of a sandbox"))
                .with_hint("Write SANDBOX:PATH with an absolute path, such as dev:/root/plot.png.")),
        }
    }
}

pub(crate) async fn run(context: &Context, args: Args) -> CommandResult {
    let Args { file: Place { sandbox, path }, ttl } = args;
    // A part of a second is not nothing.
    let ttl_seconds =
        ttl.map(|ttl| ttl.as_millis().div_ceil(1000)).map(|s| u64::try_from(s).unwrap_or(u64::MAX));
    let link = context.client().await?.link(&sandbox, &v1::LinkRequest { path, ttl_seconds }).await?;
    if context.json {
        output::json(&link)?;
    } else {
        output::line(&link.url)?;
    }
    Ok(ExitCode::SUCCESS)
}

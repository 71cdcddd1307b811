//! `warren cp`

use std::{
    io::{self, IsTerminal as _},
    process::ExitCode,
};

use sandbox::Error;
use serde::Serialize;

use super::Context;
use crate::{
    client::Within,
    copy::{self, Endpoint, Links, Progress, Source},
    error::CommandResult,
    output,
};

/// Copy files and directories into or out of a sandbox
///
/// One side is SANDBOX:PATH; a relative path starts at the sandbox's working directory. If the destination is an
/// existing directory, the source is copied into it; DIR/. means the contents of DIR. `-` is a tar stream on stdin or
/// stdout. Files copied out belong to you, without setuid bits; devices are skipped.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  warren cp notes.txt dev:/root/
  warren cp dev:/srv/out ./out
  tar c src | warren cp - dev:/srv
  warren cp dev:/srv - | tar t")]
pub(crate) struct Args {
    /// PATH, SANDBOX:PATH, or -
    source: Endpoint,
    /// PATH, SANDBOX:PATH, or -
    destination: Endpoint,
    /// Follow symbolic links in the sandbox instead of copying the links
    #[arg(long, short = 'L')]
    follow_link: bool,
    /// Keep the file owners of a tar stream
    #[arg(long)]
    keep_ids: bool,
    /// Do not show progress
    #[arg(long, short)]
    quiet: bool,
}

#[derive(Serialize)]
struct Copied {
    bytes: u64,
}

pub(crate) async fn run(context: &Context, args: Args) -> CommandResult {
    let progress = Progress::new(!args.quiet && !context.json);
    let links = if args.follow_link { Links::Follow } else { Links::Keep };
    let bytes = match (&args.source, &args.destination) {
        (Endpoint::Inside { name, path }, Endpoint::Local(local)) => {
            let source = Source { within: Within::Sandbox(name), path, links };
            copy::download(&context.client().await?, source, local, &progress).await?
        }
        (Endpoint::Local(local), Endpoint::Inside { name, path }) => {
            copy::upload(&context.client().await?, local, Within::Sandbox(name), path, &progress).await?
        }
        (Endpoint::Inside { .. }, Endpoint::Stream) if io::stdout().is_terminal() => {
            return Err(Error::invalid("not writing an archive to a terminal")
                .with_hint("Use a pipe, such as `| tar x`.")
                .into());
        }
        (Endpoint::Inside { name, path }, Endpoint::Stream) => {
            copy::stream_out(&context.client().await?, Source { within: Within::Sandbox(name), path, links })
                .await?
        }
        (Endpoint::Stream, Endpoint::Inside { name, path }) => {
            copy::stream_in(&context.client().await?, Within::Sandbox(name), path, args.keep_ids, &progress)
                .await?
        }
        (Endpoint::Inside { .. }, Endpoint::Inside { .. }) => {
            return Err(Error::invalid("both sides are sandboxes")
                .with_hint("Use a pipe: warren cp a:/x - | warren cp - b:/")
                .into());
        }
        (Endpoint::Local(_) | Endpoint::Stream, Endpoint::Local(_) | Endpoint::Stream) => {
            return Err(Error::invalid("neither side is in a sandbox")
                .with_hint("Write SANDBOX:PATH on one side, such as dev:/root/.")
                .into());
        }
    };
    progress.finish();
    // With the stream on stdout, nothing else may be printed there.
    if context.json && args.destination != Endpoint::Stream {
        output::json(&Copied { bytes })?;
    }
    Ok(ExitCode::SUCCESS)
}

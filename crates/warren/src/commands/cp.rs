//! `warren cp`

use std::process::ExitCode;

use sandbox::Error;
use serde::Serialize;

use super::Context;
use crate::{
    client::Within,
    copy::{self, Endpoint, Links, Progress, Source},
    error::CommandResult,
    output,
};

/// Copy files and directories into a sandbox or out of one
///
/// One side is SANDBOX:PATH. A directory that is there receives the source; DIR/. means what is in DIR. `-` is a tar stream on
/// stdin or stdout. What comes out belongs to you; setuid bits and devices stay inside.
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
    /// Copy what a link inside points to, instead of the link
    #[arg(long, short = 'L')]
    follow_link: bool,
    /// Keep the owners of a tar stream
    #[arg(long)]
    keep_ids: bool,
    /// Show no progress
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
                .with_hint("Pipe one into the other: warren cp a:/x - | warren cp - b:/")
                .into());
        }
        (Endpoint::Local(_) | Endpoint::Stream, Endpoint::Local(_) | Endpoint::Stream) => {
            return Err(Error::invalid("neither side is in a sandbox")
                .with_hint("Write SANDBOX:PATH on one side, such as dev:/root/.")
                .into());
        }
    };
    progress.finish();
    // With a stream on stdout there is no room for words.
    if context.json && args.destination != Endpoint::Stream {
        output::json(&Copied { bytes })?;
    }
    Ok(ExitCode::SUCCESS)
}

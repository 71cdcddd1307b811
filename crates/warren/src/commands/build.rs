//! `warren build`

use std::{
    fs,
    io::{self, IsTerminal as _},
    path::{Path, PathBuf},
    pin::Pin,
    process::ExitCode,
    time::Duration,
};

use bytes::Bytes;
use engine::OUTSIDE_DOCKERFILE;
use frontends::rest::v1::{BuildEvent, ErrorBody};
use futures_util::{Stream, StreamExt as _};
use sandbox::{Error, ErrorKind, Preset};
use serde::Deserialize;
use tokio_util::io::ReaderStream;

use super::Context;
use crate::{
    arguments,
    build::{Packing, Show, Trouble, pack},
    client::Target,
    error::{CommandError, CommandResult, io_failure},
    output,
};

/// Bytes of a build context read from stdin at once.
const PIECE_BYTES: usize = 256 * 1024;

/// Build an image from a Dockerfile
///
/// Every instruction that changes files runs in a sandbox. RUN can reach the package indexes of pip, npm and apt, and
/// what --network and --allow add. Files matched by .dockerignore are not sent. Layers of earlier builds are reused if
/// their inputs match.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  warren build -t team/app .
  warren build -t team/app:debug --target debug --build-arg VERSION=1.2 .
  warren build -f deploy/Dockerfile -t web src
  warren build -t team/app --allow deb.nodesource.com:443 .
  tar c -C src . | warren build -t web -")]
pub(crate) struct Args {
    /// Name of the image; may be repeated
    #[arg(long, short = 't', value_name = "NAME")]
    tag: Vec<String>,
    /// Path of the Dockerfile [default: PATH/Dockerfile]
    #[arg(long, short = 'f', value_name = "FILE")]
    file: Option<PathBuf>,
    /// Value for an ARG; NAME alone takes the value from the environment
    #[arg(long, value_name = "NAME=VALUE")]
    build_arg: Vec<String>,
    /// Stage to build [default: the last one]
    #[arg(long, value_name = "STAGE")]
    target: Option<String>,
    /// Do not use cached layers
    #[arg(long)]
    no_cache: bool,
    /// Check registries for newer versions of the images in FROM
    #[arg(long)]
    pull: bool,
    /// What RUN can reach: none, packages, public, public+private or all [default: packages]
    #[arg(long, value_name = "PRESET", value_parser = preset)]
    network: Option<String>,
    /// Allow traffic of RUN: a name, *.wildcard, address or range, each with :PORT if wanted
    #[arg(long, value_name = "RULE")]
    allow: Vec<String>,
    /// Deny traffic of RUN, whatever is allowed
    #[arg(long, value_name = "RULE")]
    deny: Vec<String>,
    /// Give up after this long [default: 1h]
    #[arg(long, value_name = "SPAN", value_parser = arguments::duration)]
    timeout: Option<Duration>,
    /// Print only the result
    #[arg(long, short)]
    quiet: bool,
    /// Build context: a directory, or - for a tar on stdin
    #[arg(value_name = "PATH|-")]
    path: PathBuf,
}

/// A preset, or docker's word for what it is without one.
fn preset(text: &str) -> Result<String, Error> {
    if text == "default" { Ok(text.to_owned()) } else { Ok(text.parse::<Preset>()?.to_string()) }
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Line {
    Failed(ErrorBody),
    Told(BuildEvent),
}

pub(crate) async fn run(context: &Context, args: Args) -> CommandResult {
    let trouble = Trouble::default();
    let built = build(context, args, &trouble).await;
    // The reason why the stream broke tells more than the fact that it did.
    built.map_err(|error| trouble.error().map_or(error, CommandError::from))
}

async fn build(context: &Context, args: Args, trouble: &Trouble) -> CommandResult {
    // Before a daemon starts, because it creates its directories.
    let client = context.client().await?;
    let (dockerfile, bytes) = context_of(context, &args, trouble)?;
    let mut target = Target::new(&["images", "build"]).with("dockerfile", dockerfile);
    for tag in &args.tag {
        target = target.with("tag", tag);
    }
    for argument in &args.build_arg {
        let value = match argument.split_once('=') {
            Some(_) => argument.clone(),
            // An unset variable keeps the Dockerfile's default.
            None => match std::env::var(argument) {
                Ok(value) => format!("{argument}={value}"),
                Err(_unset) => continue,
            },
        };
        target = target.with("buildArg", value);
    }
    target = target.maybe("target", args.target.as_ref());
    target = target.maybe("network", args.network.as_ref());
    for (name, rules) in [("allow", &args.allow), ("deny", &args.deny)] {
        for rule in rules {
            target = target.with(name, rule);
        }
    }
    target = target.maybe("timeoutMs", args.timeout.map(|span| span.as_millis()));
    if args.no_cache {
        target = target.with("noCache", true);
    }
    if args.pull {
        target = target.with("pull", "always");
    }
    let mut lines = client.build_image(target, bytes).await?;
    let mut show =
        Show::new(if context.json || args.quiet { None } else { Some(io::stderr().is_terminal()) });
    while let Some(line) = lines.next().await {
        let line = line?;
        match serde_json::from_str(&line).map_err(io::Error::other)? {
            Line::Failed(ErrorBody { error: detail }) => {
                show.end();
                return Err(CommandError::from_daemon(detail));
            }
            Line::Told(event) => {
                if context.json {
                    output::line(&line)?;
                }
                match event {
                    BuildEvent::Done { digest, .. } => {
                        show.end();
                        if !context.json {
                            output::line(&digest)?;
                        }
                        return Ok(ExitCode::SUCCESS);
                    }
                    event => show.event(&event),
                }
            }
        }
    }
    Err(Error::new(ErrorKind::Unavailable, "the daemon stopped before the build finished")
        .with_hint("Run the build again; finished layers are kept.")
        .into())
}

type ByteStream = Pin<Box<dyn Stream<Item = io::Result<Bytes>> + Send>>;

/// The Dockerfile's path in the context, and the context.
fn context_of(context: &Context, args: &Args, trouble: &Trouble) -> CommandResult<(String, ByteStream)> {
    if args.path == Path::new("-") {
        let dockerfile =
            args.file.as_ref().map_or_else(|| "Dockerfile".to_owned(), |file| file.display().to_string());
        return Ok((dockerfile, Box::pin(ReaderStream::with_capacity(tokio::io::stdin(), PIECE_BYTES))));
    }
    let resolve =
        |path: &Path| path.canonicalize().map_err(|error| io_failure(path.display().to_string(), error));
    let directory = resolve(&args.path)?;
    if !directory.is_dir() {
        return Err(Error::invalid(format!("{} is not a directory", args.path.display()))
            .with_hint("Give a directory, or - for a tar on stdin.")
            .into());
    }
    let file = resolve(&args.file.clone().unwrap_or_else(|| directory.join("Dockerfile")))?;
    let inside = file.strip_prefix(&directory).ok().and_then(|path| path.to_str()).map(str::to_owned);
    let mut packing = Packing::of(directory)?;
    let own = [&context.directories.home, &context.directories.run];
    packing.left_out = own.into_iter().filter_map(|own| own.canonicalize().ok()).collect();
    let dockerfile = match inside {
        Some(path) => {
            packing.always.push(path.clone());
            path
        }
        None => {
            packing.beside =
                Some(fs::read(&file).map_err(|error| io_failure(file.display().to_string(), error))?);
            OUTSIDE_DOCKERFILE.to_owned()
        }
    };
    Ok((dockerfile, Box::pin(pack(packing, trouble.clone()))))
}

//! `warren pull`

use std::{
    io::{self, Read as _},
    process::ExitCode,
};

use frontends::{images::Password, rest::v1};
use sandbox::Error;

use super::{Context, targets::Failures};
use crate::{
    client::Client,
    error::{CommandError, CommandResult},
    output,
    pulls::{self, Show},
};

/// Longest password that is read.
const MAX_PASSWORD_BYTES: u64 = 16 * 1024;

/// Pull images from registries
///
/// Credentials come from the daemon user's Docker configuration (`docker login`) unless a user name is given. An
/// interrupted download resumes with the next pull.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  warren pull alpine
  warren pull python:3.12-slim ghcr.io/team/app@sha256:…
  pass show registry | warren pull --username ana --password-stdin registry.example/team/app")]
pub(crate) struct Args {
    /// Images, such as alpine or registry.example/team/app:1.2
    #[arg(required = true, value_name = "IMAGE")]
    images: Vec<String>,
    /// Platform, such as linux/arm64 [default: this machine's]
    #[arg(long)]
    platform: Option<String>,
    /// User name for the registry
    #[arg(long, value_name = "NAME", requires = "password_stdin")]
    username: Option<String>,
    /// Read the password from stdin
    #[arg(long, requires = "username")]
    password_stdin: bool,
    /// Use plain HTTP, without TLS
    #[arg(long)]
    insecure: bool,
    /// Do not show progress
    #[arg(long, short)]
    quiet: bool,
}

pub(crate) async fn run(context: &Context, args: Args) -> CommandResult {
    let password = if args.password_stdin { Some(Password(read_password()?)) } else { None };
    let client = context.client().await?;
    let mut failures = Failures::default();
    for image in &args.images {
        let request = v1::PullRequest {
            reference: image.clone(),
            platform: args.platform.clone(),
            username: args.username.clone(),
            password: password.clone(),
            insecure: args.insecure,
        };
        let pulled = pull(context, &client, &request, args.quiet).await;
        let pulled = pulled.map_err(|failed| match args.images.len() {
            1 => failed,
            // Each error says which image it is about.
            _ => failed.map(|error| error.reworded(|words| format!("{image}: {words}"))),
        });
        // If our output is closed, do not pull the rest.
        if matches!(pulled, Err(CommandError::BrokenPipe)) {
            return pulled.map(|()| ExitCode::SUCCESS);
        }
        failures.note(pulled, context.json);
    }
    failures.end()
}

async fn pull(
    context: &Context,
    client: &Client,
    request: &v1::PullRequest,
    is_quiet: bool,
) -> CommandResult<()> {
    let show = if context.json { Show::Programs } else { Show::unless(is_quiet) };
    let last = pulls::follow(client.pull_image(request).await?, show).await?;
    if let (v1::PullEvent::Done { image }, false) = (last, context.json) {
        for warning in image.layers.iter().flat_map(|layer| &layer.warnings) {
            output::warn(&output::printable(warning));
        }
        output::line(&image.image.digest)?;
    }
    Ok(())
}

pub(super) fn read_password() -> CommandResult<String> {
    let mut text = String::new();
    io::stdin().lock().take(MAX_PASSWORD_BYTES + 1).read_to_string(&mut text)?;
    let password = text.trim_end_matches(['\n', '\r']);
    if password.is_empty() || password.len() as u64 > MAX_PASSWORD_BYTES {
        let what = if password.is_empty() { "there is no password" } else { "the password is too long" };
        return Err(Error::invalid(format!("{what} on stdin")).with_hint("Pipe it in.").into());
    }
    Ok(password.to_owned())
}

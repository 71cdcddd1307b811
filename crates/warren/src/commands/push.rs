//! `warren push`

use std::process::ExitCode;

use frontends::{images::Password, rest::v1};

use super::{Context, pull};
use crate::{error::CommandResult, output};

/// Push an image to a registry
///
/// Its name says where: registry.example/team/app:1.2. Credentials come from the daemon user's Docker configuration
/// (`warren login`) unless a user name is given. What the registry already has is not sent again.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  warren push registry.example/team/app:1.2
  warren push app --to registry.example/team/app:1.2")]
pub(crate) struct Args {
    /// Name or digest
    image: String,
    /// Name in the registry [default: the image's own]
    #[arg(long, value_name = "NAME")]
    to: Option<String>,
    /// User name for the registry
    #[arg(long, value_name = "NAME", requires = "password_stdin")]
    username: Option<String>,
    /// Read the password from stdin
    #[arg(long, requires = "username")]
    password_stdin: bool,
    /// Use plain HTTP, without TLS
    #[arg(long)]
    insecure: bool,
}

pub(crate) async fn run(context: &Context, args: Args) -> CommandResult {
    let password = if args.password_stdin { Some(Password(pull::read_password()?)) } else { None };
    let Args { image, to, username, insecure, .. } = args;
    let request = v1::PushRequest { target: to, username, password, insecure };
    let pushed = context.client().await?.push_image(&image, &request).await?;
    if context.json {
        output::json(&pushed)?;
    } else {
        output::line(&format!("{}@{}", pushed.reference, pushed.digest))?;
    }
    Ok(ExitCode::SUCCESS)
}

//! `warren login`, `warren logout`

use std::process::ExitCode;

use frontends::{images::Password, rest::v1};
use sandbox::Error;
use serde::Serialize;

use super::{Context, pull, secret, sure};
use crate::{
    docker_config::{DOCKER_HUB, DockerConfig},
    error::CommandResult,
    output, terminal,
};

/// Log in to a registry
///
/// The registry checks the password, and it is kept where `docker login` keeps it: in a credential helper if the Docker
/// configuration names one, else in that file. Pulls and pushes of a daemon of the same user use it.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  warren login registry.example
  pass show registry | warren login -u ana --password-stdin registry.example")]
pub(crate) struct Args {
    /// User name; a terminal asks for it
    #[arg(long, short = 'u', value_name = "NAME")]
    username: Option<String>,
    /// Password; every process of this machine can read it, so prefer --password-stdin
    #[arg(long, short = 'p', value_name = "TEXT", conflicts_with = "password_stdin")]
    password: Option<String>,
    /// Read the password from stdin
    #[arg(long)]
    password_stdin: bool,
    /// Use plain HTTP, without TLS
    #[arg(long)]
    insecure: bool,
    /// Host of the registry
    #[arg(default_value = DOCKER_HUB)]
    registry: String,
}

/// Log out of a registry
#[derive(Debug, clap::Args)]
pub(crate) struct LogoutArgs {
    /// Host of the registry
    #[arg(default_value = DOCKER_HUB)]
    registry: String,
}

pub(crate) async fn run(context: &Context, args: Args) -> CommandResult {
    let username = match &args.username {
        Some(username) => username.clone(),
        None => asked_username(&args.registry)?,
    };
    let password = match &args.password {
        Some(password) => password.clone(),
        None if args.password_stdin => pull::read_password()?,
        None if terminal::stdin_is_terminal() => secret::typed(&format!("Password of {username}")).await?,
        None => {
            return Err(Error::invalid("cannot ask for a password: stdin is not a terminal")
                .with_hint("Pipe it in, with --password-stdin.")
                .into());
        }
    };
    let password = password.trim_end_matches(['\n', '\r']).to_owned();
    let Args { registry, insecure, .. } = args;
    let login = v1::LoginRequest { registry, username, password: Password(password), insecure };
    // Read first: a file that cannot be written to ends this before anybody is asked.
    let config = DockerConfig::open()?;
    let path = config.path().to_owned();
    let client = context.client().await?;
    client.check_login(&login).await?;
    let of_daemon = client.daemon().and_then(|daemon| DockerConfig::path_of_process(daemon.pid?));
    match config.store(&login.registry, &login.username, &login.password.0)? {
        Some(helper) => output::note(&format!("kept by docker-credential-{helper}")),
        None => output::note(&format!("kept in {}, readable by you alone, not encrypted", path.display())),
    }
    if let Some(other) = of_daemon.filter(|other| *other != path) {
        output::warn(&format!(
            "the daemon was started with another HOME or DOCKER_CONFIG and reads {}, so it will not find this login",
            other.display()
        ));
    }
    output::line("Login succeeded")?;
    Ok(ExitCode::SUCCESS)
}

fn asked_username(registry: &str) -> CommandResult<String> {
    if !terminal::stdin_is_terminal() {
        return Err(Error::invalid("cannot ask for a user name: stdin is not a terminal")
            .with_hint("Pass it with --username.")
            .into());
    }
    let typed = sure::ask(&format!("User name at {registry}: "))?;
    match typed.trim() {
        "" => Err(Error::invalid("there is no user name").into()),
        username => Ok(username.to_owned()),
    }
}

/// The output of `--json`.
#[derive(Serialize)]
struct LoggedOut<'a> {
    registry: &'a str,
    /// Whether there were credentials.
    removed: bool,
}

pub(crate) async fn logout(context: &Context, args: &LogoutArgs) -> CommandResult {
    let removed = DockerConfig::open()?.erase(&args.registry)?;
    match removed {
        _ if context.json => output::json(&LoggedOut { registry: &args.registry, removed })?,
        true => output::line(&format!("Removed the credentials of {}", args.registry))?,
        false => output::line(&format!("No credentials for {} were stored", args.registry))?,
    }
    Ok(ExitCode::SUCCESS)
}

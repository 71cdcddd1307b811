//! `warren ssh`, `warren ssh-config`, and the hidden `warren ssh-proxy` that both use

use std::{
    fs,
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
};

use sandbox::{Error, ErrorKind, Result};
use ssh::HostKey;
use tokio::{
    io::{AsyncWriteExt as _, copy, stdin, stdout},
    net::UnixStream,
};

use super::Context;
use crate::{client::StartMode, error::CommandResult, output};

/// The name by which clients know the daemon's key, whatever way leads to it.
const HOST_ALIAS: &str = "warren";
const KNOWN_HOSTS: &str = "ssh_known_hosts";

/// Open a shell in a sandbox, or run a command, with the system's ssh
///
/// Needs no key and no listener: the connection goes over the daemon's own socket. Arguments before the sandbox's name
/// are options of ssh, such as -L 8080:localhost:80 or -t.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  warren ssh dev
  warren ssh dev ls -l /
  warren ssh dev+ana
  warren ssh -L 8080:localhost:8000 dev")]
pub(crate) struct Args {
    /// Options of ssh, the sandbox ([NAMESPACE/]NAME[+USER]) and a command
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true, value_name = "ARGUMENT")]
    arguments: Vec<String>,
}

/// Print a configuration for ssh, scp, sftp, rsync, sshfs and VS Code Remote-SSH
///
/// Add it to ~/.ssh/config; then `ssh dev.warren` is a shell in the sandbox `dev`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  warren ssh-config >> ~/.ssh/config
  warren ssh-config dev > ~/.ssh/warren.conf
  warren ssh-config --host sandboxes.example --port 2222 dev")]
pub(crate) struct ConfigArgs {
    /// Sandboxes, as names or NAMESPACE/NAME [default: all that exist]
    sandboxes: Vec<String>,
    /// Connect over TCP to the daemon on this host, with a key of yours, instead of over its socket
    #[arg(long, value_name = "HOST")]
    host: Option<String>,
    /// Port of the daemon's SSH server on that host
    #[arg(long, default_value_t = 2222, requires = "host")]
    port: u16,
}

/// Connect stdin and stdout to the daemon's SSH server; used by `warren ssh` and `warren ssh-config`
#[derive(Debug, clap::Args)]
pub(crate) struct ProxyArgs {}

pub(crate) async fn run(context: &Context, args: Args) -> CommandResult {
    // The daemon makes its key when it starts.
    drop(context.client_that(StartMode::IfNeeded).await?);
    let (options, destination, command) = split(&args.arguments)?;
    let destination = match &context.namespace {
        Some(namespace) if !destination.contains('/') => format!("{namespace}/{destination}"),
        _ => destination.to_owned(),
    };
    let known_hosts = write_known_hosts(&context.directories.home)?;
    let mut ssh = Command::new("ssh");
    for option in proxy_options(context, &known_hosts)? {
        ssh.arg("-o").arg(option);
    }
    // The name of the host is for messages only.
    ssh.args(options).args(["-l", &destination, HOST_ALIAS, "--"]).args(command);
    if command.is_empty() {
        ssh = without_end_of_options(ssh);
    }
    let error = ssh.exec();
    let hint = "Install the OpenSSH client, or use `warren exec -it`.";
    Err(Error::new(ErrorKind::Unavailable, format!("could not run ssh: {error}")).with_hint(hint).into())
}

/// The same command without its last argument.
fn without_end_of_options(command: Command) -> Command {
    let mut shorter = Command::new(command.get_program());
    let arguments: Vec<_> = command.get_args().collect();
    shorter.args(&arguments[..arguments.len().saturating_sub(1)]);
    shorter
}

/// Options of ssh that take a value of their own.
const WITH_VALUE: &str = "BbcDEeFIiJLlmOopPQRSWw";

/// Splits the arguments into ssh's options, the destination and the command.
fn split(arguments: &[String]) -> Result<(&[String], &str, &[String])> {
    let mut index = 0;
    while let Some(argument) = arguments.get(index) {
        let Some(letters) = argument.strip_prefix('-').filter(|letters| !letters.is_empty()) else {
            return Ok((&arguments[..index], argument, &arguments[index + 1..]));
        };
        // `-4tL 80:localhost:80`: the first letter that takes a value has it behind it, or in the next argument.
        let value = letters.char_indices().find(|(_, letter)| WITH_VALUE.contains(*letter));
        let is_apart = value.is_some_and(|(at, letter)| at + letter.len_utf8() == letters.len());
        index += if is_apart { 2 } else { 1 };
    }
    Err(Error::invalid("no sandbox is named").with_hint("Name one: `warren ssh NAME`."))
}

fn proxy_options(context: &Context, known_hosts: &Path) -> Result<Vec<String>> {
    let program = std::env::current_exe().map_err(|error| {
        Error::new(ErrorKind::Internal, format!("the path of this program is unknown: {error}"))
    })?;
    let quoted = |path: &Path| format!("'{}'", path.display().to_string().replace('\'', "'\\''"));
    let directories = &context.directories;
    Ok(vec![
        format!(
            "ProxyCommand={} --home {} --run-dir {} ssh-proxy",
            quoted(&program),
            quoted(&directories.home),
            quoted(&directories.run)
        ),
        format!("HostKeyAlias={HOST_ALIAS}"),
        format!("UserKnownHostsFile=\"{}\"", known_hosts.display()),
        "GlobalKnownHostsFile=/dev/null".to_owned(),
        "StrictHostKeyChecking=yes".to_owned(),
        "UpdateHostKeys=no".to_owned(),
    ])
}

/// The file of known hosts with the daemon's key, written anew each time: the key may have changed.
fn write_known_hosts(home: &Path) -> Result<PathBuf> {
    let path = home.join(KNOWN_HOSTS);
    let key = HostKey::load(home)?.ok_or_else(|| {
        Error::new(ErrorKind::Unavailable, "the daemon has no SSH host key")
            .with_hint("Restart it: `warren serve --take-over`.")
    })?;
    let line = key.known_hosts_line(HOST_ALIAS)?;
    if fs::read_to_string(&path).is_ok_and(|text| text == line) {
        return Ok(path);
    }
    let draft = home.join(format!("{KNOWN_HOSTS}.{}.part", std::process::id()));
    fs::write(&draft, line).and_then(|()| fs::rename(&draft, &path)).map_err(|error| {
        Error::new(ErrorKind::Unavailable, format!("could not write {}: {error}", path.display()))
    })?;
    Ok(path)
}

pub(crate) async fn config(context: &Context, args: ConfigArgs) -> CommandResult {
    let client = context.client().await?;
    let mut sandboxes = args.sandboxes;
    if sandboxes.is_empty() {
        sandboxes = client.list(&[]).await?.into_iter().map(|view| view.name.to_string()).collect();
    }
    let options = match &args.host {
        Some(host) => vec![format!("HostName {host}"), format!("Port {}", args.port)],
        None => {
            let known_hosts = write_known_hosts(&context.directories.home)?;
            let options = proxy_options(context, &known_hosts)?;
            options.iter().map(|option| option.replacen('=', " ", 1)).collect()
        }
    };
    for sandbox in sandboxes {
        let user = match &context.namespace {
            Some(namespace) if !sandbox.contains('/') => format!("{namespace}/{sandbox}"),
            _ => sandbox.clone(),
        };
        output::line(&format!("Host {}.warren", sandbox.replace('/', ".")))?;
        output::line(&format!("    User {user}"))?;
        for option in &options {
            output::line(&format!("    {option}"))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

pub(crate) async fn proxy(context: &Context, _args: ProxyArgs) -> CommandResult {
    drop(context.client_that(StartMode::IfNeeded).await?);
    let path = context.directories.ssh_socket()?;
    let stream = UnixStream::connect(&path).await.map_err(|error| {
        Error::new(ErrorKind::Unavailable, format!("could not reach {}: {error}", path.display()))
    })?;
    let (mut from, mut to) = stream.into_split();
    let (mut input, mut output) = (stdin(), stdout());
    let inward = async {
        copy(&mut input, &mut to).await.ok();
        to.shutdown().await.ok();
        // The server still has something to say.
        std::future::pending::<()>().await;
    };
    tokio::select! {
        copied = copy(&mut from, &mut output) => drop(copied),
        () = inward => {}
    }
    output.flush().await.ok();
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_of_ssh_come_before_the_sandbox() {
        let check = |line: &str, n_options: usize, destination: &str, n_command: usize| {
            let arguments: Vec<String> = line.split(' ').map(str::to_owned).collect();
            let (options, found, command) = split(&arguments).unwrap();
            assert_eq!((options.len(), found, command.len()), (n_options, destination, n_command), "{line}");
        };
        check("dev", 0, "dev", 0);
        check("dev ls -l /", 0, "dev", 3);
        check("-t dev top", 1, "dev", 1);
        check("-L 80:localhost:80 dev", 2, "dev", 0);
        check("-tL 80:localhost:80 -oX=y dev a", 3, "dev", 1);
        check("-vvv -o X=y dev", 3, "dev", 0);
        let none: Vec<String> = vec!["-v".to_owned()];
        assert!(split(&none).is_err() && split(&[]).is_err());
    }
}

//! `msb server`: the daemon, as microsandbox's server was handled.

use std::{net::IpAddr, path::PathBuf, process::ExitCode, time::Duration};

use clap::Subcommand;
use frontends::dialects;
use sandbox::{Error, ErrorKind};

use super::{Line, instead, line, run_all};
use crate::{
    client::{self, Client, ClientOptions, StartMode},
    daemon::{self, Note, Readiness},
    directories::Directories,
    error::CommandResult,
    output,
};

const DEFAULT_HOST: &str = "127.0.0.1";
const DEFAULT_PORT: u16 = 5555;
/// How long a key is valid where nothing else is said, as there.
const DEFAULT_EXPIRY: &str = "24h";
const DAY: u64 = 24 * 60 * 60;

/// Start and stop the server, and make keys for it
#[derive(Debug, clap::Args)]
#[command(disable_help_subcommand = true)]
pub(super) struct ServerArgs {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    Start(StartArgs),
    /// Stop the server; sandboxes keep running
    Stop,
    Keygen(KeygenArgs),
    /// Show the server's sandboxes and their state
    Status(StatusArgs),
    /// List the server's sandboxes
    List(ListArgs),
    Log(LogArgs),
    /// Not part of Warren: use `warren exec -it NAME`
    #[command(hide = true)]
    Ssh {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        _rest: Vec<String>,
    },
}

/// Start the server
#[derive(Debug, clap::Args)]
struct StartArgs {
    /// Address to listen on
    #[arg(long, default_value = DEFAULT_HOST)]
    host: String,
    /// Port to listen on
    #[arg(long, default_value_t = DEFAULT_PORT)]
    port: u16,
    /// Has no effect: Warren keeps its data in WARREN_HOME
    #[arg(long, short, value_name = "DIR")]
    path: Option<PathBuf>,
    /// Require no key: everyone on this machine can do everything
    #[arg(long)]
    dev: bool,
    /// Refused: keys of Warren do not depend on a secret of the server
    #[arg(long, short, value_name = "KEY")]
    key: Option<String>,
    /// Run in the background
    #[arg(long, short)]
    detach: bool,
    /// Refused: keys are revoked one by one
    #[arg(long, short)]
    reset_key: bool,
}

/// Make a key and print it, once
#[derive(Debug, clap::Args)]
struct KeygenArgs {
    /// How long it is valid, such as 30s, 15m, 24h, 7d, 2w, 3mo or 1y [default: 24h]
    #[arg(long, value_name = "SPAN", value_parser = expiry)]
    expire: Option<Duration>,
    /// The namespace that it gives access to [default: all]
    #[arg(long, short, value_name = "NAME")]
    namespace: Option<String>,
}

#[derive(Debug, clap::Args)]
struct StatusArgs {
    /// Has no effect: everything here is a sandbox
    #[arg(long, short)]
    sandbox: bool,
    /// Part of the name
    name: Option<String>,
    #[arg(long, short, value_name = "NAME")]
    namespace: Option<String>,
}

#[derive(Debug, clap::Args)]
struct ListArgs {
    #[arg(long, short, value_name = "NAME")]
    namespace: Option<String>,
}

/// Show the output of a sandbox
#[derive(Debug, clap::Args)]
struct LogArgs {
    /// Has no effect: everything here is a sandbox
    #[arg(long, short)]
    sandbox: bool,
    name: String,
    #[arg(long, short, value_name = "NAME")]
    namespace: Option<String>,
    /// Go on as more comes
    #[arg(long, short)]
    follow: bool,
    /// Only so many lines from the end
    #[arg(long, short, value_name = "N")]
    tail: Option<usize>,
}

impl ServerArgs {
    pub(super) fn run(self, level: Option<&str>) -> CommandResult {
        match self.verb {
            Verb::Start(args) => start(&args, level),
            Verb::Stop => stop(),
            Verb::Keygen(args) => run_all(&[keygen(&args)]),
            Verb::Status(args) => {
                show_address()?;
                run_all(&[status(args.name.as_deref(), args.namespace.as_deref())])
            }
            Verb::List(args) => run_all(&[status(None, args.namespace.as_deref())]),
            Verb::Log(args) => run_all(&[log(&args)]),
            Verb::Ssh { .. } => Err(instead("`msb server ssh`", "Use `warren exec -it NAME`.").into()),
        }
    }
}

fn start(args: &StartArgs, level: Option<&str>) -> CommandResult {
    let mut flags = serve_flags(args)?;
    let directories = Directories::find(None, None)?;
    if args.path.is_some() {
        output::note("--path has no effect: Warren keeps its data in its own directory (WARREN_HOME)");
    }
    match running(&directories)? {
        Running::Nothing => {}
        // One that a command started, and that nobody can reach over TCP.
        Running::OnSocket => flags.push("--take-over".to_owned()),
        Running::At { url, pid } => {
            let message = format!("the server is running already, at {url} (pid {pid})");
            return Err(Error::new(ErrorKind::AlreadyExists, message)
                .with_hint("Stop it first with `msb server stop`; sandboxes keep running.")
                .into());
        }
    }
    if let Some(level) = level {
        flags.extend(line(&["--log", level]));
    }
    if args.detach {
        return start_in_background(&directories, &flags);
    }
    run_all(&[[line(&["serve"]), flags].concat()])
}

fn serve_flags(args: &StartArgs) -> Result<Line, Error> {
    if args.key.is_some() {
        return Err(instead(
            "--key",
            "Make keys with `msb server keygen`; they need no secret of the server.",
        ));
    }
    if args.reset_key {
        let hint = "Revoke keys with `warren key revoke`; `warren key list` shows them.";
        return Err(instead("--reset-key", hint));
    }
    let host = if args.host == "localhost" { DEFAULT_HOST } else { &args.host };
    let host: IpAddr = host.parse().map_err(|_malformed| {
        Error::invalid(format!("invalid --host: {host:?} is not an IP address"))
            .with_hint("Use an IP address, such as 127.0.0.1.")
    })?;
    let address = std::net::SocketAddr::new(host, args.port).to_string();
    let mut flags = line(&["--dialect", dialects::MICROSANDBOX.name, "--listen", &address]);
    if args.dev {
        flags.push("--dev".to_owned());
    }
    Ok(flags)
}

enum Running {
    Nothing,
    OnSocket,
    At { url: String, pid: u32 },
}

fn running(directories: &Directories) -> CommandResult<Running> {
    let options =
        ClientOptions { directories: directories.clone(), namespace: None, start: StartMode::Never };
    let client = crate::commands::block_on(async { Ok(Client::connect(options).await.ok()) })?;
    let Some(client) = client else { return Ok(Running::Nothing) };
    let pid = client.daemon().and_then(|daemon| daemon.pid).and_then(|pid| u32::try_from(pid).ok());
    let note = Note::read(&directories.run).filter(|note| Some(note.pid) == pid);
    Ok(note.map_or(Running::OnSocket, |note| Running::At { url: note.url, pid: note.pid }))
}

fn start_in_background(directories: &Directories, flags: &[String]) -> CommandResult {
    let readiness = crate::commands::block_on(async { Ok(client::start_daemon(directories, flags).await?) })?;
    match readiness {
        Readiness::Ready => {
            show_address()?;
            Ok(ExitCode::SUCCESS)
        }
        Readiness::Failed { error } => Err(error.into_error().into()),
        Readiness::Locked { pid } => {
            let pid = pid.map(|pid| format!(" (pid {pid})")).unwrap_or_default();
            Err(Error::new(ErrorKind::AlreadyExists, format!("another daemon is starting{pid}"))
                .with_hint("Try again in a moment.")
                .into())
        }
    }
}

fn show_address() -> CommandResult<()> {
    match running(&Directories::find(None, None)?)? {
        Running::At { url, pid } => output::note(&format!("the server runs at {url} (pid {pid})")),
        Running::OnSocket => output::note("the daemon runs, but does not listen on TCP: `msb server start`"),
        Running::Nothing => output::note("the server does not run: `msb server start`"),
    }
    Ok(())
}

fn stop() -> CommandResult {
    let directories = Directories::find(None, None)?;
    let was_running = directories.home.exists()
        && crate::commands::block_on(async { Ok(daemon::stop(&directories).await?) })?;
    output::note(match was_running {
        true => "the server has stopped; sandboxes keep running, and the next server finds them",
        false => "the server does not run",
    });
    Ok(ExitCode::SUCCESS)
}

fn keygen(args: &KeygenArgs) -> Line {
    let expires =
        args.expire.map_or_else(|| DEFAULT_EXPIRY.to_owned(), |span| format!("{}s", span.as_secs()));
    let mut made = line(&["key", "create", "--format", "msb", "--expires", &expires]);
    match args.namespace.as_deref() {
        None | Some("*") => made.push("--all-namespaces".to_owned()),
        Some(namespace) => made.extend(line(&["--namespace", namespace])),
    }
    made
}

fn status(name: Option<&str>, namespace: Option<&str>) -> Line {
    let mut made = line(&["ps", "--all"]);
    if let Some(name) = name {
        made.extend(line(&["--filter", &format!("name={name}")]));
    }
    in_namespace(made, namespace)
}

fn log(args: &LogArgs) -> Line {
    let mut made = line(&["logs"]);
    if args.follow {
        made.push("--follow".to_owned());
    }
    if let Some(tail) = args.tail {
        made.extend(line(&["--tail", &tail.to_string()]));
    }
    let mut made = in_namespace(made, args.namespace.as_deref());
    made.extend(line(&["--", &args.name]));
    made
}

fn in_namespace(mut made: Line, namespace: Option<&str>) -> Line {
    if let Some(namespace) = namespace.filter(|namespace| *namespace != "*") {
        made.extend(line(&["--namespace", namespace]));
    }
    made
}

/// A span in the old units: `s`, `m`, `h`, `d`, `w`, `mo`, `y`.
fn expiry(text: &str) -> Result<Duration, String> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let seconds = match unit {
        "s" => Some(1),
        "m" => Some(60),
        "h" => Some(60 * 60),
        "d" => Some(DAY),
        "w" => Some(7 * DAY),
        "mo" => Some(30 * DAY),
        "y" => Some(365 * DAY),
        _ => None,
    };
    let number = number.parse::<u64>().ok().filter(|number| *number > 0);
    let total = number.zip(seconds).and_then(|(number, unit)| number.checked_mul(unit));
    total.map(Duration::from_secs).ok_or_else(|| {
        let shown: String = text.chars().take(32).collect();
        format!("{shown:?} is not a span: write 30s, 15m, 24h, 7d, 2w, 3mo or 1y")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_have_the_old_units() {
        let days = |n| Ok(Duration::from_secs(n * DAY));
        assert_eq!(expiry("3mo"), days(90));
        assert_eq!(expiry("2w"), days(14));
        assert_eq!(expiry("1y"), days(365));
        assert_eq!(expiry("15m"), Ok(Duration::from_secs(900)));
        for wrong in ["", "3", "mo", "0d", "1M", "-1d", "99999999999999999y", "1h30m"] {
            assert!(expiry(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn keys_are_as_microsandbox_made_them() {
        let made = |expire: Option<&str>, namespace: Option<&str>| {
            let expire = expire.map(|text| expiry(text).unwrap());
            keygen(&KeygenArgs { expire, namespace: namespace.map(str::to_owned) }).join(" ")
        };
        assert_eq!(made(None, None), "key create --format msb --expires 24h --all-namespaces");
        assert_eq!(
            made(Some("1d"), Some("blue")),
            "key create --format msb --expires 86400s --namespace blue"
        );
        assert_eq!(made(None, Some("*")), "key create --format msb --expires 24h --all-namespaces");
    }
}

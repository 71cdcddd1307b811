//! The command line: global options and the list of commands.

use std::{env, ffi::OsString, path::PathBuf, process::ExitCode};

use clap::{Args, CommandFactory as _, FromArgMatches as _, Parser, Subcommand, error::ErrorKind};
use sandbox::{Error, Namespace};

use crate::{called_as, commands, error::CommandError, other_words};

/// Version, and in a release also the commit and its date.
pub(crate) const VERSION: &str = env!("WARREN_VERSION");

/// Sandboxes for AI agents: made in milliseconds, from the kernel's own parts
///
///
/// Commands start the daemon if it is not running.
#[derive(Debug, Parser)]
#[command(name = "warren", version = VERSION, max_term_width = 100, disable_help_subcommand = true)]
#[command(after_help = "Examples:
  warren run python3 -c 'print(6 * 7)'
  warren run -it bash
  warren code python -c '6 * 7'
  warren create --name dev && warren exec dev ls /")]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: GlobalArgs,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Global options")]
pub(crate) struct GlobalArgs {
    /// Data directory [env: WARREN_HOME]
    #[arg(long, global = true, value_name = "DIR", hide_short_help = true)]
    pub(crate) home: Option<PathBuf>,
    /// Directory for sockets [env: WARREN_RUN]
    #[arg(long, global = true, value_name = "DIR", hide_short_help = true)]
    pub(crate) run_dir: Option<PathBuf>,
    /// Namespace of the sandbox [env: WARREN_NAMESPACE]
    #[arg(long, global = true, value_name = "NAME", hide_short_help = true)]
    pub(crate) namespace: Option<Namespace>,
    /// Print JSON
    #[arg(long, global = true)]
    pub(crate) json: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Run(commands::run::Args),
    Exec(commands::exec::Args),
    Attach(commands::attach::Args),
    Execs(commands::execs::Args),
    Code(Box<commands::code::Args>),
    Repl(Box<commands::repl::Args>),
    Context(commands::context::Args),
    Create(commands::create::Args),
    /// Start stopped sandboxes again, with their files
    Start(commands::targets::Sandboxes),
    Stop(commands::stop::Args),
    Kill(commands::kill::Args),
    /// Freeze every process of a sandbox
    Pause(commands::targets::Sandboxes),
    /// Let paused sandboxes go on
    #[command(visible_alias = "unpause")]
    Resume(commands::targets::Sandboxes),
    Restart(commands::restart::Args),
    Rename(commands::rename::Args),
    Update(commands::update::Args),
    Rm(commands::rm::Args),
    Up(commands::up::Args),
    Down(commands::down::Args),
    Apply(commands::apply::Args),
    #[command(visible_aliases = ["ls", "list"])]
    Ps(commands::ps::Args),
    Inspect(commands::inspect::Args),
    Logs(commands::logs::Args),
    Build(commands::build::Args),
    Cp(commands::cp::Args),
    Link(commands::link::Args),
    Port(commands::port::Args),
    Network(commands::network::Args),
    Stats(commands::stats::Args),
    Top(commands::top::Args),
    Wait(commands::wait::Args),
    Events(commands::events::Args),
    Volume(commands::volume::Args),
    Df(commands::df::Args),
    Prune(commands::prune::Args),
    Package(commands::package::Args),
    Pull(commands::pull::Args),
    Push(commands::push::Args),
    Login(commands::login::Args),
    Logout(commands::login::LogoutArgs),
    Load(commands::load::Args),
    Save(commands::save::Args),
    Image(commands::image::Args),
    Images(commands::image::LsArgs),
    History(commands::history::Args),
    Tag(commands::image::TagArgs),
    Rmi(commands::image::RmArgs),
    Snapshot(commands::snapshot::Args),
    Fork(commands::fork::Args),
    Diff(commands::diff::Args),
    Secret(commands::secret::Args),
    Key(commands::key::Args),
    Ssh(commands::ssh::Args),
    SshConfig(commands::ssh::ConfigArgs),
    SshKey(commands::ssh_key::Args),
    Audit(commands::audit::Args),
    Dashboard(commands::dashboard::Args),
    Doctor(commands::doctor::Args),
    SelfCheck(commands::self_check::Args),
    Serve(commands::serve::Args),
    Mcp(commands::mcp::Args),
    Completions(commands::completions::Args),
    Version(commands::version::Args),
    #[command(hide = true)]
    Help(commands::help::Args),
    #[command(hide = true)]
    SshProxy(commands::ssh::ProxyArgs),
    #[command(hide = true)]
    Complete(commands::complete::Args),
    #[command(hide = true)]
    Reference(commands::reference::Args),
    #[command(hide = true)]
    Probe(commands::probe::Args),
}

/// The whole command line, as help, the reference and completions show it.
pub(crate) fn command() -> clap::Command {
    commands::groups::grouped(Cli::command())
}

/// Exit code for a command line that cannot be parsed.
const EXIT_USAGE: u8 = 2;

/// Parses the command line. The error is the exit code: 2 if parsing failed, 0 after `--help`.
pub(crate) fn parse() -> Result<Cli, ExitCode> {
    let mut command = command();
    let line = called_as::arguments(env::args_os());
    let matched = command.try_get_matches_from_mut(&line);
    let parsed = matched.and_then(|mut matches| Cli::from_arg_matches_mut(&mut matches));
    parsed.map_err(|error| error.format(&mut command)).map_err(|mut error| {
        other_words::explain(&mut error, &command, &line);
        if !error.use_stderr() || !wants_json(env::args_os().skip(1)) {
            // If our output is closed, there is nobody to report to.
            error.print().ok();
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(EXIT_USAGE));
        }
        refuse(&error);
        ExitCode::from(EXIT_USAGE)
    })
}

/// Ends this process as for a line of that command which cannot be parsed.
pub(crate) fn fail(verb: &str, kind: ErrorKind, message: &str) -> ! {
    let mut root = command();
    root.build();
    let named = root.find_subcommand_mut(verb).map(|command| command.error(kind, message));
    let error = named.unwrap_or_else(|| root.error(kind, message));
    error.exit()
}

/// Whether a command line that cannot be parsed asks for JSON. Arguments after `--` belong to another program.
fn wants_json(arguments: impl Iterator<Item = OsString>) -> bool {
    arguments.take_while(|argument| argument != "--").any(|argument| argument == "--json")
}

/// Reports a parse error as JSON, in the shape of every other error.
fn refuse(error: &clap::Error) {
    let text = error.render().to_string();
    let on_one_line = |part: &str| part.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut parts = text.trim().split("\n\n");
    let message = on_one_line(parts.next().unwrap_or_default().trim_start_matches("error: "));
    let tip = parts.find_map(|part| part.trim_start().strip_prefix("tip: "));
    let mut hint = tip.map_or_else(String::new, |tip| format!("{}. ", on_one_line(tip)));
    hint.push_str("`warren COMMAND --help` shows its arguments.");
    CommandError::from(Error::invalid(message).with_hint(hint)).report(true);
}

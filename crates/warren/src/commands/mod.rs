//! The commands, one file each: `Args`, whose comments are the help text, and one function.

pub(crate) mod apply;
pub(crate) mod attach;
pub(crate) mod audit;
pub(crate) mod build;
pub(crate) mod code;
pub(crate) mod complete;
pub(crate) mod completions;
pub(crate) mod context;
pub(crate) mod cp;
pub(crate) mod create;
pub(crate) mod dashboard;
pub(crate) mod df;
pub(crate) mod diff;
pub(crate) mod doctor;
pub(crate) mod down;
pub(crate) mod events;
pub(crate) mod exec;
pub(crate) mod execs;
pub(crate) mod fork;
pub(crate) mod groups;
pub(crate) mod help;
pub(crate) mod history;
pub(crate) mod image;
pub(crate) mod inspect;
pub(crate) mod key;
pub(crate) mod kill;
pub(crate) mod lacks;
pub(crate) mod link;
pub(crate) mod load;
pub(crate) mod login;
pub(crate) mod logs;
mod main_exec;
pub(crate) mod mcp;
mod missing;
mod near;
pub(crate) mod network;
pub(crate) mod package;
pub(crate) mod port;
pub(crate) mod probe;
pub(crate) mod prune;
pub(crate) mod ps;
pub(crate) mod pull;
pub(crate) mod push;
pub(crate) mod reference;
pub(crate) mod rename;
pub(crate) mod repl;
mod repl_editor;
pub(crate) mod restart;
pub(crate) mod rm;
pub(crate) mod run;
pub(crate) mod save;
pub(crate) mod secret;
pub(crate) mod self_check;
pub(crate) mod serve;
pub(crate) mod snapshot;
pub(crate) mod ssh;
pub(crate) mod ssh_key;
pub(crate) mod stats;
pub(crate) mod stop;
mod sure;
pub(crate) mod targets;
pub(crate) mod top;
pub(crate) mod up;
pub(crate) mod update;
pub(crate) mod version;
pub(crate) mod volume;
pub(crate) mod wait;
pub(crate) mod warnings;

use std::process::ExitCode;

use sandbox::{Namespace, Result};

use crate::{
    cli::{Cli, Command, GlobalArgs},
    client::{Client, ClientOptions, StartMode},
    directories::Directories,
    env,
    error::CommandResult,
};

/// The context of a command, besides its own arguments.
#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) json: bool,
    pub(crate) directories: Directories,
    pub(crate) namespace: Option<Namespace>,
}

impl Context {
    fn new(global: GlobalArgs) -> Result<Self> {
        let namespace = match (global.namespace, env::text(env::NAMESPACE)) {
            (Some(namespace), _) => Some(namespace),
            (None, Some(text)) => Some(text.parse()?),
            (None, None) => None,
        };
        let directories = Directories::find(global.home.as_deref(), global.run_dir.as_deref())?;
        Ok(Self { json: global.json, directories, namespace })
    }

    /// A client of the daemon, which is started if it is not running.
    pub(crate) async fn client(&self) -> CommandResult<Client> {
        self.client_that(StartMode::IfNeeded).await
    }

    pub(crate) async fn client_that(&self, start: StartMode) -> CommandResult<Client> {
        Ok(Client::connect(self.client_options(start)).await?)
    }

    /// The same, whose calls are about this namespace.
    pub(crate) async fn client_in(&self, namespace: &Namespace) -> CommandResult<Client> {
        let options = self.client_options(StartMode::IfNeeded);
        Ok(Client::connect(ClientOptions { namespace: Some(namespace.clone()), ..options }).await?)
    }

    pub(crate) fn client_options(&self, start: StartMode) -> ClientOptions {
        ClientOptions { directories: self.directories.clone(), namespace: self.namespace.clone(), start }
    }
}

pub(crate) fn run(cli: Cli) -> CommandResult {
    let context = Context::new(cli.global)?;
    match cli.command {
        // These fork, which must happen before the runtime starts.
        Command::Serve(args) => serve::run(&context, &args),
        Command::Complete(args) => complete::run(&context, args),
        Command::Completions(args) => completions::run(&args),
        Command::Reference(args) => reference::run(&args),
        Command::Help(args) => help::run(&args),
        Command::Probe(args) => probe::run(&args),
        Command::Doctor(args) => doctor::run(&context, &args),
        command => block_on(async {
            match dispatch(&context, command).await {
                Err(error) => Err(near::explain(&context, error).await),
                done => done,
            }
        }),
    }
}

/// Runs a command's asynchronous part, on this thread.
pub(crate) fn block_on<T>(work: impl Future<Output = CommandResult<T>>) -> CommandResult<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let result = runtime.block_on(work);
    // A blocked write to a terminal must not keep the process alive.
    runtime.shutdown_background();
    result
}

async fn dispatch(context: &Context, command: Command) -> CommandResult {
    match command {
        Command::Run(args) => run::run(context, args).await,
        Command::Exec(args) => exec::run(context, args).await,
        Command::Execs(args) => execs::run(context, args).await,
        Command::Attach(args) => attach::run(context, args).await,
        Command::Code(args) => code::run(context, *args).await,
        Command::Repl(args) => repl::run(context, *args).await,
        Command::Context(args) => context::run(context, args).await,
        Command::Create(args) => create::run(context, args).await,
        Command::Start(args) => args.start(context).await,
        Command::Stop(args) => stop::run(context, args).await,
        Command::Kill(args) => kill::run(context, args).await,
        Command::Pause(args) => args.act(context, "pause").await,
        Command::Resume(args) => args.act(context, "resume").await,
        Command::Restart(args) => restart::run(context, args).await,
        Command::Rename(args) => rename::run(context, args).await,
        Command::Update(args) => update::run(context, args).await,
        Command::Rm(args) => rm::run(context, args).await,
        Command::Up(args) => up::run(context, args).await,
        Command::Down(args) => down::run(context, args).await,
        Command::Apply(args) => apply::run(context, args).await,
        Command::Ps(args) => ps::run(context, args).await,
        Command::Inspect(args) => inspect::run(context, args).await,
        Command::Logs(args) => logs::run(context, args).await,
        Command::Build(args) => build::run(context, args).await,
        Command::Cp(args) => cp::run(context, args).await,
        Command::Link(args) => link::run(context, args).await,
        Command::Port(args) => port::run(context, args).await,
        Command::Network(args) => network::run(context, args).await,
        Command::Stats(args) => stats::run(context, args).await,
        Command::Top(args) => top::run(context, args).await,
        Command::SelfCheck(args) => self_check::run(context, args).await,
        Command::Wait(args) => wait::run(context, args).await,
        Command::Events(args) => events::run(context, args).await,
        Command::Volume(args) => volume::run(context, args).await,
        Command::Df(args) => df::run(context, args).await,
        Command::Prune(args) => prune::run(context, args).await,
        Command::Package(args) => package::run(context, args).await,
        Command::Pull(args) => pull::run(context, args).await,
        Command::Push(args) => push::run(context, args).await,
        Command::Login(args) => login::run(context, args).await,
        Command::Logout(args) => login::logout(context, &args).await,
        Command::Load(args) => load::run(context, args).await,
        Command::Save(args) => save::run(context, args).await,
        Command::Image(args) => image::run(context, args).await,
        Command::Images(args) => image::list(context, &args).await,
        Command::History(args) => history::run(context, args).await,
        Command::Tag(args) => image::tag(context, &args).await,
        Command::Rmi(args) => image::remove(context, &args).await,
        Command::Snapshot(args) => snapshot::run(context, args).await,
        Command::Fork(args) => fork::run(context, args).await,
        Command::Diff(args) => diff::run(context, args).await,
        Command::Secret(args) => secret::run(context, args).await,
        Command::Key(args) => key::run(context, args).await,
        Command::Ssh(args) => ssh::run(context, args).await,
        Command::SshConfig(args) => ssh::config(context, args).await,
        Command::SshKey(args) => ssh_key::run(context, args).await,
        Command::SshProxy(args) => ssh::proxy(context, args).await,
        Command::Audit(args) => audit::run(context, args).await,
        Command::Dashboard(args) => dashboard::run(context, args).await,
        Command::Version(args) => version::run(context, args).await,
        Command::Mcp(args) => mcp::run(context, &args).await,
        Command::Serve(_)
        | Command::Doctor(_)
        | Command::Complete(_)
        | Command::Completions(_)
        | Command::Reference(_)
        | Command::Help(_)
        | Command::Probe(_) => Ok(ExitCode::SUCCESS),
    }
}

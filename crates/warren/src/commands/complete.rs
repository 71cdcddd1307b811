//! `warren complete`, hidden: completes a half-typed command line for the scripts of `warren completions`.
//!
//! Commands and flags come from the command line itself; names and paths inside come from the daemon, if one answers.

use std::{
    ffi::{OsStr, OsString},
    process::ExitCode,
    time::Duration,
};

use clap_complete::engine::{ArgValueCompleter, CompletionCandidate, PathCompleter, ValueCompleter as _};

use frontends::rest::v1;
use sandbox::{ExecState, FileKind, Namespace};

use super::{Context, execs};
use crate::{
    cli,
    client::{Client, ClientOptions, StartMode, Within},
    error::CommandResult,
    output,
};

/// A shell waits for us while nothing can be typed.
const PATIENCE: Duration = Duration::from_secs(1);
/// Longest description of a candidate.
const MAX_HELP: usize = 60;
/// Names or files that are offered.
const MAX_OFFERED: usize = 500;

/// Print completions
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Print descriptions behind a tab
    #[arg(long)]
    described: bool,
    /// The words of the command line up to the cursor, with the program's name
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<OsString>,
}

/// Not asynchronous: the engine asks for names in between.
pub(crate) fn run(context: &Context, args: Args) -> CommandResult {
    let mut options = context.client_options(StartMode::Never);
    options.namespace = namespace(&args.words).or(options.namespace);
    let words = args.words.iter().filter_map(|word| word.to_str().map(str::to_owned)).collect();
    let names = Names { options, words };
    let last = args.words.len().saturating_sub(1);
    let mut command = with_names(cli::command(), &names, Place::Sandbox);
    let here = std::env::current_dir().ok();
    // Flags are many, and hide the names: they are offered to whoever types a dash.
    let wants_flags = args.words.last().is_some_and(|word| word.as_encoded_bytes().starts_with(b"-"));
    let offered = clap_complete::engine::complete(&mut command, args.words, last, here.as_deref())?;
    for one in offered {
        let value = one.get_value().to_string_lossy();
        if value.starts_with('-') && !wants_flags {
            continue;
        }
        match one.get_help().filter(|_| args.described) {
            Some(help) => output::line(&format!("{value}\t{help}"))?,
            None => output::line(&value)?,
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The namespace that the half-typed line names.
fn namespace(words: &[OsString]) -> Option<Namespace> {
    let mut words = words.iter().filter_map(|word| word.to_str());
    while let Some(word) = words.next() {
        match word.strip_prefix("--namespace") {
            Some("") => return words.next()?.parse().ok(),
            Some(value) => return value.strip_prefix('=')?.parse().ok(),
            None if word == "--" => return None,
            None => {}
        }
    }
    None
}

/// The place of the files that a command copies, prints or removes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Sandbox,
    Volume,
    /// Arguments called `name` are those of secrets; there are no files.
    Secret,
}

/// Commands that take `host` as an image. The others are about stored images, and `host` is none.
const TAKE_HOST: &[&str] = &["run", "create", "code", "repl"];
/// Commands that are about sandboxes in some states only.
const TAKE_STOPPED: &[&str] = &["start"];
const TAKE_RUNNING: &[&str] =
    &["exec", "attach", "stop", "kill", "pause", "top", "stats", "code", "repl", "ssh"];
const PRESETS: &[&str] = &["none", "packages", "public", "public+private", "all"];
const SIGNALS: &[&str] = &["HUP", "INT", "QUIT", "KILL", "USR1", "USR2", "TERM", "CONT", "STOP"];

/// Everything that has a name is found by what its argument is called.
fn with_names(command: clap::Command, names: &Names, place: Place) -> clap::Command {
    let verb = command.get_name().to_owned();
    let takes_host = TAKE_HOST.contains(&verb.as_str());
    let command = command.mut_args(|argument| {
        let kind = match argument.get_id().as_str() {
            "sandbox" | "sandboxes" if TAKE_STOPPED.contains(&verb.as_str()) => Kind::Stopped,
            "sandbox" | "sandboxes" if TAKE_RUNNING.contains(&verb.as_str()) => Kind::Running,
            "sandbox" | "sandboxes" => Kind::Sandbox,
            "file" if verb == "link" => Kind::Copied(Place::Sandbox),
            "exec" if verb == "attach" => Kind::RunningExec,
            "exec" => Kind::Exec,
            "secrets" => Kind::Secret,
            "name" | "names" if place == Place::Secret => Kind::Secret,
            "network" => Kind::Word(PRESETS),
            "signal" if verb == "kill" => Kind::Word(SIGNALS),
            "image" | "images" if !takes_host => Kind::StoredImage,
            "image" | "images" => Kind::Image,
            "snapshot" | "snapshots" => Kind::Snapshot,
            "volume" | "volumes" if argument.get_long().is_some() => Kind::Mount,
            "volume" | "volumes" => Kind::Volume,
            "source" | "destination" => Kind::Copied(place),
            "place" if place == Place::Volume => Kind::InVolume,
            _ => return argument,
        };
        let names = names.clone();
        argument.add(ArgValueCompleter::new(move |typed: &OsStr| names.offer(kind, typed)))
    });
    command.mut_subcommands(|inner| {
        let place = match inner.get_name() {
            "volume" => Place::Volume,
            "secret" => Place::Secret,
            _ => place,
        };
        with_names(inner, names, place)
    })
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Sandbox,
    /// Those that run.
    Running,
    /// Those that do not.
    Stopped,
    Image,
    /// Without `host`.
    StoredImage,
    Snapshot,
    Volume,
    Secret,
    /// A command of a sandbox that the line names.
    Exec,
    /// One that runs.
    RunningExec,
    /// One of these.
    Word(&'static [&'static str]),
    /// `NAME:/path` or `./dir:/path`.
    Mount,
    /// `SANDBOX:PATH`, `VOLUME:/PATH` or `PATH`.
    Copied(Place),
    /// `VOLUME:/PATH`.
    InVolume,
}

impl Kind {
    /// Returns the place of the files that are named behind a colon.
    fn files_in(self) -> Option<Place> {
        match self {
            Self::Copied(place) => Some(place),
            Self::InVolume => Some(Place::Volume),
            _ => None,
        }
    }
}

#[derive(Debug, Clone)]
struct Names {
    options: ClientOptions,
    /// The whole line.
    words: Vec<String>,
}

impl Names {
    fn offer(&self, kind: Kind, typed: &OsStr) -> Vec<CompletionCandidate> {
        let Some(text) = typed.to_str() else { return Vec::new() };
        if let Some(place) = kind.files_in()
            && let Some((name, path)) = text.split_once(':')
        {
            return self.inside(place, name, path);
        }
        if matches!(kind, Kind::Exec | Kind::RunningExec) {
            let execs = self.ask(async |client| Ok(self.execs(&client).await)).unwrap_or_default();
            let fitting = execs.iter().filter(|exec| {
                exec.id.as_str().starts_with(text) && (kind == Kind::Exec || exec.state != ExecState::Done)
            });
            let described = |exec: &v1::Exec| {
                let help = output::cut(&output::printable(&execs::line(exec)), MAX_HELP);
                CompletionCandidate::new(exec.id.as_str()).help(Some(help.into()))
            };
            return fitting.take(MAX_OFFERED).map(described).collect();
        }
        let listed = match kind {
            Kind::Word(words) => words.iter().map(|word| (*word).to_owned()).collect(),
            kind => self.ask(async |client| list(&client, kind).await).unwrap_or_default(),
        };
        let fitting = listed.into_iter().filter(|name| name.starts_with(text)).take(MAX_OFFERED);
        let mut offered: Vec<_> = fitting.map(CompletionCandidate::new).collect();
        if matches!(kind, Kind::Mount | Kind::Copied(_)) {
            offered.extend(PathCompleter::any().complete(typed));
        }
        offered
    }

    /// The execs of the first word that is a sandbox, the newest first.
    async fn execs(&self, client: &Client) -> Vec<v1::Exec> {
        for word in self.words.iter().skip(2).filter(|word| !word.starts_with('-') && !word.is_empty()) {
            if let Ok(mut execs) = client.execs(word).await {
                execs.reverse();
                return execs;
            }
        }
        Vec::new()
    }

    /// Files of the sandbox or volume in the directory that is being typed.
    fn inside(&self, place: Place, name: &str, path: &str) -> Vec<CompletionCandidate> {
        let (within, start) = match place {
            Place::Sandbox | Place::Secret => (Within::Sandbox(name), ""),
            Place::Volume => (Within::Volume(name), "/"),
        };
        let (directory, begun) = match path.rsplit_once('/') {
            Some((directory, begun)) => (format!("{directory}/"), begun),
            None => (start.to_owned(), path),
        };
        let asked = if directory.is_empty() { "." } else { &directory };
        let limit = u32::try_from(MAX_OFFERED).unwrap_or(u32::MAX);
        let listed = self.ask(async |client| client.list_files(within, asked, false, limit).await);
        let entries = listed.map(|listed| listed.entries).unwrap_or_default();
        let named =
            entries.iter().map(|entry| (entry.path.rsplit('/').next().unwrap_or_default(), entry.kind));
        let offered = named.filter(|(file, _)| file.starts_with(begun)).map(|(file, kind)| {
            let slash = if kind == FileKind::Directory { "/" } else { "" };
            // Names inside are hostile: they must not move the cursor.
            format!("{name}:{directory}{}{slash}", output::printable(file))
        });
        // The working directory may have no files.
        let root = (place == Place::Sandbox && path.is_empty()).then(|| format!("{name}:/"));
        offered.chain(root).map(CompletionCandidate::new).collect()
    }

    fn ask<T>(&self, question: impl AsyncFnOnce(Client) -> CommandResult<T>) -> Option<T> {
        let asking = async {
            let client = Client::connect(self.options.clone()).await?;
            question(client).await
        };
        let answered = super::block_on(async { Ok(tokio::time::timeout(PATIENCE, asking).await) });
        answered.ok()?.ok()?.ok()
    }
}

async fn list(client: &Client, kind: Kind) -> CommandResult<Vec<String>> {
    Ok(match kind {
        Kind::Sandbox | Kind::Running | Kind::Stopped => {
            let fits = |sandbox: &&v1::Sandbox| match kind {
                Kind::Running => sandbox.state.is_live(),
                Kind::Stopped => !sandbox.state.is_live(),
                _ => true,
            };
            client.list(&[]).await?.iter().filter(fits).map(|sandbox| sandbox.name.to_string()).collect()
        }
        Kind::Copied(Place::Sandbox | Place::Secret) => {
            client.list(&[]).await?.iter().map(|sandbox| format!("{}:", sandbox.name)).collect()
        }
        Kind::Volume => client.volumes().await?.iter().map(|volume| volume.name.to_string()).collect(),
        Kind::Mount | Kind::InVolume | Kind::Copied(Place::Volume) => {
            client.volumes().await?.iter().map(|volume| format!("{}:", volume.name)).collect()
        }
        Kind::Snapshot => {
            client.snapshots().await?.iter().filter_map(|one| Some(one.name.as_ref()?.to_string())).collect()
        }
        Kind::Secret => {
            client.secrets().await?.secrets.iter().map(|secret| secret.name.to_string()).collect()
        }
        Kind::Image | Kind::StoredImage => {
            let images = client.images().await?;
            let names = images.iter().flat_map(|image| &image.references);
            let host = (kind == Kind::Image).then(|| "host".to_owned());
            names.map(|name| super::image::familiar(name).to_owned()).chain(host).collect()
        }
        // Neither is asked for here.
        Kind::Exec | Kind::RunningExec | Kind::Word(_) => Vec::new(),
    })
}

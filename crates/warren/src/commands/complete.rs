//! `warren complete`, hidden: completes a half-typed command line for the scripts of `warren completions`.
//!
//! Commands and flags come from the command line itself; names and paths inside come from the daemon, if one answers.

use std::{
    ffi::{OsStr, OsString},
    process::ExitCode,
    time::Duration,
};

use clap_complete::engine::{ArgValueCompleter, CompletionCandidate, PathCompleter, ValueCompleter as _};

use sandbox::FileKind;

use super::Context;
use crate::{
    cli,
    client::{Client, ClientOptions, StartMode, Within},
    error::CommandResult,
    output,
};

/// A shell waits for us while nothing can be typed.
const PATIENCE: Duration = Duration::from_secs(1);
/// Names or files that are offered.
const MAX_OFFERED: usize = 500;

/// Print completions
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The words of the command line up to the cursor, with the program's name
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<OsString>,
}

/// Not asynchronous: the engine asks for names in between.
pub(crate) fn run(context: &Context, args: Args) -> CommandResult {
    let names = Names { options: context.client_options(StartMode::Never) };
    let last = args.words.len().saturating_sub(1);
    let mut command = with_names(cli::command(), &names, Place::Sandbox);
    let here = std::env::current_dir().ok();
    for offered in clap_complete::engine::complete(&mut command, args.words, last, here.as_deref())? {
        output::line(&offered.get_value().to_string_lossy())?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The place of the files that a command copies, prints or removes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Sandbox,
    Volume,
}

/// Everything that has a name is found by what its argument is called.
fn with_names(command: clap::Command, names: &Names, place: Place) -> clap::Command {
    let command = command.mut_args(|argument| {
        let kind = match argument.get_id().as_str() {
            "sandbox" | "sandboxes" => Kind::Sandbox,
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
        let place = if inner.get_name() == "volume" { Place::Volume } else { place };
        with_names(inner, names, place)
    })
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Sandbox,
    Image,
    Snapshot,
    Volume,
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
}

impl Names {
    fn offer(&self, kind: Kind, typed: &OsStr) -> Vec<CompletionCandidate> {
        let Some(text) = typed.to_str() else { return Vec::new() };
        if let Some(place) = kind.files_in()
            && let Some((name, path)) = text.split_once(':')
        {
            return self.inside(place, name, path);
        }
        let listed = self.ask(async |client| list(&client, kind).await).unwrap_or_default();
        let fitting = listed.into_iter().filter(|name| name.starts_with(text)).take(MAX_OFFERED);
        let mut offered: Vec<_> = fitting.map(CompletionCandidate::new).collect();
        if matches!(kind, Kind::Mount | Kind::Copied(_)) {
            offered.extend(PathCompleter::any().complete(typed));
        }
        offered
    }

    /// Files of the sandbox or volume in the directory that is being typed.
    fn inside(&self, place: Place, name: &str, path: &str) -> Vec<CompletionCandidate> {
        let (within, start) = match place {
            Place::Sandbox => (Within::Sandbox(name), ""),
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
        offered.map(CompletionCandidate::new).collect()
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
        Kind::Sandbox => client.list(&[]).await?.iter().map(|sandbox| sandbox.name.to_string()).collect(),
        Kind::Copied(Place::Sandbox) => {
            client.list(&[]).await?.iter().map(|sandbox| format!("{}:", sandbox.name)).collect()
        }
        Kind::Volume => client.volumes().await?.iter().map(|volume| volume.name.to_string()).collect(),
        Kind::Mount | Kind::InVolume | Kind::Copied(Place::Volume) => {
            client.volumes().await?.iter().map(|volume| format!("{}:", volume.name)).collect()
        }
        Kind::Snapshot => {
            client.snapshots().await?.iter().filter_map(|one| Some(one.name.as_ref()?.to_string())).collect()
        }
        Kind::Image => {
            let images = client.images().await?;
            let names = images.iter().flat_map(|image| &image.references);
            names.map(|name| super::image::familiar(name).to_owned()).chain(["host".to_owned()]).collect()
        }
    })
}

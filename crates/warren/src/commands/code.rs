//! `warren code`

use std::{
    io::{self, Read},
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use frontends::{code::Output, rest::v1};
use sandbox::{CellSpec, ContextName, Error, ExecSpec, Language, MAX_CODE_BYTES};

use super::Context;
use crate::{
    arguments,
    cells::{self, Place, PlaceArgs, Plots, PlotsArgs, Screen},
    error::{CommandResult, io_failure},
    output, terminal,
};

/// A sandbox for one piece of code is removed after idling this long, should this command die first.
const ORPHAN_IDLE: Duration = Duration::from_secs(300);

/// Run code in a sandbox
///
/// Output comes as it is printed, then the value of the last expression. In a sandbox that is there, variables are those of
/// the code before: python, javascript, typescript and bash keep them. Ctrl-C interrupts the code and keeps its variables,
/// a second one kills the interpreter. The exit code is the code's: 1 for an exception, n for exit(n), 130 when interrupted,
/// 124 when its time was up.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  warren code python -c '6 * 7'
  warren code node -s dev script.js
  echo 'ls | wc -l' | warren code bash -
  warren code python plot.py --save-plots plots")]
pub(crate) struct Args {
    /// python, javascript (node), typescript, bash; ruby, perl and others where the sandbox has them
    #[arg(value_name = "LANGUAGE")]
    language: String,
    /// File of this machine with the code; - is stdin
    #[arg(conflicts_with = "code")]
    file: Option<PathBuf>,
    /// The code itself
    #[arg(long, short = 'c')]
    code: Option<String>,
    #[command(flatten)]
    place: PlaceArgs,
    /// Whose variables it shares: those of the language when absent
    #[arg(long, value_name = "NAME")]
    context: Option<ContextName>,
    /// Interrupt it after this long; the exit code is then 124
    #[arg(long, value_name = "SPAN", value_parser = arguments::duration)]
    timeout: Option<Duration>,
    #[command(flatten)]
    plots: PlotsArgs,
}

pub(crate) async fn run(context: &Context, args: Args) -> CommandResult {
    let code = code(&args)?;
    let plots = args.plots.open()?;
    let place = args.place.open(context, ORPHAN_IDLE).await?;
    let ran = if context.json {
        run_captured(&place, &args, code, plots).await
    } else {
        run_shown(&place, &args, code, plots).await
    };
    place.close().await;
    ran
}

fn code(args: &Args) -> CommandResult<String> {
    let bytes = match (&args.code, &args.file) {
        (Some(code), _) => code.clone().into_bytes(),
        (None, Some(file)) if file.as_os_str() != "-" => {
            let opened = std::fs::File::open(file);
            read(opened.map_err(|error| io_failure(file.display().to_string(), error))?, file)?
        }
        (None, Some(_)) => read(io::stdin().lock(), Path::new("stdin"))?,
        (None, None) if !terminal::stdin_is_terminal() => read(io::stdin().lock(), Path::new("stdin"))?,
        (None, None) => {
            let hint =
                format!("Give a file, or -c CODE; `warren repl {}` takes line by line.", args.language);
            return Err(Error::invalid("there is no code to run").with_hint(hint).into());
        }
    };
    String::from_utf8(bytes).map_err(|error| {
        let position = error.utf8_error().valid_up_to();
        Error::invalid(format!("the code is not UTF-8 text: byte {position} is wrong")).into()
    })
}

fn read(source: impl Read, name: &Path) -> CommandResult<Vec<u8>> {
    let mut bytes = Vec::new();
    let limit = MAX_CODE_BYTES as u64 + 1;
    source
        .take(limit)
        .read_to_end(&mut bytes)
        .map_err(|error| io_failure(name.display().to_string(), error))?;
    if bytes.len() > MAX_CODE_BYTES {
        let message = format!("{} is longer than {MAX_CODE_BYTES} bytes", name.display());
        return Err(Error::invalid(message)
            .with_hint("Copy it into the sandbox with `warren cp`, and run it there with `warren exec`.")
            .into());
    }
    Ok(bytes)
}

fn spec(args: &Args, language: Language, code: String) -> CommandResult<ExecSpec> {
    let spec = ExecSpec {
        timeout: args.timeout,
        cell: Some(CellSpec { language, context: args.context.clone(), code }),
        track_files: true,
        ..ExecSpec::default()
    };
    spec.check()?;
    Ok(spec)
}

async fn run_shown(place: &Place, args: &Args, code: String, plots: Option<Plots>) -> CommandResult {
    let language = cells::language(place, &args.language).await?;
    let spec = spec(args, language, code)?;
    let mut screen = Screen::new(plots);
    let ended = cells::run(place, &spec, &mut screen).await?;
    match cells::refusal(place, language, &ended).await {
        Some(error) => Err(error.into()),
        None => Ok(cells::conclude(&ended, &screen)),
    }
}

async fn run_captured(place: &Place, args: &Args, code: String, plots: Option<Plots>) -> CommandResult {
    let request = v1::CodeRequest {
        code,
        language: Some(args.language.clone()),
        context: args.context.clone(),
        cwd: None,
        env: Default::default(),
        user: None,
        timeout_ms: args.timeout.map(|span| span.as_millis().try_into().unwrap_or(u64::MAX)),
        request_id: None,
        track_files: None,
    };
    let ran = place.client.run_code(&place.sandbox, &request).await?;
    if let Some(mut plots) = plots {
        let exec = &ran.result.exec_session_id;
        for shown in &ran.result.outputs {
            save(place, exec, shown, &mut plots).await?;
        }
    }
    output::json(&ran)?;
    Ok(ExitCode::from(u8::try_from(ran.result.exit_code).unwrap_or(1)))
}

/// Pictures do not stand in the answer; they are fetched.
async fn save(place: &Place, exec: &str, shown: &Output, plots: &mut Plots) -> CommandResult<()> {
    let found = shown.mime_types.iter().find_map(|mime| Some((mime, cells::ending_of(mime)?)));
    if let Some((mime, ending)) = found {
        let bytes = place.client.code_output(&place.sandbox, exec, shown.number, mime).await?.to_vec();
        plots.save(&cells::Picture { ending, bytes })?;
    }
    Ok(())
}

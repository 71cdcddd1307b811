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
    cells::{self, CodeSandbox, CodeSandboxArgs, Plots, PlotsArgs, Screen},
    error::{CommandResult, io_failure},
    interrupt::Signals,
    output, terminal,
};

/// If this command dies, the daemon removes its temporary sandbox after it idles this long.
const ORPHAN_IDLE: Duration = Duration::from_secs(300);

/// Run code in a sandbox
///
/// Prints output as it comes, then the value of the last expression. In an existing sandbox, python, javascript,
/// typescript and bash keep variables from earlier runs. Ctrl-C interrupts the code and keeps its variables; a second
/// Ctrl-C kills the interpreter. The exit code is that of the code: 1 for an exception, n for exit(n), 130 if
/// interrupted, 124 if it timed out.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  warren code python -c '6 * 7'
  warren code node -s dev script.js
  echo 'ls | wc -l' | warren code bash -
  warren code python plot.py --save-plots plots")]
pub(crate) struct Args {
    /// python, javascript (node), typescript, bash; ruby, perl and others if the sandbox has them
    #[arg(value_name = "LANGUAGE")]
    language: String,
    /// File on this machine with the code, or - for stdin
    #[arg(conflicts_with = "code")]
    file: Option<PathBuf>,
    /// The code itself
    #[arg(long, short = 'c')]
    code: Option<String>,
    #[command(flatten)]
    target: CodeSandboxArgs,
    /// Context whose variables the code uses [default: the language's own]
    #[arg(long, value_name = "NAME")]
    context: Option<ContextName>,
    /// Interrupt the code after this long; the exit code is then 124
    #[arg(long, value_name = "SPAN", value_parser = arguments::duration)]
    timeout: Option<Duration>,
    #[command(flatten)]
    plots: PlotsArgs,
}

pub(crate) async fn run(context: &Context, args: Args) -> CommandResult {
    let code = code(&args)?;
    let plots = args.plots.open()?;
    let mut signals = Signals::new()?;
    let target = args.target.open(context, ORPHAN_IDLE, &mut signals).await?;
    let ran = if context.json {
        signals.unless_interrupted(run_captured(&target, &args, code, plots)).await
    } else {
        run_shown(&target, &args, code, plots, &mut signals).await
    };
    target.close().await;
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
            let hint = format!(
                "Give a file or -c CODE, or use `warren repl {}` to type it line by line.",
                args.language
            );
            return Err(Error::invalid("there is no code to run").with_hint(hint).into());
        }
    };
    String::from_utf8(bytes).map_err(|error| {
        let position = error.utf8_error().valid_up_to();
        Error::invalid(format!("the code is not UTF-8 text: invalid byte at position {position}")).into()
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
            .with_hint("Copy it into the sandbox with `warren cp` and run it with `warren exec`.")
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

async fn run_shown(
    target: &CodeSandbox,
    args: &Args,
    code: String,
    plots: Option<Plots>,
    signals: &mut Signals,
) -> CommandResult {
    let language = signals.unless_interrupted(cells::language(target, &args.language)).await?;
    let spec = spec(args, language, code)?;
    let mut screen = Screen::new(plots);
    let ended = cells::run(target, &spec, &mut screen, signals).await?;
    match cells::refusal(target, language, &ended).await {
        Some(error) => Err(error.into()),
        None => Ok(cells::conclude(&ended, &screen)),
    }
}

async fn run_captured(
    target: &CodeSandbox,
    args: &Args,
    code: String,
    plots: Option<Plots>,
) -> CommandResult {
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
    let ran = target.client.run_code(&target.sandbox, &request).await?;
    if let Some(mut plots) = plots {
        let exec = &ran.result.exec_session_id;
        for shown in &ran.result.outputs {
            save(target, exec, shown, &mut plots).await?;
        }
    }
    output::json(&ran)?;
    Ok(ExitCode::from(u8::try_from(ran.result.exit_code).unwrap_or(1)))
}

/// The answer does not include pictures; they are fetched separately.
async fn save(target: &CodeSandbox, exec: &str, shown: &Output, plots: &mut Plots) -> CommandResult<()> {
    let found = shown.mime_types.iter().find_map(|mime| Some((mime, cells::ending_of(mime)?)));
    if let Some((mime, ending)) = found {
        let bytes = target.client.code_output(&target.sandbox, exec, shown.number, mime).await?.to_vec();
        plots.save(&cells::Picture { ending, bytes })?;
    }
    Ok(())
}

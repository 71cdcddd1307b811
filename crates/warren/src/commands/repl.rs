//! `warren repl`

use std::{
    io::{self, BufRead as _},
    path::Path,
    process::ExitCode,
    time::Duration,
};

use frontends::rest::v1;
use sandbox::{CellSpec, ContextName, Error, ExecSpec, Language};

use super::{
    Context, context,
    repl_editor::{BlockEditor, Names, Typed},
};
use crate::{
    arguments,
    cells::{self, CodeSandbox, CodeSandboxArgs, Plots, PlotsArgs, Screen},
    error::CommandResult,
    interrupt::Signals,
    output,
    terminal::{self, RawMode},
};

/// Long enough to leave a session open overnight. If this command dies, the daemon removes the sandbox after this idle
/// time.
const ORPHAN_IDLE: Duration = Duration::from_secs(24 * 3600);
/// The words that people type to leave, in any language. The interpreter itself would only exit and be restarted.
pub(super) const LEAVE: [&str; 5] = ["exit", "exit()", "quit", "quit()", ".exit"];
const HELP: &str = "\
Code runs when complete; an empty line ends a block. Tab completes names. The arrow keys move between the lines of a
block and recall earlier ones. Ctrl-C interrupts code or clears the block. Ctrl-D or exit quits.
  :contexts           list the sandbox's contexts
  :context NAME       switch to another context, created if it does not exist
  :fork NAME          fork the variables into context NAME and switch to it (python)
  :reset              forget the variables
  :save-plots DIR     save pictures to DIR from now on
  :help  :quit";

/// Run code interactively, line by line, keeping variables
///
/// Without --sandbox, a temporary sandbox is used and removed at the end. If stdin is not a terminal, lines are read
/// from it.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  warren repl python
  warren repl node -s dev --context scratch
  printf 'x = 6\\nx * 7\\n' | warren repl python")]
pub(crate) struct Args {
    /// python, javascript (node), typescript or bash
    #[arg(value_name = "LANGUAGE")]
    language: String,
    #[command(flatten)]
    target: CodeSandboxArgs,
    /// Context whose variables the code uses [default: the language's own]
    #[arg(long, value_name = "NAME")]
    context: Option<ContextName>,
    /// Interrupt code that runs longer than this
    #[arg(long, value_name = "SPAN", value_parser = arguments::duration)]
    timeout: Option<Duration>,
    #[command(flatten)]
    plots: PlotsArgs,
}

pub(crate) async fn run(context: &Context, args: Args) -> CommandResult {
    let plots = args.plots.open()?;
    let mut signals = Signals::new()?;
    let target = args.target.open(context, ORPHAN_IDLE, &mut signals).await?;
    let ran = converse(context, &target, &args, plots, signals).await;
    target.close().await;
    ran
}

async fn converse(
    context: &Context,
    target: &CodeSandbox,
    args: &Args,
    plots: Option<Plots>,
    mut signals: Signals,
) -> CommandResult {
    let language = signals.unless_interrupted(cells::language(target, &args.language)).await?;
    if !language.is_stateful() {
        return Err(Error::invalid(format!("{language} keeps no variables between pieces of code"))
            .with_hint(format!("Run whole programs with `warren code {language}`."))
            .into());
    }
    let mut repl = Repl {
        target,
        language,
        context: args.context.clone().unwrap_or_else(|| ContextName::of(language)),
        timeout: args.timeout,
        screen: Screen::new(plots),
        last_code: ExitCode::SUCCESS,
        names: None,
        signals,
    };
    if terminal::stdin_is_terminal() {
        output::note(&format!("{language} in a sandbox; :help shows commands, Ctrl-D quits"));
        let history = context.directories.home.join("history").join(language.as_str());
        let names = Names::new(target, language, repl.context.clone());
        repl.names = Some(names.clone());
        // A signal may end this command while the editor reads.
        let _restored = RawMode::of_library()?;
        repl.typed(Some(BlockEditor::open(names, history)?)).await
    } else {
        repl.typed(None).await
    }
}

struct Repl<'a> {
    target: &'a CodeSandbox,
    language: Language,
    context: ContextName,
    timeout: Option<Duration>,
    screen: Screen,
    /// Exit code of the last piece of code, for scripts.
    last_code: ExitCode,
    /// The names that the editor completes.
    names: Option<Names>,
    signals: Signals,
}

enum Line {
    Text(String),
    /// Ctrl-C.
    Cleared,
    End,
}

enum Next {
    GoOn,
    Leave,
}

impl Repl<'_> {
    async fn typed(&mut self, mut editor: Option<BlockEditor>) -> CommandResult {
        let mut block = String::new();
        loop {
            // The editor reads Ctrl-C as a key; a signal asks this command to end.
            let typed = next_line(editor, self.prompt(!block.is_empty()));
            let (back, line) = self.signals.unless_interrupted(typed).await?;
            editor = back;
            match line {
                Line::Text(line) if block.is_empty() && LEAVE.contains(&line.trim()) => break,
                Line::Text(line) if block.is_empty() && line.starts_with(':') => {
                    if let Some(editor) = &mut editor {
                        editor.remember(&line);
                    }
                    if matches!(self.command(&line).await?, Next::Leave) {
                        break;
                    }
                }
                Line::Text(line) => {
                    // An empty first line does not start a block.
                    if block.is_empty() && line.trim().is_empty() {
                        continue;
                    }
                    block.push_str(&line);
                    if cells::is_complete(self.language, &block) {
                        let code = std::mem::take(&mut block);
                        if let Some(editor) = &mut editor {
                            editor.remember(code.trim_end());
                        }
                        self.run(code).await?;
                    } else {
                        block.push('\n');
                    }
                }
                Line::Cleared => block.clear(),
                Line::End => {
                    if !block.trim().is_empty() {
                        self.run(std::mem::take(&mut block)).await?;
                    }
                    break;
                }
            }
        }
        Ok(self.last_code)
    }

    fn prompt(&self, is_continued: bool) -> String {
        let name = self.context.as_str();
        if is_continued {
            format!("{}... ", " ".repeat(name.len().saturating_sub(2)))
        } else {
            format!("{name}> ")
        }
    }

    async fn run(&mut self, code: String) -> CommandResult<()> {
        let cell = CellSpec { language: self.language, context: Some(self.context.clone()), code };
        let spec = ExecSpec { cell: Some(cell), timeout: self.timeout, ..ExecSpec::default() };
        if let Err(invalid) = spec.check() {
            output::error(&invalid.to_string());
            return Ok(());
        }
        let ended = cells::run(self.target, &spec, &mut self.screen, &mut self.signals).await?;
        if let Some(error) = cells::refusal(self.target, self.language, &ended).await {
            return Err(error.into());
        }
        self.last_code = cells::conclude(&ended, &self.screen);
        Ok(())
    }

    /// Runs a line that begins with a colon. An error is printed, and the session goes on.
    async fn command(&mut self, line: &str) -> CommandResult<Next> {
        let mut words = line.trim_start_matches(':').split_whitespace();
        let (word, argument) = (words.next().unwrap_or_default(), words.next());
        let done = match (word, argument) {
            ("q" | "quit" | "exit", None) => return Ok(Next::Leave),
            ("help" | "h" | "?", None) => output::line(HELP),
            ("reset", None) => self.reset().await,
            ("contexts", None) => match self.target.client.contexts(&self.target.sandbox).await {
                Ok(contexts) => context::table(&contexts),
                Err(error) => Err(error),
            },
            ("context", Some(name)) => name.parse().map_err(Into::into).map(|name| self.switch(name)),
            ("fork", Some(name)) => self.fork(name).await,
            ("save-plots", Some(directory)) => {
                Plots::open(Path::new(directory), "plot").map(|plots| self.screen.plots = Some(plots))
            }
            _ => Err(Error::invalid(format!("unknown command {line:?}")).with_hint("Try :help.").into()),
        };
        match done {
            // Our output is closed.
            Err(error) if error.kind().is_none() => return Err(error),
            Err(error) => drop(error.report(false)),
            Ok(()) => {}
        }
        Ok(Next::GoOn)
    }

    async fn reset(&mut self) -> CommandResult<()> {
        self.target.client.reset_context(&self.target.sandbox, &self.context).await?;
        output::note("variables cleared");
        Ok(())
    }

    async fn fork(&mut self, name: &str) -> CommandResult<()> {
        let into: ContextName = name.parse()?;
        let request = v1::ForkRequest { into: Some(into.clone()), force: false };
        let made = self.target.client.fork_context(&self.target.sandbox, &self.context, &request).await?;
        made.warnings.iter().for_each(|warning| output::warn(warning));
        output::note(&format!("switched to context {into}; `:context {}` goes back", self.context));
        self.switch(into);
        Ok(())
    }

    fn switch(&mut self, context: ContextName) {
        if let Some(names) = &self.names {
            names.switch(&context);
        }
        self.context = context;
    }
}

/// Reads on a thread that may block. The editor is returned with the line.
async fn next_line(
    editor: Option<BlockEditor>,
    prompt: String,
) -> CommandResult<(Option<BlockEditor>, Line)> {
    let read = tokio::task::spawn_blocking(move || match editor {
        Some(mut editor) => {
            let line = editor.read(&prompt).map(|typed| match typed {
                Typed::Block(text) => Line::Text(text),
                Typed::Cleared => Line::Cleared,
                Typed::End => Line::End,
            });
            (Some(editor), line)
        }
        None => (None, piped_line()),
    });
    let (editor, line) = read.await.map_err(io::Error::other)?;
    Ok((editor, line?))
}

fn piped_line() -> CommandResult<Line> {
    let mut line = Vec::new();
    let limit = sandbox::MAX_CODE_BYTES as u64 + 1;
    let n = io::Read::take(io::stdin().lock(), limit).read_until(b'\n', &mut line)?;
    if n == 0 {
        return Ok(Line::End);
    }
    let text = String::from_utf8(line).map_err(|_binary| Error::invalid("a line is not UTF-8 text"))?;
    Ok(Line::Text(text.trim_end_matches(['\n', '\r']).to_owned()))
}

//! The editor of `warren repl`: blocks of several lines, a history that persists, and Tab for the context's names.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use rustyline::{
    Context, Editor, Helper,
    completion::Completer,
    config::{CompletionType, Config},
    error::ReadlineError,
    highlight::Highlighter,
    hint::Hinter,
    history::DefaultHistory,
    validate::{ValidationContext, ValidationResult, Validator},
};
use sandbox::{CellSpec, ContextName, ExecSpec, Language};
use tokio::runtime::Handle;

use crate::{
    cells::{self, CodeSandbox},
    client::Client,
    error::{CommandError, CommandResult},
    output,
};

const MAX_HISTORY: usize = 2000;
/// The text that Tab inserts at the beginning of a line.
const INDENT: &str = "    ";
/// A context that computes does not answer; the person at the keyboard should not wait for it.
const PATIENCE: Duration = Duration::from_secs(2);
/// Names that are offered.
const MAX_OFFERED: usize = 200;

/// The input that was typed.
pub(super) enum Typed {
    /// A complete block, or a command of the session.
    Block(String),
    /// Ctrl-C.
    Cleared,
    End,
}

pub(super) struct BlockEditor {
    lines: Editor<Names, DefaultHistory>,
    history: PathBuf,
}

impl BlockEditor {
    pub(super) fn open(names: Names, history: PathBuf) -> CommandResult<Self> {
        let config = Config::builder()
            .max_history_size(MAX_HISTORY)
            .and_then(|config| config.history_ignore_dups(true))
            .map_err(failed)?
            .auto_add_history(false)
            .completion_type(CompletionType::List)
            // The question whether to show many of them would swallow what is typed next, and Ctrl-C.
            .completion_prompt_limit(usize::MAX)
            .build();
        let mut lines = Editor::with_config(config).map_err(failed)?;
        lines.set_helper(Some(names));
        // A history that is missing or unreadable is not an error.
        lines.load_history(&history).ok();
        Ok(Self { lines, history })
    }

    pub(super) fn read(&mut self, prompt: &str) -> CommandResult<Typed> {
        match self.lines.readline(prompt) {
            Ok(block) => Ok(Typed::Block(block)),
            Err(ReadlineError::Interrupted) => Ok(Typed::Cleared),
            Err(ReadlineError::Eof) => Ok(Typed::End),
            Err(error) => Err(failed(error)),
        }
    }

    /// Saved at once, because the terminal may be closed at any time.
    pub(super) fn remember(&mut self, code: &str) {
        if !self.lines.add_history_entry(code).unwrap_or(false) {
            return;
        }
        let Some(directory) = self.history.parent() else { return };
        let saved = crate::directories::make_private(directory)
            .is_ok_and(|()| self.lines.save_history(&self.history).is_ok());
        if saved {
            fs::set_permissions(&self.history, fs::Permissions::from_mode(0o600)).ok();
        }
    }
}

/// Asks the context for names, and decides when a block is complete.
#[derive(Debug, Clone)]
pub(super) struct Names {
    client: Client,
    sandbox: String,
    language: Language,
    /// The session may switch to another one.
    context: Arc<Mutex<ContextName>>,
    runtime: Handle,
}

impl Names {
    /// Must be called in a Tokio runtime.
    pub(super) fn new(target: &CodeSandbox, language: Language, context: ContextName) -> Self {
        Self {
            client: target.client.clone(),
            sandbox: target.sandbox.clone(),
            language,
            context: Arc::new(Mutex::new(context)),
            runtime: Handle::current(),
        }
    }

    pub(super) fn switch(&self, context: &ContextName) {
        *self.context.lock().unwrap_or_else(PoisonError::into_inner) = context.clone();
    }

    /// The names that begin with `word`, as the context sees them now.
    fn ask(&self, word: &str) -> Vec<String> {
        let Some(code) = question(self.language, word) else { return Vec::new() };
        let context = self.context.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let cell = CellSpec { language: self.language, context: Some(context), code };
        let spec = ExecSpec { cell: Some(cell), timeout: Some(PATIENCE), ..ExecSpec::default() };
        let asking = self.client.exec_and_wait(&self.sandbox, &spec);
        // The editor runs on a thread that may block.
        let Ok(answer) = self.runtime.block_on(asking) else { return Vec::new() };
        let text = answer.stdout.and_then(|stdout| stdout.text).unwrap_or_default();
        let mut names: Vec<_> = text
            .lines()
            .map(output::printable)
            .filter(|name| name.starts_with(word))
            .take(MAX_OFFERED)
            .collect();
        names.sort();
        names.dedup();
        names
    }
}

/// The part of the line before the cursor that is being typed: `os.path.jo` of `x = os.path.jo`.
fn word_before(language: Language, line: &str, cursor: usize) -> (usize, &str) {
    let before = &line[..cursor];
    let belongs = |c: char| match language {
        Language::Bash => !c.is_whitespace() && !"|&;<>()`'\"".contains(c),
        _ => c.is_alphanumeric() || matches!(c, '_' | '.' | '$'),
    };
    let start =
        before.char_indices().rev().take_while(|(_, c)| belongs(*c)).last().map_or(cursor, |(at, _)| at);
    (start, &before[start..])
}

/// Code that prints the names which begin with `word`, one per line, and leaves no name behind.
fn question(language: Language, word: &str) -> Option<String> {
    if word.is_empty()
        || word.starts_with('.')
        || word.chars().any(|c| c == '\'' || c == '\\' || c.is_control())
    {
        return None;
    }
    Some(match language {
        Language::Python => format!(
            "(lambda c, t, i: ([print(n.rstrip('()')) for n in iter(lambda: c.complete(t, next(i)), None)], None)[1])\
             (__import__('rlcompleter').Completer(globals()), '{word}', iter(range({MAX_OFFERED})))"
        ),
        Language::JavaScript | Language::TypeScript => {
            let (base, begun) =
                word.rsplit_once('.').map_or(("globalThis", word), |(base, begun)| (base, begun));
            let prefix = word.strip_suffix(begun).unwrap_or_default();
            format!(
                "(() => {{ const found = new Set(); for (let o = Object({base}); o; o = Object.getPrototypeOf(o)) \
                 for (const k of Object.getOwnPropertyNames(o)) if (k.startsWith('{begun}')) found.add('{prefix}' + k); \
                 console.log([...found].join('\\n')); }})()"
            )
        }
        Language::Bash => match word.strip_prefix('$') {
            Some(variable) => format!("compgen -v -P '$' -- '{variable}'"),
            None => format!("compgen -A function -A alias -A command -A file -- '{word}'"),
        },
        _ => return None,
    })
}

impl Completer for Names {
    type Candidate = String;

    fn complete(
        &self,
        line: &str,
        cursor: usize,
        _context: &Context<'_>,
    ) -> rustyline::Result<(usize, Vec<String>)> {
        let current = line[..cursor].rsplit('\n').next().unwrap_or_default();
        if current.trim().is_empty() {
            return Ok((cursor, vec![INDENT.to_owned()]));
        }
        if line.starts_with(':') {
            return Ok((cursor, Vec::new()));
        }
        let (start, word) = word_before(self.language, line, cursor);
        Ok((start, self.ask(word)))
    }
}

impl Validator for Names {
    fn validate(&self, typed: &mut ValidationContext<'_>) -> rustyline::Result<ValidationResult> {
        let text = typed.input();
        let is_complete = text.trim().is_empty()
            || text.starts_with(':')
            || super::repl::LEAVE.contains(&text.trim())
            || cells::is_complete(self.language, text);
        Ok(if is_complete { ValidationResult::Valid(None) } else { ValidationResult::Incomplete })
    }
}

impl Hinter for Names {
    type Hint = String;
}

impl Highlighter for Names {}

impl Helper for Names {}

fn failed(error: ReadlineError) -> CommandError {
    match error {
        ReadlineError::Io(error) => error.into(),
        other => std::io::Error::other(other).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_word_at_the_cursor_is_found() {
        let python = Language::Python;
        assert_eq!(word_before(python, "x = os.path.jo", 14), (4, "os.path.jo"));
        assert_eq!(word_before(python, "f(ab", 4), (2, "ab"));
        assert_eq!(word_before(python, "é + ñam", "é + ñam".len()), (5, "ñam"));
        assert_eq!(word_before(python, "x = ", 4), (4, ""));
        assert_eq!(word_before(Language::Bash, "cat /etc/pa", 11), (4, "/etc/pa"));
    }

    #[test]
    fn nothing_is_asked_that_could_run_as_code() {
        for word in ["", ".a", "a'b", "a\\b", "a\nb"] {
            assert_eq!(question(Language::Python, word), None, "{word:?}");
        }
        assert!(question(Language::JavaScript, "a.b.c").unwrap().contains("Object(a.b)"));
    }
}

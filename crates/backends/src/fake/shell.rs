//! A toy shell: words, quotes, `$NAME`, `;`, newlines, `&&`, `||`, `&`, `>`, `>>`, `>&2`, `cd`, `exit`, `trap '' TERM`,
//! `NAME=value`;
//! and, at a terminal, a prompt.

use std::sync::Arc;

use bytes::Bytes;
use guest_protocol::WriteMode;
use tokio::io::AsyncReadExt;

use super::{
    commands::{Program, Sink},
    exec::{Ended, SIGTERM, Stream},
    guest::lock,
};

const PROMPT: &[u8] = b"# ";
const INTERRUPT: u8 = 3;
pub(super) const END_OF_FILE: u8 = 4;
const BACKSPACE: u8 = 8;
const DELETE: u8 = 127;
const MAX_LINE_BYTES: usize = 4096;
/// Processes that one exec may leave in the background.
const MAX_CHILDREN: usize = 64;

#[derive(Debug, Clone, PartialEq, Eq)]
enum Token {
    Word(String),
    /// `;`, `&&`, `||`, `&`, `>`, `>>` or `>&2`.
    Sign(&'static str),
}

const SIGNS: [&str; 8] = ["&&", "||", ">&2", ">>", ">", ";", "&", "\n"];

/// Runs a script; the outcome of its last command is its own.
pub(super) async fn run(mut shell: Program, script: &str) -> Ended {
    match run_lines(&mut shell, script, Ended::Code(0)).await {
        Step::Done(ended) => ended,
        Step::Exit(code) => Ended::Code(code),
    }
}

/// Runs the code of a cell in a shell that goes on afterwards, a line at a time: a line sees what the one before has set.
pub(super) async fn run_cell(shell: &mut Program, script: &str) -> Ended {
    let mut last = Ended::Code(0);
    for line in script.lines() {
        match run_lines(shell, line, last).await {
            Step::Done(ended @ Ended::Signal(_)) => return ended,
            Step::Done(ended) => last = ended,
            Step::Exit(code) => return Ended::Code(code),
        }
    }
    last
}

/// A person at a terminal: a prompt, an echo of what is typed, a line at a time.
pub(super) async fn interact(mut shell: Program) -> Ended {
    let Some(stdin) = shell.stdin.clone() else { return Ended::Code(0) };
    let mut last = Ended::Code(0);
    let mut line = Vec::new();
    shell.put(&shell.stdout, Bytes::from_static(PROMPT)).await;
    loop {
        // Held for one byte only: the programs of a line may read too.
        let byte = stdin.lock().await.read_u8().await;
        let echo = match byte {
            Err(_) => return last,
            Ok(END_OF_FILE) if line.is_empty() => return last,
            Ok(b'\r' | b'\n') => {
                shell.put(&shell.stdout, Bytes::from_static(b"\n")).await;
                let script = String::from_utf8_lossy(&line).into_owned();
                line.clear();
                last = match run_lines(&mut shell, &script, last).await {
                    Step::Done(ended @ Ended::Signal(_)) => return ended,
                    Step::Done(ended) => ended,
                    Step::Exit(code) => return Ended::Code(code),
                };
                Bytes::from_static(PROMPT)
            }
            Ok(INTERRUPT) => {
                line.clear();
                Bytes::from_static(b"^C\n# ")
            }
            Ok(BACKSPACE | DELETE) if line.pop().is_some() => Bytes::from_static(b"\x08 \x08"),
            Ok(byte) if byte < b' ' || byte == DELETE || line.len() >= MAX_LINE_BYTES => continue,
            Ok(byte) => {
                line.push(byte);
                Bytes::copy_from_slice(&[byte])
            }
        };
        shell.put(&shell.stdout, echo).await;
    }
}

async fn run_lines(shell: &mut Program, script: &str, mut last: Ended) -> Step {
    let tokens = tokens(script, shell);
    let mut joined_by = ";";
    for (command, sign) in commands(&tokens) {
        let is_skipped = match joined_by {
            "&&" => last != Ended::Code(0),
            "||" => last == Ended::Code(0),
            _ => false,
        };
        joined_by = sign;
        if is_skipped || command.is_empty() {
            continue;
        }
        match simple(shell, &command, last, sign == "&").await {
            Step::Done(ended) => last = ended,
            exit @ Step::Exit(_) => return exit,
        }
        // A signal that a program sends itself ends the whole toy: they are all one process.
        if matches!(last, Ended::Signal(_)) {
            break;
        }
    }
    Step::Done(last)
}

enum Step {
    Done(Ended),
    Exit(u8),
}

/// Commands with the sign that follows each.
fn commands(tokens: &[Token]) -> Vec<(Vec<Token>, &'static str)> {
    let mut commands = Vec::new();
    let mut current = Vec::new();
    for token in tokens {
        match token {
            Token::Sign(sign @ (";" | "\n" | "&&" | "||" | "&")) => {
                commands.push((std::mem::take(&mut current), *sign));
            }
            other => current.push(other.clone()),
        }
    }
    commands.push((current, ";"));
    commands
}

async fn simple(shell: &mut Program, command: &[Token], last: Ended, in_background: bool) -> Step {
    let mut program = shell.clone();
    program.argv.clear();
    let mut tokens = command.iter();
    while let Some(token) = tokens.next() {
        match (token, token_sign(token)) {
            (Token::Word(word), _) => program.argv.push(word.clone()),
            (_, ">&2") => program.stdout = Sink::Exec(Stream::Stderr),
            (_, sign) => {
                let Some(Token::Word(path)) = tokens.next() else { break };
                let path = shell.path(path);
                let mode = if sign == ">" { WriteMode::Replace } else { WriteMode::Append };
                let opened = lock(&shell.guest.files).write(&path, mode, None, false, Bytes::new());
                if let Err(failure) = opened {
                    shell.complain(&format!("sh: {failure}")).await;
                    return Step::Done(Ended::Code(2));
                }
                program.stdout = Sink::File { path };
            }
        }
    }
    let argument = program.argv.get(1).cloned();
    match program.argv.first().map(String::as_str) {
        None => Step::Done(Ended::Code(0)),
        Some("exit") => Step::Exit(match (argument, last) {
            (Some(code), _) => code.parse().unwrap_or(2),
            (None, Ended::Code(code)) => code,
            (None, Ended::Signal(signal)) => 128_u8.wrapping_add(signal as u8),
        }),
        Some(word) if argument.is_none() && is_assignment(word) => {
            let (name, value) = word.split_once('=').unwrap_or((word, ""));
            shell.env.insert(name.to_owned(), value.to_owned());
            Step::Done(Ended::Code(0))
        }
        Some("cd") => Step::Done(change_directory(shell, argument).await),
        Some("trap") => {
            let signal = if program.argv.last().is_some_and(|name| name == "INT") { 2 } else { SIGTERM };
            shell.exec.state.send_modify(|state| {
                state.ignored_signals.insert(signal);
            });
            Step::Done(Ended::Code(0))
        }
        Some(_) if in_background => Step::Done(leave_behind(program)),
        Some(_) => Step::Done(Box::pin(program.run()).await),
    }
}

/// `NAME=value`.
fn is_assignment(word: &str) -> bool {
    let is_name = |name: &str| {
        name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    };
    word.split_once('=').is_some_and(|(name, _)| is_name(name))
}

fn token_sign(token: &Token) -> &'static str {
    match token {
        Token::Sign(sign) => sign,
        Token::Word(_) => "",
    }
}

async fn change_directory(shell: &mut Program, to: Option<String>) -> Ended {
    let path = shell.path(&to.unwrap_or_else(|| "/root".to_owned()));
    let found = lock(&shell.guest.files).directory(&path);
    match found {
        Ok(directory) => {
            shell.cwd = directory;
            Ended::Code(0)
        }
        Err(failure) => {
            shell.complain(&format!("cd: {failure}")).await;
            Ended::Code(1)
        }
    }
}

/// Starts a program that outlives its shell and holds the exec's output open.
fn leave_behind(mut program: Program) -> Ended {
    let mut has_room = false;
    program.exec.state.send_modify(|state| {
        has_room = state.n_children < MAX_CHILDREN;
        state.n_children += usize::from(has_room);
    });
    if !has_room {
        return Ended::Code(1);
    }
    program.stdin = None;
    let (guest, exec) = (Arc::clone(&program.guest), Arc::clone(&program.exec));
    tokio::spawn(async move {
        tokio::select! {
            _ended = program.run() => {}
            () = exec.until(|state| state.group_killed.is_some()) => {}
            () = guest.ended() => {}
        }
        exec.state.send_modify(|state| state.n_children -= 1);
    });
    Ended::Code(0)
}

/// Cuts a script into words and signs. Variables are replaced, except between single quotes.
fn tokens(script: &str, shell: &Program) -> Vec<Token> {
    let mut tokens = Vec::new();
    let mut word: Option<String> = None;
    let mut rest = script;
    while let Some(c) = rest.chars().next() {
        if let Some(sign) = SIGNS.into_iter().find(|sign| rest.starts_with(sign)) {
            tokens.extend(word.take().map(Token::Word));
            tokens.push(Token::Sign(sign));
            rest = &rest[sign.len()..];
            continue;
        }
        rest = &rest[c.len_utf8()..];
        match c {
            ' ' | '\t' | '\r' => tokens.extend(word.take().map(Token::Word)),
            '#' if word.is_none() => rest = rest.find('\n').map_or("", |end| &rest[end..]),
            '\'' | '"' => {
                let end = rest.find(c).unwrap_or(rest.len());
                let inner = &rest[..end];
                let inner = if c == '"' { expand(inner, shell) } else { inner.to_owned() };
                word.get_or_insert_default().push_str(&inner);
                rest = rest.get(end + 1..).unwrap_or_default();
            }
            '$' => {
                let end = variable_end(rest);
                let value = expand(&format!("${}", &rest[..end]), shell);
                word.get_or_insert_default().push_str(&value);
                rest = &rest[end..];
            }
            _ => word.get_or_insert_default().push(c),
        }
    }
    tokens.extend(word.take().map(Token::Word));
    tokens
}

fn variable_end(text: &str) -> usize {
    if text.starts_with('{') {
        return text.find('}').map_or(text.len(), |end| end + 1);
    }
    if text.starts_with('$') {
        return 1;
    }
    text.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(text.len())
}

fn expand(text: &str, shell: &Program) -> String {
    let mut out = String::new();
    let mut parts = text.split('$');
    out.push_str(parts.next().unwrap_or_default());
    let mut rest = &text[out.len()..];
    while let Some(after) = rest.strip_prefix('$') {
        let end = variable_end(after);
        match after[..end].trim_start_matches('{').trim_end_matches('}') {
            "" => out.push('$'),
            "$" => out.push_str(&shell.exec.pid.to_string()),
            "PWD" => out.push_str(&shell.cwd),
            name => out.push_str(shell.env.get(name).map_or("", String::as_str)),
        }
        let after = &after[end..];
        let next = after.find('$').unwrap_or(after.len());
        out.push_str(&after[..next]);
        rest = &after[next..];
    }
    out
}

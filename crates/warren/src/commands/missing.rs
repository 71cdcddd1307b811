//! Hints after a program that was not found: `warren run alpine echo hi` names an image where the program goes, and
//! `warren exec lab 'ls -l'` is a line for a shell.

use sandbox::ImageRef;

use crate::{client::Client, output};

/// Images that people try first. Any other is recognised by its tag or registry, or because it is here.
const WELL_KNOWN: &[&str] = &[
    "almalinux",
    "alpine",
    "amazonlinux",
    "archlinux",
    "busybox",
    "centos",
    "debian",
    "fedora",
    "gcc",
    "golang",
    "hello-world",
    "httpd",
    "mariadb",
    "mongo",
    "mysql",
    "nginx",
    "node",
    "openjdk",
    "perl",
    "php",
    "postgres",
    "python",
    "redis",
    "rockylinux",
    "ruby",
    "rust",
    "ubuntu",
];

/// Words of the shell itself, which are no programs.
const SHELL_WORDS: &[&str] = &[
    ".", "alias", "bg", "cd", "eval", "exit", "export", "fg", "for", "history", "if", "jobs", "set", "shopt",
    "source", "type", "ulimit", "umask", "unset", "while",
];
/// Longest command line that a hint repeats.
const MAX_SHOWN_BYTES: usize = 300;

/// The hint after a command whose program was not found. `has_images`: the command line could name an image. `line`:
/// the words of our own command line, which end with those of the command.
pub(super) async fn of(
    client: &Client,
    command: &[String],
    line: &[String],
    has_images: Has,
) -> Option<String> {
    let (first, _) = command.split_first()?;
    if let Some(line) = for_shell(command, line) {
        return Some(format!("Only a shell understands that: {line}."));
    }
    if has_images == Has::Programs {
        return None;
    }
    let is_image =
        is_named_like_one(first) || (first.parse::<ImageRef>().is_ok() && is_here(client, first).await);
    is_image.then(|| {
        let flags = line.len().saturating_sub(command.len());
        let flags = line[..flags].strip_suffix(&["--".to_owned()]).unwrap_or(&line[..flags]);
        let image = ["--image".to_owned(), first.clone()];
        let line = shown(flags.iter().chain(&image).chain(&command[1..]));
        format!("{first} looks like an image. Name images with --image, before the program: {line}.")
    })
}

/// What the words of a command line may be besides programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Has {
    Images,
    Programs,
}

/// The same command by a shell, if its words look as if they were meant for one.
fn for_shell(command: &[String], line: &[String]) -> Option<String> {
    let (first, rest) = command.split_first()?;
    let is_line = rest.is_empty() && first.contains(|c: char| c.is_whitespace() || "|&;<>$*".contains(c));
    let is_own_word = SHELL_WORDS.contains(&first.as_str());
    if !is_line && !is_own_word {
        return None;
    }
    let script = if is_line { first.clone() } else { command.join(" ") };
    let before = &line[..line.len().saturating_sub(command.len())];
    Some(shown(before.iter().chain(&["sh".to_owned(), "-c".to_owned(), script])))
}

/// A command line as a person types it.
fn shown<'a>(words: impl Iterator<Item = &'a String>) -> String {
    let mut line = "warren".to_owned();
    for word in words {
        line.push(' ');
        line.push_str(&quoted(word));
    }
    format!("`{}`", output::printable(&output::cut(&line, MAX_SHOWN_BYTES)))
}

/// The words of our own command line, as far as they are text.
pub(super) fn own_line() -> Vec<String> {
    std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned()).collect()
}

fn is_named_like_one(word: &str) -> bool {
    if word.starts_with(['/', '.', '-', '~']) || word.parse::<ImageRef>().is_err() {
        return false;
    }
    WELL_KNOWN.contains(&word) || word.contains([':', '@', '/'])
}

async fn is_here(client: &Client, image: &str) -> bool {
    client.image(image).await.is_ok()
}

/// As a shell reads it.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:@%+,".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_are_told_from_programs() {
        for image in ["alpine", "python:3.12-slim", "ghcr.io/team/app", "team/app", "localhost:5000/it"] {
            assert!(is_named_like_one(image), "{image}");
        }
        for program in ["bash", "./alpine", "/usr/bin/alpine", "pyhton3", "-x", "a b", "../team/app"] {
            assert!(!is_named_like_one(program), "{program}");
        }
    }

    #[test]
    fn what_only_a_shell_understands_is_written_for_one() {
        let words = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let line = [words("exec lab"), vec!["ls -l".to_owned()]].concat();
        assert_eq!(for_shell(&line[2..], &line).unwrap(), "`warren exec lab sh -c 'ls -l'`");
        let line = words("run --rm cd /");
        assert_eq!(for_shell(&line[2..], &line).unwrap(), "`warren run --rm sh -c 'cd /'`");
        for plain in ["run ls", "run nosuch -l", "run a b c"] {
            assert_eq!(for_shell(&words(plain)[1..], &words(plain)), None, "{plain}");
        }
    }

    #[test]
    fn words_are_quoted_for_a_shell() {
        assert_eq!(quoted("a=b"), "a=b");
        assert_eq!(quoted("it's $x"), r"'it'\''s $x'");
        assert_eq!(quoted(""), "''");
    }
}

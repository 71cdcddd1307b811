//! Variables that a client wants in every later command. Its SDK appends them to a file inside, whose path it finds in
//! the variable `EXECD_ENVS`; whoever runs a command reads that file first.

use std::collections::BTreeMap;

use sandbox::{ErrorKind, Result};

use crate::dialects::opensandbox::handle::SandboxHandle;

const VARIABLE: &str = "EXECD_ENVS";
const DEFAULT_FILE: &str = "/root/.opensandbox.env";
/// As much of the file as is read. The engine bounds what a command's environment may hold.
const MAX_BYTES: usize = 1024 * 1024;

/// A command's own variables, over those that were stored.
pub(super) async fn with_stored(
    sandbox: SandboxHandle<'_>,
    own: BTreeMap<String, String>,
) -> Result<BTreeMap<String, String>> {
    let view = sandbox.view().await?;
    let file = view.plan.env.get(VARIABLE).map_or(DEFAULT_FILE, String::as_str).to_owned();
    let mut all = match sandbox.read(&file, 0, MAX_BYTES).await {
        Ok((_, text, _)) => parse(&String::from_utf8_lossy(&text)),
        // Nothing was stored, or something else is there; commands run without it.
        Err(error) if error.kind() != ErrorKind::Unavailable => BTreeMap::new(),
        Err(error) => return Err(error),
    };
    all.insert(VARIABLE.to_owned(), file);
    all.extend(own);
    Ok(all)
}

/// Lines of `NAME=value`; the value may be in quotes. Others are comments.
fn parse(text: &str) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    let mut rest = text;
    while !rest.is_empty() {
        let (name, value, next) = entry(rest);
        if is_name(name) {
            all.insert(name.to_owned(), value);
        }
        rest = next;
    }
    all
}

/// The first entry, and what follows it.
fn entry(text: &str) -> (&str, String, &str) {
    let line_end = text.find('\n').unwrap_or(text.len());
    let Some(at) = text[..line_end].find('=') else {
        return ("", String::new(), text[line_end..].trim_start_matches('\n'));
    };
    let (name, value) = (text[..at].trim(), &text[at + 1..]);
    let (value, rest) = match value.chars().next() {
        // Single quotes keep everything, line breaks too.
        Some('\'') => match value[1..].find('\'') {
            Some(end) => (value[1..=end].to_owned(), &value[end + 2..]),
            None => (value[1..].to_owned(), ""),
        },
        Some('"') => double_quoted(&value[1..]),
        _ => {
            let end = value.find('\n').unwrap_or(value.len());
            (value[..end].trim().to_owned(), &value[end..])
        }
    };
    let next = rest.find('\n').map_or("", |end| &rest[end + 1..]);
    (name, value, next)
}

fn double_quoted(text: &str) -> (String, &str) {
    let mut value = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return (value, &text[at + 1..]),
            '\\' => match chars.next() {
                Some((_, 'n')) => value.push('\n'),
                Some((_, 'r')) => value.push('\r'),
                Some((_, 't')) => value.push('\t'),
                Some((_, other)) => value.push(other),
                None => {}
            },
            other => value.push(other),
        }
    }
    (value, "")
}

fn is_name(text: &str) -> bool {
    let begins_well = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    begins_well && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_is_read_and_the_last_one_counts() {
        let text =
            "# comment\nA=1\nB='two words\nand a line'\nC=\"it's \\\"x\\\"\\n\"\n\nA='3'\nbad name=4\n=5\nD=";
        let expected = [("A", "3"), ("B", "two words\nand a line"), ("C", "it's \"x\"\n"), ("D", "")];
        assert_eq!(parse(text), expected.map(|(name, value)| (name.to_owned(), value.to_owned())).into());
        for torn in ["A='", "A=\"\\", "=", "A", "'\"\n"] {
            parse(torn);
        }
    }
}

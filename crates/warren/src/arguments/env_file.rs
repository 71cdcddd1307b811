//! Files of environment variables: `NAME=value` on each line, or `NAME` alone for the value here.

use std::{fs::File, io::Read as _, path::Path};

/// Largest file that is read.
const MAX_BYTES: u64 = 1024 * 1024;

/// The variables of one file or argument, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Variables(pub(crate) Vec<(String, String)>);

/// Reads the file that an argument names.
pub(crate) fn read(path: &str) -> Result<Variables, String> {
    let mut text = String::new();
    let file = File::open(Path::new(path)).map_err(|error| format!("cannot read it: {error}"))?;
    file.take(MAX_BYTES + 1).read_to_string(&mut text).map_err(|error| format!("cannot read it: {error}"))?;
    if text.len() as u64 > MAX_BYTES {
        return Err(format!("it has more than {MAX_BYTES} bytes"));
    }
    // The line is not shown: it may be a value whose name was forgotten.
    parse(&text).map(Variables).map_err(|line| format!("line {line} is not NAME=value"))
}

/// The variables of a file. The error is the number of the line that is none.
pub(crate) fn parse(text: &str) -> Result<Vec<(String, String)>, usize> {
    let mut variables = Vec::new();
    for (n, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let line = line.strip_prefix("export ").unwrap_or(line);
        match line.split_once('=') {
            Some((name, value)) if !name.trim().is_empty() => {
                variables.push((name.trim().to_owned(), unquoted(value.trim()).to_owned()));
            }
            None if is_name(line) => variables.extend(ours(line)),
            _ => return Err(n + 1),
        }
    }
    Ok(variables)
}

/// A variable of this command's own environment, if it is set.
pub(super) fn ours(name: &str) -> Option<(String, String)> {
    std::env::var(name).ok().map(|value| (name.to_owned(), value))
}

fn is_name(text: &str) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    text.chars().all(is_part) && !text.starts_with(|c: char| c.is_ascii_digit())
}

/// Without the quotes around it. What is inside stays as it is: there are no escapes.
fn unquoted(value: &str) -> &str {
    for quote in ['"', '\''] {
        if let Some(inner) = value.strip_prefix(quote).and_then(|rest| rest.strip_suffix(quote)) {
            return inner;
        }
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_read_as_people_write_them() {
        let text = "# a comment\n\nA=1\nexport B = two words \nC=\"x # y\"\nD='\nE=a=b\r\nF=\n";
        let expected = [("A", "1"), ("B", "two words"), ("C", "x # y"), ("D", "'"), ("E", "a=b"), ("F", "")];
        let expected = expected.map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(parse(text), Ok(expected.to_vec()));
        assert_eq!(parse("A=1\nonly a word\n"), Err(2));
        assert_eq!(parse("=x"), Err(1));
        // A name alone takes its value from here, if there is one.
        let path = std::env::var("PATH").unwrap();
        assert_eq!(parse("PATH\nWARREN_SURELY_NOT_SET\n"), Ok(vec![("PATH".to_owned(), path)]));
    }
}

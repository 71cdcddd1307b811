//! Variables in instructions, as Docker's own small shell has them.

use std::{iter::Peekable, str::Chars};

use crate::{MAX_EXPANDED_BYTES, MAX_VARIABLE_BYTES};

/// Deepest `${a:-${b:-…}}`.
const MAX_DEPTH: usize = 32;

/// Looks up a variable.
pub(crate) type Lookup<'a> = &'a dyn Fn(&str) -> Option<String>;

/// The word with its variables replaced and its quotes gone. Errors are messages without a line.
pub(crate) fn word(text: &str, escape: char, lookup: Lookup<'_>) -> Result<String, String> {
    let mut expander = Expander { chars: text.chars().peekable(), escape, lookup, depth: 0 };
    expander.until(None, Quotes::Gone)
}

/// Text without quoting rules: only variables, and escaped `$`. For here-documents.
pub(crate) fn body(text: &str, escape: char, lookup: Lookup<'_>) -> Result<String, String> {
    let mut expander = Expander { chars: text.chars().peekable(), escape, lookup, depth: 0 };
    expander.until(None, Quotes::Kept)
}

/// The bytes that variables together may still take.
pub(crate) struct Room(usize);

impl Room {
    pub(crate) fn new() -> Self {
        Self(MAX_VARIABLE_BYTES)
    }

    pub(crate) fn take(&mut self, name: &str, value: &str) -> Result<(), String> {
        let left = self.0.checked_sub(name.len() + value.len());
        self.0 = left.ok_or_else(|| {
            format!("variables, arguments and labels have more than {MAX_VARIABLE_BYTES} bytes together")
        })?;
        Ok(())
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Quotes {
    Gone,
    /// Quotes are letters like all others.
    Kept,
}

struct Expander<'a> {
    chars: Peekable<Chars<'a>>,
    escape: char,
    lookup: Lookup<'a>,
    depth: usize,
}

impl Expander<'_> {
    /// Everything up to `end`, which goes; without one, up to the end of the text.
    fn until(&mut self, end: Option<char>, quotes: Quotes) -> Result<String, String> {
        let mut out = String::new();
        loop {
            let Some(c) = self.chars.next() else {
                return match end {
                    Some(end) => Err(format!("expected {end} at the end of a variable")),
                    None => Ok(out),
                };
            };
            match c {
                _ if Some(c) == end => return Ok(out),
                '\'' if quotes == Quotes::Gone => self.single_quoted(&mut out)?,
                '"' if quotes == Quotes::Gone => self.double_quoted(&mut out)?,
                '$' => out.push_str(&self.variable()?),
                _ if c == self.escape && quotes == Quotes::Gone => out.extend(self.chars.next()),
                _ if c == self.escape => self.kept_escape(c, &mut out),
                _ => out.push(c),
            }
            check_length(&out)?;
        }
    }

    fn single_quoted(&mut self, out: &mut String) -> Result<(), String> {
        loop {
            match self.chars.next() {
                Some('\'') => return Ok(()),
                Some(c) => out.push(c),
                None => return Err("expected a closing ' before the end".to_owned()),
            }
        }
    }

    fn double_quoted(&mut self, out: &mut String) -> Result<(), String> {
        loop {
            match self.chars.next() {
                Some('"') => return Ok(()),
                Some('$') => {
                    out.push_str(&self.variable()?);
                    check_length(out)?;
                }
                Some(c) if c == self.escape => match self.chars.next() {
                    Some(next) if next == '"' || next == '$' || next == self.escape => out.push(next),
                    Some(next) => out.extend([c, next]),
                    None => out.push(c),
                },
                Some(c) => out.push(c),
                None => return Err("expected a closing \" before the end".to_owned()),
            }
        }
    }

    fn kept_escape(&mut self, c: char, out: &mut String) {
        match self.chars.peek() {
            Some(next) if *next == '$' || *next == self.escape => out.extend(self.chars.next()),
            _ => out.push(c),
        }
    }

    /// After `$`.
    fn variable(&mut self) -> Result<String, String> {
        if self.chars.next_if_eq(&'{').is_some() {
            return self.braced();
        }
        let name = self.name();
        if name.is_empty() {
            return Ok("$".to_owned());
        }
        Ok((self.lookup)(&name).unwrap_or_default())
    }

    fn name(&mut self) -> String {
        let mut name = String::new();
        let Some(first) = self.chars.next_if(|c| c.is_ascii_alphanumeric() || *c == '_') else { return name };
        name.push(first);
        let is_number = first.is_ascii_digit();
        let belongs = |c: &char| c.is_ascii_digit() || !is_number && (c.is_ascii_alphabetic() || *c == '_');
        while let Some(c) = self.chars.next_if(belongs) {
            name.push(c);
        }
        name
    }

    /// After `${`.
    fn braced(&mut self) -> Result<String, String> {
        let name = self.name();
        if name.is_empty() {
            return Err("expected the name of a variable after ${".to_owned());
        }
        let value = (self.lookup)(&name);
        let (counts_empty, modifier) = match self.chars.next() {
            Some('}') => return Ok(value.unwrap_or_default()),
            Some(':') => (true, self.chars.next()),
            other => (false, other),
        };
        let Some(modifier @ ('-' | '+' | '?')) = modifier else {
            let found = modifier.map_or_else(|| "the end".to_owned(), |c| format!("{c:?}"));
            return Err(format!("expected }}, :-, :+ or :? after ${{{name}, not {found}"));
        };
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(format!("variables stand in variables more than {MAX_DEPTH} deep"));
        }
        let alternative = self.until(Some('}'), Quotes::Gone)?;
        self.depth -= 1;
        let value = value.filter(|value| !(counts_empty && value.is_empty()));
        match (modifier, value) {
            ('-', value) => Ok(value.unwrap_or(alternative)),
            ('+', Some(_)) => Ok(alternative),
            ('+', None) => Ok(String::new()),
            (_, Some(value)) => Ok(value),
            (_, None) if alternative.is_empty() => Err(format!("the variable {name} is not set")),
            (_, None) => Err(format!("the variable {name} is not set: {alternative}")),
        }
    }
}

fn check_length(out: &str) -> Result<(), String> {
    if out.len() > MAX_EXPANDED_BYTES {
        return Err(format!("with its variables it has more than {MAX_EXPANDED_BYTES} bytes"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(name: &str) -> Option<String> {
        match name {
            "a" => Some("A".to_owned()),
            "path" => Some("/x y".to_owned()),
            "empty" => Some(String::new()),
            _ => None,
        }
    }

    #[test]
    fn words_expand_as_docker_documents() {
        // The table of Docker's own tests (shell/envVarTest), and its reference.
        let cases = [
            ("hello", "hello"),
            ("he'll'o", "hello"),
            ("he'llo wo'rld", "hello world"),
            ("abc\\'def", "abc'def"),
            (r#""abc\"def""#, "abc\"def"),
            (r#""abc\def""#, "abc\\def"),
            (r#"'abc\def'"#, "abc\\def"),
            (r"hello\\there", r"hello\there"),
            ("$a", "A"),
            ("${a}b", "Ab"),
            ("$ab", ""),
            ("$a.b", "A.b"),
            ("'$a'", "$a"),
            ("\"$a\"", "A"),
            ("\\$a", "$a"),
            ("\"\\$a\"", "$a"),
            ("\\\\$a", "\\A"),
            ("$path", "/x y"),
            ("${none:-d}", "d"),
            ("${none-d}", "d"),
            ("${empty:-d}", "d"),
            ("${empty-d}", ""),
            ("${a:-d}", "A"),
            ("${a:+d}", "d"),
            ("${a+d}", "d"),
            ("${empty:+d}", ""),
            ("${empty+d}", "d"),
            ("${none:+d}", ""),
            ("${none:-${a}x}", "Ax"),
            ("${none:-'$a'}", "$a"),
            ("${none:-\"a}b\"}", "a}b"),
            ("${a:?no}", "A"),
            ("$", "$"),
            ("a$", "a$"),
            ("$$", "$$"),
            ("$ ", "$ "),
            ("$1x", "x"),
            ("end\\", "end"),
            ("\"\"", ""),
            ("안녕$a세상", "안녕A세상"),
        ];
        for (text, expected) in cases {
            assert_eq!(word(text, '\\', &look).as_deref(), Ok(expected), "{text}");
        }
        assert_eq!(word("`$a \\$a", '`', &look).as_deref(), Ok("$a \\A"));
    }

    #[test]
    fn what_cannot_be_expanded_says_what_was_expected() {
        for (text, named) in [
            ("'abc", "closing '"),
            ("\"abc", "closing \""),
            ("${a", "the end"),
            ("${}", "name of a variable"),
            ("${a:}", "'}'"),
            ("${a:-x", "expected }"),
            ("${a%x}", "'%'"),
            ("${none:?give one}", "give one"),
            ("${empty:?}", "empty is not set"),
        ] {
            let error = word(text, '\\', &look).unwrap_err();
            assert!(error.contains(named), "{text}: {error}");
        }
    }

    #[test]
    fn growth_and_depth_have_an_end() {
        let long = |_: &str| Some("x".repeat(MAX_EXPANDED_BYTES));
        assert!(word("$a$a", '\\', &long).is_err());
        assert!(word("\"$a$a\"", '\\', &long).is_err());
        let deep = format!("{}{}", "${n:-".repeat(10_000), "}".repeat(10_000));
        assert!(word(&deep, '\\', &look).unwrap_err().contains("deep"));
    }

    #[test]
    fn bodies_keep_their_quotes() {
        assert_eq!(body("'$a' \"${none:-x}\" \\$a \\n", '\\', &look).as_deref(), Ok("'A' \"x\" $a \\n"));
    }
}

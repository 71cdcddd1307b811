//! Patterns for paths, as `COPY` and `.dockerignore` have them: Go's `filepath.Match`, and `**` for the latter.

/// A pattern, one part for each part of a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pattern {
    parts: Vec<Part>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    /// `**`: any number of parts, none included.
    Any,
    One(Vec<Token>),
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Token {
    Char(char),
    /// `?`
    One,
    /// `*`
    Many,
    /// `[a-z]`, `[^a-z]`
    Class {
        negated: bool,
        ranges: Vec<(char, char)>,
    },
}

impl Pattern {
    /// Reads a pattern; the error says what is wrong with it. Needless slashes, `.` and `..` are gone before.
    pub fn parse(text: &str) -> Result<Self, String> {
        let parts = text.split('/').filter(|part| !part.is_empty()).map(part).collect::<Result<_, _>>()?;
        Ok(Self { parts })
    }

    /// The same for `COPY`, where `**` is no more than `*`.
    pub fn of_copy(text: &str) -> Result<Self, String> {
        let mut pattern = Self::parse(text)?;
        for part in &mut pattern.parts {
            if *part == Part::Any {
                *part = Part::One(vec![Token::Many]);
            }
        }
        Ok(pattern)
    }

    /// Whether the whole path matches.
    pub fn matches(&self, path: &str) -> bool {
        let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
        self.matches_parts(&parts)
    }

    pub(crate) fn matches_parts(&self, path: &[&str]) -> bool {
        // Which places of the pattern can be reached after each part: never more work than pattern times path.
        let mut reached = vec![false; self.parts.len() + 1];
        reached[0] = true;
        self.skip_any(&mut reached);
        for name in path {
            let mut next = vec![false; self.parts.len() + 1];
            for (at, part) in self.parts.iter().enumerate().filter(|(at, _)| reached[*at]) {
                match part {
                    Part::Any => next[at] = true,
                    Part::One(tokens) if matches_name(tokens, name) => next[at + 1] = true,
                    Part::One(_) => {}
                }
            }
            self.skip_any(&mut next);
            reached = next;
        }
        reached[self.parts.len()]
    }

    fn skip_any(&self, reached: &mut [bool]) {
        for at in 0..self.parts.len() {
            if reached[at] && self.parts[at] == Part::Any {
                reached[at + 1] = true;
            }
        }
    }

    /// Whether it can match more than one path.
    pub fn is_wild(text: &str) -> bool {
        text.contains(['*', '?', '['])
    }
}

fn part(text: &str) -> Result<Part, String> {
    if text == "**" {
        return Ok(Part::Any);
    }
    let mut tokens = Vec::new();
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        tokens.push(match c {
            '?' => Token::One,
            '*' => {
                // Two in a row beside other letters are one.
                while chars.next_if_eq(&'*').is_some() {}
                Token::Many
            }
            '[' => class(&mut chars, text)?,
            '\\' => Token::Char(chars.next().ok_or_else(|| format!("{text:?} ends with an escape"))?),
            c => Token::Char(c),
        });
    }
    Ok(Part::One(tokens))
}

fn class(chars: &mut std::iter::Peekable<std::str::Chars<'_>>, text: &str) -> Result<Token, String> {
    let unclosed = || format!("{text:?} has a [ without ]");
    let negated = chars.next_if(|c| matches!(c, '^' | '!')).is_some();
    let mut ranges = Vec::new();
    loop {
        let letter = |c: char, chars: &mut std::iter::Peekable<std::str::Chars<'_>>| match c {
            '\\' => chars.next().ok_or_else(unclosed),
            c => Ok(c),
        };
        let first = match chars.next().ok_or_else(unclosed)? {
            ']' if !ranges.is_empty() => return Ok(Token::Class { negated, ranges }),
            ']' => return Err(format!("{text:?} has an empty []")),
            c => letter(c, chars)?,
        };
        let last = match chars.next_if_eq(&'-') {
            Some(_) => {
                let c = chars.next().ok_or_else(unclosed)?;
                letter(c, chars)?
            }
            None => first,
        };
        ranges.push((first, last));
    }
}

fn matches_name(tokens: &[Token], name: &str) -> bool {
    let name: Vec<char> = name.chars().collect();
    // Where to go on after the last `*`, which then takes one letter more.
    let mut retry: Option<(usize, usize)> = None;
    let (mut token, mut at) = (0, 0);
    loop {
        match tokens.get(token) {
            Some(Token::Many) => {
                retry = Some((token + 1, at));
                token += 1;
                continue;
            }
            Some(one) if name.get(at).is_some_and(|c| one.takes(*c)) => {
                token += 1;
                at += 1;
                continue;
            }
            None if at == name.len() => return true,
            _ => {}
        }
        match retry {
            Some((after, from)) if from < name.len() => {
                retry = Some((after, from + 1));
                (token, at) = (after, from + 1);
            }
            _ => return false,
        }
    }
}

impl Token {
    fn takes(&self, c: char) -> bool {
        match self {
            Self::Char(own) => *own == c,
            Self::One => true,
            Self::Many => false,
            Self::Class { negated, ranges } => {
                ranges.iter().any(|(first, last)| (*first..=*last).contains(&c)) != *negated
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_go_has_them() {
        let yes = [
            ("abc", "abc"),
            ("*", "abc"),
            ("*c", "abc"),
            ("a*", "a"),
            ("a*/b", "abc/b"),
            ("a*b*c*d*e*/f", "axbxcxdxe/f"),
            ("ab[c]", "abc"),
            ("ab[b-d]", "abc"),
            ("ab[^e-g]", "abc"),
            ("a\\*b", "a*b"),
            ("a?b", "aüb"),
            ("[a-ζ]*", "α"),
            ("*x", "xxx"),
            ("a[\\]]", "a]"),
            ("**", "a/b"),
            ("**/c", "c"),
            ("**/c", "a/b/c"),
            ("a/**", "a/b"),
            ("a/**/z", "a/z"),
            ("a/**/z", "a/b/c/z"),
            ("**/*.go", "x/y.go"),
            ("a**b", "axxb"),
            ("a/**", "a"),
        ];
        for (pattern, path) in yes {
            assert!(Pattern::parse(pattern).unwrap().matches(path), "{pattern} {path}");
        }
        let no = [
            ("a*", "ab/c"),
            ("a*/b", "a/c/b"),
            ("ab[^c]", "abc"),
            ("a?b", "a/b"),
            ("a", "ab"),
            ("*x", "xxy"),
            ("", "a"),
            ("*.go", "x/y.go"),
            ("a/**/z", "b/z"),
            ("[a-c]", "d"),
        ];
        for (pattern, path) in no {
            assert!(!Pattern::parse(pattern).unwrap().matches(path), "{pattern} {path}");
        }
        for bad in ["[", "[]a]", "[a", "a\\", "[a-"] {
            assert!(Pattern::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn what_copy_names_has_as_many_parts_as_the_pattern() {
        let pattern = Pattern::of_copy("a/**").unwrap();
        assert!(pattern.matches("a/b") && !pattern.matches("a/b/c") && !pattern.matches("a"));
    }

    #[test]
    fn no_pattern_takes_long() {
        let pattern = Pattern::parse(&"*a".repeat(2000)).unwrap();
        assert!(!pattern.matches(&"a".repeat(1999)));
        let deep = Pattern::parse(&"**/a/".repeat(500)).unwrap();
        assert!(!deep.matches(&"a/".repeat(499)));
    }
}

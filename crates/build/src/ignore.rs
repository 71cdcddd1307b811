//! `.dockerignore`.

use crate::glob::Pattern;

/// Most lines that count.
const MAX_PATTERNS: usize = 10_000;

/// The rules for what stays out of a context. The last line that matches a path, or a directory above it, decides.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ignore {
    rules: Vec<Rule>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Rule {
    pattern: Pattern,
    /// Begins with `!`.
    takes_back: bool,
}

impl Ignore {
    /// Reads the file; the error names the line.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut rules = Vec::new();
        for (index, line) in text.strip_prefix('\u{feff}').unwrap_or(text).lines().enumerate() {
            if line.starts_with('#') {
                continue;
            }
            let line = line.trim();
            let (takes_back, text) = match line.strip_prefix('!') {
                Some(text) => (true, text.trim()),
                None => (false, line),
            };
            let text = clean(text);
            if text.is_empty() {
                if takes_back {
                    return Err(format!(".dockerignore, line {}: expected a pattern after !", index + 1));
                }
                continue;
            }
            let pattern = Pattern::parse(&text)
                .map_err(|message| format!(".dockerignore, line {}: {message}", index + 1))?;
            if rules.len() == MAX_PATTERNS {
                return Err(format!(".dockerignore has more than {MAX_PATTERNS} patterns"));
            }
            rules.push(Rule { pattern, takes_back });
        }
        Ok(Self { rules })
    }

    /// Whether the path stays out. Relative to the context, with `/` between its parts.
    pub fn excludes(&self, path: &str) -> bool {
        let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
        let matches =
            |pattern: &Pattern| (1..=parts.len()).any(|length| pattern.matches_parts(&parts[..length]));
        let mut excluded = false;
        for rule in &self.rules {
            if rule.takes_back == excluded && matches(&rule.pattern) {
                excluded = !rule.takes_back;
            }
        }
        excluded
    }

    /// Whether something beneath an excluded directory may still come along.
    pub fn takes_back(&self) -> bool {
        self.rules.iter().any(|rule| rule.takes_back)
    }
}

/// Removes `.`, `..` and needless slashes from a path beneath the context, as Go's `filepath.Clean` does. What would
/// climb out stays in.
pub fn clean(text: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in text.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    parts.join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn excluded(rules: &str, paths: &[&str]) -> Vec<bool> {
        let ignore = Ignore::parse(rules).unwrap();
        paths.iter().map(|path| ignore.excludes(path)).collect()
    }

    #[test]
    fn the_examples_of_the_reference() {
        assert_eq!(
            excluded(
                "# comment\n*/temp*\n*/*/temp*\ntemp?\n",
                &["somedir/temporary.txt", "somedir/subdir/temporary.txt", "tempa", "temp", "a/b/c/temp"]
            ),
            [true, true, true, false, false]
        );
        assert_eq!(excluded("**/*.go", &["a.go", "x/y/b.go", "x/y.rs"]), [true, true, false]);
        assert_eq!(excluded("*.md\n!README.md", &["a.md", "README.md"]), [true, false]);
        assert_eq!(
            excluded("*.md\n!README*.md\nREADME-secret.md", &["README.md", "README-secret.md"]),
            [false, true]
        );
        // The middle line has no effect: the last one takes all back.
        assert_eq!(
            excluded("*.md\nREADME-secret.md\n!README*.md", &["README.md", "README-secret.md", "b.md"]),
            [false, false, true]
        );
    }

    #[test]
    fn a_directory_takes_along_what_is_in_it() {
        assert_eq!(
            excluded("/node_modules/\n.git", &["node_modules/a/b", "x/node_modules", ".git/HEAD"]),
            [true, false, true]
        );
        assert_eq!(excluded("*\n!src", &["src/a.rs", "src", "target/x"]), [false, false, true]);
        assert_eq!(excluded("a/../b\n  ./c/  ", &["b", "c/d", "a"]), [true, true, false]);
        assert!(Ignore::parse("x\n[").unwrap_err().contains("line 2"));
        assert!(Ignore::parse("!").is_err());
    }
}

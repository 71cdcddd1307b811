//! Code run as cells: which languages there are, where their state lives, and what was asked of one cell.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use crate::{ContextName, object::only_object};

/// Longest code of one cell. Longer programs are files.
pub const MAX_CODE_BYTES: usize = 1024 * 1024;
/// As much of a cell's code as its record keeps; the whole is in the log of the exec.
pub const MAX_RECORDED_CODE_BYTES: usize = 1024;

/// A language that Warren knows how to run. Whether a sandbox has it is another question.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Language {
    Python,
    JavaScript,
    TypeScript,
    Bash,
    Sh,
    Ruby,
    Perl,
    Php,
    R,
    Lua,
    Julia,
    Go,
    Rust,
    C,
    Cpp,
    Java,
}

/// Every language with its name and what else it is called.
const NAMES: &[(Language, &str, &[&str])] = &[
    (Language::Python, "python", &["py", "python3", "ipython"]),
    (Language::JavaScript, "javascript", &["js", "node", "nodejs", "node.js", "mjs", "ecmascript"]),
    (Language::TypeScript, "typescript", &["ts", "mts"]),
    (Language::Bash, "bash", &["shell", "command", "terminal"]),
    (Language::Sh, "sh", &["posix"]),
    (Language::Ruby, "ruby", &["rb"]),
    (Language::Perl, "perl", &["pl"]),
    (Language::Php, "php", &[]),
    (Language::R, "r", &["rscript"]),
    (Language::Lua, "lua", &[]),
    (Language::Julia, "julia", &["jl"]),
    (Language::Go, "go", &["golang"]),
    (Language::Rust, "rust", &["rs"]),
    (Language::C, "c", &[]),
    (Language::Cpp, "cpp", &["c++", "cxx"]),
    (Language::Java, "java", &[]),
];

impl Language {
    pub fn all() -> impl Iterator<Item = Self> {
        NAMES.iter().map(|(language, ..)| *language)
    }

    pub fn as_str(self) -> &'static str {
        NAMES.iter().find(|(language, ..)| *language == self).map_or("", |(_, name, _)| name)
    }

    /// Whether variables of one cell are there in the next.
    pub fn is_stateful(self) -> bool {
        matches!(self, Self::Python | Self::JavaScript | Self::TypeScript | Self::Bash)
    }

    /// The language whose interpreter holds the state: TypeScript shares that of JavaScript.
    pub fn interpreter(self) -> Self {
        match self {
            Self::TypeScript => Self::JavaScript,
            language => language,
        }
    }
}

impl fmt::Display for Language {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown language {0:?}")]
pub struct UnknownLanguage(pub String);

impl FromStr for Language {
    type Err = UnknownLanguage;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wanted = text.trim().to_ascii_lowercase();
        let is_meant =
            |(_, name, others): &&(Self, &str, &[&str])| *name == wanted || others.contains(&wanted.as_str());
        let found = NAMES.iter().find(is_meant).map(|(language, ..)| *language);
        found.ok_or_else(|| UnknownLanguage(text.chars().take(64).collect()))
    }
}

impl TryFrom<String> for Language {
    type Error = UnknownLanguage;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<Language> for String {
    fn from(language: Language) -> Self {
        language.as_str().to_owned()
    }
}

/// The code of one cell and where it runs; the rest of what can be asked (environment, directory, user, time) is the exec's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, remote = "Self")]
pub struct CellSpec {
    pub language: Language,
    /// The language's own context when absent; made when it is not there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<ContextName>,
    pub code: String,
}
only_object!(CellSpec);

impl CellSpec {
    /// The context that it runs in; none for languages that keep no state.
    pub fn context(&self) -> Option<ContextName> {
        if !self.language.is_stateful() {
            return None;
        }
        Some(self.context.clone().unwrap_or_else(|| ContextName::of(self.language)))
    }

    /// Takes the whole code out and leaves as much of its beginning as a record keeps.
    pub fn take_code(&mut self) -> String {
        let is_border = |at: &usize| self.code.is_char_boundary(*at);
        let end = (0..=MAX_RECORDED_CODE_BYTES.min(self.code.len())).rev().find(is_border).unwrap_or(0);
        let kept = self.code[..end].to_owned();
        std::mem::replace(&mut self.code, kept)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_keeps_the_beginning_of_the_code_cut_between_characters() {
        let cell = |code: String| CellSpec { language: Language::Python, context: None, code };
        for (code, n_kept) in
            [("x".repeat(7), 7), ("é".repeat(2000), 1024), (format!("x{}", "é".repeat(2000)), 1023)]
        {
            let mut cell = cell(code.clone());
            assert_eq!(cell.take_code(), code);
            assert_eq!(cell.code, code[..n_kept]);
        }
    }

    #[test]
    fn languages_are_known_by_all_their_names() {
        for (text, language) in [
            ("python", Language::Python),
            ("Py", Language::Python),
            ("nodejs", Language::JavaScript),
            ("JavaScript", Language::JavaScript),
            ("ts", Language::TypeScript),
            ("shell", Language::Bash),
            ("C++", Language::Cpp),
        ] {
            assert_eq!(text.parse(), Ok(language), "{text}");
        }
        assert!("klingon".parse::<Language>().is_err());
        for language in Language::all() {
            assert_eq!(language.as_str().parse(), Ok(language));
        }
    }
}

//! The text of a Sandboxfile: which keys there are, and where each value stands.

use std::{
    collections::BTreeMap,
    fmt, fs,
    io::{self, Read as _},
    path::{Path, PathBuf},
};

use rustix::fs::{Mode, OFlags};
use sandbox::{Error, ErrorKind, Result};
use serde::{
    Deserialize, Deserializer,
    de::{IgnoredAny, SeqAccess, Visitor},
};
use serde_saphyr::{Location, Spanned};

use super::FILE_NAME;

/// Largest file that is read. Scripts belong into files of their own long before this.
const MAX_BYTES: u64 = 1024 * 1024;
/// A Sandboxfile is four levels deep.
const MAX_DEPTH: usize = 16;
/// Values of a file, and values after all aliases were replaced by what they stand for.
const MAX_NODES: usize = 50_000;
const MAX_REPLAYED: usize = 100_000;
const MAX_ALIASES: usize = 1_000;
/// All texts together, with those that aliases repeat.
const MAX_TEXT_BYTES: usize = 4 * 1024 * 1024;

/// The whole file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    #[serde(default)]
    #[expect(dead_code, reason = "checked for its shape only")]
    meta: Option<Meta>,
    #[serde(default)]
    pub(super) modules: Option<BTreeMap<String, Anything>>,
    #[serde(default)]
    pub(super) builds: Option<BTreeMap<String, Anything>>,
    pub(super) sandboxes: Option<BTreeMap<String, Spanned<SandboxEntry>>>,
}

/// One sandbox. Lists may be empty or null, as microsandbox takes them.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct SandboxEntry {
    version: Option<String>,
    meta: Option<Meta>,
    pub(super) image: Option<Spanned<String>>,
    /// MiB.
    pub(super) memory: Option<Spanned<u64>>,
    pub(super) cpus: Option<Spanned<f64>>,
    pub(super) volumes: Option<Vec<Spanned<String>>>,
    pub(super) ports: Option<Vec<Spanned<String>>>,
    pub(super) envs: Option<Vec<Spanned<String>>>,
    #[serde(alias = "env_files")]
    pub(super) env_file: Option<Spanned<Texts>>,
    pub(super) depends_on: Option<Vec<Spanned<String>>>,
    pub(super) workdir: Option<String>,
    pub(super) shell: Option<String>,
    pub(super) scripts: Option<BTreeMap<String, String>>,
    pub(super) command: Option<Spanned<Vec<String>>>,
    pub(super) exec: Option<Spanned<String>>,
    pub(super) imports: Option<Spanned<BTreeMap<String, String>>>,
    pub(super) exports: Option<Spanned<BTreeMap<String, String>>>,
    pub(super) scope: Option<Spanned<Scope>>,
    /// Not microsandbox's.
    pub(super) secrets: Option<Vec<Spanned<String>>>,
}

/// The network that a sandbox may reach.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Scope {
    None,
    Local,
    Group,
    Public,
    Any,
}

/// One text or a list of them.
#[derive(Debug, Default)]
pub(super) struct Texts(pub(super) Vec<String>);

impl<'de> Deserialize<'de> for Texts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        struct OneOrMany;

        impl<'de> Visitor<'de> for OneOrMany {
            type Value = Texts;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text or a list of texts")
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> std::result::Result<Texts, E> {
                Ok(Texts(vec![text.to_owned()]))
            }

            fn visit_unit<E: serde::de::Error>(self) -> std::result::Result<Texts, E> {
                Ok(Texts::default())
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut all: A) -> std::result::Result<Texts, A::Error> {
                let mut texts = Vec::new();
                while let Some(text) = all.next_element()? {
                    texts.push(text);
                }
                Ok(Texts(texts))
            }
        }

        deserializer.deserialize_any(OneOrMany)
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "about the project; nothing of it changes a sandbox")]
struct Meta {
    authors: Option<Vec<String>>,
    description: Option<String>,
    homepage: Option<String>,
    repository: Option<String>,
    readme: Option<String>,
    tags: Option<Vec<String>>,
    icon: Option<String>,
}

/// Any value, which is not looked at.
#[derive(Debug)]
pub(super) struct Anything;

impl<'de> Deserialize<'de> for Anything {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        IgnoredAny::deserialize(deserializer).map(|_ignored| Self)
    }
}

/// A file and its text.
#[derive(Debug)]
pub(super) struct Source {
    /// As people know it.
    pub(super) path: PathBuf,
    /// The directory that it is in, without links.
    pub(super) directory: PathBuf,
    pub(super) text: String,
}

/// What the parser adds about a key that is there twice.
const PARSER_ADVICE: &str = ", set DuplicateKeyPolicy in Options if acceptable";

impl Source {
    /// Reads the file, or the one in the directory.
    pub(super) fn read(path: Option<&Path>) -> Result<Self> {
        let path = find(path);
        let unreadable = |error: io::Error| unreadable(&path, &error);
        let text = read_text(&path, MAX_BYTES).map_err(unreadable)?;
        let directory = fs::canonicalize(&path).map_err(unreadable)?;
        let directory = directory.parent().unwrap_or(Path::new("/")).to_owned();
        Ok(Self { path, directory, text })
    }

    pub(super) fn parse(&self) -> Result<File> {
        let options = serde_saphyr::options! {
            budget: serde_saphyr::budget! {
                max_depth: MAX_DEPTH,
                max_nodes: MAX_NODES,
                max_aliases: MAX_ALIASES,
                max_anchors: MAX_ALIASES,
                max_documents: 1,
                max_total_scalar_bytes: MAX_TEXT_BYTES,
                max_recorded_anchor_bytes: MAX_TEXT_BYTES,
            },
            alias_limits: {
                let mut limits = serde_saphyr::options::AliasLimits::default();
                limits.max_total_replayed_events = MAX_REPLAYED;
                limits
            },
            with_snippet: false,
        };
        serde_saphyr::from_str_with_options(&self.text, options).map_err(|error| {
            let place = error.location().map(line).unwrap_or_default();
            let words = error.without_snippet().to_string();
            // The parser ends its message with the place, which stands in front here.
            let words = words.split(" at line ").next().unwrap_or(&words);
            // Its advice is for programs that call the parser.
            let words = words.strip_suffix(PARSER_ADVICE).unwrap_or(words);
            let words = match error.without_snippet() {
                serde_saphyr::Error::Unexpected { expected: "sequence start", .. } => "expected a list",
                serde_saphyr::Error::Unexpected { expected: "mapping start", .. } => {
                    "expected keys with values"
                }
                _ => return self.unreadable(&place, words),
            };
            let key = error.location().and_then(|at| key_before(&self.text, at));
            let key = key.map(|key| format!("{key}: ")).unwrap_or_default();
            self.unreadable(&place, &format!("{key}{words}"))
        })
    }

    fn unreadable(&self, place: &str, words: &str) -> Error {
        Error::invalid(format!("{}{place}: {words}", self.path.display()))
            .with_hint("docs/sandboxfile.md lists the keys and what each may be.")
    }

    /// An error at a place of this file.
    pub(super) fn wrong(&self, at: Location, words: impl fmt::Display) -> Error {
        Error::invalid(format!("{}{}: {words}", self.path.display(), line(at)))
            .with_hint("docs/sandboxfile.md lists the keys and what each may be.")
    }
}

/// The key on the same line before a value.
fn key_before(text: &str, value: Location) -> Option<&str> {
    let line = text.lines().nth(usize::try_from(value.line()).ok()?.checked_sub(1)?)?;
    let (before, _) = line.split_at_checked(usize::try_from(value.column()).ok()?.checked_sub(1)?)?;
    let before = before.trim_end().strip_suffix(':')?;
    Some(before.rsplit(['{', ',']).next()?.trim_start_matches([' ', '-'])).filter(|key| !key.is_empty())
}

fn line(at: Location) -> String {
    if at.line() == 0 { String::new() } else { format!(", line {}", at.line()) }
}

/// The path of the file: the one that was named, or `Sandboxfile` in the directory that was named, or here.
pub(super) fn find(path: Option<&Path>) -> PathBuf {
    match path {
        None => PathBuf::from(FILE_NAME),
        Some(path) if path.is_dir() => path.join(FILE_NAME),
        Some(path) => path.to_owned(),
    }
}

fn unreadable(path: &Path, error: &io::Error) -> Error {
    let kind = match error.kind() {
        io::ErrorKind::NotFound => ErrorKind::NotFound,
        _ => ErrorKind::InvalidRequest,
    };
    Error::new(kind, format!("cannot read {}: {error}", path.display()))
        .with_hint("Name the Sandboxfile with -f, or run the command in its directory.")
}

/// The text of a regular file of at most `limit` bytes.
pub(super) fn read_text(path: &Path, limit: u64) -> io::Result<String> {
    // Opening a pipe must not block until a writer comes.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    read_regular(fs::File::from(rustix::fs::open(path, flags, Mode::empty())?), limit)
}

pub(super) fn read_regular(file: fs::File, limit: u64) -> io::Result<String> {
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    let mut text = String::new();
    file.take(limit + 1).read_to_string(&mut text)?;
    if text.len() as u64 > limit {
        return Err(io::Error::other(format!("it is longer than {limit} bytes")));
    }
    Ok(text)
}

//! apt: where the host's packages come from, in both file formats.

use std::{
    collections::BTreeMap,
    fmt::{self, Write as _},
    path::Path,
};

use url::Url;

use super::{Host, HostPackages};
use crate::config::shown;

const DIRECTORY: &str = "/etc/apt/sources.list.d";
const FILE: &str = "/etc/apt/sources.list";

/// One base address with its suites: what a sandbox is given as a source of its own.
#[derive(Clone, PartialEq, Eq)]
pub struct AptSource {
    /// Which base address, counted among all different ones: the `<n>` of `/apt/<n>/`.
    pub number: usize,
    /// May hold credentials.
    pub uri: Url,
    pub suites: Vec<String>,
    /// Empty for a flat repository.
    pub components: Vec<String>,
    pub architectures: Vec<String>,
    pub signed_by: Option<SignedBy>,
    /// The operator accepts it without a signature.
    pub is_trusted: bool,
}

// By hand, since `Url` shows passwords.
impl fmt::Debug for AptSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AptSource")
            .field("number", &self.number)
            .field("uri", &shown(&self.uri))
            .field("suites", &self.suites)
            .field("components", &self.components)
            .finish_non_exhaustive()
    }
}

/// The signer that a repository must have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SignedBy {
    /// Paths of key files on the host, or fingerprints.
    Keys(Vec<String>),
    /// The key itself, armored, as it stands in the host's file.
    Armored(String),
}

impl AptSource {
    /// The same source as a sandbox sees it, in the form of a `*.sources` file. `gateway` is where the sandbox finds
    /// the gateway, such as `http://127.0.0.1:3143`.
    pub fn stanza(&self, gateway: &str) -> String {
        let mut out =
            format!("Types: deb\nURIs: {gateway}/apt/{}\nSuites: {}\n", self.number, self.suites.join(" "));
        // Writing to a string does not fail.
        if !self.components.is_empty() {
            let _ = writeln!(out, "Components: {}", self.components.join(" "));
        }
        if !self.architectures.is_empty() {
            let _ = writeln!(out, "Architectures: {}", self.architectures.join(" "));
        }
        match &self.signed_by {
            Some(SignedBy::Keys(keys)) => {
                let _ = writeln!(out, "Signed-By: {}", keys.join(","));
            }
            Some(SignedBy::Armored(key)) => {
                let _ = writeln!(out, "Signed-By:\n{key}");
            }
            None => {}
        }
        if self.is_trusted {
            out.push_str("Trusted: yes\n");
        }
        out
    }
}

pub(super) fn read(host: &Host<'_>, found: &mut HostPackages) {
    if let Some(text) = host.text(FILE) {
        read_list(&text, found);
    }
    for name in (host.names)(Path::new(DIRECTORY)) {
        let path = format!("{DIRECTORY}/{name}");
        if name.ends_with(".list") {
            host.text(path).into_iter().for_each(|text| read_list(&text, found));
        } else if name.ends_with(".sources") {
            host.text(path).into_iter().for_each(|text| read_stanzas(&text, found));
        }
    }
}

/// `deb [option=value …] uri suite component…`
fn read_list(text: &str, found: &mut HostPackages) {
    for line in text.lines() {
        let line = line.split('#').next().unwrap_or_default().trim();
        let Some(rest) = line.strip_prefix("deb").filter(|rest| rest.starts_with([' ', '\t'])) else {
            continue;
        };
        let rest = rest.trim_start();
        let (options, rest) = match rest.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            Some((options, rest)) => (options, rest),
            None => ("", rest),
        };
        let options: BTreeMap<&str, &str> =
            options.split_ascii_whitespace().filter_map(|word| word.split_once('=')).collect();
        let mut words = rest.split_ascii_whitespace();
        let (Some(uri), Some(suite)) = (words.next(), words.next()) else { continue };
        let list = |name: &str| options.get(name).map(|text| split(text)).unwrap_or_default();
        let keys = list("signed-by");
        let draft = Draft {
            suites: vec![suite.to_owned()],
            components: words.map(str::to_owned).collect(),
            architectures: list("arch"),
            signed_by: (!keys.is_empty()).then_some(SignedBy::Keys(keys)),
            is_trusted: options.get("trusted").is_some_and(|value| is_yes(value)),
        };
        draft.push(uri, found);
    }
}

/// Paragraphs of `Field: value`, as in `debian.sources`.
fn read_stanzas(text: &str, found: &mut HostPackages) {
    for fields in stanzas(text) {
        let field = |name: &str| fields.get(name).map(String::as_str).unwrap_or_default();
        if !split(field("types")).iter().any(|one| one == "deb") || is_no(field("enabled")) {
            continue;
        }
        let draft = Draft {
            suites: split(field("suites")),
            components: split(field("components")),
            architectures: split(field("architectures")),
            signed_by: signed_by(field("signed-by")),
            is_trusted: is_yes(field("trusted")),
        };
        for uri in split(field("uris")) {
            draft.clone().push(&uri, found);
        }
    }
}

/// Names in lower case; the lines of a value that goes on stay apart, with the space before each.
fn stanzas(text: &str) -> Vec<BTreeMap<String, String>> {
    let mut all: Vec<BTreeMap<String, String>> = vec![BTreeMap::new()];
    let mut last: Option<String> = None;
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        if line.trim().is_empty() {
            all.push(BTreeMap::new());
            last = None;
        } else if line.starts_with([' ', '\t']) {
            let fields = all.last_mut().zip(last.as_ref());
            if let Some(value) = fields.and_then(|(fields, name)| fields.get_mut(name)) {
                value.push('\n');
                value.push_str(line);
            }
        } else if let Some((name, value)) = line.split_once(':') {
            let name = name.trim().to_ascii_lowercase();
            if let Some(fields) = all.last_mut() {
                fields.insert(name.clone(), value.trim().to_owned());
            }
            last = Some(name);
        }
    }
    all
}

fn signed_by(value: &str) -> Option<SignedBy> {
    if value.contains("BEGIN PGP") {
        return Some(SignedBy::Armored(value.trim_start_matches('\n').to_owned()));
    }
    let keys = split(value);
    (!keys.is_empty()).then_some(SignedBy::Keys(keys))
}

#[derive(Clone)]
struct Draft {
    suites: Vec<String>,
    components: Vec<String>,
    architectures: Vec<String>,
    signed_by: Option<SignedBy>,
    is_trusted: bool,
}

impl Draft {
    fn push(self, uri: &str, found: &mut HostPackages) {
        let whose = format!("The apt source for {}", self.suites.join(" "));
        let Some(mut uri) = found.address(uri, &whose) else { return };
        if !uri.path().ends_with('/') {
            uri.set_path(&format!("{}/", uri.path()));
        }
        let bases = found.apt_bases();
        let number = bases.iter().position(|base| *base == uri).unwrap_or(bases.len());
        let Self { suites, components, architectures, signed_by, is_trusted } = self;
        found.apt_sources.push(AptSource {
            number,
            uri,
            suites,
            components,
            architectures,
            signed_by,
            is_trusted,
        });
    }
}

fn split(text: &str) -> Vec<String> {
    text.split(|c: char| c.is_whitespace() || c == ',')
        .filter(|word| !word.is_empty())
        .map(str::to_owned)
        .collect()
}

fn is_yes(value: &str) -> bool {
    matches!(value.trim().to_ascii_lowercase().as_str(), "yes" | "true" | "1" | "on")
}

fn is_no(value: &str) -> bool {
    matches!(value.trim().to_ascii_lowercase().as_str(), "no" | "false" | "0" | "off")
}

#[cfg(test)]
mod tests {
    use super::super::tests::gathered;

    #[test]
    fn lists_of_lines() {
        let list = "# deb http://off.example/ x main\n\
                    deb http://deb.example/debian stable main contrib # comment\n\
                    deb-src http://deb.example/debian stable main\n\
                    deb [arch=amd64,arm64 signed-by=/usr/share/keyrings/x.gpg trusted=yes] https://x.example/repo/ ./\n\
                    deb cdrom:[Debian]/ stable main\n\
                    deb http://deb.example/debian stable-updates main\ndeb\ndeb http://short.example\n";
        let found = gathered(&[("/etc/apt/sources.list", list)], &[]);
        let stanzas: Vec<_> = found.apt_sources.iter().map(|source| source.stanza("http://here")).collect();
        assert_eq!(
            stanzas,
            [
                "Types: deb\nURIs: http://here/apt/0\nSuites: stable\nComponents: main contrib\n",
                "Types: deb\nURIs: http://here/apt/1\nSuites: ./\nArchitectures: amd64 arm64\n\
                 Signed-By: /usr/share/keyrings/x.gpg\nTrusted: yes\n",
                "Types: deb\nURIs: http://here/apt/0\nSuites: stable-updates\nComponents: main\n",
            ]
        );
        let bases: Vec<_> = found.apt_bases().into_iter().map(String::from).collect();
        assert_eq!(bases, ["http://deb.example/debian/", "https://x.example/repo/"]);
        assert_eq!(found.notes.len(), 1, "{:?}", found.notes);
    }

    #[test]
    fn stanzas() {
        let text = "Types: deb deb-src\n# a comment between\nURIs: http://deb.example/debian http://two.example/debian\n\
                    Suites: stable\n stable-updates\nComponents: main\nSigned-By:\n -----BEGIN PGP PUBLIC KEY BLOCK-----\n .\n abc\n\
                    \n\nTypes: deb\nEnabled: no\nURIs: http://off.example/\nSuites: x\n\n\
                    types: deb\nuris: http://deb.example/security\nsuites: s\nSigned-By: /k/a.gpg, /k/b.gpg\n";
        let ignored = ("/etc/apt/sources.list.d/old.list.disabled", "deb http://no.example x y\n");
        let found = gathered(&[("/etc/apt/sources.list.d/debian.sources", text), ignored], &[]);
        let stanzas: Vec<_> = found.apt_sources.iter().map(|source| source.stanza("http://here")).collect();
        let key = "Signed-By:\n -----BEGIN PGP PUBLIC KEY BLOCK-----\n .\n abc\n";
        assert_eq!(
            stanzas,
            [
                format!(
                    "Types: deb\nURIs: http://here/apt/0\nSuites: stable stable-updates\nComponents: main\n{key}"
                ),
                format!(
                    "Types: deb\nURIs: http://here/apt/1\nSuites: stable stable-updates\nComponents: main\n{key}"
                ),
                "Types: deb\nURIs: http://here/apt/2\nSuites: s\nSigned-By: /k/a.gpg,/k/b.gpg\n".to_owned(),
            ]
        );
    }
}

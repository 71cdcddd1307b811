//! Packages: the known managers, what may be requested of them, and the state of an install job.

use std::{fmt, str::FromStr, time::Duration};

use serde::{Deserialize, Serialize};

use crate::RequestId;

/// Most packages in one job.
pub const MAX_PACKAGES: usize = 200;
/// Longest text of one package with its extras and versions.
const MAX_PACKAGE_BYTES: usize = 256;
/// Longest path of a requirements file or a directory.
const MAX_PATH_BYTES: usize = 1024;
/// How much of a refused text is shown.
const MAX_SHOWN_CHARS: usize = 64;

/// A program that installs packages.
#[derive(
    Debug,
    Clone,
    Copy,
    Default,
    PartialEq,
    Eq,
    Hash,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    utoipa::ToSchema,
)]
#[serde(try_from = "String", into = "String")]
#[schema(rename_all = "lowercase")]
pub enum PackageManager {
    #[default]
    Pip,
    Npm,
    Apt,
}

const NAMES: &[(PackageManager, &str, &[&str])] = &[
    (PackageManager::Pip, "pip", &["pip3", "python", "pypi", "uv"]),
    (PackageManager::Npm, "npm", &["node", "nodejs", "javascript"]),
    (PackageManager::Apt, "apt", &["apt-get", "deb", "debian", "dpkg"]),
];

impl PackageManager {
    pub const ALL: [Self; 3] = [Self::Pip, Self::Npm, Self::Apt];

    pub fn as_str(self) -> &'static str {
        NAMES.iter().find(|(manager, ..)| *manager == self).map_or("", |(_, name, _)| name)
    }
}

impl fmt::Display for PackageManager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for PackageManager {
    type Err = InvalidPackage;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wanted = text.trim().to_ascii_lowercase();
        let is_meant =
            |(_, name, others): &&(Self, &str, &[&str])| *name == wanted || others.contains(&wanted.as_str());
        let found = NAMES.iter().find(is_meant).map(|(manager, ..)| *manager);
        found.ok_or_else(|| InvalidPackage::Manager { text: shown(text) })
    }
}

impl TryFrom<String> for PackageManager {
    type Error = InvalidPackage;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<PackageManager> for String {
    fn from(manager: PackageManager) -> Self {
        manager.as_str().to_owned()
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidPackage {
    #[error("{text:?} is not a package manager: use pip, npm or apt")]
    Manager { text: String },
    #[error("no package was given")]
    None,
    #[error("{count} packages were given; the limit for one job is {MAX_PACKAGES}")]
    TooMany { count: usize },
    #[error("{manager} takes no requirements file")]
    NoRequirements { manager: PackageManager },
    #[error("{text:?} is not a valid path in the sandbox: {why}")]
    Path { text: String, why: &'static str },
    #[error("{text:?} is not a valid package name for {manager}: {why}")]
    Package { manager: PackageManager, text: String, why: &'static str },
}

/// One package as its manager takes it: a name and a version range. Never an option, a path or an address.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Package {
    name: String,
    text: String,
}

impl Package {
    pub fn new(manager: PackageManager, text: &str) -> Result<Self, InvalidPackage> {
        let refused = |why| InvalidPackage::Package { manager, text: shown(text), why };
        if text.len() > MAX_PACKAGE_BYTES {
            return Err(refused("it is too long"));
        }
        let text: String = match manager {
            PackageManager::Pip => without_blanks(text).ok_or_else(|| refused("it contains a space"))?,
            PackageManager::Npm | PackageManager::Apt => text.trim().to_owned(),
        };
        if !text.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '@') {
            return Err(refused("a name starts with a letter or a digit"));
        }
        let name = match manager {
            PackageManager::Pip => pip_name(&text),
            PackageManager::Npm => npm_name(&text),
            PackageManager::Apt => apt_name(&text),
        };
        Ok(Self { name: name.map_err(refused)?, text })
    }

    /// The name as the manager itself writes it, without versions.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The whole text, for a command line.
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

impl fmt::Display for Package {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.text)
    }
}

type Why = &'static str;

/// `name`, `name[extra,…]`, and then `==1.2`, `>=1,<2` and so on.
fn pip_name(text: &str) -> Result<String, Why> {
    let end = text.find(|c: char| !is_name_char(c)).unwrap_or(text.len());
    let (name, mut rest) = text.split_at(end);
    if !name.ends_with(|c: char| c.is_ascii_alphanumeric()) {
        return Err("a name ends with a letter or a digit");
    }
    if let Some(extras) = rest.strip_prefix('[') {
        let (inside, after) = extras.split_once(']').ok_or("its extras are not closed with ]")?;
        if !inside.split(',').all(|extra| !extra.is_empty() && extra.chars().all(is_name_char)) {
            return Err("its extras are not names");
        }
        rest = after;
    }
    if !rest.is_empty() {
        rest.split(',').try_for_each(pip_version)?;
    }
    Ok(normal_pip_name(name))
}

/// Removes blanks around operators; elsewhere a blank would join two packages into one.
fn without_blanks(text: &str) -> Option<String> {
    let is_operator = |c: char| "<>=!~,[]".contains(c);
    let mut joined = String::with_capacity(text.len());
    for word in text.split_ascii_whitespace() {
        if !joined.is_empty() && !joined.ends_with(is_operator) && !word.starts_with(is_operator) {
            return None;
        }
        joined.push_str(word);
    }
    Some(joined)
}

fn pip_version(text: &str) -> Result<(), Why> {
    let operators = ["===", "==", ">=", "<=", "!=", "~=", "<", ">"];
    let version = operators.iter().find_map(|operator| text.strip_prefix(operator));
    let version = version.ok_or("after the name come extras in [] and versions such as ==1.2 or >=1,<2")?;
    let fits = |c: char| c.is_ascii_alphanumeric() || ".*+!_-".contains(c);
    if version.is_empty() || !version.chars().all(fits) {
        return Err("a version has letters, digits and . * + ! _ -");
    }
    Ok(())
}

/// Normalizes a name as Python does: lower case, with `-` for any run of `-`, `_` and `.`.
fn normal_pip_name(name: &str) -> String {
    let parts = name.split(['-', '_', '.']).filter(|part| !part.is_empty());
    parts.collect::<Vec<_>>().join("-").to_ascii_lowercase()
}

/// `name`, `@scope/name`, and then `@1.2`, `@^1`, `@latest` and so on.
fn npm_name(text: &str) -> Result<String, Why> {
    let (scope, rest) = match text.strip_prefix('@') {
        Some(scoped) => {
            let (scope, rest) = scoped.split_once('/').ok_or("a scope is followed by / and a name")?;
            (Some(scope), rest)
        }
        None => (None, text),
    };
    let (name, version) = rest.split_once('@').map_or((rest, None), |(name, version)| (name, Some(version)));
    for part in scope.into_iter().chain([name]) {
        let begins = part.starts_with(|c: char| c.is_ascii_alphanumeric());
        if !begins || !part.chars().all(|c| is_name_char(c) || c == '~') {
            return Err("a name has letters, digits and . _ - ~, and a / only after a scope");
        }
    }
    let fits = |c: char| c.is_ascii_alphanumeric() || ".*^~<>=|+- ".contains(c);
    if version.is_some_and(|text| text.is_empty() || text.starts_with(['.', '-']) || !text.chars().all(fits))
    {
        return Err("after the second @ comes a version, a range or a tag");
    }
    // npm would treat these as files.
    let is_archive = |text: &str| {
        let text = text.to_ascii_lowercase();
        [".tgz", ".tar", ".tar.gz"].iter().any(|end| text.ends_with(end))
    };
    if is_archive(text) {
        return Err("it names an archive");
    }
    Ok(scope.map_or_else(|| name.to_owned(), |scope| format!("@{scope}/{name}")))
}

/// `name`, `name:arch`, `name=1.2-3`.
fn apt_name(text: &str) -> Result<String, Why> {
    let (full, version) = text.split_once('=').map_or((text, None), |(full, version)| (full, Some(version)));
    let (name, arch) = full.split_once(':').map_or((full, None), |(name, arch)| (name, Some(arch)));
    let is_word = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    if name.len() < 2 || !name.starts_with(is_word) || !name.chars().all(|c| is_word(c) || "+.-".contains(c))
    {
        return Err("a name has lower case letters, digits and + . -");
    }
    if name.ends_with('-') {
        return Err("a name that ends with - would remove the package");
    }
    if arch.is_some_and(|arch| arch.is_empty() || !arch.chars().all(|c| is_word(c) || c == '-')) {
        return Err("after : comes an architecture");
    }
    let fits = |c: char| c.is_ascii_alphanumeric() || ".+~:-".contains(c);
    if version.is_some_and(|version| version.is_empty() || !version.chars().all(fits)) {
        return Err("after = comes a version");
    }
    Ok(name.to_owned())
}

fn is_name_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || "._-".contains(c)
}

fn shown(text: &str) -> String {
    text.chars().take(MAX_SHOWN_CHARS).collect()
}

fn check_path(text: &str) -> Result<(), InvalidPackage> {
    let refused = |why| Err(InvalidPackage::Path { text: shown(text), why });
    match text {
        "" => refused("it is empty"),
        _ if text.starts_with('-') => refused("it looks like an option"),
        _ if text.len() > MAX_PATH_BYTES => refused("it is too long"),
        _ if text.contains(|c: char| c.is_control()) => refused("it contains control characters"),
        _ => Ok(()),
    }
}

/// The request for one job.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PackageSpec {
    #[serde(default)]
    pub manager: PackageManager,
    pub packages: Vec<String>,
    /// For pip: a file inside that names packages, from the working directory of the install.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requirements_file: Option<String>,
    /// Where the install runs, from the sandbox's own working directory, which is the default. npm installs for the
    /// project there; without packages, what the project asks for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// After this time the install is killed and the job has failed.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "crate::spec::millis")]
    #[serde(rename = "timeoutMs")]
    pub timeout: Option<Duration>,
    /// A repeated request returns the first job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<RequestId>,
}

impl PackageSpec {
    /// The packages without duplicates, in a fixed order.
    pub fn check(&self) -> Result<Vec<Package>, InvalidPackage> {
        for path in self.requirements_file.iter().chain(&self.cwd) {
            check_path(path)?;
        }
        let is_pip = self.manager == PackageManager::Pip;
        if self.requirements_file.is_some() && !is_pip {
            return Err(InvalidPackage::NoRequirements { manager: self.manager });
        }
        let is_project = self.manager == PackageManager::Npm && self.cwd.is_some();
        match self.packages.len() {
            0 if self.requirements_file.is_some() || is_project => {}
            0 => return Err(InvalidPackage::None),
            1..=MAX_PACKAGES => {}
            count => return Err(InvalidPackage::TooMany { count }),
        }
        let packages = self.packages.iter().map(|text| Package::new(self.manager, text));
        let mut packages = packages.collect::<Result<Vec<_>, _>>()?;
        packages.sort_unstable();
        packages.dedup();
        Ok(packages)
    }
}

/// The state of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum PackageState {
    Installing,
    Installed,
    Failed,
}

impl PackageState {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Installing => "installing",
            Self::Installed => "installed",
            Self::Failed => "failed",
        }
    }
}

impl fmt::Display for PackageState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// A package that is there.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, utoipa::ToSchema)]
#[schema(as = Package)]
pub struct InstalledPackage {
    pub name: String,
    pub version: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(manager: PackageManager, good: &[(&str, &str)], bad: &[&str]) {
        for (text, name) in good {
            let package = Package::new(manager, text).unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(package.name(), *name, "{text:?}");
        }
        for text in bad {
            assert!(Package::new(manager, text).is_err(), "{text:?}");
        }
    }

    /// Texts that are never names: options, paths, addresses, shell words.
    const NEVER: [&str; 14] = [
        "",
        " ",
        "-r",
        "--index-url=http://evil/",
        " --user",
        "../x",
        "./x",
        "/etc/passwd",
        "http://evil/x.whl",
        "git+https://evil/x",
        "a b --c",
        "a;rm -rf /",
        "a\0b",
        "a\n-r",
    ];

    #[test]
    fn pip_names_come_with_extras_and_versions() {
        let good = [
            ("numpy", "numpy"),
            ("Flask_SQLAlchemy", "flask-sqlalchemy"),
            ("zope.interface", "zope-interface"),
            ("uvicorn[standard]==0.30.1", "uvicorn"),
            ("requests[socks,use-chardet] >= 2.31, < 3", "requests"),
            ("torch==2.3.0+cpu", "torch"),
            ("pkg===1!2.0.post1", "pkg"),
            ("django~=5.0", "django"),
            ("x==1.*", "x"),
        ];
        let bad = [
            "x==",
            "x=1",
            "x[",
            "x[]",
            "x[a",
            "x@http://evil/x",
            "x @ file:///x",
            "x; python_version<'3'",
            "x==1,",
            "x.",
            "x==$(id)",
            "@scope/x",
            "x/y",
        ];
        check(PackageManager::Pip, &good, &[NEVER.as_slice(), &bad].concat());
    }

    #[test]
    fn npm_names_come_with_scopes_and_ranges() {
        let good = [
            ("lodash", "lodash"),
            ("@types/node@20", "@types/node"),
            ("left-pad@^1.3.0", "left-pad"),
            ("chalk@latest", "chalk"),
            ("is-odd@>=1 <3 || 4.x", "is-odd"),
        ];
        let bad = [
            "user/repo",
            "x@npm:y",
            "x@file:../y",
            "x@./y",
            "x@git+ssh://evil",
            "x.tgz",
            "x@y.tar.gz",
            "@scope",
            "@/x",
            "@a/b/c",
            "x@",
            ".x",
            "_x",
            "C:x",
        ];
        check(PackageManager::Npm, &good, &[NEVER.as_slice(), &bad].concat());
    }

    #[test]
    fn apt_names_come_with_architectures_and_versions() {
        let good = [
            ("jq", "jq"),
            ("g++", "g++"),
            ("libc6:amd64", "libc6"),
            ("curl=7.88.1-10+deb12u8", "curl"),
            ("git=1:2.39.5-0~x", "git"),
        ];
        let bad = ["jq-", "JQ", "j", "jq/stable", "jq=", "jq:", "./jq.deb", "~nfoo", "?name(x)", "jq=1 -y"];
        check(PackageManager::Apt, &good, &[NEVER.as_slice(), &bad].concat());
    }

    #[test]
    fn a_job_has_some_packages_each_once() {
        let spec = |packages: Vec<String>| PackageSpec { packages, ..PackageSpec::default() };
        assert_eq!(spec(vec![]).check(), Err(InvalidPackage::None));
        assert!(spec(vec!["x".into(); MAX_PACKAGES + 1]).check().is_err());
        let packages = spec(vec!["b".into(), "a".into(), "b".into()]).check().unwrap();
        assert_eq!(packages.iter().map(Package::as_str).collect::<Vec<_>>(), ["a", "b"]);
    }

    #[test]
    fn a_file_or_a_project_may_name_the_packages() {
        let pip = |file: &str| PackageSpec { requirements_file: Some(file.into()), ..PackageSpec::default() };
        let npm = PackageSpec { manager: PackageManager::Npm, ..PackageSpec::default() };
        assert_eq!(pip("requirements.txt").check(), Ok(vec![]));
        assert_eq!(PackageSpec { cwd: Some("/app".into()), ..npm.clone() }.check(), Ok(vec![]));
        assert_eq!(npm.check(), Err(InvalidPackage::None));
        for path in ["", "--index-url=x", "a\nb", &"x".repeat(MAX_PATH_BYTES + 1)] {
            assert!(matches!(pip(path).check(), Err(InvalidPackage::Path { .. })), "{path}");
        }
        let not_pip = PackageSpec { requirements_file: Some("r.txt".into()), ..npm };
        assert_eq!(not_pip.check(), Err(InvalidPackage::NoRequirements { manager: PackageManager::Npm }));
    }

    #[test]
    fn managers_are_known_by_all_their_names() {
        assert_eq!("PyPI".parse(), Ok(PackageManager::Pip));
        assert_eq!("apt-get".parse(), Ok(PackageManager::Apt));
        assert!("brew".parse::<PackageManager>().unwrap_err().to_string().contains("npm"));
        for manager in PackageManager::ALL {
            assert_eq!(manager.as_str().parse(), Ok(manager));
        }
    }
}

//! Finds the installed packages by looking inside.

use sandbox::{Error, InstalledPackage, Package, PackageManager, Result, SandboxPlan};
use serde::Deserialize;

use super::errand::{self, ErrandOutput};
use crate::{client::GuestError, error, shared::Life};

/// Most packages listed.
const MAX_TOLD: usize = 20_000;
/// Longest name or version accepted.
const MAX_TEXT_CHARS: usize = 256;

const PIP: &str = "\
import json, sys
try:
    from importlib.metadata import distributions
except ImportError:
    sys.exit('this python is too old to tell its packages')
found = {}
for d in distributions():
    try:
        name, version = d.metadata['Name'], d.version
    except Exception:
        continue
    if name and version:
        found.setdefault(name, version)
json.dump([{'name': n, 'version': v} for n, v in found.items()], sys.stdout)
";

/// The packages of one manager, by name; those of npm are of the project in `cwd`. `None`: the sandbox does not have
/// this manager.
pub(super) async fn installed(
    life: &Life,
    plan: &SandboxPlan,
    manager: PackageManager,
    cwd: &str,
) -> Result<Option<Vec<InstalledPackage>>> {
    let output = match manager {
        PackageManager::Pip => errand::run(life, plan, &["python3", "-c", PIP], "/").await?,
        PackageManager::Npm => {
            // It finds the project around its working directory, as the install does.
            errand::run(life, plan, &["npm", "ls", "--json", "--depth=0"], cwd).await?
        }
        PackageManager::Apt => {
            let words = ["dpkg-query", "-W", "-f", "${db:Status-Abbrev}\\t${Package}\\t${Version}\\n"];
            errand::run(life, plan, &words, "/").await?
        }
    };
    let Some(output) = output else { return Ok(None) };
    let found = match manager {
        PackageManager::Pip if output.is_success() => read_pip(&output.stdout),
        // Its exit code reports problems, not whether it answered.
        PackageManager::Npm => read_npm(&output.stdout),
        PackageManager::Apt if output.is_success() => Some(read_apt(&output.stdout)),
        PackageManager::Pip | PackageManager::Apt => None,
    };
    let mut found = found.ok_or_else(|| unreadable(life, manager, &output))?;
    found.sort_unstable();
    found.truncate(MAX_TOLD);
    Ok(Some(found))
}

/// The names in a requirements file; none of a file that cannot be read. Files that it includes are not followed.
pub(super) async fn named_in(life: &Life, plan: &SandboxPlan, file: &str, cwd: &str) -> Result<Vec<String>> {
    let words = ["/bin/sh", "-c", "head -c 65536 < \"$1\"", "head", file];
    let output = errand::run(life, plan, &words, cwd).await?.unwrap_or_default();
    Ok(String::from_utf8_lossy(&output.stdout).lines().filter_map(requirement).collect())
}

/// The package that a line of a requirements file names.
fn requirement(line: &str) -> Option<String> {
    let line = line.trim();
    let end = line.find(|c: char| !c.is_ascii_alphanumeric() && !"._-".contains(c)).unwrap_or(line.len());
    Package::new(PackageManager::Pip, &line[..end]).ok().map(|package| package.name().to_owned())
}

fn unreadable(life: &Life, manager: PackageManager, output: &ErrandOutput) -> Error {
    let nonsense = GuestError::Nonsense("a list of packages that cannot be read");
    let complaint = output.complaint();
    let error = error::from_guest(nonsense, life.client.label());
    Error::new(error.kind(), format!("{manager} could not list installed packages: {complaint}"))
        .with_hint("Run the package manager yourself to see what is wrong.")
}

fn package(name: &str, version: &str) -> InstalledPackage {
    let text = |text: &str| text.chars().filter(|c| !c.is_control()).take(MAX_TEXT_CHARS).collect();
    InstalledPackage { name: text(name), version: text(version) }
}

fn read_pip(bytes: &[u8]) -> Option<Vec<InstalledPackage>> {
    let found: Vec<InstalledPackage> = serde_json::from_slice(bytes).ok()?;
    Some(found.iter().map(|found| package(&found.name, &found.version)).collect())
}

#[derive(Deserialize)]
struct NpmTree {
    #[serde(default)]
    dependencies: std::collections::BTreeMap<String, NpmPackage>,
}

#[derive(Deserialize)]
struct NpmPackage {
    /// Absent for a wanted package that is not installed.
    version: Option<String>,
}

fn read_npm(bytes: &[u8]) -> Option<Vec<InstalledPackage>> {
    let tree: NpmTree = serde_json::from_slice(bytes).ok()?;
    let found = tree.dependencies.iter();
    Some(found.filter_map(|(name, found)| Some(package(name, found.version.as_deref()?))).collect())
}

fn read_apt(bytes: &[u8]) -> Vec<InstalledPackage> {
    let text = String::from_utf8_lossy(bytes);
    let installed = text.lines().filter_map(|line| {
        let mut parts = line.split('\t');
        let (status, name, version) = (parts.next()?, parts.next()?, parts.next()?);
        // The second letter is the actual state; the first only the desired one.
        (status.as_bytes().get(1) == Some(&b'i')).then(|| package(name, version))
    });
    installed.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(found: &[InstalledPackage]) -> Vec<String> {
        found.iter().map(|found| format!("{} {}", found.name, found.version)).collect()
    }

    #[test]
    fn requirements_name_packages() {
        let named = |text: &str| text.lines().filter_map(requirement).collect::<Vec<_>>();
        let text =
            "# all\nSix==1.16\n -r more.txt\n--hash=x\nrequests[socks] >= 2 ; python_version > '3'\n\n";
        assert_eq!(named(text), ["six", "requests"]);
    }

    #[test]
    fn what_managers_print_is_read() {
        let pip = read_pip(br#"[{"name":"Flask","version":"3.0\u001b"}]"#).unwrap();
        assert_eq!(names(&pip), ["Flask 3.0"]);
        let npm = br#"{"name":"w","dependencies":{"a":{"version":"1.0.0","x":1},"b":{"missing":true}}}"#;
        assert_eq!(names(&read_npm(npm).unwrap()), ["a 1.0.0"]);
        assert_eq!(names(&read_npm(b"{}").unwrap()), Vec::<String>::new());
        let apt = b"ii \tjq\t1.6-2\nrc \told\t1\nhi \theld\t2\nun \t\t\n";
        assert_eq!(names(&read_apt(apt)), ["jq 1.6-2", "held 2"]);
        assert!(read_pip(b"Traceback").is_none() && read_npm(b"").is_none());
    }
}

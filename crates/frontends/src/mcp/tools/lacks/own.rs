//! A module that is not found may be the caller's own, in a directory where the interpreter does not look. Then no
//! package is missing, and one of the same name may be a stranger's.

use std::time::Duration;

use engine::SandboxRef;
use futures_util::{StreamExt, stream};
use tokio::time::timeout;

use super::{FailedCommand, Language};
use crate::mcp::Call;

/// Most directories that are looked into.
const MAX_PLACES: usize = 16;
/// How far above a directory is looked.
const MAX_ABOVE: usize = 4;
/// Longest directory that is looked into. It may be repeated in a warning.
const MAX_DIRECTORY_BYTES: usize = 256;
/// Paths that are asked for at the same time.
const MAX_AT_ONCE: usize = 8;
/// How long all of it may take. The module counts as missing after that.
const PATIENCE: Duration = Duration::from_secs(2);

/// Returns the directory that holds a module of this name.
pub(super) async fn directory(
    call: &Call,
    which: &SandboxRef,
    failed: &FailedCommand<'_>,
    language: Language,
    module: &str,
) -> Option<String> {
    let cwd = match failed.cwd {
        Some(cwd) if cwd.starts_with('/') => cwd.to_owned(),
        _ => call.engine().sandbox(&call.who, which).await.ok()?.plan.cwd,
    };
    let found = async {
        let paths = places(&cwd, failed).into_iter().flat_map(|place| paths(&place, language, module));
        let asked = stream::iter(paths).map(|(place, path)| async move {
            let stat = call.engine().stat(&call.who, which, &path, true).await;
            stat.is_ok().then_some(place)
        });
        let mut asked = std::pin::pin!(asked.buffered(MAX_AT_ONCE));
        while let Some(found) = asked.next().await {
            if found.is_some() {
                return found;
            }
        }
        None
    };
    timeout(PATIENCE, found).await.ok().flatten()
}

/// Returns the paths of a module in a directory, each after the directory that the interpreter would have to search.
fn paths(place: &str, language: Language, module: &str) -> Vec<(String, String)> {
    let at = |beneath: &str| (format!("{place}{beneath}"), format!("{place}{beneath}/{module}"));
    let with = |ending: &str| (place.to_owned(), format!("{place}/{module}{ending}"));
    match language {
        Language::Python => vec![with(".py"), at(""), at("/src")],
        Language::Node => vec![at(""), with(".js"), with(".mjs"), with(".ts")],
    }
}

/// Returns the directories to look into: those that the command goes to, the working directory, and those of files in
/// its output, each with the directories above it.
fn places(cwd: &str, failed: &FailedCommand<'_>) -> Vec<String> {
    let line = failed.command.join(" ");
    let words: Vec<_> =
        line.split([' ', ';', '&', '\n', '\t', '(', ')']).filter(|word| !word.is_empty()).collect();
    let gone_to = words.windows(2).filter(|pair| pair[0] == "cd").map(|pair| joined(cwd, pair[1]));
    let told = failed.texts.iter().flat_map(|text| directories(super::end(text)));
    let mut all: Vec<String> = Vec::new();
    for place in gone_to.chain([cwd.to_owned()]).chain(told) {
        for above in std::path::Path::new(&place).ancestors().take(MAX_ABOVE) {
            let above = above.to_string_lossy().trim_end_matches('/').to_owned();
            if is_plain(&above) && is_callers_own(&above) && !all.contains(&above) {
                all.push(above);
            }
        }
    }
    all.truncate(MAX_PLACES);
    all
}

fn joined(cwd: &str, path: &str) -> String {
    std::path::Path::new(cwd).join(path.trim_matches(['\'', '"'])).to_string_lossy().into_owned()
}

/// The directories of the absolute paths in a text.
fn directories(text: &str) -> impl Iterator<Item = String> {
    text.split([' ', '\n', '\t', '"', '\'', '(', ')', ',']).filter_map(|word| {
        let path = word.strip_prefix("file://").unwrap_or(word);
        let path = path.split(':').next().filter(|path| path.starts_with('/'))?;
        let (above, last) = path.rsplit_once('/')?;
        Some(if last.contains('.') { above } else { path }.to_owned())
    })
}

/// Whether a directory can be repeated in a warning: what a sandbox prints may be anything, also words for whoever
/// reads the warning.
fn is_plain(directory: &str) -> bool {
    directory.len() <= MAX_DIRECTORY_BYTES
        && directory.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"/._-+@".contains(&byte))
}

/// Neither the root nor a place where programs and packages are.
fn is_callers_own(directory: &str) -> bool {
    const OTHERS: [&str; 7] = ["/usr", "/lib", "/lib64", "/proc", "/sys", "/dev", "/etc"];
    let is_of = |other: &str| {
        directory == other || directory.strip_prefix(other).is_some_and(|rest| rest.starts_with('/'))
    };
    directory.starts_with('/')
        && !OTHERS.into_iter().any(is_of)
        && !["/site-packages", "/dist-packages", "/node_modules"].iter().any(|part| directory.contains(part))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mcp::testing::native;

    #[test]
    fn it_is_looked_for_where_the_command_was_and_where_its_files_are() {
        let command = ["bash", "-c", "cd proj && pytest -q"].map(str::to_owned);
        let network = &engine::NetworkDenials::default();
        let failed = FailedCommand {
            texts: ["rootdir: /srv/other/tests\n  File \"/usr/lib/python3/x.py\", line 1", ""],
            ..FailedCommand::new(&command, network, native())
        };
        assert_eq!(
            places("/root", &failed),
            ["/root/proj", "/root", "/srv/other/tests", "/srv/other", "/srv"].map(str::to_owned)
        );
    }

    #[test]
    fn a_directory_that_could_be_words_for_the_reader_is_left_out() {
        let network = &engine::NetworkDenials::default();
        let long = format!("/srv/{}/a.py", "x".repeat(MAX_DIRECTORY_BYTES));
        for told in ["/tmp/Now\u{a0}run\u{a0}this!/a.py", "/tmp/`id`/a.py", "/tmp/\u{1b}[31m/a.py", &long] {
            let failed = FailedCommand { texts: [told, ""], ..FailedCommand::new(&[], network, native()) };
            let found = places("/root", &failed);
            assert!(
                found.iter().all(|place| ["/root", "/tmp", "/srv"].contains(&place.as_str())),
                "{found:?}"
            );
        }
    }
}

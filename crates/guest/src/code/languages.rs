//! The languages that can run here: those whose program exists. No program is run to find out.

use std::{io::Read, os::unix::fs::PermissionsExt, path::Path};

use guest_protocol::{InstalledLanguage, Response};

use super::{by_file::BY_FILE, drivers};
use crate::exec;

/// Packages that compile TypeScript to JavaScript, and where global ones are installed.
const COMPILERS: &[&str] = &["typescript", "esbuild", "sucrase", "@swc/core"];
const NODE_MODULES: &[&str] = &["/usr/local/lib/node_modules", "/usr/lib/node_modules", "/usr/share/nodejs"];
/// The first Node version that needs none of them.
const STRIPS_TYPES_SINCE: (u32, u32) = (22, 13);
/// How much of its header is read.
const MAX_HEADER_BYTES: u64 = 64 * 1024;

/// The first of `programs` in `path` that is executable.
pub(crate) fn along(path: &str, programs: &[&str]) -> Option<String> {
    let is_program = |place: &String| {
        std::fs::metadata(place)
            .is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
    };
    programs.iter().find_map(|program| {
        let places = path.split(':').filter(|directory| directory.starts_with('/'));
        places.map(|directory| format!("{directory}/{program}")).find(is_program)
    })
}

/// Whether Node can be expected to run TypeScript. Only Node itself knows for certain, and a project's own packages are
/// not seen: without a sign of it, TypeScript is not listed, but a cell may still be tried.
fn has_typescript(node: &str) -> bool {
    let prefix = Path::new(node).ancestors().nth(2).unwrap_or(Path::new("/"));
    let own = prefix.join("lib/node_modules");
    let places = NODE_MODULES.iter().map(Path::new).chain([own.as_path()]);
    let is_there = |place: &Path| COMPILERS.iter().any(|compiler| place.join(compiler).is_dir());
    places.into_iter().any(is_there) || strips_types(&prefix.join("include/node/node_version.h"))
}

/// Whether Node's header names a version that strips types by itself.
fn strips_types(header: &Path) -> bool {
    let mut text = String::new();
    let file = std::fs::File::open(header);
    if file.and_then(|file| file.take(MAX_HEADER_BYTES).read_to_string(&mut text)).is_err() {
        return false;
    }
    let number = |name: &str| {
        let mut words = text.lines().map(str::split_ascii_whitespace);
        words.find_map(|mut line| {
            (line.next() == Some("#define") && line.next() == Some(name))
                .then(|| line.next()?.parse().ok())?
        })
    };
    number("NODE_MAJOR_VERSION").zip(number("NODE_MINOR_VERSION")) >= Some(STRIPS_TYPES_SINCE)
}

/// The message if none is found.
pub(crate) fn missing(language: &str, programs: &[&str]) -> String {
    format!("{language} needs the program {}, which is not in the sandbox's PATH", programs.join(" or "))
}

/// Looks for all languages; blocks on files.
pub(crate) fn found(path: &str) -> Response {
    let path = if path.is_empty() { exec::DEFAULT_PATH } else { path };
    let stateful = drivers::languages().map(|(language, programs)| (language, programs, true));
    let others = BY_FILE.iter().map(|by_file| (by_file.language, by_file.programs, false));
    let found = stateful.chain(others).filter_map(|(language, programs, stateful)| {
        let program = along(path, programs)?;
        if language == drivers::TYPESCRIPT && !has_typescript(&program) {
            return None;
        }
        Some(InstalledLanguage { name: language.to_owned(), program, stateful })
    });
    Response::Languages { languages: found.collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn typescript_is_told_where_something_speaks_for_it() {
        let directory = tempfile::tempdir().unwrap();
        let header = directory.path().join("node_version.h");
        let check = |text: &str, expected: bool| {
            std::fs::write(&header, text).unwrap();
            assert_eq!(strips_types(&header), expected, "{text}");
        };
        check("#define NODE_MAJOR_VERSION 22\n#define NODE_MINOR_VERSION 13\n", true);
        check("// a\n#define NODE_MAJOR_VERSION 24\n#define NODE_MINOR_VERSION 0\n", true);
        check("#define NODE_MAJOR_VERSION 22\n#define NODE_MINOR_VERSION 12\n", false);
        check("#define NODE_MAJOR_VERSION 20\n#define NODE_MINOR_VERSION 20\n", false);
        check("#define NODE_MAJOR_VERSION x\n", false);
        let node = directory.path().join("bin/node");
        std::fs::create_dir_all(directory.path().join("lib/node_modules/@swc/core")).unwrap();
        assert!(has_typescript(node.to_str().unwrap()));
    }
}

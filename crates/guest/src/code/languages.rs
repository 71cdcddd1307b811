//! Which languages can run here: those whose program is found. No program is run to find out.

use std::os::unix::fs::PermissionsExt;

use guest_protocol::{LanguageFound, Response};

use super::{by_file::BY_FILE, drivers};
use crate::exec;

/// The first of `programs` along `path` that may be run.
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

/// What is said where none is found.
pub(crate) fn missing(language: &str, programs: &[&str]) -> String {
    format!("{language} is not here: no program {} along the PATH", programs.join(" or "))
}

/// Looks for all of them; blocks on files.
pub(crate) fn found(path: &str) -> Response {
    let path = if path.is_empty() { exec::DEFAULT_PATH } else { path };
    let stateful = drivers::languages().map(|(language, programs)| (language, programs, true));
    let others = BY_FILE.iter().map(|by_file| (by_file.language, by_file.programs, false));
    let found = stateful.chain(others).filter_map(|(language, programs, stateful)| {
        let program = along(path, programs)?;
        Some(LanguageFound { name: language.to_owned(), program, stateful })
    });
    Response::Languages { languages: found.collect() }
}

//! The role of this program, by the name that it was called by: a link to it makes it a program of another system.

use std::{
    env,
    ffi::{OsStr, OsString},
    path::Path,
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// Our own command line, with these words before those that were given.
    Warren(&'static [&'static str]),
    /// The command line of microsandbox, up to version 0.2.
    Msb,
}

const ROLES: &[(&str, Role)] =
    &[("msb", Role::Msb), ("opensandbox-mcp", Role::Warren(&["mcp", "--dialect", "opensandbox"]))];

/// The role of this process.
pub(crate) fn role() -> Role {
    env::args_os().next().map_or(Role::Warren(&[]), |called| role_of(&called))
}

fn role_of(called: &OsStr) -> Role {
    let name = Path::new(called).file_name();
    let known = ROLES.iter().find(|(known, _)| name == Some(OsStr::new(known)));
    known.map_or(Role::Warren(&[]), |(_, role)| *role)
}

/// The command line with the words that the program's name stands for.
pub(crate) fn arguments(given: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut given = given.into_iter();
    let program = given.next().unwrap_or_default();
    let words = match role_of(&program) {
        Role::Warren(words) => words,
        Role::Msb => &[],
    };
    std::iter::once(program.clone()).chain(words.iter().map(OsString::from)).chain(given).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_known_name_changes_the_role() {
        for called in ["msb", "/usr/local/bin/msb", "./msb"] {
            assert_eq!(role_of(OsStr::new(called)), Role::Msb, "{called}");
        }
        for called in ["warren", "", "/", "/opt/msb/warren", "msb2", "msb/.."] {
            assert_eq!(role_of(OsStr::new(called)), Role::Warren(&[]), "{called}");
        }
    }

    #[test]
    fn a_link_with_a_known_name_is_that_program() {
        let line = |words: &[&str]| arguments(words.iter().map(OsString::from));
        assert_eq!(
            line(&["/opt/bin/opensandbox-mcp", "--port", "1"]),
            ["/opt/bin/opensandbox-mcp", "mcp", "--dialect", "opensandbox", "--port", "1"]
        );
        assert_eq!(line(&["warren", "opensandbox-mcp"]), ["warren", "opensandbox-mcp"]);
        assert_eq!(line(&["/opensandbox-mcp/warren"]), ["/opensandbox-mcp/warren"]);
    }
}

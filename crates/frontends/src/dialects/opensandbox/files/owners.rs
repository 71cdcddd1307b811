//! Users and groups by name, as the sandbox's own `/etc/passwd` and `/etc/group` have them.

use sandbox::{Error, Result, Thing};

use crate::dialects::opensandbox::handle::{SandboxHandle, shown};

/// As much of each file as is read.
const MAX_BYTES: usize = 1024 * 1024;

/// The names of one sandbox.
#[derive(Debug, Default)]
pub(crate) struct Owners {
    users: Names,
    groups: Names,
}

impl Owners {
    pub(crate) async fn read(sandbox: SandboxHandle<'_>) -> Self {
        Self {
            users: Names::read(sandbox, "/etc/passwd").await,
            groups: Names::read(sandbox, "/etc/group").await,
        }
    }

    pub(super) fn user(&self, id: u32) -> String {
        self.users.name(id)
    }

    pub(super) fn group(&self, id: u32) -> String {
        self.groups.name(id)
    }

    pub(super) fn uid(&self, name: &str) -> Result<u32> {
        self.users.id(name).ok_or_else(|| unknown("user", name))
    }

    pub(super) fn gid(&self, name: &str) -> Result<u32> {
        self.groups.id(name).ok_or_else(|| unknown("group", name))
    }
}

fn unknown(what: &str, name: &str) -> Error {
    Error::invalid(format!("the sandbox has no {what} {:?}", shown(name)))
        .about(Thing::File, "")
        .with_hint("Give a name that the sandbox's image has, or a number.")
}

/// One of the two tables.
#[derive(Debug, Default)]
struct Names(Vec<(String, u32)>);

impl Names {
    /// A sandbox without such a file has numbers only.
    async fn read(sandbox: SandboxHandle<'_>, path: &str) -> Self {
        let found = sandbox.read(path, 0, MAX_BYTES).await;
        found
            .map_or_else(|_none| Self::default(), |(_, text, _)| Self::parse(&String::from_utf8_lossy(&text)))
    }

    /// `name:password:id:…`
    fn parse(text: &str) -> Self {
        let entry = |line: &str| {
            let mut fields = line.split(':');
            let name = fields.next()?;
            Some((name.to_owned(), fields.nth(1)?.parse().ok()?))
        };
        Self(text.lines().filter_map(entry).collect())
    }

    /// The name of a number, or the number itself.
    fn name(&self, id: u32) -> String {
        let found = self.0.iter().find(|(_, other)| *other == id);
        found.map_or_else(|| id.to_string(), |(name, _)| name.clone())
    }

    fn id(&self, name: &str) -> Option<u32> {
        let found = self.0.iter().find(|(other, _)| other == name).map(|(_, id)| *id);
        found.or_else(|| name.parse().ok())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers_are_found_and_nonsense_is_skipped() {
        let text = "root:x:0:0:root:/root:/bin/sh\n\nbroken\nbad:x:minus:1\nana:x:1000:1000\nroot2:x:0:";
        let names = Names::parse(text);
        assert_eq!((names.name(0).as_str(), names.name(7).as_str()), ("root", "7"));
        assert_eq!((names.id("ana"), names.id("42"), names.id("eve")), (Some(1000), Some(42), None));
        let owners = Owners { users: names, ..Owners::default() };
        assert!(owners.uid("../x").unwrap_err().to_string().contains("user"));
    }
}

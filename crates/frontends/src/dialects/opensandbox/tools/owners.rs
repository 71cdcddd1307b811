//! Owners of files by name, as the sandbox's own `/etc/passwd` and `/etc/group` have them.

use std::collections::BTreeMap;

use super::{target::Target, words};
use crate::mcp::{Call, Failure, read_up_to};

/// As much of either file as is looked at.
const MAX_TABLE_BYTES: usize = 256 * 1024;

/// One of the two tables: names and their numbers.
#[derive(Debug, Default)]
pub(super) struct Names(BTreeMap<u32, String>);

impl Names {
    pub(super) async fn of_users(call: &Call, target: &Target) -> Self {
        Self::read(call, target, "/etc/passwd").await
    }

    pub(super) async fn of_groups(call: &Call, target: &Target) -> Self {
        Self::read(call, target, "/etc/group").await
    }

    /// Empty where there is none.
    async fn read(call: &Call, target: &Target, path: &str) -> Self {
        match read_up_to(call, &target.which, path, 0, MAX_TABLE_BYTES).await {
            Ok((_, bytes, _)) => Self::parse(&String::from_utf8_lossy(&bytes)),
            Err(_none) => Self::default(),
        }
    }

    fn parse(text: &str) -> Self {
        let entry = |line: &str| {
            let mut fields = line.split(':');
            let name = fields.next()?;
            let id = fields.nth(1)?.parse().ok()?;
            Some((id, name.to_owned()))
        };
        let mut names = BTreeMap::new();
        for (id, name) in text.lines().filter_map(entry) {
            names.entry(id).or_insert(name);
        }
        Self(names)
    }

    /// The name of a number, or the number itself.
    pub(super) fn name(&self, id: u32) -> String {
        self.0.get(&id).cloned().unwrap_or_else(|| id.to_string())
    }

    fn id(&self, name: &str) -> Option<u32> {
        name.parse().ok().or_else(|| self.0.iter().find(|(_, known)| *known == name).map(|(id, _)| *id))
    }
}

/// Who shall own a file: numbers, where the caller asked for somebody.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Ownership {
    uid: Option<u32>,
    gid: Option<u32>,
}

impl Ownership {
    pub(super) async fn find(
        call: &Call,
        target: &Target,
        owner: Option<&str>,
        group: Option<&str>,
    ) -> Result<Self, Failure> {
        let uid = match owner {
            Some(name) => Some(known("owner", name, &Names::of_users(call, target).await)?),
            None => None,
        };
        let gid = match group {
            Some(name) => Some(known("group", name, &Names::of_groups(call, target).await)?),
            None => None,
        };
        Ok(Self { uid, gid })
    }

    pub(super) async fn apply(self, call: &Call, target: &Target, path: &str) -> Result<(), Failure> {
        if self == Self::default() {
            return Ok(());
        }
        let engine = call.engine();
        engine.chown(&call.who, &target.which, path, self.uid, self.gid, false).await.map_err(words::failure)
    }
}

fn known(what: &str, name: &str, names: &Names) -> Result<u32, Failure> {
    names.id(name).ok_or_else(|| {
        let shown: String = name.chars().take(64).collect();
        Failure::invalid(format!("{what}: the sandbox knows no {shown:?}"))
            .with_hint("Give a name that the sandbox's image has, or a number.")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers_are_found_and_nonsense_is_skipped() {
        let names = Names::parse(
            "root:x:0:0:root:/root:/bin/sh\n\nbroken\nbad:x:minus:1\nana:x:1000:1000\nroot2:x:0:",
        );
        assert_eq!((names.name(0), names.name(7)), ("root".to_owned(), "7".to_owned()));
        assert_eq!((names.id("ana"), names.id("42"), names.id("eve")), (Some(1000), Some(42), None));
        assert!(known("owner", "../x", &names).unwrap_err().message.contains("owner"));
    }
}

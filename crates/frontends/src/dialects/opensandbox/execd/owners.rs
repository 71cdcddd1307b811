//! Users and groups by name, as the sandbox's own `/etc/passwd` and `/etc/group` have them.

use futures_util::StreamExt;
use sandbox::{Error, Result, Thing};

use crate::dialects::opensandbox::ask::{Ask, Front, shown};

/// As much of each file as is read.
const MAX_BYTES: u64 = 1024 * 1024;

/// The names of one sandbox.
#[derive(Debug, Default)]
pub(super) struct Owners {
    users: Vec<(String, u32)>,
    groups: Vec<(String, u32)>,
}

impl Owners {
    pub(super) async fn of(front: &Front, ask: &Ask) -> Self {
        Self { users: read(front, ask, "/etc/passwd").await, groups: read(front, ask, "/etc/group").await }
    }

    pub(super) fn user(&self, id: u32) -> String {
        named(&self.users, id)
    }

    pub(super) fn group(&self, id: u32) -> String {
        named(&self.groups, id)
    }
}

/// Gives a file to another user, group or both, where that is asked for.
pub(super) async fn give(
    front: &Front,
    ask: &Ask,
    path: &str,
    owner: Option<&str>,
    group: Option<&str>,
) -> Result<()> {
    let (owner, group) = (owner.filter(|name| !name.is_empty()), group.filter(|name| !name.is_empty()));
    if owner.is_none() && group.is_none() {
        return Ok(());
    }
    let names = Owners::of(front, ask).await;
    let uid = owner.map(|name| found(&names.users, name, "user")).transpose()?;
    let gid = group.map(|name| found(&names.groups, name, "group")).transpose()?;
    front.engine().chown(ask.who(), &ask.which, path, uid, gid, false).await
}

/// A sandbox without such a file has numbers only.
async fn read(front: &Front, ask: &Ask, path: &str) -> Vec<(String, u32)> {
    let opened = front.engine().read_file(ask.who(), &ask.which, path, 0, Some(MAX_BYTES)).await;
    let Ok((_, mut bytes)) = opened else { return Vec::new() };
    let mut text = Vec::new();
    while let Some(Ok(piece)) = bytes.next().await {
        text.extend_from_slice(&piece);
    }
    parse(&String::from_utf8_lossy(&text))
}

/// `name:password:id:…`
fn parse(text: &str) -> Vec<(String, u32)> {
    let entry = |line: &str| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        Some((name.to_owned(), fields.nth(1)?.parse().ok()?))
    };
    text.lines().filter_map(entry).collect()
}

fn named(known: &[(String, u32)], id: u32) -> String {
    known.iter().find(|(_, other)| *other == id).map_or_else(|| id.to_string(), |(name, _)| name.clone())
}

fn found(known: &[(String, u32)], name: &str, what: &str) -> Result<u32> {
    let by_name = known.iter().find(|(other, _)| other == name).map(|(_, id)| *id);
    by_name.or_else(|| name.parse().ok()).ok_or_else(|| {
        Error::invalid(format!("the sandbox has no {what} {:?}", shown(name))).about(Thing::File, "")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers_are_found_either_way() {
        let known = parse("root:x:0:0:root:/root:/bin/sh\nbroken\nana:x:1000:\nodd:x:many:\n");
        assert_eq!((named(&known, 0).as_str(), named(&known, 7).as_str()), ("root", "7"));
        assert_eq!((found(&known, "ana", "user").unwrap(), found(&known, "42", "user").unwrap()), (1000, 42));
        assert!(found(&known, "bob", "user").is_err());
    }
}

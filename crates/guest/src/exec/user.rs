//! The user of an exec: `name`, `uid`, `name:group` or `uid:gid`, looked up in the sandbox's own files.
//!
//! Parsed here, not by NSS: the static guest has none, and a workload must not load code into its pid 1.

use std::{fs::OpenOptions, io::Read, os::unix::fs::OpenOptionsExt, sync::LazyLock};

use crate::limits::MAX_USER_FILE_BYTES;

const PASSWD: &str = "/etc/passwd";
const GROUP: &str = "/etc/group";

/// The maps of our user namespace, which never change once they are written.
static USER_IDS: LazyLock<String> = LazyLock::new(|| read_bounded("/proc/self/uid_map"));
static GROUP_IDS: LazyLock<String> = LazyLock::new(|| read_bounded("/proc/self/gid_map"));

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct User {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    /// All groups, including the primary one.
    pub(crate) groups: Vec<u32>,
}

/// Finds a user. The error is a sentence that names what is missing.
pub(crate) fn find(text: &str) -> Result<User, String> {
    let user = lookup(text, || read_bounded(PASSWD), || read_bounded(GROUP))?;
    for (what, id, map) in [("user", user.uid, &USER_IDS), ("group", user.gid, &GROUP_IDS)] {
        if !is_mapped(id, map) {
            return Err(format!("{text:?} needs {what} id {id}, but {}", ids_here(map)));
        }
    }
    Ok(user)
}

/// The ids that a user namespace with this map has, in words.
fn ids_here(map: &str) -> String {
    let ends = map.lines().filter_map(|line| {
        let mut fields = line.split_whitespace();
        let first: u64 = fields.next()?.parse().ok()?;
        Some(first.saturating_add(fields.nth(1)?.parse().ok()?))
    });
    match ends.max() {
        Some(end) if end > 1 => format!("ids in this sandbox go up to {}", end - 1),
        _ => "this sandbox has no other id than 0, as the daemon's user has no subordinate ids in /etc/subuid: \
             `warren doctor` shows the command that adds some"
            .to_owned(),
    }
}

/// Whether a user namespace with this map has the id. A map that cannot be read forbids nothing.
fn is_mapped(id: u32, map: &str) -> bool {
    let mut ranges = map.lines().filter_map(|line| {
        let mut fields = line.split_whitespace();
        let first: u64 = fields.next()?.parse().ok()?;
        let length: u64 = fields.nth(1)?.parse().ok()?;
        Some(first..first.saturating_add(length))
    });
    map.trim().is_empty() || ranges.any(|range| range.contains(&u64::from(id)))
}

fn lookup(
    text: &str,
    passwd: impl FnOnce() -> String,
    group: impl FnOnce() -> String,
) -> Result<User, String> {
    let (user, group_name) = match text.split_once(':') {
        Some((user, group)) => (user, Some(group)),
        None => (text, None),
    };
    if user.is_empty() || group_name == Some("") {
        return Err(format!("{text:?} is not a user"));
    }
    if let (Ok(uid), Some(Ok(gid))) = (user.parse(), group_name.map(str::parse)) {
        return Ok(User { uid, gid, groups: vec![gid] });
    }
    let passwd = passwd();
    let account = passwd.lines().filter_map(Account::parse).find(|account| account.is(user));
    let (uid, first_gid) = match (&account, user.parse()) {
        (Some(account), _) => (account.uid, account.gid),
        (None, Ok(uid)) => (uid, 0),
        (None, Err(_)) => return Err(format!("no user {user:?} in {PASSWD}")),
    };
    let group = group();
    if let Some(wanted) = group_name {
        let found = group.lines().filter_map(Group::parse).find(|group| group.name == wanted);
        let gid = found.map(|group| group.gid).or_else(|| wanted.parse().ok());
        let gid = gid.ok_or_else(|| format!("no group {wanted:?} in {GROUP}"))?;
        return Ok(User { uid, gid, groups: vec![gid] });
    }
    let name = account.map_or(user, |account| account.name);
    let mut groups = vec![first_gid];
    for group in group.lines().filter_map(Group::parse) {
        if group.members.split(',').any(|member| member == name) && !groups.contains(&group.gid) {
            groups.push(group.gid);
        }
    }
    Ok(User { uid, gid: first_gid, groups })
}

/// The home directory of a user; `/` if unknown.
pub(crate) fn home(uid: u32) -> String {
    home_in(&read_bounded(PASSWD), uid)
}

fn home_in(passwd: &str, uid: u32) -> String {
    let account = passwd.lines().filter_map(Account::parse).find(|account| account.uid == uid);
    let home = account.map(|account| account.home).filter(|home| home.starts_with('/'));
    home.unwrap_or("/").to_owned()
}

struct Account<'a> {
    name: &'a str,
    uid: u32,
    gid: u32,
    home: &'a str,
}

impl<'a> Account<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let mut fields = line.split(':');
        let name = fields.next()?;
        let uid = fields.nth(1)?.parse().ok()?;
        let gid = fields.next()?.parse().ok()?;
        Some(Self { name, uid, gid, home: fields.nth(1).unwrap_or("") })
    }

    fn is(&self, text: &str) -> bool {
        self.name == text || text.parse() == Ok(self.uid)
    }
}

struct Group<'a> {
    name: &'a str,
    gid: u32,
    members: &'a str,
}

impl<'a> Group<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let mut fields = line.split(':');
        let name = fields.next()?;
        let gid = fields.nth(1)?.parse().ok()?;
        Some(Self { name, gid, members: fields.next().unwrap_or("") })
    }
}

/// The text of a regular file; empty if it is missing or odd. Never blocks: a workload may have put a FIFO there.
fn read_bounded(path: &str) -> String {
    let mut bytes = Vec::new();
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(path);
    if let Ok(file) = file
        && file.metadata().is_ok_and(|metadata| metadata.is_file())
    {
        // The part read before an error is still useful.
        file.take(MAX_USER_FILE_BYTES).read_to_end(&mut bytes).ok();
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSWD_TEXT: &str = "root:x:0:0:root:/root:/bin/sh\nnonsense\nana:x:1000:100::/home/ana:/bin/sh\n";
    const GROUP_TEXT: &str = "root:x:0:\nusers:x:100:\nwheel:x:10:root,ana\nvideo:x:44:ana\n";

    fn check(text: &str, expected: Option<(u32, u32, &[u32])>) {
        let found = lookup(text, || PASSWD_TEXT.to_owned(), || GROUP_TEXT.to_owned());
        let expected = expected.map(|(uid, gid, groups)| User { uid, gid, groups: groups.to_vec() });
        assert_eq!(found.ok(), expected, "{text}");
    }

    #[test]
    fn ids_that_are_out_of_range_are_told_from_ids_that_are_missing() {
        assert_eq!(ids_here("0 100000 1\n1 200000 65535\n"), "ids in this sandbox go up to 65535");
        assert!(ids_here("0 1000 1\n").contains("subordinate ids"));
    }

    #[test]
    fn users_are_found_as_docker_would_find_them() {
        check("0:0", Some((0, 0, &[0])));
        check("root", Some((0, 0, &[0, 10])));
        check("ana", Some((1000, 100, &[100, 10, 44])));
        check("1000", Some((1000, 100, &[100, 10, 44])));
        check("ana:video", Some((1000, 44, &[44])));
        check("ana:7", Some((1000, 7, &[7])));
        check("4242", Some((4242, 0, &[0])));
        check("4242:4343", Some((4242, 4343, &[4343])));
    }

    #[test]
    fn everybody_has_a_home() {
        let home = |uid| home_in(PASSWD_TEXT, uid);
        assert_eq!((home(1000).as_str(), home(0).as_str(), home(7).as_str()), ("/home/ana", "/root", "/"));
        assert_eq!(home_in("short:x:1:1\nodd:x:2:2::relative:\n", 1), "/");
        assert_eq!(home_in("short:x:1:1\nodd:x:2:2::relative:\n", 2), "/");
    }

    #[test]
    fn unknown_and_malformed_users_are_refused() {
        for text in ["", ":", "bob", "ana:nogroup", "root:", ":0", "-1", "99999999999", "a\nb"] {
            check(text, None);
        }
    }
}

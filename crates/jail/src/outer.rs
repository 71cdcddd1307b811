//! The spawner's own user namespace, for daemons without root.
//!
//! Made once. Ids inside: 0 is the user; 1 and up are the user's subordinate ids, if `/etc/subuid` and `newuidmap`
//! provide some. Sandboxes are nested in it and need no helper any more.

use std::{
    fs, io,
    os::fd::AsFd,
    process::{Command, Stdio},
};

use rustix::process::{getegid, geteuid};

use crate::sys;

/// Enters the outer user namespace and a mount namespace that belongs to it; does nothing for root.
pub(crate) fn enter() -> io::Result<()> {
    let (user, group) = (geteuid(), getegid());
    if user.is_root() {
        return Ok(());
    }
    let subordinate = Subordinate::of_user(user.as_raw());
    let (asks, asked) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    let me = std::process::id();
    sys::watch_children();
    // The helper stays outside: only from there may `newuidmap` write our maps.
    let helper = match &subordinate {
        Some(ranges) => match sys::fork()? {
            None => {
                drop(asked);
                let mut byte = [0];
                let told = rustix::io::read(asks.as_fd(), &mut byte).is_ok_and(|n| n == 1);
                let done = told && ranges.map(me, user.as_raw(), group.as_raw()).is_ok();
                sys::exit_now(i32::from(!done))
            }
            helper => helper,
        },
        None => None,
    };
    drop(asks);
    sys::unshare(libc::CLONE_NEWUSER | libc::CLONE_NEWNS)?;
    let mapped = match helper {
        Some(helper) => {
            rustix::io::write(&asked, b"1")?;
            sys::wait_for(helper)? == 0
        }
        None => false,
    };
    sys::ignore_children();
    if !mapped {
        fs::write("/proc/self/setgroups", "deny")?;
        fs::write("/proc/self/uid_map", format!("0 {} 1", user.as_raw()))?;
        fs::write("/proc/self/gid_map", format!("0 {} 1", group.as_raw()))?;
    }
    Ok(())
}

/// How many ids the outer namespace has; 1 means only the user's own.
pub(crate) fn ids_here() -> u32 {
    let map = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    map.lines()
        .filter_map(|line| line.split_ascii_whitespace().nth(2)?.parse::<u32>().ok())
        .fold(0, u32::saturating_add)
}

/// Where the first range of the first user begins.
const FIRST_SUBORDINATE: u32 = 100_000;

/// A user's ranges in `/etc/subuid` and `/etc/subgid`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Subordinate {
    users: (u32, u32),
    groups: (u32, u32),
}

impl Subordinate {
    pub(crate) fn of_user(user: u32) -> Option<Self> {
        let read = |path| fs::read_to_string(path).unwrap_or_default();
        let name = find_name(&read("/etc/passwd"), user);
        Some(Self {
            users: find_range(&read("/etc/subuid"), name.as_deref(), user)?,
            groups: find_range(&read("/etc/subgid"), name.as_deref(), user)?,
        })
    }

    fn map(&self, pid: u32, user: u32, group: u32) -> io::Result<()> {
        for (program, own, (first, count)) in
            [("newuidmap", user, self.users), ("newgidmap", group, self.groups)]
        {
            let words = [pid, 0, own, 1, 1, first, count].map(|word| word.to_string());
            let status =
                Command::new(program).args(words).stdin(Stdio::null()).stdout(Stdio::null()).status()?;
            if !status.success() {
                return Err(io::Error::other(format!("{program} failed: {status}")));
            }
        }
        Ok(())
    }
}

fn find_name(passwd: &str, user: u32) -> Option<String> {
    passwd.lines().find_map(|line| {
        let mut words = line.split(':');
        let name = words.next()?;
        (words.nth(1)?.parse() == Ok(user)).then(|| name.to_owned())
    })
}

/// The first id of a free range, above all ranges in `/etc/subuid` and `/etc/subgid` and the ids of usual users.
pub(crate) fn first_free() -> u32 {
    let read = |path| fs::read_to_string(path).unwrap_or_default();
    above(&(read("/etc/subuid") + "\n" + &read("/etc/subgid")))
}

/// As useradd counts: ranges begin at [`FIRST_SUBORDINATE`].
fn above(ranges: &str) -> u32 {
    let ends = ranges.lines().filter_map(|line| {
        let mut words = line.split(':').skip(1);
        let first: u32 = words.next()?.trim().parse().ok()?;
        let count: u32 = words.next()?.trim().parse().ok()?;
        first.checked_add(count)
    });
    ends.fold(FIRST_SUBORDINATE, u32::max)
}

/// The first range of at least 65535 ids for that user, by name or by number.
fn find_range(text: &str, name: Option<&str>, user: u32) -> Option<(u32, u32)> {
    text.lines().find_map(|line| {
        let mut words = line.split(':');
        let owner = words.next()?.trim();
        let first = words.next()?.trim().parse().ok()?;
        let count: u32 = words.next()?.trim().parse().ok()?;
        let is_ours = Some(owner) == name || owner.parse() == Ok(user);
        (is_ours && count >= 65535).then_some((first, count))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subordinate_ranges_are_found_by_name_and_by_number() {
        let text = "ana:100000:65536\n1001:300000:65536\nbo:1:10\n";
        assert_eq!(find_range(text, Some("ana"), 1000), Some((100_000, 65536)));
        assert_eq!(find_range(text, None, 1001), Some((300_000, 65536)));
        assert_eq!(find_range(text, Some("bo"), 1002), None);
        assert_eq!(find_range(text, Some("eve"), 1003), None);
    }

    #[test]
    fn a_free_range_is_above_all_that_others_have() {
        assert_eq!(above(""), 100_000);
        assert_eq!(above("ana:100000:65536\nbo:300000:65536\n\nana:165536:65536\nnonsense"), 365_536);
        assert_eq!(above("bo:1:10\n"), 100_000);
    }
}

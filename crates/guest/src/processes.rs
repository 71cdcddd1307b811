//! Processes inside, read from `/proc`.

use std::{collections::HashMap, fs, io::Read, path::Path, time::Duration};

use guest_protocol::{Process, Response};
use tokio::time::Instant;

use crate::{files::Room, limits::KILLED_GONE, sys};

/// Most processes listed.
const MAX_PROCESSES: u32 = 4096;
/// Most bytes of one process's command line listed.
const MAX_COMMAND_BYTES: u64 = 4096;

/// Passes over a family while it is being killed.
const KILL_ROUNDS: usize = 8;
/// Time between two passes over the rest of a family: killed processes need some time to end.
const LEFT_LOOK_EVERY: Duration = Duration::from_millis(2);

/// The fields of `/proc/<pid>/stat` that we need.
struct Stat {
    state: char,
    parent: i32,
    group: i32,
    session: i32,
    cpu_ticks: u64,
    resident_pages: u64,
    name: String,
}

impl Stat {
    fn of(pid: i32) -> Option<Self> {
        let bytes = fs::read(format!("/proc/{pid}/stat")).ok()?;
        Self::parse(&String::from_utf8_lossy(&bytes))
    }

    /// The name is in brackets and may contain brackets and spaces itself, so the fields are counted from the last
    /// bracket.
    fn parse(text: &str) -> Option<Self> {
        let (head, tail) = text.rsplit_once(')')?;
        let (_, name) = head.split_once('(')?;
        let fields: Vec<&str> = tail.split_ascii_whitespace().collect();
        let number = |position: usize| fields.get(position)?.parse::<u64>().ok();
        Some(Self {
            state: fields.first()?.chars().next()?,
            parent: fields.get(1)?.parse().ok()?,
            group: fields.get(2)?.parse().ok()?,
            session: fields.get(3)?.parse().ok()?,
            cpu_ticks: number(11)? + number(12)?,
            resident_pages: number(21)?,
            name: name.to_owned(),
        })
    }
}

fn pids() -> Vec<i32> {
    let Ok(entries) = fs::read_dir("/proc") else { return vec![] };
    let names = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let mut pids: Vec<i32> = names.collect();
    pids.sort_unstable();
    pids
}

/// Every process of a session, and every descendant of one.
fn family_of(session: i32) -> Vec<i32> {
    let mut others: Vec<(i32, Stat)> =
        pids().into_iter().filter_map(|pid| Some((pid, Stat::of(pid)?))).collect();
    let mut family = Vec::new();
    loop {
        let known = family.len();
        others.retain(|(pid, stat)| {
            let belongs = stat.state != 'Z' && (stat.session == session || family.contains(&stat.parent));
            if belongs {
                family.push(*pid);
            }
            !belongs
        });
        if family.len() == known {
            return family;
        }
    }
}

/// Sends SIGKILL to the group of that number, and to processes that left it but not the session or the family.
pub(crate) fn kill_family(leader: i32) {
    // Repeated while any is found: a family that forks fast is larger than one pass sees.
    for _ in 0..KILL_ROUNDS {
        if !kill_once(leader) {
            return;
        }
    }
}

/// One pass over a family, with SIGKILL to every process seen. Returns whether there was one.
fn kill_once(leader: i32) -> bool {
    // Before any is killed: the children of dead processes can no longer be attributed.
    let family = family_of(leader);
    // The whole group at once: the kernel lets no member fork meanwhile or afterwards.
    sys::kill(-leader, libc::SIGKILL).ok();
    for pid in &family {
        // Fails for those already gone.
        sys::kill(*pid, libc::SIGKILL).ok();
    }
    kill_session(leader) || !family.is_empty()
}

/// Kills the processes of a session one by one as they are seen, with their groups: a process that keeps forking into
/// new groups has moved on by the time a full list is complete.
fn kill_session(session: i32) -> bool {
    let mut has_found = false;
    for pid in pids() {
        if let Some(stat) = Stat::of(pid)
            && stat.session == session
            && stat.state != 'Z'
        {
            has_found = true;
            // A group never extends beyond its session.
            sys::kill(-stat.group, libc::SIGKILL).ok();
            sys::kill(pid, libc::SIGKILL).ok();
        }
    }
    has_found
}

/// The same for a reaped leader, whose group and session may live on under its number. A process that has this number
/// now is a stranger: the kernel reuses it only when no member of the group or the session is left.
pub(crate) fn kill_left_behind(leader: i32) -> bool {
    sys::kill(leader, 0).is_err() && kill_once(leader)
}

/// Kills the processes that a leader left behind until none is left, or for as long as killed processes may take to
/// end.
pub(crate) async fn end_left_behind(leader: i32) {
    let give_up_at = Instant::now() + KILLED_GONE;
    while kill_left_behind(leader) && Instant::now() < give_up_at {
        tokio::time::sleep(LEFT_LOOK_EVERY).await;
    }
}

/// Memory that a process uses now.
pub(crate) fn memory_of(pid: i32) -> u64 {
    Stat::of(pid).map_or(0, |stat| stat.resident_pages.saturating_mul(rustix::param::page_size() as u64))
}

/// Whether it is a living child of ours that leads its own session.
pub(crate) fn is_our_leader(pid: i32) -> bool {
    let ours = rustix::process::getpid().as_raw_nonzero().get();
    pid > 1
        && Stat::of(pid).is_some_and(|stat| stat.parent == ours && stat.session == pid && stat.state != 'Z')
}

/// Whether a process has this file (`pipe:[7]`) open under that number.
pub(crate) fn has_open(pid: i32, number: u32, what: &str) -> bool {
    fs::read_link(format!("/proc/{pid}/fd/{number}")).is_ok_and(|link| link.as_os_str() == what)
}

/// Lists processes; `execs` maps sessions to execs, which own their processes and all descendants.
pub(crate) fn list(execs: &HashMap<i32, String>) -> Response {
    let ticks = rustix::param::clock_ticks_per_second().max(1);
    let page = rustix::param::page_size() as u64;
    let mut processes = Vec::new();
    let mut room = Room::new(MAX_PROCESSES);
    for pid in pids() {
        let Some(stat) = Stat::of(pid) else { continue };
        let command = command(pid).unwrap_or_else(|| vec![format!("[{}]", stat.name)]);
        let texts: Vec<&str> = command.iter().map(String::as_str).collect();
        if !room.take(&texts) {
            break;
        }
        processes.push(Process {
            pid,
            parent: stat.parent,
            user: owner(pid),
            state: stat.state,
            memory_bytes: stat.resident_pages.saturating_mul(page),
            cpu_micros: stat.cpu_ticks.saturating_mul(1_000_000) / ticks,
            command,
            exec: execs.get(&stat.session).cloned(),
        });
    }
    inherit_execs(&mut processes);
    Response::Processes { processes }
}

/// A process with its own session belongs to the exec of its parent.
fn inherit_execs(processes: &mut [Process]) {
    for position in 0..processes.len() {
        let mut ancestor = position;
        // Bounded: a parent's pid can repeat in a list that was read while processes came and went.
        for _ in 0..processes.len() {
            if processes[ancestor].exec.is_some() {
                processes[position].exec = processes[ancestor].exec.clone();
                break;
            }
            let parent = processes[ancestor].parent;
            let Ok(found) = processes.binary_search_by_key(&parent, |process| process.pid) else { break };
            ancestor = found;
        }
    }
}

fn owner(pid: i32) -> u32 {
    use std::os::unix::fs::MetadataExt;
    fs::metadata(format!("/proc/{pid}")).map_or(0, |metadata| metadata.uid())
}

fn command(pid: i32) -> Option<Vec<String>> {
    let mut bytes = Vec::new();
    let file = fs::File::open(Path::new("/proc").join(pid.to_string()).join("cmdline")).ok()?;
    file.take(MAX_COMMAND_BYTES).read_to_end(&mut bytes).ok()?;
    words(&bytes)
}

/// A program that wrote its name over its words, as ours does, left zeros behind it: they are not words.
fn words(command: &[u8]) -> Option<Vec<String>> {
    let last = command.iter().rposition(|byte| *byte != 0)?;
    let parts = command[..=last].split(|byte| *byte == 0);
    Some(parts.map(|part| String::from_utf8_lossy(part).into_owned()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_brackets_does_not_shift_the_fields() {
        let mut fields = vec!["0"; 50];
        (fields[0], fields[1], fields[2], fields[3]) = ("S", "7", "8", "9");
        (fields[11], fields[12], fields[21]) = ("5", "6", "100");
        let stat = Stat::parse(&format!("42 (a) (b c)) {}\n", fields.join(" "))).unwrap();
        assert_eq!((stat.name.as_str(), stat.state, stat.parent), ("a) (b c)", 'S', 7));
        assert_eq!((stat.group, stat.session), (8, 9));
        assert_eq!((stat.session, stat.cpu_ticks, stat.resident_pages), (9, 11, 100));
        assert!(Stat::parse("").is_none());
        assert!(Stat::parse("1 (x) S").is_none());
    }

    #[test]
    fn zeros_behind_a_name_are_no_words() {
        assert_eq!(words(b"sleep\0\x0060\0").unwrap(), ["sleep", "", "60"]);
        assert_eq!(words(b"warren: sbx-1 warren-7\0\0\0\0").unwrap(), ["warren: sbx-1 warren-7"]);
        assert_eq!((words(b""), words(b"\0\0")), (None, None));
    }
}

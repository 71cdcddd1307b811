//! Finds guests through the kernel, when no file on the host records them any more.
//!
//! Each guest's process title carries its sandbox's name and its daemon's mark from birth. Anyone can write such a
//! title, so a process counts only if it is also process 1 of a pid namespace of its own, which no workload can create,
//! and if the caller accepts its user and cgroups.

use std::fs;

use crate::{child::parse_stat, spawner::TITLE_START};

/// A living guest, by the name of its cage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LivingGuest {
    pub name: String,
    pub pid: i32,
    /// With the pid, identifies the process even after the number was reused.
    pub start_time: u64,
}

/// A process's user and cgroups, as the kernel reports them.
#[derive(Debug)]
pub struct ProcessOwner {
    /// Its real user.
    pub user: u32,
    /// The text of `/proc/<pid>/cgroup`.
    pub cgroups: String,
}

/// All guests with this mark that `is_ours` accepts.
pub fn find_guests(mark: &str, is_ours: impl Fn(&ProcessOwner) -> bool) -> Vec<LivingGuest> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter_map(|pid| look_at(pid, mark, &is_ours)).collect()
}

fn look_at(pid: i32, mark: &str, is_ours: &impl Fn(&ProcessOwner) -> bool) -> Option<LivingGuest> {
    let read = |file: &str| fs::read_to_string(format!("/proc/{pid}/{file}")).ok();
    let name = name_in(&read("cmdline")?, mark)?;
    let (_, start_time) = parse_stat(&read("stat")?)?;
    let status = read("status")?;
    let owner = ProcessOwner { user: user_in(&status)?, cgroups: read("cgroup")? };
    (is_first_of_namespace(&status) && is_ours(&owner)).then_some(LivingGuest { name, pid, start_time })
}

/// The name in a title that has this mark.
fn name_in(title: &str, mark: &str) -> Option<String> {
    let (name, found) = title.trim_end_matches('\0').strip_prefix(TITLE_START)?.split_once(' ')?;
    (found == mark).then(|| name.to_owned())
}

fn field<'a>(status: &'a str, name: &str) -> Option<&'a str> {
    status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
}

fn user_in(status: &str) -> Option<u32> {
    field(status, "Uid")?.split_ascii_whitespace().next()?.parse().ok()
}

/// Whether it is process 1 in a pid namespace beneath ours.
fn is_first_of_namespace(status: &str) -> bool {
    let numbers = field(status, "NSpid").unwrap_or_default();
    numbers.split_ascii_whitespace().skip(1).last() == Some("1")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spawner::title;

    #[test]
    fn a_title_is_read_as_it_is_written() {
        let written = format!("{}\0\0\0", title("sbx-1", "warren-7"));
        assert_eq!(name_in(&written, "warren-7").as_deref(), Some("sbx-1"));
        assert_eq!(name_in(&written, "warren-8"), None);
        assert_eq!(name_in("warren: spawner\0\0", "warren-7"), None);
        assert_eq!(name_in("sh\0-c\0warren: sbx-1 warren-7\0", "warren-7"), None);
    }

    #[test]
    fn only_the_first_process_of_an_inner_namespace_can_be_a_guest() {
        let status =
            |numbers: &str| format!("Name:\ta\nUid:\t1000\t0\t0\t0\nNSpid:\t{numbers}\nNSpgid:\t1\n");
        assert!(is_first_of_namespace(&status("4711\t1")));
        assert!(is_first_of_namespace(&status("4711\t12\t1")));
        // A process of a workload, whatever its title, and the first process of our own namespace.
        assert!(!is_first_of_namespace(&status("4711\t7")));
        assert!(!is_first_of_namespace(&status("1")));
        assert_eq!(user_in(&status("1")), Some(1000));
    }

    #[test]
    fn a_process_that_only_calls_itself_a_guest_is_not_found() {
        use std::os::unix::process::CommandExt as _;
        let mark = format!("warren-{:016x}", std::process::id());
        // Without arguments, which would follow the title and spoil it. It waits for input.
        let mut pretender = std::process::Command::new("cat");
        pretender.arg0(title("sbx-1", &mark)).stdin(std::process::Stdio::piped());
        let mut child = pretender.spawn().unwrap();
        // During its exec a process briefly has no arguments.
        let shown = loop {
            let shown = fs::read_to_string(format!("/proc/{}/cmdline", child.id())).unwrap();
            if !shown.is_empty() {
                break shown;
            }
            std::thread::yield_now();
        };
        assert_eq!(name_in(&shown, &mark).as_deref(), Some("sbx-1"), "{shown}");
        let found = find_guests(&mark, |_standing| true);
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(found, []);
    }
}

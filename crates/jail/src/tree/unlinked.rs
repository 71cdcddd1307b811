//! Unlinked files that live on because a process holds them open.
//!
//! Not seen: descriptors in transit through a socket, and, without root, files that are only mapped into memory.

use std::{
    collections::HashMap,
    fs,
    path::{Path, PathBuf},
};

use rustix::fs::{stat, statfs};

use super::measure::{Tally, counts, identity};
use crate::child::parse_stat;

/// `OVERLAYFS_SUPER_MAGIC` of `linux/magic.h`: files elsewhere (`/tmp`, `/dev/shm`, memory) have limits of their own.
const OVERLAY_MAGIC: i64 = 0x794c_7630;
/// Most descriptors examined in one measurement.
const MAX_LOOKED_AT: usize = 1 << 20;

/// Adds the unlinked files that this guest and its workload have open or mapped. Counts files on `device`, or those of
/// an overlay. `lists`: where the kernel lists the workload's processes.
pub(super) fn add(guest: i32, start_time: u64, lists: &[PathBuf], device: Option<u64>, tally: &mut Tally) {
    let found = read_process(Path::new(&format!("/proc/{guest}")));
    if found.is_none_or(|process| process.start_time != start_time) {
        return;
    }
    let mut left = MAX_LOOKED_AT;
    for pid in listed(guest, lists).unwrap_or_else(|| descendants(guest)) {
        let process = PathBuf::from(format!("/proc/{pid}"));
        // A thread may have a descriptor table of its own.
        for thread in children(&process.join("task")) {
            for descriptor in children(&thread.join("fd")) {
                if left == 0 || tally.is_late() {
                    return;
                }
                left -= 1;
                add_unlinked(&descriptor, device, tally);
            }
        }
        for mapping in deleted_mappings(&process) {
            add_unlinked(&mapping, device, tally);
        }
    }
}

/// The guest and the processes in these lists; `None` if there is none, or one cannot be read. No process leaves the
/// groups that its sandbox has, and looking at all processes of the host takes as long as there are many sandboxes.
fn listed(guest: i32, lists: &[PathBuf]) -> Option<Vec<i32>> {
    let mut found = vec![guest];
    for list in lists {
        let text = fs::read_to_string(list).ok()?;
        // 0 stands for a process that this namespace does not show, which cannot be.
        found.extend(text.lines().filter_map(|line| line.parse::<i32>().ok()).filter(|pid| *pid > 0));
    }
    (!lists.is_empty()).then_some(found)
}

/// The guest is process 1 of its namespace and inherits every orphan, so only processes born meanwhile are missed.
fn descendants(guest: i32) -> Vec<i32> {
    let processes: Vec<_> = children(Path::new("/proc")).filter_map(|path| read_process(&path)).collect();
    family(guest, &processes)
}

#[derive(Debug)]
struct Process {
    pid: i32,
    parent: i32,
    start_time: u64,
}

fn read_process(path: &Path) -> Option<Process> {
    path.file_name()?.to_str()?.parse::<i32>().ok()?;
    let stat = fs::read(path.join("stat")).ok()?;
    let stat = String::from_utf8_lossy(&stat);
    let (pid, start_time) = parse_stat(&stat)?;
    let parent = stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(1)?.parse().ok()?;
    Some(Process { pid, parent, start_time })
}

/// A process and all its descendants.
fn family(first: i32, processes: &[Process]) -> Vec<i32> {
    let mut of_parent: HashMap<i32, Vec<i32>> = HashMap::new();
    for process in processes {
        of_parent.entry(process.parent).or_default().push(process.pid);
    }
    let (mut found, mut next) = (vec![first], 0);
    while let Some(parent) = found.get(next) {
        // Removed from the map, so that a list read while it changed cannot lead to a loop.
        found.extend(of_parent.remove(parent).unwrap_or_default());
        next += 1;
    }
    found
}

fn children(directory: &Path) -> impl Iterator<Item = PathBuf> {
    fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path())
}

/// The kernel's links to mapped files that seem to be deleted.
fn deleted_mappings(process: &Path) -> Vec<PathBuf> {
    let maps = fs::read(process.join("maps")).unwrap_or_default();
    maps.split(|byte| *byte == b'\n')
        .filter(|line| line.ends_with(b" (deleted)"))
        .filter_map(|line| std::str::from_utf8(line.split(|byte| *byte == b' ').next()?).ok())
        .map(|range| process.join("map_files").join(range))
        .collect()
}

/// `link` leads straight to the file, without a path.
fn add_unlinked(link: &Path, device: Option<u64>, tally: &mut Tally) {
    let Ok(found) = stat(link) else { return };
    let is_meant = || device.map_or_else(|| is_overlay(link), |device| identity(&found).0 == device);
    if counts(&found).0 == 0 && is_meant() {
        tally.add(&found);
    }
}

#[expect(clippy::unnecessary_cast, reason = "the width of this field differs between architectures")]
fn is_overlay(link: &Path) -> bool {
    statfs(link).is_ok_and(|found| found.f_type as i64 == OVERLAY_MAGIC)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_used_only_if_all_of_them_can_be_read() {
        let place = tempfile::tempdir().unwrap();
        let (one, two) = (place.path().join("one"), place.path().join("two"));
        fs::write(&one, "17\n0\n18\n").unwrap();
        assert_eq!(listed(5, &[]), None);
        assert_eq!(listed(5, std::slice::from_ref(&one)), Some(vec![5, 17, 18]));
        assert_eq!(listed(5, &[one.clone(), two.clone()]), None);
        fs::write(&two, "").unwrap();
        assert_eq!(listed(5, &[one, two]), Some(vec![5, 17, 18]));
    }

    #[test]
    fn a_family_is_found_whatever_the_order_and_without_going_round() {
        let process = |(pid, parent)| Process { pid, parent, start_time: 1 };
        let all: Vec<_> = [(9, 5), (5, 2), (2, 1), (7, 1), (2, 9)].map(process).into();
        assert_eq!(family(2, &all), [2, 5, 9, 2]);
        assert_eq!(family(7, &all), [7]);
    }
}

//! Hostile trees: what a snapshot's archive, an image or a directory may contain where a sandbox's own mounts belong.
//! The property tests of the back end and `warren doctor --attack` plant the same ones.

use std::{
    fs, io,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
};

use rustix::fs::{CWD, FileType, Mode, mknodat};

/// One entry of a hostile tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Plant {
    Directory,
    File,
    Pipe,
    /// `@` in the target stands for a directory outside, which nothing may touch.
    Link(&'static str),
}

/// A tree, in the order in which it is planted.
pub type HostileTree = Vec<(&'static str, Plant)>;

/// Paths that cages mount, mask, set or write, and their parents.
const PLACES: [&str; 24] = [
    "dev",
    "dev/null",
    "dev/pts",
    "dev/shm",
    "proc",
    "proc/kcore",
    "proc/pressure",
    "proc/self",
    "proc/sys",
    "proc/sys/net/ipv4/ip_unprivileged_port_start",
    "sys",
    "sys/class/net/lo",
    "sys/firmware",
    "sys/devices/virtual/block",
    "run",
    "tmp",
    "usr",
    "etc",
    "etc/hostname",
    "var/run",
    "data",
    "data/in",
    "home",
    "q",
];
const TARGETS: [&str; 15] = [
    "@",
    "@/null",
    "@/sys",
    "../../../../../../../../..@",
    "sys/class/net/lo/../../../../../..@",
    "sys/class/net/lo/../../../../../q",
    "/proc/self/root@",
    "/proc/1/cwd",
    "proc/self/root/..@",
    "proc",
    "/sys",
    "loop",
    "/",
    ".",
    "nowhere",
];
/// Most plants of a random tree.
const MAX_PLANTS: u64 = 7;

/// The plant for a random number. Links are the most dangerous, so there are more of them.
pub fn plant_of(number: u64) -> (&'static str, Plant) {
    let [place, kind, target, ..] = number.to_le_bytes().map(usize::from);
    let plant = match kind % 11 {
        0..6 => Plant::Link(TARGETS[target % TARGETS.len()]),
        6..9 => Plant::Directory,
        9 => Plant::File,
        _ => Plant::Pipe,
    };
    (PLACES[place % PLACES.len()], plant)
}

/// The tree for a seed.
pub fn random_tree(seed: u64) -> HostileTree {
    let numbers = |n: u64| scrambled(seed.wrapping_mul(MAX_PLANTS + 1).wrapping_add(n));
    (1..=1 + numbers(0) % MAX_PLANTS).map(|n| plant_of(numbers(n))).collect()
}

/// SplitMix64: neighbouring numbers give unrelated results.
fn scrambled(number: u64) -> u64 {
    let mut word = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

/// Plants a tree below `top`, replacing what is there. A plant whose path leads through another one's link or file is
/// left out, because planting must not be led outside.
pub fn lay_tree(top: &Path, tree: &[(&'static str, Plant)], outside: &Path) -> io::Result<()> {
    tree.iter().try_for_each(|(place, plant)| lay_plant(top, place, *plant, outside))
}

fn lay_plant(top: &Path, place: &str, plant: Plant, outside: &Path) -> io::Result<()> {
    let Some(at) = way_to(top, place)? else { return Ok(()) };
    match fs::symlink_metadata(&at) {
        Ok(found) if found.is_dir() && plant == Plant::Directory => return Ok(()),
        Ok(found) if found.is_dir() => fs::remove_dir_all(&at)?,
        Ok(_) => fs::remove_file(&at)?,
        Err(_missing) => {}
    }
    match plant {
        Plant::Directory => fs::create_dir(at),
        Plant::File => fs::write(at, "planted"),
        Plant::Pipe => Ok(mknodat(CWD, at, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)?),
        Plant::Link(to) => symlink(to.replace('@', &outside.to_string_lossy()), at),
    }
}

/// The full path, with all directories on the way; none if something else is in the way.
fn way_to(top: &Path, place: &str) -> io::Result<Option<PathBuf>> {
    let (parents, name) = place.rsplit_once('/').unwrap_or(("", place));
    let mut here = top.to_owned();
    for part in parents.split('/').filter(|part| !part.is_empty()) {
        here.push(part);
        match fs::symlink_metadata(&here) {
            Ok(found) if found.is_dir() => {}
            Ok(_in_the_way) => return Ok(None),
            Err(_missing) => fs::create_dir(&here)?,
        }
    }
    here.push(name);
    Ok(Some(here))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_stands_for_one_tree_and_others_for_others() {
        assert_eq!(random_tree(7), random_tree(7));
        assert_ne!(random_tree(7), random_tree(8));
        let many: Vec<_> = (0..500).flat_map(random_tree).collect();
        for place in PLACES {
            assert!(many.iter().any(|(at, _)| *at == place), "{place}");
        }
        for kind in [Plant::Directory, Plant::File, Plant::Pipe, Plant::Link("@")] {
            assert!(many.iter().any(|(_, plant)| *plant == kind), "{kind:?}");
        }
    }
}

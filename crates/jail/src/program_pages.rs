//! Pages of the program that only its start needed: its relocations most of all. They belong to the file, so they can
//! be let go and come back when they are used.

use std::{fs, ops::Range, sync::OnceLock};

use crate::sys;

/// The pages of files in memory that nobody can write to and that were as in their files when the process was asked for
/// them: they stay so.
static UNCHANGED: OnceLock<Vec<Range<usize>>> = OnceLock::new();

/// Lets go of the pages of this program and its libraries; those that are used come back. The list of them is made with
/// the first call, while `/proc` is there.
pub fn let_go_of_program() {
    // Without the list everything stays, which costs memory and nothing else.
    let list = || unchanged(&fs::read_to_string("/proc/self/smaps").unwrap_or_default());
    for range in UNCHANGED.get_or_init(list) {
        sys::let_go(range.clone());
    }
}

/// The mappings of files that are read-only and have no page of their own: what the dynamic linker changed has some,
/// and would be lost.
fn unchanged(smaps: &str) -> Vec<Range<usize>> {
    let (mut found, mut current) = (Vec::new(), None);
    for line in smaps.lines() {
        let mut words = line.split_ascii_whitespace();
        let (Some(first), Some(second)) = (words.next(), words.next()) else { continue };
        if matches!(first, "Anonymous:" | "Swap:") {
            current = current.filter(|_range| second == "0");
        } else if !first.ends_with(':') {
            found.extend(current.take());
            let is_file = words.nth(3).is_some_and(|path| path.starts_with('/'));
            current = range(first).filter(|_range| is_file && !second.contains('w') && second.contains('p'));
        }
    }
    found.extend(current);
    found
}

fn range(text: &str) -> Option<Range<usize>> {
    let (start, end) = text.split_once('-')?;
    Some(usize::from_str_radix(start, 16).ok()?..usize::from_str_radix(end, 16).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_as_in_its_file_is_let_go() {
        let smaps = "1000-2000 r--p 00000000 fe:00 7 /bin/warren\nRss: 4 kB\nAnonymous:             0 kB\nVmFlags: rd\n\
            2000-5000 r-xp 00001000 fe:00 7 /bin/warren (deleted)\nAnonymous:             0 kB\n\
            5000-6000 r--p 00004000 fe:00 7 /bin/warren\nAnonymous:          1488 kB\n\
            6000-7000 rw-p 00005000 fe:00 7 /bin/warren\nAnonymous:             0 kB\n\
            7000-8000 r--s 00005000 fe:00 7 /dev/shm/x\nAnonymous:             0 kB\n\
            8000-9000 rw-p 00000000 00:00 0 [heap]\nAnonymous:             8 kB\n\
            9000-a000 r-xp 00000000 00:00 0 [vdso]\nAnonymous:             0 kB\n\
            a000-b000 r--p 00000000 00:00 0\nAnonymous:             0 kB\n\
            b000-c000 r--p 00004000 fe:00 7 /bin/warren\nAnonymous:             0 kB\nSwap:                  4 kB\n";
        assert_eq!(unchanged(smaps), [0x1000..0x2000, 0x2000..0x5000]);
        assert_eq!(unchanged("what is this\n\n"), []);
    }

    #[test]
    fn the_program_goes_on_without_them() {
        let before = fs::read_to_string("/proc/self/status").unwrap();
        let_go_of_program();
        let after = fs::read_to_string("/proc/self/status").unwrap();
        let resident = |status: &str| -> u64 {
            let line = status.lines().find_map(|line| line.strip_prefix("RssFile:")).unwrap();
            line.trim().trim_end_matches(" kB").parse().unwrap()
        };
        assert!(resident(&after) < resident(&before), "{before}{after}");
    }
}

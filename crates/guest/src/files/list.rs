//! `Stat` and `List`.

use std::{
    ffi::CStr,
    os::fd::AsFd,
    path::Path,
    time::{Duration, Instant},
};

use guest_protocol::{EntryKind, FileEntry, Response};
use rustix::fs::{AtFlags, CWD, FileType, Stat};

use super::{
    Answer, Cancel, absolute,
    entry::{kind_of, open_directory},
    failure, named,
    walk::{Flow, Trouble, Visit, Walked, walk},
};

/// After this time a listing or a search ends with what it has, and reports that there may be more: the caller is
/// waiting.
pub(super) const LOOK_TIME: Duration = Duration::from_secs(10);
/// Most entries, paths or matches in one answer.
pub(super) const MAX_ITEMS: usize = 50_000;
/// Most bytes of JSON in one answer; below the longest frame.
const MAX_ANSWER_BYTES: usize = 3 * 1024 * 1024;
/// JSON size of an item without its texts.
const ITEM_BYTES: usize = 192;

/// Keeps an answer within one frame.
#[derive(Debug)]
pub(crate) struct Room {
    items: usize,
    bytes: usize,
}

impl Room {
    pub(crate) fn new(limit: u32) -> Self {
        let items = usize::try_from(limit).unwrap_or(MAX_ITEMS).min(MAX_ITEMS);
        Self { items, bytes: MAX_ANSWER_BYTES }
    }

    /// Takes room for an item with these texts; `false` if there is none.
    pub(crate) fn take(&mut self, texts: &[&str]) -> bool {
        let bytes = ITEM_BYTES + texts.iter().map(|text| json_bytes(text) + 3).sum::<usize>();
        if self.items == 0 || bytes > self.bytes {
            return false;
        }
        self.items -= 1;
        self.bytes -= bytes;
        true
    }
}

/// Length of a text in JSON, rounded up.
fn json_bytes(text: &str) -> usize {
    let escaped = text.bytes().filter(|byte| *byte < b' ' || *byte == b'"' || *byte == b'\\').count();
    text.len() + 5 * escaped
}

pub(crate) fn stat(path: &str, follow: bool) -> Answer {
    let path = absolute(path)?;
    let flags = if follow { AtFlags::empty() } else { AtFlags::SYMLINK_NOFOLLOW };
    let stat = rustix::fs::statat(CWD, &path, flags).map_err(|error| failure(named("stat", &path), error))?;
    let target = rustix::fs::readlink(&path, vec![]).ok().filter(|_| kind_of(&stat) == FileType::Symlink);
    Ok(Response::Entry { entry: entry(&path, &stat, target.as_deref()) })
}

pub(crate) fn list(path: &str, recursive: bool, limit: u32, cancel: &Cancel) -> Answer {
    list_until(Instant::now() + LOOK_TIME, path, recursive, limit, cancel)
}

fn list_until(end: Instant, path: &str, recursive: bool, limit: u32, cancel: &Cancel) -> Answer {
    let path = absolute(path)?;
    let root = open_directory(&path)?;
    let (mut entries, mut room) = (Vec::new(), Room::new(limit));
    let walked = walk(root, &path, Trouble::Skip, cancel, |item| {
        if Instant::now() >= end {
            return Ok(Flow::Stop);
        }
        if item.visit == Visit::Leave {
            return Ok(Flow::Into);
        }
        let target = link_target(item.parent, item.name, item.stat);
        let found = entry(&path.join(item.relative), item.stat, target.as_deref());
        if !room.take(&[&found.path, found.target.as_deref().unwrap_or("")]) {
            return Ok(Flow::Stop);
        }
        entries.push(found);
        Ok(if recursive { Flow::Into } else { Flow::Over })
    })?;
    Ok(Response::Entries { entries, truncated: walked == Walked::Partly })
}

fn link_target(parent: impl AsFd, name: &CStr, stat: &Stat) -> Option<std::ffi::CString> {
    if kind_of(stat) != FileType::Symlink {
        return None;
    }
    rustix::fs::readlinkat(parent, name, vec![]).ok()
}

pub(super) fn entry(path: &Path, stat: &Stat, target: Option<&CStr>) -> FileEntry {
    let kind = match kind_of(stat) {
        FileType::Directory => EntryKind::Directory,
        FileType::Symlink => EntryKind::Symlink,
        FileType::Fifo => EntryKind::Fifo,
        FileType::Socket => EntryKind::Socket,
        FileType::CharacterDevice | FileType::BlockDevice => EntryKind::Device,
        _ => EntryKind::File,
    };
    let millis = i64::try_from(stat.st_mtime_nsec / 1_000_000).unwrap_or(0);
    FileEntry {
        path: path.to_string_lossy().into_owned(),
        kind,
        size: u64::try_from(stat.st_size).unwrap_or(0),
        mode: stat.st_mode & 0o7777,
        uid: stat.st_uid,
        gid: stat.st_gid,
        modified_at_ms: stat.st_mtime.saturating_mul(1000).saturating_add(millis),
        target: target.map(|target| target.to_string_lossy().into_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listing_whose_time_is_up_says_that_there_may_be_more() {
        let place = tempfile::tempdir().unwrap();
        std::fs::write(place.path().join("a"), "").unwrap();
        let listed = |end| match list_until(end, place.path().to_str().unwrap(), true, 10, &Cancel::default())
        {
            Ok(Response::Entries { entries, truncated }) => (entries.len(), truncated),
            other => panic!("{other:?}"),
        };
        assert_eq!(listed(Instant::now()), (0, true));
        assert_eq!(listed(Instant::now() + LOOK_TIME), (1, false));
    }

    #[test]
    fn room_is_never_less_than_what_json_takes() {
        for text in ["", "plain", "q\"\\\n\u{1}", "ünï", &"\u{7}".repeat(100)] {
            assert!(json_bytes(text) + 2 >= serde_json::to_string(text).unwrap().len() - 2, "{text:?}");
        }
        let mut room = Room::new(2);
        assert!(room.take(&["a"]) && room.take(&["b"]) && !room.take(&["c"]));
        assert!(!Room::new(u32::MAX).take(&[&"x".repeat(MAX_ANSWER_BYTES)]));
    }
}

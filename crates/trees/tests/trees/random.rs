//! Any tree: a copied or packed one keeps its digest.

use std::{
    ffi::CString,
    fs,
    os::{fd::AsFd as _, unix::ffi::OsStrExt as _},
    path::{Path, PathBuf},
};

use proptest::prelude::*;
use rustix::fs::{AtFlags, CWD, FileType, Mode, Timespec, Timestamps, mknodat};

use crate::{
    packing::{pack, unpack},
    world::{copy, described, facts, is_root, open, place, whiteout},
};

#[derive(Debug, Clone)]
enum Kind {
    Directory {
        opaque: bool,
    },
    File {
        pieces: Vec<(u32, Vec<u8>)>,
        length: u32,
    },
    Link(Vec<u8>),
    /// To the file made this many items before.
    HardLink(usize),
    Fifo,
    Socket,
    Whiteout,
}

#[derive(Debug, Clone)]
struct Item {
    /// In the directory made this many items before.
    place: usize,
    name: Vec<u8>,
    kind: Kind,
    mode: u32,
    owner: (u32, u32),
    time: (i64, i64),
    attributes: Vec<(Vec<u8>, Vec<u8>)>,
}

fn bytes(least: usize, most: usize) -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(1_u8.., least..=most)
}

fn kinds() -> impl Strategy<Value = Kind> {
    prop_oneof![
        3 => any::<bool>().prop_map(|opaque| Kind::Directory { opaque }),
        4 => (prop::collection::vec((0_u32..3 << 20, prop::collection::vec(any::<u8>(), 0..5000)), 0..4), 0_u32..3 << 20)
            .prop_map(|(pieces, length)| Kind::File { pieces, length }),
        1 => bytes(1, 300).prop_map(Kind::Link),
        2 => (0_usize..20).prop_map(Kind::HardLink),
        1 => Just(Kind::Fifo),
        1 => Just(Kind::Socket),
        1 => Just(Kind::Whiteout),
    ]
}

fn items() -> impl Strategy<Value = Vec<Item>> {
    let name = prop_oneof![3 => "[a-c]{1,3}".prop_map(String::into_bytes), 2 => bytes(1, 255)];
    let attribute = (bytes(1, 40), prop::collection::vec(any::<u8>(), 0..100));
    let item = (
        0_usize..8,
        name,
        kinds(),
        0_u32..0o10000,
        (0_u32..3_000_000, 0_u32..3_000_000),
        (-1_000_000_000_i64..5_000_000_000, 0_i64..1_000_000_000),
        prop::collection::vec(attribute, 0..3),
    )
        .prop_map(|(place, name, kind, mode, owner, time, attributes)| Item {
            place,
            name,
            kind,
            mode,
            owner,
            time,
            attributes,
        });
    prop::collection::vec(item, 0..24)
}

/// Makes as much as possible: taken and impossible names are left out.
fn make(tree: &Path, items: &[Item]) {
    let (mut directories, mut files) = (vec![tree.to_owned()], Vec::<PathBuf>::new());
    let mut made = Vec::new();
    for item in items {
        let name: Vec<u8> = item.name.iter().copied().filter(|&byte| byte != b'/').collect();
        if name.is_empty() || name == b"." || name == b".." {
            continue;
        }
        let parent = &directories[directories.len() - 1 - item.place % directories.len()];
        let path = parent.join(std::ffi::OsStr::from_bytes(&name));
        if path.symlink_metadata().is_ok() {
            continue;
        }
        match &item.kind {
            Kind::Directory { opaque } => {
                fs::create_dir(&path).unwrap();
                directories.push(path.clone());
                if *opaque {
                    crate::world::set_attribute(&path, "user.overlay.opaque", b"y");
                }
            }
            Kind::File { pieces, length } => {
                let file = fs::File::create(&path).unwrap();
                for (at, bytes) in pieces {
                    std::os::unix::fs::FileExt::write_all_at(&file, bytes, u64::from(*at)).unwrap();
                }
                file.set_len(u64::from(*length)).unwrap();
                files.push(path.clone());
            }
            Kind::Link(target) => {
                std::os::unix::fs::symlink(std::ffi::OsStr::from_bytes(target), &path).unwrap();
            }
            Kind::HardLink(back) => {
                let Some(target) = files.len().checked_sub(1 + back) else { continue };
                fs::hard_link(&files[target], &path).unwrap();
                continue;
            }
            Kind::Fifo => mknodat(CWD, &path, FileType::Fifo, Mode::RUSR, 0).unwrap(),
            Kind::Socket => mknodat(CWD, &path, FileType::Socket, Mode::RUSR, 0).unwrap(),
            Kind::Whiteout => {
                whiteout(&path);
                continue;
            }
        }
        made.push((path, item));
    }
    for (path, item) in made.iter().rev() {
        finish(path, item);
    }
}

fn finish(path: &Path, item: &Item) {
    let is_link = matches!(item.kind, Kind::Link(_));
    if matches!(item.kind, Kind::Directory { .. } | Kind::File { .. }) {
        for (name, value) in &item.attributes {
            let name = CString::new([b"user.", name.as_slice()].concat()).unwrap();
            // Some file systems have little room for them.
            let _room = rustix::fs::setxattr(path, &name, value, rustix::fs::XattrFlags::empty());
        }
    }
    if is_root() {
        let (uid, gid) = (rustix::fs::Uid::from_raw(item.owner.0), rustix::fs::Gid::from_raw(item.owner.1));
        rustix::fs::chownat(CWD, path, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW).unwrap();
    }
    if !is_link {
        let mode = if is_root() { item.mode } else { item.mode | 0o700 };
        rustix::fs::chmod(path, Mode::from_raw_mode(mode)).unwrap();
    }
    let time = Timespec { tv_sec: item.time.0, tv_nsec: item.time.1 };
    let times = Timestamps { last_access: time, last_modification: time };
    rustix::fs::utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_tree_is_the_same_copied_and_packed(items in items()) {
        let place = place();
        let at = |name: &str| {
            let path = place.path().join(name);
            fs::create_dir(&path).unwrap();
            path
        };
        let (from, copied, unpacked) = (at("from"), at("copied"), at("unpacked"));
        make(&from, &items);
        let expected = facts(&from);
        copy(&from, &copied);
        prop_assert_eq!(facts(&copied), expected.clone());
        prop_assert_eq!(described(&copied), described(&from));
        let archive = pack(&copied);
        unpack(&archive, &unpacked).unwrap();
        prop_assert_eq!(facts(&unpacked), expected);
        prop_assert_eq!(described(&unpacked), described(&from));
        prop_assert!(pack(&unpacked) == archive);
    }

    #[test]
    fn no_archive_makes_it_panic(mut archive in prop::collection::vec(any::<u8>(), 0..3000)) {
        let place = place();
        let _refused = unpack(&archive, place.path());
        // The same after a valid beginning.
        let tree = crate::world::place();
        fs::write(tree.path().join("a"), "x").unwrap();
        let mut good = pack(tree.path());
        good.truncate(good.len() - 1024);
        good.append(&mut archive);
        let _refused = trees::unpack(&good[..], open(crate::world::place().path()).as_fd(), &trees::UnpackLimits::default());
    }
}

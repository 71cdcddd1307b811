//! A digest identifies a tree, no more and no less.

use std::{
    fs::{self, File},
    os::unix::fs::{FileExt as _, PermissionsExt as _, symlink},
    path::Path,
};

use rustix::fs::{CWD, FileType, Mode, mknodat};

use crate::world::{facts, is_root, make_everything, place, set_attribute, set_time, whiteout};

/// The digest of the tree that `make_everything` makes as root. If this changes, every existing snapshot has a wrong
/// digest.
const GOLDEN: &str = "sha256:285a68b356c286bd6dec32072227e25b2a882838bedd51ca3da18099ff95ffd1";

#[test]
fn the_form_never_changes() {
    if !is_root() {
        return;
    }
    let place = place();
    make_everything(place.path());
    assert_eq!(facts(place.path()).digest, GOLDEN);
}

#[test]
fn an_empty_tree_is_its_title_and_its_end() {
    // printf 'tree 1\n\0' | sha256sum
    let empty = "sha256:48f9b26a77db5a5a3f9e593449fe95753742469fc84a7bb418f3f4229ed86fb9";
    assert_eq!(facts(place().path()).digest, empty);
}

#[test]
fn holes_are_zeros() {
    let place = place();
    let digest = |make: &dyn Fn(&Path)| {
        let tree = place.path().join("tree");
        fs::create_dir(&tree).unwrap();
        make(&tree.join("file"));
        set_time(&tree.join("file"), 1);
        let found = facts(&tree).digest;
        fs::remove_dir_all(&tree).unwrap();
        found
    };
    const LENGTH: usize = (6 << 20) + 12345;
    let dense = digest(&|path| {
        let mut bytes = vec![0; LENGTH];
        bytes[(3 << 20) + 5] = 1;
        fs::write(path, bytes).unwrap();
    });
    let sparse = digest(&|path| {
        let file = File::create(path).unwrap();
        file.set_len(LENGTH as u64).unwrap();
        file.write_all_at(&[1], (3 << 20) + 5).unwrap();
    });
    let longer = digest(&|path| {
        let file = File::create(path).unwrap();
        file.set_len(LENGTH as u64 + 1).unwrap();
        file.write_all_at(&[1], (3 << 20) + 5).unwrap();
    });
    assert_eq!(dense, sparse);
    assert_ne!(dense, longer);
}

#[test]
fn a_file_as_long_as_a_file_can_be_costs_nothing() {
    let place = place();
    let file = File::create(place.path().join("file")).unwrap();
    // As much as the file system allows.
    let length =
        (32..63).rev().map(|bits| 1_u64 << bits).find(|&length| file.set_len(length).is_ok()).unwrap();
    assert_eq!(facts(place.path()).bytes, length);
}

#[test]
fn every_difference_is_seen() {
    type Change = (&'static str, &'static dyn Fn(&Path));
    let base: &dyn Fn(&Path) = &|tree| {
        fs::create_dir(tree.join("d")).unwrap();
        fs::write(tree.join("d/f"), "text").unwrap();
        fs::write(tree.join("g"), "text").unwrap();
        symlink("there", tree.join("l")).unwrap();
    };
    let changes: &[Change] = &[
        ("content", &|tree| fs::write(tree.join("d/f"), "tExt").unwrap()),
        ("length", &|tree| fs::write(tree.join("d/f"), "text\0").unwrap()),
        ("name", &|tree| fs::rename(tree.join("d/f"), tree.join("d/e")).unwrap()),
        ("place", &|tree| fs::rename(tree.join("d/f"), tree.join("f")).unwrap()),
        ("mode", &|tree| fs::set_permissions(tree.join("d/f"), fs::Permissions::from_mode(0o4644)).unwrap()),
        ("mode of a directory", &|tree| {
            fs::set_permissions(tree.join("d"), fs::Permissions::from_mode(0o1777)).unwrap();
        }),
        ("attribute", &|tree| set_attribute(&tree.join("d/f"), "user.a", b"1")),
        ("opaque", &|tree| set_attribute(&tree.join("d"), "user.overlay.opaque", b"y")),
        ("target", &|tree| {
            fs::remove_file(tree.join("l")).unwrap();
            symlink("elsewhere", tree.join("l")).unwrap();
        }),
        ("whiteout", &|tree| {
            fs::remove_file(tree.join("g")).unwrap();
            whiteout(&tree.join("g"));
        }),
        ("hard link", &|tree| {
            fs::remove_file(tree.join("g")).unwrap();
            fs::hard_link(tree.join("d/f"), tree.join("g")).unwrap();
        }),
        ("kind", &|tree| {
            fs::remove_file(tree.join("g")).unwrap();
            mknodat(CWD, tree.join("g"), FileType::Fifo, Mode::from_raw_mode(0o644), 0).unwrap();
        }),
        ("missing", &|tree| fs::remove_file(tree.join("g")).unwrap()),
    ];
    let mut seen = vec![("nothing", digest_of(base, &|_tree| {}, 0))];
    assert_eq!(seen[0].1, digest_of(base, &|_tree| {}, 0), "the same tree has the same digest");
    for (what, change) in changes {
        seen.push((what, digest_of(base, change, 0)));
    }
    seen.push(("time", digest_of(base, &|_tree| {}, 1)));
    for (index, (what, digest)) in seen.iter().enumerate() {
        for (other, other_digest) in &seen[..index] {
            assert_ne!(digest, other_digest, "{what} and {other}");
        }
    }
}

fn digest_of(base: &dyn Fn(&Path), change: &dyn Fn(&Path), later: u64) -> String {
    let place = place();
    base(place.path());
    change(place.path());
    for path in crate::world::all(place.path()) {
        set_time(&path, 1_600_000_000 + later);
    }
    facts(place.path()).digest
}

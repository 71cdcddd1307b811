//! A copy equals its tree.

use std::{
    fs::{self, File},
    os::unix::fs::{MetadataExt as _, PermissionsExt as _},
    process::Command,
};

use crate::world::{
    all, attribute, copy, described, facts, is_root, make_deep, make_everything, open, place, remove,
    set_attribute,
};

#[test]
fn everything_comes_along() {
    let place = place();
    let (from, into) = (place.path().join("from"), place.path().join("into"));
    fs::create_dir_all(&from).unwrap();
    fs::create_dir_all(&into).unwrap();
    make_everything(&from);
    let copied = copy(&from, &into);
    assert_eq!(described(&into), described(&from));
    assert_eq!(copied.n_entries, all(&from).len() as u64);
    assert!(fs::read(into.join("etc/large")).unwrap() == fs::read(from.join("etc/large")).unwrap());
    assert_eq!(fs::read_link(into.join("link")).unwrap().to_str(), Some("/etc/shadow"));
    assert_eq!(attribute(&into.join("etc/hostname"), "user.note").unwrap(), b"\0any\xff");
    assert_eq!(attribute(&into.join("var"), "user.overlay.opaque").unwrap(), b"y");
    assert!(fs::metadata(into.join("var/sparse")).unwrap().blocks() * 512 < 1 << 20, "holes stay holes");
    if is_root() {
        assert!(attribute(&into.join("etc/large"), "security.capability").is_some());
    }
    assert_eq!(facts(&into), facts(&from));
}

#[test]
fn notes_of_one_mount_of_an_overlay_stay_behind_and_those_of_users_come_along() {
    let place = place();
    let (from, into) = (place.path().join("from"), place.path().join("into"));
    fs::create_dir_all(from.join("d")).unwrap();
    fs::create_dir_all(&into).unwrap();
    for name in ["user.overlay.origin", "user.overlay.impure", "user.overlay.redirect", "user.overlay.opaque"]
    {
        set_attribute(&from.join("d"), name, b"x");
    }
    set_attribute(&from.join("d"), "user.overlay.overlay.opaque", b"y");
    copy(&from, &into);
    let mut names = vec![0; 4096];
    let length = rustix::fs::listxattr(into.join("d"), &mut names[..]).unwrap();
    assert_eq!(String::from_utf8_lossy(&names[..length]), "user.overlay.overlay.opaque\0");
    assert_eq!(facts(&into), facts(&from));
}

#[test]
fn access_lists_come_along_and_are_not_inherited() {
    let place = place();
    let (from, into) = (place.path().join("from"), place.path().join("into"));
    fs::create_dir_all(from.join("d")).unwrap();
    fs::create_dir_all(&into).unwrap();
    fs::write(from.join("d/before"), "").unwrap();
    // user::rwx user:4711:rwx group::r-x mask::rwx other::---
    let mut list = 2_u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in
        [(1_u16, 7_u16, u32::MAX), (2, 7, 4711), (4, 5, u32::MAX), (16, 7, u32::MAX), (32, 0, u32::MAX)]
    {
        list.extend_from_slice(&tag.to_le_bytes());
        list.extend_from_slice(&permissions.to_le_bytes());
        list.extend_from_slice(&id.to_le_bytes());
    }
    let set = |name: &str| rustix::fs::setxattr(from.join("d"), name, &list, rustix::fs::XattrFlags::empty());
    if set("system.posix_acl_default").is_err() {
        eprint_skipped("the file system has no access lists");
        return;
    }
    set("system.posix_acl_access").unwrap();
    copy(&from, &into);
    assert_eq!(attribute(&into.join("d"), "system.posix_acl_default").unwrap(), list);
    assert_eq!(attribute(&into.join("d"), "system.posix_acl_access").unwrap(), list);
    assert_eq!(attribute(&into.join("d/before"), "system.posix_acl_access"), None);
    assert_eq!(described(&into), described(&from));
}

#[test]
fn a_file_with_a_name_outside_is_copied_with_those_inside() {
    let place = place();
    let (from, into) = (place.path().join("from"), place.path().join("into"));
    fs::create_dir_all(&from).unwrap();
    fs::create_dir_all(&into).unwrap();
    fs::write(place.path().join("outside"), "1").unwrap();
    for name in ["a", "b"] {
        fs::hard_link(place.path().join("outside"), from.join(name)).unwrap();
    }
    // The name that the copy itself would use.
    fs::write(from.join(".linked-0"), "mine").unwrap();
    copy(&from, &into);
    let inode = |name: &str| into.join(name).metadata().unwrap().ino();
    assert_eq!(inode("a"), inode("b"));
    assert_eq!(into.join("a").metadata().unwrap().nlink(), 2);
    assert_eq!(fs::read_to_string(into.join(".linked-0")).unwrap(), "mine");
    assert_eq!(all(&into).len(), 3);
}

#[test]
fn as_many_names_as_a_file_can_have() {
    let place = place();
    let (from, into) = (place.path().join("from"), place.path().join("into"));
    fs::create_dir_all(&from).unwrap();
    fs::create_dir_all(&into).unwrap();
    fs::write(from.join("0"), "many").unwrap();
    let most =
        (1..70_000).take_while(|n| fs::hard_link(from.join("0"), from.join(n.to_string())).is_ok()).count()
            + 1;
    copy(&from, &into);
    assert_eq!(into.join("0").metadata().unwrap().nlink(), most as u64);
}

#[test]
fn a_tree_deeper_than_any_path_with_few_descriptors() {
    let place = place();
    let (from, into) = (place.path().join("from"), place.path().join("into"));
    fs::create_dir_all(&from).unwrap();
    fs::create_dir_all(&into).unwrap();
    make_deep(&from, 10_000);
    let (from_open, into_open) = (open(&from), open(&into));
    let before = fs::read_dir("/proc/self/fd").unwrap().count();
    let copied =
        trees::copy(std::os::fd::AsFd::as_fd(&from_open), std::os::fd::AsFd::as_fd(&into_open)).unwrap();
    assert!(fs::read_dir("/proc/self/fd").unwrap().count() <= before + 64, "other tests open some too");
    assert_eq!((copied.n_entries, copied.bytes), (20_000, 10_000));
    assert_eq!(facts(&from), facts(&into));
    remove(&from);
    remove(&into);
}

#[test]
fn a_directory_that_locks_its_owner_out() {
    if !is_root() {
        eprint_skipped("only root, or root of a user namespace, may pass over modes");
        return;
    }
    let place = place();
    let (from, into) = (place.path().join("from"), place.path().join("into"));
    fs::create_dir_all(from.join("locked/in")).unwrap();
    fs::create_dir_all(&into).unwrap();
    fs::write(from.join("locked/in/file"), "1").unwrap();
    fs::set_permissions(from.join("locked"), fs::Permissions::from_mode(0o000)).unwrap();
    copy(&from, &into);
    assert_eq!(described(&into), described(&from));
}

#[test]
fn shared_blocks_where_the_file_system_has_them() {
    let has_tools = Command::new("mkfs.btrfs").arg("--version").output().is_ok();
    if !is_root() || !has_tools {
        eprint_skipped("needs root and mkfs.btrfs");
        return;
    }
    let place = place();
    let (image, at) = (place.path().join("btrfs.img"), place.path().join("at"));
    File::create(&image).unwrap().set_len(256 << 20).unwrap();
    fs::create_dir(&at).unwrap();
    let ok = |command: &mut Command| command.output().unwrap().status.success();
    assert!(ok(Command::new("mkfs.btrfs").arg("-q").arg(&image)));
    if !ok(Command::new("mount").args(["-o", "loop"]).arg(&image).arg(&at)) {
        eprint_skipped("btrfs cannot be mounted here");
        return;
    }
    let tried = std::panic::catch_unwind(|| {
        let (from, into) = (at.join("from"), at.join("into"));
        fs::create_dir(&from).unwrap();
        fs::create_dir(&into).unwrap();
        make_everything(&from);
        fs::write(from.join("big"), vec![7; 64 << 20]).unwrap();
        let copied = copy(&from, &into);
        assert!(copied.shared_bytes >= 64 << 20, "{copied:?}");
        assert_eq!(facts(&from), facts(&into));
        assert_eq!(described(&into), described(&from));
    });
    assert!(ok(Command::new("umount").arg(&at)));
    tried.unwrap();
}

#[expect(clippy::print_stderr, reason = "says why a test did nothing")]
fn eprint_skipped(why: &str) {
    eprintln!("skipped: {why}");
}

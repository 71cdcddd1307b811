//! Archives made by strangers to break out, in or over something.

use std::{fs, os::fd::AsFd as _, os::unix::fs::symlink};

use tar::{Builder, EntryType, Header};
use trees::{Error, UnpackLimits};

use crate::{
    packing::unpack,
    world::{all, open, place},
};

#[derive(Clone, Copy)]
struct Entry<'a> {
    kind: EntryType,
    path: &'a [u8],
    link: &'a [u8],
    content: &'a [u8],
}

fn directory(path: &[u8]) -> Entry<'_> {
    Entry { kind: EntryType::Directory, path, link: b"", content: b"" }
}

fn file(path: &[u8]) -> Entry<'_> {
    Entry { kind: EntryType::Regular, path, link: b"", content: b"x" }
}

fn link<'a>(path: &'a [u8], to: &'a [u8]) -> Entry<'a> {
    Entry { kind: EntryType::Symlink, path, link: to, content: b"" }
}

fn hard<'a>(path: &'a [u8], to: &'a [u8]) -> Entry<'a> {
    Entry { kind: EntryType::Link, path, link: to, content: b"" }
}

fn other(kind: EntryType, path: &[u8]) -> Entry<'_> {
    Entry { kind, path, link: b"", content: b"" }
}

fn header(entry: &Entry<'_>) -> Header {
    let mut header = Header::new_ustar();
    header.set_entry_type(entry.kind);
    header.as_old_mut().name[..entry.path.len()].copy_from_slice(entry.path);
    header.as_old_mut().linkname[..entry.link.len()].copy_from_slice(entry.link);
    header.set_mode(0o755);
    header.set_uid(u64::from(rustix::process::geteuid().as_raw()));
    header.set_gid(u64::from(rustix::process::getegid().as_raw()));
    header.set_mtime(1);
    header.set_size(entry.content.len() as u64);
    if matches!(entry.kind, EntryType::Char | EntryType::Block) {
        header.set_device_major(1).unwrap();
        header.set_device_minor(3).unwrap();
    }
    header.set_cksum();
    header
}

fn archive(entries: &[Entry<'_>]) -> Vec<u8> {
    let mut builder = Builder::new(Vec::new());
    for entry in entries {
        builder.append(&header(entry), entry.content).unwrap();
    }
    builder.into_inner().unwrap()
}

fn with_record(key: &str, value: &str, entry: &Entry<'_>) -> Vec<u8> {
    let mut builder = Builder::new(Vec::new());
    builder.append_pax_extensions([(key, value.as_bytes())]).unwrap();
    builder.append(&header(entry), entry.content).unwrap();
    builder.into_inner().unwrap()
}

#[test]
fn tricks_are_refused_and_nothing_outside_is_touched() {
    let cases: &[(&str, &[Entry<'_>])] = &[
        ("absolute", &[file(b"/etc/x")]),
        ("upwards", &[file(b"../x")]),
        ("upwards within", &[directory(b"a"), file(b"a/../../x")]),
        ("dot", &[file(b"./x")]),
        ("empty name", &[directory(b"a"), file(b"a//x")]),
        ("no name", &[file(b"")]),
        ("through a link", &[link(b"a", b"/tmp"), file(b"a/x")]),
        ("through a link up", &[link(b"a", b".."), file(b"a/x")]),
        ("in a file", &[file(b"a"), file(b"a/x")]),
        ("in what never came", &[file(b"a/x")]),
        ("in what was left", &[directory(b"a"), directory(b"b"), file(b"a/x")]),
        ("twice", &[file(b"a"), file(b"a")]),
        ("a directory twice", &[directory(b"a"), directory(b"a")]),
        ("a link for a directory", &[directory(b"a"), file(b"a/x"), link(b"a", b"/tmp")]),
        ("a directory for a link", &[link(b"a", b"/tmp"), directory(b"a")]),
        ("out of order", &[file(b"b"), file(b"a")]),
        ("hard link to outside", &[hard(b"a", b"/etc/passwd")]),
        ("hard link upwards", &[hard(b"a", b"../outside")]),
        ("hard link to nothing", &[hard(b"a", b"b")]),
        ("hard link to itself", &[hard(b"a", b"a")]),
        ("hard link to later", &[hard(b"a", b"b"), file(b"b")]),
        ("hard link to a directory", &[directory(b"a"), hard(b"b", b"a")]),
        ("hard link through a link", &[link(b"a", b".."), hard(b"b", b"a/outside")]),
        ("character device", &[other(EntryType::Char, b"null")]),
        ("block device", &[other(EntryType::Block, b"disk")]),
        ("link to nothing", &[link(b"a", b"")]),
        ("unknown kind", &[other(EntryType::new(b'Z'), b"a")]),
        ("long name of another tar", &[other(EntryType::GNULongName, b"a")]),
        ("global header", &[other(EntryType::XGlobalHeader, b"a")]),
        ("long name", &[file(&[b'n'; 100]), file(b"o")]),
    ];
    for (what, entries) in cases {
        let place = place();
        let into = place.path().join("into");
        fs::create_dir(&into).unwrap();
        fs::write(place.path().join("outside"), "precious").unwrap();
        let result = unpack(&archive(entries), &into);
        if *what == "long name" {
            result.unwrap();
            continue;
        }
        assert!(matches!(result, Err(Error::Refused { .. })), "{what}: {result:?}");
        let beside: Vec<_> =
            fs::read_dir(place.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(beside.len(), 2, "{what}: {beside:?}");
        assert_eq!(fs::read_to_string(place.path().join("outside")).unwrap(), "precious", "{what}");
    }
}

#[test]
fn records_that_say_otherwise_than_headers_are_held_to_the_same_rules() {
    let cases = [
        ("path", "../x"),
        ("path", "/x"),
        ("path", "a\0b"),
        ("GNU.sparse.name", "../x"),
        ("SCHILY.xattr.trusted.overlay.opaque", "y"),
        ("SCHILY.xattr.security.selinux", "x"),
        ("SCHILY.xattr.user.overlay.redirect", "/etc"),
        ("SCHILY.xattr.user.overlay.metacopy", ""),
        ("SCHILY.xattr.user.overlay.opaque", "x"),
        ("uid", "4294967295"),
        ("uid", "99999999999"),
        ("TREES.kind", "device"),
        ("GNU.sparse.realsize", "5"),
    ];
    for (key, value) in cases {
        let place = place();
        let result = unpack(&with_record(key, value, &file(b"a")), place.path());
        assert!(matches!(result, Err(Error::Refused { .. })), "{key}={value}: {result:?}");
        assert_eq!(all(place.path()).len(), 0, "{key}={value}");
    }
    let name = "n".repeat(256);
    let result = unpack(&with_record("path", &name, &file(b"a")), place().path());
    assert!(matches!(result, Err(Error::Refused { .. })), "{result:?}");
    let path = "d/".repeat(40_000) + "x";
    let result = unpack(&with_record("path", &path, &file(b"a")), place().path());
    assert!(matches!(result, Err(Error::Refused { .. })), "{result:?}");
}

#[test]
fn damage_is_noticed() {
    let whole = archive(&[directory(b"a"), file(b"a/x"), file(b"b")]);
    unpack(&whole, place().path()).unwrap();
    for length in 0..whole.len() - 1024 {
        let result = unpack(&whole[..length], place().path());
        assert!(matches!(result, Err(Error::Damaged(_))), "{length}: {result:?}");
    }
    let mut broken = whole.clone();
    broken[0] ^= 1;
    assert!(matches!(unpack(&broken, place().path()), Err(Error::Damaged(_))));
    let text = b"not an archive at all".repeat(100);
    assert!(matches!(unpack(&text, place().path()), Err(Error::Damaged(_))));
}

#[test]
fn a_map_that_does_not_fit_its_file_is_refused() {
    let sparse = |map: &[u8], size: &str| {
        let mut content = map.to_vec();
        content.resize(512, 0);
        content.extend_from_slice(b"data");
        let mut builder = Builder::new(Vec::new());
        let records = [
            ("GNU.sparse.major", &b"1"[..]),
            ("GNU.sparse.minor", b"0"),
            ("GNU.sparse.realsize", size.as_bytes()),
        ];
        builder.append_pax_extensions(records).unwrap();
        let entry = Entry { content: &content, ..file(b"a") };
        builder.append(&header(&entry), &content[..]).unwrap();
        unpack(&builder.into_inner().unwrap(), place().path())
    };
    sparse(b"1\n96\n4\n", "1000").unwrap();
    for (map, size) in [
        (&b"1\n96\n5\n"[..], "1000"),
        (b"1\n998\n4\n", "1000"),
        (b"1\n18446744073709551615\n4\n", "1000"),
        (b"2\n96\n2\n90\n2\n", "1000"),
        (b"2\n96\n4\n", "1000"),
        (b"x\n", "1000"),
        (b"-1\n", "1000"),
        (b"99999999999999999999999\n", "1000"),
        (b"1\n96\n4\n", "99999999999999999999"),
        (b"1\n96\n4\n", "18446744073709551615"),
    ] {
        assert!(sparse(map, size).is_err(), "{}", String::from_utf8_lossy(map));
    }
    let many = sparse(b"99999999\n", "1000").unwrap_err();
    assert!(matches!(&many, Error::TooLarge { limit, .. } if limit == "MAX_PARTS"), "{many}");
}

#[test]
fn limits_hold() {
    let archive = archive(&[file(b"a"), file(b"b"), file(b"c")]);
    let tried = |limits| trees::unpack(&archive[..], open(place().path()).as_fd(), &limits);
    let limits = UnpackLimits { max_entries: 3, max_bytes: 3 };
    tried(limits).unwrap();
    for (limits, named) in [
        (UnpackLimits { max_entries: 2, ..limits }, "max_entries"),
        (UnpackLimits { max_bytes: 2, ..limits }, "max_bytes"),
    ] {
        let error = tried(limits).unwrap_err();
        assert!(matches!(&error, Error::TooLarge { limit, .. } if limit == named), "{error}");
    }
}

#[test]
fn what_is_there_already_is_never_written_to() {
    let place = place();
    let into = place.path().join("into");
    fs::create_dir(&into).unwrap();
    fs::write(place.path().join("outside"), "precious").unwrap();
    symlink("../outside", into.join("a")).unwrap();
    unpack(&archive(&[file(b"a")]), &into).unwrap_err();
    assert_eq!(fs::read_to_string(place.path().join("outside")).unwrap(), "precious");
}

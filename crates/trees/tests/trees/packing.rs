//! A packed tree is unpacked unchanged.

use std::{fs, os::fd::AsFd as _, os::unix::fs::MetadataExt as _, path::Path, process::Command};

use crate::world::{described, facts, make_deep, make_everything, open, place, remove};

pub(crate) fn pack(tree: &Path) -> Vec<u8> {
    let mut archive = Vec::new();
    let packed = trees::pack(open(tree).as_fd(), &mut archive).unwrap();
    assert_eq!(packed.bytes, archive.len() as u64);
    archive
}

pub(crate) fn unpack(archive: &[u8], into: &Path) -> trees::Result<()> {
    trees::unpack(archive, open(into).as_fd(), &trees::UnpackLimits::default())
}

#[test]
fn everything_comes_back() {
    let place = place();
    let (from, into) = (place.path().join("from"), place.path().join("into"));
    fs::create_dir_all(&from).unwrap();
    fs::create_dir_all(&into).unwrap();
    make_everything(&from);
    let archive = pack(&from);
    unpack(&archive, &into).unwrap();
    assert_eq!(described(&into), described(&from));
    assert_eq!(facts(&into), facts(&from));
    assert!(pack(&into) == archive, "the same bytes for the same tree");
    assert!(into.join("var/sparse").metadata().unwrap().blocks() * 512 < 2 << 20, "zeros come back as holes");
}

#[test]
fn another_tar_reads_it() {
    let place = place();
    let (from, into) = (place.path().join("from"), place.path().join("into"));
    fs::create_dir_all(&from).unwrap();
    fs::create_dir_all(&into).unwrap();
    make_everything(&from);
    let long = "a".repeat(200);
    fs::create_dir_all(from.join(&long)).unwrap();
    fs::write(from.join(&long).join("in a long name"), "here").unwrap();
    let archive = place.path().join("tree.tar");
    fs::write(&archive, pack(&from)).unwrap();
    let read = Command::new("tar")
        .args(["--extract", "--xattrs", "--xattrs-include=*", "--exclude=etc/gone", "--file"])
        .arg(&archive)
        .arg("--directory")
        .arg(&into)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&read.stderr);
    assert!(!said.contains("Unknown") && !said.contains("Malformed"), "{said}");
    for name in ["etc/large", "var/sparse"] {
        let (one, other) = (fs::read(into.join(name)).unwrap(), fs::read(from.join(name)).unwrap());
        assert!(one == other, "{name}: {} and {} bytes", one.len(), other.len());
    }
    assert_eq!(fs::read_to_string(into.join(&long).join("in a long name")).unwrap(), "here");
    let inode = |name: &str| into.join(name).metadata().unwrap().ino();
    assert_eq!(inode("etc/hostname"), inode("zz-hostname"));
}

#[test]
fn a_deep_tree_comes_back() {
    let place = place();
    let (from, into) = (place.path().join("from"), place.path().join("into"));
    fs::create_dir_all(&from).unwrap();
    fs::create_dir_all(&into).unwrap();
    make_deep(&from, 3000);
    unpack(&pack(&from), &into).unwrap();
    assert_eq!(facts(&into), facts(&from));
    remove(&from);
    remove(&into);
}

#[test]
fn a_tree_whose_paths_no_program_could_use_is_not_packed() {
    let place = place();
    let name = "n".repeat(255);
    let mut here = open(place.path());
    for _level in 0..300 {
        rustix::fs::mkdirat(&here, &name, rustix::fs::Mode::RWXU).unwrap();
        let flags = rustix::fs::OFlags::DIRECTORY | rustix::fs::OFlags::CLOEXEC;
        here = rustix::fs::openat(&here, &name, flags, rustix::fs::Mode::empty()).unwrap();
    }
    let error = trees::pack(open(place.path()).as_fd(), std::io::sink()).unwrap_err();
    assert!(matches!(&error, trees::Error::TooLarge { limit, .. } if limit == "MAX_PATH_BYTES"), "{error}");
    for entry in fs::read_dir(place.path()).unwrap() {
        remove(&entry.unwrap().path());
    }
}

#[test]
fn a_file_as_long_as_a_file_can_be_makes_a_short_archive() {
    let place = place();
    let (from, into) = (place.path().join("from"), place.path().join("into"));
    fs::create_dir_all(&from).unwrap();
    fs::create_dir_all(&into).unwrap();
    let file = fs::File::create(from.join("file")).unwrap();
    file.set_len(1 << 40).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, b"x", 1 << 39).unwrap();
    let archive = pack(&from);
    assert!(archive.len() < 2 << 20, "{}", archive.len());
    unpack(&archive, &into).unwrap();
    assert_eq!(facts(&into), facts(&from));
}

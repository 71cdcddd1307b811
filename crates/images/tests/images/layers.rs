//! The results of unpacking honest layers.

use std::{
    fs::{self, File},
    os::{
        fd::AsFd as _,
        unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _},
    },
    path::Path,
};

use images::{Digest, Error, OpaqueMark, UnpackOptions, Unpacked, unpack_layer};
use tar::EntryType;

use crate::fixture::{Entry, Layer, gzip, run, zstd};

pub(crate) fn unpack(blob: &[u8], into: &Path) -> Result<Unpacked, Error> {
    unpack_layer(blob, File::open(into).unwrap().as_fd(), &UnpackOptions::default())
}

fn attribute(path: &Path, name: &str) -> Option<Vec<u8>> {
    let mut value = vec![0; 256];
    let length = rustix::fs::lgetxattr(path, name, &mut value).ok()?;
    value.truncate(length);
    Some(value)
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

#[test]
fn files_keep_what_the_archive_says_of_them() {
    let capability = b"\x01\0\0\x02\0\x04\0\0\0\0\0\0\0\0\0\0\0\0\0\0";
    let long = format!("deep/{}/{}", "d".repeat(120), "f".repeat(200));
    let tar = Layer::default()
        .entry(&Entry { path: "./", kind: EntryType::Directory, mode: 0o711, ..Entry::default() })
        .entry(&Entry {
            path: "bin",
            kind: EntryType::Directory,
            mode: 0o750,
            mtime: 1_600_000_000,
            ..Entry::default()
        })
        .entry(&Entry { path: "bin/su", mode: 0o4755, data: b"su", ..Entry::default() })
        .entry(&Entry {
            path: "bin/owned",
            owner: (1234, 5678),
            mode: 0o2640,
            data: b"x",
            ..Entry::default()
        })
        .hard_link("bin/again", "bin/su")
        .symlink("bin/out", "../../../etc/passwd")
        .entry(&Entry { path: "pipe", kind: EntryType::Fifo, mode: 0o622, ..Entry::default() })
        .entry(&Entry { path: "null", kind: EntryType::Char, ..Entry::default() })
        .entry(&Entry {
            path: "ping",
            mode: 0o755,
            data: b"ping",
            pax: vec![
                ("mtime", b"1500000000.123456789"),
                ("SCHILY.xattr.user.note", b"a\nb"),
                ("SCHILY.xattr.security.capability", capability),
                ("SCHILY.xattr.trusted.overlay.redirect", b"/etc"),
                ("SCHILY.xattr.user.overlay.opaque", b"y"),
            ],
            ..Entry::default()
        })
        .file(&long, b"long")
        .file("tmp/in-a-directory-without-an-entry", b"")
        .tar();
    let tree = tempfile::tempdir().unwrap();
    let at = |name: &str| tree.path().join(name);
    let unpacked = unpack(&gzip(&tar), tree.path()).unwrap();

    assert_eq!((unpacked.diff_id, unpacked.tar_bytes), (Digest::of(&tar), tar.len() as u64));
    assert_eq!(unpacked.n_entries, 11);
    let mode = |name: &str| fs::symlink_metadata(at(name)).unwrap().mode() & 0o7777;
    assert_eq!(
        (mode(""), mode("bin"), mode("bin/su"), mode("pipe"), mode("tmp")),
        (0o711, 0o750, 0o4755, 0o622, 0o1777)
    );
    assert_eq!(fs::metadata(at("bin")).unwrap().mtime(), 1_600_000_000);
    let ping = fs::metadata(at("ping")).unwrap();
    assert_eq!((ping.mtime(), ping.mtime_nsec()), (1_500_000_000, 123_456_789));
    assert_eq!(fs::metadata(at("bin/su")).unwrap().ino(), fs::metadata(at("bin/again")).unwrap().ino());
    assert_eq!(fs::read_link(at("bin/out")).unwrap(), Path::new("../../../etc/passwd"));
    assert_eq!(fs::symlink_metadata(at("bin/out")).unwrap().mtime(), 1_700_000_000);
    assert!(fs::symlink_metadata(at("pipe")).unwrap().file_type().is_fifo());
    assert!(!at("null").exists());
    assert_eq!(fs::read(at(&long)).unwrap(), b"long");
    assert_eq!(attribute(&at("ping"), "user.note").unwrap(), b"a\nb");
    assert_eq!(attribute(&at("ping"), "user.overlay.opaque"), None);
    assert_eq!(attribute(&at("ping"), "trusted.overlay.redirect"), None);

    let mut warned = unpacked.warnings.texts;
    let owned = fs::metadata(at("bin/owned")).unwrap();
    if is_root() {
        assert_eq!((owned.uid(), owned.gid(), owned.mode() & 0o7777), (1234, 5678, 0o2640));
        assert!(attribute(&at("ping"), "security.capability").unwrap().starts_with(&capability[..4]));
    } else {
        assert!(warned.contains(&"could not give bin/owned to 1234:5678".to_owned()), "{warned:?}");
        warned.retain(|warning| !warning.starts_with("could not"));
    }
    assert_eq!(
        warned,
        [
            "left out the device null",
            "left out the attribute trusted.overlay.redirect of ping",
            "left out the attribute user.overlay.opaque of ping",
        ]
    );
}

#[test]
fn removals_become_marks_of_an_overlay() {
    let tar = Layer::default()
        .file("a/.wh.old", b"")
        .directory("b/")
        .file("b/.wh..wh..opq", b"")
        .file("b/.wh..wh.plnk", b"")
        .file("b/new", b"")
        // Both orders of a removal and a new thing of the same name.
        .file(".wh.first-removed", b"")
        .directory("first-removed/")
        .directory("first-made/")
        .file(".wh.first-made", b"")
        .file("file", b"here")
        .file(".wh.file", b"")
        .tar();
    let tree = tempfile::tempdir().unwrap();
    let at = |name: &str| tree.path().join(name);
    unpack(&zstd(&tar), tree.path()).unwrap();

    let old = fs::symlink_metadata(at("a/old")).unwrap();
    assert!(old.file_type().is_char_device() && old.rdev() == 0);
    for opaque in ["b", "first-removed", "first-made"] {
        assert_eq!(attribute(&at(opaque), "user.overlay.opaque").as_deref(), Some(&b"y"[..]), "{opaque}");
    }
    assert_eq!(attribute(&at("a"), "user.overlay.opaque"), None);
    assert_eq!(fs::read(at("file")).unwrap(), b"here");
    let mut names: Vec<_> = fs::read_dir(at("b")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["new"]);

    if is_root() {
        let tree = tempfile::tempdir().unwrap();
        let options = UnpackOptions { opaque: OpaqueMark::Trusted, ..UnpackOptions::default() };
        unpack_layer(&tar[..], File::open(tree.path()).unwrap().as_fd(), &options).unwrap();
        assert!(attribute(&tree.path().join("b"), "trusted.overlay.opaque").is_some());
    }
}

#[test]
fn holes_stay_holes_in_every_format_of_gnu_tar() {
    let source = tempfile::tempdir().unwrap();
    let sparse = source.path().join("sparse");
    let file = File::create(&sparse).unwrap();
    let mut content = vec![0; 24 * 1024 * 1024];
    // More pieces than a header has room for.
    for piece in 0..40 {
        let offset = piece * 512 * 1024;
        content[offset..offset + 5].copy_from_slice(b"piece");
        rustix::io::pwrite(&file, b"piece", offset as u64).unwrap();
    }
    file.set_len(content.len() as u64).unwrap();
    let directory = source.path().to_str().unwrap();

    for format in [
        &["--format=gnu"][..],
        &["--format=pax", "--sparse-version=0.0"],
        &["--format=pax", "--sparse-version=0.1"],
        &["--format=pax", "--sparse-version=1.0"],
    ] {
        let archive = tempfile::NamedTempFile::new().unwrap();
        let out = archive.path().to_str().unwrap();
        run("tar", &[format, &["-C", directory, "--sparse", "-cf", out, "sparse"]].concat());
        assert!(archive.path().metadata().unwrap().len() < 1024 * 1024, "{format:?} has holes");

        let tree = tempfile::tempdir().unwrap();
        unpack(&fs::read(archive.path()).unwrap(), tree.path()).unwrap();
        let unpacked = tree.path().join("sparse");
        assert!(fs::read(&unpacked).unwrap() == content, "{format:?}");
        assert!(fs::metadata(&unpacked).unwrap().blocks() * 512 < 2 * 1024 * 1024, "{format:?}");
    }
}

#[test]
fn a_real_tree_comes_out_of_every_format_as_it_went_in() {
    let source = tempfile::tempdir().unwrap();
    let at = |name: &str| source.path().join(name);
    fs::create_dir_all(at("a/b/c")).unwrap();
    fs::write(at("a/file"), b"content").unwrap();
    fs::hard_link(at("a/file"), at("a/b/link")).unwrap();
    std::os::unix::fs::symlink("a/file", at("symlink")).unwrap();
    let long = format!("a/{}", "d".repeat(90));
    fs::create_dir(at(&long)).unwrap();
    fs::write(at(&format!("{long}/{}", "n".repeat(90))), b"long name").unwrap();
    fs::write(at("a/b/c/locked"), b"").unwrap();
    fs::set_permissions(at("a/b/c"), fs::Permissions::from_mode(0o500)).unwrap();
    for format in ["gnu", "pax", "ustar"] {
        let archive = tempfile::NamedTempFile::new().unwrap();
        let out = archive.path().to_str().unwrap();
        let directory = source.path().to_str().unwrap();
        run("tar", &[&format!("--format={format}"), "-C", directory, "-cf", out, "."]);
        let tree = tempfile::tempdir().unwrap();
        unpack(&fs::read(archive.path()).unwrap(), tree.path()).unwrap();
        let unpacked = tree.path().to_str().unwrap();
        run("diff", &["-r", "--no-dereference", directory, unpacked]);
        assert_eq!(fs::metadata(tree.path().join("a/b/c")).unwrap().mode() & 0o777, 0o500);
    }
}

/// Where ids other than our own cannot be given away, and nothing is mounted: what a daemon without root has.
#[test]
fn in_a_user_namespace_with_one_id_everything_but_the_owner_is_kept() {
    const CHILD: &str = "IMAGES_TEST_NAMESPACE";
    if let Ok(directory) = std::env::var(CHILD) {
        let unpacked = unpack(
            &fs::read(Path::new(&directory).join("layer")).unwrap(),
            &Path::new(&directory).join("fs"),
        );
        assert_eq!(unpacked.unwrap().warnings.texts, ["could not give owned to 7:8"]);
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let tree = directory.path().join("fs");
    fs::create_dir(&tree).unwrap();
    let tar = Layer::default()
        .entry(&Entry { path: "owned", owner: (7, 8), mode: 0o4711, data: b"x", ..Entry::default() })
        .directory("d")
        .file("d/.wh..wh..opq", b"")
        .file(".wh.gone", b"")
        .tar();
    fs::write(directory.path().join("layer"), tar).unwrap();
    let probe = std::process::Command::new("unshare").args(["--user", "--map-root-user", "true"]).output();
    if !probe.is_ok_and(|output| output.status.success()) {
        println!("skipped: no user namespaces here");
        return;
    }
    let status = std::process::Command::new("unshare")
        .args(["--user", "--map-root-user", "--"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "layers::in_a_user_namespace_with_one_id_everything_but_the_owner_is_kept"])
        .env(CHILD, directory.path())
        .status()
        .unwrap();
    assert!(status.success());
    assert!(fs::symlink_metadata(tree.join("gone")).unwrap().file_type().is_char_device());
    assert_eq!(attribute(&tree.join("d"), "user.overlay.opaque").as_deref(), Some(&b"y"[..]));
    assert_eq!(fs::metadata(tree.join("owned")).unwrap().mode() & 0o7777, 0o4711);
}

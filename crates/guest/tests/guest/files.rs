//! Reading, writing and changing files.

use std::{
    fs,
    os::unix::{
        fs::{MetadataExt, PermissionsExt, symlink},
        net::UnixListener,
    },
};

use guest_protocol::{EntryKind, FailureKind, FileEntry, Frame, FrameKind, Request, Response, WriteMode};

use crate::support::{Host, TestGuest, eventually, write_file};

fn read(path: &str, offset: u64, length: Option<u64>) -> Request {
    Request::Read { path: path.to_owned(), offset, length }
}

fn write(path: &str, write: WriteMode) -> Request {
    Request::Write { path: path.to_owned(), write, mode: None, parents: false }
}

fn read_all(host: &mut Host, request: &Request) -> Vec<u8> {
    match host.ask(request) {
        Ok(Response::Reading { .. }) => host.body(),
        other => panic!("{other:?}"),
    }
}

fn stat(host: &mut Host, path: &str, follow: bool) -> FileEntry {
    match host.ask(&Request::Stat { path: path.to_owned(), follow }) {
        Ok(Response::Entry { entry }) => entry,
        other => panic!("{other:?}"),
    }
}

fn list(host: &mut Host, path: &str, recursive: bool, limit: u32) -> (Vec<String>, bool) {
    match host.ask(&Request::List { path: path.to_owned(), recursive, limit }) {
        Ok(Response::Entries { entries, truncated }) => {
            let relative = |entry: FileEntry| entry.path.strip_prefix(path).unwrap().to_owned();
            (entries.into_iter().map(relative).collect(), truncated)
        }
        other => panic!("{other:?}"),
    }
}

/// Names in a directory, to find leftovers.
fn names(path: &str) -> Vec<String> {
    let mut names: Vec<_> =
        fs::read_dir(path).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn bytes_come_back_as_they_went_in() {
    let guest = TestGuest::start();
    let mut host = guest.connect();
    for size in [0, 1, 4095, 256 * 1024, 256 * 1024 + 1, 3 * 1024 * 1024 + 7, 20 * 1024 * 1024] {
        let bytes: Vec<u8> = (0..size).map(|n: usize| (n ^ (n >> 9)) as u8).collect();
        let path = guest.path("file");
        let written = host.ask_with_body(&write(&path, WriteMode::Replace), &bytes);
        assert_eq!(written, Ok(Response::Written { bytes: size as u64 }));
        assert!(fs::read(&path).unwrap() == bytes);
        assert!(read_all(&mut host, &read(&path, 0, None)) == bytes);
    }
}

#[test]
fn reads_take_any_range() {
    let guest = TestGuest::start();
    let mut host = guest.connect();
    let path = guest.path("file");
    fs::write(&path, "0123456789").unwrap();
    let mut check = |offset, length, expected: &str| {
        assert_eq!(read_all(&mut host, &read(&path, offset, length)), expected.as_bytes());
    };
    check(0, Some(0), "");
    check(3, None, "3456789");
    check(3, Some(4), "3456");
    check(8, Some(100), "89");
    check(10, None, "");
    check(u64::MAX, Some(u64::MAX), "");
    // The kernel's own files have no size.
    let version = read_all(&mut host, &read("/proc/version", 0, None));
    assert_eq!(version, fs::read("/proc/version").unwrap());
}

#[test]
fn odd_files_never_make_the_guest_wait() {
    let guest = TestGuest::start();
    let mut host = guest.connect();
    let (fifo, socket) = (guest.path("fifo"), guest.path("socket"));
    rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, rustix::fs::Mode::RWXU).unwrap();
    let _listener = UnixListener::bind(&socket).unwrap();
    for path in [fifo.as_str(), &socket, "/tmp"] {
        assert_eq!(host.fails(&read(path, 0, None)), FailureKind::WrongState, "{path}");
        for mode in [WriteMode::Replace, WriteMode::Append, WriteMode::At(3)] {
            let failure = host.ask_with_body(&write(path, mode), b"x").unwrap_err();
            assert_eq!(failure.kind, FailureKind::WrongState, "{path}: {failure}");
        }
    }
    assert_eq!(read_all(&mut host, &read("/dev/zero", 0, Some(1_000_000))), vec![0; 1_000_000]);
    assert_eq!(read_all(&mut host, &read("/dev/null", 0, None)), b"");
    // Without a length it never ends; the host disconnects, and the guest continues.
    let mut endless = guest.connect();
    assert!(matches!(endless.ask(&read("/dev/zero", 0, None)), Ok(Response::Reading { .. })));
    for _ in 0..20 {
        assert_eq!(endless.frame().kind, FrameKind::Data);
    }
    drop(endless);
    assert_eq!(host.ask(&Request::Ping), Ok(Response::Done));
}

#[test]
fn a_replaced_file_keeps_its_owner_mode_and_links() {
    let guest = TestGuest::start();
    let mut host = guest.connect();
    let (path, link) = (guest.path("file"), guest.path("link"));
    write_file(&path, 0o4750, "old");
    std::os::unix::fs::chown(&path, Some(12), Some(34)).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
    symlink("file", &link).unwrap();
    host.ask_with_body(&write(&link, WriteMode::Replace), b"new").unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), "new");
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    let metadata = fs::metadata(&path).unwrap();
    assert_eq!((metadata.uid(), metadata.gid(), metadata.mode() & 0o7777), (12, 34, 0o640));
    // Through a dangling link, the file appears at the link's target.
    symlink("missing", guest.path("dangling")).unwrap();
    host.ask_with_body(&write(&guest.path("dangling"), WriteMode::Replace), b"made").unwrap();
    assert_eq!(fs::read_to_string(guest.path("missing")).unwrap(), "made");
    symlink("loop", guest.path("loop")).unwrap();
    let failure = host.ask_with_body(&write(&guest.path("loop"), WriteMode::Replace), b"x").unwrap_err();
    assert_eq!(failure.kind, FailureKind::WrongState);
}

#[test]
fn the_three_ways_to_write() {
    let guest = TestGuest::start();
    let mut host = guest.connect();
    let path = guest.path("a/b/c");
    let failure = host.ask_with_body(&write(&path, WriteMode::Replace), b"x").unwrap_err();
    assert_eq!(failure.kind, FailureKind::NotFound);
    let with_parents =
        Request::Write { path: path.clone(), write: WriteMode::Append, mode: Some(0o600), parents: true };
    for _ in 0..2 {
        host.ask_with_body(&with_parents, b"line\n").unwrap();
    }
    assert_eq!(fs::read_to_string(&path).unwrap(), "line\nline\n");
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o600);
    let failure = host.ask_with_body(&write(&path, WriteMode::CreateNew), b"x").unwrap_err();
    assert_eq!(failure.kind, FailureKind::AlreadyExists);
    host.ask_with_body(&write(&guest.path("new"), WriteMode::CreateNew), b"x").unwrap();
    assert_eq!(fs::metadata(guest.path("new")).unwrap().mode() & 0o7777, 0o644);
    assert_eq!(names(&guest.path("a/b")), ["c"]);
    for bad in ["relative", "", "a\0b"] {
        let failure = host.ask_with_body(&write(bad, WriteMode::Replace), b"x").unwrap_err();
        assert_eq!(failure.kind, FailureKind::InvalidRequest);
    }
}

#[test]
fn pieces_are_written_in_place() {
    let guest = TestGuest::start();
    let mut host = guest.connect();
    let path = guest.path("file");
    let mut check = |offset, bytes: &[u8], expected: &[u8]| {
        let written = host.ask_with_body(&write(&path, WriteMode::At(offset)), bytes);
        assert_eq!(written, Ok(Response::Written { bytes: bytes.len() as u64 }));
        assert_eq!(fs::read(&path).unwrap(), expected);
    };
    // Out of order, as SFTP clients write: the gap is a hole, and nothing else changes.
    check(6, b"sea", b"\0\0\0\0\0\0sea");
    check(0, b"by the", b"by thesea");
    check(2, b"", b"by thesea");
    check(9, b"side", b"by theseaside");
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o644);
    let inode = fs::metadata(&path).unwrap().ino();
    symlink("file", guest.path("link")).unwrap();
    host.ask_with_body(&write(&guest.path("link"), WriteMode::At(3)), b"THE").unwrap();
    assert_eq!(
        (fs::read(&path).unwrap(), fs::metadata(&path).unwrap().ino()),
        (b"by THEseaside".to_vec(), inode)
    );
    let failure = host.ask_with_body(&write(&path, WriteMode::At(u64::MAX)), b"x").unwrap_err();
    assert_eq!(fs::read(&path).unwrap(), b"by THEseaside", "{failure}");
}

#[test]
fn a_body_that_never_ends_changes_nothing() {
    let guest = TestGuest::start();
    let directory = guest.path("d");
    fs::create_dir(&directory).unwrap();
    let path = format!("{directory}/file");
    fs::write(&path, "old").unwrap();
    for mode in [WriteMode::Replace, WriteMode::Append, WriteMode::CreateNew] {
        let target = if mode == WriteMode::CreateNew { format!("{directory}/new") } else { path.clone() };
        let mut host = guest.connect();
        host.request(&write(&target, mode));
        for _ in 0..20 {
            host.send(&Frame::new(FrameKind::Data, vec![b'x'; 256 * 1024]));
        }
        // The guest has begun to write before we disconnect.
        let began = || names(&directory).len() > 1 || fs::read(&path).unwrap().len() > 3;
        eventually("the guest writes", began);
        drop(host);
        eventually("everything is as before", || {
            names(&directory) == ["file"] && fs::read_to_string(&path).unwrap() == "old"
        });
    }
}

#[test]
fn listings_are_sorted_bounded_and_follow_no_symlinks() {
    let guest = TestGuest::start();
    let mut host = guest.connect();
    let root = guest.path("tree");
    for directory in ["", "/b", "/b/deep", "/a"] {
        fs::create_dir(format!("{root}{directory}")).unwrap();
    }
    for file in ["/b/deep/z", "/b/y", "/c", "/a/x"] {
        fs::write(format!("{root}{file}"), "12345").unwrap();
    }
    symlink("..", format!("{root}/b/up")).unwrap();
    assert_eq!(list(&mut host, &root, false, 100), (["/a", "/b", "/c"].map(str::to_owned).to_vec(), false));
    let all = ["/a", "/a/x", "/b", "/b/deep", "/b/deep/z", "/b/up", "/b/y", "/c"];
    assert_eq!(list(&mut host, &root, true, 100), (all.map(str::to_owned).to_vec(), false));
    assert_eq!(
        list(&mut host, &root, true, 3),
        (all[..3].iter().map(|&name| name.to_owned()).collect(), true)
    );
    assert_eq!(
        host.fails(&Request::List { path: format!("{root}/c"), recursive: false, limit: 9 }),
        FailureKind::WrongState
    );
    assert_eq!(
        host.fails(&Request::List { path: format!("{root}/no"), recursive: false, limit: 9 }),
        FailureKind::NotFound
    );

    let file = stat(&mut host, &format!("{root}/c"), true);
    assert_eq!((file.kind, file.size), (EntryKind::File, 5));
    let link = stat(&mut host, &format!("{root}/b/up"), false);
    assert_eq!((link.kind, link.target.as_deref()), (EntryKind::Symlink, Some("..")));
    assert_eq!(stat(&mut host, &format!("{root}/b/up"), true).kind, EntryKind::Directory);
    assert_eq!(stat(&mut host, "/dev/null", true).kind, EntryKind::Device);
}

#[test]
fn a_listing_of_the_whole_system_fits_in_an_answer() {
    let guest = TestGuest::start();
    let (entries, truncated) = list(&mut guest.connect(), "/", true, u32::MAX);
    assert!(truncated && entries.len() > 1000);
}

#[test]
fn directories_are_made_and_removed() {
    let guest = TestGuest::start();
    let mut host = guest.connect();
    let root = guest.path("r");
    let mkdir = |path: String, parents, mode| Request::Mkdir { path, parents, mode };
    assert_eq!(host.fails(&mkdir(format!("{root}/a/b"), false, None)), FailureKind::NotFound);
    assert_eq!(host.ask(&mkdir(format!("{root}/a/b"), true, Some(0o700))), Ok(Response::Done));
    assert_eq!(fs::metadata(format!("{root}/a/b")).unwrap().mode() & 0o7777, 0o700);
    assert_eq!(host.ask(&mkdir(format!("{root}/a/b"), true, None)), Ok(Response::Done));
    assert_eq!(host.fails(&mkdir(format!("{root}/a/b"), false, None)), FailureKind::AlreadyExists);
    fs::write(format!("{root}/a/file"), "").unwrap();
    assert_eq!(host.fails(&mkdir(format!("{root}/a/file/x"), true, None)), FailureKind::WrongState);
    assert_eq!(host.fails(&mkdir(format!("{root}/x"), false, Some(0o10000))), FailureKind::InvalidRequest);

    let remove = |path: String, recursive| Request::Remove { path, recursive };
    fs::create_dir(guest.path("outside")).unwrap();
    fs::write(guest.path("outside/kept"), "").unwrap();
    symlink(guest.path("outside"), format!("{root}/a/link")).unwrap();
    assert_eq!(host.fails(&remove(root.clone(), false)), FailureKind::WrongState);
    assert_eq!(host.ask(&remove(root.clone(), true)), Ok(Response::Done));
    assert_eq!(host.fails(&remove(root, true)), FailureKind::NotFound);
    assert!(fs::exists(guest.path("outside/kept")).unwrap());
    assert_eq!(host.fails(&remove("/".to_owned(), true)), FailureKind::WrongState);
}

#[test]
fn a_tree_deeper_than_we_walk_is_refused_and_the_guest_lives() {
    let guest = TestGuest::start();
    let mut host = guest.connect();
    let root = guest.path("deep");
    let script =
        format!("mkdir {root}; cd {root}; i=0; while [ $i -lt 1500 ]; do mkdir d; cd -P d; i=$((i+1)); done");
    guest.shell("dig", &script);
    assert_eq!(
        host.fails(&Request::Remove { path: root.clone(), recursive: true }),
        FailureKind::LimitReached
    );
    assert!(list(&mut host, &root, true, 10_000).1);
    assert_eq!(host.ask(&Request::Ping), Ok(Response::Done));
    guest.shell("rm", &format!("rm -rf {root}"));
}

#[test]
fn copies_keep_modes_and_symlinks_and_stay_out_of_themselves() {
    let guest = TestGuest::start();
    let mut host = guest.connect();
    let copy = |from: String, to: String, recursive| Request::Copy { from, to, recursive };
    let root = guest.path("from");
    fs::create_dir_all(format!("{root}/sub")).unwrap();
    write_file(format!("{root}/sub/run"), 0o4755, "#!/bin/sh\n");
    symlink("run", format!("{root}/sub/link")).unwrap();
    fs::set_permissions(format!("{root}/sub"), fs::Permissions::from_mode(0o555)).unwrap();
    assert_eq!(host.fails(&copy(root.clone(), guest.path("to"), false)), FailureKind::WrongState);
    assert_eq!(host.ask(&copy(root.clone(), guest.path("to"), true)), Ok(Response::Done));
    let mode = |name: &str| fs::metadata(guest.path(name)).unwrap().mode() & 0o7777;
    assert_eq!((mode("to/sub"), mode("to/sub/run")), (0o555, 0o755));
    assert_eq!(fs::read_link(guest.path("to/sub/link")).unwrap().to_str(), Some("run"));
    for inside in [format!("{root}/sub/x"), root.clone(), format!("{root}/x")] {
        assert_eq!(host.fails(&copy(root.clone(), inside, true)), FailureKind::InvalidRequest);
    }
    assert_eq!(host.ask(&copy(format!("{root}/sub/run"), guest.path("one"), false)), Ok(Response::Done));
    assert_eq!(fs::read_to_string(guest.path("one")).unwrap(), "#!/bin/sh\n");
    assert_eq!(host.ask(&copy(format!("{root}/sub/link"), guest.path("two"), false)), Ok(Response::Done));
    assert_eq!(fs::read_to_string(guest.path("two")).unwrap(), "#!/bin/sh\n");
    assert_eq!(host.fails(&copy(guest.path("one"), guest.path("to"), false)), FailureKind::WrongState);
    assert_eq!(host.fails(&copy(guest.path("one"), guest.path("one"), false)), FailureKind::WrongState);
    assert_eq!(host.fails(&copy(guest.path("no"), guest.path("x"), true)), FailureKind::NotFound);
    assert_eq!(host.ask(&copy("/proc/version".into(), guest.path("version"), false)), Ok(Response::Done));
    assert_eq!(fs::read(guest.path("version")).unwrap(), fs::read("/proc/version").unwrap());
}

#[test]
fn names_links_modes_and_owners_change() {
    let guest = TestGuest::start();
    let mut host = guest.connect();
    let (a, b, link) = (guest.path("a"), guest.path("b"), guest.path("l"));
    fs::write(&a, "a").unwrap();
    fs::write(&b, "b").unwrap();
    let rename = |replace| Request::Rename { from: a.clone(), to: b.clone(), replace };
    assert_eq!(host.fails(&rename(false)), FailureKind::AlreadyExists);
    assert_eq!(host.ask(&rename(true)), Ok(Response::Done));
    assert_eq!(fs::read_to_string(&b).unwrap(), "a");
    assert_eq!(host.fails(&rename(true)), FailureKind::NotFound);
    let away = Request::Rename { from: b.clone(), to: "/dev/shm/warren-guest-test".into(), replace: true };
    assert_eq!(host.fails(&away), FailureKind::WrongState);

    assert_eq!(host.ask(&Request::Symlink { target: "/etc".into(), path: link.clone() }), Ok(Response::Done));
    assert_eq!(
        host.fails(&Request::Symlink { target: "/etc".into(), path: link.clone() }),
        FailureKind::AlreadyExists
    );
    assert_eq!(host.ask(&Request::Readlink { path: link }), Ok(Response::Link { target: "/etc".into() }));
    assert_eq!(host.fails(&Request::Readlink { path: b.clone() }), FailureKind::WrongState);

    let tree = guest.path("t");
    fs::create_dir_all(format!("{tree}/sub")).unwrap();
    fs::write(format!("{tree}/sub/f"), "").unwrap();
    symlink(&b, format!("{tree}/link")).unwrap();
    let before = fs::metadata(&b).unwrap();
    assert_eq!(
        host.ask(&Request::Chmod { path: tree.clone(), mode: 0o711, recursive: true }),
        Ok(Response::Done)
    );
    let chown = Request::Chown { path: tree.clone(), uid: Some(7), gid: None, recursive: true };
    assert_eq!(host.ask(&chown), Ok(Response::Done));
    for name in ["", "/sub", "/sub/f"] {
        let metadata = fs::metadata(format!("{tree}{name}")).unwrap();
        assert_eq!((metadata.mode() & 0o7777, metadata.uid(), metadata.gid()), (0o711, 7, 0), "{name}");
    }
    let after = fs::metadata(&b).unwrap();
    assert_eq!((after.mode(), after.uid()), (before.mode(), before.uid()), "the symlink was followed");
    assert_eq!(fs::symlink_metadata(format!("{tree}/link")).unwrap().uid(), 7);
}

#[test]
fn a_full_disk_is_a_failure_and_leaves_no_rest() {
    let guest = TestGuest::start();
    let mut host = guest.connect();
    let small = guest.path("small");
    fs::create_dir(&small).unwrap();
    let mounted = guest.shell("mount", &format!("mount -t tmpfs -o size=1m tmpfs {small}"));
    if mounted.report.code != Some(0) {
        println!("skipped: mounting a tmpfs needs CAP_SYS_ADMIN");
        return;
    }
    let path = format!("{small}/file");
    let failure =
        host.ask_with_body(&write(&path, WriteMode::Replace), &vec![1; 8 * 1024 * 1024]).unwrap_err();
    assert_eq!(failure.kind, FailureKind::LimitReached, "{failure}");
    assert_eq!(names(&small), [""; 0]);
    assert_eq!(host.ask(&Request::Ping), Ok(Response::Done));
    guest.shell("umount", &format!("umount {small}"));
}

//! Trees in and out as tar streams.

use std::{
    fs,
    os::unix::fs::{FileExt, MetadataExt, symlink},
    path::Path,
};

use guest_protocol::{Failure, FailureKind, Frame, FrameKind, Request, Response};
use tar::{Archive, Builder, EntryType, Header};

use crate::support::{Host, TestGuest, children, eventually, write_file};

fn pack(host: &mut Host, path: &str) -> Vec<u8> {
    match host.ask(&Request::TarOut { path: path.to_owned() }) {
        Ok(Response::Packing) => host.body(),
        other => panic!("{other:?}"),
    }
}

fn unpack(host: &mut Host, path: &str, keep_ids: bool, archive: &[u8]) -> Result<Response, Failure> {
    host.ask_with_body(&Request::TarIn { path: path.to_owned(), keep_ids }, archive)
}

/// An archive made by hand, with names that no careful program would write.
struct Crafted(Builder<Vec<u8>>);

impl Crafted {
    fn new() -> Self {
        Self(Builder::new(vec![]))
    }

    fn entry(mut self, kind: EntryType, name: &str, link: &str, text: &str) -> Self {
        let mut header = Header::new_old();
        let fields = header.as_old_mut();
        fields.name[..name.len()].copy_from_slice(name.as_bytes());
        fields.linkname[..link.len()].copy_from_slice(link.as_bytes());
        header.set_entry_type(kind);
        header.set_mode(0o4755);
        header.set_uid(77);
        header.set_gid(88);
        header.set_mtime(1_000_000_000);
        header.set_size(text.len() as u64);
        header.set_cksum();
        self.0.append(&header, text.as_bytes()).unwrap();
        self
    }

    /// A sparse file of `size` bytes: some text, nothing, and the text again at its end.
    fn sparse(mut self, name: &str, size: u64, text: &str) -> Self {
        let padding = text.len().next_multiple_of(512) - text.len();
        let data = format!("{text}{}{text}", "\0".repeat(padding));
        let mut header = Header::new_gnu();
        header.set_path(name).unwrap();
        header.set_entry_type(EntryType::GNUSparse);
        header.set_mode(0o644);
        header.set_size(data.len() as u64);
        let fields = header.as_gnu_mut().unwrap();
        let first = data.len() - text.len();
        let pieces = [(0, first), (size - text.len() as u64, text.len())];
        for (piece, (offset, length)) in fields.sparse.iter_mut().zip(pieces) {
            piece.offset = number(offset);
            piece.numbytes = number(length as u64);
        }
        fields.realsize = number(size);
        header.set_cksum();
        self.0.append(&header, data.as_bytes()).unwrap();
        self
    }

    /// A sparse file of single bytes.
    fn scattered(mut self, name: &str) -> Self {
        let records: [(&str, &[u8]); 2] =
            [("GNU.sparse.size", b"9000"), ("GNU.sparse.map", b"0,1,4096,1,9000,0")];
        self.0.append_pax_extensions(records).unwrap();
        self.entry(EntryType::Regular, name, "", "xx")
    }

    fn done(self) -> Vec<u8> {
        self.0.into_inner().unwrap()
    }
}

/// A number in base 256, as in a sparse header, which has room for every size.
fn number(value: u64) -> [u8; 12] {
    let mut field = [0; 12];
    field[0] = 0x80;
    field[4..].copy_from_slice(&value.to_be_bytes());
    field
}

#[test]
fn a_tree_survives_the_way_out_and_in() {
    let guest = TestGuest::start();
    let mut host = guest.connect();
    let root = guest.path("tree");
    let long = "long-".repeat(40);
    fs::create_dir_all(format!("{root}/{long}/{long}")).unwrap();
    write_file(format!("{root}/{long}/{long}/file"), 0o640, &"content ".repeat(100_000));
    write_file(format!("{root}/empty"), 0o600, "");
    symlink(&long, format!("{root}/link")).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(guest.path("tree/socket")).unwrap();
    let archive = pack(&mut host, &root);
    let mut reader = Archive::new(&archive[..]);
    let names: Vec<_> =
        reader.entries().unwrap().map(|entry| entry.unwrap().path().unwrap().display().to_string()).collect();
    assert_eq!(names[0], "tree/");
    assert!(names.iter().all(|name| name.starts_with("tree/") && !name.contains("socket")), "{names:?}");

    let target = guest.path("target");
    fs::create_dir(&target).unwrap();
    let bytes = archive.len() as u64;
    assert_eq!(unpack(&mut host, &target, true, &archive), Ok(Response::Written { bytes }));
    let copy = format!("{target}/tree/{long}/{long}/file");
    assert_eq!(fs::read_to_string(&copy).unwrap(), "content ".repeat(100_000));
    assert_eq!(fs::metadata(&copy).unwrap().mode() & 0o7777, 0o640);
    assert_eq!(fs::read_link(format!("{target}/tree/link")).unwrap(), Path::new(&long));
    // A second time, over the existing files.
    assert_eq!(unpack(&mut host, &target, true, &archive), Ok(Response::Written { bytes }));
    // A single file, and a missing one.
    let single = pack(&mut host, &format!("{root}/empty"));
    assert_eq!(Archive::new(&single[..]).entries().unwrap().count(), 1);
    assert_eq!(host.fails(&Request::TarOut { path: format!("{root}/no") }), FailureKind::NotFound);
    assert_eq!(
        unpack(&mut host, &format!("{root}/no"), true, &archive).unwrap_err().kind,
        FailureKind::NotFound
    );
    assert_eq!(host.ask(&Request::Ping), Ok(Response::Done));
}

#[test]
fn archives_cannot_leave_their_directory() {
    let guest = TestGuest::start();
    let mut host = guest.connect();
    let outside = guest.path("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(format!("{outside}/secret"), "kept").unwrap();
    let file = EntryType::Regular;
    let attempts = [
        Crafted::new().entry(file, "../outside/evil", "", "x"),
        Crafted::new().entry(file, "a/../../outside/evil", "", "x"),
        Crafted::new().entry(file, &format!("{outside}/evil"), "", "x"),
        Crafted::new().entry(EntryType::Symlink, "l", &outside, "").entry(file, "l/evil", "", "x"),
        Crafted::new().entry(EntryType::Symlink, "l", "../outside", "").entry(file, "l/evil", "", "x"),
        Crafted::new().entry(EntryType::Symlink, "l", "..", "").entry(file, "l/outside/evil", "", "x"),
        Crafted::new().entry(EntryType::Symlink, "l", "../outside", "").entry(
            EntryType::Directory,
            "l/evil/deep",
            "",
            "",
        ),
        Crafted::new().entry(EntryType::Link, "evil", "../outside/secret", ""),
        Crafted::new().entry(EntryType::Link, "evil", &format!("{outside}/secret"), ""),
        Crafted::new().entry(EntryType::Symlink, "l", "../outside", "").entry(
            EntryType::Link,
            "evil",
            "l/secret",
            "",
        ),
        Crafted::new().entry(EntryType::Char, "evil", "", ""),
        Crafted::new().entry(EntryType::Block, "evil", "", ""),
    ];
    for (number, attempt) in attempts.into_iter().enumerate() {
        let target = guest.path(&format!("target{number}"));
        fs::create_dir(&target).unwrap();
        let failure = unpack(&mut host, &target, true, &attempt.done()).unwrap_err();
        assert_eq!(failure.kind, FailureKind::InvalidRequest, "{number}: {failure}");
        let names: Vec<_> = fs::read_dir(&outside).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, ["secret"], "{number}");
        assert!(!fs::exists(format!("{target}/evil")).unwrap(), "{number}");
    }
    // A symlink in the place of a file is replaced, not written through.
    let target = guest.path("target");
    fs::create_dir(&target).unwrap();
    symlink(format!("{outside}/secret"), format!("{target}/file")).unwrap();
    unpack(&mut host, &target, true, &Crafted::new().entry(file, "file", "", "new").done()).unwrap();
    assert_eq!(fs::read_to_string(format!("{outside}/secret")).unwrap(), "kept");
    assert_eq!(fs::read_to_string(format!("{target}/file")).unwrap(), "new");
    // A symlink that stays inside can be followed.
    let inside = Crafted::new()
        .entry(EntryType::Directory, "real", "", "")
        .entry(EntryType::Symlink, "alias", "real", "")
        .entry(file, "alias/file", "", "x");
    unpack(&mut host, &target, true, &inside.done()).unwrap();
    assert_eq!(fs::read_to_string(format!("{target}/real/file")).unwrap(), "x");
}

#[test]
fn owners_and_the_bits_that_lend_them_go_together() {
    let guest = TestGuest::start();
    let mut host = guest.connect();
    let archive = Crafted::new().entry(EntryType::Regular, "file", "", "x").done();
    for (keep_ids, expected) in [(true, (77, 88, 0o4755)), (false, (0, 0, 0o755))] {
        let target = guest.path(&format!("{keep_ids}"));
        fs::create_dir(&target).unwrap();
        unpack(&mut host, &target, keep_ids, &archive).unwrap();
        let metadata = fs::metadata(format!("{target}/file")).unwrap();
        assert_eq!((metadata.uid(), metadata.gid(), metadata.mode() & 0o7777), expected);
        assert_eq!(metadata.mtime(), 1_000_000_000);
    }
}

#[test]
fn broken_and_greedy_archives_are_failures() {
    let guest = TestGuest::start();
    let mut host = guest.connect();
    let target = guest.path("target");
    fs::create_dir(&target).unwrap();
    let good = Crafted::new().entry(EntryType::Regular, "file", "", &"x".repeat(5000)).done();
    let mut greedy = Header::new_gnu();
    greedy.set_entry_type(EntryType::GNULongName);
    greedy.set_path("././@LongLink").unwrap();
    greedy.set_size(1 << 40);
    greedy.set_cksum();
    let greedy = [greedy.as_bytes().as_slice(), &vec![b'n'; 4 * 1024 * 1024]].concat();
    for (what, bytes) in [("cut", &good[..3000]), ("noise", &[0xaa; 4096]), ("greedy", &greedy)] {
        let failure = unpack(&mut host, &target, false, bytes).unwrap_err();
        assert!(
            matches!(failure.kind, FailureKind::InvalidRequest | FailureKind::Internal),
            "{what}: {failure}"
        );
        // The message contains nothing of the invalid archive.
        assert!(failure.message.bytes().all(|byte| byte.is_ascii_graphic() || byte == b' '), "{failure}");
    }
    assert!(unpack(&mut host, &target, false, b"").is_ok());
    assert!(guest.private_bytes() < 8 * 1024 * 1024, "{}", guest.private_bytes());
}

#[test]
fn a_file_that_changes_while_it_is_packed_does_not_shift_the_others() {
    let guest = TestGuest::start();
    let mut host = guest.connect();
    let root = guest.path("tree");
    fs::create_dir(&root).unwrap();
    let size = 64 * 1024 * 1024;
    fs::write(format!("{root}/a"), vec![1; size]).unwrap();
    fs::write(format!("{root}/b"), "after").unwrap();
    // The guest cannot send it all before we read, so it is still reading when the file shrinks.
    assert_eq!(host.ask(&Request::TarOut { path: root.clone() }), Ok(Response::Packing));
    let mut body = host.frame().payload.to_vec();
    fs::File::options().write(true).open(format!("{root}/a")).unwrap().set_len(10).unwrap();
    body.extend(host.body());
    let mut archive = Archive::new(&body[..]);
    let entries: Vec<_> = archive
        .entries()
        .unwrap()
        .map(|entry| {
            let entry = entry.unwrap();
            (entry.path().unwrap().display().to_string(), entry.size())
        })
        .collect();
    let expected =
        [("tree/", 0), ("tree/a", size as u64), ("tree/b", 5)].map(|(name, size)| (name.to_owned(), size));
    assert_eq!(entries, expected);
}

#[test]
fn slow_hosts_leave_threads_for_everyone_else() {
    let guest = TestGuest::start();
    let (tree, target) = (guest.path("tree"), guest.path("target"));
    for directory in [&tree, &target] {
        fs::create_dir(directory).unwrap();
    }
    // More than sockets and queues hold, so that the packer has to wait.
    fs::File::create(format!("{tree}/large")).unwrap().set_len(64 << 20).unwrap();
    let mut slow = vec![];
    for n in 0..16 {
        let mut host = guest.connect();
        if n % 2 == 0 {
            assert_eq!(host.ask(&Request::TarOut { path: tree.clone() }), Ok(Response::Packing));
        } else {
            host.request(&Request::TarIn { path: target.clone(), keep_ids: false });
        }
        slow.push(host);
    }
    // One more is refused, unless the last of the others has not arrived yet.
    eventually("there are too many", || {
        matches!(guest.connect().ask(&Request::TarOut { path: tree.clone() }),
            Err(failure) if failure.kind == FailureKind::LimitReached)
    });
    let mut host = guest.connect();
    let stat = Request::Stat { path: tree.clone(), follow: true };
    assert!(matches!(host.ask(&stat), Ok(Response::Entry { .. })));
    // A disconnect makes room.
    drop(slow);
    eventually("there is room", || {
        matches!(guest.connect().ask(&Request::TarOut { path: target.clone() }), Ok(Response::Packing))
    });
}

#[test]
fn holes_stay_holes() {
    const SIZE: u64 = 1 << 30;
    let guest = TestGuest::start();
    let mut host = guest.connect();
    let target = guest.path("target");
    fs::create_dir(&target).unwrap();
    // A sparse file, and one with all its zeros, as we pack them ourselves.
    let zeros = format!("begin{}end", "\0".repeat(3 << 20));
    let archive = Crafted::new()
        .sparse("sparse", SIZE, "text")
        .entry(EntryType::Regular, "plain", "", &zeros)
        .entry(EntryType::Regular, "only-zeros", "", &"\0".repeat(1 << 20))
        .done();
    unpack(&mut host, &target, false, &archive).unwrap();
    let taken = |name: &str| {
        let metadata = fs::metadata(format!("{target}/{name}")).unwrap();
        (metadata.len(), metadata.blocks() * 512)
    };
    let (length, taken_sparse) = taken("sparse");
    assert_eq!(length, SIZE);
    assert!(taken_sparse <= 64 * 1024, "{taken_sparse}");
    let sparse = fs::File::open(format!("{target}/sparse")).unwrap();
    for (offset, expected) in [(0, b"text\0"), (SIZE - 5, b"\0text")] {
        let mut found = [1; 5];
        sparse.read_exact_at(&mut found, offset).unwrap();
        assert_eq!(&found, expected);
    }
    assert_eq!(fs::read_to_string(format!("{target}/plain")).unwrap(), zeros);
    assert!(taken("plain").1 <= 64 * 1024, "{:?}", taken("plain"));
    let (length, taken_zeros) = taken("only-zeros");
    assert_eq!(length, 1 << 20);
    assert!(taken_zeros <= 4096, "{taken_zeros}");
}

#[test]
fn sparse_files_without_end_are_refused() {
    const TIB: u64 = 1 << 40;
    let guest = TestGuest::start();
    let mut host = guest.connect();
    let target = guest.path("target");
    fs::create_dir(&target).unwrap();
    // The name is the directory itself, so nothing is written; its holes would still be read.
    for name in ["endless", "."] {
        let archive = Crafted::new().sparse(name, 4 * TIB + 1, "text").done();
        let failure = unpack(&mut host, &target, false, &archive).unwrap_err();
        assert_eq!(failure.kind, FailureKind::LimitReached, "{name}: {failure}");
    }
    assert_eq!(fs::read_dir(&target).unwrap().count(), 0);
}

#[test]
fn a_host_that_goes_ends_what_it_unpacks() {
    let guest = TestGuest::start();
    let target = guest.path("target");
    fs::create_dir(&target).unwrap();
    // The rest of the file never comes.
    let archive = Crafted::new().entry(EntryType::Regular, "half", "", &"x".repeat(5000)).done();
    let half = format!("{target}/half");
    let is_open = || {
        // A child of the guest unpacks it, and may end during the check.
        let of_children =
            children(guest.pid()).into_iter().filter_map(|pid| fs::read_dir(format!("/proc/{pid}/fd")).ok());
        let mut descriptors = of_children.flatten().flatten();
        descriptors.any(|one| fs::read_link(one.path()).is_ok_and(|file| file == Path::new(&half)))
    };
    let mut host = guest.connect();
    host.request(&Request::TarIn { path: target.clone(), keep_ids: false });
    host.send(&Frame::new(FrameKind::Data, archive[..3000].to_vec()));
    eventually("it is being unpacked", is_open);
    drop(host);
    eventually("it has ended", || !is_open());
}

#[test]
fn every_form_of_sparse_file_is_unpacked() {
    let guest = TestGuest::start();
    let mut host = guest.connect();
    let target = guest.path("target");
    fs::create_dir(&target).unwrap();
    let mut archive = Builder::new(vec![]);
    let forms: [&[(&str, &[u8])]; 2] = [
        &[("GNU.sparse.major", b"0"), ("GNU.sparse.size", b"9000"), ("GNU.sparse.map", b"4096,4,9000,0")],
        &[("GNU.sparse.major", b"1"), ("GNU.sparse.minor", b"0"), ("GNU.sparse.realsize", b"9000")],
    ];
    for (number, records) in forms.iter().enumerate() {
        archive.append_pax_extensions(records.iter().copied()).unwrap();
        let mut content = if number == 1 { b"2\n4096\n4\n9000\n0\n".to_vec() } else { vec![] };
        content.resize(number * 512, 0);
        content.extend_from_slice(b"data");
        let mut header = Header::new_gnu();
        header.set_mode(0o644);
        header.set_size(content.len() as u64);
        archive.append_data(&mut header, number.to_string(), &content[..]).unwrap();
    }
    unpack(&mut host, &target, false, &archive.into_inner().unwrap()).unwrap();
    let expected = [&[0; 4096][..], b"data", &[0; 4900]].concat();
    for number in 0..2 {
        assert!(fs::read(format!("{target}/{number}")).unwrap() == expected, "{number}");
    }
    // Many single bytes, each of which would take a block on disk.
    let bytes = Crafted::new().scattered("scattered");
    let failure = unpack(&mut host, &target, false, &bytes.done()).unwrap_err();
    assert_eq!(failure.kind, FailureKind::InvalidRequest, "{failure}");
}

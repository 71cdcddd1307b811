//! The SFTP server inside, packet by packet.

use std::{
    fs,
    os::unix::{
        ffi::OsStrExt,
        fs::{MetadataExt, PermissionsExt},
    },
};

use guest_protocol::{FailureKind, Frame, FrameKind, Request, Response};

use crate::support::{Host, TestGuest, children, eventually};

const OK: &[u8] = &[0, 0, 0, 0];
const END: &[u8] = &[0, 0, 0, 1];
const NO_SUCH_FILE: &[u8] = &[0, 0, 0, 2];
const DENIED: &[u8] = &[0, 0, 0, 3];
const FAILED: &[u8] = &[0, 0, 0, 4];
const UNSUPPORTED: &[u8] = &[0, 0, 0, 8];

struct Session {
    host: Host,
    arrived: Vec<u8>,
    last: u32,
}

/// The user who runs the guest: another one only root could become.
fn ourselves() -> String {
    let (uid, gid) = (rustix::process::getuid(), rustix::process::getgid());
    format!("{}:{}", uid.as_raw(), gid.as_raw())
}

fn start(guest: &TestGuest, read_only: bool) -> Request {
    Request::Sftp { user: ourselves(), cwd: guest.path(""), read_only, hand_out: false }
}

impl Session {
    fn new(guest: &TestGuest, read_only: bool) -> Self {
        let mut host = guest.connect();
        assert_eq!(host.ask(&start(guest, read_only)), Ok(Response::Connected));
        let mut session = Self { host, arrived: Vec::new(), last: 0 };
        session.send(&[0, 0, 0, 5, 1, 0, 0, 0, 3]);
        let hello = session.packet();
        assert_eq!(&hello[..5], [2, 0, 0, 0, 3]);
        assert!(hello.windows(18).any(|part| part == b"limits@openssh.com"));
        session
    }

    fn send(&mut self, bytes: &[u8]) {
        self.host.send(&Frame::new(FrameKind::Data, bytes.to_vec()));
    }

    fn packet(&mut self) -> Vec<u8> {
        loop {
            if let Some(head) = self.arrived.first_chunk::<4>() {
                let length = u32::from_be_bytes(*head) as usize;
                if self.arrived.len() >= 4 + length {
                    let packet = self.arrived[4..4 + length].to_vec();
                    self.arrived.drain(..4 + length);
                    return packet;
                }
            }
            let frame = self.host.frame();
            assert_eq!(frame.kind, FrameKind::Data);
            self.arrived.extend_from_slice(&frame.payload);
        }
    }

    /// The reply to one request: its kind and its fields.
    fn ask(&mut self, kind: u8, fields: &[&[u8]]) -> (u8, Vec<u8>) {
        self.last += 1;
        let payload = [&[kind][..], &self.last.to_be_bytes(), &fields.concat()].concat();
        let packet = [&u32::try_from(payload.len()).unwrap().to_be_bytes()[..], &payload].concat();
        self.send(&packet);
        let reply = self.packet();
        assert_eq!(reply[1..5], self.last.to_be_bytes());
        (reply[0], reply[5..].to_vec())
    }

    fn status(&mut self, kind: u8, fields: &[&[u8]]) -> Vec<u8> {
        let (kind, fields) = self.ask(kind, fields);
        assert_eq!(kind, 101, "{}", String::from_utf8_lossy(&fields));
        fields[..4].to_vec()
    }

    fn open(&mut self, path: &[u8], flags: u32) -> Vec<u8> {
        let (kind, handle) = self.ask(3, &[&string(path), &flags.to_be_bytes(), &[0; 4]]);
        assert_eq!(kind, 102, "{}", String::from_utf8_lossy(&handle));
        handle
    }

    fn read(&mut self, handle: &[u8], offset: u64, length: u32) -> Vec<u8> {
        let (kind, data) = self.ask(5, &[handle, &offset.to_be_bytes(), &length.to_be_bytes()]);
        assert_eq!(kind, 103);
        data[4..].to_vec()
    }
}

fn string(bytes: &[u8]) -> Vec<u8> {
    [&u32::try_from(bytes.len()).unwrap().to_be_bytes()[..], bytes].concat()
}

#[test]
fn names_need_not_be_text_and_handles_outlive_names() {
    let guest = TestGuest::start();
    let mut session = Session::new(&guest, false);
    let name = b"a\xff\xfeb";
    let handle = session.open(name, 1 | 2 | 8);
    assert_eq!(session.status(6, &[&handle, &5_u64.to_be_bytes(), &string(b"tail")]), OK);
    assert_eq!(session.status(20, &[&string(name), &string(b"l\xff")]), OK);
    assert_eq!(session.ask(19, &[&string(b"l\xff")]).1[8..12], *name);
    assert_eq!(session.status(18, &[&string(name), &string(b"new")]), OK);
    assert_eq!(session.status(6, &[&handle, &0_u64.to_be_bytes(), &string(b"head")]), OK);
    assert_eq!(session.read(&handle, 0, 100), b"head\0tail");
    assert_eq!(session.status(5, &[&handle, &9_u64.to_be_bytes(), &9_u32.to_be_bytes()]), END);
    assert_eq!(session.status(13, &[&string(b"new")]), OK);
    assert_eq!(session.read(&handle, 5, 4), b"tail", "it is open although its last name is gone");
    assert_eq!(session.status(4, &[&handle]), OK);
    assert_eq!(session.status(4, &[&handle]), NO_SUCH_FILE);
    let left: Vec<_> =
        fs::read_dir(guest.path("")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(left.iter().any(|name| name.as_bytes() == b"l\xff"), "{left:?}");
}

#[test]
fn attributes_links_and_renames_follow_the_protocol() {
    let guest = TestGuest::start();
    let mut session = Session::new(&guest, false);
    fs::write(guest.path("a"), "one").unwrap();
    let times =
        [&[0, 0, 0, 12][..], &0o600_u32.to_be_bytes(), &7_u32.to_be_bytes(), &9_u32.to_be_bytes()].concat();
    assert_eq!(session.status(9, &[&string(b"a"), &times]), OK);
    let found = fs::metadata(guest.path("a")).unwrap();
    assert_eq!((found.permissions().mode() & 0o777, found.atime(), found.mtime()), (0o600, 7, 9));
    let size = [&[0, 0, 0, 1][..], &2_u64.to_be_bytes()].concat();
    assert_eq!(session.status(9, &[&string(b"a"), &size]), OK);
    assert_eq!(fs::read(guest.path("a")).unwrap(), b"on");
    let extended = |name: &[u8], rest: &[u8]| [string(name), rest.to_vec()].concat();
    let link = extended(b"hardlink@openssh.com", &[string(b"a"), string(b"b")].concat());
    assert_eq!(session.status(200, &[&link]), OK);
    assert_eq!(fs::metadata(guest.path("b")).unwrap().nlink(), 2);
    fs::write(guest.path("c"), "other").unwrap();
    assert_eq!(session.status(18, &[&string(b"a"), &string(b"c")]), FAILED, "a rename replaces nothing");
    let rename = extended(b"posix-rename@openssh.com", &[string(b"a"), string(b"c")].concat());
    assert_eq!(session.status(200, &[&rename]), OK);
    assert_eq!(fs::read(guest.path("c")).unwrap(), b"on");
    assert_eq!(session.status(200, &[&extended(b"unknown@example.org", b"")]), UNSUPPORTED);
    assert_eq!(session.ask(200, &[&extended(b"limits@openssh.com", b"")]).0, 201);
    let (kind, facts) = session.ask(200, &[&extended(b"statvfs@openssh.com", &string(b"."))]);
    assert_eq!((kind, facts.len()), (201, 88));
    let handle = session.open(b"c", 1);
    assert_eq!(session.status(200, &[&extended(b"fsync@openssh.com", &handle)]), OK);
}

#[test]
fn extensions_act_on_links_open_files_and_home_directories() {
    let guest = TestGuest::start();
    fs::write(guest.path("file"), "one").unwrap();
    std::os::unix::fs::symlink("file", guest.path("link")).unwrap();
    let before = fs::metadata(guest.path("file")).unwrap().mtime();
    let mut session = Session::new(&guest, false);
    let extended = |name: &[u8], rest: &[u8]| [string(name), rest.to_vec()].concat();
    let times: Vec<u8> =
        [8, 1_000_000_000, 1_100_000_000_u32].into_iter().flat_map(u32::to_be_bytes).collect();
    let link = [string(b"link"), times].concat();
    assert_eq!(session.status(200, &[&extended(b"lsetstat@openssh.com", &link)]), OK);
    assert_eq!(fs::symlink_metadata(guest.path("link")).unwrap().mtime(), 1_100_000_000);
    assert_eq!(fs::metadata(guest.path("file")).unwrap().mtime(), before, "the file itself is as it was");
    let handle = session.open(b"file", 1);
    let (kind, of_handle) = session.ask(200, &[&extended(b"fstatvfs@openssh.com", &handle)]);
    assert_eq!((kind, of_handle.len()), (201, 88));
    let (_, of_path) = session.ask(200, &[&extended(b"statvfs@openssh.com", &string(b"file"))]);
    // Block sizes and the number of all blocks; how many are free changes all the time.
    assert_eq!(of_handle[..24], of_path[..24]);
    assert_ne!(session.status(200, &[&extended(b"fstatvfs@openssh.com", &string(b"none"))]), OK);
    let mut expanded = |path: &[u8]| {
        let (kind, facts) = session.ask(200, &[&extended(b"expand-path@openssh.com", &string(path))]);
        assert_eq!((kind, &facts[..4]), (104, &[0, 0, 0, 1][..]));
        let length = usize::try_from(u32::from_be_bytes(*facts[4..].first_chunk().unwrap())).unwrap();
        String::from_utf8(facts[8..8 + length].to_vec()).unwrap()
    };
    let here = fs::canonicalize(guest.path("")).unwrap();
    assert_eq!(expanded(b"file"), here.join("file").to_str().unwrap());
    let home = expanded(b"~");
    assert_eq!(expanded(b"~/"), home);
    assert!(home.starts_with('/') && home != here.to_str().unwrap(), "{home}");
}

#[test]
fn a_session_that_may_only_read_changes_nothing() {
    let guest = TestGuest::start();
    fs::write(guest.path("a"), "one").unwrap();
    let mut session = Session::new(&guest, true);
    let handle = session.open(b"a", 1);
    assert_eq!(session.read(&handle, 0, 10), b"one");
    let none = [0; 4];
    for flags in [2_u32, 1 | 2, 1 | 8, 1 | 16, 4] {
        assert_ne!(session.status(3, &[&string(b"a"), &flags.to_be_bytes(), &none]), OK, "{flags}");
    }
    for (kind, fields) in [
        (9, [string(b"a"), none.to_vec()].concat()),
        (10, [handle, none.to_vec()].concat()),
        (13, string(b"a")),
        (14, [string(b"d"), none.to_vec()].concat()),
        (15, string(b"d")),
        (18, [string(b"a"), string(b"b")].concat()),
        (20, [string(b"a"), string(b"b")].concat()),
        (200, [string(b"posix-rename@openssh.com"), string(b"a"), string(b"b")].concat()),
        (200, [string(b"hardlink@openssh.com"), string(b"a"), string(b"b")].concat()),
        (200, [string(b"lsetstat@openssh.com"), string(b"a"), none.to_vec()].concat()),
    ] {
        assert_eq!(session.status(kind, &[&fields]), DENIED, "{kind}");
    }
    assert_eq!(fs::read(guest.path("a")).unwrap(), b"one");
}

#[test]
fn a_fifo_is_not_opened_and_a_bad_start_is_refused() {
    let guest = TestGuest::start();
    let mut session = Session::new(&guest, false);
    let made = std::process::Command::new("mkfifo").arg(guest.path("pipe")).status().unwrap();
    assert!(made.success());
    for flags in [1_u32, 2] {
        assert_eq!(session.status(3, &[&string(b"pipe"), &flags.to_be_bytes(), &[0; 4]]), FAILED);
    }
    let size = [&[0, 0, 0, 1][..], &0_u64.to_be_bytes()].concat();
    assert_ne!(session.status(9, &[&string(b"pipe"), &size]), OK);
    let mut host = guest.connect();
    let user = "nobody-of-that-name".to_owned();
    let refused = host.ask(&Request::Sftp { user, cwd: "/".to_owned(), read_only: false, hand_out: false });
    assert_eq!(refused.unwrap_err().kind, FailureKind::NotFound);
    let (user, cwd) = (ourselves(), guest.path("none"));
    let refused = host.ask(&Request::Sftp { user, cwd, read_only: false, hand_out: false });
    assert_eq!(refused.unwrap_err().kind, FailureKind::NotFound);
    assert_eq!(host.ask(&Request::Ping), Ok(Response::Done), "the connection goes on");
}

#[test]
fn a_session_ends_with_its_client_or_with_nonsense_and_leaves_no_process() {
    let guest = TestGuest::start();
    let session = Session::new(&guest, false);
    drop(session);
    eventually("the process ends with its client", || children(guest.pid()).is_empty());
    let mut broken = Session::new(&guest, false);
    broken.send(&[0xff; 64]);
    assert_eq!(broken.host.frame().kind, FrameKind::End);
    eventually("the process ends with nonsense", || children(guest.pid()).is_empty());
}

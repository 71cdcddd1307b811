//! Commands that somebody ends half-way leave what was there.

use std::{
    fs,
    io::{Read as _, Write as _},
    os::unix::net::{UnixListener, UnixStream},
    path::Path,
    process::Stdio,
    thread,
};

use rustix::process::{Pid, Signal, kill_process};

use crate::support::{World, finish, until};

/// The size of a file that never comes to its end.
const PROMISED: u64 = 1024 * 1024;

/// A daemon that begins every archive and ends none.
fn stalling_daemon(world: &World) -> thread::JoinHandle<()> {
    fs::create_dir_all(world.socket().parent().unwrap()).unwrap();
    fs::remove_file(world.socket()).ok();
    let listener = UnixListener::bind(world.socket()).unwrap();
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        while let Some(head) = request(&mut stream) {
            if head.contains("/files/stat") {
                let body = r#"{"path":"/d","kind":"directory","size":0,"mode":"0755","uid":0,"gid":0,"modifiedAtMs":0}"#;
                let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json";
                write!(stream, "{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len()).unwrap();
            } else {
                let begun = begun_archive();
                write!(stream, "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n{:x}\r\n", begun.len())
                    .unwrap();
                stream.write_all(&begun).and_then(|()| stream.write_all(b"\r\n")).unwrap();
            }
        }
    })
}

/// The head of the next request, none once the command is gone.
fn request(stream: &mut UnixStream) -> Option<String> {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        if stream.read(&mut byte).ok()? == 0 {
            return None;
        }
        head.push(byte[0]);
    }
    String::from_utf8(head).ok()
}

fn begun_archive() -> Vec<u8> {
    let mut header = tar::Header::new_gnu();
    header.set_path("d/file").unwrap();
    header.set_size(PROMISED);
    header.set_mode(0o644);
    header.set_cksum();
    [header.as_bytes(), &[7; 512][..]].concat()
}

fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

#[test]
fn what_is_half_made_goes_with_its_command() {
    let world = World::new();
    let files = world.files();
    let (archive, tree) = (files.join("x.tar"), files.join("tree"));
    let (archive, tree) = (archive.to_str().unwrap(), tree.to_str().unwrap());
    fs::create_dir(tree).unwrap();
    for (signal, code, args) in [
        (Signal::INT, 130, ["save", "app", "-o", archive].as_slice()),
        (Signal::TERM, 143, &["snapshot", "save", "ready", "-o", archive]),
        (Signal::INT, 130, &["volume", "cp", "data:/d/.", tree]),
        (Signal::HUP, 129, &["cp", "dev:/d", tree]),
    ] {
        let daemon = stalling_daemon(&world);
        let child = world.command(args).stdin(Stdio::null()).spawn().unwrap();
        let is_half_made = |name: &String| name.ends_with(".part") || name.starts_with(".warren-cp-");
        let beneath = |name: &str| files.join(name);
        until("something is half-made", || {
            let places = [files.clone(), beneath("tree"), beneath("tree/d")];
            places
                .iter()
                .filter(|place| place.exists())
                .flat_map(|place| names(place))
                .any(|name| is_half_made(&name))
        });
        kill_process(Pid::from_child(&child), signal).unwrap();
        let ended = finish(child).expect(code);
        assert!(!ended.stderr.contains("error:"), "{args:?}: {ended:?}");
        daemon.join().unwrap();
        assert_eq!(names(&files), ["tree"], "{args:?}");
        assert!(names(Path::new(tree)).iter().all(|name| name == "d"), "{args:?}");
    }
    assert_eq!(names(&files.join("tree/d")), Vec::<String>::new());
}

/// Whether a process takes SIGINT itself and waits for something.
fn listens(pid: Pid) -> bool {
    let status = fs::read_to_string(format!("/proc/{}/status", pid.as_raw_pid())).unwrap_or_default();
    let field = |name| status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default().trim();
    let caught = u64::from_str_radix(field("SigCgt:"), 16).unwrap_or_default();
    caught & (1 << (Signal::INT.as_raw() - 1)) != 0 && field("State:").starts_with('S')
}

#[test]
fn a_sandbox_in_the_making_goes_with_its_command() {
    let world = World::with_dev();
    let daemon = world.daemon().unwrap();
    for (signal, code, args) in [
        (Signal::INT, 130, ["run", "sleep", "1000"].as_slice()),
        (Signal::TERM, 143, &["run", "--name", "lab", "sleep", "1000"]),
        (Signal::HUP, 129, &["run", "-d", "sleep", "1000"]),
        (Signal::INT, 130, &["run", "--json", "sleep", "1000"]),
        (Signal::INT, 130, &["code", "bash", "-c", "sleep 1000"]),
        (Signal::INT, 130, &["exec", "dev", "sleep", "1000"]),
    ] {
        // The daemon answers once the command has its signal.
        daemon.signal(Signal::STOP);
        let child = world.command(args).spawn().unwrap();
        let pid = Pid::from_child(&child);
        until("the command waits for its answer", || listens(pid));
        kill_process(pid, signal).unwrap();
        daemon.signal(Signal::CONT);
        let ended = finish(child).expect(code);
        assert_eq!(ended.stderr, "", "{args:?}");
        assert_eq!(world.run(&["ps", "-aq"]).text().lines().count(), 1, "{args:?}");
        until("no command runs", || world.running_execs() == 0);
    }
    // The second signal does not wait for an answer.
    daemon.signal(Signal::STOP);
    let mut child = world.command(&["run", "sleep", "1000"]).spawn().unwrap();
    let pid = Pid::from_child(&child);
    until("the command waits for its answer", || listens(pid));
    until("the command has ended", || {
        kill_process(pid, Signal::INT).ok();
        child.try_wait().unwrap().is_some()
    });
    assert_eq!(child.wait().unwrap().code(), Some(130));
    daemon.signal(Signal::CONT);
}

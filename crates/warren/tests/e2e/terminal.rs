//! `-it` under a real pseudo-terminal.

use std::{
    fs::File,
    io::{Read as _, Write as _},
    os::{fd::OwnedFd, unix::net::UnixStream},
    process::{Child, Command, Stdio},
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use rustix::{
    fs::{Mode, OFlags},
    process::{Pid, Signal, kill_process},
    pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
    termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize},
};

use crate::support::{PATIENCE, World, finish};

pub(crate) struct Pty {
    master: File,
    slave: OwnedFd,
    output: mpsc::Receiver<Vec<u8>>,
    seen: String,
}

impl Pty {
    pub(crate) fn new(rows: u16, cols: u16) -> Self {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap();
        let slave =
            rustix::fs::open(name, OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC, Mode::empty()).unwrap();
        let master = File::from(master);
        let (sender, output) = mpsc::channel();
        let mut reader = master.try_clone().unwrap();
        thread::spawn(move || {
            let mut piece = [0; 4096];
            while let Ok(n) = reader.read(&mut piece) {
                if n == 0 || sender.send(piece[..n].to_vec()).is_err() {
                    return;
                }
            }
        });
        let pty = Self { master, slave, output, seen: String::new() };
        pty.resize(rows, cols);
        pty
    }

    fn resize(&self, rows: u16, cols: u16) {
        tcsetwinsize(&self.slave, Winsize { ws_row: rows, ws_col: cols, ws_xpixel: 0, ws_ypixel: 0 })
            .unwrap();
    }

    pub(crate) fn start(&self, world: &World, args: &[&str]) -> Child {
        self.spawn(&mut world.command(args))
    }

    pub(crate) fn spawn(&self, command: &mut Command) -> Child {
        let side = || Stdio::from(self.slave.try_clone().unwrap());
        command.stdin(side()).stdout(side()).stderr(side()).spawn().unwrap()
    }

    pub(crate) fn type_in(&mut self, text: &str) {
        self.master.write_all(text.as_bytes()).unwrap();
    }

    /// Reads until `text` was shown since the last call.
    #[track_caller]
    pub(crate) fn expect(&mut self, text: &str) {
        self.expect_first(text);
        self.seen.clear();
    }

    /// The same; returns what was shown before it.
    #[track_caller]
    pub(crate) fn expect_and_see(&mut self, text: &str) -> String {
        loop {
            if let Some(position) = self.seen.find(text) {
                return self.seen.drain(..position + text.len()).collect();
            }
            let piece = self.output.recv_timeout(PATIENCE);
            self.seen.push_str(&String::from_utf8_lossy(&piece.unwrap()));
        }
    }

    /// The same, and what was shown after it is still to be expected.
    #[track_caller]
    pub(crate) fn expect_first(&mut self, text: &str) {
        loop {
            if let Some(position) = self.seen.find(text) {
                self.seen.drain(..position + text.len());
                return;
            }
            let piece = self
                .output
                .recv_timeout(PATIENCE)
                .unwrap_or_else(|_| panic!("no {text:?} in {:?}", self.seen));
            self.seen.push_str(&String::from_utf8_lossy(&piece));
        }
    }

    /// Whether `text` is shown within this time.
    fn shows(&mut self, text: &str, within: Duration) -> bool {
        let end = Instant::now() + within;
        while !self.seen.contains(text) {
            let Ok(piece) = self.output.recv_timeout(end.saturating_duration_since(Instant::now())) else {
                return false;
            };
            self.seen.push_str(&String::from_utf8_lossy(&piece));
        }
        true
    }

    fn is_raw(&self) -> bool {
        !tcgetattr(&self.slave).unwrap().local_modes.contains(LocalModes::ICANON)
    }
}

#[test]
fn a_terminal_is_raw_while_it_is_used_and_follows_the_window() {
    let world = World::with_dev();
    let mut pty = Pty::new(31, 97);
    assert!(!pty.is_raw());
    let child = pty.start(&world, &["exec", "-it", "dev", "sh"]);
    let pid = Pid::from_child(&child);
    pty.expect("# ");
    pty.type_in("stty size\r");
    pty.expect("31 97");
    assert!(pty.is_raw());
    pty.resize(40, 120);
    kill_process(pid, Signal::WINCH).unwrap();
    // The new size may need a moment to arrive; the shell asks until it has.
    pty.type_in("until [ \"$(stty size)\" = '40 120' ]; do sleep 0.05; done; echo re''sized\r");
    pty.expect("resized");
    pty.type_in("exit 7\r");
    finish(child).expect(7);
    assert!(!pty.is_raw(), "the terminal is as it was");
}

#[test]
fn a_terminal_is_carried_on_by_the_next_daemon() {
    let world = World::with_dev();
    let mut pty = Pty::new(24, 80);
    let child = pty.start(&world, &["exec", "-it", "dev", "sh"]);
    pty.expect("# ");
    let daemon = world.daemon().unwrap();
    daemon.signal(Signal::TERM);
    assert!(daemon.ends_within(PATIENCE));
    world.run(&["ps"]).expect(0);
    // What was typed while no daemon read it may be lost.
    for _ in 0..50 {
        pty.type_in("echo car''ried on\r");
        if pty.shows("carried on", Duration::from_secs(1)) {
            break;
        }
    }
    pty.type_in("\u{10}\u{11}");
    pty.expect("`warren attach dev` returns to it");
    finish(child).expect(0);
    assert!(!pty.is_raw());
    assert_eq!(world.running_execs(), 1);
}

#[test]
fn the_detach_keys_leave_the_command_running() {
    let world = World::with_dev();
    let mut pty = Pty::new(24, 80);
    let child = pty.start(&world, &["exec", "-it", "dev", "sh"]);
    pty.expect("# ");
    pty.type_in("echo wel''come\r");
    pty.expect("welcome");
    pty.type_in("\u{10}\u{11}");
    finish(child).expect(0);
    assert!(!pty.is_raw());
    assert_eq!(world.running_execs(), 1);
    // Its stdin is open still: it does what somebody else types.
    let exec = world.run(&["inspect", "dev"]).expect(0).json()["execs"][0]["id"].clone();
    let exec = exec.as_str().unwrap();
    let target = format!("/v1/sandboxes/dev/execs/{exec}/stdin");
    let typed = "exit 7\r";
    let mut daemon = UnixStream::connect(world.socket()).unwrap();
    write!(
        daemon,
        "POST {target} HTTP/1.1\r\nhost: warren\r\ncontent-length: {}\r\n\r\n{typed}",
        typed.len()
    )
    .unwrap();
    world.run(&["wait", "dev", exec]).expect(7);
}

#[test]
fn a_signal_restores_the_terminal() {
    let world = World::with_dev();
    for signal in [Signal::HUP, Signal::TERM] {
        let mut pty = Pty::new(24, 80);
        // Not at a shell's prompt: a shell that somebody types to ignores SIGTERM.
        let script = "echo welcome; exec cat";
        let child = pty.start(&world, &["exec", "-it", "dev", "sh", "-c", script]);
        let pid = Pid::from_child(&child);
        pty.expect("welcome");
        assert!(pty.is_raw());
        kill_process(pid, signal).unwrap();
        let ended = finish(child);
        assert!(ended.code.is_some_and(|code| code > 128), "{ended:?}");
        assert!(!pty.is_raw(), "after {signal:?}");
    }
}

#[test]
fn it_needs_a_terminal() {
    let world = World::with_dev();
    let refused = world.run(&["exec", "-it", "dev", "sh"]).expect(125);
    assert!(refused.stderr.contains("terminal") && refused.stderr.contains("hint:"), "{refused:?}");
    // -t alone is fine: a terminal inside, nothing to type.
    world.run(&["exec", "-t", "dev", "true"]).expect(0);
}

#[test]
fn errors_are_coloured_on_a_terminal_unless_told_not_to() {
    let world = World::new();
    let mut pty = Pty::new(24, 80);
    finish(pty.start(&world, &["inspect", "nobody"])).expect(125);
    pty.expect("\u{1b}[");
    let side = || Stdio::from(pty.slave.try_clone().unwrap());
    let mut plain = world.command(&["inspect", "nobody"]);
    finish(plain.env("NO_COLOR", "1").stdin(side()).stdout(side()).stderr(side()).spawn().unwrap())
        .expect(125);
    let shown: Vec<u8> = pty.output.try_iter().flatten().collect();
    assert!(!shown.contains(&0x1b));
}

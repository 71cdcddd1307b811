//! A guest run as an ordinary process, and a small host that talks to it.

use std::{
    io::{Read, Write},
    os::unix::{net::UnixStream, process::CommandExt},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use bytes::BytesMut;
use guest_protocol::{
    CellStart, ContextSummary, Decoder, ExecEvent, ExecStart, ExitReport, Failure, FailureKind, Frame,
    FrameKind, Hello, MAX_DATA_BYTES, Request, Response, Rich, SignalScope, StartFailure, StateLoss, encode,
};
use tempfile::TempDir;

/// After this time a test has hung.
pub(crate) const PATIENCE: Duration = Duration::from_secs(90);

/// How many cells the leak tests run; `make soak` sets more by `WARREN_CELLS`.
pub(crate) fn n_cells() -> usize {
    let asked = std::env::var("WARREN_CELLS").ok().and_then(|text| text.parse().ok());
    asked.unwrap_or(2_500)
}

pub(crate) struct TestGuest {
    pub(crate) child: Child,
    pub(crate) directory: TempDir,
}

impl TestGuest {
    pub(crate) fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        // Another build can be tested: an optimised one for numbers, the static one.
        let built = std::env::var_os("GUEST_BINARY").unwrap_or_else(|| env!("CARGO_BIN_EXE_guest").into());
        let child = Command::new(built)
            .arg("--listen")
            .arg(directory.path().join("guest.sock"))
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        Self { child, directory }
    }

    /// A guest of an ordinary user, limited to `processes` processes and threads, including the guest itself.
    pub(crate) fn start_as(uid: u32, processes: u32) -> Self {
        let directory = tempfile::tempdir().unwrap();
        std::os::unix::fs::chown(directory.path(), Some(uid), Some(uid)).unwrap();
        // A copy, since the user may not have access to the build directory.
        let program = directory.path().join("guest");
        std::fs::copy(env!("CARGO_BIN_EXE_guest"), &program).unwrap();
        let child = Command::new("/bin/bash")
            .args(["-c", "ulimit -u $0; exec \"$@\"", &processes.to_string()])
            .arg(&program)
            .arg("--listen")
            .arg(directory.path().join("guest.sock"))
            .stdin(Stdio::null())
            .uid(uid)
            .gid(uid)
            .spawn()
            .unwrap();
        Self { child, directory }
    }

    /// A guest that is process 1 of a namespace, as in a sandbox.
    pub(crate) fn start_as_init() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let child = Command::new("unshare")
            // `--kill-child` kills process 1, and with it the whole namespace.
            .args([
                "--pid",
                "--fork",
                "--mount-proc",
                "--kill-child",
                env!("CARGO_BIN_EXE_guest"),
                "--listen",
            ])
            .arg(directory.path().join("guest.sock"))
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        Self { child, directory }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn connect(&self) -> Host {
        Host::connect(&self.directory.path().join("guest.sock"))
    }

    /// A path in the test's own directory.
    pub(crate) fn path(&self, name: &str) -> String {
        self.directory.path().join(name).to_str().unwrap().to_owned()
    }

    pub(crate) fn shell(&self, id: &str, script: &str) -> Ran {
        self.connect().run(&shell(id, script))
    }

    /// Children of the guest that nobody has reaped.
    pub(crate) fn zombies(&self) -> Vec<i32> {
        children(self.pid()).into_iter().filter(|pid| state(*pid) == Some('Z')).collect()
    }

    /// Bytes that the guest alone holds.
    pub(crate) fn private_bytes(&self) -> u64 {
        let text = std::fs::read_to_string(format!("/proc/{}/smaps_rollup", self.pid())).unwrap();
        text.lines()
            .filter(|line| line.starts_with("Private_Dirty:"))
            .filter_map(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok())
            .map(|kib| kib * 1024)
            .sum()
    }
}

impl Drop for TestGuest {
    fn drop(&mut self) {
        // An ended guest was reaped, and its number may be reused by now.
        if !matches!(self.child.try_wait(), Ok(None)) {
            return;
        }
        for pid in descendants(self.pid()) {
            rustix::process::kill_process(pid_of(pid), rustix::process::Signal::KILL).ok();
        }
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

fn descendants(parent: u32) -> Vec<i32> {
    let mut found = children(parent);
    let mut next = 0;
    while let Some(pid) = found.get(next) {
        found.extend(children(pid.unsigned_abs()));
        next += 1;
    }
    found
}

pub(crate) fn pid_of(pid: i32) -> rustix::process::Pid {
    rustix::process::Pid::from_raw(pid).unwrap()
}

pub(crate) fn is_alive(pid: i32) -> bool {
    state(pid).is_some_and(|state| state != 'Z')
}

fn stat(pid: i32) -> Option<Vec<String>> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    Some(text.rsplit_once(')')?.1.split_whitespace().map(str::to_owned).collect())
}

pub(crate) fn state(pid: i32) -> Option<char> {
    stat(pid)?.first()?.chars().next()
}

pub(crate) fn children(parent: u32) -> Vec<i32> {
    let pids = std::fs::read_dir("/proc").unwrap();
    let pids = pids.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok());
    pids.filter(|pid| stat(*pid).is_some_and(|stat| stat[1] == parent.to_string())).collect()
}

/// Polls until something holds; the kernel sends no event for these conditions.
pub(crate) fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !holds() {
        assert!(begin.elapsed() < PATIENCE, "never: {what}");
        std::thread::yield_now();
    }
}

pub(crate) fn shell(id: &str, script: &str) -> ExecStart {
    command(id, &["/bin/sh", "-c", script])
}

pub(crate) fn command(id: &str, command: &[&str]) -> ExecStart {
    ExecStart {
        id: id.to_owned(),
        command: command.iter().map(|&text| text.to_owned()).collect(),
        env: [("PATH".to_owned(), "/usr/local/bin:/usr/bin:/bin".to_owned())].into(),
        cwd: "/".to_owned(),
        user: "0:0".to_owned(),
        ..ExecStart::default()
    }
}

/// The combined events of an exec.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    pub(crate) report: ExitReport,
    /// Output that came after `Exited`.
    pub(crate) late: String,
    /// A cell's records besides its output.
    pub(crate) rich: Vec<Rich>,
}

impl Ran {
    /// The last record of a cell, which every cell in a context has.
    pub(crate) fn state(&self) -> &Rich {
        self.rich.last().expect("a cell without a record")
    }

    pub(crate) fn is_kept(&self) -> bool {
        *self.state() == kept()
    }

    pub(crate) fn warnings(&self) -> Vec<&str> {
        let records = self.rich.iter();
        records
            .filter_map(|record| match record {
                Rich::Warning { message } => Some(message.as_str()),
                _ => None,
            })
            .collect()
    }
}

pub(crate) fn kept() -> Rich {
    Rich::State { kept: true, lost: None, interrupted: false }
}

/// The state after an interrupt that kept the variables.
pub(crate) fn interrupted() -> Rich {
    Rich::State { kept: true, lost: None, interrupted: true }
}

pub(crate) fn lost(lost: StateLoss) -> Rich {
    Rich::State { kept: false, lost: Some(lost), interrupted: false }
}

/// A cell in the context named after its language.
pub(crate) fn cell(id: &str, language: &str, code: &str) -> ExecStart {
    cell_in(id, language, language, code)
}

pub(crate) fn cell_in(id: &str, context: &str, language: &str, code: &str) -> ExecStart {
    let cell = CellStart {
        language: language.to_owned(),
        context: Some(context.to_owned()),
        code: code.to_owned(),
        grace_ms: 10_000,
    };
    ExecStart { command: vec![], cell: Some(cell), ..command(id, &["-"]) }
}

pub(crate) struct Host {
    pub(crate) stream: UnixStream,
    decoder: Decoder,
    buffer: BytesMut,
}

impl Host {
    /// Connects as soon as the guest listens.
    pub(crate) fn connect(path: &Path) -> Self {
        let begin = Instant::now();
        let stream = loop {
            match UnixStream::connect(path) {
                Ok(stream) => break stream,
                Err(error) => assert!(begin.elapsed() < PATIENCE, "{}: {error}", path.display()),
            }
            std::thread::yield_now();
        };
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut host = Self { stream, decoder: Decoder::default(), buffer: BytesMut::new() };
        let hello: Hello = host.frame().parse().unwrap();
        assert_eq!(hello.version, guest_protocol::PROTOCOL_VERSION);
        host
    }

    pub(crate) fn send(&mut self, frame: &Frame) {
        let mut bytes = BytesMut::new();
        encode(frame, &mut bytes).unwrap();
        self.stream.write_all(&bytes).unwrap();
    }

    pub(crate) fn try_frame(&mut self) -> Option<Frame> {
        loop {
            if let Some(frame) = self.decoder.decode(&mut self.buffer).unwrap() {
                return Some(frame);
            }
            let mut chunk = vec![0; 256 * 1024];
            match self.stream.read(&mut chunk) {
                Ok(0) => return None,
                Ok(n) => self.buffer.extend_from_slice(&chunk[..n]),
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return None,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => panic!("{error}"),
            }
        }
    }

    pub(crate) fn frame(&mut self) -> Frame {
        self.try_frame().expect("the guest closed the connection")
    }

    pub(crate) fn request(&mut self, request: &Request) {
        self.send(&Frame::request(request).unwrap());
    }

    pub(crate) fn answer(&mut self) -> Result<Response, Failure> {
        let frame = self.frame();
        match frame.kind {
            FrameKind::Response => Ok(frame.parse().unwrap()),
            FrameKind::Failure => Err(frame.parse().unwrap()),
            other => panic!("{other:?} instead of an answer"),
        }
    }

    pub(crate) fn ask(&mut self, request: &Request) -> Result<Response, Failure> {
        self.request(request);
        self.answer()
    }

    pub(crate) fn fails(&mut self, request: &Request) -> FailureKind {
        self.ask(request).unwrap_err().kind
    }

    pub(crate) fn send_body(&mut self, body: &[u8]) {
        for part in body.chunks(MAX_DATA_BYTES) {
            self.send(&Frame::new(FrameKind::Data, part.to_vec()));
        }
        self.send(&Frame::new(FrameKind::End, vec![]));
    }

    pub(crate) fn ask_with_body(&mut self, request: &Request, body: &[u8]) -> Result<Response, Failure> {
        self.request(request);
        self.send_body(body);
        self.answer()
    }

    pub(crate) fn body(&mut self) -> Vec<u8> {
        let mut body = vec![];
        loop {
            let frame = self.frame();
            match frame.kind {
                FrameKind::Data => body.extend_from_slice(&frame.payload),
                FrameKind::End => return body,
                other => panic!("{other:?} in a body"),
            }
        }
    }

    pub(crate) fn start(&mut self, start: &ExecStart) -> i32 {
        match self.ask(&Request::ExecStart(start.clone())) {
            Ok(Response::Started { pid }) => pid,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn not_started(&mut self, start: &ExecStart) -> (StartFailure, String) {
        match self.ask(&Request::ExecStart(start.clone())) {
            Ok(Response::NotStarted { reason, message }) => (reason, message),
            other => panic!("{other:?}"),
        }
    }

    /// Turns this connection into the exec's event stream; returns the number of the first event.
    pub(crate) fn attach(&mut self, id: &str, from: u64) -> u64 {
        match self.ask(&Request::ExecAttach { id: id.to_owned(), from }) {
            Ok(Response::Attached { next }) => next,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn try_event(&mut self) -> Option<(u64, ExecEvent)> {
        self.try_frame().map(|frame| ExecEvent::from_frame(&frame).unwrap())
    }

    pub(crate) fn event(&mut self) -> (u64, ExecEvent) {
        self.try_event().expect("the guest closed the connection")
    }

    pub(crate) fn ack(&mut self, number: u64) {
        self.send(&Frame::ack(number));
    }

    pub(crate) fn run(&mut self, start: &ExecStart) -> Ran {
        self.start(start);
        self.follow(&start.id)
    }

    /// Reads an exec from its first event to its last, acknowledging each.
    pub(crate) fn follow(&mut self, id: &str) -> Ran {
        self.follow_until(id, |event| *event == ExecEvent::Closed)
    }

    /// Runs a cell to its end. It stays open until the next one of its context begins.
    pub(crate) fn run_cell(&mut self, start: &ExecStart) -> Ran {
        self.start(start);
        self.follow_cell(&start.id)
    }

    pub(crate) fn follow_cell(&mut self, id: &str) -> Ran {
        self.follow_until(id, |event| matches!(event, ExecEvent::Exited(_)))
    }

    fn follow_until(&mut self, id: &str, is_last: impl Fn(&ExecEvent) -> bool) -> Ran {
        let (mut stdout, mut stderr, mut late, mut rich, mut report) = (vec![], vec![], vec![], vec![], None);
        let mut expected = self.attach(id, 1);
        loop {
            let (number, event) = self.event();
            assert_eq!(number, expected);
            expected += 1;
            self.ack(number);
            let is_over = is_last(&event);
            match event {
                ExecEvent::Started { .. } => assert_eq!(number, 1),
                ExecEvent::Stdout(bytes) | ExecEvent::Stderr(bytes) if report.is_some() => {
                    late.extend_from_slice(&bytes);
                }
                ExecEvent::Stdout(bytes) => stdout.extend_from_slice(&bytes),
                ExecEvent::Stderr(bytes) => stderr.extend_from_slice(&bytes),
                ExecEvent::Rich(bytes) => rich.extend_from_slice(&bytes),
                ExecEvent::Exited(exited) => assert_eq!(report.replace(exited), None),
                ExecEvent::Closed => {}
            }
            if is_over {
                break;
            }
        }
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        // Half a record of a dead interpreter is not a record.
        let records = rich.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok());
        let rich = records.collect();
        Ran { stdout: text(stdout), stderr: text(stderr), late: text(late), rich, report: report.unwrap() }
    }

    pub(crate) fn signal(&mut self, id: &str, signal: i32) -> Result<Response, Failure> {
        self.ask(&Request::ExecSignal { id: id.to_owned(), signal, scope: SignalScope::Group })
    }

    pub(crate) fn contexts(&mut self) -> Vec<ContextSummary> {
        match self.ask(&Request::ContextList) {
            Ok(Response::Contexts { contexts }) => contexts,
            other => panic!("{other:?}"),
        }
    }

    /// Waits for `text` on stdout of an attached exec, acknowledging every event.
    pub(crate) fn wait_for(&mut self, text: &str) -> String {
        let mut seen = String::new();
        while !seen.contains(text) {
            let (number, event) = self.event();
            self.ack(number);
            match event {
                ExecEvent::Stdout(bytes) | ExecEvent::Stderr(bytes) => {
                    seen.push_str(&String::from_utf8_lossy(&bytes));
                }
                ExecEvent::Exited(_) | ExecEvent::Closed => panic!("ended after {seen:?}"),
                _ => {}
            }
        }
        seen
    }
}

pub(crate) fn exited(code: u8) -> ExitReport {
    ExitReport {
        code: Some(code),
        signal: None,
        timed_out: false,
        oom_kills: 0,
        shutdown: false,
        disk_limit: false,
    }
}

pub(crate) fn killed(signal: i32) -> ExitReport {
    ExitReport { code: None, signal: Some(signal), ..exited(0) }
}

pub(crate) fn write_file(path: impl Into<PathBuf>, mode: u32, text: &str) {
    use std::os::unix::fs::PermissionsExt;
    let path = path.into();
    std::fs::write(&path, text).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
}

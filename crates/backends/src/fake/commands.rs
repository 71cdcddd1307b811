//! Toy programs. Enough to test everything around a command: output, input, signals, time, memory, children.

use std::{
    collections::BTreeMap,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use guest_protocol::{ExecStart, Failure, FailureKind, StartFailure, WriteMode};
use tokio::io::{AsyncReadExt, DuplexStream};

use super::{
    cells::rich,
    changed::Before,
    exec::{Cause, Ended, Exec, SIGKILL, Stream},
    files::Content,
    guest::{Guest, lock},
    shell,
};

/// Every program that can be named without a file.
const PROGRAMS: &[&str] = &[
    "bash",
    "cat",
    "echo",
    "env",
    "exit",
    "false",
    "hostname",
    "id",
    "kill",
    "late",
    "listen",
    "ls",
    "mkdir",
    "oom",
    "oom-child",
    "printf",
    "pwd",
    "rich",
    "rm",
    "seq",
    "sh",
    "sleep",
    "stty",
    "touch",
    "true",
    "yes",
];
const PROGRAM_DIRECTORIES: &[&str] = &["/bin", "/sbin", "/usr/bin", "/usr/local/bin", "/usr/sbin"];
const USERS: &[&str] = &["root", "nobody", "daemon", "user"];
/// Output is handed over in pieces of about this many bytes, as a buffering program does.
const PRINT_BYTES: usize = 32 * 1024;
/// `yes` stops by itself here, so that a forgotten one ends.
const MAX_YES_LINES: u64 = 1_000_000;
const MAX_SLEEP: Duration = Duration::from_secs(365 * 24 * 60 * 60);

pub(super) type Refusal = (StartFailure, String);

/// Where a program's output goes.
#[derive(Debug, Clone)]
pub(super) enum Sink {
    Exec(Stream),
    File { path: String },
}

/// One running program: its surroundings and its arguments.
#[derive(Debug, Clone)]
pub(super) struct Program {
    pub(super) guest: Arc<Guest>,
    pub(super) exec: Arc<Exec>,
    pub(super) argv: Vec<String>,
    pub(super) env: BTreeMap<String, String>,
    pub(super) cwd: String,
    pub(super) stdin: Option<Arc<tokio::sync::Mutex<DuplexStream>>>,
    pub(super) stdout: Sink,
    pub(super) stderr: Sink,
}

/// Says whether a command can start: `Err` is a broken request, the inner one a command that cannot start.
pub(super) fn check(guest: &Guest, start: &ExecStart) -> Result<Result<(), Refusal>, Failure> {
    let Some(program) = start.command.first().filter(|program| !program.is_empty()) else {
        let message = format!("the command of exec {} is empty", start.id);
        return Err(Failure::new(FailureKind::InvalidRequest, message));
    };
    if let Err(refusal) = check_place(guest, start)? {
        return Ok(Err(refusal));
    }
    Ok(find(guest, program, &start.cwd).map(drop))
}

/// Time, user and directory, which code has as well as commands.
pub(super) fn check_place(guest: &Guest, start: &ExecStart) -> Result<Result<(), Refusal>, Failure> {
    if start.timeout_ms == Some(0) {
        let message = format!("the time limit of exec {} is zero", start.id);
        return Err(Failure::new(FailureKind::InvalidRequest, message));
    }
    let user = start.user.split(':').next().unwrap_or_default();
    if user.parse::<u32>().is_err() && !USERS.contains(&user) {
        return Ok(Err((StartFailure::BadUser, format!("there is no user {user:?}"))));
    }
    if let Err(missing) = lock(&guest.files).directory(&start.cwd) {
        let message = format!("the working directory cannot be used: {missing}");
        return Ok(Err((StartFailure::BadWorkingDirectory, message)));
    }
    Ok(Ok(()))
}

/// What a name stands for.
pub(super) enum Found {
    BuiltIn(String),
    Script(String),
}

pub(super) fn find(guest: &Guest, program: &str, cwd: &str) -> Result<Found, Refusal> {
    let missing = || (StartFailure::NotFound, format!("there is no program {program}"));
    let Some((directory, name)) = program.rsplit_once('/') else {
        return if PROGRAMS.contains(&program) {
            Ok(Found::BuiltIn(program.to_owned()))
        } else {
            // A script that someone put there.
            find(guest, &format!("/usr/local/bin/{program}"), cwd).map_err(|_not_there| missing())
        };
    };
    if PROGRAM_DIRECTORIES.contains(&directory) && PROGRAMS.contains(&name) {
        return Ok(Found::BuiltIn(name.to_owned()));
    }
    let path = if program.starts_with('/') { program.to_owned() } else { format!("{cwd}/{program}") };
    let files = lock(&guest.files);
    let real = files.resolve(&path, true).map_err(|_not_there| missing())?;
    let node = files.nodes.get(&real).ok_or_else(missing)?;
    match &node.content {
        Content::File(bytes) if node.mode & 0o111 != 0 => {
            Ok(Found::Script(String::from_utf8_lossy(bytes).into_owned()))
        }
        _ => Err((StartFailure::NotExecutable, format!("{program} cannot be run"))),
    }
}

/// Runs an exec from `Started` to `Closed`, or to the end of the place.
pub(super) async fn run(guest: Arc<Guest>, exec: Arc<Exec>, start: ExecStart, stdin: DuplexStream) {
    let has_stdin = start.stdin || start.terminal.is_some();
    let before = start.track_files.then(|| Before::of(&lock(&guest.files), &start.cwd));
    let program = Program {
        guest: Arc::clone(&guest),
        exec: Arc::clone(&exec),
        argv: start.command,
        env: start.env,
        cwd: start.cwd,
        stdin: has_stdin.then(|| Arc::new(tokio::sync::Mutex::new(stdin))),
        stdout: Sink::Exec(Stream::Stdout),
        stderr: Sink::Exec(Stream::Stderr),
    };
    let time_limit = async {
        match start.timeout_ms {
            Some(timeout_ms) => tokio::time::sleep(Duration::from_millis(timeout_ms)).await,
            None => std::future::pending().await,
        }
    };
    let life = async {
        let ended = tokio::select! {
            biased;
            () = exec.until(|state| state.killed.is_some()) => {
                Ended::Signal(exec.state.borrow().killed.unwrap_or(SIGKILL))
            }
            ended = program.run() => ended,
        };
        let changes = before.and_then(|before| before.changes(&lock(&guest.files)));
        if let Some(changes) = changes {
            exec.rich(&changes).await;
        }
        exec.exited(ended);
        exec.until(|state| state.n_children == 0).await;
        exec.closed();
    };
    let limited = async {
        time_limit.await;
        exec.kill(Cause::TimeLimit);
        std::future::pending::<()>().await;
    };
    tokio::select! {
        () = life => {}
        () = limited => {}
        () = guest.ended() => {}
    }
}

impl Program {
    /// What runs the code of a cell.
    pub(super) fn of_cell(
        guest: &Arc<Guest>,
        exec: &Arc<Exec>,
        env: BTreeMap<String, String>,
        cwd: String,
    ) -> Self {
        Self {
            guest: Arc::clone(guest),
            exec: Arc::clone(exec),
            argv: Vec::new(),
            env,
            cwd,
            stdin: None,
            stdout: Sink::Exec(Stream::Stdout),
            stderr: Sink::Exec(Stream::Stderr),
        }
    }

    pub(super) async fn run(mut self) -> Ended {
        self.guest.awake().await;
        let name = self.argv.first().cloned().unwrap_or_default();
        match find(&self.guest, &name, &self.cwd) {
            Ok(Found::BuiltIn(name)) => Box::pin(self.built_in(&name)).await,
            Ok(Found::Script(script)) => Box::pin(shell::run(self, &script)).await,
            Err((reason, message)) => {
                self.complain(&message).await;
                Ended::Code(if reason == StartFailure::NotFound { 127 } else { 126 })
            }
        }
    }

    async fn built_in(&mut self, name: &str) -> Ended {
        let arguments: Vec<String> = self.argv.get(1..).unwrap_or_default().to_vec();
        match name {
            "true" => Ended::Code(0),
            "false" => Ended::Code(1),
            "exit" => Ended::Code(number(arguments.first(), 0)),
            "echo" => self.echo(&arguments).await,
            "printf" => self.say(unescape(&arguments.join(" ")).into()).await,
            "pwd" => self.say(format!("{}\n", self.cwd).into()).await,
            "hostname" => self.say(format!("{}\n", self.guest.hostname).into()).await,
            "id" => self.say("uid=0(root) gid=0(root)\n".into()).await,
            "cat" => self.cat(&arguments).await,
            "seq" => self.seq(&arguments).await,
            "yes" => self.yes(&arguments).await,
            "sleep" => self.sleep(arguments.first()).await,
            "env" => self.env(&arguments).await,
            "sh" | "bash" => self.sh(&arguments).await,
            "kill" => Ended::Signal(signal_of(&arguments)),
            "oom" => self.run_out_of_memory(Ended::Signal(SIGKILL)),
            "oom-child" => self.run_out_of_memory(Ended::Code(1)),
            "late" => {
                self.sleep(arguments.first()).await;
                self.echo(arguments.get(1..).unwrap_or_default()).await
            }
            "listen" => self.listen(number(arguments.first(), 0)).await,
            "stty" => {
                let size = self.exec.state.borrow().size;
                match size {
                    Some(size) => self.say(format!("{} {}\n", size.rows, size.cols).into()).await,
                    None => self.fail("stty: not a terminal").await,
                }
            }
            "rich" => rich::run(self, &arguments).await,
            "ls" | "mkdir" | "rm" | "touch" => self.change_files(name, &arguments).await,
            _ => self.fail(&format!("{name}: not simulated")).await,
        }
    }

    pub(super) async fn put(&self, sink: &Sink, bytes: Bytes) {
        self.guest.awake().await;
        match sink {
            Sink::Exec(stream) => {
                let bytes = if self.exec.has_terminal { with_returns(&bytes) } else { bytes };
                self.exec.print(*stream, bytes).await;
            }
            Sink::File { path } => {
                // A full disk makes a toy program lose its output, as many real ones do.
                let written = lock(&self.guest.files).write(path, WriteMode::Append, None, false, bytes);
                written.map(drop).unwrap_or_default();
            }
        }
    }

    async fn say(&self, bytes: Bytes) -> Ended {
        self.put(&self.stdout, bytes).await;
        Ended::Code(0)
    }

    pub(super) async fn complain(&self, message: &str) {
        self.put(&self.stderr, format!("{message}\n").into()).await;
    }

    async fn fail(&self, message: &str) -> Ended {
        self.complain(message).await;
        Ended::Code(1)
    }

    pub(super) fn path(&self, path: &str) -> String {
        if path.starts_with('/') { path.to_owned() } else { format!("{}/{path}", self.cwd) }
    }

    async fn echo(&self, arguments: &[String]) -> Ended {
        match arguments.split_first() {
            Some((option, rest)) if option == "-n" => self.say(rest.join(" ").into()).await,
            _ => self.say(format!("{}\n", arguments.join(" ")).into()).await,
        }
    }

    async fn cat(&self, paths: &[String]) -> Ended {
        if paths.is_empty() {
            return self.copy_stdin().await;
        }
        for path in paths {
            let read = lock(&self.guest.files).read(&self.path(path), 0, None);
            match read {
                Ok((_entry, bytes)) => self.put(&self.stdout, bytes).await,
                Err(failure) => return self.fail(&format!("cat: {failure}")).await,
            }
        }
        Ended::Code(0)
    }

    async fn copy_stdin(&self) -> Ended {
        let Some(stdin) = &self.stdin else { return Ended::Code(0) };
        let mut stdin = stdin.lock().await;
        let mut buffer = BytesMut::with_capacity(PRINT_BYTES);
        while matches!(stdin.read_buf(&mut buffer).await, Ok(1..)) {
            let bytes = buffer.split().freeze();
            let is_end = |byte: &u8| self.exec.has_terminal && *byte == shell::END_OF_FILE;
            if let Some(end) = bytes.iter().position(is_end) {
                self.put(&self.stdout, bytes.slice(..end)).await;
                break;
            }
            self.put(&self.stdout, bytes).await;
        }
        Ended::Code(0)
    }

    async fn seq(&self, arguments: &[String]) -> Ended {
        let (first, last) = match arguments {
            [last] => (1, number(Some(last), 0)),
            [first, last, ..] => (number(Some(first), 1), number(Some(last), 0)),
            [] => return self.fail("seq: missing operand").await,
        };
        self.lines((first..=last).map(|n: i64| n.to_string())).await
    }

    async fn yes(&self, arguments: &[String]) -> Ended {
        let (word, n) = match arguments {
            [] => ("y", MAX_YES_LINES),
            [word] => (word.as_str(), MAX_YES_LINES),
            [word, n, ..] => (word.as_str(), number(Some(n), MAX_YES_LINES).min(MAX_YES_LINES)),
        };
        self.lines((0..n).map(|_| word.to_owned())).await
    }

    async fn lines(&self, lines: impl Iterator<Item = String>) -> Ended {
        let mut buffer = BytesMut::new();
        for line in lines {
            buffer.extend_from_slice(line.as_bytes());
            buffer.extend_from_slice(b"\n");
            if buffer.len() >= PRINT_BYTES {
                self.put(&self.stdout, buffer.split().freeze()).await;
            }
        }
        self.say(buffer.freeze()).await
    }

    async fn sleep(&self, seconds: Option<&String>) -> Ended {
        let span = match seconds.map(|text| text.parse::<f64>()) {
            Some(Ok(seconds)) => Duration::try_from_secs_f64(seconds).unwrap_or(MAX_SLEEP).min(MAX_SLEEP),
            Some(Err(_)) | None => MAX_SLEEP,
        };
        tokio::time::sleep(span).await;
        self.guest.awake().await;
        Ended::Code(0)
    }

    async fn env(&mut self, arguments: &[String]) -> Ended {
        let n_variables = arguments.iter().take_while(|argument| argument.contains('=')).count();
        for (name, value) in arguments[..n_variables].iter().filter_map(|argument| argument.split_once('=')) {
            self.env.insert(name.to_owned(), value.to_owned());
        }
        if n_variables < arguments.len() {
            let inner = Self { argv: arguments[n_variables..].to_vec(), ..self.clone() };
            return Box::pin(inner.run()).await;
        }
        self.lines(self.env.iter().map(|(name, value)| format!("{name}={value}"))).await
    }

    async fn sh(&self, arguments: &[String]) -> Ended {
        let script = match arguments {
            [option, script, ..] if option.starts_with('-') && option.ends_with('c') => script.clone(),
            [] if self.exec.has_terminal => return Box::pin(shell::interact(self.clone())).await,
            [] => match &self.stdin {
                Some(stdin) => {
                    let mut script = String::new();
                    // What is not text is no script.
                    stdin.lock().await.read_to_string(&mut script).await.unwrap_or_default();
                    script
                }
                None => String::new(),
            },
            [path, ..] => {
                let read = lock(&self.guest.files).read(&self.path(path), 0, None);
                match read {
                    Ok((_entry, bytes)) => String::from_utf8_lossy(&bytes).into_owned(),
                    Err(failure) => return self.fail(&format!("sh: {failure}")).await,
                }
            }
        };
        Box::pin(shell::run(self.clone(), &script)).await
    }

    fn run_out_of_memory(&self, ended: Ended) -> Ended {
        self.guest.oom_kills.fetch_add(1, Ordering::SeqCst);
        self.exec.state.send_modify(|state| state.oom_kills += 1);
        ended
    }

    /// Holds a port open, which sends back what it gets, until it is killed.
    async fn listen(&self, port: u16) -> Ended {
        struct Port(Arc<Guest>, u16);
        impl Drop for Port {
            fn drop(&mut self) {
                lock(&self.0.ports).remove(&self.1);
            }
        }
        lock(&self.guest.ports).insert(port);
        let _port = Port(Arc::clone(&self.guest), port);
        self.say(format!("listening on {port}\n").into()).await;
        std::future::pending().await
    }

    async fn change_files(&self, name: &str, arguments: &[String]) -> Ended {
        let paths =
            arguments.iter().filter(|argument| !argument.starts_with('-')).map(|path| self.path(path));
        let has_options = arguments.iter().any(|argument| argument.starts_with('-'));
        if name == "ls" {
            let path = paths.into_iter().next().unwrap_or_else(|| self.cwd.clone());
            return self.ls(&path).await;
        }
        for path in paths {
            let changed = {
                let mut files = lock(&self.guest.files);
                match name {
                    "mkdir" => files.mkdir(&path, has_options, None),
                    "touch" => files.write(&path, WriteMode::Append, None, false, Bytes::new()).map(drop),
                    _ => files.remove(&path, has_options),
                }
            };
            if let Err(failure) = changed {
                return self.fail(&format!("{name}: {failure}")).await;
            }
        }
        Ended::Code(0)
    }

    async fn ls(&self, path: &str) -> Ended {
        let names = {
            let files = lock(&self.guest.files);
            files.directory(path).map(|root| {
                let name = |path: &String| path.rsplit('/').next().unwrap_or_default().to_owned();
                files.children(&root).map(|(path, _)| name(path)).collect::<Vec<_>>()
            })
        };
        match names {
            Ok(names) => self.lines(names.into_iter()).await,
            Err(failure) => self.fail(&format!("ls: {failure}")).await,
        }
    }
}

fn number<T: std::str::FromStr>(text: Option<&String>, otherwise: T) -> T {
    text.and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

/// `kill -9 …`: every process id is taken for our own.
fn signal_of(arguments: &[String]) -> i32 {
    let option = arguments.iter().find_map(|argument| argument.strip_prefix('-'));
    match option.unwrap_or("TERM").trim_start_matches("SIG") {
        "HUP" => 1,
        "INT" => 2,
        "QUIT" => 3,
        "ABRT" => 6,
        "KILL" => SIGKILL,
        "SEGV" => 11,
        digits => digits.parse().ok().filter(|signal| (1..=64).contains(signal)).unwrap_or(15),
    }
}

fn unescape(text: &str) -> String {
    text.replace("\\n", "\n").replace("\\t", "\t").replace("\\\\", "\\")
}

fn with_returns(bytes: &Bytes) -> Bytes {
    let mut out = BytesMut::with_capacity(bytes.len());
    for line in bytes.split_inclusive(|byte| *byte == b'\n') {
        match line.split_last() {
            Some((b'\n', text)) => {
                out.extend_from_slice(text);
                out.extend_from_slice(b"\r\n");
            }
            _ => out.extend_from_slice(line),
        }
    }
    out.freeze()
}

//! The simulated guest: the same frames as the real one, over memory.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use guest_protocol::{
    ExecStart, Failure, FailureKind, Frame, FrameKind, Hello, Process, Request, Response, StartFailure,
    Target,
};
use tokio::{
    io::DuplexStream,
    sync::{broadcast, watch},
    time::timeout,
};

use super::{
    cells::{self, Contexts},
    commands,
    exec::{Cause, Exec},
    files::{Files, MAX_FILES_BYTES},
    wire::{FrameReader, FrameWriter, Lost, Result},
};

/// Answers to starts that failed, kept so that the same id again gets the same answer.
const MAX_REMEMBERED_FAILURES: usize = 64;
const MAX_EXECS: usize = 512;
const STDIN_PIPE_BYTES: usize = 64 * 1024;
/// How long a shutdown waits for hosts to take the last events.
const LAST_ACKS: Duration = Duration::from_secs(2);
/// A port that answers with what it is sent, in every simulated sandbox.
pub(super) const ECHO_PORT: u16 = 7;
pub(super) const ECHO_SOCKET: &str = "/run/echo.sock";
/// What port 0 means.
const ANY_PORT: u16 = 40_000;
const FIRST_PID: i32 = 2;
const FIRST_CHILD_PID: i32 = 1_000_000;

type Answer = std::result::Result<Response, Failure>;

#[derive(Debug)]
pub(super) struct Guest {
    pub(super) hostname: String,
    max_processes: usize,
    pub(super) files: Arc<Mutex<Files>>,
    execs: Mutex<BTreeMap<String, Arc<Exec>>>,
    pub(super) contexts: Contexts,
    failures: Mutex<VecDeque<(String, Response)>>,
    is_stopping: AtomicBool,
    next_pid: AtomicI32,
    pub(super) oom_kills: AtomicU64,
    /// TCP ports that a program listens on.
    pub(super) ports: Mutex<BTreeSet<u16>>,
    /// True once the place is gone, however it went.
    pub(super) ended: watch::Sender<bool>,
    pub(super) is_paused: watch::Sender<bool>,
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A simulation goes on with what a panicking task left.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Guest {
    pub(super) fn new(hostname: String, max_processes: usize, files: Arc<Mutex<Files>>) -> Self {
        Self {
            hostname,
            max_processes,
            files,
            execs: Mutex::default(),
            contexts: Contexts::default(),
            failures: Mutex::default(),
            is_stopping: AtomicBool::new(false),
            next_pid: AtomicI32::new(FIRST_PID),
            oom_kills: AtomicU64::new(0),
            ports: Mutex::new(BTreeSet::from([ECHO_PORT])),
            ended: watch::Sender::new(false),
            is_paused: watch::Sender::new(false),
        }
    }

    /// The end of everything: programs and connections stop where they are.
    pub(super) fn end(&self) {
        self.ended.send_replace(true);
    }

    pub(super) fn is_ended(&self) -> bool {
        *self.ended.borrow()
    }

    pub(super) async fn ended(&self) {
        // The sender is ours, so it cannot be gone.
        self.ended.subscribe().wait_for(|ended| *ended).await.map(drop).unwrap_or_default();
    }

    /// Returns at once, unless the sandbox is paused.
    pub(super) async fn awake(&self) {
        self.is_paused.subscribe().wait_for(|paused| !*paused).await.map(drop).unwrap_or_default();
    }

    pub(super) fn n_processes(&self) -> usize {
        let execs = lock(&self.execs);
        execs.values().map(|exec| usize::from(!exec.is_ended()) + exec.state.borrow().n_children).sum()
    }

    /// Serves one connection until it or the place ends.
    pub(super) async fn serve(self: Arc<Self>, io: DuplexStream) {
        let (reader, writer) = tokio::io::split(io);
        let (mut reader, mut writer) = (FrameReader::new(reader), FrameWriter::new(writer));
        tokio::select! {
            // A connection that is lost concerns only its host.
            _lost = self.answer_all(&mut reader, &mut writer) => {}
            () = self.ended() => {}
        }
    }

    async fn answer_all(self: &Arc<Self>, reader: &mut FrameReader, writer: &mut FrameWriter) -> Result<()> {
        writer.send(&hello()?).await?;
        self.answer_requests(reader, writer).await
    }

    pub(super) async fn answer_requests(
        self: &Arc<Self>,
        reader: &mut FrameReader,
        writer: &mut FrameWriter,
    ) -> Result<()> {
        while let Some(frame) = reader.next().await? {
            if frame.kind != FrameKind::Request {
                return Err(Lost);
            }
            match frame.parse::<Request>() {
                Ok(request) => self.answer(request, reader, writer).await?,
                Err(error) => {
                    // Whether a body follows cannot be known, so the connection ends here.
                    let message = format!("a request that cannot be read: {error}");
                    return writer.answer(Err(Failure::new(FailureKind::InvalidRequest, message))).await;
                }
            }
        }
        Ok(())
    }

    pub(super) async fn answer(
        self: &Arc<Self>,
        request: Request,
        reader: &mut FrameReader,
        writer: &mut FrameWriter,
    ) -> Result<()> {
        match request {
            Request::Ping => writer.answer(Ok(Response::Done)).await,
            Request::ExecStart(start) => writer.answer(self.start(start)).await,
            Request::ExecAttach { id, from } => self.attach(&id, from, reader, writer).await,
            Request::ExecStdin { id, close } => self.feed(&id, close, reader, writer).await,
            Request::ExecSignal { id, signal, scope } => {
                writer.answer(self.find(&id).and_then(|exec| exec.signal(signal, scope))).await
            }
            Request::ExecResize { id, size } => {
                writer.answer(self.find(&id).and_then(|exec| exec.resize(size))).await
            }
            Request::ExecList => {
                let execs = lock(&self.execs).values().map(|exec| exec.summary()).collect();
                writer.answer(Ok(Response::Execs { execs })).await
            }
            Request::Read { path, offset, length } => {
                let read = lock(&self.files).read(&path, offset, length);
                match read {
                    Ok((entry, bytes)) => {
                        writer.answer(Ok(Response::Reading { entry })).await?;
                        writer.body(bytes).await
                    }
                    Err(failure) => writer.answer(Err(failure)).await,
                }
            }
            Request::TarOut { path } => {
                let packed = lock(&self.files).pack(&path);
                match packed {
                    Ok(bytes) => {
                        writer.answer(Ok(Response::Packing)).await?;
                        writer.body(bytes).await
                    }
                    Err(failure) => writer.answer(Err(failure)).await,
                }
            }
            Request::Write { .. } | Request::TarIn { .. } => self.take_body(&request, reader, writer).await,
            Request::Watch { path, recursive } => self.watch(&path, recursive, reader, writer).await,
            Request::Connect { target } => self.connect(&target, reader, writer).await,
            Request::Listen { port } => self.listen(port, reader, writer).await,
            Request::Processes => writer.answer(Ok(self.processes())).await,
            Request::KillAll { disk } => {
                self.kill_all(if disk { Cause::DiskLimit } else { Cause::Request }).await;
                writer.answer(Ok(Response::Done)).await
            }
            Request::Shutdown { grace_ms, .. } => {
                self.shut_down(Duration::from_millis(grace_ms)).await;
                // Whether or not the host still listens, the guest leaves now.
                let told = writer.answer(Ok(Response::Done)).await;
                self.end();
                told
            }
            simple => {
                let answer = match cells::answer(self, &simple).await {
                    Some(answer) => answer,
                    None => lock(&self.files).answer(&simple),
                };
                writer.answer(answer).await
            }
        }
    }

    fn find(&self, id: &str) -> std::result::Result<Arc<Exec>, Failure> {
        let unknown = || Failure::new(FailureKind::NotFound, format!("no exec {}", shown(id)));
        lock(&self.execs).get(id).cloned().ok_or_else(unknown)
    }

    pub(super) fn start(self: &Arc<Self>, start: ExecStart) -> Answer {
        if let Ok(exec) = self.find(&start.id) {
            return Ok(Response::Started { pid: exec.pid });
        }
        if let Some((_, answer)) = lock(&self.failures).iter().find(|(id, _)| *id == start.id) {
            return Ok(answer.clone());
        }
        if self.is_stopping.load(Ordering::SeqCst) {
            return Err(Failure::new(FailureKind::WrongState, "the sandbox is being stopped"));
        }
        if lock(&self.execs).len() >= MAX_EXECS {
            let message = format!("{MAX_EXECS} execs are known already; acknowledge some");
            return Err(Failure::new(FailureKind::LimitReached, message));
        }
        let refused = if self.n_processes() >= self.max_processes {
            Some((StartFailure::LimitReached, "the sandbox has no process left".to_owned()))
        } else {
            match &start.cell {
                Some(cell) => cells::check(self, &start, cell)?.err(),
                None => commands::check(self, &start)?.err(),
            }
        };
        if let Some((reason, message)) = refused {
            return Ok(self.remember_failure(start.id, Response::NotStarted { reason, message }));
        }
        Ok(Response::Started { pid: self.launch(start) })
    }

    fn remember_failure(&self, id: String, answer: Response) -> Response {
        let mut failures = lock(&self.failures);
        if failures.len() == MAX_REMEMBERED_FAILURES {
            failures.pop_front();
        }
        failures.push_back((id, answer.clone()));
        answer
    }

    pub(super) fn new_pid(&self) -> i32 {
        self.next_pid.fetch_add(1, Ordering::SeqCst)
    }

    fn launch(self: &Arc<Self>, mut start: ExecStart) -> i32 {
        let pid = self.new_pid();
        let (ours, theirs) = tokio::io::duplex(STDIN_PIPE_BYTES);
        let is_open = start.stdin || start.terminal.is_some();
        let stdin = is_open.then_some(ours);
        let exec = Arc::new(Exec::new(&start.id, pid, start.command.clone(), start.terminal, stdin));
        let mut execs = lock(&self.execs);
        if let Some(first) = execs.get(&start.id) {
            // The same request came twice at once.
            return first.pid;
        }
        execs.insert(start.id.clone(), Arc::clone(&exec));
        drop(execs);
        exec.started();
        match start.cell.take() {
            Some(cell) => tokio::spawn(cells::run(Arc::clone(self), exec, start, cell)),
            None => tokio::spawn(commands::run(Arc::clone(self), exec, start, theirs)),
        };
        pid
    }

    async fn attach(
        &self,
        id: &str,
        from: u64,
        reader: &mut FrameReader,
        writer: &mut FrameWriter,
    ) -> Result<()> {
        let exec = match self.find(id) {
            Ok(exec) => exec,
            Err(failure) => return writer.answer(Err(failure)).await,
        };
        let forget = || drop(lock(&self.execs).remove(id));
        match exec.attach(reader, writer, from, forget).await? {
            // The connection was an event stream and can be nothing else any more.
            Ok(()) => Err(Lost),
            Err(failure) => writer.answer(Err(failure)).await,
        }
    }

    async fn feed(
        &self,
        id: &str,
        close: bool,
        reader: &mut FrameReader,
        writer: &mut FrameWriter,
    ) -> Result<()> {
        let fed = match self.find(id) {
            Ok(exec) => exec.feed(reader, close).await?,
            Err(failure) => Err((failure, true)),
        };
        match fed {
            Ok(response) => writer.answer(Ok(response)).await,
            Err((failure, has_body_left)) => {
                writer.answer(Err(failure)).await?;
                if has_body_left { reader.skip_body().await } else { Ok(()) }
            }
        }
    }

    /// Serves the requests that bring bytes for files. They are held in memory until the end, then take effect at once.
    async fn take_body(
        &self,
        request: &Request,
        reader: &mut FrameReader,
        writer: &mut FrameWriter,
    ) -> Result<()> {
        let refusal = lock(&self.files).refuses(request).err();
        if let Some(failure) = refusal {
            writer.answer(Err(failure)).await?;
            return reader.skip_body().await;
        }
        let mut bytes = BytesMut::new();
        while let Some(part) = reader.body().await? {
            if bytes.len() as u64 + part.len() as u64 > MAX_FILES_BYTES {
                let failure = Failure::new(FailureKind::LimitReached, "no space left for that many bytes");
                writer.answer(Err(failure)).await?;
                return reader.skip_body().await;
            }
            bytes.extend_from_slice(&part);
        }
        let answer = match request {
            Request::Write { path, write, mode, parents } => {
                lock(&self.files).write(path, *write, *mode, *parents, bytes.freeze())
            }
            Request::TarIn { path, keep_ids } => lock(&self.files).unpack(path, *keep_ids, &bytes),
            _ => Err(Failure::new(FailureKind::Internal, "a request without a body")),
        };
        writer.answer(answer.map(|bytes| Response::Written { bytes })).await
    }

    async fn watch(
        &self,
        path: &str,
        recursive: bool,
        reader: &mut FrameReader,
        writer: &mut FrameWriter,
    ) -> Result<()> {
        let watched = lock(&self.files).watch(path);
        let (root, mut events) = match watched {
            Ok(watched) => watched,
            Err(failure) => return writer.answer(Err(failure)).await,
        };
        writer.answer(Ok(Response::Watching)).await?;
        loop {
            let event = tokio::select! {
                event = events.recv() => event,
                () = reader.gone() => return Err(Lost),
            };
            let event = match event {
                Ok(event) if Files::concerns(&root, recursive, &event) => event,
                Ok(_elsewhere) => continue,
                Err(broadcast::error::RecvError::Lagged(_)) => Files::overflow(&root),
                Err(broadcast::error::RecvError::Closed) => return Err(Lost),
            };
            writer.send(&Frame::json(FrameKind::Data, &event)?).await?;
        }
    }

    /// A port that sends back what it gets, until each side has said `End`.
    async fn connect(
        &self,
        target: &Target,
        reader: &mut FrameReader,
        writer: &mut FrameWriter,
    ) -> Result<()> {
        let refusal = match target {
            Target::Tcp(port) if !lock(&self.ports).contains(port) => {
                Some((FailureKind::WrongState, format!("nothing listens on port {port}")))
            }
            Target::Unix(path) if path != ECHO_SOCKET => {
                Some((FailureKind::NotFound, format!("there is no socket {path}")))
            }
            Target::Tcp(_) | Target::Unix(_) => None,
        };
        if let Some((kind, message)) = refusal {
            return writer.answer(Err(Failure::new(kind, message))).await;
        }
        writer.answer(Ok(Response::Connected)).await?;
        while let Some(bytes) = reader.body().await? {
            writer.send(&Frame::new(FrameKind::Data, bytes)).await?;
        }
        writer.send(&Frame::new(FrameKind::End, Bytes::new())).await?;
        Err(Lost)
    }

    /// Listens until the host leaves. No program here is ever a client.
    async fn listen(&self, port: u16, reader: &mut FrameReader, writer: &mut FrameWriter) -> Result<()> {
        let port = if port == 0 { ANY_PORT } else { port };
        if !lock(&self.ports).insert(port) {
            let message = format!("could not listen on port {port}: it is taken");
            return writer.answer(Err(Failure::new(FailureKind::AlreadyExists, message))).await;
        }
        let told = writer.answer(Ok(Response::Listening { port })).await;
        let left = reader.next().await;
        lock(&self.ports).remove(&port);
        told.and(left).and(Err(Lost))
    }

    fn processes(&self) -> Response {
        let execs = lock(&self.execs);
        let processes = execs.values().flat_map(|exec| {
            let first = (!exec.is_ended()).then_some(exec.pid);
            // What an exec left in the background has ids of its own, far from those of execs.
            let children =
                (1..).take(exec.state.borrow().n_children).map(|n: i32| FIRST_CHILD_PID + exec.pid * 64 + n);
            first.into_iter().chain(children).map(|pid| Process {
                pid,
                parent: 1,
                user: 0,
                state: 'S',
                memory_bytes: super::instance::PROCESS_BYTES,
                cpu_micros: 0,
                command: exec.command.clone(),
                exec: Some(exec.id.clone()),
            })
        });
        Response::Processes { processes: processes.collect() }
    }

    fn known_execs(&self) -> Vec<Arc<Exec>> {
        lock(&self.execs).values().cloned().collect()
    }

    async fn kill_all(&self, cause: Cause) {
        for exec in self.known_execs() {
            exec.kill(cause);
        }
        self.nothing_runs().await;
    }

    async fn nothing_runs(&self) {
        for exec in self.known_execs() {
            exec.until(|state| state.is_closed).await;
        }
    }

    async fn shut_down(&self, grace: Duration) {
        self.is_stopping.store(true, Ordering::SeqCst);
        for exec in self.known_execs() {
            exec.terminate();
        }
        if timeout(grace, self.nothing_runs()).await.is_err() {
            self.kill_all(Cause::Shutdown).await;
        }
        let last_events_taken = async {
            for exec in self.known_execs() {
                exec.last_events_taken().await;
            }
        };
        // A host that does not take them has lost them; the sandbox was to end.
        timeout(LAST_ACKS, last_events_taken).await.unwrap_or_default();
    }
}

pub(super) fn hello() -> Result<Frame> {
    Ok(Frame::json(FrameKind::Hello, &Hello::of_build("fake"))?)
}

/// An id as it may stand in a message.
fn shown(id: &str) -> String {
    id.chars().take(64).flat_map(char::escape_debug).collect()
}

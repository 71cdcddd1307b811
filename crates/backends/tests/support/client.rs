//! A small client for guests.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use bytes::BytesMut;
use guest_protocol::{
    Decoder, ExecEvent, ExecStart, ExitReport, Failure, Frame, FrameKind, Request, Response, WriteMode,
    encode,
};
use sandbox::{Defaults, GuestStream, Instance, SandboxId};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

/// Nothing here takes long on a working host.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
/// Bytes in one frame of a body.
const PIECE_BYTES: usize = 64 * 1024;

/// The result of a command.
#[derive(Debug)]
pub(crate) struct Output {
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    pub(crate) report: ExitReport,
}

impl Output {
    pub(crate) fn code(&self) -> Option<u8> {
        self.report.code
    }
}

static NEXT: AtomicU64 = AtomicU64::new(1);

pub(crate) fn random() -> [u8; 8] {
    let number = NEXT.fetch_add(1, Ordering::Relaxed) | (u64::from(std::process::id()) << 32);
    number.to_be_bytes()
}

pub(crate) fn fresh_id() -> SandboxId {
    SandboxId::from_random(random())
}

/// One connection to a guest.
pub(crate) struct Client {
    stream: GuestStream,
    buffer: BytesMut,
    decoder: Decoder,
}

impl Client {
    pub(crate) async fn connect(instance: &dyn Instance) -> Self {
        let stream = instance.connect().await.unwrap();
        let mut client = Self { stream, buffer: BytesMut::new(), decoder: Decoder::default() };
        assert_eq!(client.frame().await.kind, FrameKind::Hello);
        client
    }

    pub(crate) async fn frame(&mut self) -> Frame {
        loop {
            if let Some(frame) = self.decoder.decode(&mut self.buffer).unwrap() {
                return frame;
            }
            let read = tokio::time::timeout(PATIENCE, self.stream.read_buf(&mut self.buffer)).await.unwrap();
            assert_ne!(read.unwrap(), 0, "the guest hung up");
        }
    }

    pub(crate) async fn ask(&mut self, request: &Request) -> Response {
        self.try_ask(request).await.expect("the guest refuses")
    }

    /// `None` if the guest refuses.
    pub(crate) async fn try_ask(&mut self, request: &Request) -> Option<Response> {
        let mut wire = BytesMut::new();
        encode(&Frame::request(request).unwrap(), &mut wire).unwrap();
        self.stream.write_all(&wire).await.unwrap();
        let frame = self.frame().await;
        (frame.kind == FrameKind::Response).then(|| frame.parse().unwrap())
    }

    /// Writes a file of this many bytes; returns the guest's refusal, if it refuses.
    pub(crate) async fn write(&mut self, path: &str, bytes: usize) -> Result<Response, Failure> {
        let request =
            Request::Write { path: path.to_owned(), write: WriteMode::Replace, mode: None, parents: false };
        let mut wire = BytesMut::new();
        encode(&Frame::request(&request).unwrap(), &mut wire).unwrap();
        for piece in vec![b'x'; bytes].chunks(PIECE_BYTES) {
            let payload = bytes::Bytes::copy_from_slice(piece);
            encode(&Frame { kind: FrameKind::Data, payload }, &mut wire).unwrap();
        }
        encode(&Frame { kind: FrameKind::End, payload: bytes::Bytes::new() }, &mut wire).unwrap();
        self.stream.write_all(&wire).await.unwrap();
        let frame = self.frame().await;
        match frame.kind {
            FrameKind::Response => Ok(frame.parse().unwrap()),
            _ => Err(frame.parse().unwrap()),
        }
    }

    /// Collects a command's output, until it ends.
    pub(crate) async fn follow(&mut self, id: &str) -> Output {
        self.ask(&Request::ExecAttach { id: id.to_owned(), from: 1 }).await;
        let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
        loop {
            match self.next_event().await {
                ExecEvent::Stdout(bytes) => stdout.extend_from_slice(&bytes),
                ExecEvent::Stderr(bytes) => stderr.extend_from_slice(&bytes),
                ExecEvent::Exited(report) => {
                    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                    return Output { stdout: text(&stdout), stderr: text(&stderr), report };
                }
                ExecEvent::Started { .. } | ExecEvent::Rich(_) | ExecEvent::Closed => {}
            }
        }
    }

    async fn next_event(&mut self) -> ExecEvent {
        let (number, event) = ExecEvent::from_frame(&self.frame().await).unwrap();
        let mut wire = BytesMut::new();
        encode(&Frame::ack(number), &mut wire).unwrap();
        self.stream.write_all(&wire).await.unwrap();
        event
    }
}

/// Starts a command and waits for its end.
pub(crate) async fn run_as(instance: &dyn Instance, user: &str, command: &[&str]) -> Output {
    let id = format!("exc-{}", NEXT.fetch_add(1, Ordering::Relaxed));
    let mut client = Client::connect(instance).await;
    let env = Defaults::default().env;
    let start = ExecStart {
        id: id.clone(),
        command: command.iter().map(|word| (*word).to_owned()).collect(),
        env,
        cwd: "/".to_owned(),
        user: user.to_owned(),
        ..ExecStart::default()
    };
    let started = client.ask(&Request::ExecStart(start)).await;
    assert!(matches!(started, Response::Started { .. }), "{started:?}");
    client.follow(&id).await
}

pub(crate) async fn run(instance: &dyn Instance, command: &[&str]) -> Output {
    run_as(instance, "0:0", command).await
}

/// Runs a shell script as root inside.
pub(crate) async fn sh(instance: &dyn Instance, script: &str) -> Output {
    run(instance, &["/bin/sh", "-c", script]).await
}

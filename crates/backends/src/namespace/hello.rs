//! This back end's own few messages to guests: whether one is alive, and when its disk is full.

use std::time::Duration;

use bytes::BytesMut;
use guest_protocol::{Decoder, Frame, FrameKind, Hello, MAX_FRAME_BYTES, Request, Response, encode};
use sandbox::{GuestStream, SandboxId};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::{Host, instance};

/// A guest on a busy machine answers in milliseconds.
const HELLO_TIME: Duration = Duration::from_secs(10);

/// Reads one frame; `None` if the stream ends or cannot be trusted.
async fn read_frame(stream: &mut GuestStream, buffer: &mut BytesMut) -> Option<Frame> {
    let mut decoder = Decoder::default();
    loop {
        if let Some(frame) = decoder.decode(buffer).ok()? {
            return Some(frame);
        }
        if buffer.len() > MAX_FRAME_BYTES || stream.read_buf(buffer).await.ok()? == 0 {
            return None;
        }
    }
}

/// Whether a guest answers at all, in a version that we support.
pub(crate) async fn greets(host: &Host, id: &SandboxId) -> bool {
    let greeting = async {
        let mut stream = instance::connect(host, id).await.ok()?;
        greeted(&mut stream, &mut BytesMut::new()).await
    };
    matches!(tokio::time::timeout(HELLO_TIME, greeting).await, Ok(Some(_hello)))
}

pub(crate) async fn greeted(stream: &mut GuestStream, buffer: &mut BytesMut) -> Option<Hello> {
    let frame = read_frame(stream, buffer).await?;
    let hello: Hello = (frame.kind == FrameKind::Hello).then(|| frame.parse().ok())??;
    hello.agree().is_ok().then_some(hello)
}

/// Sends a guest a small request. `None` if it does not answer properly and soon.
pub(crate) async fn tell(host: &Host, id: &SandboxId, request: &Request) -> Option<Response> {
    let told = async {
        let mut stream = instance::connect(host, id).await.ok()?;
        let mut wire = BytesMut::new();
        encode(&Frame::request(request).ok()?, &mut wire).ok()?;
        stream.write_all(&wire).await.ok()?;
        let mut buffer = BytesMut::new();
        greeted(&mut stream, &mut buffer).await?;
        let frame = read_frame(&mut stream, &mut buffer).await?;
        (frame.kind == FrameKind::Response).then(|| frame.parse().ok())?
    };
    tokio::time::timeout(HELLO_TIME, told).await.ok()?
}

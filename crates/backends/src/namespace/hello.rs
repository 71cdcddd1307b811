//! The guest's first frame, as proof that a guest is there and awake.

use std::time::Duration;

use bytes::BytesMut;
use guest_protocol::{Decoder, Frame, FrameKind, Hello, MAX_FRAME_BYTES};
use sandbox::{GuestStream, Instance};
use tokio::io::AsyncReadExt as _;

/// A guest on a busy machine answers in milliseconds.
const HELLO_TIME: Duration = Duration::from_secs(10);

/// Reads one frame; `None` when the stream ends or is not to be trusted.
pub(crate) async fn read_frame(stream: &mut GuestStream, buffer: &mut BytesMut) -> Option<Frame> {
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

pub(crate) async fn greets(instance: &dyn Instance) -> bool {
    let greeting = async {
        let mut stream = instance.connect().await.ok()?;
        let frame = read_frame(&mut stream, &mut BytesMut::new()).await?;
        (frame.kind == FrameKind::Hello).then(|| frame.parse::<Hello>().ok())?
    };
    matches!(tokio::time::timeout(HELLO_TIME, greeting).await, Ok(Some(_hello)))
}

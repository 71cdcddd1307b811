//! Bodies of answers, pulled frame by frame: a slow reader slows the guest, and a reader that leaves closes the
//! connection.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use guest_protocol::{Frame, FrameKind, ProtocolError};

use super::{GuestClient, GuestError, wire::Wire};
use crate::{ByteStream, error};

struct BodyReader {
    client: Arc<GuestClient>,
    wire: Wire,
    /// Bytes the guest may still send.
    left: Option<u64>,
}

pub(super) fn bytes(client: Arc<GuestClient>, wire: Wire, at_most: Option<u64>) -> ByteStream {
    let label = client.label().to_owned();
    let reader = BodyReader { client, wire, left: at_most };
    stream::try_unfold(reader, BodyReader::step)
        .map(move |chunk| chunk.map_err(|error| error::from_guest(error, &label)))
        .boxed()
}

impl BodyReader {
    async fn step(mut self) -> Result<Option<(Bytes, Self)>, GuestError> {
        loop {
            let frame = self.wire.receive().await?;
            match frame.kind {
                FrameKind::Data if frame.payload.is_empty() => {}
                FrameKind::Data => {
                    self.count(&frame)?;
                    return Ok(Some((frame.payload, self)));
                }
                FrameKind::End => {
                    self.client.keep(self.wire);
                    return Ok(None);
                }
                FrameKind::Failure => return Err(GuestError::Refused(frame.parse()?)),
                got => return Err(ProtocolError::Unexpected { expected: "data", got }.into()),
            }
        }
    }

    fn count(&mut self, frame: &Frame) -> Result<(), GuestError> {
        let Some(left) = &mut self.left else { return Ok(()) };
        match left.checked_sub(frame.payload.len() as u64) {
            Some(rest) => *left = rest,
            None => return Err(GuestError::Nonsense("more bytes than were asked for")),
        }
        Ok(())
    }
}

//! A port inside whose clients are handed to us.

use guest_protocol::{FrameKind, Incoming, ProtocolError, Request, Response};

use super::{
    GuestClient, GuestError, PortStream,
    wire::{Wire, within},
};

/// A port that the guest listens on for us; it stops when this is dropped.
#[derive(Debug)]
pub(crate) struct GuestListener {
    pub(crate) port: u16,
    wire: Wire,
}

impl GuestClient {
    /// Makes the guest listen on a port of its loopback; 0 means any free port.
    pub(crate) async fn listen(&self, port: u16) -> Result<GuestListener, GuestError> {
        let request = Request::Listen { port };
        match within(self.deadlines.answer, self.ask(&request)).await? {
            (Response::Listening { port: got }, wire) if got != 0 && (port == 0 || got == port) => {
                Ok(GuestListener { port: got, wire })
            }
            _ => Err(GuestError::Nonsense("another port than was asked for")),
        }
    }

    /// Takes over a client. A client that left meanwhile, or waited too long, is a refusal.
    pub(crate) async fn accept(&self, Incoming { incoming }: Incoming) -> Result<PortStream, GuestError> {
        let request = Request::Accept { incoming };
        let (_connected, wire) = within(self.deadlines.answer, self.ask(&request)).await?;
        Ok(PortStream::new(wire))
    }
}

impl GuestListener {
    /// The next client. Safe to drop and call again.
    pub(crate) async fn next(&mut self) -> Result<Incoming, GuestError> {
        let frame = self.wire.receive().await?;
        match frame.kind {
            FrameKind::Data => Ok(frame.parse()?),
            FrameKind::Failure => Err(GuestError::Refused(frame.parse()?)),
            got => Err(ProtocolError::Unexpected { expected: "a client", got }.into()),
        }
    }
}

//! Errors of talking to a guest.

use std::{io, time::Duration};

use guest_protocol::{Failure, ProtocolError, VersionMismatch};
use sandbox::BackendError;

#[derive(Debug, thiserror::Error)]
pub(crate) enum GuestError {
    #[error("could not reach the guest")]
    Connect(#[source] BackendError),
    #[error("the stream to the guest broke")]
    Io(#[from] io::Error),
    #[error("the guest closed the stream")]
    Closed,
    /// The request does not fit into a frame.
    #[error("the request has {len} bytes")]
    RequestTooLong { len: usize },
    #[error("the guest broke the protocol")]
    Protocol(#[from] ProtocolError),
    #[error("the guest broke the protocol: {0}")]
    Nonsense(&'static str),
    #[error("the guest said nothing for {after:?}")]
    Silent { after: Duration },
    /// The guest shares no protocol version with us.
    #[error(transparent)]
    Foreign(#[from] VersionMismatch),
    /// It was started by an earlier build that does not know the request.
    #[error("the guest speaks version {speaks} of the protocol, but this needs version {needs}")]
    TooOld { speaks: u32, needs: u32 },
    /// The guest understood the request and refused it, or failed. The connection stays usable.
    #[error("the guest refused")]
    Refused(#[source] Failure),
    /// The caller's own byte stream ended with an error.
    #[error("the caller's bytes ended early")]
    Source(#[source] sandbox::Error),
}

impl GuestError {
    /// Whether the stream broke, as opposed to the guest misbehaving or answering.
    pub(crate) fn is_lost_stream(&self) -> bool {
        matches!(self, Self::Connect(_) | Self::Io(_) | Self::Closed | Self::Silent { .. })
    }
}

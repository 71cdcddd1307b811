//! How talking to a guest can go wrong.

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
    /// Our own request does not fit a frame.
    #[error("the request has {len} bytes")]
    RequestTooLong { len: usize },
    #[error("the guest broke the protocol")]
    Protocol(#[from] ProtocolError),
    #[error("the guest broke the protocol: {0}")]
    Nonsense(&'static str),
    #[error("the guest said nothing for {after:?}")]
    Silent { after: Duration },
    /// The guest and we have no version of the protocol in common.
    #[error(transparent)]
    Foreign(#[from] VersionMismatch),
    /// It was started by an earlier build that does not know the request.
    #[error("the guest speaks version {speaks} of the protocol, but this needs version {needs}")]
    TooOld { speaks: u32, needs: u32 },
    /// The guest understood and will not or cannot. The connection stays usable.
    #[error("the guest refused")]
    Refused(#[source] Failure),
    /// The bytes that the caller was sending ended with an error of the caller's.
    #[error("the caller's bytes ended early")]
    Source(#[source] sandbox::Error),
}

impl GuestError {
    /// Whether the stream broke, as opposed to the guest misbehaving on it or answering.
    pub(crate) fn is_lost_stream(&self) -> bool {
        matches!(self, Self::Connect(_) | Self::Io(_) | Self::Closed | Self::Silent { .. })
    }
}

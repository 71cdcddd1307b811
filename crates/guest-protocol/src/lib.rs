//! Frames between host and guest.
//!
//! A connection carries one request at a time. The guest opens with [`Hello`]; the host need not wait for it before it
//! sends its first request. Then, for each request:
//!
//! ```text
//! host  → Request            one of [`Request`], as JSON
//!       → Data* End          only for requests that carry a body (see `Properties::has_body`)
//! guest ← Response           one of [`Response`], as JSON; or
//!       ← Failure            a [`Failure`], as JSON, after which the connection is ready for the next request
//!       ← Data* End          only for responses that carry a body (see `Response::body`)
//! ```
//!
//! These requests turn the connection into something else, until it closes:
//! - `ExecAttach`: after its `Response`, the guest sends `Event` frames and the host sends `Ack` frames.
//! - `Watch` and `Listen`: after its `Response`, the guest sends `Data` frames.
//! - `Connect`, `Accept` and `Sftp`: after its `Response`, both sides send `Data`; each side's `End` is its half-close.
//!
//! Both sides state their versions: the guest in its `Hello`, the host in each request (see `version.rs`).
//!
//! The guest is hostile from its first byte: everything read here is bounded, and nothing here panics.
#![forbid(unsafe_code)]

mod codec;
mod event;
mod message;
mod properties;
mod rich;
mod version;

pub use codec::{
    Decoder, Frame, FrameKind, HEADER_BYTES, MAX_DATA_BYTES, MAX_FRAME_BYTES, Message, ProtocolError, encode,
    header,
};
pub use event::{ExecEvent, ExitReport};
pub use message::{
    Body, CellStart, ContextStart, ContextState, ContextSummary, EntryKind, ExecStart, ExecStatus,
    ExecSummary, Failure, FailureKind, FileEntry, GrepMatch, Incoming, InstalledLanguage, PortProtocol,
    Process, Request, Response, Rlimit, SignalScope, StartFailure, Target, TerminalMode, TerminalSize,
    WatchEvent, WatchKind, WriteMode,
};
pub use properties::Properties;
pub use rich::{ChangedFile, FileChange, MimeBundle, Rich, StateLoss};
pub use version::{Hello, OLDEST_VERSION, PROTOCOL_VERSION, VersionMismatch};

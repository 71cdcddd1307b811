//! The engine: decides what happens to sandboxes, and is the only thing that front ends call.
#![forbid(unsafe_code)]

mod access;
mod clock;
mod config;
mod engine;
mod reference;
mod view;

use bytes::Bytes;
use futures_util::stream::BoxStream;
pub use guest_protocol::{GrepMatch, SignalScope, Target, WatchEvent, WatchKind};
use sandbox::Result;
pub use store::{Entry, EntryKind, Item, LedgerLimits, Store};

pub use crate::{
    access::{Principal, Scope},
    clock::{Clock, ManualClock, SystemClock},
    config::{Deadlines, EngineConfig},
    engine::*,
    reference::SandboxRef,
    view::{ExecView, SandboxFilter, SandboxView},
};

/// Bytes on their way, pulled by the reader; dropping it stops whoever sends.
pub type ByteStream = BoxStream<'static, Result<Bytes>>;

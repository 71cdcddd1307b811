//! The daemon's API as typed calls: HTTP over its Unix socket.
//!
//! Connections are reused; a request that must run beside a stream opens another one.

mod breaks;
mod builds;
mod call;
mod code;
mod dashboard;
mod early;
mod entries;
mod execs;
mod files;
mod images;
mod keys;
mod network;
mod packages;
mod ports;
mod sandboxes;
mod secrets;
mod snapshots;
mod start;
mod system;
mod target;
mod transport;
mod volumes;

pub(crate) use self::snapshots::SaveChoice;
pub(crate) use self::{
    breaks::{Breaks, patiently},
    call::{Body, checked, empty_body, text_lines},
    entries::EntryStream,
    files::Within,
    start::{ClientOptions, StartMode, start_daemon},
    system::EventsWanted,
    target::Target,
    transport::Client,
};

//! Events as they happen.

use std::collections::BTreeMap;

use engine::{NetworkLogEntry, NetworkRequestView, SandboxLoad};
use jiff::Timestamp;
use sandbox::{Call, SandboxId};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{Exec, Sandbox};

query!(LiveQuery {
    /// The topics to subscribe to, separated by commas: `sandboxes`, `usage`, `execs`, `calls`, `network`, `pending`.
    /// All when absent.
    pub topics: Option<String>,
    /// Only what concerns this sandbox: its id or name.
    pub sandbox: Option<String>,
});

query!(TerminalQuery {
    /// Number of the first entry wanted; 1 is the first.
    pub from: Option<u64>,
});

/// One message of the live stream. Over SSE its `event` is the event's name, and its `data` is the event's data.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(tag = "event", content = "data", rename_all = "lowercase")]
pub enum LiveMessage {
    /// The first message.
    Hello(LiveHello),
    /// A sandbox as it is now: each at the start, then whenever it changes.
    Sandbox(Box<Sandbox>),
    /// A sandbox is gone.
    Gone(LiveGone),
    /// All sandboxes were sent.
    Ready(LiveReady),
    /// The usage of running sandboxes, every two seconds.
    Usage(LiveUsage),
    /// An exec that began or ended.
    Exec(Box<Exec>),
    /// A line of the audit.
    Call(Box<Call>),
    /// A decision about a sandbox's traffic.
    Network(Box<NetworkLogEntry>),
    /// A request for more network: each that waits for an answer at the start, then whenever one is made, is answered
    /// or ends.
    Request(Box<NetworkRequestView>),
    /// The reader was too slow. All sandboxes follow again; what else was missed is not repeated.
    Lagged(LiveLagged),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct LiveHello {
    pub version: String,
    /// When the daemon started: another time means another daemon.
    pub started_at: Timestamp,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LiveGone {
    pub id: SandboxId,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LiveReady {}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct LiveUsage {
    pub at: Timestamp,
    /// By the sandbox's id.
    pub sandboxes: BTreeMap<String, SandboxLoad>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct LiveLagged {
    /// The number of missed messages.
    pub missed: u64,
}

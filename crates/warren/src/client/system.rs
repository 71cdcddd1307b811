//! Calls about the daemon and its events.

use frontends::rest::v1;
use hyper::{Response, body::Incoming};
use jiff::Timestamp;
use sandbox::EventKind;

use super::{Client, Target};
use crate::error::CommandResult;

impl Client {
    pub(crate) async fn version(&self) -> CommandResult<v1::Version> {
        self.get(Target::new(&["version"])).await
    }

    pub(crate) async fn capabilities(&self) -> CommandResult<v1::Capabilities> {
        self.get(Target::new(&["capabilities"])).await
    }

    /// Events as lines of JSON.
    pub(crate) async fn events(&self, wanted: &EventsWanted) -> CommandResult<Response<Incoming>> {
        let EventsWanted { from, follow, sandbox, kinds, since } = wanted;
        let kinds = (!kinds.is_empty()).then(|| {
            let words: Vec<_> = kinds.iter().map(|kind| kind.as_str()).collect();
            words.join(",")
        });
        let target = Target::new(&["events"])
            .maybe("from", *from)
            .with("follow", follow)
            .maybe("sandbox", sandbox.as_ref())
            .maybe("namespace", self.namespace().filter(|_| sandbox.is_some()))
            .maybe("kinds", kinds)
            .maybe("since", *since);
        self.stream(target, "application/x-ndjson").await
    }
}

/// The events to show.
#[derive(Debug, Clone)]
pub(crate) struct EventsWanted {
    /// The first number.
    pub(crate) from: Option<u64>,
    pub(crate) follow: bool,
    /// Name or id.
    pub(crate) sandbox: Option<String>,
    /// All, if empty.
    pub(crate) kinds: Vec<EventKind>,
    pub(crate) since: Option<Timestamp>,
}

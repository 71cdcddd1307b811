//! Calls about the daemon and its events.

use frontends::rest::v1;
use hyper::{Response, body::Incoming};

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
    pub(crate) async fn events(&self, from: Option<u64>, follow: bool) -> CommandResult<Response<Incoming>> {
        let target = Target::new(&["events"]).maybe("from", from).with("follow", follow);
        self.stream(target, "application/x-ndjson").await
    }
}

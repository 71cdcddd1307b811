//! Calls about the dashboard.

use frontends::rest::v1;

use super::{Client, Target};
use crate::error::CommandResult;

impl Client {
    /// An address that signs a browser in once.
    pub(crate) async fn once_address(&self) -> CommandResult<v1::PageAddress> {
        self.post(Target::new(&["session", "once"])).await
    }
}

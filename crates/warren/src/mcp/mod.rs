//! `warren mcp`: stdio on one side, the daemon on the other, and what the client chose in between.

mod bridge;
mod line;
mod link;
mod memory;
mod message;
mod settings;

pub(crate) use self::{
    bridge::run,
    link::Link,
    settings::{McpArgs, VARIABLES_HELP},
};

//! `warren mcp`: a bridge between stdio and the daemon, and the settings of the client.

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

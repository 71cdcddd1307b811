//! `warren mcp`: a bridge between stdio and the daemon, and the settings of the client.

mod bridge;
mod line;
mod link;
mod memory;
mod message;
pub(crate) mod opensandbox;
mod over_http;
mod settings;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use frontends::{
    dialects,
    mcp::{Dialect, NATIVE},
};

pub(crate) use self::{
    bridge::run,
    link::Link,
    over_http::serve as serve_http,
    settings::{McpArgs, VARIABLES_HELP},
};

/// Takes the name of a dialect.
pub(crate) fn dialects() -> impl TypedValueParser<Value = Dialect> {
    PossibleValuesParser::new(dialects::names()).map(|name| dialects::named(&name).unwrap_or(NATIVE))
}

//! What REST and MCP share about builds.

use engine::{Platform, Reference};
use sandbox::{Error, Preset, Result};

pub(crate) fn reference(text: &str) -> Result<Reference> {
    text.parse().map_err(|error: engine::ImageError| {
        Error::invalid(error.to_string()).with_hint("Use a name such as team/app:1.2.")
    })
}

pub(crate) fn platform(text: &str) -> Result<Platform> {
    text.parse().map_err(|error: engine::ImageError| {
        Error::invalid(error.to_string()).with_hint("Write a platform as linux/amd64.")
    })
}

/// What `RUN` reaches without a rule; `default`, as docker calls it, is what it is without a word.
pub(crate) fn preset(text: &str) -> Result<Option<Preset>> {
    if text == "default" { Ok(None) } else { text.parse().map(Some) }
}

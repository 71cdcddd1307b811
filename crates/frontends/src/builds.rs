//! Parsing of build arguments, shared by REST and MCP.

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

/// Parses the preset for what `RUN` reaches without a rule. Docker's word `default` is the same as no preset.
pub(crate) fn preset(text: &str) -> Result<Option<Preset>> {
    if text == "default" { Ok(None) } else { text.parse().map(Some) }
}

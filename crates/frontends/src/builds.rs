//! What REST and MCP share about builds.

use engine::{Platform, Reference};
use sandbox::{Error, Result};

pub(crate) fn reference(text: &str) -> Result<Reference> {
    text.parse().map_err(|error: engine::ImageError| {
        Error::invalid(error.to_string()).with_hint("Name the image as in team/app:1.2.")
    })
}

pub(crate) fn platform(text: &str) -> Result<Platform> {
    text.parse().map_err(|error: engine::ImageError| {
        Error::invalid(error.to_string()).with_hint("Write a platform as linux/amd64.")
    })
}

//! What REST and MCP share about builds.

use engine::{BuildNetwork, Platform, Reference};
use sandbox::{Error, Result};

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

pub(crate) fn network(text: &str) -> Result<BuildNetwork> {
    match text {
        "default" => Ok(BuildNetwork::Default),
        "none" => Ok(BuildNetwork::None),
        other => {
            let shown: String = other.chars().take(64).collect();
            Err(Error::invalid(format!("network takes default or none, not {shown:?}"))
                .with_hint("With default, commands of RUN reach package indexes; no sandbox reaches more."))
        }
    }
}

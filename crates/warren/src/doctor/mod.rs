//! What this machine can do: looked up, then tried with a real sandbox.

mod host;
mod trial;

use serde::Serialize;

pub(crate) use self::{host::check_host, trial::try_sandbox};

/// How one thing stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Status {
    Works,
    /// Missing, and sandboxes are weaker or fewer things work without it.
    Weak,
    /// Missing, and nothing works without it.
    Missing,
}

/// One thing that the host must have, or better had.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Check {
    pub(crate) name: &'static str,
    pub(crate) status: Status,
    /// What was found.
    pub(crate) detail: String,
    /// The command that mends it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) mend: Option<String>,
}

impl Check {
    fn works(name: &'static str, detail: impl Into<String>) -> Self {
        Self { name, status: Status::Works, detail: detail.into(), mend: None }
    }

    fn weak(name: &'static str, detail: impl Into<String>, mend: impl Into<String>) -> Self {
        Self { name, status: Status::Weak, detail: detail.into(), mend: Some(mend.into()) }
    }

    fn missing(name: &'static str, detail: impl Into<String>, mend: impl Into<String>) -> Self {
        Self { name, status: Status::Missing, detail: detail.into(), mend: Some(mend.into()) }
    }
}

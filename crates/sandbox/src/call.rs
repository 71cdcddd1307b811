//! The audit log's types: who called what, when, with which outcome.

use std::{fmt, str::FromStr};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{KeyId, Namespace};

/// The front end through which a call came.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Frontend {
    Mcp,
    Rest,
    Ssh,
}

impl Frontend {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Mcp => "mcp",
            Self::Rest => "rest",
            Self::Ssh => "ssh",
        }
    }
}

impl fmt::Display for Frontend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for Frontend {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        [Self::Mcp, Self::Rest, Self::Ssh]
            .into_iter()
            .find(|frontend| frontend.as_str() == text)
            .ok_or_else(|| format!("{text:?} is not a front end"))
    }
}

/// One numbered line of the audit: one call. Numbers only grow.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Call {
    pub number: u64,
    /// When it was answered.
    pub at: Timestamp,
    /// Absent if the caller could not be identified, and was therefore refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub who: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<KeyId>,
    pub frontend: Frontend,
    /// Name of the tool, or method and route.
    pub action: String,
    /// As the caller named it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<Namespace>,
    /// The error's code; absent on success.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    pub duration_ms: u64,
    /// The client program, as the caller names it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<String>,
}

//! The audit on the wire.

use sandbox::Call;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CallList {
    /// In order.
    pub calls: Vec<Call>,
}

#[derive(Debug, Clone, Default, Deserialize, IntoParams)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct CallsQuery {
    /// Number of the first call wanted. Without it: the last ones.
    pub from: Option<u64>,
    /// Only calls with lower numbers: with the first number of one page, the page before it.
    pub before: Option<u64>,
    /// Maximum number of calls; 100 by default, at most 10000.
    pub limit: Option<u32>,
    /// Only calls of this caller: its name, or the id of its key.
    pub who: Option<String>,
    /// Words, each of which must be found somewhere in the call, whatever its case.
    pub q: Option<String>,
    /// Only calls that were done, or only those that failed or were refused.
    #[param(inline)]
    pub result: Option<CallResult>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum CallResult {
    Done,
    Refused,
}

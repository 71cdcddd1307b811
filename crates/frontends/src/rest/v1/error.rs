//! The one shape of every failure.

use sandbox::ErrorKind;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::schema;

/// Body of every answer that is not a success.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ErrorBody {
    pub error: ErrorDetail,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ErrorDetail {
    /// Stable; programs decide by it.
    #[schema(schema_with = schema::error_kind)]
    pub kind: ErrorKind,
    /// Names the thing and the value. The words may change.
    pub message: String,
    /// What to do next, as a sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// Finds the request in the daemon's log.
    pub request_id: String,
}

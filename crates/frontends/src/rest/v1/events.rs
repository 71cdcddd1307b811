//! Facts that happened, in order.

use serde::Deserialize;
use utoipa::IntoParams;

#[derive(Debug, Clone, Default, Deserialize, IntoParams)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct EventsQuery {
    /// Number of the first event wanted. Without it: everything kept, or with `follow` only what comes from now on.
    pub from: Option<u64>,
    /// Keep the stream open for what comes next.
    #[serde(default)]
    pub follow: bool,
}

//! Facts that happened, in order.

use serde::Deserialize;
use utoipa::IntoParams;

#[derive(Debug, Clone, Default, Deserialize, IntoParams)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct EventsQuery {
    /// Number of the first event to return. Default: all kept events, or with `follow` only new ones.
    pub from: Option<u64>,
    /// Keep the stream open for new events.
    #[serde(default)]
    pub follow: bool,
}

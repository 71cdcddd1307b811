//! Facts that happened, in order.

use jiff::Timestamp;
use sandbox::Namespace;
use serde::Deserialize;
use utoipa::IntoParams;

#[derive(Debug, Clone, Default, Deserialize, IntoParams)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct EventsQuery {
    /// Number of the first event, at most the next one's. Default: all kept events, or with `follow` only new ones.
    pub from: Option<u64>,
    /// Keep the stream open for new events.
    #[serde(default)]
    pub follow: bool,
    /// Only events of this sandbox: its name, or its id. It may be gone.
    pub sandbox: Option<String>,
    /// The namespace of the sandbox, where names are not unique.
    pub namespace: Option<Namespace>,
    /// Only events of these kinds, separated by commas, such as `sandbox_created,exec_ended`.
    pub kinds: Option<String>,
    /// Only events from this moment on. With `follow` and without `from`, kept events come first.
    pub since: Option<Timestamp>,
}

//! Snapshots.

use axum::{
    Json,
    extract::State,
    http::{StatusCode, header::LOCATION},
    response::{IntoResponse, Response},
};
use engine::{Force, SnapshotRef, SnapshotSpec, SnapshotView};
use sandbox::{Error, Result, Thing};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::list::{answer, page_of};
use crate::{
    dialects::opensandbox::{
        ask::{Ask, Caller, Front},
        handle::shown,
    },
    http::{ApiResult, OptionalJson},
};

/// The sandbox that it was taken of, by its id. A snapshot that was made elsewhere has only that sandbox's name.
const SOURCE: &str = "opensandbox.io/sandbox-id";
/// All that exist are whole.
const STATE: &str = "Ready";

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NewSnapshot {
    name: Option<String>,
}

pub(super) async fn create(
    State(front): State<Front>,
    ask: Ask,
    OptionalJson(asked): OptionalJson<NewSnapshot>,
) -> ApiResult<Response> {
    let id = ask.view().await?.id;
    let name = asked.name.map(|name| name.parse()).transpose().map_err(Error::from)?;
    let labels = [(SOURCE.to_owned(), id.to_string())].into();
    let spec = SnapshotSpec { name, labels, ..SnapshotSpec::new(ask.which.clone()) };
    let made = front.engine().create_snapshot(ask.who(), spec).await?;
    let location = [(LOCATION, format!("/v1/snapshots/{}", made.id))];
    Ok((StatusCode::ACCEPTED, location, Json(shape(&made))).into_response())
}

pub(super) async fn list(State(front): State<Front>, caller: Caller) -> ApiResult<Json<Value>> {
    let query = &caller.query;
    let page = page_of(query)?;
    let (source, name) = (query.one("sandboxId")?, query.one("name")?);
    let states: Vec<_> = query.all("state").collect();
    let mut found = front.engine().snapshots(&caller.who, None).await?;
    found.retain(|one| {
        source.is_none_or(|id| source_of(one) == id)
            && name.is_none_or(|name| one.name.as_ref().is_some_and(|own| own.as_str() == name))
            && (states.is_empty() || states.iter().any(|state| state.eq_ignore_ascii_case(STATE)))
    });
    found.reverse();
    Ok(Json(answer(page, found, shape)))
}

pub(super) async fn inspect(State(front): State<Front>, caller: Caller) -> ApiResult<Json<Value>> {
    Ok(Json(shape(&front.engine().snapshot(&caller.who, &asked(&caller)?).await?)))
}

pub(super) async fn delete(State(front): State<Front>, caller: Caller) -> ApiResult<StatusCode> {
    front.engine().remove_snapshot(&caller.who, &asked(&caller)?, Force::Yes).await?;
    Ok(StatusCode::NO_CONTENT)
}

fn asked(caller: &Caller) -> Result<SnapshotRef> {
    let text = caller.parameter("snapshot");
    text.parse().map_err(|_malformed: Error| Error::no_such(Thing::Snapshot, shown(text)))
}

fn source_of(view: &SnapshotView) -> &str {
    view.labels.get(SOURCE).map_or(view.source_sandbox.as_str(), String::as_str)
}

fn shape(view: &SnapshotView) -> Value {
    let mut shown = Map::new();
    shown.insert("id".to_owned(), json!(view.id));
    shown.insert("sandboxId".to_owned(), json!(source_of(view)));
    if let Some(name) = &view.name {
        shown.insert("name".to_owned(), json!(name));
    }
    shown.insert("status".to_owned(), json!({ "state": STATE, "lastTransitionAt": view.created_at }));
    shown.insert("createdAt".to_owned(), json!(view.created_at));
    Value::Object(shown)
}

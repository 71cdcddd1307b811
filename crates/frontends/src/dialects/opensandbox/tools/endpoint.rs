//! `sandbox_get_endpoint`: an address of ours that leads to a port inside, with a token that opens only that port.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{sandboxes::Inside, target::Target, words};
use crate::{
    mcp::{Answer, Call, ToolResult},
    ports::TOKEN_HEADER,
};

#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct Arguments {
    #[serde(flatten)]
    inside: Inside,
    #[schemars(range(min = 1, max = 65535))]
    port: u16,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Endpoint {
    /// Host, port and path, without a scheme
    endpoint: String,
    headers: BTreeMap<String, String>,
    origin: (),
}

pub(super) async fn get(call: Call, arguments: Arguments) -> ToolResult<Endpoint> {
    let target = Target::find(&call, &arguments.inside.sandbox_id).await?;
    let signed = call.links().sign_port(&target.view.id, arguments.port);
    let (url, token) = signed.map_err(words::failure)?;
    let endpoint = url.split_once("://").map_or(url.as_str(), |(_, rest)| rest).to_owned();
    let headers = BTreeMap::from([(TOKEN_HEADER.to_owned(), token)]);
    Ok(Answer::new(Endpoint { endpoint, headers, origin: () }))
}

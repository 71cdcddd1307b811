//! `toolset_list`, `toolset_enable`: showing more tools while working.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::mcp::{
    Toolset,
    call::Call,
    envelope::{Answer, ToolResult},
    tool::{Hints, Registry, Tool},
};

pub(super) fn tools() -> Vec<Tool> {
    vec![
        Tool::new(
            Toolset::Runtime,
            "toolset_list",
            "List toolsets",
            "List the toolsets, their tools, and which are shown. Every tool can be called whether shown or not.",
            Hints::READS,
            list,
        )
        .core(),
        Tool::new(
            Toolset::Runtime,
            "toolset_enable",
            "Show more tools",
            "Show the tools of further toolsets from now on.",
            Hints::SETS,
            enable,
        )
        .core(),
    ]
}

#[derive(Debug, Deserialize, JsonSchema)]
struct ListArguments {}

#[derive(Debug, Serialize, JsonSchema)]
struct ToolsetEntry {
    name: Toolset,
    purpose: &'static str,
    shown: bool,
    tools: Vec<&'static str>,
}

async fn list(call: Call, _: ListArguments) -> ToolResult<Vec<ToolsetEntry>> {
    let shown = call.session.toolsets(&call.settings.toolsets);
    let entry = |set: Toolset| {
        let is_of_it = |tool: &&Tool| tool.toolset == set || (set == Toolset::Core && tool.is_core);
        ToolsetEntry {
            name: set,
            purpose: set.purpose(),
            shown: shown.contains(set),
            tools: Registry::get().all().iter().filter(is_of_it).map(|tool| tool.name).collect(),
        }
    };
    Ok(Answer::new(Toolset::ALL.into_iter().map(entry).collect()))
}

#[derive(Debug, Deserialize, JsonSchema)]
struct EnableArguments {
    #[schemars(length(min = 1))]
    toolsets: Vec<Toolset>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Enabled {
    shown: Vec<Toolset>,
    /// Tools that are listed now and were not before.
    added: Vec<&'static str>,
}

async fn enable(call: Call, arguments: EnableArguments) -> ToolResult<Enabled> {
    let before = call.session.toolsets(&call.settings.toolsets);
    let after = before.clone().with(arguments.toolsets.iter().copied());
    if call.session.is_kept() {
        call.session.enable(&arguments.toolsets);
    }
    let added = Registry::get().shown(&after).filter(|tool| !tool.is_shown(&before)).map(|tool| tool.name);
    let answer = Answer::new(Enabled { added: added.collect(), shown: after.iter().collect() });
    if call.session.is_kept() {
        return Ok(answer);
    }
    Ok(answer.warn(
        "This connection keeps no state, so the list stays as it is; the tools can be called all the same. \
         To have them listed, send the header X-Warren-Toolsets or the query parameter toolsets.",
    ))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::mcp::{call::Session, testing::Client};

    #[tokio::test]
    async fn a_session_is_shown_more_tools_once_it_asks() {
        let client = Client::new().await;
        let shown = |list: &serde_json::Value| {
            let of_runtime = list.as_array().unwrap().iter().find(|entry| entry["name"] == "runtime");
            of_runtime.unwrap()["shown"].clone()
        };
        assert_eq!(shown(&client.data("toolset_list", json!({})).await), false);
        let enabled = client.data("toolset_enable", json!({ "toolsets": ["runtime"] })).await;
        assert_eq!(enabled["shown"], json!(["core", "runtime"]));
        assert_eq!(shown(&client.data("toolset_list", json!({})).await), true);
    }

    #[tokio::test]
    async fn a_client_without_a_session_is_told_how_to_choose() {
        let mut client = Client::new().await;
        client.call.session = Session::stateless();
        let envelope = client.ask("toolset_enable", json!({ "toolsets": ["files"] })).await;
        assert!(envelope["warnings"][0].as_str().unwrap().contains("X-Warren-Toolsets"), "{envelope}");
        let error = client.error("toolset_enable", json!({ "toolsets": ["flies"] }), "invalid_request").await;
        assert!(error["hint"].as_str().unwrap().contains("files"), "{error}");
    }
}

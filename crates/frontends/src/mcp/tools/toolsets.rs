//! `toolset_list`, `toolset_enable`: showing more tools while working.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use crate::mcp::{Answer, Call, Tool, ToolResult, Toolset, surface::Surface};

pub(super) fn tools() -> Vec<Tool> {
    tools! { Runtime;
        "toolset_list", "List toolsets", READS, list, core, always:
            "List toolsets, their tools, and which are shown. Every tool can be called, shown or not.";
        // It changes what this session lists and nothing else, so read-only keys may call it.
        "toolset_enable", "Show more tools", READS, enable, core, always:
            "Show the tools of additional toolsets from now on.";
    }
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
    let entry = |set: Toolset| ToolsetEntry {
        name: set,
        purpose: set.purpose(),
        shown: shown.contains(set),
        tools: tools_of(&call.surface, set).map(|tool| tool.name).collect(),
    };
    Ok(Answer::new(Toolset::ALL.into_iter().map(entry).collect()))
}

fn tools_of(surface: &Surface, set: Toolset) -> impl Iterator<Item = &Tool> {
    surface.tools().filter(move |tool| tool.toolset == set || (set == Toolset::Core && tool.is_core))
}

#[derive(Debug, Deserialize, JsonSchema)]
struct EnableArguments {
    #[schemars(length(min = 1))]
    toolsets: Vec<Choice>,
}

/// One toolset, or all of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
enum Choice {
    One(Toolset),
    All,
}

impl TryFrom<String> for Choice {
    type Error = sandbox::Error;

    fn try_from(text: String) -> sandbox::Result<Self> {
        if text == "all" { Ok(Self::All) } else { text.parse().map(Self::One) }
    }
}

impl JsonSchema for Choice {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        Cow::Borrowed("Choice")
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let names: Vec<_> = Toolset::ALL.iter().map(|set| set.as_str()).chain(["all"]).collect();
        json_schema!({ "type": "string", "enum": names })
    }
}

#[derive(Debug, Serialize, JsonSchema)]
struct Enabled {
    shown: Vec<Toolset>,
    /// Tools that are listed now and were not before.
    added: Vec<&'static str>,
}

async fn enable(call: Call, arguments: EnableArguments) -> ToolResult<Enabled> {
    let before = call.session.toolsets(&call.settings.toolsets);
    let wants_all = arguments.toolsets.contains(&Choice::All);
    let named = arguments.toolsets.iter().filter_map(|choice| match choice {
        Choice::One(set) => Some(*set),
        Choice::All => None,
    });
    let named: Vec<_> = named.collect();
    let wanted = if wants_all { &Toolset::ALL[..] } else { &named };
    let after = before.clone().with(wanted.iter().copied());
    if call.session.is_kept() {
        call.session.enable(wanted);
    }
    let surface = &call.surface;
    let added = surface.shown(&after).filter(|tool| !tool.is_shown(&before)).map(|tool| tool.name);
    let answer = Answer::new(Enabled { added: added.collect(), shown: after.iter().collect() });
    if call.session.is_kept() {
        return Ok(answer);
    }
    Ok(answer.warn(
        "This connection keeps no state, so the list does not change; the tools can still be called. \
         To list them, send the header X-Warren-Toolsets or the query parameter toolsets.",
    ))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::mcp::{
        Toolset,
        call::Session,
        testing::{Client, native},
    };

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
    async fn all_are_enabled_at_once_and_none_is_empty() {
        let client = Client::new().await;
        assert!(Toolset::ALL.iter().all(|set| super::tools_of(native(), *set).next().is_some()));
        let envelope = client.ask("toolset_enable", json!({ "toolsets": ["all"] })).await;
        assert!(envelope.get("warnings").is_none(), "{envelope}");
        assert_eq!(envelope["data"]["shown"].as_array().unwrap().len(), Toolset::ALL.len());
        let list = client.data("toolset_list", json!({})).await;
        assert!(list.as_array().unwrap().iter().all(|entry| entry["shown"] == true), "{list}");
    }

    #[test]
    fn whatever_was_chosen_the_way_to_more_is_shown() {
        let chosen = "files".parse().unwrap();
        let shown: Vec<_> = native().shown(&chosen).map(|tool| tool.name).collect();
        assert!(shown.contains(&"toolset_list") && shown.contains(&"toolset_enable"), "{shown:?}");
        assert!(!shown.contains(&"runtime_check"), "{shown:?}");
    }

    #[test]
    fn what_is_enabled_widens_what_a_new_sandbox_takes() {
        let listed = |sets: &str, pointer: &str| {
            let schema = native().find("sandbox_create").unwrap().input.listed(&sets.parse().unwrap());
            json!(schema).pointer(pointer).cloned()
        };
        let preset = "/properties/network/properties/preset/enum";
        assert_eq!(
            (listed("core", "/properties/network"), listed("core", "/properties/volumes")),
            (None, None)
        );
        assert!(listed("core,network", preset).is_some_and(|values| values.to_string().contains("public")));
        assert_eq!(listed("core,network", "/properties/network/properties/tls"), None);
        let kinds = "/properties/volumes/items/properties/kind/enum";
        assert_eq!(listed("core,volumes", kinds), Some(json!(["bind", "named", "tmpfs", "disk"])));
        let ports = native().find("sandbox_ports").unwrap().input.listed(&"core".parse().unwrap());
        assert!(json!(ports).pointer("/properties/expose/properties/hostPort").is_some(), "{ports:?}");
        assert!(listed("core,lifecycle", "/properties/lifecycle/properties/replace").is_some());
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

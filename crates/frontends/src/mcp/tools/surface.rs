//! Our tools against the surface that they follow, tool by tool, and what listing them costs a model.
//!
//! `tests/data/microsandbox-mcp-tools.json` holds the facts of that surface: names of tools and of their parameters
//! (nested ones with dots, items of lists with `[]`), values, what is required, and annotations.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use serde_json::{Value, json};

use crate::mcp::{Tool, Toolsets, protocol, schema::JsonObject, testing::native, tool::Hints};

const FACTS: &str = include_str!("../../../tests/data/microsandbox-mcp-tools.json");
/// The same of the version before, where it differs.
const OLDER_FACTS: &str = include_str!("../../../tests/data/microsandbox-mcp-tools-older.json");
/// The most bytes that a model pays for when it is shown the default tools.
const MAX_LISTING_BYTES: usize = 16 * 1024;

/// The tools whose annotations differ, our annotations, and the reason.
const OTHER_HINTS: [(&str, Hints, &str); 16] = [
    ("sandbox_create", Hints::DESTROYS_MORE, "with lifecycle.replace it removes a sandbox"),
    ("sandbox_run", Hints::DESTROYS_MORE, "with lifecycle.replace it removes a sandbox"),
    ("sandbox_restore", Hints::DESTROYS_MORE, "with replace it removes a sandbox"),
    ("sandbox_fs_rename", Hints::DESTROYS_MORE, "with replace it removes what was at the new path"),
    ("sandbox_exec_close", Hints::DESTROYS, "it ends the processes; theirs only forgets its handle"),
    ("sandbox_fs_write", Hints::DESTROYS_MORE, "it overwrites what is there, or adds to it each time"),
    ("sandbox_fs_copy", Hints::DESTROYS, "it overwrites what is there; the same again changes nothing more"),
    ("volume_fs_write", Hints::DESTROYS, "it overwrites what is there"),
    ("sandbox_sftp_write", Hints::DESTROYS, "it overwrites what is there"),
    ("volume_fs_copy", Hints::DESTROYS, "it overwrites what is there; the same again changes nothing more"),
    (
        "sandbox_fs_copy_from_host",
        Hints::DESTROYS,
        "it overwrites what is there; the same again changes nothing more",
    ),
    (
        "sandbox_fs_copy_to_host",
        Hints::DESTROYS,
        "it overwrites what is there; the same again changes nothing more",
    ),
    ("snapshot_create", Hints::DESTROYS_MORE, "with force it takes the name from another, which may go"),
    ("snapshot_save", Hints::DESTROYS, "a file that is there is replaced"),
    ("snapshot_export", Hints::DESTROYS, "a file that is there is replaced"),
    ("volume_fs_rename", Hints::DESTROYS_MORE, "it replaces what was at the new path"),
];

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ToolFacts {
    name: String,
    read_only: bool,
    destructive: bool,
    idempotent: bool,
    parameters: BTreeMap<String, Parameter>,
}

#[derive(Debug, Default, Clone, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Parameter {
    required: bool,
    /// Empty: any.
    values: Vec<Value>,
}

fn facts() -> Vec<ToolFacts> {
    serde_json::from_str(FACTS).unwrap()
}

/// The same facts of a schema of ours.
fn parameters(schema: &JsonObject) -> BTreeMap<String, Parameter> {
    let mut found = BTreeMap::new();
    walk(schema, "", &mut found);
    found
}

fn walk(schema: &JsonObject, at: &str, found: &mut BTreeMap<String, Parameter>) {
    for branch in ["oneOf", "anyOf"].iter().filter_map(|word| schema.get(*word)?.as_array()).flatten() {
        walk(branch.as_object().unwrap(), at, found);
    }
    let constant = schema.get("const").into_iter();
    let values = schema.get("enum").and_then(Value::as_array).into_iter().flatten().chain(constant);
    if !at.is_empty() {
        found.entry(at.to_owned()).or_default().values.extend(values.cloned());
    }
    let required: Vec<_> = schema.get("required").and_then(Value::as_array).cloned().unwrap_or_default();
    for (name, property) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
        let path = if at.is_empty() { name.clone() } else { format!("{at}.{name}") };
        let is_required = required.iter().any(|required| required == name);
        found.entry(path.clone()).or_default().required |= is_required;
        walk(property.as_object().unwrap(), &path, found);
    }
    if let Some(Value::Object(items)) = schema.get("items") {
        walk(items, &format!("{at}[]"), found);
    }
}

fn differences(theirs: &ToolFacts, ours: &Tool) -> Vec<String> {
    let name = ours.name;
    let own = parameters(ours.input.checked());
    let mut found = Vec::new();
    for (path, parameter) in &theirs.parameters {
        let Some(own) = own.get(path) else {
            found.push(format!("{name}: no parameter {path}"));
            continue;
        };
        if own.required && !parameter.required {
            found.push(format!("{name}: {path} is required here only"));
        }
        let is_taken = |value: &&Value| own.values.is_empty() || own.values.contains(value);
        for value in parameter.values.iter().filter(|value| !is_taken(value)) {
            found.push(format!("{name}: {path} does not take {value}"));
        }
    }
    let is_new = |path: &String| !path.contains('.') && !theirs.parameters.contains_key(path);
    for (path, _) in own.iter().filter(|(path, parameter)| is_new(path) && parameter.required) {
        found.push(format!("{name}: {path} is new and must be optional"));
    }
    let stated =
        Hints { read_only: theirs.read_only, destructive: theirs.destructive, idempotent: theirs.idempotent };
    let expected = OTHER_HINTS.iter().find(|(tool, ..)| *tool == name).map_or(stated, |(_, hints, _)| *hints);
    if ours.hints != expected {
        found.push(format!("{name}: {:?} instead of {expected:?}", ours.hints));
    }
    found
}

#[test]
fn every_tool_takes_what_the_surface_we_follow_takes() {
    let surface = native();
    let mut found = Vec::new();
    for theirs in facts() {
        match surface.find(&theirs.name) {
            Some(ours) => found.extend(differences(&theirs, ours)),
            None => found.push(format!("{}: no such tool", theirs.name)),
        }
    }
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn every_tool_takes_what_the_version_before_took() {
    let older: Vec<ToolFacts> = serde_json::from_str(OLDER_FACTS).unwrap();
    let names: Vec<_> = older.iter().map(|tool| tool.name.as_str()).collect();
    assert_eq!(
        names,
        ["sandbox_create", "sandbox_run", "snapshot_create", "snapshot_export", "snapshot_import"]
    );
    let surface = native();
    let found: Vec<_> =
        older.iter().flat_map(|theirs| differences(theirs, surface.find(&theirs.name).unwrap())).collect();
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn the_facts_are_of_a_whole_surface() {
    let facts = facts();
    let names: BTreeSet<_> = facts.iter().map(|tool| tool.name.as_str()).collect();
    assert_eq!((facts.len(), names.len()), (70, 70));
    let create = facts.iter().find(|tool| tool.name == "sandbox_create").unwrap();
    assert_eq!(create.parameters["rootfs.registry.auth.kind"].values, [json!("anonymous"), json!("basic")]);
    assert!(create.parameters["patches[].kind"].required);
}

#[test]
fn the_default_list_is_small() {
    let answer = protocol::listed(native(), &Toolsets::default());
    let tools = answer["tools"].as_array().unwrap();
    let sizes: Vec<_> = tools
        .iter()
        .map(|tool| {
            let part = |part: &str| tool[part].to_string().len();
            let (input, output) = (part("inputSchema"), part("outputSchema"));
            format!("{}: {} (input {input}, output {output})", tool["name"], tool.to_string().len())
        })
        .collect();
    assert!(tools.iter().all(|tool| tool["outputSchema"].is_object() && tool["annotations"].is_object()));
    let n_bytes = answer.to_string().len();
    assert!(n_bytes <= MAX_LISTING_BYTES, "{n_bytes} bytes; {sizes:#?}");
}

#[test]
fn the_document_names_every_tool() {
    let document = include_str!("../../../../../docs/mcp.md");
    let (_, table) = document.split_once("| toolset | tools |").unwrap();
    for tool in native().tools() {
        assert!(table.contains(&format!("`{}`", tool.name)), "{}", tool.name);
    }
    assert!(document.contains(&format!("There are {} tools.", native().tools().count())));
}

#[test]
fn a_tool_counts_time_in_one_unit() {
    for tool in native().tools() {
        let properties = tool.input.full()["properties"].as_object().cloned().unwrap_or_default();
        let in_millis = properties.keys().any(|name| name.ends_with("Ms"));
        let says_seconds = |property: &Value| {
            property["description"].as_str().is_some_and(|text| text.to_lowercase().contains("seconds"))
        };
        let in_seconds: Vec<_> =
            properties.iter().filter(|(_, property)| says_seconds(property)).map(|(name, _)| name).collect();
        // It takes what a new sandbox takes, whose lifetime other tools count in seconds, too.
        let is_creating = tool.name == "sandbox_run";
        assert!(!in_millis || in_seconds.is_empty() || is_creating, "{}: {in_seconds:?}", tool.name);
    }
}

#[test]
fn descriptions_are_short() {
    for tool in native().tools() {
        assert!(tool.description.chars().count() <= 160, "{}: {}", tool.name, tool.description);
    }
}

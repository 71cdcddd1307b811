//! Bad input for every tool of every surface: wrong types, unknown names, foreign ids and keys, names that are paths.
//! Each is refused in the surface's own form, nothing panics, and the server goes on.

use engine::{Principal, SandboxRef};
use frontends::{dialects, mcp::NATIVE};
use sandbox::{KeySpec, SandboxSpec};
use serde_json::{Map, Value, json};

use crate::support::{Server, Session, call, request};

const VERSION: &str = "2025-06-18";
/// Names that no sandbox, file or exec can have by accident.
const HOSTILE_NAMES: [&str; 8] = [
    "../../etc/passwd",
    "/etc/shadow",
    "..",
    "",
    "a\u{0}b",
    "sbx-../../../x",
    "sbx-0000000000000",
    "\u{202e}name with\nlines\u{7f}",
];
/// Parameters that name a sandbox, on one surface or another.
const NAMING: [&str; 4] = ["name", "sandbox", "sandbox_id", "sandboxName"];

fn surfaces() -> Vec<&'static str> {
    dialects::names().collect()
}

async fn open<'a>(server: &'a Server, surface: &str, who: &str) -> Session<'a> {
    // Only the native one lists some tools and keeps others back.
    let path =
        if surface == NATIVE.name { "/mcp?toolsets=all".to_owned() } else { format!("/mcp/{surface}") };
    server.begin_at(&path, VERSION, who).await
}

async fn tools(session: &Session<'_>) -> Vec<Value> {
    let listed = session.ask(request(2, "tools/list", json!({}))).await;
    listed["result"]["tools"].as_array().unwrap().clone()
}

/// Something of the right kind, so that one wrong value is all that is wrong.
fn plausible(schema: &Value) -> Value {
    if let Some(first) = schema["oneOf"].as_array().or(schema["anyOf"].as_array()).and_then(|all| all.first())
    {
        return plausible(first);
    }
    if let Some(value) = schema["enum"].as_array().and_then(|values| values.first()) {
        return value.clone();
    }
    if !schema["const"].is_null() {
        return schema["const"].clone();
    }
    match schema["type"].as_str() {
        Some("string") => json!("nothing-of-that-name"),
        Some("integer" | "number") => schema.get("minimum").cloned().unwrap_or(json!(1)),
        Some("boolean") => json!(false),
        Some("array") => json!([plausible(&schema["items"])]),
        Some("object") => Value::Object(required(schema)),
        _ => json!("x"),
    }
}

fn required(schema: &Value) -> Map<String, Value> {
    let names = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
    names.map(|name| (name.to_owned(), plausible(&schema["properties"][name]))).collect()
}

/// The required parameters that name a sandbox.
fn naming_parameters(schema: &Value) -> impl Iterator<Item = &str> {
    let names = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
    names.filter(|name| NAMING.contains(name))
}

/// Values that are not of this kind, even for a server that reads numbers and truth values from text.
fn wrong(schema: &Value) -> Vec<Value> {
    match schema["type"].as_str() {
        Some("string") => vec![json!({ "a": 1 }), json!([[]]), json!(true)],
        Some("integer" | "number" | "boolean") => vec![json!("many"), json!([1]), json!({})],
        Some("array") => vec![json!(7), json!({ "0": "x" })],
        Some("object") => vec![json!(7), json!([1])],
        _ => vec![],
    }
}

/// Asserts the form that every failure of a surface has.
fn check_failure(surface: &str, tool: &str, given: &Value, answer: &Value) {
    let about = || format!("{surface} {tool} {given}: {answer:#}");
    let result = &answer["result"];
    assert_eq!(result["isError"], true, "{}", about());
    let text = result["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{}", about()));
    assert!(!text.contains("panicked") && !text.contains("stopped unexpectedly"), "{}", about());
    let data = &result["structuredContent"];
    match surface {
        "microsandbox" => assert!(text.starts_with("Error: ") && data.is_null(), "{}", about()),
        "opensandbox" => {
            let begin = format!("Error executing tool {tool}: ");
            assert!(text.starts_with(&begin) && data.is_null(), "{}", about());
        }
        "mcp-sandbox" => {
            assert!(data["error"].is_string() && data["message"].is_string(), "{}", about());
            assert_ne!(data["code"], "internal", "{}", about());
        }
        // The native envelope, and microsandbox-mcp's, which is the same.
        _ => {
            assert_eq!(data["ok"], false, "{}", about());
            assert!(data["error"]["message"].is_string(), "{}", about());
            assert_ne!(data["error"]["code"], "internal", "{}", about());
        }
    }
}

/// The call fails in the surface's own form.
async fn refused(session: &Session<'_>, surface: &str, tool: &str, arguments: Value) {
    let answer = session.ask(call(7, tool, arguments.clone())).await;
    check_failure(surface, tool, &arguments, &answer);
}

#[tokio::test]
async fn wrong_types_and_unknown_names_are_refused_by_every_tool() {
    let server = Server::new().await;
    for surface in surfaces() {
        let session = open(&server, surface, "alice").await;
        for tool in tools(&session).await {
            let (name, schema) = (tool["name"].as_str().unwrap(), &tool["inputSchema"]);
            let good = required(schema);
            let mut odd = good.clone();
            odd.insert("no_such_argument".to_owned(), json!(1));
            refused(&session, surface, name, Value::Object(odd)).await;
            for (property, kind) in schema["properties"].as_object().into_iter().flatten() {
                for value in wrong(kind) {
                    let mut bad = good.clone();
                    bad.insert(property.clone(), value);
                    refused(&session, surface, name, Value::Object(bad)).await;
                }
            }
            for missing in good.keys() {
                let mut less = good.clone();
                less.remove(missing);
                refused(&session, surface, name, Value::Object(less)).await;
            }
        }
        refused(&session, surface, "no_such_tool", json!({})).await;
    }
}

#[tokio::test]
async fn names_that_are_paths_name_nothing() {
    let server = Server::new().await;
    for surface in surfaces() {
        let session = open(&server, surface, "alice").await;
        for tool in tools(&session).await {
            let (name, schema) = (tool["name"].as_str().unwrap(), &tool["inputSchema"]);
            for naming in naming_parameters(schema) {
                for hostile in HOSTILE_NAMES {
                    // Something other than a sandbox may be called like the id of one.
                    if name == "volume_create" && hostile.starts_with("sbx-0") {
                        continue;
                    }
                    let mut arguments = required(schema);
                    arguments.insert(naming.to_owned(), json!(hostile));
                    refused(&session, surface, name, Value::Object(arguments)).await;
                }
            }
        }
    }
    let made = server.engine.sandboxes(&Principal::operator("test"), &engine::SandboxFilter::default()).await;
    assert!(made.unwrap().is_empty(), "something was made of a hostile name");
}

#[tokio::test]
async fn ids_of_others_are_as_good_as_none_for_every_tool() {
    let server = Server::new().await;
    let operator = Principal::operator("test");
    let spec = SandboxSpec { namespace: "blue".parse().unwrap(), ..SandboxSpec::default() };
    let foreign = server.engine.create_sandbox(&operator, spec).await.unwrap();
    let key = KeySpec { namespace: Some("red".parse().unwrap()), ..KeySpec::default() };
    let key = server.engine.create_key(&operator, key).await.unwrap().secret;
    for surface in surfaces() {
        let session = open(&server, surface, &key).await;
        for tool in tools(&session).await {
            let (name, schema) = (tool["name"].as_str().unwrap(), &tool["inputSchema"]);
            for naming in naming_parameters(schema) {
                // A new volume may be called anything.
                if name == "volume_create" {
                    continue;
                }
                let mut arguments = required(schema);
                arguments.insert(naming.to_owned(), json!(foreign.id.as_str()));
                if arguments.contains_key("namespace") {
                    arguments.insert("namespace".to_owned(), json!("blue"));
                }
                refused(&session, surface, name, Value::Object(arguments)).await;
            }
        }
    }
    // Nothing happened to it.
    let now = server.engine.sandbox(&operator, &SandboxRef::from(&foreign.id)).await.unwrap();
    assert_eq!((now.state, now.started_at, now.n_running_execs), (foreign.state, foreign.started_at, 0));
}

#[tokio::test]
async fn whoever_may_only_look_changes_nothing_on_any_surface() {
    let server = Server::new().await;
    let operator = Principal::operator("test");
    let spec = KeySpec { namespace: Some("red".parse().unwrap()), read_only: true, ..KeySpec::default() };
    let reader = server.engine.create_key(&operator, spec).await.unwrap().secret;
    for surface in surfaces() {
        let session = open(&server, surface, &reader).await;
        for tool in tools(&session).await {
            if tool["annotations"]["readOnlyHint"] == true {
                continue;
            }
            let name = tool["name"].as_str().unwrap();
            refused(&session, surface, name, Value::Object(required(&tool["inputSchema"]))).await;
        }
    }
}

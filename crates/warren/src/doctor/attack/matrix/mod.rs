//! Calls every route and every tool, ours and those of every dialect, with the key of another namespace, with a
//! read-only key and without a key.

mod dialects;

use bytes::Bytes;
use futures_util::stream;
use serde_json::{Map, Value, json};

use super::{
    Seen,
    archives::Tar,
    dashboard::Session,
    http::NATIVE,
    secrets::contains,
    stage::{FILE_SECRET, OURS, Stage},
};
use crate::{
    client::{Target, Within},
    error::CommandResult,
};

/// Requests that change nothing of a sandbox although they are sent by POST or DELETE.
const LOOKS: &[&str] = &[
    "/v1/snapshots/{snapshot}/verify",
    "/v1/sandboxes/{sandbox}/links",
    // Sessions and shares have the rights of whoever asks for them, and no more; whoever shared may take it back.
    "/v1/session",
    "/v1/session/once",
    "/v1/shares",
    "/v1/shares/{share}",
];

const NO_REQUEST: &str = "ask-0000000000000";

/// The objects in the first namespace.
pub(super) struct Belongings {
    sandbox: String,
    exec: String,
    /// Another command, with a terminal.
    terminal: String,
    /// Two shells that are kept. OpenSandbox's clients know the second as a session.
    context: &'static str,
    session: &'static str,
    volume: String,
    snapshot: String,
    /// A request for more network that waits for an answer.
    request: String,
    /// An image that exists here, and one that its registry does not have.
    image: String,
    missing_image: String,
}

impl Belongings {
    async fn make(stage: &Stage) -> CommandResult<Self> {
        // A running one: signalling or closing one that ended changes nothing, and is allowed.
        let command = format!("echo {FILE_SECRET}; sleep 300");
        let exec = stage.operator.exec(&stage.sandbox, &sandbox::ExecSpec::shell(command)).await?;
        let terminal = sandbox::ExecSpec {
            terminal: Some(sandbox::TerminalSize::default()),
            ..sandbox::ExecSpec::shell("sleep 300")
        };
        let terminal = stage.operator.exec(&stage.sandbox, &terminal).await?;
        let (context, session) = ("attack", "session-attack");
        for name in [context, session] {
            let contexts = Target::new(&["sandboxes", &stage.sandbox, "contexts"]);
            let spec = json!({ "name": name, "language": "bash" });
            // Without bash there are none; then requests about them are not refused for lack of permission, which is
            // told.
            stage.operator.post_json::<Value>(contexts, &spec).await.ok();
        }
        let volume = json!({ "name": "attack-matrix", "namespace": OURS });
        stage.operator.post_json::<Value>(Target::new(&["volumes"]), &volume).await.ok();
        // Stopped: not every host can pause a sandbox for a copy.
        let source = stage.create(json!({ "name": "attack-source", "namespace": OURS })).await?;
        stage.operator.act_with_grace(source.id.as_str(), "stop", None).await?;
        let snapshot = json!({ "sandbox": source.id, "name": "attack-matrix", "namespace": OURS });
        let snapshot: Value = stage.operator.post_json(Target::new(&["snapshots"]), &snapshot).await?;
        let requests = Target::new(&["sandboxes", &stage.sandbox, "network", "requests"]);
        let asked = json!({ "rules": ["attack.example"], "reason": "attack" });
        // Hosts without networks have none; then it has an id that nobody has.
        let asked: Value = stage.operator.post_json(requests, &asked).await.unwrap_or_default();
        let request = asked["id"].as_str().unwrap_or(NO_REQUEST).to_owned();
        let image = "attack/matrix:1".to_owned();
        let layer = stream::iter([Ok(Bytes::from(Tar::default().file("file", "text").end()))]);
        stage.operator.import_image(&image, None, None, layer).await?;
        Ok(Self {
            sandbox: stage.sandbox.clone(),
            exec: exec.id.to_string(),
            terminal: terminal.id.to_string(),
            context,
            session,
            volume: "attack-matrix".to_owned(),
            snapshot: snapshot["id"].as_str().unwrap_or_default().to_owned(),
            request,
            image,
            missing_image: stage.decoys.missing_image(),
        })
    }

    /// The value for a parameter, by its name.
    fn named(&self, parameter: &str) -> String {
        match parameter {
            "sandbox" => self.sandbox.clone(),
            "exec" => self.exec.clone(),
            "volume" => self.volume.clone(),
            "snapshot" => self.snapshot.clone(),
            "request" => self.request.clone(),
            "number" => "0".to_owned(),
            "port" => "80".to_owned(),
            "state" => "running".to_owned(),
            "pattern" => "*".to_owned(),
            "reference" | "image" => self.image.clone(),
            "path" | "root" | "from" | "to" => "/root/secret".to_owned(),
            _ => "none".to_owned(),
        }
    }

    /// Whether an answer reveals them. A refusal may repeat the names in the request.
    fn are_in(&self, answer: &[u8], is_success: bool) -> bool {
        let names = [&self.sandbox, &self.exec, &self.terminal, &self.snapshot, &self.request];
        contains(answer, FILE_SECRET.as_bytes())
            || (is_success && names.iter().any(|name| contains(answer, name.as_bytes())))
    }
}

/// One operation of the API.
struct Operation {
    method: String,
    path: String,
    target: String,
    body: Option<(&'static str, Vec<u8>)>,
}

impl Operation {
    /// Whether it asks for an object in the first namespace.
    fn names_ours(&self) -> bool {
        let parameters = ["{sandbox}", "{volume}", "{snapshot}", "{key}"];
        let body = self.body.as_ref().is_some_and(|(_, body)| contains(body, OURS.as_bytes()));
        body || parameters.iter().any(|name| self.path.contains(name))
    }

    fn is_read(&self) -> bool {
        self.method == "GET" || LOOKS.contains(&self.path.as_str()) || dialects::only_looks(&self.path)
    }

    fn shown(&self) -> String {
        format!("{} {}", self.method, self.path)
    }
}

/// Every operation in the daemon's OpenAPI document, with valid arguments.
async fn operations(stage: &Stage, of: &Belongings) -> CommandResult<Vec<Operation>> {
    let document: Value = stage.operator.get(Target::new(&["openapi.json"])).await?;
    let mut found = Vec::new();
    let paths = document["paths"].as_object().cloned().unwrap_or_default();
    for (path, methods) in &paths {
        for (method, about) in methods.as_object().into_iter().flatten() {
            found.push(operation(&document, path, method, about, of));
        }
    }
    Ok(found)
}

fn operation(document: &Value, path: &str, method: &str, about: &Value, of: &Belongings) -> Operation {
    let mut target = path.to_owned();
    let mut query = vec![format!("namespace={OURS}")];
    for parameter in about["parameters"].as_array().into_iter().flatten() {
        let name = parameter["name"].as_str().unwrap_or_default();
        if parameter["in"] == "path" {
            target = target.replace(&format!("{{{name}}}"), &of.named(name).replace('/', "%2F"));
        } else if name == "topics" {
            // Without calls, which repeat what the caller asked for.
            query.push("topics=sandboxes,usage,execs,network".to_owned());
        } else if parameter["required"] == true || name == "port" {
            query.push(format!("{name}={}", of.named(name)));
        }
    }
    let takes_namespace =
        about["parameters"].as_array().into_iter().flatten().any(|p| p["name"] == "namespace");
    if !takes_namespace {
        query.remove(0);
    }
    if !query.is_empty() {
        target = format!("{target}?{}", query.join("&"));
    }
    let content = about["requestBody"]["content"].as_object();
    let body = content.map(|content| match content.get("application/json") {
        Some(json) => {
            let body = one_of_several(path, of).unwrap_or_else(|| sample(document, &json["schema"], "", of));
            ("application/json", body.to_string().into_bytes())
        }
        None => {
            let file = format!("FROM {}\n", of.missing_image);
            ("application/octet-stream", Tar::default().file("Dockerfile", &file).end())
        }
    });
    Operation { method: method.to_uppercase(), path: path.to_owned(), target, body }
}

/// Bodies of which one field is needed, and the schema does not say which.
fn one_of_several(path: &str, of: &Belongings) -> Option<Value> {
    match path {
        "/v1/session" => Some(json!({ "key": "wrn_0000000000000_attack" })),
        "/v1/runs" => Some(json!({ "sandbox": { "namespace": OURS }, "exec": { "command": ["true"] } })),
        "/v1/shares" => Some(json!({ "sandbox": of.sandbox, "namespace": OURS })),
        "/v1/sandboxes/{sandbox}" => Some(json!({ "name": "attack-renamed" })),
        _ => None,
    }
}

/// A value that is valid for a schema: only required fields, and those that name other objects.
fn sample(document: &Value, schema: &Value, name: &str, of: &Belongings) -> Value {
    if let Some(reference) = schema["$ref"].as_str() {
        let pointer = reference.trim_start_matches('#');
        return sample(document, document.pointer(pointer).unwrap_or(&Value::Null), name, of);
    }
    if let Some(first) = schema["enum"].as_array().and_then(|values| values.first()) {
        return first.clone();
    }
    if let Some(value) = schema.get("const") {
        return value.clone();
    }
    for choice in ["oneOf", "anyOf", "allOf"] {
        if let Some(first) =
            schema[choice].as_array().and_then(|of| of.iter().find(|one| one["type"] != "null"))
        {
            return sample(document, first, name, of);
        }
    }
    let kind = match &schema["type"] {
        Value::Array(kinds) => kinds.first().and_then(Value::as_str).unwrap_or_default(),
        kind => kind.as_str().unwrap_or_default(),
    };
    match kind {
        "object" => object(document, schema, of),
        "array" => match schema["minItems"].as_u64() {
            Some(1..) => json!([sample(document, &schema["items"], name, of)]),
            _ if name == "command" => json!(["true"]),
            _ if name == "packages" => json!(["attack"]),
            _ if name == "paths" => json!(["/root/secret"]),
            _ => json!([]),
        },
        "integer" | "number" => json!(schema["minimum"].as_u64().unwrap_or(1).max(1)),
        "boolean" => json!(false),
        _ => json!(word(name, of)),
    }
}

fn object(document: &Value, schema: &Value, of: &Belongings) -> Value {
    let required: Vec<&str> =
        schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let mut made = Map::new();
    for (name, about) in schema["properties"].as_object().into_iter().flatten() {
        // Not required, and without them a request is refused for its shape, or points to its own sandbox.
        let is_needed = ["namespace", "command", "packages"].contains(&name.as_str());
        if required.contains(&name.as_str()) || is_needed {
            made.insert(name.clone(), sample(document, about, name, of));
        }
    }
    Value::Object(made)
}

/// Text for a field with this name.
fn word(name: &str, of: &Belongings) -> String {
    match name {
        "sandbox" | "sandbox_id" | "name" | "source" => of.sandbox.clone(),
        "image" => "host".to_owned(),
        "volume" => of.volume.clone(),
        "snapshot" => of.snapshot.clone(),
        "reference" => of.missing_image.clone(),
        "exec" | "execId" | "execution_id" | "session_id" | "sessionId" => of.exec.clone(),
        "namespace" => OURS.to_owned(),
        "path" | "from" | "to" | "guest_path" => "/root/secret".to_owned(),
        "language" => "python".to_owned(),
        "mode" => "0644".to_owned(),
        "command" | "code" => "true".to_owned(),
        _ => "attack".to_owned(),
    }
}

/// Checks that the objects in the first namespace are unchanged.
async fn damage(stage: &Stage, of: &Belongings) -> Vec<String> {
    let mut found = Vec::new();
    let state = stage.operator.inspect(&stage.sandbox).await.map(|sandbox| sandbox.state.to_string());
    match state {
        Ok(state) if state == "running" => {}
        Ok(state) => found.push(format!("the sandbox is {state}")),
        Err(_) => found.push("the sandbox is gone".to_owned()),
    }
    if stage.operator.save_images(std::slice::from_ref(&of.image), "oci").await.is_err() {
        found.push("its image is gone".to_owned());
    }
    if stage.operator.look(Within::Sandbox(&stage.sandbox), "/root/secret").await.is_err() {
        found.push("its file is gone".to_owned());
    }
    let exec = stage.operator.exec_view(&stage.sandbox, &of.exec).await;
    if !exec.is_ok_and(|exec| exec.outcome.is_none()) {
        found.push("its command was ended".to_owned());
    }
    let request = Target::new(&["sandboxes", &stage.sandbox, "network", "requests", &of.request]);
    let request = stage.operator.get::<Value>(request).await.ok();
    if of.request != NO_REQUEST && !request.is_some_and(|request| request["state"] == "pending") {
        found.push("its request was answered".to_owned());
    }
    found
}

/// Why requests were refused. A request that is invalid or not answered says nothing about permissions: the matrix then
/// does not know how to call a new route or tool.
struct Tally {
    /// Refusals for lack of permission. For a key, objects in other namespaces do not exist; for a read-only key, its
    /// own do.
    by_right: &'static [&'static str],
    n_by_right: usize,
    unsaid: Vec<String>,
}

impl Tally {
    fn foreign() -> Self {
        Self {
            by_right: &["401", "403", "404", "denied", "host_path_denied", "not_found"],
            n_by_right: 0,
            unsaid: Vec::new(),
        }
    }

    fn read_only() -> Self {
        Self { by_right: &["403", "denied"], n_by_right: 0, unsaid: Vec::new() }
    }

    fn count(&mut self, operation: &Operation, status: Option<u16>) {
        let what = operation.shown();
        match status {
            Some(200..300) => {}
            Some(status) => self.count_refusal(what, &status.to_string()),
            None => self.count_refusal(what, "no answer"),
        }
    }

    /// The same for a tool, by its error code; none if the call succeeded.
    fn count_tool(&mut self, tool: &Value, code: Option<&str>) {
        if let Some(code) = code {
            self.count_refusal(tool["name"].as_str().unwrap_or_default().to_owned(), code);
        }
    }

    fn count_refusal(&mut self, what: String, reason: &str) {
        match self.by_right.contains(&reason) {
            true => self.n_by_right += 1,
            false => self.unsaid.push(format!("{what} ({reason})")),
        }
    }

    fn seen(&self, breaches: &[String], n: usize, what: &str) -> Seen {
        if breaches.is_empty() && !self.unsaid.is_empty() {
            return Seen::untried(format!(
                "not refused for lack of permission: {}",
                super::listed(&self.unsaid)
            ));
        }
        Seen::unless(breaches, format!("{n} {what}, {} refused for lack of permission", self.n_by_right))
    }
}

/// Routes that accept the key of another namespace.
pub(super) async fn foreign_routes(stage: &Stage) -> CommandResult<Seen> {
    let of = stage.belongings.get_or_try_init(|| Belongings::make(stage)).await?;
    foreign(stage, of, &operations(stage, of).await?).await
}

/// Routes that change something for a read-only key.
pub(super) async fn read_only_routes(stage: &Stage) -> CommandResult<Seen> {
    let of = stage.belongings.get_or_try_init(|| Belongings::make(stage)).await?;
    read_only(stage, of, &operations(stage, of).await?).await
}

/// Routes without a key: only two answer, and reveal nothing.
pub(super) async fn keyless_routes(stage: &Stage) -> CommandResult<Seen> {
    let of = stage.belongings.get_or_try_init(|| Belongings::make(stage)).await?;
    keyless(stage, &operations(stage, of).await?).await
}

/// The same for the routes of other systems' clients.
pub(super) async fn foreign_dialect_routes(stage: &Stage) -> CommandResult<Seen> {
    let of = stage.belongings.get_or_try_init(|| Belongings::make(stage)).await?;
    foreign(stage, of, &dialects::operations(stage, of).await?).await
}

pub(super) async fn read_only_dialect_routes(stage: &Stage) -> CommandResult<Seen> {
    let of = stage.belongings.get_or_try_init(|| Belongings::make(stage)).await?;
    read_only(stage, of, &dialects::operations(stage, of).await?).await
}

pub(super) async fn keyless_dialect_routes(stage: &Stage) -> CommandResult<Seen> {
    let of = stage.belongings.get_or_try_init(|| Belongings::make(stage)).await?;
    keyless(stage, &dialects::operations(stage, of).await?).await
}

/// How requests of the matrix show who asks.
fn with_key(key: &str) -> Vec<(&'static str, String)> {
    vec![("authorization", format!("Bearer {key}"))]
}

/// Routes that accept a session of the dashboard which began with the key of another namespace.
pub(super) async fn foreign_session_routes(stage: &Stage) -> CommandResult<Seen> {
    let of = stage.belongings.get_or_try_init(|| Belongings::make(stage)).await?;
    let session = Session::with_key(stage, &stage.other_key).await?;
    foreign_by(stage, of, &operations(stage, of).await?, &session.headers()).await
}

/// Routes that show more than the shared sandbox, or change something, for whoever watches along.
pub(super) async fn share_routes(stage: &Stage) -> CommandResult<Seen> {
    let of = stage.belongings.get_or_try_init(|| Belongings::make(stage)).await?;
    let operations = operations(stage, of).await?;
    // Of another sandbox, that of the first namespace does not exist.
    let other = Session::with_share(stage, &stage.neighbour).await?;
    let seen = foreign_by(stage, of, &operations, &other.headers()).await?;
    if seen.verdict != super::Verdict::Contained {
        return Ok(seen);
    }
    let own = Session::with_share(stage, &stage.sandbox).await?;
    let mut breaches = Vec::new();
    let passed_on = ["/v1/session/once", "/v1/shares", "/v1/sandboxes/{sandbox}/links"];
    // Images belong to no namespace, so the walk through those of another sandbox does not miss them.
    let is_refused = |one: &&Operation| {
        !one.is_read() || passed_on.contains(&one.path.as_str()) || one.path.starts_with("/v1/images")
    };
    for operation in operations.iter().filter(is_refused) {
        let (method, target) = (operation.method.as_str(), operation.target.as_str());
        let asked = stage.ask_with(&own.headers(), method, target, operation.body.clone()).await;
        if let Ok((status @ 200..300, _)) = asked {
            breaches.push(format!("{} answered {status}", operation.shown()));
        }
    }
    breaches.extend(damage(stage, of).await);
    Ok(Seen::unless(&breaches, format!("{}; nothing of its own can be changed or passed on", seen.text)))
}

async fn foreign(stage: &Stage, of: &Belongings, operations: &[Operation]) -> CommandResult<Seen> {
    foreign_by(stage, of, operations, &with_key(&stage.other_key)).await
}

async fn foreign_by(
    stage: &Stage,
    of: &Belongings,
    operations: &[Operation],
    headers: &[(&str, String)],
) -> CommandResult<Seen> {
    let (mut breaches, mut tally) = (Vec::new(), Tally::foreign());
    for operation in operations.iter().filter(|operation| !dialects::is_nothing(&operation.path)) {
        let (method, target) = (operation.method.as_str(), operation.target.as_str());
        // A session would end itself; the rest of the walk would then prove nothing.
        if method == "DELETE" && operation.path == "/v1/session" {
            continue;
        }
        let asked = stage.ask_with(headers, method, target, operation.body.clone()).await;
        tally.count(operation, asked.as_ref().ok().map(|(status, _)| *status));
        let Ok((status, answer)) = asked else { continue };
        let is_success = (200..300).contains(&status);
        // The audit of a namespace has the names that its own callers asked for.
        let repeats_names = operation.path == "/v1/calls";
        if of.are_in(&answer, is_success && !repeats_names) || (is_success && operation.names_ours()) {
            breaches.push(format!("{} answered {status}", operation.shown()));
        }
    }
    breaches.extend(damage(stage, of).await);
    Ok(tally.seen(&breaches, operations.len(), "routes"))
}

async fn read_only(stage: &Stage, of: &Belongings, operations: &[Operation]) -> CommandResult<Seen> {
    let (mut breaches, mut tally) = (Vec::new(), Tally::read_only());
    let changing =
        operations.iter().filter(|operation| !operation.is_read() && !dialects::is_nothing(&operation.path));
    let changing: Vec<_> = changing.collect();
    for operation in &changing {
        let (method, target) = (operation.method.as_str(), operation.target.as_str());
        let asked = stage.ask(&stage.read_only_key, method, target, operation.body.clone()).await;
        let status = asked.as_ref().ok().map(|(status, _)| *status);
        match dialects::is_for_owners(&operation.path) {
            true if status == Some(404) => tally.n_by_right += 1,
            _ => tally.count(operation, status),
        }
        if let Some(status @ 200..300) = status {
            breaches.push(format!("{} answered {status}", operation.shown()));
        }
    }
    breaches.extend(damage(stage, of).await);
    Ok(tally.seen(&breaches, changing.len(), "routes"))
}

async fn keyless(stage: &Stage, operations: &[Operation]) -> CommandResult<Seen> {
    let mut breaches = Vec::new();
    for operation in operations {
        let (method, target) = (operation.method.as_str(), operation.target.as_str());
        let Ok((status, answer)) = stage.caller.ask(None, method, target, operation.body.clone()).await
        else {
            continue;
        };
        stage.hear(&answer);
        let is_open = operation.path == "/v1/health" || dialects::is_open(&operation.path);
        if (200..300).contains(&status) && !is_open {
            breaches.push(format!("{} answered {status}", operation.shown()));
        }
    }
    Ok(Seen::unless(&breaches, format!("{} routes, none of which answers without a key", operations.len())))
}

/// The tools of one surface, and the path of it.
async fn tools(stage: &Stage, key: &str, path: &str) -> CommandResult<Vec<Value>> {
    let (answer, _) = stage.caller.mcp(key, path, "tools/list", json!({})).await?;
    Ok(answer.pointer("/result/tools").and_then(Value::as_array).cloned().unwrap_or_default())
}

/// Optional fields of tools: objects in the first namespace, and confirmation.
fn tool_fields(path: &str, tool: &str, of: &Belongings) -> Vec<(&'static str, Value)> {
    // Some create something and need a name for it.
    let name = match tool {
        "sandbox_create" | "sandbox_run" | "sandbox_restore" | "snapshot_create" | "volume_create"
        | "create_sandbox" => {
            // Another one on each surface.
            let surface = path.split('?').next().and_then(|path| path.rsplit('/').next()).unwrap_or_default();
            format!("new-{tool}-{surface}").replace(['_', '.'], "-")
        }
        volume if volume.starts_with("volume_") => of.volume.clone(),
        _ => of.sandbox.clone(),
    };
    vec![
        ("name", json!(name)),
        ("sandbox", json!(of.sandbox)),
        ("fromSandbox", json!(of.sandbox)),
        ("volume", json!(of.volume)),
        ("snapshot", json!(of.snapshot)),
        ("pathOrName", json!(of.snapshot)),
        ("execSessionId", json!(of.exec)),
        ("jobId", json!(of.exec)),
        ("reference", json!(of.missing_image)),
        ("data", json!("attack")),
        ("content", json!("attack")),
        ("glob", json!("*")),
        ("packages", json!(["attack"])),
        ("ttlSecs", json!(60)),
        ("edits", json!([{ "oldText": FILE_SECRET, "newText": "attack" }])),
        ("confirm", json!(true)),
        ("memoryMib", json!(256)),
        ("contextPath", json!("/etc")),
    ]
}

/// The result of a tool call, and its error code; none if the call succeeded.
async fn call(
    stage: &Stage,
    key: &str,
    path: &str,
    tool: &Value,
    of: &Belongings,
) -> CommandResult<(Option<String>, Vec<u8>)> {
    let name = tool["name"].as_str().unwrap_or_default();
    let schema = &tool["inputSchema"];
    let mut arguments = sample(schema, schema, "", of);
    for (field, value) in tool_fields(path, name, of) {
        if schema["properties"].get(field).is_some() {
            arguments[field] = value;
        }
    }
    let params = json!({ "name": name, "arguments": arguments });
    let (answer, bytes) = stage.caller.mcp(key, path, "tools/call", params).await?;
    stage.hear(&bytes);
    if answer.pointer("/result/isError") == Some(&json!(false)) {
        return Ok((None, bytes));
    }
    let told = answer.pointer("/result/structuredContent/error/code").and_then(Value::as_str);
    match told {
        Some(code) => Ok((Some(code.to_owned()), bytes)),
        // Other systems' failures are only words. The audit has the code.
        None => {
            let latest = stage.operator.calls(None, Some(1), None).await?.calls;
            let latest = latest.into_iter().find(|call| call.action == name);
            Ok((Some(latest.and_then(|call| call.error).unwrap_or_else(|| "none".to_owned())), bytes))
        }
    }
}

pub(super) async fn foreign_tools(stage: &Stage) -> CommandResult<Seen> {
    foreign_tools_at(stage, &[NATIVE.to_owned()]).await
}

pub(super) async fn read_only_tools(stage: &Stage) -> CommandResult<Seen> {
    read_only_tools_at(stage, &[NATIVE.to_owned()]).await
}

/// The same for the tools of every other system.
pub(super) async fn foreign_dialect_tools(stage: &Stage) -> CommandResult<Seen> {
    foreign_tools_at(stage, &dialects::surfaces()).await
}

pub(super) async fn read_only_dialect_tools(stage: &Stage) -> CommandResult<Seen> {
    read_only_tools_at(stage, &dialects::surfaces()).await
}

async fn foreign_tools_at(stage: &Stage, surfaces: &[String]) -> CommandResult<Seen> {
    let of = stage.belongings.get_or_try_init(|| Belongings::make(stage)).await?;
    let (mut breaches, mut tally, mut n) = (Vec::new(), Tally::foreign(), 0);
    for path in surfaces {
        let tools = tools(stage, &stage.other_key, path).await?;
        if tools.is_empty() {
            return Ok(Seen::untried(format!("no tools are listed at {path}")));
        }
        n += tools.len();
        for tool in &tools {
            let Ok((failure, answer)) = call(stage, &stage.other_key, path, tool, of).await else {
                tally.count_tool(tool, Some("unanswered"));
                continue;
            };
            tally.count_tool(tool, failure.as_deref());
            let is_success = failure.is_none();
            if of.are_in(&answer, is_success) || (is_success && dialects::names_sandbox(tool)) {
                let name = tool["name"].as_str().unwrap_or_default();
                breaches.push(format!("{name} at {path} reached another namespace"));
            }
        }
    }
    breaches.extend(damage(stage, of).await);
    Ok(tally.seen(&breaches, n, "tools"))
}

async fn read_only_tools_at(stage: &Stage, surfaces: &[String]) -> CommandResult<Seen> {
    let of = stage.belongings.get_or_try_init(|| Belongings::make(stage)).await?;
    let (mut breaches, mut tally, mut n) = (Vec::new(), Tally::read_only(), 0);
    for path in surfaces {
        let tools = tools(stage, &stage.read_only_key, path).await?;
        if tools.is_empty() {
            return Ok(Seen::untried(format!("no tools are listed at {path}")));
        }
        let is_read = |tool: &&Value| tool.pointer("/annotations/readOnlyHint") == Some(&json!(true));
        for tool in tools.iter().filter(|tool| !is_read(tool)) {
            n += 1;
            let Ok((failure, _)) = call(stage, &stage.read_only_key, path, tool, of).await else {
                tally.count_tool(tool, Some("unanswered"));
                continue;
            };
            tally.count_tool(tool, failure.as_deref());
            if failure.is_none() {
                breaches.push(format!("{} at {path} succeeded", tool["name"].as_str().unwrap_or_default()));
            }
        }
    }
    breaches.extend(damage(stage, of).await);
    Ok(tally.seen(&breaches, n, "tools"))
}

/// Wrong keys from one address do not lock out a valid one.
pub(super) async fn wrong_keys(stage: &Stage) -> CommandResult<Seen> {
    const WRONG: usize = 40;
    for _ in 0..WRONG {
        stage.caller.ask(Some("wrong-key"), "GET", "/v1/sandboxes", None).await.ok();
    }
    let (status, _) = stage.ask(&stage.key, "GET", "/v1/sandboxes", None).await?;
    Ok(match status {
        200 => Seen::contained(format!("a valid key works after {WRONG} wrong ones")),
        status => Seen::open(format!("a valid key is answered with {status} after {WRONG} wrong ones")),
    })
}

use std::{collections::BTreeSet, path::PathBuf};

use sandbox::{
    BackendKind, ByteSize, Enforcement, ExecOutcome, ExecSpec, Isolation, Lifetime, LimitKind,
    LimitStatement, Limits, LimitsPlan, OnExpiry, ProcessEntry, SandboxSpec, Usage,
};
use serde_json::{Value, json};

use crate::support::Api;

fn document() -> Value {
    serde_json::to_value(frontends::rest::document()).unwrap()
}

#[tokio::test]
async fn the_committed_document_is_the_generated_one() {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/openapi.json");
    let mut generated = frontends::rest::document().to_pretty_json().unwrap();
    generated.push('\n');
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&path, &generated).unwrap();
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(committed == generated, "docs/reference/openapi.json is not current: run the tests with BLESS=1");
    let served = Api::new().await.get("/v1/openapi.json").await.expect(200).json();
    assert_eq!(served, document());
}

#[test]
fn every_operation_is_described_and_may_fail() {
    let document = document();
    let mut names = BTreeSet::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        assert!(path.starts_with("/v1/"), "{path}");
        for (method, operation) in item.as_object().unwrap() {
            let name = operation["operationId"].as_str().unwrap();
            assert!(names.insert(name), "two operations are called {name}");
            assert!(operation["summary"].is_string(), "{method} {path} has no words");
            for status in ["400", "401", "403", "429", "500", "503"] {
                assert!(operation["responses"][status].is_object(), "{method} {path} never answers {status}");
            }
            let named = operation["responses"].as_object().unwrap().contains_key("404");
            assert!(named || !path.contains('{'), "{method} {path} names something and always finds it");
        }
    }
    assert!(names.len() > 40, "{}", names.len());
}

/// Values that a parameter of this schema must not have, as they stand in a query.
fn wrong_values(document: &Value, schema: &Value) -> Vec<&'static str> {
    let schema = match schema["$ref"].as_str() {
        Some(reference) => document.pointer(reference.trim_start_matches('#')).unwrap(),
        None => schema,
    };
    let pattern = schema["pattern"].as_str();
    match schema["type"].as_str() {
        Some("array") => wrong_values(document, &schema["items"]),
        Some("integer") => vec!["", "x", "-1", "1.5"],
        Some("boolean") => vec!["maybe"],
        Some("string") if schema["format"] == "date-time" => vec!["yesterday"],
        Some("string") if pattern.is_some_and(|pattern| pattern.starts_with("^[^\\u0000]")) => {
            vec!["", "%00"]
        }
        Some("string") if pattern.is_some() || schema["enum"].is_array() => vec!["", "%00", "%C3%A9%C2%91"],
        _ => Vec::new(),
    }
}

/// What the document promises of parameters in queries holds, for every request that needs no body.
#[tokio::test]
async fn parameters_that_break_their_rules_are_refused() {
    let (api, document) = (Api::with_images().await, document());
    api.post("/v1/sandboxes", json!({ "name": "box" })).await.expect(201);
    let (mut tried, mut accepted) = (0, Vec::new());
    for (path, item) in document["paths"].as_object().unwrap() {
        let path = path.replace("{sandbox}", "box");
        let operations = item.as_object().unwrap().iter().filter(|(_, one)| one["requestBody"].is_null());
        for (method, operation) in operations.filter(|_one| !path.contains('{')) {
            let parameters = operation["parameters"].as_array().into_iter().flatten();
            let parameters: Vec<_> = parameters.filter(|parameter| parameter["in"] == "query").collect();
            for parameter in &parameters {
                let others =
                    parameters.iter().filter(|other| other["required"] == true && other != &parameter);
                let others: String =
                    others.map(|other| format!("&{}=/tmp", other["name"].as_str().unwrap())).collect();
                for wrong in wrong_values(&document, &parameter["schema"]) {
                    let target = format!("{path}?{}={wrong}{others}", parameter["name"].as_str().unwrap());
                    let method = method.to_uppercase().parse().unwrap();
                    let answer = api.send_bytes(method, &target, "").await;
                    tried += 1;
                    if !answer.status.is_client_error() {
                        accepted.push(format!("{target}: {}", answer.status));
                    }
                }
            }
        }
    }
    assert_eq!(accepted, [""; 0]);
    assert!(tried > 200, "{tried}");
}

/// The names of all members that a schema describes, whichever of its alternatives has them.
fn members<'a>(document: &'a Value, schema: &'a Value, names: &mut BTreeSet<&'a String>) {
    if let Some(reference) = schema["$ref"].as_str() {
        return members(document, document.pointer(reference.trim_start_matches('#')).unwrap(), names);
    }
    names.extend(schema["properties"].as_object().into_iter().flat_map(serde_json::Map::keys));
    for part in ["allOf", "oneOf"].into_iter().filter_map(|key| schema[key].as_array()).flatten() {
        members(document, part, names);
    }
}

/// Each described shape has exactly the fields that a full value has.
#[test]
fn described_shapes_are_the_real_ones() {
    let document = document();
    let check = |name: &str, value: Value| {
        let mut described = BTreeSet::new();
        members(&document, &document["components"]["schemas"][name], &mut described);
        let real: BTreeSet<&String> = value.as_object().unwrap().keys().collect();
        assert_eq!(described, real, "{name}");
    };
    let millis = Some(std::time::Duration::from_millis(1));
    let lifetime = Lifetime { ttl: millis, idle: millis, on_expiry: OnExpiry::Stop };
    let size = Some(ByteSize(1));
    let limits = Limits {
        memory: size,
        swap: size,
        cpus: Some(sandbox::CpuCount::whole(1)),
        pids: Some(1),
        open_files: Some(1),
        disk: size,
        tmp: size,
        shm: size,
    };
    let plan: LimitsPlan = sandbox::Defaults::default().limits;
    let network: sandbox::NetworkSpec = serde_json::from_value(json!({
        "preset": "public",
        "allow": ["a.example"],
        "deny": ["b.example"],
        "rules": [{ "action": "deny", "target": "c.example" }],
        "dns": { "nameservers": ["8.8.8.8"], "records": ["A"], "queryTimeoutMs": 100 },
        "limits": {
            "connections": 1, "udpFlows": 1, "connectsPerSecond": 1, "dnsPerSecond": 1, "bytesPerSecond": 1024
        },
    }))
    .unwrap();
    let spec = SandboxSpec {
        name: Some("a".parse().unwrap()),
        backend: Some(BackendKind::Namespace),
        env: [("A".to_owned(), "b".to_owned())].into(),
        cwd: Some("/".to_owned()),
        user: Some("0".to_owned()),
        hostname: Some("a".parse().unwrap()),
        labels: [("a".to_owned(), "b".to_owned())].into(),
        lifetime: lifetime.clone(),
        limits: limits.clone(),
        request_id: Some("a".parse().unwrap()),
        mounts: vec![
            serde_json::from_value(json!({ "kind": "tmpfs", "guestPath": "/t", "size": 1 })).unwrap(),
        ],
        patches: vec![sandbox::Patch::Remove { path: "/a".to_owned() }],
        scripts: [("a".to_owned(), "b".to_owned())].into(),
        rlimits: vec![sandbox::Rlimit { resource: "cpu".to_owned(), soft: 1, hard: 1 }],
        shell: Some("bash".to_owned()),
        image_fallback: true,
        entrypoint: vec!["a".to_owned()],
        init: Some(sandbox::InitSpec {
            path: "a".to_owned(),
            args: vec!["b".to_owned()],
            env: [("A".to_owned(), "b".to_owned())].into(),
        }),
        rootfs: Some(sandbox::RootfsSpec::Snapshot { snapshot: "a".to_owned() }),
        ports: vec![sandbox::PortSpec::published(0, 80)],
        network: network.clone(),
        secrets: vec!["A=B".parse().unwrap()],
        ..SandboxSpec::default()
    };
    let statement = LimitStatement {
        limit: LimitKind::Memory,
        value: 1,
        enforcement: Enforcement::NotHeld,
        note: Some("x".to_owned()),
    };
    let isolation = Isolation {
        backend: BackendKind::Namespace,
        walls: sandbox::Walls::SharedKernel,
        rootless: false,
        id_map: String::new(),
        namespaces: Vec::new(),
        capabilities: Vec::new(),
        no_new_privileges: true,
        seccomp: None,
        network: sandbox::NetworkHold::Loopback,
        cgroups: String::new(),
        limits: vec![statement.clone()],
        warnings: vec!["x".to_owned()],
    };
    let exec = ExecSpec {
        command: vec!["a".to_owned()],
        env: [("A".to_owned(), "b".to_owned())].into(),
        cwd: Some("/".to_owned()),
        user: Some("0".to_owned()),
        rlimits: vec![sandbox::Rlimit { resource: "cpu".to_owned(), soft: 1, hard: 1 }],
        terminal: Some(sandbox::TerminalSize::default()),
        terminal_modes: Vec::new(),
        stdin: true,
        timeout: millis,
        request_id: Some("a".parse().unwrap()),
        cell: Some(sandbox::CellSpec {
            language: sandbox::Language::Python,
            context: Some("a".parse().unwrap()),
            code: String::new(),
        }),
        track_files: true,
    };
    let process = ProcessEntry {
        pid: 1,
        parent: 0,
        user: 0,
        state: 'S',
        memory_bytes: 0,
        cpu_micros: 0,
        command: Vec::new(),
        exec: Some("x".to_owned()),
    };
    check("Lifetime", json!(lifetime));
    check("Limits", json!(limits));
    check("LimitsPlan", json!(plan));
    check("SandboxSpec", json!(spec));
    check("InitSpec", json!(spec.init));
    check("NetworkSpec", json!(network));
    check("RuleSpec", json!(network.rules[0]));
    check("DnsSpec", json!(network.dns));
    check("NetworkLimitsSpec", json!(network.limits));
    // Every kind has some of them.
    let union = |values: Vec<Value>| {
        Value::Object(values.into_iter().flat_map(|value| value.as_object().unwrap().clone()).collect())
    };
    let again = |mount: Value| json!(serde_json::from_value::<sandbox::MountSpec>(mount).unwrap());
    check(
        "MountSpec",
        union(vec![
            again(json!({ "kind": "tmpfs", "guestPath": "/t", "size": 1 })),
            again(json!({ "kind": "named", "guestPath": "/t", "name": "a" })),
            again(json!({ "kind": "bind", "guestPath": "/t", "hostPath": "/a", "noLinks": true })),
        ]),
    );
    let again = |patch: Value| json!(serde_json::from_value::<sandbox::Patch>(patch).unwrap());
    check(
        "Patch",
        union(vec![
            again(json!({ "kind": "text", "path": "/a", "content": "", "mode": 1, "replace": true })),
            again(json!({ "kind": "file", "path": "/a", "contentBase64": "" })),
            again(json!({ "kind": "symlink", "path": "/a", "target": "b" })),
            again(json!({ "kind": "copyDir", "path": "/a", "hostPath": "/b" })),
        ]),
    );
    check("LimitStatement", json!(statement));
    check("Isolation", json!(isolation));
    check("Rlimit", json!(exec.rlimits[0]));
    check("ExecSpec", json!(exec));
    check("CellSpec", json!(exec.cell));
    let cell = engine::CellView { language: sandbox::Language::Python, context: Some("a".parse().unwrap()) };
    check("CellView", json!(cell));
    let context = engine::ContextView {
        name: String::new(),
        language: String::new(),
        state: engine::ContextState::Idle,
        pid: Some(1),
        cells: 0,
        queued: 0,
        cwd: String::new(),
        parent: Some(String::new()),
        memory_bytes: 0,
    };
    check("ContextView", json!(context));
    let language = engine::LanguageView { name: String::new(), program: String::new(), stateful: true };
    check("LanguageView", json!(language));
    let network = Some(sandbox::NetworkTraffic::default());
    check("Usage", json!(Usage { network, ..Usage::default() }));
    check("NetworkTraffic", json!(network));
    check("ProcessEntry", json!(process));

    let outcomes = document["components"]["schemas"]["ExecOutcome"]["oneOf"].as_array().unwrap();
    let described: BTreeSet<&str> =
        outcomes.iter().map(|one| one["properties"]["type"]["enum"][0].as_str().unwrap()).collect();
    let real = [
        ExecOutcome::exited(0),
        ExecOutcome::Signaled { signal: 9 },
        ExecOutcome::NotStarted { reason: sandbox::NotStarted::Other, message: String::new() },
        ExecOutcome::Killed { reason: sandbox::KillReason::Request },
    ];
    let real: Vec<Value> = real.iter().map(|outcome| json!(outcome)).collect();
    assert_eq!(described, real.iter().map(|outcome| outcome["type"].as_str().unwrap()).collect());
}

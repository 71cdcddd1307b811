//! execd's routes on real sandboxes: code, files, terminals.

use serde_json::{Value, json};

use crate::{
    opensandbox::{Client, client, create, events, inside, keyed, kinds},
    support::Answer,
};

/// execd of one sandbox.
struct Execd<'a> {
    client: Client<'a>,
    path: String,
}

impl<'a> Execd<'a> {
    async fn of(client: &Client<'a>, id: &str) -> Self {
        let (path, client) = inside(client, id, 44772).await;
        Self { client, path }
    }

    async fn ask(&self, line: &str, body: Option<&Value>) -> Answer {
        let (method, target) = line.split_once(' ').unwrap();
        self.client.send(&format!("{method} {}{target}", self.path), body).await
    }

    async fn post(&self, target: &str, body: Value) -> Answer {
        self.ask(&format!("POST {target}"), Some(&body)).await.expect(200)
    }

    async fn get(&self, target: &str) -> Answer {
        self.ask(&format!("GET {target}"), None).await
    }

    /// Runs code and answers its events.
    async fn code(&self, code: &str, context: Value) -> Vec<Value> {
        events(&self.post("/code", json!({ "code": code, "context": context })).await)
    }

    async fn printed(&self, command: &str) -> String {
        let told = events(&self.post("/command", json!({ "command": command })).await);
        texts(&told).join("\n")
    }
}

fn texts(told: &[Value]) -> Vec<&str> {
    told.iter()
        .filter(|event| event["type"] == "stdout")
        .map(|event| event["text"].as_str().unwrap())
        .collect()
}

fn count(told: &[Value]) -> &Value {
    &told.iter().find(|event| event["type"] == "execution_count").unwrap()["execution_count"]
}

#[tokio::test]
async fn code_is_counted_keeps_its_line_ends_and_is_interrupted_by_its_context() {
    let server = keyed().await;
    let client = client(&server, "red").await;
    let execd = Execd::of(&client, &create(&client).await).await;
    for n in 1..=3 {
        let told = execd.code("echo a; printf b", json!({ "language": "bash" })).await;
        assert_eq!((texts(&told), count(&told)), (vec!["a\n", "b"], &json!(n)), "{told:?}");
    }
    // Neither a context nor a language: a line for the shell, which keeps nothing.
    let told = execd.code("echo \"Hello from shell\"", Value::Null).await;
    assert_eq!(kinds(&told), ["init", "stdout", "execution_complete"]);
    assert_eq!(texts(&told), ["Hello from shell"]);

    let context = execd.post("/code/context", json!({ "language": "bash" })).await.json();
    let id = context["id"].as_str().unwrap();
    let interrupt = format!("DELETE /code?id={id}");
    execd.ask(&interrupt, None).await.expect(200);
    let code = "touch /tmp/begun; sleep 600";
    let run = execd.code(code, json!({ "id": id }));
    let stop = async {
        execd.printed("until [ -e /tmp/begun ]; do sleep 0.05; done").await;
        execd.ask(&interrupt, None).await.expect(200);
    };
    let (told, ()) = tokio::join!(run, stop);
    assert_eq!(told.last().unwrap()["type"], "error", "{told:?}");
    execd.ask("DELETE /code?id=nobody", None).await.expect(400);
    server.end().await;
}

#[tokio::test]
async fn a_context_for_typescript_runs_typescript_or_is_not_made() {
    let server = keyed().await;
    let client = client(&server, "red").await;
    let execd = Execd::of(&client, &create(&client).await).await;
    let asked = json!({ "language": "typescript" });
    let made = execd.ask("POST /code/context", Some(&asked)).await;
    if made.status() != 200 {
        let told = made.expect(400).json();
        assert!(told["message"].as_str().unwrap().contains("cannot run typescript"), "{told}");
        return server.end().await;
    }
    let context = made.json();
    assert_eq!(context["language"], "typescript");
    let told = execd.code("const a: number = 5; console.log(a)", context.clone()).await;
    assert_eq!(texts(&told), ["5\n"], "{told:?}");
    let listed = execd.get("/code/contexts?language=typescript").await.expect(200).json();
    assert_eq!(listed, json!([context]));
    assert_eq!(execd.get("/code/contexts?language=javascript").await.expect(200).json(), json!([]));
    server.end().await;
}

#[tokio::test]
async fn files_are_found_moved_and_told_of_as_execd_does() {
    let server = keyed().await;
    let client = client(&server, "red").await;
    let execd = Execd::of(&client, &create(&client).await).await;
    execd.printed("echo text > /tmp/f; chmod 640 /tmp/f; ln -s /nowhere /tmp/link; echo home > ~/h").await;
    // No mode is sent as 0.
    execd.post("/files/permissions", json!({ "/tmp/f": { "mode": 0, "owner": "root" } })).await;
    assert_eq!(execd.printed("stat -c %a /tmp/f").await, "640");
    execd.post("/files/mv", json!([{ "src": "/tmp/f", "dest": "/tmp/new/place/f" }])).await;
    let none = json!([{ "src": "/tmp/none", "dest": "/tmp/other/f" }]);
    execd.ask("POST /files/mv", Some(&none)).await.expect(404);
    assert_eq!(execd.printed("cat /tmp/new/place/f; ls -d /tmp/other || echo none").await, "text\nnone");

    let told = execd.get("/files/info?path=/tmp/link&path=~/h&path=$HOME/h").await.expect(200).json();
    assert_eq!(
        (&told["/tmp/link"]["type"], &told["/tmp/link"]["path"]),
        (&json!("symlink"), &json!("/tmp/link"))
    );
    let home = execd.printed("echo ~").await;
    assert_eq!(told["~/h"]["path"], format!("{home}/h"));
    assert_eq!(told["$HOME/h"], told["~/h"]);

    let whole = execd.get("/files/download?path=~/h").await.expect(200);
    assert_eq!((whole.body.as_slice(), whole.header("content-length")), (b"home\n".as_slice(), Some("5")));
    assert!(
        whole.header("content-disposition").unwrap().starts_with("attachment; filename=\"h\""),
        "{whole:?}"
    );
    let kernels = execd.get("/files/download?path=/proc/self/status").await.expect(200);
    assert!(String::from_utf8_lossy(&kernels.body).contains("Name:"), "{kernels:?}");
    // Such a file says that it has a page of memory, and has less.
    let kernels = execd.printed("ln -s /sys/devices/system/cpu/online /tmp/online; cat /tmp/online").await;
    let linked = execd.get("/files/download?path=/tmp/online").await.expect(200);
    assert_eq!(linked.header("content-length"), None, "{linked:?}");
    assert!(!kernels.is_empty() && String::from_utf8_lossy(&linked.body).contains(&kernels), "{linked:?}");
    server.end().await;
}

#[tokio::test]
async fn a_command_that_does_not_start_and_a_terminal_that_is_deleted_are_told_so() {
    let server = keyed().await;
    let client = client(&server, "red").await;
    let execd = Execd::of(&client, &create(&client).await).await;
    let background = json!({ "argv": ["nosuchprogram"], "background": true });
    let told = execd.ask("POST /command", Some(&background)).await.expect(500).json();
    assert_eq!(told["code"], "RUNTIME_ERROR", "{told}");
    let streamed = execd.post("/command", json!({ "command": "true" })).await;
    assert_eq!(streamed.header("x-accel-buffering"), Some("no"));

    let made = execd.ask("POST /pty", Some(&json!({}))).await.expect(201).json();
    let session = made["session_id"].as_str().unwrap();
    execd.get(&format!("/pty/{session}")).await.expect(200);
    execd.ask(&format!("DELETE /pty/{session}"), None).await.expect(200);
    for line in [format!("GET /pty/{session}"), format!("DELETE /pty/{session}")] {
        assert_eq!(execd.ask(&line, None).await.expect(404).json()["code"], "CONTEXT_NOT_FOUND", "{line}");
    }
    server.end().await;
}

#[tokio::test]
async fn a_claim_makes_its_volume_unless_it_says_otherwise() {
    let server = keyed().await;
    let client = client(&server, "red").await;
    let body = |claim: Value| {
        let volume = json!({ "name": "v", "mountPath": "/v", "pvc": claim });
        json!({ "image": { "uri": "host" }, "volumes": [volume] })
    };
    let strict = body(json!({ "claimName": "data", "createIfNotExists": false }));
    client.refused("POST /v1/sandboxes", Some(&strict), 400, "VOLUME::NOT_FOUND").await;
    for _ in 0..2 {
        client.send("POST /v1/sandboxes", Some(&body(json!({ "claimName": "data" })))).await.expect(202);
    }
    client.send("POST /v1/sandboxes", Some(&strict)).await.expect(202);
    server.end().await;
}

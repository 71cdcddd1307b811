//! A daemon with several listeners: each speaks its own dialect, and all show the same sandboxes.

use std::{collections::BTreeMap, net::TcpListener};

use serde_json::{Value, json};

use crate::{
    http::{Answer, Served, ask_at},
    support::World,
};

/// Dialects with the tool that makes a sandbox, the one that lists them, and how the arguments of each look.
struct Speaker {
    dialect: &'static str,
    make: (&'static str, fn(&str) -> Value),
    list: (&'static str, Value),
}

fn speakers() -> Vec<Speaker> {
    let by_name: fn(&str) -> Value = |name| json!({ "name": name });
    let with_image: fn(&str) -> Value = |name| json!({ "name": name, "image": "host" });
    let as_theirs: fn(&str) -> Value = |name| json!({ "sandbox": name, "namespace": "red" });
    vec![
        // First, because it takes no more than three.
        Speaker {
            dialect: "mcp-sandbox",
            make: ("create_sandbox", by_name),
            list: ("list_sandboxes", json!({})),
        },
        Speaker { dialect: "warren", make: ("sandbox_create", by_name), list: ("sandbox_list", json!({})) },
        Speaker {
            dialect: "microsandbox",
            make: ("sandbox_start", as_theirs),
            list: ("sandbox_get_metrics", json!({ "namespace": "red" })),
        },
        Speaker {
            dialect: "microsandbox-mcp",
            make: ("sandbox_create", with_image),
            list: ("sandbox_list", json!({})),
        },
        Speaker {
            dialect: "microsandbox-mcp-0.6",
            make: ("sandbox_create", with_image),
            list: ("sandbox_list", json!({})),
        },
        Speaker {
            dialect: "opensandbox",
            make: ("sandbox_create", |_unnamed| json!({ "image": "host" })),
            list: ("sandbox_list", json!({})),
        },
    ]
}

impl World {
    /// The addresses of the further listeners, by dialect.
    fn further(&self) -> BTreeMap<String, String> {
        let note = self.http_note().unwrap();
        let also = note["also"].as_array().unwrap();
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let address = |url: String| url.split_once("://").unwrap().1.to_owned();
        also.iter().map(|also| (text(&also["dialect"]), address(text(&also["url"])))).collect()
    }

    fn key(&self, namespace: &str) -> String {
        let args = ["key", "create", "--label", namespace, "--namespace", namespace];
        self.run(&args).expect(0).text().trim().to_owned()
    }
}

/// One call of a tool at plain `/mcp`.
fn call(address: &str, key: &str, tool: &str, arguments: &Value) -> Answer {
    let params = json!({ "name": tool, "arguments": arguments });
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params }).to_string();
    ask_at(
        address,
        &[
            "POST /mcp HTTP/1.1",
            &format!("host: {address}"),
            &format!("authorization: Bearer {key}"),
            "content-type: application/json",
            &format!("content-length: {}\r\n\r\n{body}", body.len()),
        ],
    )
}

#[track_caller]
fn called(address: &str, key: &str, tool: &str, arguments: &Value) -> String {
    let answer = call(address, key, tool, arguments).expect(200).json();
    let result = &answer["result"];
    assert!(result.is_object() && result["isError"] != true, "{tool}: {answer}");
    result["content"][0]["text"].as_str().unwrap_or_default().to_owned()
}

#[test]
fn a_sandbox_of_one_dialect_is_in_all_others_for_those_who_may_see_it() {
    let world = World::new();
    let speakers = speakers();
    let listeners: Vec<_> =
        speakers.iter().map(|speaker| format!("127.0.0.1:0={}", speaker.dialect)).collect();
    let (first, rest) = listeners.split_at(2);
    let served = world.serve(&["--also-listen", &first.join(","), "--also-listen", &rest.join(",")]);
    let (red, blue) = (world.key("red"), world.key("blue"));
    let addresses = world.further();
    assert_eq!(addresses.len(), speakers.len(), "{addresses:?}");

    for (n, speaker) in speakers.iter().enumerate() {
        let (tool, arguments) = speaker.make;
        called(&addresses[speaker.dialect], &red, tool, &arguments(&format!("made-{n}")));
    }
    let listed = world.run(&["ps", "-a", "--json", "--namespace", "red"]).expect(0).json();
    let text = |view: &Value, field: &str| view[field].as_str().unwrap().to_owned();
    let made: Vec<_> = listed["sandboxes"].as_array().unwrap().iter().collect();
    let made: Vec<_> = made.into_iter().map(|view| (text(view, "name"), text(view, "id"))).collect();
    assert_eq!(made.len(), speakers.len(), "{made:?}");
    for speaker in &speakers {
        let (tool, arguments) = &speaker.list;
        let address = &addresses[speaker.dialect];
        let listed = called(address, &red, tool, arguments);
        for (name, id) in &made {
            // Some show names, and some ids.
            let is_there = listed.contains(name) || listed.contains(id);
            assert!(is_there, "{} does not list {name}: {listed}", speaker.dialect);
        }
        // Another namespace: the same call is refused, or shows nothing.
        let theirs = call(address, &blue, tool, arguments);
        let shows = |(name, id): &(String, String)| theirs.body.contains(name) || theirs.body.contains(id);
        assert!(!made.iter().any(shows), "{}: {theirs:?}", speaker.dialect);
        let nobody = call(address, "wrn_0000000000000000", tool, arguments);
        assert!(nobody.is(401), "{}: {nobody:?}", speaker.dialect);
    }
    let doctor = world.run(&["doctor", "--no-trial"]);
    for (dialect, address) in &addresses {
        assert!(doctor.text().contains(&format!("{dialect} at http://{address}")), "{doctor:?}");
    }
    let log = served.stop();
    for (dialect, address) in &addresses {
        assert!(log.contains(&format!("{dialect}: http://{address}/mcp")), "{log}");
        assert!(TcpListener::bind(address).is_ok(), "{address} is free again");
    }
}

#[test]
fn every_listener_has_the_same_checks_and_its_own_plain_routes() {
    let world = World::new();
    let served = world.serve(&["--dev", "--also-listen", "127.0.0.1:0=mcp-sandbox"]);
    let address = world.further()["mcp-sandbox"].clone();
    let get = |path: &str, host: &str| {
        ask_at(&address, &[&format!("GET {path} HTTP/1.1"), &format!("host: {host}")])
    };
    // A plain route of that dialect, which the first listener does not have.
    get("/api/users/me", "localhost").expect(200);
    assert!(served.get("/api/users/me").is(404));
    served.get("/mcp-sandbox/api/users/me").expect(200);
    get("/v1/sandboxes", "localhost").expect(200);
    get("/v1/sandboxes", "evil.example").expect(403);
    served.stop();
}

#[test]
fn opensandbox_on_a_port_of_its_own_needs_no_prefix_and_no_sign() {
    let world = World::new();
    let served = world.serve(&["--also-listen", "127.0.0.1:0=opensandbox"]);
    let address = world.further()["opensandbox"].clone();
    let key = world.key("red");
    let ask_of = |address: &str, line: &str, body: &str| {
        ask_at(
            address,
            &[
                &format!("{line} HTTP/1.1"),
                &format!("host: {address}"),
                // Neither their user agent nor their header: any HTTP client is one of theirs here.
                &format!("authorization: Bearer {key}"),
                "content-type: application/json",
                &format!("content-length: {}\r\n\r\n{body}", body.len()),
            ],
        )
    };
    let ask = |line: &str, body: &str| ask_of(&address, line, body);
    let new = json!({ "image": { "uri": "host" }, "timeout": 600, "metadata": { "team": "x" } }).to_string();
    let made = ask("POST /sandboxes", &new).expect(202).json();
    let id = made["id"].as_str().unwrap();
    for path in ["/sandboxes", "/v1/sandboxes", "/opensandbox/v1/sandboxes"] {
        let listed = ask(&format!("GET {path}"), "").expect(200).json();
        assert_eq!(listed["items"], json!([made]), "{path}");
    }
    assert_eq!(ask("GET /health", "").expect(200).json(), json!({ "status": "healthy" }));
    assert_eq!(ask("GET /v1/version", "").expect(200).json()["server"], "warren");
    let missing = ask("GET /sandboxes/nobody", "").expect(404).json();
    assert_eq!(missing["code"], "SANDBOX::SANDBOX_NOT_FOUND");
    let given = ask(&format!("GET /v1/sandboxes/{id}/endpoints/44772"), "").expect(200).json();
    let endpoint = given["endpoint"].as_str().unwrap();
    assert!(endpoint.starts_with(&format!("{address}/")), "{given}");
    // The first listener has nothing there.
    ask_of(served.url().split_once("://").unwrap().1, "GET /sandboxes", "").expect(404);
    let listed = world.run(&["ps", "--json", "--namespace", "red"]).expect(0).json();
    assert_eq!(listed["sandboxes"][0]["id"], id);
    served.stop();
}

#[test]
fn a_taken_port_stops_the_start_before_anything_is_touched() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let world = World::bare();
    let also = format!("{address}=microsandbox");
    let said = world.fails_to_serve(&["--listen", "127.0.0.1:0", "--also-listen", &also]);
    assert!(said.contains(&address) && said.contains("--also-listen"), "{said}");
    assert!(!world.home().join("warren.db").exists(), "no record was opened");

    // A daemon that is to be replaced is not stopped for one that cannot start.
    let served = world.serve(&["--dev"]);
    let pid = served.pid();
    let url = served.url().to_owned();
    let own = url.split_once("://").unwrap().1;
    let refused = world.run(&["serve", "--take-over", "--listen", own, "--also-listen", &also]).expect(125);
    assert!(refused.stderr.contains(&address), "{refused:?}");
    served.get("/v1/health").expect(200);
    assert_eq!(served.pid(), pid);
    served.stop();
}

#[test]
fn wrong_addresses_and_dialects_are_named() {
    let world = World::bare();
    for (flag, named) in [
        ("127.0.0.1:0", "names no dialect"),
        ("127.0.0.1:0=klingon", "\"klingon\" is not a dialect"),
        ("example.com:80=warren", "example.com:80"),
    ] {
        let refused = world.run(&["serve", "--also-listen", flag]).expect(2);
        assert!(refused.stderr.contains(named), "{refused:?}");
    }
    let said =
        world.fails_to_serve(&["--dev", "--listen", "127.0.0.1:0", "--also-listen", "0.0.0.0:0=warren"]);
    assert!(said.contains("0.0.0.0:0") && said.contains("--dev"), "{said}");
    let config = world.files().join("config.toml");
    std::fs::write(&config, "[serve]\nalso_listen = ['127.0.0.1:0=klingon']\n").unwrap();
    let said = world.fails_to_serve(&["--listen", "127.0.0.1:0", "--config", config.to_str().unwrap()]);
    assert!(said.contains("serve.also_listen") && said.contains("klingon"), "{said}");
}

#[test]
fn listeners_of_the_configuration_are_opened() {
    let world = World::new();
    let config = world.files().join("config.toml");
    std::fs::write(&config, "[serve]\nalso_listen = ['127.0.0.1:0=microsandbox']\n").unwrap();
    let served: Served = world.serve(&["--dev", "--config", config.to_str().unwrap()]);
    let address = world.further()["microsandbox"].clone();
    let listed = called(&address, "", "sandbox_get_metrics", &json!({ "namespace": "*" }));
    assert!(listed.contains("sandboxes"), "{listed}");
    served.stop();
}

//! The binary as `msb`: the command line of microsandbox up to version 0.2.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    os::unix::{fs::symlink, process::CommandExt as _},
    process::Command,
};

use serde_json::{Value, json};

use crate::{
    http::ask_at,
    support::{Finished, World, finish, until},
};

impl World {
    /// This world's command, called by the other name.
    fn msb(&self, args: &[&str]) -> Command {
        let mut command = self.command(args);
        // Does what a link does, without one.
        command.arg0("/usr/local/bin/msb");
        command
    }

    fn run_msb(&self, args: &[&str]) -> Finished {
        finish(self.msb(args).spawn().unwrap())
    }

    fn address(&self) -> String {
        let url = self.http_note().unwrap()["url"].as_str().unwrap().to_owned();
        url.split_once("://").unwrap().1.to_owned()
    }
}

#[test]
fn the_server_starts_and_stops_as_it_did() {
    let world = World::new();
    let started = world.run_msb(&["server", "start", "--port", "0", "--detach"]).expect(0);
    assert!(started.stderr.contains("the server runs at http://127.0.0.1:"), "{started:?}");
    let address = world.address();
    let health = ["GET /api/v1/health HTTP/1.1", "host: localhost"];
    ask_at(&address, &health).expect(200);

    let twice = world.run_msb(&["server", "start", "--port", "0", "--detach"]);
    assert!(twice.code != Some(0) && twice.stderr.contains("msb server stop"), "{twice:?}");

    let key = world.run_msb(&["server", "keygen", "--expire", "3mo", "-n", "blue"]).expect(0).text();
    assert!(key.starts_with("msb_"), "{key}");
    let rpc = |method: &str, namespace: &str, mut params: Value| {
        params["sandbox"] = json!("lab");
        params["namespace"] = json!(namespace);
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        let body = body.to_string();
        let head = [
            "POST /api/v1/rpc HTTP/1.1",
            "host: localhost",
            &format!("authorization: Bearer {}", key.trim()),
            "content-type: application/json",
            &format!("content-length: {}\r\n\r\n{body}", body.len()),
        ];
        ask_at(&address, &head)
    };
    rpc("sandbox.start", "blue", json!({})).expect(200);
    rpc("sandbox.start", "red", json!({})).expect(403);
    let listed = world.run_msb(&["server", "list", "-n", "blue"]).expect(0).text();
    assert!(listed.contains("lab"), "{listed}");
    let status = world.run_msb(&["server", "status", "lab"]).expect(0);
    assert!(status.stderr.contains(&address), "{status:?}");
    let command = json!({ "command": "sh", "args": ["-c", "echo first; echo last"] });
    rpc("sandbox.command.run", "blue", command).expect(200);
    let log = |more: &[&str]| {
        let args = [&["server", "log", "lab", "-n", "blue"], more].concat();
        world.run_msb(&args).expect(0).text()
    };
    let whole = log(&[]);
    assert!(whole.contains("first\n") && whole.ends_with("last\n"), "{whole}");
    let end = log(&["--sandbox", "--tail", "1"]);
    assert!(!end.contains("first") && end.ends_with("last\n"), "{end}");

    let stopped = world.run_msb(&["server", "stop"]).expect(0);
    assert!(stopped.stderr.contains("has stopped"), "{stopped:?}");
    assert!(world.http_note().is_none());
    let again = world.run_msb(&["server", "stop"]).expect(0);
    assert!(again.stderr.contains("does not run"), "{again:?}");
}

#[test]
fn a_server_without_keys_runs_in_the_foreground() {
    let world = World::new();
    // A daemon that another command started is replaced, since nobody reaches it over TCP.
    world.run(&["ps"]).expect(0);
    let mut command = world.msb(&["--info", "server", "start", "--dev", "--port", "0", "--path", "/nowhere"]);
    let mut child = command.spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
    let said: Vec<_> = lines.by_ref().take_while(|line| !line.contains("/mcp")).collect();
    assert!(said.iter().any(|line| line.contains("--path has no effect")), "{said:?}");
    let reading = std::thread::spawn(move || lines.count());
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list" }).to_string();
    let address = world.address();
    let head = [
        "POST /mcp HTTP/1.1",
        "host: localhost",
        "content-type: application/json",
        &format!("content-length: {}\r\n\r\n{body}", body.len()),
    ];
    let listed = ask_at(&address, &head).expect(200);
    assert!(listed.body.contains("sandbox_run_code"), "{listed:?}");
    world.run_msb(&["server", "stop"]).expect(0);
    assert!(child.wait().unwrap().success());
    reading.join().unwrap();
}

#[test]
fn a_project_is_run_with_the_old_commands() {
    let world = World::new();
    let directory = world.files().join("site");
    fs::create_dir_all(&directory).unwrap();
    let run = |args: &[&str]| finish(world.msb(args).current_dir(&directory).spawn().unwrap());
    run(&["init"]).expect(0);
    assert_ne!(run(&["init"]).code, Some(0), "an existing file is kept");
    run(&["up"]).expect(0);
    let text = "sandboxes:\n  app:\n    image: microsandbox/python\n    scripts:\n      start: echo up\n\
                \x20     add: expr $1 + $2\n";
    fs::write(directory.join("Sandboxfile"), text).unwrap();
    let ran = run(&["run", "app~add", "--", "2", "3"]).expect(0);
    assert!(ran.text().ends_with("5\n"), "{ran:?}");
    let ran = run(&["r", "app", "-e", "echo hello", "--", "there"]).expect(0);
    assert!(ran.text().ends_with("hello there\n"), "{ran:?}");
    assert!(run(&["list"]).expect(0).text().contains("site-app"));
    assert!(run(&["ps"]).expect(0).text().contains("running"));
    assert!(run(&["log", "app", "-t", "1"]).expect(0).text().contains("hello there"));
    let exe = run(&["exe", "microsandbox/python~python3", "--memory", "128", "--", "-c", "print(2 ** 5)"]);
    assert_eq!(exe.expect(0).text(), "32\n");
    run(&["down", "app"]).expect(0);
    assert!(run(&["status"]).expect(0).text().contains("stopped"));
    fs::write(directory.join("Sandboxfile"), "sandboxes: {}\n").unwrap();
    run(&["apply", "--yes"]).expect(0);
    until("its sandbox is gone", || !run(&["ps"]).expect(0).text().contains("site-app"));
}

#[test]
fn what_there_is_no_more_is_answered_with_what_there_is() {
    let world = World::bare();
    for (args, hint) in [
        (&["server", "start", "--key", "x"][..], "msb server keygen"),
        (&["server", "start", "--reset-key"], "warren key revoke"),
        (&["server", "start", "--host", "example.com"], "IP address"),
        (&["server", "start", "--dev", "--host", "0.0.0.0", "--port", "0"], "127.0.0.1"),
        (&["server", "ssh", "-n", "x", "y"], "warren exec -it"),
        (&["add", "x", "--image", "y"], "Sandboxfile"),
        (&["clean", "--all"], "warren prune"),
        (&["exe", "--port", "x:y", "alpine"], "x:y"),
        (&["log", "../x"], "A name has"),
    ] {
        let refused = world.run_msb(args);
        assert!(refused.code.is_some_and(|code| code != 0), "{args:?}: {refused:?}");
        assert!(refused.stderr.contains(hint), "{args:?}: {refused:?}");
    }
    for args in [&["server", "keygen", "--expire", "soon"][..], &["server", "start", "--port", "x"], &[]] {
        world.run_msb(args).expect(2);
    }
    let help = world.run_msb(&["--help"]).expect(0).text();
    assert!(help.contains("server") && help.contains("apply"), "{help}");
    // A real link, as people install it.
    let link = world.files().join("msb");
    symlink(env!("CARGO_BIN_EXE_warren"), &link).unwrap();
    let version = Command::new(link).args(["--version"]).output().unwrap();
    assert!(String::from_utf8_lossy(&version.stdout).starts_with("msb "), "{version:?}");
}

use serde_json::json;

use crate::support::World;

#[test]
fn a_sandbox_goes_through_its_life() {
    let world = World::new();
    let made =
        world.run(&["create", "--name", "web", "--memory", "64m", "--label", "team=red", "--ttl", "1h"]);
    assert_eq!(made.expect(0).text(), "web\n");
    let listed = world.run(&["ps"]).expect(0).text();
    assert!(listed.starts_with("NAME") && listed.contains("web") && listed.contains("running"), "{listed}");

    let mut steps = vec![("stop", "stopped"), ("start", "running"), ("restart", "running")];
    if world.can_pause("web") {
        steps.extend([("pause", "paused"), ("resume", "running")]);
    }
    for (verb, state) in steps {
        assert_eq!(world.run(&[verb, "web"]).expect(0).text(), "web\n");
        assert_eq!(world.run(&["inspect", "web"]).expect(0).json()["state"], state, "{verb}");
    }
    let inspected = world.run(&["inspect", "web"]).expect(0).json();
    assert_eq!(inspected["limits"]["memory"], 67_108_864);
    assert_eq!(inspected["isolation"]["backend"], "namespace");
    assert!(inspected["execs"].is_array() && inspected["expiresAt"].is_string());

    let refused = world.run(&["rm", "web"]).expect(125);
    assert!(refused.stderr.contains("error: ") && refused.stderr.contains("hint: "), "{refused:?}");
    assert_eq!(world.run(&["rm", "-f", "web"]).expect(0).text(), "web\n");
    assert_eq!(world.run(&["ps", "-aq"]).expect(0).text(), "");
}

#[test]
fn several_targets_are_each_answered_for() {
    let world = World::new();
    for name in ["a", "b"] {
        world.run(&["create", "--name", name]).expect(0);
    }
    let removed = world.run(&["rm", "a", "missing", "b", "--force"]).expect(0);
    assert_eq!(removed.text(), "a\nb\n");
    assert!(removed.stderr.starts_with("note: ") && removed.stderr.contains("missing"), "{removed:?}");
    assert!(world.run(&["rm", "missing"]).expect(125).stderr.contains("error: "));

    world.run(&["create", "--name", "c"]).expect(0);
    let stopped = world.run(&["stop", "--json", "c", "nobody"]).expect(125).json();
    assert_eq!((&stopped[0]["target"], &stopped[0]["ok"]), (&json!("c"), &json!(true)));
    assert_eq!(stopped[0]["sandbox"]["state"], "stopped");
    assert_eq!((&stopped[1]["ok"], &stopped[1]["error"]["kind"]), (&json!(false), &json!("not_found")));
}

#[test]
fn what_is_so_already_is_no_failure() {
    let world = World::with_dev();
    for verb in ["start", "resume"] {
        let done = world.run(&[verb, "dev"]).expect(0);
        assert_eq!(
            (done.text().as_str(), done.stderr.as_str()),
            ("dev\n", "note: sandbox dev is running already\n")
        );
    }
    let done = world.run(&["--json", "start", "dev"]).expect(0).json();
    assert_eq!((&done[0]["ok"], &done[0]["note"]), (&json!(true), &json!("sandbox dev is running already")));
    if world.can_pause("dev") {
        world.run(&["pause", "dev"]).expect(0);
        assert!(world.run(&["pause", "dev"]).expect(0).stderr.contains("paused already"));
    }
}

#[test]
fn lists_are_filtered() {
    let world = World::new();
    for (name, team) in [("a1", "red"), ("a2", "blue")] {
        world.run(&["create", "--name", name, "-l", &format!("team={team}")]).expect(0);
    }
    world.run(&["stop", "a2"]).expect(0);
    let names = |args: &[&str]| -> Vec<String> {
        let mut all = vec!["ps", "--json"];
        all.extend(args);
        let listed = world.run(&all).expect(0).json();
        let sandboxes = listed["sandboxes"].as_array().unwrap().clone();
        sandboxes.iter().map(|sandbox| sandbox["name"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(names(&[]), ["a1"]);
    assert_eq!(names(&["-a"]).len(), 2);
    assert_eq!(names(&["--filter", "label=team=blue", "-a"]), ["a2"]);
    assert_eq!(names(&["--filter", "state=stopped"]), ["a2"]);
    assert_eq!(names(&["--filter", "name=a1"]), ["a1"]);
    world.run(&["ps", "--filter", "colour=red"]).expect(2);
}

#[test]
fn namespaces_keep_names_apart() {
    let world = World::new();
    world.run(&["create", "--name", "x"]).expect(0);
    world.run(&["--namespace", "other", "create", "--name", "x"]).expect(0);
    world.run(&["create", "--name", "x"]).expect(125);
    world.run(&["--namespace", "other", "rm", "-f", "x"]).expect(0);
    assert_eq!(world.run(&["inspect", "x"]).expect(0).json()["namespace"], "default");
}

#[test]
fn waiting_for_a_state_and_for_a_command() {
    let world = World::with_dev();
    let late = world.run(&["wait", "dev", "--timeout", "10ms"]).expect(124);
    assert!(late.stderr.contains("error: "), "{late:?}");
    assert_eq!(world.run(&["wait", "dev", "--state", "running"]).expect(0).text(), "running\n");
    let exec = world.run(&["exec", "-d", "dev", "sh", "-c", "exit 9"]).expect(0).text();
    assert_eq!(world.run(&["wait", "dev", exec.trim()]).expect(9).text(), "9\n");
    let slow = world.run(&["exec", "-d", "dev", "sleep", "60"]).expect(0).text();
    world.run(&["wait", "dev", slow.trim(), "--timeout", "10ms"]).expect(124);
}

#[test]
fn usage_processes_and_events_are_shown() {
    let world = World::with_dev();
    world.run(&["exec", "-d", "dev", "sleep", "60"]).expect(0);
    let stats = world.run(&["stats"]).expect(0).text();
    assert!(stats.contains("MEMORY") && stats.contains("dev"), "{stats}");
    let stats = world.run(&["stats", "--json", "dev"]).expect(0).json();
    assert_eq!((&stats[0]["name"], stats[0]["memoryBytes"].is_number()), (&json!("dev"), true));
    let top = world.run(&["top", "dev"]).expect(0).text();
    assert!(top.contains("sleep 60"), "{top}");
    let processes = world.run(&["top", "--json", "dev"]).expect(0).json()["processes"].clone();
    let is_there = |process: &serde_json::Value| process["command"] == json!(["sleep", "60"]);
    assert!(processes.as_array().unwrap().iter().any(is_there), "{processes}");
    let events = world.run(&["events"]).expect(0).text();
    assert!(events.contains("sandbox_created") && events.contains("dev"), "{events}");
    let first = world.run(&["events", "--json"]).expect(0).text();
    let first: serde_json::Value = serde_json::from_str(first.lines().next().unwrap()).unwrap();
    assert_eq!((&first["number"], &first["kind"]), (&json!(1), &json!("sandbox_created")));
}

#[test]
fn bad_names_and_sizes_are_refused_before_anything_happens() {
    let world = World::new();
    for args in [
        &["create", "--name", ""][..],
        &["create", "--name", "../x"],
        &["create", "--name", "sbx-1"],
        &["create", "--name", "naïve"],
        &["create", "--memory", "-1"],
        &["create", "--memory", "lots"],
        &["create", "--cpus", "NaN"],
        &["create", "--ttl", "soon"],
        &["create", "--env", "=x"],
        &["create", "--image", "../../etc"],
        &["create", "--unknown"],
        &["exec"],
        &["run"],
        &["nonsense"],
        &[],
    ] {
        let refused = world.run(args).expect(2);
        assert!(!refused.stderr.is_empty(), "{args:?}");
    }
    assert!(world.daemon().is_none(), "nothing had to be started for that");
    let tiny = world.run(&["create", "--memory", "1k"]).expect(125);
    assert!(tiny.stderr.contains("memory") && tiny.stderr.contains("hint:"), "{tiny:?}");
    world.run(&["create", "--cwd", "relative"]).expect(125);
    assert_eq!(world.run(&["ps", "-aq"]).expect(0).text(), "");
}

#[test]
fn the_doctor_tries_and_tells() {
    let world = World::new();
    let told = world.run(&["doctor"]).expect(0).text();
    for thing in ["kernel", "user namespaces", "data directory", "daemon", "a sandbox"] {
        assert!(told.contains(thing), "{thing}: {told}");
    }
    let mut names: Vec<_> = world.run(&["--json", "doctor"]).json()["checks"]
        .as_array()
        .unwrap()
        .iter()
        .map(|check| check["name"].as_str().unwrap().to_owned())
        .collect();
    let n_names = names.len();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), n_names, "two checks have one name: {told}");
    let verdict = told.lines().last().unwrap();
    assert!(verdict.starts_with("Ready: sandboxes work here"), "{told}");
    let mut fixes: Vec<_> = told.lines().filter(|line| line.trim_start().starts_with("fix:")).collect();
    let n_fixes = fixes.len();
    fixes.dedup();
    assert_eq!(fixes.len(), n_fixes, "a command is shown once: {told}");
    let explained = world.run(&["doctor", "--explain"]).text();
    assert!(explained.contains("A sandbox here") && explained.contains("step by step"), "{explained}");
    world.run(&["ps"]).expect(0);
    let diagnosis = world.run(&["--json", "doctor"]);
    let json = diagnosis.json();
    assert_eq!(json["ok"], diagnosis.code == Some(0), "{json}");
    let daemon = json["checks"].as_array().unwrap().iter().find(|check| check["name"] == "daemon").unwrap();
    assert!(daemon["detail"].as_str().unwrap().contains("back ends namespace"), "{daemon}");
    let left = std::fs::read_dir(world.home()).unwrap();
    let left: Vec<_> = left.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect();
    assert!(!left.iter().any(|name| name.contains("doctor")), "the trial leaves nothing: {left:?}");
}

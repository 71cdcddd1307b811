//! The command line for people who know Docker: names of commands and flags, and what is said when they differ.

use std::{os::unix::process::CommandExt as _, process::Command};

use serde_json::{Value, json};

use crate::{
    images::import,
    support::{Finished, World, finish, until},
};

const NOBODY: u32 = 65_534;

/// Runs commands as a user without rights, unless the tests have none already.
pub(crate) fn as_nobody(world: &World, args: &[&str]) -> Finished {
    finish(command_of_nobody(world, args).spawn().unwrap())
}

pub(crate) fn command_of_nobody(world: &World, args: &[&str]) -> Command {
    let mut command = world.command(args);
    if rustix::process::geteuid().is_root() {
        command.uid(NOBODY).gid(NOBODY);
    }
    command
}

pub(crate) fn ordinary_world() -> World {
    let world = World::bare();
    if rustix::process::geteuid().is_root() {
        world.give_to(NOBODY);
    }
    world
}

#[test]
fn an_image_in_the_place_of_the_program_is_recognised() {
    let world = World::new();
    for (words, line) in [
        (vec!["alpine", "echo", "it's"], r"warren run --rm -e A=1 --image alpine echo 'it'\''s'"),
        (vec!["python:3.12-slim", "python", "-V"], "--image python:3.12-slim python -V"),
        (vec!["ghcr.io/team/app"], "--image ghcr.io/team/app`"),
    ] {
        let ran = world.run(&[&["run", "--rm", "-e", "A=1", "--"], &words[..]].concat()).expect(127);
        assert!(ran.stderr.contains("looks like an image") && ran.stderr.contains(line), "{ran:?}");
    }
    // An image that is here needs no tag to be recognised, and a program that is missing is just missing.
    import(&world, "team-image");
    assert!(world.run(&["run", "team-image", "sh"]).expect(127).stderr.contains("--image team-image sh"));
    assert!(!world.run(&["run", "nonesuch", "-x"]).expect(127).stderr.contains("image"));
    assert_eq!(world.run(&["ps", "-aq"]).expect(0).text(), "");
}

#[test]
fn lines_for_a_shell_and_switches_with_a_value_are_recognised() {
    let world = World::with_dev();
    let ran = world.run(&["exec", "dev", "ls -l"]).expect(127);
    assert!(ran.stderr.contains("`warren exec dev sh -c 'ls -l'`"), "{ran:?}");
    let ran = world.run(&["run", "cd", "/"]).expect(127);
    assert!(ran.stderr.contains("`warren run sh -c 'cd /'`"), "{ran:?}");
    let bare = world.run(&["run"]).expect(2);
    assert!(
        bare.stderr.contains("<PROGRAM> is missing") && bare.stderr.contains("Usage: warren run"),
        "{bare:?}"
    );
    let swallowed = world.run(&["run", "--init", "true"]).expect(2);
    assert!(swallowed.stderr.contains("--init took true"), "{swallowed:?}");
    // A variable that is not set here is none, as in Docker.
    let unset =
        world.run(&["exec", "-e", "WARREN_NOT_SET", "dev", "sh", "-c", "echo ${WARREN_NOT_SET-none}"]);
    assert_eq!(unset.expect(0).text(), "none\n");
    assert_eq!(world.run(&["run", "--entrypoint", "", "echo", "x"]).expect(0).text(), "x\n");
    let absent = world.run(&["create", "-v", "newvol:/x"]).expect(125);
    assert!(absent.stderr.contains("`warren volume create newvol`"), "{absent:?}");
    // The beginning of an id is enough if only one begins so.
    let id = world.run(&["--json", "inspect", "dev"]).expect(0).json()["id"].as_str().unwrap().to_owned();
    assert_eq!(world.run(&["exec", &id[..10], "echo", "x"]).expect(0).text(), "x\n");
    world.run(&["create"]).expect(0);
    let both = world.run(&["--json", "ps"]).expect(0).json();
    let n = both["sandboxes"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|one| one["id"].as_str().unwrap().starts_with("sbx-"))
        .count();
    assert_eq!(n, 2);
    // Tips reach programs too.
    let failed = world.run(&["--json", "commit", "dev"]).expect(2);
    assert!(failed.stderr.contains("warren snapshot create"), "{failed:?}");
    assert!(world.run(&["network", "ls"]).expect(125).stderr.contains("no networks to make"));
}

#[test]
fn a_failed_command_is_told_what_it_lacked() {
    let world = World::with_dev();
    let fails = |words: &str| format!("echo \"{words}\" >&2; exit 6");
    let script = fails("curl: (6) Could not resolve host: api.example");
    let ran = world.run(&["exec", "dev", "sh", "-c", &script]).expect(6);
    assert!(ran.stderr.contains("`warren network dev --allow HOST`"), "{ran:?}");
    let ran = world.run(&["run", "sh", "-c", &script]).expect(6);
    assert!(ran.stderr.contains("--allow HOST"), "{ran:?}");
    let ran = world.run(&["--json", "exec", "dev", "sh", "-c", &script]).expect(6).json();
    assert!(ran["warnings"][0].as_str().unwrap().contains("no network but package indexes"), "{ran}");
    let ran = world.run(&["exec", "dev", "sh", "-c", &fails("ModuleNotFoundError: No module named 'yaml'")]);
    assert!(ran.stderr.contains("`warren package install dev pip pyyaml`"), "{ran:?}");
    assert_eq!(world.run(&["exec", "dev", "sh", "-c", "exit 6"]).expect(6).stderr, "");

    world.run(&["create", "--name", "net", "--allow", "open.example"]).expect(0);
    let made = world.run(&["inspect", "net"]).expect(0).json();
    if !made["isolation"]["network"].as_str().unwrap().starts_with("edge") {
        println!("not tested: this host has no network policies");
        return;
    }
    let ran = world.run(&["exec", "net", "getent", "hosts", "closed.example"]).expect(2);
    assert!(ran.stderr.contains("`warren network net --allow closed.example`"), "{ran:?}");
    assert!(world.run(&["network", "net", "--log"]).expect(0).text().contains("closed.example"));
}

#[test]
fn flags_and_commands_are_called_as_docker_calls_them() {
    let world = World::new();
    let files = world.files();
    std::fs::write(files.join("word"), "from the host").unwrap();
    let mount = format!("{}:/mnt:ro", files.display());
    let script = "echo $A $(id -u) $(pwd); cat word";
    let flags =
        ["-e", "A=b", "-v", &mount, "--workdir", "/mnt", "--network", "none", "--pids-limit", "64", "--rm"];
    let ran = world.run(&[&["run"], &flags[..], &["--name", "x", "sh", "-c", script]].concat()).expect(0);
    assert_eq!(ran.text(), "b 0 /mnt\nfrom the host");
    let refused = world.run(&["run", "--network", "host", "true"]).expect(2);
    assert!(refused.stderr.contains("--allow host:PORT"), "{refused:?}");

    world.run(&["create", "--name", "web"]).expect(0);
    assert!(world.run(&["ls"]).expect(0).text().contains("web"));
    assert_eq!(world.run(&["rename", "web", "site"]).expect(0).text(), "site\n");
    world.run(&["inspect", "web"]).expect(125);
    world.run(&["create", "--name", "other"]).expect(0);
    let taken = world.run(&["rename", "other", "site"]).expect(125);
    assert!(taken.stderr.contains("site"), "{taken:?}");
    world
        .run(&[
            "exec",
            "-d",
            "site",
            "sh",
            "-c",
            "trap 'echo hung up; exit 3' HUP; while :; do sleep 0.1; done",
        ])
        .expect(0);
    let exec = world.run(&["--json", "inspect", "site"]).expect(0).json()["execs"][0]["id"]
        .as_str()
        .unwrap()
        .to_owned();
    until("it handles the signal", || {
        world.run(&["kill", "-s", "HUP", "site"]);
        world.run(&["wait", "site", &exec, "--timeout", "1s"]).code == Some(3)
    });
    assert_eq!(world.run(&["kill", "site"]).expect(0).text(), "site\n");
    assert_eq!(world.run(&["inspect", "site"]).expect(0).json()["state"], "stopped");
    assert!(world.run(&["kill", "-s", "NOTHING", "site"]).expect(2).stderr.contains("not a signal"));

    import(&world, "team/app:1");
    assert!(world.run(&["images"]).expect(0).text().contains("team/app:1"));
    world.run(&["tag", "team/app:1", "team/app:2"]).expect(0);
    world.run(&["history", "team/app:2"]).expect(0);
    assert!(world.run(&["rmi", "team/app:2"]).expect(0).text().contains("untagged"));
}

#[test]
fn logs_and_wait_are_about_what_the_sandbox_was_made_to_run() {
    let world = World::new();
    world.run(&["run", "--name", "web", "-d", "sh", "-c", "echo serving; sleep 300"]).expect(0);
    world.run(&["exec", "web", "echo", "other"]).expect(0);
    let logs = || world.run(&["logs", "--tail", "all", "web"]).expect(0).text();
    until("it has printed", || !logs().is_empty());
    assert_eq!(logs(), "serving\n");
    assert_eq!(world.run(&["logs", "--since", "1h", "web"]).expect(0).text(), "serving\n");
    assert_eq!(world.run(&["logs", "--until", "1h", "web"]).expect(0).text(), "");
    // It does not begin again, which is said.
    let restarted = world.run(&["restart", "--time", "0", "web"]).expect(0);
    assert!(restarted.stderr.contains("does not run again"), "{restarted:?}");
    let waited = world.run(&["wait", "--timeout", "10ms", "web"]).expect(124);
    assert!(waited.stderr.contains("running"), "{waited:?}");

    world.run(&["run", "--name", "four", "-d", "sh", "-c", "exit 4"]).expect(0);
    assert_eq!(world.run(&["wait", "four"]).expect(4).text(), "4\n");
    world.run(&["create", "--name", "init", "--init", "sh -c 'echo begun; sleep 300'"]).expect(0);
    world.run(&["exec", "init", "echo", "other"]).expect(0);
    until("the init has printed", || world.run(&["logs", "init"]).expect(0).text() == "begun\n");
}

#[test]
fn a_detached_sandbox_is_removed_once_its_command_has_ended() {
    let world = World::new();
    world.run(&["run", "--name", "gone", "-d", "--rm", "true"]).expect(0);
    until("it is removed", || world.run(&["ps", "-aq"]).expect(0).text().is_empty());
}

#[test]
fn variables_come_from_files_and_flags_win() {
    let world = World::with_dev();
    let file = world.files().join("env");
    std::fs::write(&file, "A=1\nB=\"two words\"\n").unwrap();
    let file = file.to_str().unwrap();
    let script = "echo $A $B";
    let ran = world.run(&["run", "--env-file", file, "-e", "A=3", "sh", "-c", script]).expect(0);
    assert_eq!(ran.text(), "3 two words\n");
    let ran = world.run(&["exec", "--env-file", file, "dev", "sh", "-c", script]).expect(0);
    assert_eq!(ran.text(), "1 two words\n");
    assert!(
        world.run(&["run", "--env-file", "/no/such", "true"]).expect(2).stderr.contains("cannot read it")
    );
}

#[test]
fn docker_filters_and_counts_are_understood() {
    let world = World::with_dev();
    world.run(&["create", "--name", "off"]).expect(0);
    world.run(&["stop", "off"]).expect(0);
    let names = |args: &[&str]| world.run(&[&["ps", "--json"], args].concat()).expect(0).json();
    assert_eq!(names(&["--filter", "status=exited"])["sandboxes"][0]["name"], "off");
    assert_eq!(names(&["--latest"])["sandboxes"].as_array().unwrap().len(), 1);
    assert_eq!(names(&["-n", "2"])["sandboxes"].as_array().unwrap().len(), 2);
    world.run(&["stats", "--no-stream", "dev"]).expect(0);
    import(&world, "team/app:1");
    assert!(world.run(&["images", "team/app"]).expect(0).text().contains("team/app:1"));
    assert!(!world.run(&["images", "team/ap"]).expect(0).text().contains("team/app:1"));
}

#[test]
fn names_that_were_nearly_typed_are_offered() {
    let world = World::new();
    world.run(&["volume", "create", "data"]).expect(0);
    import(&world, "team/app:1");
    for (words, meant) in [
        (["volume", "rm", "dta"], "Did you mean data?"),
        (["image", "inspect", "team/app"], "Did you mean team/app:1?"),
        (["image", "rm", "host"], "no stored image"),
    ] {
        let failed = world.run(&words).expect(125);
        assert!(failed.stderr.contains(meant), "{failed:?}");
    }
}

#[test]
fn a_command_that_runs_is_attached_to() {
    let world = World::with_dev();
    let script = "echo before; read word; echo got $word; exit 7";
    // Nobody feeds its stdin yet.
    world.run(&["exec", "-d", "-i", "dev", "sh", "-c", script]).expect(0);
    until("it runs", || world.running_execs() == 1);
    let exec = world.run(&["--json", "inspect", "dev"]).expect(0).json()["execs"][0]["id"]
        .as_str()
        .unwrap()
        .to_owned();
    until("it has printed", || world.run(&["logs", "dev", &exec]).text().contains("before"));
    let attached = world.run_with_input(&["attach", "--replay", "dev"], b"hello\n").expect(7);
    assert_eq!(attached.text(), "before\ngot hello\n");
    let nothing = world.run(&["attach", "dev"]).expect(125);
    assert!(nothing.stderr.contains("no command runs") && nothing.stderr.contains("hint:"), "{nothing:?}");
}

#[test]
fn limits_change_while_a_sandbox_runs() {
    let world = World::new();
    world.run(&["create", "--name", "dev", "--memory", "64m", "--pids", "64"]).expect(0);
    world.run(&["update", "--memory", "128m", "--pids", "16", "dev"]).expect(0);
    let changed = world.run(&["inspect", "dev"]).expect(0).json();
    assert_eq!((&changed["limits"]["memory"], &changed["limits"]["pids"]), (&json!(134_217_728), &json!(16)));
    let held = changed["isolation"]["limits"]
        .as_array()
        .unwrap()
        .iter()
        .find(|one| one["limit"] == "pids")
        .unwrap()
        .clone();
    assert_eq!(held["value"], 16, "{held}");
    if held["enforcement"] != "notHeld" {
        let script =
            "for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do sleep 9 & done; echo all";
        let ran = world.run(&["exec", "dev", "sh", "-c", script]);
        assert!(!ran.text().contains("all") || ran.stderr.contains("fork"), "{ran:?}");
    }
    // They stay over a restart.
    world.run(&["restart", "dev"]).expect(0);
    assert_eq!(world.run(&["inspect", "dev"]).expect(0).json()["limits"]["pids"], 16);
    world.run(&["update", "dev"]).expect(2);
    world.run(&["update", "--memory", "1k", "dev"]).expect(125);
    assert_eq!(world.run(&["inspect", "dev"]).expect(0).json()["limits"]["memory"], 134_217_728);
}

#[test]
fn a_slip_of_the_finger_is_noticed() {
    let world = World::new();
    world.run(&["create", "--name", "lab"]).expect(0);
    for command in [vec!["exec", "lba", "true"], vec!["stop", "lba"], vec!["inspect", "LAB"]] {
        let missed = world.run(&command).expect(125);
        assert!(missed.stderr.contains("Did you mean lab?"), "{command:?}: {missed:?}");
    }
    let missed = world.run(&["stop", "production"]).expect(125);
    assert!(!missed.stderr.contains("mean"), "{missed:?}");
}

#[test]
fn help_has_groups_and_defaults() {
    let world = World::new();
    let help = world.run(&["--help"]).expect(0).text();
    for heading in ["Run things:", "Sandboxes:", "Images:", "Storage:", "Daemon and host:", "Options:"] {
        assert!(help.contains(heading), "{heading}: {help}");
    }
    assert!(help.contains("\n  ps ") && help.contains("(also ls"), "{help}");
    let help = world.run(&["run", "--help"]).expect(0).text();
    for default in ["[default: 1g]", "[default: 1]", "[default: 512]"] {
        assert!(help.contains(default), "{default}: {help}");
    }
    assert!(world.daemon().is_none());
}

#[test]
fn limits_that_nothing_holds_are_said_in_one_line() {
    let world = ordinary_world();
    let made = as_nobody(&world, &["--json", "create", "--name", "dev"]).expect(0).json();
    for warning in made["warnings"].as_array().unwrap() {
        let warning = warning.as_str().unwrap();
        assert!(!warning.contains("..") && warning.ends_with('.'), "{warning:?}");
    }
    if may_limit_processors(&made) {
        println!("not tested: this user may limit processors");
        return;
    }
    let limits = ["--cpus", "0.5", "--swap", "64m"];
    let directory = world.project("half", "sandboxes: { web: { image: host, cpus: 1, memory: 256 } }\n");
    for make in [
        [&["create", "--name", "half"], &limits[..]].concat(),
        [&["run"], &limits[..], &["true"]].concat(),
        [&["code", "bash", "-c", ":"], &limits[..]].concat(),
        vec!["update", "--cpus", "0.25", "half"],
        vec!["fork", "half", "-n", "2"],
    ] {
        if make[0] == "fork" {
            // Where nothing may hold a limit, nothing may hold a sandbox still either.
            as_nobody(&world, &["stop", "half"]).expect(0);
        }
        let made = as_nobody(&world, &make).expect(0);
        let said: Vec<_> = made.stderr.lines().filter(|line| line.contains("not held here as")).collect();
        assert_eq!(said.len(), 1, "{make:?}: {made:?}");
        assert!(said[0].contains("cpus (") && !said[0].contains(".."), "{said:?}");
        assert!(said[0].len() < 200 && !said[0].contains("1 whole processors"), "{said:?}");
        let n_lines = made.stderr.lines().filter(|line| line.starts_with("warning: ")).count();
        assert!(n_lines <= 3, "{make:?}: {made:?}");
        // And no limit is said twice.
        let n_swap = made.stderr.lines().filter(|line| line.contains("swap")).count();
        assert_eq!(n_swap, usize::from(make[0] != "update"), "{make:?}: {made:?}");
    }
    as_nobody(&world, &["snapshot", "create", "half", "--name", "kept"]).expect(0);
    let restored = as_nobody(&world, &["snapshot", "restore", "kept", "--name", "again"]).expect(0);
    assert!(
        restored.stderr.contains("not held here as") && restored.stderr.contains("swap ("),
        "{restored:?}"
    );
    let up = finish(command_of_nobody(&world, &["up"]).current_dir(&directory).spawn().unwrap()).expect(0);
    assert!(up.stderr.contains("not held here as") && up.stderr.contains("memory ("), "{up:?}");
    // Nobody asked for a limit, and no person looks.
    assert_eq!(as_nobody(&world, &["run", "true"]).expect(0).stderr, "");
}

/// Whether a cgroup holds the processors of a sandbox that was made by this daemon.
pub(crate) fn may_limit_processors(made: &Value) -> bool {
    let is_held =
        |one: &Value| one["limit"] == "cpus" && one["enforcement"].as_str().unwrap().starts_with("cgroup");
    made["isolation"]["limits"].as_array().unwrap().iter().any(is_held)
}

#[test]
fn a_user_that_a_sandbox_does_not_have_is_explained() {
    let world = ordinary_world();
    let ran = as_nobody(&world, &["run", "-u", "1234", "id", "-u"]);
    if ran.code == Some(0) {
        assert_eq!(ran.text(), "1234\n");
        println!("not tested: this user has subordinate ids");
        return;
    }
    assert!(ran.stderr.contains("/etc/subuid") && !ran.stderr.contains("os error"), "{ran:?}");
}

#[test]
fn more_processors_than_there_are_limit_nothing() {
    let world = World::new();
    let made = world.run(&["create", "--name", "dev", "--cpus", "4000"]).expect(0);
    assert!(made.stderr.contains("4000") && made.stderr.contains("limits nothing"), "{made:?}");
    // The same is said of a change, and no longer after the next one.
    let changed = world.run(&["update", "--cpus", "3000", "dev"]).expect(0);
    assert!(changed.stderr.contains("3000") && changed.stderr.contains("limits nothing"), "{changed:?}");
    assert_eq!(world.run(&["update", "--cpus", "0.5", "dev"]).expect(0).stderr, "");
    assert_eq!(world.run(&["inspect", "dev"]).expect(0).json()["warnings"], json!([]));
    let made = world.run(&["create", "-m", "60000g"]).expect(0);
    assert!(made.stderr.contains("of this host, so it limits nothing"), "{made:?}");
}

#[test]
fn the_processes_of_a_context_do_not_show_our_programs() {
    let world = World::with_dev();
    // A word of each program, which its sources have.
    for (language, code, shown, hidden) in [
        ("python", "x = 1", "python3 -c", ["def boot", "the channel"]),
        ("javascript", "const x = 1", "node", ["require(", "use strict"]),
        ("bash", "x=1", "bash", ["while ", "printf "]),
    ] {
        world.run(&["code", language, "-s", "dev", "-c", code]).expect(0);
        let top = world.run(&["top", "dev"]).expect(0).text();
        assert!(top.contains(shown), "{language}: {top}");
        assert!(!hidden.iter().any(|word| top.contains(word)), "{language}: {top}");
    }
    // Nor does a program see in its environment how it was started.
    let seen =
        world.run(&["code", "python", "-s", "dev", "-c", "import os; 'WARREN_BOOT' in os.environ"]).expect(0);
    assert!(seen.text().contains("False"), "{seen:?}");
}

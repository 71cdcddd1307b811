//! Completion: what is offered for a half-typed line, and real shells that ask for it.

use std::{
    path::Path,
    process::{Child, Command},
};

use crate::{
    images::import,
    support::{World, finish},
    terminal::Pty,
};

/// A shell at a terminal, with our program in its path and a prompt that nothing else prints.
fn shell(world: &World, pty: &Pty, program: &str, args: &[&str]) -> Child {
    let warren = world.command(&[]);
    let bin = Path::new(warren.get_program()).parent().unwrap();
    let mut command = Command::new("setsid");
    command.args(["--ctty", "--wait", program]).args(args).env_clear();
    command.envs(warren.get_envs().filter_map(|(name, value)| Some((name, value?))));
    command.env("PATH", format!("{}:/usr/bin:/bin", bin.display())).current_dir(world.files());
    pty.spawn(&mut command)
}

/// Lets a real shell complete a sandbox's name, a path inside and a name that is a trap. `load`: what makes it know our
/// script.
fn completes(program: &str, args: &[&str], load: &str) {
    if !Path::new(program).exists() {
        return println!("not tested: {program} is not installed");
    }
    let world = World::new();
    world.run(&["create", "--name", "web-of-lies"]).expect(0);
    let script = "mkdir -p /srv/harbour && echo reached >/srv/harbour/lighthouse && mkdir /srv/t && cd /srv/t && touch '$(touch trapped)'";
    world.run(&["exec", "web-of-lies", "sh", "-c", script]).expect(0);
    let mut pty = Pty::new(24, 200);
    let child = shell(&world, &pty, program, args);
    pty.type_in(load);
    pty.type_in("\recho loa''ded\r");
    pty.expect_first("loaded");
    // The rest of the name. A space comes after it, which some shells print in bold.
    pty.type_in("warren exec web-o\t");
    pty.expect_first("web-of-lies");
    pty.type_in("echo fi''ne\r");
    pty.expect_first("fine");
    // A name, a directory and a file inside, step by step.
    pty.type_in("warren cp web-o\t");
    pty.expect_first("web-of-lies:");
    pty.type_in("/srv/har\t");
    pty.expect_first("bour/");
    pty.type_in("li\t");
    pty.expect_first("ghthouse");
    pty.type_in("- | tar -xO\r");
    pty.expect_first("reached");
    // Completion inserts a name, and never a command of this shell.
    pty.type_in("warren cp web-of-lies:/srv/t/\t");
    pty.expect_first("trapped");
    pty.type_in(" . && echo co''pied\r");
    pty.expect_first("copied");
    pty.type_in("exit\r");
    finish(child).expect(0);
    assert!(!world.files().join("trapped").exists(), "{program} ran a command of the sandbox");
    assert!(world.files().join("$(touch trapped)").exists());
}

#[test]
fn bash_completes() {
    completes("/usr/bin/bash", &["--norc", "--noprofile"], "source <(warren completions bash)");
}

#[test]
fn zsh_completes() {
    // `-f` reads no files of the user or the machine; the completion system is loaded as those files would.
    completes(
        "/usr/bin/zsh",
        &["-f"],
        "autoload -Uz compinit && compinit -u -D && source <(warren completions zsh)",
    );
}

#[test]
fn fish_completes() {
    completes("/usr/bin/fish", &["--no-config"], "warren completions fish | source");
}

#[test]
fn shells_complete_names_and_paths_inside() {
    let world = World::new();
    let offered = |words: &[&str]| -> Vec<String> {
        let words = [&["complete", "--", "warren"], words].concat();
        let is_name =
            |line: &&str| words.last().is_some_and(|typed| typed.starts_with('-')) || !line.starts_with('-');
        world.run(&words).expect(0).text().lines().filter(is_name).map(str::to_owned).collect()
    };
    // Nothing is started for that.
    assert_eq!(offered(&["stop", ""]), Vec::<String>::new());
    assert!(world.daemon().is_none());
    world.run(&["create", "--name", "dev"]).expect(0);
    world.run(&["create", "--name", "web"]).expect(0);
    world.run(&["volume", "create", "data"]).expect(0);
    world.run(&["snapshot", "create", "dev", "--name", "ready"]).expect(0);
    import(&world, "team/app:1");
    world.run(&["exec", "dev", "sh", "-c", "mkdir -p /srv/site && touch /srv/side"]).expect(0);
    assert_eq!(offered(&["exec", "d"]), ["dev"]);
    assert_eq!(offered(&["start", ""]), Vec::<String>::new());
    assert_eq!(offered(&["link", "dev:/srv/si"]), ["dev:/srv/side", "dev:/srv/site/"]);
    world.run(&["create", "--name", "idle"]).expect(0);
    world.run(&["stop", "idle"]).expect(0);
    assert_eq!(offered(&["start", ""]), ["idle"]);
    assert!(!offered(&["exec", ""]).contains(&"idle".to_owned()));
    world.run(&["rm", "idle"]).expect(0);
    let all = world.run(&["complete", "--", "warren", "exec", ""]).expect(0).text();
    assert!(!all.lines().any(|line| line.starts_with('-')), "flags come with a dash: {all}");
    assert_eq!(offered(&["stop", "dev", "w"]), ["web"]);
    assert_eq!(offered(&["volume", "rm", ""]), ["data"]);
    assert_eq!(offered(&["run", "-v", "da"]), ["data:"]);
    for verb in ["restore", "rm", "inspect", "verify", "save"] {
        assert_eq!(offered(&["snapshot", verb, "re"]), ["ready"], "{verb}");
    }
    assert_eq!(offered(&["run", "--image", "te"]), ["team/app:1"]);
    assert!(offered(&["run", "--image", "h"]).contains(&"host".to_owned()));
    assert_eq!(offered(&["rmi", ""]), ["team/app:1"]);
    let exec = offered(&["logs", "dev", ""]);
    assert!(exec.len() == 1 && exec[0].starts_with("exc-"), "{exec:?}");
    assert_eq!(offered(&["kill", "-s", "US"]), ["USR1", "USR2"]);
    assert_eq!(offered(&["run", "--network", "pub"]), ["public", "public+private"]);
    world.run(&["--namespace", "other", "create", "--name", "elsewhere"]).expect(0);
    assert_eq!(offered(&["--namespace", "other", "exec", ""]), ["elsewhere"]);
    assert_eq!(offered(&["cp", "we"]), ["web:"]);
    assert_eq!(offered(&["cp", "dev:/srv/si"]), ["dev:/srv/side", "dev:/srv/site/"]);
    // Files of volumes are found in volumes, not in sandboxes.
    world.run_with_input(&["volume", "cp", "-", "data:/notes.txt"], b"kept").expect(0);
    assert_eq!(offered(&["volume", "cp", "da"]), ["data:"]);
    assert_eq!(offered(&["volume", "cp", "web:"]), Vec::<String>::new());
    for verb in ["cp", "cat", "files", "unlink"] {
        assert_eq!(offered(&["volume", verb, "data:"]), ["data:/notes.txt"], "{verb}");
        assert_eq!(offered(&["volume", verb, "data:/no"]), ["data:/notes.txt"], "{verb}");
    }
    for verb in ["cat", "files", "unlink"] {
        assert_eq!(offered(&["volume", verb, ""]), ["data:"], "{verb}");
    }
    assert!(offered(&["re"]).contains(&"rename".to_owned()));
    assert!(offered(&["ps", "--"]).contains(&"--all".to_owned()));
    for shell in ["bash", "zsh", "fish"] {
        assert!(
            world.run(&["completions", shell]).expect(0).text().contains("warren complete --"),
            "{shell}"
        );
    }
}

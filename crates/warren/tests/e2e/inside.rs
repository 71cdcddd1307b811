//! The content of a new sandbox, as the command line asks for it.

use std::fs;

use crate::support::World;

#[test]
fn files_programs_and_a_shell_are_there_from_the_start() {
    let world = World::new();
    let host = tempfile::tempdir().unwrap();
    fs::create_dir(host.path().join("app")).unwrap();
    fs::write(host.path().join("app/main"), "the app").unwrap();
    fs::write(host.path().join("build"), "#!/bin/sh\necho built\n").unwrap();
    let (tree, script) =
        (format!("{}/app:/srv/app", host.path().display()), format!("build={}/build", host.path().display()));
    let patch = r#"{"kind":"text","path":"/etc/motd","content":"hello"}"#;
    let made = world.run(&[
        "create",
        "--name",
        "dev",
        "--copy",
        &tree,
        "--script",
        &script,
        "--patch",
        patch,
        "--shell",
        "bash",
        "--rlimit",
        "nofile=256:512",
        "--init",
        "sleep 1000",
        "--entrypoint",
        "cat",
    ]);
    made.expect(0);
    let said = |args: &[&str]| world.run(&[&["exec", "dev"], args].concat()).expect(0).text();
    assert_eq!(said(&["cat", "/srv/app/main", "/etc/motd"]), "the apphello");
    assert_eq!(said(&["build"]), "built\n");
    let inspected = world.run(&["inspect", "dev"]).expect(0).json();
    assert_eq!((&inspected["shell"], &inspected["entrypoint"][0]), (&"bash".into(), &"cat".into()));
    assert_eq!(
        (&inspected["rlimits"][0]["soft"], &inspected["rlimits"][0]["hard"]),
        (&256.into(), &512.into())
    );
    assert_eq!(inspected["execs"][0]["command"][0], "/bin/sh");
    // Without a program the sandbox's shell is meant.
    world.run(&["exec", "dev"]).expect(0);
    let execs = world.run(&["inspect", "dev"]).expect(0).json()["execs"].clone();
    assert_eq!(execs.as_array().unwrap().last().unwrap()["command"][0], "bash");
}

#[test]
fn what_cannot_be_put_inside_makes_no_sandbox() {
    let world = World::new();
    let patch = |json: &str| world.run(&["create", "--name", "dev", "--patch", json]);
    let refused = patch(r#"{"kind":"text","path":"/etc","content":"a directory"}"#).expect(125);
    assert!(refused.stderr.contains("patches[0]"), "{refused:?}");
    patch("not json").expect(2);
    for args in [["--copy", "/no/such:/x"], ["--init", "/no/such"], ["--script", "x=/no/such"]] {
        let refused = world.run(&[&["create", "--name", "dev"][..], &args].concat()).expect(125);
        assert!(refused.stderr.contains("/no/such") && refused.stderr.contains("hint: "), "{refused:?}");
    }
    for args in
        [["--volume", "data"], ["--mount", "type=nfs,dst=/x"], ["--rlimit", "x=1"], ["--tmpfs", "/x:big"]]
    {
        world.run(&[&["create", "--name", "dev"][..], &args].concat()).expect(2);
    }
    assert_eq!(world.run(&["ps", "-aq"]).expect(0).text(), "");
}

#[test]
fn a_run_without_a_program_takes_the_entry_point() {
    let world = World::new();
    assert_eq!(world.run(&["run", "--entrypoint", "pwd"]).expect(0).text(), "/root\n");
    assert_eq!(world.run(&["run", "--entrypoint", "echo", "a", "b"]).expect(0).text(), "a b\n");
    let refused = world.run(&["run"]).expect(2);
    assert!(refused.stderr.contains("<PROGRAM> is missing"), "{refused:?}");
    assert_eq!(world.run(&["ps", "-aq"]).expect(0).text(), "");
}

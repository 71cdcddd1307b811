//! `warren secret`: the value comes from anywhere but an argument, and is printed nowhere.

use std::{fs, os::unix::fs::PermissionsExt};

use crate::{
    support::{World, finish},
    terminal::Pty,
};

const VALUE: &str = "ghp_the-value-0123456789";

fn set<'a>(name: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    let mut args = vec!["secret", "set", name, "--host", "api.example.org"];
    args.extend(more);
    args
}

#[test]
fn a_value_comes_from_stdin_a_file_a_variable_or_a_command() {
    let world = World::new();
    let file = world.home().join("value");
    fs::create_dir_all(world.home()).unwrap();
    fs::write(&file, format!("{VALUE}\n")).unwrap();
    let printed = format!("cat {}", file.display());
    world.run_with_input(&set("A", &[]), format!("{VALUE}\n").as_bytes()).expect(0);
    world.run(&set("B", &["--from-file", file.to_str().unwrap()])).expect(0);
    world.run(&set("C", &["--from-command", &printed])).expect(0);
    let named = set("D", &["--from-env", "VALUE_OF_TEST"]);
    finish(world.command(&named).env("VALUE_OF_TEST", VALUE).spawn().unwrap()).expect(0);
    fs::remove_file(&file).unwrap();
    let n_kept_in = |name: &str| {
        let file = fs::read(world.home().join(name)).unwrap();
        file.windows(VALUE.len()).filter(|part| *part == VALUE.as_bytes()).count()
    };
    let n_kept = (n_kept_in("warren.db"), n_kept_in("warren.db-wal"));
    assert_eq!(n_kept, (4, 0), "all four are there, without a line break, and none stays in the log");
    let mode = |name: &str| world.home().join(name).metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!((mode("warren.db"), mode("warren.db-wal")), (0o600, 0o600));

    let listed = world.run(&["secret", "ls"]).expect(0);
    let shown = world.run(&["secret", "show", "A"]).expect(0);
    assert!(shown.text().contains("hosts: api.example.org\nplaces: authorization\n"), "{shown:?}");
    let json = world.run(&["secret", "ls", "--json"]).expect(0);
    assert_eq!(json.json()["secrets"].as_array().unwrap().len(), 4);
    let calls = world.run(&["audit", "--json"]).expect(0);
    for printed in [&listed, &shown, &json, &calls] {
        assert!(!printed.text().contains(VALUE) && !printed.stderr.contains(VALUE), "{printed:?}");
    }
    assert!(!world.log().contains(VALUE));
    world.run(&["secret", "rm", "A", "B"]).expect(0);
    assert_eq!(
        world.run(&["secret", "ls", "--json"]).expect(0).json()["secrets"].as_array().unwrap().len(),
        2
    );
    world.run(&["secret", "rm", "A"]).expect(125);
}

#[test]
fn what_cannot_be_a_secret_is_refused() {
    let world = World::new();
    for more in [
        &["--from-env", "SURELY_NOT_SET_HERE"][..],
        &["--from-file", "/nowhere/at/all"],
        &["--from-command", "echo half; exit 3"],
        &["--from-command", "true"],
        &["--header", "host", "--from-command", "echo x"],
    ] {
        world.run(&set("A", more)).expect(125);
    }
    world.run_with_input(&set("A", &[]), b"two\nlines\n").expect(125);
    world.run(&set("A-B", &["--from-command", "echo x"])).expect(2);
    world.run(&set("A", &["--from-command", "echo x", "--from-env", "HOME"])).expect(2);
    world.run(&["secret", "set", "A", VALUE, "--host", "api.example.org"]).expect(2);
    assert!(
        world.run(&["secret", "ls", "--json"]).expect(0).json()["secrets"].as_array().unwrap().is_empty()
    );
    let refused = world.run(&["create", "--secret", "NONE", "--allow", "api.example.org"]).expect(125);
    assert!(refused.stderr.contains("warren secret set NONE --host HOST"), "{refused:?}");
    world.run_with_input(&set("A", &[]), VALUE.as_bytes()).expect(0);
    let refused = world.run(&["create", "--secret", "A"]).expect(125);
    assert!(refused.stderr.contains("Add --allow api.example.org."), "{refused:?}");
}

#[test]
fn a_terminal_asks_and_does_not_show() {
    let world = World::new();
    let mut pty = Pty::new(24, 80);
    let child = pty.start(&world, &set("TYPED", &[]));
    pty.expect("not shown");
    pty.type_in(&format!("{VALUE}\r"));
    // Its name is the answer; the value would have come before it.
    let shown = pty.expect_and_see("TYPED");
    finish(child).expect(0);
    assert!(!shown.contains(VALUE), "{shown:?}");
}

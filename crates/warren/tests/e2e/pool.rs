//! Places that wait for sandboxes which nobody has asked for yet.

use std::{
    collections::BTreeSet,
    fs,
    path::Path,
    process::{Child, Stdio},
};

use rustix::process::Signal;

use crate::support::{PATIENCE, World, until};

/// Places wait from the second create on.
const CONFIG: &str = "[pool]\nsize = 2\nfrom_rate = 2\n";

/// Arguments for a daemon with a pool.
pub(crate) fn config(world: &World) -> String {
    let file = world.files().join("pool.toml");
    fs::write(&file, CONFIG).unwrap();
    file.to_str().unwrap().to_owned()
}

fn serve(world: &World) -> Child {
    let mut command = world.command(&["serve", "--listen", "none", "--config", &config(world)]);
    let daemon = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    until("the daemon is ready", || world.socket().exists());
    daemon
}

fn names(directory: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
}

/// The places that wait, as complete as they will be.
pub(crate) fn waiting(world: &World) -> BTreeSet<String> {
    let has_guest = |id: &String| {
        fs::metadata(world.home().join("run").join(id).join("pid")).is_ok_and(|pid| pid.len() > 0)
    };
    names(&world.home().join("waiting")).into_iter().filter(has_guest).collect()
}

/// The directories of live places.
fn alive(world: &World) -> BTreeSet<String> {
    names(&world.home().join("run")).into_iter().filter(|name| name.starts_with("sbx-")).collect()
}

#[test]
fn sandboxes_that_are_made_often_take_places_that_wait() {
    let world = World::new();
    let mut daemon = serve(&world);
    for name in ["first", "second"] {
        world.run(&["create", "--name", name]).expect(0);
    }
    until("two places wait", || waiting(&world).len() == 2);
    let before = waiting(&world);
    let made = world.run(&["create", "--name", "asked", "--json"]).expect(0).json();
    assert!(before.contains(made["id"].as_str().unwrap()), "{made} of {before:?}");
    let told =
        "hostname; cat /etc/hostname; grep -c 'localhost asked$' /etc/hosts; id -u; touch /root/x; ls /root";
    assert_eq!(world.run(&["exec", "asked", "sh", "-c", told]).expect(0).text(), "asked\nasked\n1\n0\nx\n");
    assert_eq!(world.run(&["exec", "first", "sh", "-c", "ls /root"]).expect(0).text(), "");

    // Killed, it leaves places that nobody knows. The next daemon keeps what has a record, and nothing else.
    until("two places wait again", || waiting(&world).len() == 2);
    daemon.kill().unwrap();
    daemon.wait().unwrap();
    let left = waiting(&world);
    assert!(left.is_subset(&alive(&world)) && alive(&world).len() == 5);
    let listed = world.run(&["ps", "--json"]).expect(0).json();
    assert_eq!(listed["sandboxes"].as_array().unwrap().len(), 3);
    until("what waited is gone", || alive(&world).len() == 3 && waiting(&world).is_empty());
    until("with its files", || names(&world.home().join("waiting")).is_empty());
    assert_eq!(world.run(&["exec", "asked", "ls", "/root"]).expect(0).text(), "x\n");
}

#[test]
fn a_daemon_that_stops_takes_back_what_waits() {
    let world = World::new();
    let mut daemon = serve(&world);
    for name in ["first", "second"] {
        world.run(&["create", "--name", name]).expect(0);
    }
    until("two places wait", || waiting(&world).len() == 2);
    let pid = rustix::process::Pid::from_child(&daemon);
    rustix::process::kill_process(pid, Signal::TERM).unwrap();
    assert!(daemon.wait().unwrap().success(), "within {PATIENCE:?}");
    assert_eq!(alive(&world).len(), 2);
    assert!(names(&world.home().join("waiting")).is_empty());
}

#[test]
fn a_pool_is_configured_in_words_that_fit() {
    let world = World::new();
    let file = world.files().join("pool.toml");
    for (text, what) in [
        ("[pool]\nsize = 300\n", "pool.size is not a number from 0 to 256"),
        ("[pool]\nfrom_rate = 0\n", "pool.from_rate is not a number of at least 1"),
        ("[pool]\nsizes = 3\n", "pool.sizes"),
    ] {
        fs::write(&file, text).unwrap();
        let refused = world.run(&["serve", "--listen", "none", "--config", file.to_str().unwrap()]);
        assert!(refused.code != Some(0) && refused.stderr.contains(what), "{refused:?}");
    }
}

//! Volumes on the command line.

use std::fs;

use crate::support::World;

#[test]
fn a_volume_is_made_filled_mounted_and_removed() {
    let world = World::new();
    let host = tempfile::tempdir().unwrap();
    let (file, back) = (host.path().join("note"), host.path().join("back"));
    fs::write(&file, "hello").unwrap();
    let made = world.run(&["volume", "create", "data", "--label", "team=red"]).expect(0);
    assert_eq!(made.text(), "data\n");
    world.run(&["volume", "cp", file.to_str().unwrap(), "data:/deep/"]).expect(0);
    assert_eq!(world.run(&["volume", "cat", "data:/deep/note"]).expect(0).text(), "hello");
    world.run(&["volume", "cp", "data:/deep/note", back.to_str().unwrap()]).expect(0);
    assert_eq!(fs::read_to_string(&back).unwrap(), "hello");
    assert!(world.run(&["volume", "files", "-r", "data"]).expect(0).text().contains("/deep/note"));

    world.run(&["create", "--name", "dev", "-v", "data:/data:ro"]).expect(0);
    let inspected = world.run(&["volume", "inspect", "data"]).expect(0).json();
    assert_eq!((&inspected["usedBy"][0], &inspected["labels"]["team"]), (&"dev".into(), &"red".into()));
    let refused = world.run(&["volume", "rm", "data"]).expect(125);
    assert!(refused.stderr.contains("dev"), "{refused:?}");
    world.run(&["volume", "create", "spare"]).expect(0);
    let asked = world.run(&["volume", "prune"]).expect(125);
    assert!(asked.stderr.contains("spare") && !asked.stderr.contains("data"), "{asked:?}");
    assert_eq!(world.run(&["volume", "prune", "-f"]).expect(0).text(), "spare\n");
    world.run(&["rm", "-f", "dev"]).expect(0);
    world.run(&["volume", "unlink", "data:/deep"]).expect(0);
    world.run(&["volume", "cat", "data:/deep/note"]).expect(125);
    let removed = world.run(&["volume", "rm", "--json", "none", "data"]).expect(125);
    assert_eq!(removed.json()["removed"][0], "data");
    assert_eq!(world.run(&["volume", "ls", "-q"]).expect(0).text(), "");
}

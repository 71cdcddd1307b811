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
    // Whole directories too, and what is in them.
    let (tree, out) = (host.path().join("tree"), host.path().join("out"));
    fs::create_dir_all(tree.join("deep")).unwrap();
    fs::write(tree.join("deep/leaf"), "leaf").unwrap();
    std::os::unix::fs::symlink("deep/leaf", tree.join("link")).unwrap();
    world.run(&["volume", "cp", tree.to_str().unwrap(), "data:/"]).expect(0);
    world.run(&["volume", "cp", &format!("{}/.", tree.display()), "data:/in/"]).expect(0);
    assert_eq!(world.run(&["volume", "cat", "data:/in/link"]).expect(0).text(), "leaf");
    world.run(&["volume", "cp", "data:/tree", out.to_str().unwrap()]).expect(0);
    assert_eq!(fs::read_to_string(out.join("deep/leaf")).unwrap(), "leaf");
    assert_eq!(fs::read_link(out.join("link")).unwrap(), std::path::Path::new("deep/leaf"));
    world.run(&["volume", "cp", "data:/tree/none", "."]).expect(125);
    let missing = world.run(&["volume", "cp", out.to_str().unwrap(), "none:/x"]).expect(125);
    assert!(missing.stderr.contains("no volume none"), "{missing:?}");
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

#[test]
fn a_volume_with_a_size_is_a_disk() {
    let world = World::new();
    let made = world.run(&["volume", "create", "db", "--size", "16m", "--json"]);
    if made.code != Some(0) {
        // Its size was understood; only the host cannot make one.
        assert!(!made.stderr.contains("--quota"), "{made:?}");
        println!("not tested: {}", made.stderr);
        return;
    }
    assert_eq!(made.json()["kind"], "disk");
    assert_eq!(world.run(&["volume", "create", "dir", "--json"]).expect(0).json()["kind"], "directory");
    let refused = world.run(&["volume", "create", "odd", "--kind", "directory", "--size", "16m"]).expect(125);
    assert!(refused.stderr.contains("--quota"), "{refused:?}");
}

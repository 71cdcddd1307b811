//! Links that come out of a sandbox: whatever they point to on this machine stays as it is.

use std::{
    fs,
    os::unix::fs::{PermissionsExt as _, symlink},
    path::Path,
};

use crate::support::World;

/// A world with a sandbox `dev`, and a directory of the caller's with a key in it.
fn scene() -> (World, std::path::PathBuf) {
    let world = World::with_dev();
    let keys = world.files().join("keys");
    fs::create_dir(&keys).unwrap();
    fs::write(keys.join("id"), "mine").unwrap();
    (world, keys)
}

fn inside(world: &World, script: &str) {
    world.run(&["exec", "dev", "sh", "-ec", script]).expect(0);
}

#[track_caller]
fn assert_untouched(keys: &Path) {
    let names: Vec<_> = fs::read_dir(keys).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["id"]);
    assert_eq!(fs::read_to_string(keys.join("id")).unwrap(), "mine");
}

#[test]
fn a_link_to_the_callers_own_directory_moves_nothing() {
    let (world, keys) = scene();
    let shown = keys.to_str().unwrap();
    inside(&world, &format!("mkdir -p {shown}; echo theirs > {shown}/id; ln -s {shown} /out"));
    let into = world.files().join("into");
    fs::create_dir(&into).unwrap();
    let copied = world.run(&["cp", "dev:/out", into.to_str().unwrap()]).expect(0);
    assert!(copied.stderr.contains("-L"), "{copied:?}");
    assert_eq!(fs::read_link(into.join("out")).unwrap(), keys);
    assert_untouched(&keys);
    // The sandbox makes a directory of its link: the next copy does not go through the one that lies here.
    inside(&world, "rm /out; mkdir /out; echo theirs > /out/id");
    let refused = world.run(&["cp", "dev:/out", into.to_str().unwrap()]).expect(125);
    assert!(refused.stderr.contains("in the way"), "{refused:?}");
    assert_untouched(&keys);
    // A file replaces the link.
    inside(&world, "rm -r /out; echo theirs > /out");
    world.run(&["cp", "dev:/out", into.to_str().unwrap()]).expect(0);
    assert_eq!(fs::read_to_string(into.join("out")).unwrap(), "theirs\n");
    assert_untouched(&keys);
}

#[test]
fn what_a_link_points_to_is_copied_when_asked() {
    let (world, _) = scene();
    inside(
        &world,
        "mkdir /real; echo x > /real/f; ln -s real /one; ln -s /one /two; ln -s f /real/g; ln -s o /o",
    );
    let files = world.files();
    let at = |name: &str| files.join(name).to_str().unwrap().to_owned();
    for (source, name) in [("dev:/two/", "a"), ("dev:/two/.", "b")] {
        world.run(&["cp", source, &at(name)]).expect(0);
        assert_eq!(fs::read_to_string(files.join(name).join("f")).unwrap(), "x\n", "{source}");
    }
    world.run(&["cp", "-L", "dev:/two", &at("c")]).expect(0);
    assert_eq!(fs::read_link(files.join("c/g")).unwrap(), Path::new("f"), "only the named link is followed");
    world.run(&["cp", "-L", "dev:/real/g", &at("d")]).expect(0);
    assert_eq!(fs::read_to_string(files.join("d")).unwrap(), "x\n");
    // Into a directory it goes by the name that was asked for.
    world.run(&["cp", "-L", "dev:/two", &at("a")]).expect(0);
    assert!(files.join("a/two/f").exists());
    world.run(&["cp", "dev:/real/g", &at("e")]).expect(0);
    assert_eq!(fs::read_link(files.join("e")).unwrap(), Path::new("f"));
    let circle = world.run(&["cp", "-L", "dev:/o", &at("h")]).expect(125);
    assert!(circle.stderr.contains("links"), "{circle:?}");
    let unnamed = world.run(&["cp", "dev:/real/..", &at("a")]).expect(125);
    assert!(unnamed.stderr.contains("hint:"), "{unnamed:?}");
}

#[test]
fn a_tree_full_of_tricks_comes_out_harmless() {
    let (world, keys) = scene();
    let shown = keys.to_str().unwrap();
    inside(
        &world,
        &format!(
            "mkdir -m 0500 /t; cd /t; ln -s {shown} d; mkfifo p; cp /bin/true s; chmod 6755 s; ln s hard"
        ),
    );
    let into = world.files().join("t");
    // Where the tree has a link, the caller has a directory of the same name, and one link to it.
    fs::create_dir(&into).unwrap();
    symlink(&keys, into.join("s")).unwrap();
    let copied = world.run(&["cp", "dev:/t/.", into.to_str().unwrap()]).expect(0);
    assert!(copied.stderr.contains("left out"), "{copied:?}");
    let mode = |name: &str| fs::symlink_metadata(into.join(name)).unwrap().permissions().mode();
    assert_eq!((mode("s") & 0o7777, mode("hard") & 0o7777), (0o755, 0o755));
    assert!(fs::symlink_metadata(into.join("p")).is_err());
    assert_eq!(fs::read_link(into.join("d")).unwrap(), keys);
    assert_untouched(&keys);
}

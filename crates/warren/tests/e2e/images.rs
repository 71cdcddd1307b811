//! Images by the command line: from archives and registries, into sandboxes, and out again.

use std::{fs, path::PathBuf};

use serde_json::{Value, json};
use test_registry::{Registry, run};

use crate::support::{Finished, World};

const USER: &str = "ana";
const PASSWORD: &str = "a-very-secret-password";

/// A root file system with a shell in it.
fn root_tar() -> Vec<u8> {
    let busybox = ["/bin/busybox", "/usr/bin/busybox"].into_iter().find_map(|path| fs::read(path).ok());
    let Some(busybox) = busybox else {
        panic!("busybox-static is needed; scripts/install-test-needs installs it")
    };
    let mut tar = tar::Builder::new(Vec::new());
    let mut file = |path: &str, content: &[u8]| {
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_mode(0o755);
        tar.append_data(&mut header, path, content).unwrap();
    };
    file("bin/sh", &busybox);
    file("bin/cat", &busybox);
    file("etc/word", b"from the image\n");
    tar.into_inner().unwrap()
}

/// The same as a directory of the host.
pub(crate) fn unpacked_root(world: &World) -> PathBuf {
    let root = world.files().join("root");
    tar::Archive::new(root_tar().as_slice()).unpack(&root).unwrap();
    root
}

const CONFIG: &str = r#"{"env":["WORD=of the image"],"cmd":["/bin/sh"],"workingDir":"/etc"}"#;

pub(crate) fn import(world: &World, name: &str) -> String {
    let made = world.run_with_input(&["image", "import", "-", name, "--config", CONFIG], &root_tar());
    made.expect(0).text().trim().to_owned()
}

fn lines(finished: &Finished) -> Vec<Value> {
    finished.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn an_image_is_imported_named_saved_and_loaded_again() {
    let world = World::new();
    let digest = import(&world, "team/app:1");
    assert!(digest.starts_with("sha256:"), "{digest}");
    let listed = world.run(&["image", "ls"]).expect(0).text();
    assert!(listed.contains("team/app:1") && listed.contains(&digest[7..19]), "{listed}");
    let inspected = world.run(&["image", "inspect", "team/app:1"]).expect(0).json();
    assert_eq!((&inspected["digest"], &inspected["config"]["workingDir"]), (&json!(digest), &json!("/etc")));
    world.run(&["image", "tag", "team/app:1", "other"]).expect(0);

    // The image that a sandbox runs on cannot be taken from under it.
    let ran = world.run(&[
        "run",
        "--name",
        "on",
        "--image",
        "team/app:1",
        "--pull",
        "never",
        "--",
        "sh",
        "-c",
        "cat word; echo $WORD",
    ]);
    assert_eq!(ran.expect(0).text(), "from the image\nof the image\n");
    world.run(&["image", "rm", "other"]).expect(0);
    let refused = world.run(&["image", "rm", "team/app:1"]).expect(125);
    assert!(refused.stderr.contains("in use"), "{refused:?}");
    world.run(&["rm", "-f", "on"]).expect(0);

    let archive = world.files().join("app.tar");
    let path = archive.to_str().unwrap();
    for format in ["docker", "oci"] {
        world.run(&["save", "team/app:1", "-o", path, "--format", format]).expect(0);
        let piped = world.run(&["save", "team/app:1", "--format", format]).expect(0);
        assert_eq!(fs::read(&archive).unwrap(), piped.stdout);
        let removed = world.run(&["image", "rm", "team/app:1"]).expect(0).text();
        assert!(
            removed.contains("untagged docker.io/team/app:1") && removed.contains("removed sha256:"),
            "{removed}"
        );
        let loaded = world.run(&["load", "-i", path]).expect(0).text();
        assert_eq!(loaded, "docker.io/team/app:1\n");
        world.run(&["image", "rm", "team/app:1"]).expect(0);
        let loaded = world.run_with_input(&["load", "--json"], &piped.stdout).expect(0).json();
        assert_eq!(loaded["images"][0]["references"], json!(["docker.io/team/app:1"]));
    }
    // Others read what we wrote.
    world.run(&["save", "team/app:1", "-o", path]).expect(0);
    run("skopeo", &["--insecure-policy", "inspect", "--config", &format!("docker-archive:{path}")]);

    let ran = world.run(&["run", "--image", "team/app:1", "--", "cat", "/etc/word"]).expect(0);
    assert_eq!(ran.text(), "from the image\n");
    let refused = world.run(&["image", "prune"]).expect(125);
    assert!(refused.stderr.contains("--force"), "{refused:?}");
    let pruned = world.run(&["image", "prune", "--force", "--json"]).expect(0).json();
    assert_eq!(pruned["references"], json!(["docker.io/team/app:1"]));
    let listed = world.run(&["image", "ls", "--json"]).expect(0).json();
    assert_eq!((&listed["images"], &listed["usage"]["images"]), (&json!([]), &json!(0)));
}

#[test]
fn an_image_is_pulled_with_progress_and_its_password_stays_secret() {
    let world = World::new();
    let registry = Registry::start_with_password(USER, PASSWORD);
    import(&world, "it");
    let archive = world.files().join("it.tar");
    world.run(&["save", "it", "-o", archive.to_str().unwrap()]).expect(0);
    let name = registry.push_archive(&archive, "team/it:1");
    world.run(&["image", "prune", "--force"]).expect(0);

    let denied = world.run(&["pull", &name]).expect(125);
    assert!(denied.stderr.contains("credentials") && denied.stderr.contains("hint:"), "{denied:?}");
    let login = ["--username", USER, "--password-stdin"];
    let pull = |more: &[&str]| {
        let arguments = [&["pull", &name][..], &login, more].concat();
        world.run_with_input(&arguments, format!("{PASSWORD}\n").as_bytes())
    };
    let shown = pull(&[]).expect(0);
    assert!(shown.stderr.contains("1 layers") && shown.stderr.contains(": done"), "{shown:?}");
    assert!(shown.text().starts_with("sha256:"), "{shown:?}");
    let told = lines(&pull(&["--json"]).expect(0));
    let kinds: Vec<_> = told.iter().map(|event| event["type"].as_str().unwrap()).collect();
    assert_eq!((kinds.first(), kinds.last()), (Some(&"resolved"), Some(&"done")), "{told:#?}");
    assert_eq!(told.last().unwrap()["image"]["references"], json!([name]));
    assert!(told.iter().any(|event| event["state"] == "present"), "{told:#?}");
    assert_eq!(pull(&["--quiet"]).expect(0).stderr, "");

    let ran = world.run(&["run", "--image", &name, "--", "cat", "/etc/word"]).expect(0);
    assert_eq!(ran.text(), "from the image\n");
    // A sandbox whose image is not here gets it; this registry wants to know who asks, and the daemon cannot say.
    world.run(&["image", "rm", &name]).expect(0);
    let refused = world.run(&["create", "--image", &name]).expect(125);
    assert!(refused.stderr.contains("credentials"), "{refused:?}");
    let never = world.run(&["create", "--image", &name, "--pull", "never"]).expect(125);
    assert!(never.stderr.contains("pulling is disabled"), "{never:?}");
    world.run(&["ps", "-aq"]).expect(0);

    for place in [world.run(&["audit", "--json"]).expect(0).text(), world.log()] {
        assert!(!place.contains(PASSWORD), "{place}");
    }
    let calls = world.run(&["audit", "--json"]).expect(0).text();
    assert!(calls.contains(&format!("POST /v1/images/pull ({name})")), "{calls}");
}

#[test]
fn a_daemon_that_is_logged_in_pulls_for_a_new_sandbox() {
    let world = World::new();
    let registry = Registry::start_with_password(USER, PASSWORD);
    import(&world, "it");
    let archive = world.files().join("it.tar");
    world.run(&["save", "it", "-o", archive.to_str().unwrap()]).expect(0);
    let name = registry.push_archive(&archive, "team/it:1");
    world.run(&["image", "prune", "--force"]).expect(0);
    // As `docker login` leaves it in the home of whoever runs the daemon.
    let login = world.files().parent().unwrap().join(".docker");
    fs::create_dir_all(&login).unwrap();
    let auth = format!("{USER}:{PASSWORD}");
    let auths = json!({ "auths": { registry.address(): { "auth": base64(auth.as_bytes()) } } });
    fs::write(login.join("config.json"), auths.to_string()).unwrap();

    let made = world.run(&["create", "--name", "box", "--image", &name]).expect(0);
    assert!(made.stderr.contains("1 layers") && made.stderr.contains(": done"), "{made:?}");
    assert_eq!(made.text(), "box\n");
    assert_eq!(world.run(&["exec", "box", "cat", "/etc/word"]).expect(0).text(), "from the image\n");
    let again = world.run(&["create", "--image", &name, "--json"]).expect(0).json();
    assert_eq!(again["image"], name.as_str());
}

fn base64(bytes: &[u8]) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.encode(bytes)
}

#[test]
fn bad_input_is_told_and_changes_nothing() {
    let world = World::new();
    import(&world, "one");
    let files = world.files();
    let at = |name: &str| files.join(name).to_str().unwrap().to_owned();
    world.run(&["save", "one", "-o", &at("good.tar")]).expect(0);
    let good = fs::read(at("good.tar")).unwrap();
    fs::write(at("text"), "this is no archive".repeat(1_000_000)).unwrap();
    fs::write(at("cut.tar"), &good[..good.len() / 2]).unwrap();
    fs::write(at("kept.tar"), "kept").unwrap();
    for (arguments, told) in [
        (vec!["image", "inspect", "none"], "none"),
        (vec!["pull", "UPPER"], "UPPER"),
        (vec!["pull", "one", "--platform", "linux"], "linux"),
        (vec!["load", "-i", "/no/such/archive"], "/no/such/archive"),
        (vec!["load", "-i", "/etc"], "directory"),
        (vec!["load", "-i", &at("text")], "archive"),
        (vec!["load", "-i", &at("cut.tar")], "archive"),
        (vec!["load"], "archive"),
        (vec!["save", "none", "-o", &at("kept.tar")], "none"),
        (vec!["image", "tag", "none", "two"], "none"),
        (vec!["image", "tag", "one", "../two"], "../two"),
        (vec!["image", "import", &at("text"), "two"], ""),
        (vec!["create", "--image", "one", "--rootfs", "/"], ""),
        (vec!["create", "--rootfs", "/no/such/root"], "/no/such/root"),
    ] {
        let refused = world.run(&arguments);
        assert!(matches!(refused.code, Some(125 | 2)), "{arguments:?}: {refused:?}");
        assert!(refused.stderr.contains(told), "{arguments:?}: {refused:?}");
    }
    assert_eq!(fs::read_to_string(at("kept.tar")).unwrap(), "kept");
    let left: Vec<_> = fs::read_dir(&files).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(left.iter().all(|name| !name.to_string_lossy().ends_with(".part")), "{left:?}");
    let listed = world.run(&["image", "ls", "--json"]).expect(0).json();
    assert_eq!(listed["images"].as_array().unwrap().len(), 1, "{listed:#}");
}

#[test]
fn hints_are_about_what_was_done_and_the_rest_is_done_all_the_same() {
    let world = World::new();
    let one = import(&world, "one");
    // Another image of the same layer.
    let two = world.run_with_input(&["image", "import", "-", "two"], &root_tar()).expect(0).text();
    assert_ne!(one, two.trim());
    let here = world.files().to_str().unwrap().to_owned();
    let root = world.files().join("root.tar");
    fs::write(&root, root_tar()).unwrap();
    let nowhere = format!("{here}/nowhere/x");
    for (arguments, kind, hint) in [
        (vec!["image", "import", &here, "x"], "invalid_request", "warren image import - x"),
        (vec!["snapshot", "load", "-i", &here], "invalid_request", "warren snapshot save"),
        (vec!["load", "-i", root.to_str().unwrap()], "unsupported", "import"),
        (vec!["load"], "unsupported", "import"),
        (vec!["load", "-i", &nowhere], "not_found", "path"),
        (vec!["build", &nowhere], "not_found", "path"),
        (vec!["save", "one", "-o", &nowhere], "not_found", "path"),
        (vec!["save", "one", "-o", &here], "invalid_request", "file"),
        (vec!["image", "import", "-", "x", "--config", "{"], "invalid_request", "JSON object"),
    ] {
        let refused = world.run(&[&arguments[..], &["--json"]].concat()).expect(125);
        let error: Value = serde_json::from_str(&refused.stderr).unwrap();
        let told = error["error"]["hint"].as_str().unwrap_or_default();
        assert!(error["error"]["kind"] == kind && told.contains(hint), "{arguments:?}: {refused:?}");
    }
    // Layers that unused images share are counted once.
    let rows = world.run(&["df", "--json"]).expect(0).json();
    let images = rows["rows"].as_array().unwrap().iter().find(|row| row["kind"] == "images").unwrap().clone();
    let removed = world.run(&["image", "rm", "one", "nope", "two", "--json"]).expect(125);
    assert!(removed.stderr.contains("nope"), "{removed:?}");
    let removed = removed.json();
    assert_eq!(removed["images"], json!([one, two.trim()]), "{removed}");
    assert_eq!(images["unusedBytes"], removed["bytes"], "{images}");
    assert_eq!(images["unusedBytes"], images["bytes"], "{images}");
}

#[test]
fn a_directory_of_the_host_is_a_root_file_system_that_is_never_written() {
    let world = World::new();
    let root = unpacked_root(&world);
    let path = root.to_str().unwrap();
    let script = "cat /etc/word; echo new > /etc/new; cat /etc/new";
    let ran = world.run(&["run", "--rootfs", path, "--", "sh", "-c", script]).expect(0);
    assert_eq!(ran.text(), "from the image\nnew\n");
    assert!(!root.join("etc/new").exists());
}

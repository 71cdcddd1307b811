//! Builds that do not come to their end, and builds that come at the same time.

use std::{
    fs,
    io::{BufRead as _, BufReader, Lines, Write as _},
    path::Path,
    process::{Child, ChildStdout, Stdio},
};

use serde_json::{Value, json};

use crate::{
    builds::{Site, cached, printed, spooled},
    harness::{Daemon, is_root, text, until},
    image_crashes::stored,
    oci::{Layer, Registry, TestImage},
    small_disk::SmallDisk,
};

/// Returns bytes that no compression makes smaller.
fn noise(n_bytes: usize) -> Vec<u8> {
    let mut state = 1_u64;
    let words = std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    });
    words.flatten().take(n_bytes).collect()
}

/// A build under way. What it tells is read as far as it was waited for; a reader that goes away would end it.
struct Build {
    child: Child,
    _told: Option<Lines<BufReader<ChildStdout>>>,
}

/// Starts a build and returns when it told of this.
fn begin(site: &Site, told: &str) -> Build {
    let mut command = site.daemon.command(["build", "--json", "-t", "app"]);
    let mut child =
        command.arg(site.context.path()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().contains(told)), "no {told}: {}", site.daemon.log());
    Build { child, _told: Some(lines) }
}

fn is_empty(directory: &Path) -> bool {
    fs::read_dir(directory).map_or(true, |mut entries| entries.next().is_none())
}

/// The sizes of the files in the image that is built while daemons are killed.
const SIZES: &str = "12582912\n12582912";

/// Kills the daemon now, and looks at what the next one makes of it. An image that is there then is whole, where the
/// build may have come to its end before the kill.
fn crash(site: &mut Site, mut build: Build, may_end: bool) {
    site.daemon.kill();
    build.child.kill().ok();
    build.child.wait().unwrap();
    site.daemon.serve();
    let home = site.daemon.home();
    until("what the build left is gone", || {
        let is_half_made = |name: &String| name.contains("partial/") || !name.contains("sha256");
        site.daemon.leftovers().is_empty() && !stored(&home).iter().any(is_half_made)
    });
    site.assert_nothing_left();
    if !site.daemon.ok(["image", "ls"]).contains("app") {
        return;
    }
    assert!(may_end, "an image that was not finished");
    assert_eq!(site.look("app", "stat -c %s /big /copy"), SIZES);
    site.daemon.ok(["image", "rm", "app"]);
}

#[test]
fn a_daemon_killed_at_any_step_of_a_build_leaves_nothing_half_made() {
    let mut site = Site::with(Daemon::start());
    fs::write(site.context.path().join("big"), noise(12 << 20)).unwrap();
    let dockerfile = "FROM base\nCOPY big /big\nRUN cp /big /copy && echo at work && sleep 100000\n";
    site.put("Dockerfile", dockerfile);

    // While the context comes.
    let mut child = site
        .daemon
        .command(["build", "-t", "app", "-"])
        .stdin(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    child.stdin.as_mut().unwrap().write_all(&noise(1 << 20)).unwrap();
    until("the context is on its way", || !spooled(&site.daemon).is_empty());
    crash(&mut site, Build { child, _told: None }, false);
    // While it is copied.
    let build = begin(&site, "COPY big");
    crash(&mut site, build, false);
    // While a command runs.
    let build = begin(&site, "at work\\n");
    crash(&mut site, build, false);
    // While a layer is taken in.
    site.put("Dockerfile", &dockerfile.replace("&& sleep 100000", "again"));
    let build = begin(&site, "again\\n");
    let partial = site.daemon.home().join("images/partial");
    until("the layer is on its way, or was quicker than we are", || {
        !is_empty(&partial) || site.daemon.ok(["image", "ls"]).contains("app")
    });
    crash(&mut site, build, true);

    // Whole layers are used again, and the rest of them goes with the last who wants it.
    let events = site.built(&["-t", "app"]);
    assert!(cached(&events).contains(&2), "{events:?}");
    assert_eq!(site.look("app", "stat -c %s /big /copy"), SIZES);
    for image in ["app", "base"] {
        site.daemon.ok(["image", "rm", image]);
    }
    site.daemon.ok(["image", "prune", "--force"]);
    assert_eq!(stored(&site.daemon.home()), Vec::<String>::new());
}

#[test]
fn a_disk_that_is_full_in_the_middle_of_a_build_is_told_and_gets_its_space_back() {
    if !is_root() {
        return; // Only root can give the daemon a small disk.
    }
    let mut daemon = Daemon::unstarted();
    // The image `host` takes some of it.
    let disk = SmallDisk::at(&daemon.home(), "64m");
    daemon.serve();
    let site = Site::with(daemon);
    let before = stored(&site.daemon.home());
    for (what, size, dockerfile, part) in [
        ("the context", 80, "FROM base\n", "No space left"),
        ("a copy", 24, "FROM base\nCOPY big /one/\nCOPY big /two/\n", "pace left"),
        ("a command", 0, "FROM base\nRUN dd if=/dev/urandom of=/noise bs=1M count=80\n", "line 2"),
        ("a layer", 0, "FROM base\nRUN dd if=/dev/urandom of=/noise bs=1M count=30\n", "pace left"),
    ] {
        fs::write(site.context.path().join("big"), noise(size << 20)).unwrap();
        site.put("Dockerfile", dockerfile);
        let error = site.fails(&["-t", "app"]);
        assert!(error.contains(part) && error.contains("hint"), "{what}: {error}");
        // Whole layers may stay for the next build.
        site.daemon.ok(["image", "tag", "base", "kept"]);
        assert!(!site.daemon.ok(["image", "ls"]).contains("app"), "{what}");
        let left: Vec<_> =
            stored(&site.daemon.home()).into_iter().filter(|name| name.contains("partial/")).collect();
        assert_eq!(left, Vec::<String>::new(), "{what}");
        if what != "a copy" {
            assert_eq!(stored(&site.daemon.home()), before, "{what}");
        } else {
            let layers = begin_again(&site);
            assert_eq!(layers, before, "{what}");
        }
    }
    fs::write(site.context.path().join("big"), noise(1 << 20)).unwrap();
    site.put("Dockerfile", "FROM base\nCOPY big /one/\nRUN cp /one/big /two\n");
    site.built(&["-t", "app"]);
    assert_eq!(site.look("app", "stat -c %s /two"), (1 << 20).to_string());
    drop((site, disk));
}

/// Throws away what builds keep for the next one.
fn begin_again(site: &Site) -> Vec<String> {
    site.daemon.create("user", &["--image", "base"]);
    site.daemon.ok(["image", "prune", "--force"]);
    site.daemon.ok(["rm", "--force", "user"]);
    stored(&site.daemon.home())
}

fn finish(child: Child) -> Vec<Value> {
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    text(&output.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn builds_at_the_same_time_do_not_mind_each_other_nor_what_commands_leave_behind() {
    let site = Site::with(Daemon::start());
    site.put("file", "content");
    site.put(
        "Dockerfile",
        "FROM base\nCOPY file /file\nRUN (sleep 100000 &); sleep 100000 & echo left behind > /left\nRUN cat /file /left > /both\n",
    );
    let start = || {
        let mut command = site.daemon.command(["build", "--json", "-t", "app"]);
        command.arg(site.context.path()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let children: Vec<Child> = (0..3).map(|_| start()).collect();
    for events in children.into_iter().map(finish) {
        assert_eq!(events.last().unwrap()["references"], json!(["docker.io/library/app:latest"]));
    }
    assert_eq!(site.look("app", "cat /both"), "contentleft behind");
    assert_eq!(cached(&site.built(&["-t", "app"])), [2, 3, 4]);

    // Much output comes whole, or it is said that it does not.
    site.put("Dockerfile", "FROM base\nRUN yes | head -c 5000000\n");
    let told = printed(&site.built(&["-t", "app"]));
    assert!(told.len() == 5_000_000 || told.contains("left out"), "{} bytes", told.len());

    // The image fetched for a build is told as for any pull.
    let registry = Registry::start();
    let image = |marker: &str| {
        let layers = vec![Layer::busybox(), Layer::new().file("marker", marker.as_bytes())];
        TestImage::new(layers, &json!({"Env": ["PATH=/bin"]}))
    };
    let (one, other) = (registry.push("one", &image("one")), registry.push("other", &image("other")));
    site.put(
        "Dockerfile",
        &format!("FROM {one}\nCOPY --from={other} /marker /other\nRUN cat /marker /other\n"),
    );
    let events = site.built(&["-t", "app"]);
    assert_eq!(printed(&events), "oneother");
    let pulls: Vec<_> = events.iter().filter(|event| event["type"] == "pull").collect();
    assert_eq!(pulls.len(), 2, "{pulls:?}");
    let told = |what: &str| {
        events.iter().filter(|event| event["type"] == "pulling" && event["event"]["type"] == what).count()
    };
    assert!(told("resolved") == 2 && told("layer") > 0, "{events:?}");
    // And to people.
    let output =
        site.daemon.command(["build", "--pull", "-t", "app"]).arg(site.context.path()).output().unwrap();
    let shown = text(&output.stderr);
    assert!(shown.contains(&format!("=> pulling {one}")) && shown.contains("2 layers"), "{shown}");
    site.assert_nothing_left();
}

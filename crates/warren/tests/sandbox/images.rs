//! Sandboxes on images: from a registry to what a program inside sees.

use std::fs;

use serde_json::json;

use crate::{
    harness::{Daemon, is_root, text, until},
    image_crashes::stored,
    oci::{Layer, Registry, TestImage},
};

/// An ordinary small image.
pub(crate) fn small(marker: &str) -> TestImage {
    let layer = Layer::busybox().directory("etc", 0o755).file("etc/marker", marker.as_bytes());
    TestImage::new(vec![layer], &json!({"Env": ["PATH=/bin"]}))
}

#[test]
fn a_sandbox_on_an_image_sees_the_image_and_what_it_says_of_itself() {
    let registry = Registry::start();
    let layer = Layer::busybox()
        .directory("etc", 0o755)
        .file("etc/passwd", b"root:x:0:0::/home/of-root:/bin/sh\nana:x:0:0::/:/bin/sh\n")
        .file("etc/marker", b"one");
    let run = json!({
        "Env": ["PATH=/bin", "GREETING=hello there", "COLOUR=blue"],
        "User": "ana",
        "WorkingDir": "/not/there/yet",
        "Entrypoint": ["/bin/sh"],
        "Cmd": ["-c", "echo hi"],
        "StopSignal": "SIGINT",
    });
    let image = TestImage::new(vec![layer], &run);
    let name = registry.push("team/app", &image);
    let daemon = Daemon::start();
    daemon.create("app", &["--image", &name, "--env", "COLOUR=red"]);
    assert_eq!(daemon.sh_ok("app", "cat /etc/marker"), "one");
    let said = daemon.sh_ok("app", "echo $GREETING $COLOUR $HOME; pwd");
    assert_eq!(said, "hello there red /home/of-root\n/not/there/yet");
    assert_eq!(daemon.sh_ok("app", "cat /etc/hostname"), "app");
    // None of the host's programs or files.
    assert_eq!(daemon.sh_ok("app", "ls /"), "bin\ndev\netc\nnot\nproc\nrun\nsys\ntmp");
    // Changes to files stay the sandbox's own, over a stop and a start and a new daemon.
    daemon.sh_ok("app", "echo two > /etc/marker; echo new > /etc/new");
    daemon.create("other", &["--image", &name]);
    assert_eq!(daemon.sh_ok("other", "cat /etc/marker; test -e /etc/new || echo none"), "onenone");
    daemon.ok(["restart", "app"]);
    assert_eq!(daemon.sh_ok("app", "cat /etc/marker /etc/new"), "two\nnew");
}

#[test]
fn who_runs_and_what_is_run_is_what_the_image_says() {
    let registry = Registry::start();
    let layer = || {
        Layer::busybox()
            .directory("etc", 0o755)
            .file("etc/passwd", b"root:x:0:0::/root:/bin/sh\nana:x:1000:1001::/home/ana:/bin/sh\n")
            .file("etc/group", b"root:x:0:\nana:x:1001:\nteam:x:1002:\n")
    };
    let daemon = Daemon::start();
    let on = |name: &str, run: serde_json::Value| registry.push(name, &TestImage::new(vec![layer()], &run));
    let ids = "echo $(id -u) $(id -g) $HOME";
    for (number, (user, seen)) in [
        ("ana", "1000 1001 /home/ana"),
        ("1000", "1000 1001 /home/ana"),
        ("7", "7 0 /"),
        ("ana:team", "1000 1002 /home/ana"),
        ("1000:1002", "1000 1002 /home/ana"),
        ("7:8", "7 8 /"),
    ]
    .into_iter()
    .enumerate()
    {
        let (name, run) = (format!("user-{number}"), json!({"Env": ["PATH=/bin"], "User": user}));
        daemon.create(&name, &["--image", &on(&name, run)]);
        if daemon.inspect(&name)["isolation"]["idMap"] == "single" {
            return; // There is nobody else whom a program could belong to.
        }
        assert_eq!(daemon.sh_ok(&name, ids), seen, "{user}");
    }
    for (name, user, missing) in [("no-user", "bob", "bob"), ("no-group", "ana:sailors", "sailors")] {
        daemon.create(name, &["--image", &on(name, json!({"Env": ["PATH=/bin"], "User": user}))]);
        let (code, _, err) = daemon.sh(name, "true");
        assert!(code == 125 && err.contains(missing) && err.contains("/etc/"), "{code} {err}");
    }

    let run = json!({
        "Env": ["PATH=/bin"],
        "Entrypoint": ["/bin/sh", "-c"],
        "Cmd": ["echo by entry point and command in $(pwd)"],
        "WorkingDir": "/made/for/this",
        "ExposedPorts": {"80/tcp": {}, "53/udp": {}},
        "Volumes": {"/data": {}},
        "Labels": {"made-by": "a test"},
    });
    let name = on("runs", run);
    assert_eq!(daemon.ok(["run", "--image", &name]), "by entry point and command in /made/for/this\n");
    let config = daemon.json(["image", "inspect", &name])["config"].clone();
    assert_eq!(config["exposedPorts"], json!(["53/udp", "80/tcp"]));
    assert_eq!((&config["volumes"], &config["labels"]), (&json!(["/data"]), &json!({"made-by": "a test"})));
    daemon.create("runs", &["--image", &name]);
    assert_eq!(daemon.inspect("runs")["exposedPorts"], json!(["53/udp", "80/tcp"]));
}

#[test]
fn an_image_is_ended_by_the_signal_it_wants() {
    let registry = Registry::start();
    let run = json!({"Env": ["PATH=/bin"], "StopSignal": "SIGUSR1"});
    let name = registry.push("polite", &TestImage::new(vec![Layer::busybox()], &run));
    let daemon = Daemon::start();
    daemon.create("polite", &["--image", &name]);
    let script = "trap 'echo asked nicely > /word; exit 0' USR1; trap 'echo told to go > /word; exit 0' TERM; \
                  echo ready > /ready; while :; do sleep 1000 & wait; done";
    daemon.json(["exec", "--detach", "--json", "polite", "/bin/sh", "-c", script]);
    until("it listens", || daemon.sh("polite", "test -e /ready").0 == 0);
    daemon.ok(["stop", "polite"]);
    daemon.ok(["start", "polite"]);
    assert_eq!(daemon.sh_ok("polite", "cat /word"), "asked nicely");
}

#[test]
fn an_image_in_use_is_removed_only_by_force_and_goes_with_its_last_sandbox() {
    let registry = Registry::start();
    let name = registry.push("used", &small("used"));
    let daemon = Daemon::start();
    for sandbox in ["one", "two"] {
        daemon.create(sandbox, &["--image", &name]);
    }
    // One copy on disk for both.
    let n_layers = stored(&daemon.home()).iter().filter(|name| name.starts_with("layers/")).count();
    assert_eq!(n_layers, 1);
    let (_, err) = daemon.fails(["image", "rm", &name]);
    assert!(err.contains("sandbox one") && err.contains("sandbox two"), "{err}");
    daemon.ok(["image", "prune", "--force"]);
    daemon.ok(["image", "rm", "--force", &name]);
    daemon.ok(["rm", "--force", "one"]);
    daemon.ok(["restart", "two"]);
    assert_eq!(daemon.sh_ok("two", "cat /etc/marker"), "used");
    daemon.ok(["rm", "--force", "two"]);
    until("the image is gone", || stored(&daemon.home()).is_empty());
}

#[test]
fn what_upper_layers_took_away_is_gone_and_owners_are_as_in_the_image() {
    let registry = Registry::start();
    let bottom = Layer::busybox()
        .directory("etc", 0o755)
        .file("etc/kept", b"kept")
        .file("etc/removed", b"x")
        .directory("hidden", 0o755)
        .file("hidden/below", b"x")
        .directory("gone", 0o755)
        .file("gone/with-its-directory", b"x")
        .directory("data", 0o755)
        .entry("data/owned", 0o640, (1000, 1001), b"mine")
        .entry("data/far", 0o600, (65534, 65533), b"far");
    let top = Layer::new()
        .directory("etc", 0o755)
        .file("etc/.wh.removed", b"")
        .file(".wh.gone", b"")
        .directory("hidden", 0o755)
        .file("hidden/.wh..wh..opq", b"")
        .file("hidden/above", b"above");
    let name = registry.push("layered", &TestImage::new(vec![bottom, top], &json!({"Env": ["PATH=/bin"]})));
    let daemon = Daemon::start();
    daemon.create("layers", &["--image", &name]);
    let seen = daemon
        .sh_ok("layers", "cat /etc/kept; ls /hidden; ls -d /gone /etc/removed 2>/dev/null || echo gone");
    assert_eq!(seen, "keptabove\ngone");
    if daemon.inspect("layers")["isolation"]["idMap"] == "single" {
        // There is nobody else whom files could belong to.
        assert_eq!(daemon.sh_ok("layers", "stat -c '%u:%g %a' /data/owned"), "0:0 640");
        return;
    }
    assert_eq!(
        daemon.sh_ok("layers", "stat -c '%u:%g %a' /data/owned /data/far /bin/busybox /"),
        "1000:1001 640\n65534:65533 600\n0:0 755\n0:0 755"
    );
    // Whoever owns it there may write to it, and others may not even look.
    let as_user = |user: &str, script: &str| {
        let output = daemon.output(["exec", "--user", user, "layers", "/bin/sh", "-c", script]);
        (output.status.code(), text(&output.stdout))
    };
    assert_eq!(
        as_user("1000:1001", "echo more >> /data/owned && cat /data/owned"),
        (Some(0), "minemore\n".into())
    );
    assert_ne!(as_user("2000:2000", "cat /data/owned 2>/dev/null").0, Some(0));
    // The layers on disk are as they were.
    daemon.create("again", &["--image", &name]);
    assert_eq!(daemon.sh_ok("again", "cat /data/owned"), "mine");
}

#[test]
fn images_of_very_many_layers_work() {
    let registry = Registry::start();
    let many = |n: usize| {
        let mut layers = vec![Layer::busybox().directory("layers", 0o755)];
        layers.extend((1..n).map(|number| {
            let own = format!("layers/{number}");
            let text = number.to_string();
            Layer::new().file(&own, text.as_bytes()).file("layers/last", text.as_bytes())
        }));
        TestImage::new(layers, &json!({"Env": ["PATH=/bin"]}))
    };
    let daemon = Daemon::start();
    for n in [40, 130] {
        let name = registry.push(&format!("many-{n}"), &many(n));
        let sandbox = format!("many-{n}");
        daemon.create(&sandbox, &["--image", &name]);
        let seen = daemon.sh_ok(&sandbox, "cat /layers/last; echo; cat /layers/1; echo; ls /layers | wc -l");
        assert_eq!(seen, format!("{}\n1\n{n}", n - 1));
        daemon.sh_ok(&sandbox, "echo changed > /layers/1");
        daemon.ok(["restart", &sandbox]);
        assert_eq!(daemon.sh_ok(&sandbox, "cat /layers/1"), "changed");
    }
}

#[test]
fn an_image_whose_links_lead_out_reaches_nothing_of_the_host() {
    let registry = Registry::start();
    let host = tempfile::tempdir().unwrap();
    let outside = host.path().to_str().unwrap();
    let up = format!("../../../../../../../../{outside}");
    let mut layer = Layer::busybox();
    for (place, to) in [
        ("proc", outside),
        ("dev", "/etc"),
        ("sys", up.as_str()),
        ("tmp", "/"),
        ("run", "/bin"),
        ("etc", outside),
    ] {
        layer = layer.link(place, to);
    }
    let name = registry.push("hostile", &TestImage::new(vec![layer], &json!({"Env": ["PATH=/bin"]})));
    let daemon = Daemon::start();
    daemon.create("hostile", &["--image", &name]);
    let check = |daemon: &Daemon| {
        assert_eq!(
            daemon.sh_ok("hostile", "cat /proc/1/comm > /tmp/x && cat /dev/null && ls /dev/pts/ptmx"),
            "/dev/pts/ptmx"
        );
        let kinds =
            daemon.sh_ok("hostile", "while read -r _ at kind _; do echo $at $kind; done < /proc/mounts");
        for mounted in ["/proc proc", "/dev tmpfs", "/tmp tmpfs", "/run tmpfs", "/dev/pts devpts"] {
            assert!(kinds.lines().any(|line| line == mounted), "{mounted}: {kinds}");
        }
        assert_eq!(daemon.sh_ok("hostile", "cat /etc/hostname"), "hostile");
        assert_eq!(fs::read_dir(host.path()).unwrap().count(), 0);
        // Nothing of it is mounted where the host could see it.
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        assert!(!mounts.contains(outside), "{mounts}");
    };
    check(&daemon);
    daemon.ok(["restart", "hostile"]);
    check(&daemon);
    // A disk of its own is filled by the same rule.
    if is_root() {
        daemon.create("limited", &["--image", &name, "--disk", "64m"]);
        assert_eq!(daemon.sh_ok("limited", "cat /proc/1/comm > /dev/null; cat /etc/hostname"), "limited");
    }
}

#[test]
fn an_image_without_a_shell_says_so_and_one_without_anything_starts_too() {
    let registry = Registry::start();
    let bare = TestImage::new(vec![Layer::new().directory("data", 0o755)], &json!({}));
    let empty = TestImage::new(vec![], &json!(null));
    let daemon = Daemon::start();
    for (name, image) in [("bare", bare), ("empty", empty)] {
        let reference = registry.push(name, &image);
        daemon.create(name, &["--image", &reference]);
        let (code, _, err) = daemon.sh(name, "true");
        assert_eq!(code, 127, "{err}");
        assert!(err.contains("/bin/sh"), "{err}");
    }
    // Files can be put there all the same.
    let file = crate::harness::host_file(&daemon.home(), "note", b"hello");
    daemon.ok(["cp", file.to_str().unwrap(), "empty:/note"]);
    assert!(daemon.ok(["cp", "empty:/note", "-"]).contains("hello"));
}

#[test]
fn a_directory_and_a_disk_of_the_host_can_be_the_root_and_are_never_written_to() {
    let daemon = Daemon::start();
    let host = tempfile::tempdir().unwrap();
    let root = host.path().join("root");
    fs::create_dir_all(root.join("bin")).unwrap();
    fs::copy("/usr/bin/busybox", root.join("bin/busybox")).unwrap();
    std::os::unix::fs::symlink("busybox", root.join("bin/sh")).unwrap();
    fs::write(root.join("marker"), "from the host").unwrap();
    let make = |name: &str, rootfs: serde_json::Value| {
        post(&daemon, "/v1/sandboxes", &json!({"name": name, "rootfs": rootfs}))
    };
    let (status, body) = make("tree", json!({"kind": "directory", "path": root}));
    assert_eq!(status, 201, "{body}");
    let script = "/bin/busybox cat /marker; echo changed > /marker; /bin/busybox cat /marker; echo x > /new";
    assert_eq!(daemon.sh_ok("tree", script), "from the hostchanged");
    assert_eq!(fs::read_to_string(root.join("marker")).unwrap(), "from the host");
    assert!(!root.join("new").exists() && !root.join("proc").exists());

    let (status, body) = make("none", json!({"kind": "directory", "path": host.path().join("none")}));
    assert_eq!(status, 404, "{body}");
    let (status, body) = make("file", json!({"kind": "directory", "path": root.join("marker")}));
    assert_eq!(status, 400, "{body}");
    // Sandboxes are put together there, over whatever else it has.
    if let Ok(hidden) = tempfile::tempdir_in("/dev/shm") {
        let (status, body) = make("hidden", json!({"kind": "directory", "path": hidden.path()}));
        assert!(status >= 400 && body.contains("/dev/shm, which hides it"), "{status} {body}");
        assert!(body.contains("hint"), "{body}");
    }

    let disk = host.path().join("disk.img");
    fs::File::create(&disk).unwrap().set_len(16 << 20).unwrap();
    let made = std::process::Command::new("/usr/sbin/mkfs.ext4")
        .args(["-q", "-F", "-d"])
        .args([&root, &disk])
        .status()
        .unwrap();
    assert!(made.success());
    let before = fs::read(&disk).unwrap();
    let (status, body) = make("disk", json!({"kind": "disk", "path": disk}));
    if is_root() {
        assert_eq!(status, 201, "{body}");
        assert_eq!(daemon.sh_ok("disk", script), "from the hostchanged");
        daemon.ok(["restart", "disk"]);
        assert_eq!(daemon.sh_ok("disk", "/bin/busybox cat /marker"), "changed");
        daemon.ok(["rm", "--force", "disk"]);
        assert!(fs::read(&disk).unwrap() == before);
    } else {
        assert!(status >= 400 && body.contains("only root"), "{status} {body}");
    }
}

#[test]
fn an_image_in_a_real_registry_is_one_too() {
    let (registry, layout) = (test_registry::Registry::start(), tempfile::tempdir().unwrap());
    small("real").write_layout(layout.path());
    let reference = registry.push_layout(layout.path(), "it", "team/real:1");
    let daemon = Daemon::start();
    daemon.create("real", &["--image", &reference]);
    assert_eq!(daemon.sh_ok("real", "cat /etc/marker"), "real");
    let (_, err) = daemon.fails(["create", "--image", &reference.replace(":1", ":none")]);
    assert!(err.contains("was not found"), "{err}");
}

/// A request to the daemon's socket; returns status and body.
fn post(daemon: &Daemon, path: &str, body: &serde_json::Value) -> (u16, String) {
    use std::io::{Read as _, Write as _};
    let mut stream =
        std::os::unix::net::UnixStream::connect(daemon.run_directory().join("warren.sock")).unwrap();
    let body = body.to_string();
    write!(
        stream,
        "POST {path} HTTP/1.1\r\nhost: warren\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let status = answer.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap();
    (status, answer.split_once("\r\n\r\n").map(|(_, body)| body.to_owned()).unwrap_or_default())
}

#[test]
fn a_sandbox_and_its_image_outlive_the_daemon() {
    let registry = Registry::start();
    let name = registry.push("kept", &small("kept"));
    let mut daemon = Daemon::start();
    daemon.create("kept", &["--image", &name]);
    daemon.sh_ok("kept", "echo mine > /mine");
    daemon.kill();
    daemon.serve();
    assert_eq!(daemon.sh_ok("kept", "cat /etc/marker /mine"), "keptmine");
    daemon.ok(["stop", "kept"]);
    daemon.kill();
    daemon.serve();
    daemon.ok(["start", "kept"]);
    assert_eq!(daemon.sh_ok("kept", "cat /etc/marker /mine"), "keptmine");
    // The registry need not be asked for what is here.
    registry.push("kept", &small("another"));
    daemon.create("second", &["--image", &name]);
    assert_eq!(daemon.sh_ok("second", "cat /etc/marker"), "kept");
}

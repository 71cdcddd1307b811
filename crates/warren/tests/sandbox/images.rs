//! Sandboxes on images: from a registry to what a program inside sees.

use std::{fs, path::Path};

use serde_json::json;

use crate::{
    harness::{Daemon, is_root, text, until},
    oci::{Blobs, Layer, Registry, TestImage},
};

/// An ordinary small image.
fn small(marker: &str) -> TestImage {
    let layer = Layer::busybox().directory("etc", 0o755).file("etc/marker", marker.as_bytes());
    TestImage::new(vec![layer], &json!({"Env": ["PATH=/bin"]}))
}

#[test]
fn a_sandbox_on_an_image_sees_the_image_and_what_it_says_of_itself() {
    let registry = Registry::start();
    let layer = Layer::busybox()
        .directory("etc", 0o755)
        .file("etc/passwd", b"root:x:0:0::/:/bin/sh\nana:x:0:0::/:/bin/sh\n")
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
    assert_eq!(daemon.sh_ok("app", "echo $GREETING $COLOUR; pwd"), "hello there red\n/not/there/yet");
    assert_eq!(daemon.sh_ok("app", "cat /etc/hostname"), "app");
    // None of the host's programs or files.
    assert_eq!(daemon.sh_ok("app", "ls /"), "bin\ndev\netc\nnot\nproc\nrun\nsys\ntmp");
    let view = daemon.inspect("app");
    assert_eq!(view["plan"]["imageDigest"], json!(image.digest));
    assert_eq!(view["plan"]["config"]["entrypoint"], json!(["/bin/sh"]));
    assert_eq!(view["plan"]["config"]["stopSignal"], "SIGINT");
    // What is written stays the sandbox's own, over a stop and a start and a new daemon.
    daemon.sh_ok("app", "echo two > /etc/marker; echo new > /etc/new");
    daemon.create("other", &["--image", &name]);
    assert_eq!(daemon.sh_ok("other", "cat /etc/marker; test -e /etc/new || echo none"), "onenone");
    daemon.ok(["restart", "app"]);
    assert_eq!(daemon.sh_ok("app", "cat /etc/marker /etc/new"), "two\nnew");
}

//! The static build: process 1 of a root that contains nothing else.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use guest_protocol::{ExitReport, Request, Response, StartFailure, WriteMode};

use crate::support::{Host, command, exited};

/// Builds the guest without shared libraries, in a directory of its own to keep the usual build.
fn build_static() -> PathBuf {
    let target_directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("static-guest");
    let triple = host_triple();
    let built = Command::new(env!("CARGO"))
        .args([
            "build",
            "--quiet",
            "--package",
            "guest",
            "--bin",
            "guest",
            "--target",
            &triple,
            "--target-dir",
        ])
        .arg(&target_directory)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .env("RUSTFLAGS", "-C target-feature=+crt-static")
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .status()
        .unwrap();
    assert!(built.success());
    target_directory.join(triple).join("debug/guest")
}

fn host_triple() -> String {
    let about = Command::new("rustc").arg("-vV").output().unwrap();
    let about = String::from_utf8(about.stdout).unwrap();
    about.lines().find_map(|line| line.strip_prefix("host: ")).unwrap().to_owned()
}

fn interpreter_is_absent(binary: &Path) -> bool {
    // A dynamic binary contains the loader's path as text.
    !fs::read(binary).unwrap().windows(8).any(|window| window == b"/ld-linu")
}

struct Init(Child);

impl Drop for Init {
    fn drop(&mut self) {
        // `--kill-child` kills process 1, and with it the whole namespace.
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

#[test]
fn the_static_guest_is_init_of_an_empty_root() {
    let binary = build_static();
    assert!(interpreter_is_absent(&binary));
    let root = tempfile::tempdir().unwrap();
    fs::copy(&binary, root.path().join("guest")).unwrap();
    let unshared = Command::new("unshare")
        .args(["--user", "--map-root-user", "--mount", "--pid", "--fork", "--kill-child", "--root"])
        .arg(root.path())
        .args(["/guest", "--listen", "/socket"])
        .stdin(Stdio::null())
        .spawn();
    let Ok(child) = unshared else {
        println!("skipped: the program unshare (util-linux) is missing");
        return;
    };
    let mut init = Init(child);
    let mut host = Host::connect(&root.path().join("socket"));
    assert_eq!(host.ask(&Request::Ping), Ok(Response::Done));

    let write =
        Request::Write { path: "/notes/first".into(), write: WriteMode::Replace, mode: None, parents: true };
    host.ask_with_body(&write, b"hello").unwrap();
    assert_eq!(fs::read(root.path().join("notes/first")).unwrap(), b"hello");
    assert!(host.ask(&Request::Read { path: "/notes/first".into(), offset: 1, length: Some(3) }).is_ok());
    assert_eq!(host.body(), b"ell");

    // There is no shell, only the guest itself, which prints its usage.
    assert_eq!(host.not_started(&command("sh", &["/bin/sh"])).0, StartFailure::NotFound);
    host.start(&command("self", &["/guest"]));
    let ran = Host::connect(&root.path().join("socket")).follow("self");
    assert!(ran.stderr.contains("usage"), "{ran:?}");
    assert_eq!(ran.report, ExitReport { code: Some(125), ..exited(0) });

    // As process 1 it ends everything, including its orphans.
    host.start(&command("second", &["/guest", "--listen", "/other"]));
    let mut other = Host::connect(&root.path().join("other"));
    assert_eq!(other.ask(&Request::Ping), Ok(Response::Done));
    assert_eq!(host.ask(&Request::KillAll { disk: false }), Ok(Response::Done));
    assert!(other.try_frame().is_none());
    assert_eq!(host.ask(&Request::Shutdown { grace_ms: 1000, signal: None }), Ok(Response::Done));
    assert!(init.0.wait().unwrap().success());
}

//! Real package managers as clients.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

/// Longest that a package manager may take, for `timeout`.
const LIMIT: &str = "120";

/// A program of the host or of `tests/package-clients/install`; says so when it is missing.
#[expect(clippy::print_stdout, reason = "the one who runs the tests is to know what they did not show")]
pub(crate) fn found(program: &str) -> Option<PathBuf> {
    let installed = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/package-clients").join(program);
    let path = if program.starts_with('/') { PathBuf::from(program) } else { installed };
    if path.exists() {
        return Some(path);
    }
    println!("not tested: {} is missing; scripts/install-test-needs installs it", path.display());
    None
}

/// The output of a program, and whether it succeeded. It sees no setting of this machine.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) succeeded: bool,
    pub(crate) output: String,
}

impl Ran {
    #[track_caller]
    pub(crate) fn ok(self) -> String {
        assert!(self.succeeded, "{}", self.output);
        self.output
    }
}

pub(crate) async fn run(home: &Path, program: impl Into<PathBuf>, arguments: &[&str]) -> Ran {
    let mut command = Command::new("timeout");
    command
        .args(["-k", "5", LIMIT])
        .arg(program.into())
        .args(arguments)
        .env_clear()
        .env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
        .env("HOME", home)
        .env("LC_ALL", "C.UTF-8")
        .current_dir(home);
    tokio::task::spawn_blocking(move || {
        let output = command.output().unwrap();
        let text = [output.stdout, output.stderr].concat();
        Ran { succeeded: output.status.success(), output: String::from_utf8_lossy(&text).into_owned() }
    })
    .await
    .unwrap()
}

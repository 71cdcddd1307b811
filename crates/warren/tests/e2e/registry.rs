//! Debian's `docker-registry`, on loopback, for one test.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    path::Path,
    process::{Child, Command, Stdio},
    thread,
};

pub(crate) const USER: &str = "ana";
pub(crate) const PASSWORD: &str = "a-very-secret-password";

pub(crate) struct Registry {
    child: Child,
    pub(crate) address: String,
    _directory: tempfile::TempDir,
}

impl Registry {
    /// Lets in nobody but [`USER`].
    pub(crate) fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
        run("htpasswd", &["-Bbc", &at("htpasswd"), USER, PASSWORD]);
        let config = format!(
            "version: 0.1\nstorage:\n  filesystem:\n    rootdirectory: {}\nhttp:\n  addr: 127.0.0.1:0\n\
             auth:\n  htpasswd:\n    realm: test\n    path: {}\n",
            at("data"),
            at("htpasswd")
        );
        fs::write(at("config.yml"), config).unwrap();
        let started = Command::new("docker-registry")
            .args(["serve", &at("config.yml")])
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn();
        let needed = "docker-registry is needed; scripts/install-test-needs installs it";
        let mut child = started.unwrap_or_else(|error| panic!("{needed}: {error}"));
        let mut log = BufReader::new(child.stderr.take().unwrap()).lines();
        let address = log.by_ref().map_while(Result::ok).find_map(|line| {
            let (_, after) = line.split_once("listening on ")?;
            Some(after.chars().take_while(|c| c.is_ascii_digit() || matches!(c, '.' | ':')).collect())
        });
        thread::spawn(move || log.for_each(drop));
        Self { child, address: address.unwrap(), _directory: directory }
    }

    /// Puts an archive as `docker save` writes it there.
    pub(crate) fn push(&self, archive: &Path, name: &str) {
        run(
            "skopeo",
            &[
                "--insecure-policy",
                "copy",
                "--quiet",
                "--dest-tls-verify=false",
                "--dest-creds",
                &format!("{USER}:{PASSWORD}"),
                &format!("docker-archive:{}", archive.display()),
                &format!("docker://{}/{name}", self.address),
            ],
        );
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

pub(crate) fn run(program: &str, arguments: &[&str]) {
    let output = Command::new(program).args(arguments).output().unwrap();
    assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
}

//! Debian's `docker-registry`, on loopback, for one test.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    path::Path,
    process::{Child, Command, Stdio},
    thread,
};

use images::Reference;
use tempfile::TempDir;

use crate::fixture::{TestImage, run};

pub(crate) struct Registry {
    child: Child,
    address: String,
    directory: TempDir,
    credentials: Option<(String, String)>,
}

impl Registry {
    pub(crate) fn start() -> Self {
        Self::with(None)
    }

    /// Lets in nobody but this user.
    pub(crate) fn start_with_password(username: &str, password: &str) -> Self {
        Self::with(Some((username.to_owned(), password.to_owned())))
    }

    fn with(credentials: Option<(String, String)>) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
        let mut config = format!(
            "version: 0.1\nstorage:\n  filesystem:\n    rootdirectory: {}\nhttp:\n  addr: 127.0.0.1:0\n",
            at("data")
        );
        if let Some((username, password)) = &credentials {
            run("htpasswd", &["-Bbc", &at("htpasswd"), username, password]);
            config.push_str(&format!("auth:\n  htpasswd:\n    realm: test\n    path: {}\n", at("htpasswd")));
        }
        fs::write(at("config.yml"), config).unwrap();
        let mut child = Command::new("docker-registry")
            .args(["serve", &at("config.yml")])
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("docker-registry is needed; scripts/install-test-needs installs it");
        let mut log = BufReader::new(child.stderr.take().unwrap()).lines();
        let address = log
            .by_ref()
            .map_while(Result::ok)
            .find_map(|line| {
                let (_, after) = line.split_once("listening on ")?;
                Some(
                    after
                        .chars()
                        .take_while(|c| c.is_ascii_digit() || matches!(c, '.' | ':'))
                        .collect::<String>(),
                )
            })
            .expect("docker-registry says where it listens");
        thread::spawn(move || log.for_each(drop));
        Self { child, address, directory, credentials }
    }

    pub(crate) fn reference(&self, name: &str) -> Reference {
        format!("{}/{name}", self.address).parse().unwrap()
    }

    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    pub(crate) fn push(&self, image: &TestImage, name: &str) {
        let layout = tempfile::tempdir().unwrap();
        image.write_layout(layout.path(), "it");
        self.push_layout(layout.path(), "it", name);
    }

    pub(crate) fn push_layout(&self, layout: &Path, tag: &str, name: &str) {
        let from = format!("oci:{}:{tag}", layout.display());
        let to = format!("docker://{}/{name}", self.address);
        let credentials =
            self.credentials.as_ref().map(|(username, password)| format!("{username}:{password}"));
        let mut arguments = vec![
            "--insecure-policy",
            "copy",
            "--quiet",
            "--all",
            "--preserve-digests",
            "--dest-tls-verify=false",
        ];
        if let Some(credentials) = &credentials {
            arguments.extend(["--dest-creds", credentials]);
        }
        arguments.extend([from.as_str(), &to]);
        run("skopeo", &arguments);
    }

    /// What it has stored of a blob.
    pub(crate) fn blob_file(&self, hex: &str) -> std::path::PathBuf {
        let blobs = self.directory.path().join("data/docker/registry/v2/blobs/sha256");
        blobs.join(&hex[..2]).join(hex).join("data")
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        let _ended = self.child.kill();
        let _reaped = self.child.wait();
    }
}

//! Debian's `docker-registry`, on loopback, for one test. Tests only: no crate has this among what it is built from.
#![forbid(unsafe_code)]
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "what a test cannot do, it reports by panicking"
)]

use std::{
    fs,
    io::{BufRead as _, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
};

use tempfile::TempDir;

mod token;

use token::TokenService;

/// Ends when it is dropped, with all that it has.
#[derive(Debug)]
pub struct Registry {
    child: Child,
    address: String,
    directory: TempDir,
    /// `user:password`
    credentials: Option<String>,
    tokens: Option<TokenService>,
}

/// The proof that lets a client in.
enum Door<'a> {
    Open,
    Password(&'a str, &'a str),
    Token(&'a str, &'a str),
}

impl Registry {
    /// Lets in everybody.
    pub fn start() -> Self {
        Self::with(&Door::Open)
    }

    /// Lets in nobody but this user.
    pub fn start_with_password(user: &str, password: &str) -> Self {
        Self::with(&Door::Password(user, password))
    }

    /// Lets in whoever has a token of its service, which gives them to this user. Everybody else gets one for nothing.
    pub fn start_with_token_service(user: &str, password: &str) -> Self {
        Self::with(&Door::Token(user, password))
    }

    fn with(door: &Door<'_>) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
        let mut config = format!(
            "version: 0.1\nstorage:\n  filesystem:\n    rootdirectory: {}\nhttp:\n  addr: 127.0.0.1:0\n",
            at("data")
        );
        let mut tokens = None;
        let login = match door {
            Door::Open => None,
            Door::Password(user, password) => {
                run("htpasswd", &["-Bbc", &at("htpasswd"), user, password]);
                config.push_str(&format!(
                    "auth:\n  htpasswd:\n    realm: test\n    path: {}\n",
                    at("htpasswd")
                ));
                Some((user, password))
            }
            Door::Token(user, password) => {
                let service = TokenService::start(directory.path(), user, password);
                config.push_str(&format!(
                    "auth:\n  token:\n    realm: http://{}/token\n    service: {}\n    issuer: {}\n    rootcertbundle: {}\n",
                    service.address, token::SERVICE, token::ISSUER, at("token.crt")
                ));
                tokens = Some(service);
                Some((user, password))
            }
        };
        fs::write(at("config.yml"), config).unwrap();
        let child = Command::new("docker-registry")
            .args(["serve", &at("config.yml")])
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{}", needed("docker-registry", &error)));
        let credentials = login.map(|(user, password)| format!("{user}:{password}"));
        // Before it is waited for: whatever comes of that, it ends.
        let mut registry = Self { child, address: String::new(), directory, credentials, tokens };
        registry.address = registry.wait_for_address();
        registry
    }

    fn wait_for_address(&mut self) -> String {
        let mut log = BufReader::new(self.child.stderr.take().unwrap()).lines();
        let is_of_address = |c: &char| c.is_ascii_digit() || matches!(c, '.' | ':');
        let address = log.by_ref().map_while(Result::ok).find_map(|line| {
            let (_, after) = line.split_once("listening on ")?;
            Some(after.chars().take_while(is_of_address).collect())
        });
        // What nobody reads would stop it.
        thread::spawn(move || log.for_each(drop));
        address.expect("docker-registry says where it listens")
    }

    /// The scopes that its token service was asked for, in order.
    pub fn asked_scopes(&self) -> Vec<String> {
        self.tokens.as_ref().map(TokenService::asked).unwrap_or_default()
    }

    /// Host and port.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Returns the reference by which others pull `name`, which may have a tag.
    pub fn reference(&self, name: &str) -> String {
        format!("{}/{name}", self.address)
    }

    /// Takes in what an OCI layout calls `tag`, byte for byte, for all platforms; answers what it is called now.
    pub fn push_layout(&self, layout: &Path, tag: &str, name: &str) -> String {
        let layout = format!("oci:{}:{tag}", layout.display());
        self.copy(&["--all", "--preserve-digests", &layout], name)
    }

    /// Takes in the image of an archive as `docker save` writes it; answers what it is called now.
    pub fn push_archive(&self, archive: &Path, name: &str) -> String {
        self.copy(&[&format!("docker-archive:{}", archive.display())], name)
    }

    fn copy(&self, from: &[&str], name: &str) -> String {
        let reference = self.reference(name);
        let to = format!("docker://{reference}");
        let mut arguments = vec!["--insecure-policy", "copy", "--quiet", "--dest-tls-verify=false"];
        if let Some(credentials) = &self.credentials {
            arguments.extend(["--dest-creds", credentials]);
        }
        arguments.extend(from);
        arguments.push(&to);
        run("skopeo", &arguments);
        reference
    }

    /// Where it keeps a blob, by the digest without `sha256:`.
    pub fn blob_file(&self, hex: &str) -> PathBuf {
        let blobs = self.directory.path().join("data/docker/registry/v2/blobs/sha256");
        blobs.join(&hex[..2]).join(hex).join("data")
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// Runs a program of the test's needs to its end.
pub fn run(program: &str, arguments: &[&str]) {
    let output = Command::new(program)
        .args(arguments)
        .output()
        .unwrap_or_else(|error| panic!("{}", needed(program, &error)));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?}: {said}");
}

fn needed(program: &str, error: &std::io::Error) -> String {
    format!("{program} is needed ({error}); scripts/install-test-needs installs it")
}

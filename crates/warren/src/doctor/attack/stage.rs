//! The setting of the attack: a separate daemon with its own directories, keys, sandboxes and canaries, all removed at
//! the end.

use std::{
    collections::BTreeMap,
    fs,
    io::{self, Read as _},
    net::SocketAddr,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::Stdio,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use frontends::rest::v1;
use futures_util::stream;
use sandbox::{Enforcement, ExecSpec, LimitKind, Namespace};
use serde_json::{Value, json};
use tokio::{
    process::{Child, Command},
    sync::OnceCell,
};

use super::{super::Scratch, http::Caller, matrix::Belongings, ssrf::Decoys};
use crate::{
    client::{Client, ClientOptions, StartMode, Target},
    daemon::Note,
    directories::Directories,
    env,
    error::CommandResult,
};

/// Namespaces of the two keys.
pub(super) const OURS: &str = "attack-ours";
pub(super) const THEIRS: &str = "attack-theirs";
/// A limit below the amount that is taken of each kind of memory.
pub(super) const MEMORY_LIMIT: u64 = 32 << 20;
/// Written to a file in the sandbox that others must not read.
pub(super) const FILE_SECRET: &str = "attack-content-of-a-neighbour";
/// How long the daemon may take to exit.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long an exec inside may take.
const EXEC_TIME: Duration = Duration::from_secs(15);
const PROXY_VARIABLES: [&str; 3] = ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"];
/// Bytes of answers that are kept to be searched for secrets.
const MAX_SAID: usize = 16 << 20;

pub(crate) struct Stage {
    scratch: Scratch,
    daemon: Child,
    pub(super) operator: Client,
    pub(super) caller: Caller,
    /// Keys: for the sandbox's namespace, for another, and a read-only one.
    pub(super) key: String,
    pub(super) other_key: String,
    pub(super) read_only_key: String,
    /// A sandbox in the first namespace, and one in the second.
    pub(super) sandbox: String,
    pub(super) neighbour: String,
    /// A sandbox with little memory.
    pub(super) small: String,
    /// The isolation of the sandbox, as the daemon states it.
    isolation: Option<sandbox::Isolation>,
    pub(super) limits: (u64, u64),
    /// A value that exists only in the daemon's environment and its files.
    pub(super) secret: String,
    /// A file and a directory that nothing may touch.
    pub(super) canary: Canary,
    /// Servers that the daemon may be tricked into contacting.
    pub(super) decoys: Decoys,
    /// Made when first needed.
    pub(super) belongings: OnceCell<Belongings>,
    /// The daemon's answers to other keys.
    said: Mutex<Vec<u8>>,
}

impl Stage {
    /// Starts the daemon.
    pub(super) async fn begin(directories: &Directories) -> CommandResult<Self> {
        let scratch = Scratch::new(directories, "attack");
        scratch.directories.make()?;
        let secret = format!("attack-secret-{}", random_word()?);
        let decoys = Decoys::listen().await?;
        let (daemon, address) = start_daemon(&scratch.directories, &secret, &decoys).await?;
        let operator = connect(&scratch.directories, None).await?;
        fs::write(scratch.directories.home.join(SECRET_FILE), &secret)?;
        let canary = Canary::new()?;
        Ok(Self {
            scratch,
            daemon,
            operator,
            caller: Caller::new(address),
            key: String::new(),
            other_key: String::new(),
            read_only_key: String::new(),
            sandbox: String::new(),
            neighbour: String::new(),
            small: String::new(),
            isolation: None,
            limits: (0, 0),
            secret,
            canary,
            decoys,
            belongings: OnceCell::new(),
            said: Mutex::default(),
        })
    }

    /// Creates keys and sandboxes.
    pub(super) async fn furnish(&mut self) -> CommandResult<()> {
        self.key = self.make_key(OURS, false).await?;
        self.other_key = self.make_key(THEIRS, false).await?;
        self.read_only_key = self.make_key(OURS, true).await?;
        let sandbox = self.create(json!({ "name": "attacked", "namespace": OURS })).await?;
        self.limits = (u64::from(sandbox.limits.open_files), u64::from(sandbox.limits.pids));
        self.isolation = sandbox.isolation.clone();
        self.sandbox = sandbox.id.to_string();
        self.neighbour =
            self.create(json!({ "name": "neighbour", "namespace": THEIRS })).await?.id.to_string();
        let memory = json!({ "memory": MEMORY_LIMIT, "swap": 0 });
        self.small = self
            .create(json!({ "name": "small", "namespace": OURS, "limits": memory }))
            .await?
            .id
            .to_string();
        self.write(&self.sandbox, "/root/secret", FILE_SECRET).await
    }

    async fn make_key(&self, namespace: &str, read_only: bool) -> CommandResult<String> {
        let request = v1::KeyRequest {
            label: Some(format!("{namespace}-{read_only}")),
            namespace: Some(namespace.parse()?),
            read_only,
            ..v1::KeyRequest::default()
        };
        Ok(self.operator.create_key(&request).await?.secret)
    }

    pub(super) async fn create(&self, spec: Value) -> CommandResult<v1::Sandbox> {
        self.operator.post_json(Target::new(&["sandboxes"]), &spec).await
    }

    pub(super) async fn write(&self, sandbox: &str, path: &str, text: &str) -> CommandResult<()> {
        let bytes = stream::iter([Ok(Bytes::from(text.to_owned()))]);
        self.operator.write_file(sandbox, path, None, bytes).await.map(drop)
    }

    /// Runs a command inside to its end.
    pub(super) async fn exec(&self, sandbox: &str, mut spec: ExecSpec) -> CommandResult<v1::ExecResult> {
        spec.timeout = Some(EXEC_TIME);
        self.operator.exec_and_wait(sandbox, &spec).await
    }

    pub(super) async fn remove(&self, sandbox: &str) {
        self.operator.remove(sandbox, true).await.ok();
    }

    pub(super) fn home(&self) -> &Path {
        &self.scratch.directories.home
    }

    pub(super) fn run_directory(&self) -> &Path {
        &self.scratch.directories.run
    }

    pub(super) fn daemon_pid(&self) -> Option<u32> {
        self.daemon.id()
    }

    /// The process id of a sandbox's guest on the host.
    pub(super) fn guest_pid(&self, sandbox: &str) -> Option<i32> {
        let text = fs::read_to_string(self.run_directory().join(sandbox).join("pid")).ok()?;
        text.split_whitespace().next()?.parse().ok()
    }

    /// Returns the means that limits the sandbox's memory.
    pub(super) fn memory_is_held_by(&self) -> Option<Enforcement> {
        let mut limits = self.isolation.iter().flat_map(|isolation| &isolation.limits);
        limits.find(|statement| statement.limit == LimitKind::Memory).map(|statement| statement.enforcement)
    }

    pub(super) fn is_rootless(&self) -> bool {
        self.isolation.as_ref().is_none_or(|isolation| isolation.rootless)
    }

    /// `own-range`, `subordinate`, `single` or `host`.
    pub(super) fn id_map(&self) -> &str {
        self.isolation.as_ref().map_or("", |isolation| isolation.id_map.as_str())
    }

    /// Keeps an answer, to be searched for secrets at the end.
    pub(super) fn hear(&self, answer: &[u8]) {
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        if said.len() + answer.len() < MAX_SAID {
            said.extend_from_slice(answer);
        }
    }

    pub(super) fn said(&self) -> Vec<u8> {
        self.said.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Sends a request over TCP with a key; the answer is kept.
    pub(super) async fn ask(
        &self,
        key: &str,
        method: &str,
        target: &str,
        body: Option<(&str, Vec<u8>)>,
    ) -> CommandResult<(u16, Vec<u8>)> {
        let answer = self.caller.ask(Some(key), method, target, body).await;
        if let Ok((_, bytes)) = &answer {
            self.hear(bytes);
        }
        answer
    }

    /// The same with any headers, such as those of a browser.
    pub(super) async fn ask_with(
        &self,
        headers: &[(&str, String)],
        method: &str,
        target: &str,
        body: Option<(&str, Vec<u8>)>,
    ) -> CommandResult<(u16, Vec<u8>)> {
        let answer = self.caller.ask_with(headers, method, target, body).await;
        if let Ok((_, bytes)) = &answer {
            self.hear(bytes);
        }
        answer
    }

    /// Removes everything and stops the daemon.
    ///
    /// A request that was dropped half-way may still create a sandbox until the daemon stops. So a second daemon
    /// removes what the first one left.
    pub(super) async fn end(mut self) {
        stop_daemon(&mut self.daemon).await;
        let directories = &self.scratch.directories;
        let Ok((mut daemon, _)) = start_daemon(directories, &self.secret, &self.decoys).await else { return };
        if let Ok(operator) = connect(directories, None).await {
            self.operator = operator;
            self.remove_everything().await;
        }
        stop_daemon(&mut daemon).await;
    }

    async fn remove_everything(&self) {
        for sandbox in self.operator.list(&[]).await.unwrap_or_default() {
            self.remove(sandbox.id.as_str()).await;
        }
        for namespace in [OURS, THEIRS, "default"] {
            self.remove_stored(namespace).await;
        }
        for image in self.operator.images().await.unwrap_or_default() {
            self.operator.remove_image(&image.digest, true).await.ok();
        }
        self.operator.prune_images().await.ok();
    }

    async fn remove_stored(&self, namespace: &str) {
        let Ok(namespace) = namespace.parse() else { return };
        let Ok(client) = connect(&self.scratch.directories, Some(namespace)).await else { return };
        for snapshot in client.snapshots().await.unwrap_or_default() {
            client.remove_snapshot(snapshot.id.as_str(), true).await.ok();
        }
        for volume in client.volumes().await.unwrap_or_default() {
            client.remove_volume_of(&volume).await.ok();
        }
    }
}

async fn start_daemon(
    directories: &Directories,
    secret: &str,
    decoys: &Decoys,
) -> CommandResult<(Child, SocketAddr)> {
    let Directories { home, run, .. } = directories;
    let log = fs::File::options().create(true).append(true).open(home.join("attack.log"))?;
    let config = home.join("attack.toml");
    fs::write(&config, format!("[images]\ninsecure = [{:?}]\n", decoys.registry))?;
    let mut command = Command::new(std::env::current_exe()?);
    command
        .arg0("warren")
        .env(env::HOME_DIRECTORY, home)
        .env(env::RUN_DIRECTORY, run)
        .env("WARREN_ATTACK_SECRET", secret)
        .args(["serve", "--listen", "127.0.0.1:0", "--rate-limit", "0", "--config"])
        .arg(config)
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        // In its own process group, so that Ctrl-C reaches only us: sandboxes are removed before their daemon stops.
        .process_group(0)
        .kill_on_drop(true);
    // Behind a proxy, the probes would test the proxy.
    for name in PROXY_VARIABLES {
        command.env_remove(name).env_remove(name.to_lowercase());
    }
    let daemon = command.spawn()?;
    Ok((daemon, Note::wait_for_address(run).await?))
}

async fn connect(directories: &Directories, namespace: Option<Namespace>) -> CommandResult<Client> {
    let directories = directories.clone();
    Ok(Client::connect(ClientOptions { directories, namespace, start: StartMode::Never }).await?)
}

async fn stop_daemon(daemon: &mut Child) {
    if let Some(pid) = daemon.id().and_then(|pid| rustix::process::Pid::from_raw(pid.cast_signed())) {
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).ok();
        tokio::time::timeout(PATIENCE, daemon.wait()).await.ok();
    }
}

/// Name of the file in the daemon's directory that holds the secret.
pub(super) const SECRET_FILE: &str = "attack-secret-file";

pub(super) fn random_number() -> io::Result<u64> {
    let mut bytes = [0; 8];
    fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(u64::from_ne_bytes(bytes))
}

fn random_word() -> io::Result<String> {
    let mut bytes = [0; 12];
    fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Files outside every sandbox that attackers would like to change.
pub(crate) struct Canary {
    pub(super) directory: PathBuf,
    before: BTreeMap<PathBuf, String>,
}

/// Paths that a mount or a written setting would target.
const CANARY_DIRECTORIES: &[&str] = &["", "sys", "sys/net", "sys/net/ipv4", "etc", "null"];
const CANARY_FILES: &[&str] = &[
    "file",
    "sys/net/ipv4/ip_unprivileged_port_start",
    "etc/hosts",
    "etc/hostname",
    "etc/resolv.conf",
    "etc/passwd",
];

impl Canary {
    /// Writable for everybody: only the isolation, not the file mode, may keep a sandbox out.
    fn new() -> CommandResult<Self> {
        let directory = &std::env::temp_dir().join(format!("warren-attack-{}", random_word()?));
        Self::lay(directory)?;
        let before = contents(directory);
        Ok(Self { directory: directory.to_owned(), before })
    }

    fn lay(directory: &Path) -> io::Result<()> {
        for name in CANARY_DIRECTORIES {
            fs::create_dir(directory.join(name))?;
            fs::set_permissions(directory.join(name), fs::Permissions::from_mode(0o777))?;
        }
        for name in CANARY_FILES {
            fs::write(directory.join(name), CANARY_TEXT)?;
            fs::set_permissions(directory.join(name), fs::Permissions::from_mode(0o666))?;
        }
        Ok(())
    }

    pub(super) fn path(&self) -> String {
        self.directory.display().to_string()
    }

    /// The changes since the last check. They are undone, so that one probe's damage is not counted for another.
    pub(super) fn changes(&self) -> Vec<String> {
        let now = contents(&self.directory);
        let mut changes = Vec::new();
        for (path, text) in &now {
            if self.before.get(path) != Some(text) {
                changes.push(format!("{} was written on the host", path.display()));
            }
        }
        let gone = self.before.keys().filter(|path| !now.contains_key(*path));
        changes.extend(gone.map(|path| format!("{} was removed from the host", path.display())));
        if !changes.is_empty() {
            fs::remove_dir_all(&self.directory).ok();
            Self::lay(&self.directory).ok();
        }
        changes
    }
}

impl Drop for Canary {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.directory).ok();
    }
}

/// A random value that nothing inside can know.
pub(super) const CANARY_TEXT: &str = "canary-of-the-host";

/// Every file below a directory, with its mode and text.
fn contents(directory: &Path) -> BTreeMap<PathBuf, String> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = entry.path();
        let Ok(about) = entry.metadata() else { continue };
        let mode = about.permissions().mode();
        let text = match about.is_file() {
            true => fs::read_to_string(&path).unwrap_or_default(),
            false => String::new(),
        };
        found.insert(path.clone(), format!("{mode:o} {text}"));
        if about.is_dir() {
            found.extend(contents(&path));
        }
    }
    found
}

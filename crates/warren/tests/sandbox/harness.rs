//! A daemon of its own for each test, in directories of its own, and the command line to talk to it.

use std::{
    ffi::OsStr,
    fs,
    io::Write,
    os::unix::{fs::PermissionsExt, process::CommandExt},
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    time::{Duration, Instant},
};

use serde_json::Value;

/// Longest that anything here may take. Generous: the machine may be busy, and a pass never waits for it.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// One daemon with its data and run directories. Dropping it stops the daemon and removes what is left.
pub(crate) struct Daemon {
    directory: tempfile::TempDir,
    /// None where empty.
    proxy: String,
    process: Option<Child>,
    /// A copy of the binary, for this daemon alone.
    own_binary: Option<PathBuf>,
    /// Everything runs as an ordinary user; otherwise as we are.
    is_ordinary: bool,
    /// A Python program that runs beside the daemon, in a network namespace of their own.
    beside: Option<&'static str>,
    /// On TCP too.
    listens: bool,
    /// The certificates that the daemon trusts, in place of the host's.
    roots: Option<PathBuf>,
    /// As on a kernel that cannot bring every port of a sandbox out.
    by_named_ports: bool,
}

/// Makes a world without a way out, in which all these addresses are the machine's own.
const OWN_NETWORK: &str = "ip link set lo up
for range in 93.184.216.0/24 10.0.0.0/8; do ip route add local $range dev lo; done
beside=$1; shift
setpriv --pdeathsig KILL python3 -c \"$beside\" &
exec \"$@\"";

/// Nobody in particular, with subordinate ids.
const ORDINARY: u32 = 65534;
const SUBORDINATE: &str = "65534:200000:65536\n";

impl Daemon {
    pub(crate) fn start() -> Self {
        let mut daemon = Self::unstarted();
        daemon.serve();
        daemon
    }

    /// With this configuration file.
    pub(crate) fn configured(config: &str) -> Self {
        Self::configured_behind(config, "")
    }

    /// The same, with this proxy between the daemon and all registries.
    pub(crate) fn configured_behind(config: &str, proxy: &str) -> Self {
        let mut daemon = Self::unstarted();
        proxy.clone_into(&mut daemon.proxy);
        fs::write(daemon.config_path(), config).unwrap();
        daemon.serve();
        daemon
    }

    /// The same, listening on TCP.
    pub(crate) fn listening(config: &str) -> Self {
        let mut daemon = Self::unstarted();
        daemon.listens = true;
        fs::write(daemon.config_path(), config).unwrap();
        daemon.serve();
        daemon
    }

    pub(crate) fn unstarted() -> Self {
        let directory = tempfile::tempdir().unwrap();
        Self {
            directory,
            proxy: String::new(),
            process: None,
            own_binary: None,
            is_ordinary: false,
            beside: None,
            listens: false,
            roots: None,
            by_named_ports: false,
        }
    }

    /// As on a kernel that cannot bring every port of a sandbox out.
    pub(crate) fn by_named_ports() -> Self {
        let mut daemon = Self::unstarted();
        daemon.by_named_ports = true;
        daemon.serve();
        daemon
    }

    /// Trusts these authorities, and no others.
    pub(crate) fn trusting(roots: PathBuf) -> Self {
        let mut daemon = Self::unstarted();
        daemon.roots = Some(roots);
        daemon.serve();
        daemon
    }

    /// In a network namespace of its own, with a Python program beside it, listening on TCP.
    pub(crate) fn in_own_network(config: &str, beside: &'static str) -> Self {
        let mut daemon = Self::unstarted();
        daemon.beside = Some(beside);
        fs::write(daemon.config_path(), config).unwrap();
        daemon.serve();
        daemon
    }

    pub(crate) fn fails_to_make_networks(&self) -> bool {
        let tried = self.output(["run", "--network", "public", "--", "true"]);
        !tried.status.success()
    }

    /// The port that the daemon listens on, where it does.
    pub(crate) fn tcp_port(&self) -> u16 {
        let about = fs::read_to_string(self.run_directory().join("http.json")).unwrap();
        let (_, port) = about.split_once("127.0.0.1:").unwrap();
        port.chars().take_while(char::is_ascii_digit).collect::<String>().parse().unwrap()
    }

    /// With a copy of the binary that a test may do anything to.
    pub(crate) fn of_own_binary() -> Self {
        let mut daemon = Self::unstarted();
        daemon.copy_binary();
        daemon.serve();
        daemon
    }

    fn copy_binary(&mut self) -> PathBuf {
        let binary = self.directory.path().join("warren");
        copy_program(&warren(), &binary);
        self.own_binary = Some(binary.clone());
        binary
    }

    /// Starts a daemon of an ordinary user with subordinate ids, for a test that runs as root. `None` where that cannot
    /// be.
    pub(crate) fn of_ordinary_user() -> Option<Self> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let has = |name: &str| std::env::split_paths(&path).any(|directory| directory.join(name).is_file());
        if !is_root() || !has("newuidmap") || !has("newgidmap") {
            return None;
        }
        let mut daemon = Self::unstarted();
        let directory = daemon.directory.path();
        fs::set_permissions(directory, fs::Permissions::from_mode(0o755)).unwrap();
        std::os::unix::fs::chown(directory, Some(ORDINARY), Some(ORDINARY)).unwrap();
        fs::write(directory.join("subids"), SUBORDINATE).unwrap();
        let binary = daemon.copy_binary();
        std::os::unix::fs::chown(&binary, Some(ORDINARY), Some(ORDINARY)).unwrap();
        daemon.is_ordinary = true;
        daemon.serve();
        Some(daemon)
    }

    pub(crate) fn runs_as_root(&self) -> bool {
        is_root() && !self.is_ordinary
    }

    /// The program to run, as whoever runs it.
    fn program(&self) -> Command {
        let binary = self.own_binary.clone().unwrap_or_else(warren);
        if !self.is_ordinary {
            return Command::new(binary);
        }
        let subids = self.directory.path().join("subids");
        let script = format!(
            "mount --bind {0} /etc/subuid && mount --bind {0} /etc/subgid && \
             exec setpriv --reuid={ORDINARY} --regid={ORDINARY} --clear-groups \"$@\"",
            subids.display()
        );
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", &script, "sh"]).arg(binary);
        command.env("HOME", self.directory.path()).current_dir("/");
        command
    }

    fn config_path(&self) -> PathBuf {
        self.directory.path().join("config.toml")
    }

    /// Starts the daemon (again) on the same directories and waits until it answers.
    pub(crate) fn serve(&mut self) {
        assert!(self.process.is_none(), "the daemon runs already");
        let log = fs::OpenOptions::new().create(true).append(true).open(self.log_path()).unwrap();
        // A group of its own: a test that kills the daemon must not touch anything else.
        let mut serve = self.command(["serve"]);
        if let Some(beside) = self.beside {
            let mut around = Command::new("unshare");
            around.args(["--net", "sh", "-c", OWN_NETWORK, "sh", beside]).arg(serve.get_program());
            serve = self.with_environment(around, ["serve"]);
        }
        if self.listens || self.beside.is_some() {
            serve.env("WARREN_LISTEN", "127.0.0.1:0");
        }
        let child = serve.stderr(log).stdout(Stdio::null()).process_group(0).spawn().unwrap();
        self.process = Some(child);
        let socket = self.run_directory().join("warren.sock");
        until("the daemon answers", || std::os::unix::net::UnixStream::connect(&socket).is_ok());
    }

    /// Kills the daemon as a crash would: no handler runs.
    pub(crate) fn kill(&mut self) {
        let mut child = self.process.take().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// Waits until the daemon has ended by itself.
    pub(crate) fn ends(&mut self) {
        self.process.take().unwrap().wait().unwrap();
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.as_ref().unwrap().id()
    }

    pub(crate) fn home(&self) -> PathBuf {
        self.directory.path().join("home")
    }

    pub(crate) fn run_directory(&self) -> PathBuf {
        self.directory.path().join("run")
    }

    fn log_path(&self) -> PathBuf {
        self.directory.path().join("daemon.log")
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.log_path()).unwrap_or_default()
    }

    pub(crate) fn command<I, S>(&self, arguments: I) -> Command
    where
        I: IntoIterator<Item = S>,
        S: AsRef<OsStr>,
    {
        self.with_environment(self.program(), arguments)
    }

    fn with_environment<I, S>(&self, mut command: Command, arguments: I) -> Command
    where
        I: IntoIterator<Item = S>,
        S: AsRef<OsStr>,
    {
        command.args(arguments).env("WARREN_HOME", self.home()).env("WARREN_RUN", self.run_directory());
        command.env("WARREN_LISTEN", "none").stdin(Stdio::null());
        if self.config_path().exists() {
            command.env("WARREN_CONFIG", self.config_path());
        }
        if !self.proxy.is_empty() {
            command.env("http_proxy", &self.proxy).env("HTTPS_PROXY", &self.proxy);
        }
        if self.by_named_ports {
            command.env("WARREN_TEST_NAMED_PORTS", "1");
        }
        if let Some(roots) = &self.roots {
            command.env("SSL_CERT_FILE", roots).env_remove("SSL_CERT_DIR");
        }
        command
    }

    pub(crate) fn output<const N: usize>(&self, arguments: [&str; N]) -> Output {
        self.command(arguments).output().unwrap()
    }

    /// Runs a command that must succeed; returns its stdout.
    pub(crate) fn ok<const N: usize>(&self, arguments: [&str; N]) -> String {
        let output = self.output(arguments);
        assert!(
            output.status.success(),
            "warren {} answered {:?}\nstdout: {}\nstderr: {}\ndaemon: {}",
            arguments.join(" "),
            output.status.code(),
            text(&output.stdout),
            text(&output.stderr),
            self.log(),
        );
        text(&output.stdout)
    }

    pub(crate) fn json<const N: usize>(&self, arguments: [&str; N]) -> Value {
        let text = self.ok(arguments);
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error} in {text}"))
    }

    /// Runs a command that must fail; returns its exit code and stderr.
    pub(crate) fn fails<const N: usize>(&self, arguments: [&str; N]) -> (i32, String) {
        let output = self.output(arguments);
        assert!(
            !output.status.success(),
            "warren {} succeeded: {}",
            arguments.join(" "),
            text(&output.stdout)
        );
        (output.status.code().unwrap(), text(&output.stderr))
    }

    /// Makes a sandbox with a name and extra arguments.
    pub(crate) fn create(&self, name: &str, extra: &[&str]) {
        let output = self.command(["create", "--name", name]).args(extra).output().unwrap();
        assert!(output.status.success(), "create {name}: {}\n{}", text(&output.stderr), self.log());
    }

    /// Runs a shell script in a sandbox; returns exit code, stdout and stderr.
    pub(crate) fn sh(&self, name: &str, script: &str) -> (i32, String, String) {
        let output = self.output(["exec", name, "/bin/sh", "-c", script]);
        (output.status.code().unwrap(), text(&output.stdout), text(&output.stderr))
    }

    /// A shell script that must exit 0; returns its stdout without the last line end.
    pub(crate) fn sh_ok(&self, name: &str, script: &str) -> String {
        let (code, out, err) = self.sh(name, script);
        assert_eq!(code, 0, "{script}\nstdout: {out}\nstderr: {err}\ndaemon: {}", self.log());
        out.trim_end_matches('\n').to_owned()
    }

    pub(crate) fn inspect(&self, name: &str) -> Value {
        self.json(["inspect", name])
    }

    /// One exec as the daemon tells it.
    pub(crate) fn exec_view(&self, name: &str, exec: &str) -> Value {
        let execs = self.inspect(name)["execs"].clone();
        execs.as_array().unwrap().iter().find(|view| view["id"] == exec).cloned().unwrap()
    }

    /// Everything on the host that belongs to a sandbox of this daemon. Empty when nothing was left behind.
    pub(crate) fn leftovers(&self) -> Vec<String> {
        let mut found = Vec::new();
        let home = format!("{}/", self.home().display());
        for line in
            fs::read_to_string("/proc/self/mountinfo").unwrap().lines().filter(|line| line.contains(&home))
        {
            found.push(format!("mount: {line}"));
        }
        for directory in [self.home().join("sandboxes"), self.run_directory()] {
            for entry in fs::read_dir(&directory).into_iter().flatten().flatten() {
                if entry.file_name().to_string_lossy().starts_with("sbx-") {
                    found.push(format!("directory: {}", entry.path().display()));
                }
            }
        }
        let rows = self.json(["ps", "--all", "--json"]);
        found.extend(rows["sandboxes"].as_array().unwrap().iter().map(|row| format!("row: {}", row["name"])));
        found
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // A failed test may leave sandboxes; they must not outlive it.
        if self.process.is_some() {
            let rows = self.output(["ps", "--all", "--json"]);
            let rows: Value = serde_json::from_slice(&rows.stdout).unwrap_or_default();
            for row in rows["sandboxes"].as_array().into_iter().flatten() {
                if let Some(id) = row["id"].as_str() {
                    self.output(["rm", "--force", id]);
                }
            }
        }
        if let Some(mut child) = self.process.take() {
            let pid = rustix::process::Pid::from_child(&child);
            rustix::process::kill_process(pid, rustix::process::Signal::TERM).ok();
            child.wait().ok();
        }
    }
}

/// The binary under test: the one cargo built, or a copy that another user can reach.
fn warren() -> PathBuf {
    std::env::var_os("WARREN_BIN").map_or_else(|| PathBuf::from(env!("CARGO_BIN_EXE_warren")), PathBuf::from)
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Waits for a fact, looking often; fails with its name when it never comes.
pub(crate) fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < PATIENCE, "gave up waiting until {what}");
        // The facts waited for have no event to listen to: another process's start, a cgroup's end.
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Writes a file that a test hands to a sandbox.
pub(crate) fn host_file(directory: &Path, name: &str, bytes: &[u8]) -> PathBuf {
    let path = directory.join(name);
    fs::File::create(&path).unwrap().write_all(bytes).unwrap();
    path
}

/// Copies a program by another process. A child that another test starts meanwhile would inherit our descriptor, and
/// a file that is open for writing cannot be run.
pub(crate) fn copy_program(from: &Path, to: &Path) {
    assert!(Command::new("cp").args([from, to]).status().unwrap().success());
}

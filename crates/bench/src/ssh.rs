//! How fast SSH is: files by sftp, and the time from connecting to the first output, beside OpenSSH's own server on the
//! same machine, by the same client.

use std::{
    fs,
    net::TcpListener,
    path::{Path, PathBuf},
    process::Stdio,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use serde_json::json;
use tokio::{
    net::TcpStream,
    process::{Child, Command},
};

use crate::{
    daemon::{Daemon, machine},
    progress,
    report::Report,
    samples::Samples,
};

const SSHD: &str = "/usr/sbin/sshd";
const PATIENCE: Duration = Duration::from_secs(20);
const LOOK_EVERY: Duration = Duration::from_millis(5);

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Size of the file in MiB
    #[arg(long, default_value_t = 512, value_parser = clap::value_parser!(u32).range(1..=16_384))]
    mib: u32,
    /// How often the file is sent and fetched each way
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    runs: u32,
    /// How many connections are made each way
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    connections: u32,
    /// Cipher of both, such as aes256-gcm@openssh.com; the client's first choice when absent
    #[arg(long)]
    cipher: Option<String>,
}

/// The key exchange of both, unless the client's own choice is measured. The first choice of an older client may be one
/// that only OpenSSH's server has, and takes longer than everything else.
const KEY_EXCHANGE: &str = "KexAlgorithms=curve25519-sha256";

pub(crate) async fn measure(program: &Path, options: &Options) -> Result<Report> {
    ensure!(Path::new(SSHD).exists(), "{SSHD} is missing: scripts/install-test-needs installs it");
    let port = free_port()?;
    let listen = format!("127.0.0.1:{port}");
    let daemon = Daemon::start(program, &["--listen", "none", "--ssh", &listen]).await?;
    let measured = compare(&daemon, port, options).await;
    daemon.stop().await;
    measured
}

/// One server, by the client's own words.
struct Server {
    who: &'static str,
    port: u16,
    user: String,
    /// Where the file goes.
    remote: PathBuf,
    cipher: Option<String>,
}

async fn compare(daemon: &Daemon, port: u16, options: &Options) -> Result<Report> {
    let (mut report, place) = (machine(), daemon.scratch().join("ssh"));
    fs::create_dir(&place)?;
    keygen(&place.join("user")).await?;
    keygen(&place.join("host")).await?;
    daemon.post("/sandboxes", json!({ "name": "bench" })).await?;
    let key = daemon.post("/keys", json!({ "label": "bench" })).await?;
    let public_key = fs::read_to_string(place.join("user.pub"))?;
    daemon.post("/ssh-keys", json!({ "key": key["key"]["id"], "publicKey": public_key })).await?;
    let peer = Sshd::start(&place).await?;
    let servers = [
        ("sshd", peer.port, whoami(), place.join("remote")),
        ("warren", port, "bench".to_owned(), "/root/remote".into()),
    ]
    .map(|(who, port, user, remote)| Server { who, port, user, remote, cipher: options.cipher.clone() });
    let local = place.join("local");
    fs::write(&local, noise(options.mib))?;

    let (mut puts, mut gets) = ([const { Vec::new() }; 2], [const { Vec::new() }; 2]);
    let (mut connects, mut default_connects) = ([const { Vec::new() }; 2], [const { Vec::new() }; 2]);
    for run in 0..options.runs {
        for (index, server) in servers.iter().enumerate() {
            let (local, remote) = (local.display(), server.remote.display());
            puts[index].push(server.sftp(&place, &format!("put {local} {remote}")).await?);
            gets[index]
                .push(server.sftp(&place, &format!("get {remote} {}", place.join("back").display())).await?);
        }
        progress("files", run as usize, options.runs as usize);
    }
    ensure!(fs::read(place.join("back"))? == fs::read(&local)?, "the file came back changed");
    for run in 0..options.connections {
        for (index, server) in servers.iter().enumerate() {
            connects[index].push(server.first_output(&place, KeyExchange::Same).await?);
            default_connects[index].push(server.first_output(&place, KeyExchange::Default).await?);
        }
        progress("connections", run as usize, options.connections as usize);
    }
    let names = || servers.iter().map(|server| server.who.to_owned());
    let best = |times: &[Duration; 2]| times[0].as_secs_f64() / times[1].as_secs_f64();
    for (what, times) in [("sftp put", puts), ("sftp get", gets)] {
        let fastest = times.each_ref().map(|times| times.iter().min().copied().unwrap_or_default());
        report.compare(what, names().zip(times.map(Samples::from)).collect());
        report.fact(format!("{what}, throughput of warren beside sshd, best"), best(&fastest), "×");
        for (who, time) in names().zip(fastest) {
            report.fact(format!("{what}, {who}, best"), f64::from(options.mib) / time.as_secs_f64(), "MiB/s");
        }
    }
    for (what, times) in [
        ("connect to first output", connects),
        ("connect to first output, default key exchange", default_connects),
    ] {
        report.compare(what, names().zip(times.map(Samples::from)).collect());
    }
    drop(peer);
    Ok(report)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum KeyExchange {
    /// The same for both servers.
    Same,
    /// The one that the client chooses by itself, of those that a server has.
    Default,
}

impl Server {
    fn options(&self, place: &Path, key_exchange: KeyExchange) -> Vec<String> {
        [
            format!("Port={}", self.port),
            format!("User={}", self.user),
            format!("IdentityFile={}", place.join("user").display()),
            "IdentitiesOnly=yes".to_owned(),
            "BatchMode=yes".to_owned(),
            "StrictHostKeyChecking=no".to_owned(),
            "UserKnownHostsFile=/dev/null".to_owned(),
            "LogLevel=ERROR".to_owned(),
        ]
        .into_iter()
        .chain((key_exchange == KeyExchange::Same).then(|| KEY_EXCHANGE.to_owned()))
        .chain(self.cipher.iter().map(|cipher| format!("Ciphers={cipher}")))
        .flat_map(|option| ["-o".to_owned(), option])
        .collect()
    }

    /// How long a batch of one command takes, with the connection.
    async fn sftp(&self, place: &Path, batch: &str) -> Result<Duration> {
        let file = place.join("batch");
        fs::write(&file, batch)?;
        let mut sftp = Command::new("sftp");
        sftp.args(["-q", "-F", "/dev/null", "-b"]).arg(&file);
        sftp.args(self.options(place, KeyExchange::Same)).arg("127.0.0.1");
        self.time(sftp).await
    }

    /// How long it takes until the whole output of a small command is there.
    async fn first_output(&self, place: &Path, key_exchange: KeyExchange) -> Result<Duration> {
        let mut ssh = Command::new("ssh");
        ssh.args(["-F", "/dev/null"]).args(self.options(place, key_exchange));
        ssh.args(["127.0.0.1", "echo", "first"]);
        self.time(ssh).await
    }

    async fn time(&self, mut command: Command) -> Result<Duration> {
        let began = Instant::now();
        let ran = command.stdin(Stdio::null()).kill_on_drop(true).output().await?;
        let took = began.elapsed();
        let said = String::from_utf8_lossy(&ran.stderr);
        ensure!(ran.status.success(), "{}: {said}", self.who);
        Ok(took)
    }
}

/// OpenSSH's server, for the user who runs this.
struct Sshd {
    port: u16,
    _process: Child,
}

impl Sshd {
    async fn start(place: &Path) -> Result<Self> {
        // It insists on an empty directory of this name, when root starts it.
        fs::create_dir_all("/run/sshd").ok();
        let port = free_port()?;
        let keys = place.join("user.pub");
        let process = plain_shell(place)?
            .arg(SSHD)
            .args(["-D", "-e", "-f", "/dev/null", "-p", &port.to_string()])
            .args(["-h"])
            .arg(place.join("host"))
            .arg(format!("-oAuthorizedKeysFile={}", keys.display()))
            .args(["-oListenAddress=127.0.0.1", "-oStrictModes=no", "-oUsePAM=no", "-oPermitRootLogin=yes"])
            .args(["-oSubsystem=sftp /usr/lib/openssh/sftp-server", "-oPidFile=none"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .context("could not start sshd")?;
        let deadline = Instant::now() + PATIENCE;
        while TcpStream::connect(("127.0.0.1", port)).await.is_err() {
            ensure!(Instant::now() < deadline, "sshd does not listen");
            tokio::time::sleep(LOOK_EVERY).await;
        }
        Ok(Self { port, _process: process })
    }
}

/// Runs a program for which the user's shell is `sh`, as in a sandbox, and the home directory is empty: OpenSSH's
/// server starts everything by that shell, and what its files do for half a second is not the server's time. Only root
/// can arrange that; others compare with their own shell.
fn plain_shell(place: &Path) -> Result<Command> {
    if !rustix::process::geteuid().is_root() {
        return Ok(Command::new("env"));
    }
    let (passwd, home) = (place.join("passwd"), place.join("home"));
    fs::create_dir(&home)?;
    let own = |line: &str| match line.split(':').nth(2) {
        Some("0") => format!("{}:x:0:0::{}:/bin/sh\n", whoami(), home.display()),
        _ => format!("{line}\n"),
    };
    fs::write(&passwd, fs::read_to_string("/etc/passwd")?.lines().map(own).collect::<String>())?;
    let mut command = Command::new("unshare");
    command
        .args(["-m", "sh", "-c", "mount --bind \"$1\" /etc/passwd && shift && exec \"$@\"", "sh"])
        .arg(passwd);
    Ok(command)
}

async fn keygen(path: &Path) -> Result<()> {
    let made = Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(path).status();
    ensure!(made.await?.success(), "ssh-keygen failed");
    Ok(())
}

fn free_port() -> Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

fn whoami() -> String {
    let uid = rustix::process::getuid().as_raw();
    let passwd = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let own = passwd.lines().find(|line| line.split(':').nth(2) == Some(&uid.to_string()));
    own.and_then(|line| line.split(':').next()).unwrap_or("root").to_owned()
}

/// Bytes that do not repeat in any block.
fn noise(mib: u32) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let words = (mib as usize) << 17;
    let mut bytes = Vec::with_capacity(words * 8);
    for _ in 0..words {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes
}

//! Archives of a real Docker, and ours as it reads them.

use std::{
    fs::{self, File},
    io::Cursor,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use images::{Format, Image, Images, Platform};

use crate::fixture::options;

/// Made by `docker save team/second:1 team/first:1 team/also:2` of Docker 20.10: an imported tree of which
/// `team/first:1` and `team/also:2` are two names, and an image that its builder made on it.
const SAVED: &[u8] = include_bytes!("docker-save.tar.gz");
/// The same in Docker's words: the digests of their configurations.
const SECOND: &str = "sha256:1f3ef28331f06e375a66bc5d6b30264b7c54ffab9bcec9869c7ec7409751149a";
const PATIENCE: Duration = Duration::from_secs(60);

fn names(loaded: &[Image]) -> Vec<String> {
    let mut names: Vec<_> = loaded.iter().flat_map(|image| &image.names).map(ToString::to_string).collect();
    names.sort();
    names
}

#[tokio::test(flavor = "multi_thread")]
async fn what_docker_saved_is_read() {
    let home = tempfile::tempdir().unwrap();
    let images = Images::open(home.path(), options()).await.unwrap();
    let loaded = images.load(Cursor::new(SAVED), Option::<Platform>::None).await.unwrap();
    assert_eq!(
        names(&loaded),
        ["docker.io/team/also:2", "docker.io/team/first:1", "docker.io/team/second:1"]
    );
    let second = images.get("team/second:1").await.unwrap();
    let config = &second.config;
    assert_eq!((&config.cmd[..], config.user.as_deref()), (&["/bin/app".to_owned()][..], Some("1000:1000")));
    assert_eq!(config.working_dir.as_deref(), Some("/opt/deep"));
    assert_eq!(config.stop_signal.as_deref(), Some("SIGINT"));
    assert_eq!(config.labels.get("x").map(String::as_str), Some("y"));
    assert!(config.env.iter().any(|pair| pair == "C=d"), "{:?}", config.env);
    let [above, below] = &second.lowers[..] else { panic!("{:?}", second.lowers) };
    assert_eq!(fs::read_to_string(above.join("etc/two")).unwrap(), "two\n");
    assert_eq!(fs::read_to_string(below.join("etc/one")).unwrap(), "one\n");
    assert_eq!(fs::read_link(below.join("etc/link")).unwrap(), Path::new("one"));
    let first = images.get("team/first:1").await.unwrap();
    assert_eq!(first.lowers, std::slice::from_ref(below));
}

/// A Docker of our own, apart from any other on this machine.
struct Docker {
    daemon: Child,
    place: tempfile::TempDir,
}

impl Docker {
    /// `None` where there is none, or where it does not work.
    fn start() -> Option<Self> {
        let place = tempfile::tempdir().unwrap();
        let at = |name: &str| place.path().join(name);
        let daemon = Command::new("dockerd")
            .arg("--data-root")
            .arg(at("data"))
            .arg("--exec-root")
            .arg(at("exec"))
            .arg("--pidfile")
            .arg(at("pid"))
            .arg("--host")
            .arg(format!("unix://{}", at("sock").display()))
            .args(["--iptables=false", "--ip6tables=false", "--bridge=none", "--storage-driver=vfs"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .ok()?;
        let mut docker = Self { daemon, place };
        let start = Instant::now();
        while start.elapsed() < PATIENCE && docker.daemon.try_wait().unwrap().is_none() {
            if docker.command(&["version"]).output().ok()?.status.success() {
                return Some(docker);
            }
            // Another's program: it tells nobody when it listens.
            std::thread::sleep(Duration::from_millis(50));
        }
        None
    }

    fn at(&self, name: &str) -> PathBuf {
        self.place.path().join(name)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("docker");
        command.arg("--host").arg(format!("unix://{}", self.at("sock").display())).args(arguments);
        command
    }

    fn ok(&self, arguments: &[&str]) -> String {
        let output = self.command(arguments).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }
}

impl Drop for Docker {
    fn drop(&mut self) {
        // Asked, it ends what it started itself.
        let pid = rustix::process::Pid::from_child(&self.daemon);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).ok();
        self.daemon.wait().ok();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn docker_loads_what_we_save_and_we_load_what_it_saves() {
    let Some(docker) = Docker::start() else {
        println!("skipped: no dockerd that can be started here");
        return;
    };
    let home = tempfile::tempdir().unwrap();
    let images = Images::open(home.path(), options()).await.unwrap();
    images.load(Cursor::new(SAVED), Option::<Platform>::None).await.unwrap();
    let ours = docker.at("ours.tar");
    images.save("team/second:1", File::create(&ours).unwrap(), Format::Docker).await.unwrap();
    docker.ok(&["load", "--input", ours.to_str().unwrap()]);
    // The very same to Docker.
    assert_eq!(docker.ok(&["image", "inspect", "--format", "{{.Id}}", "team/second:1"]).trim(), SECOND);

    let theirs = docker.at("theirs.tar");
    docker.ok(&["save", "--output", theirs.to_str().unwrap(), "team/second:1"]);
    let elsewhere = tempfile::tempdir().unwrap();
    let others = Images::open(elsewhere.path(), options()).await.unwrap();
    let loaded = others.load(File::open(&theirs).unwrap(), Option::<Platform>::None).await.unwrap();
    assert_eq!(names(&loaded), ["docker.io/team/second:1"]);
    assert_eq!(loaded[0].digest, images.get("team/second:1").await.unwrap().digest);
}

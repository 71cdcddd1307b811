//! The same small job done by others on the same machine: create a sandbox, run `echo` in it, remove it.

use std::{
    fs, io,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

/// The program that every peer runs, so that they can be compared.
const PROGRAM: [&str; 3] = ["/bin/sh", "-c", "echo ready"];

/// One way to do the job.
#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) name: &'static str,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    /// fork and exec without isolation: the lower bound.
    Bare,
    Bwrap,
    Runc {
        bundle: PathBuf,
    },
    Docker {
        image: String,
    },
}

impl Peer {
    /// The peers that work here. `scratch` holds their files for as long as they are used.
    pub(crate) fn installed(scratch: &Path) -> Vec<Self> {
        let mut peers = vec![Self { name: "fork+exec", kind: Kind::Bare }];
        let candidates = [
            (has("bwrap"), Ok(Self { name: "bwrap", kind: Kind::Bwrap })),
            (
                has("runc"),
                runc_bundle(scratch).map(|bundle| Self { name: "runc", kind: Kind::Runc { bundle } }),
            ),
            (
                has("docker"),
                docker_image(scratch).map(|image| Self { name: "docker", kind: Kind::Docker { image } }),
            ),
        ];
        for (is_installed, peer) in candidates {
            match peer {
                // Tried once: a peer that is installed but does not work here is left out, not reported as fast.
                Ok(peer) if is_installed && peer.run().is_ok() => peers.push(peer),
                Ok(_) | Err(_) => {}
            }
        }
        peers
    }

    /// Does the job once; returns how long it took.
    pub(crate) fn run(&self) -> io::Result<Duration> {
        let mut command = self.command();
        command.stdin(Stdio::null()).stderr(Stdio::null());
        let start = Instant::now();
        let output = command.output()?;
        let took = start.elapsed();
        succeeded(output.status.success() && output.stdout.starts_with(b"ready"), self.name)?;
        Ok(took)
    }

    fn command(&self) -> Command {
        match &self.kind {
            Kind::Bare => with_arguments("/bin/sh", &PROGRAM[1..]),
            Kind::Bwrap => {
                let mut command = with_arguments("bwrap", &["--unshare-all", "--die-with-parent"]);
                command.args([
                    "--ro-bind",
                    "/usr",
                    "/usr",
                    "--proc",
                    "/proc",
                    "--dev",
                    "/dev",
                    "--tmpfs",
                    "/tmp",
                ]);
                for (name, target) in merged_links() {
                    command.arg("--symlink").arg(target).arg(name);
                }
                command.args(PROGRAM);
                command
            }
            Kind::Runc { bundle } => {
                let mut command = with_arguments("runc", &["run", "--bundle"]);
                command.arg(bundle).arg(format!("warren-bench-{}", std::process::id()));
                command
            }
            Kind::Docker { image } => {
                let mut command =
                    with_arguments("docker", &["run", "--rm", "--network=none", "-v", "/usr:/usr:ro"]);
                command.arg(image).args(PROGRAM);
                command
            }
        }
    }
}

fn succeeded(did: bool, what: &str) -> io::Result<()> {
    if did { Ok(()) } else { Err(io::Error::other(format!("{what} did not do the job"))) }
}

fn with_arguments(program: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.args(arguments);
    command
}

fn has(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|directory| directory.join(program).is_file())
}

/// `/bin` and the like, if they are links into `/usr`.
fn merged_links() -> Vec<(String, PathBuf)> {
    let names = ["bin", "sbin", "lib", "lib32", "lib64", "libx32"];
    names
        .iter()
        .filter_map(|name| Some((format!("/{name}"), fs::read_link(format!("/{name}")).ok()?)))
        .collect()
}

/// A root with nothing but links into `/usr` and the mount points.
fn skeleton(root: &Path) -> io::Result<()> {
    for directory in ["usr", "proc", "dev", "sys", "tmp", "etc"] {
        fs::create_dir_all(root.join(directory))?;
    }
    for (name, target) in merged_links() {
        std::os::unix::fs::symlink(target, root.join(name.trim_start_matches('/')))?;
    }
    Ok(())
}

fn runc_bundle(scratch: &Path) -> io::Result<PathBuf> {
    let bundle = scratch.join("runc");
    skeleton(&bundle.join("rootfs"))?;
    let made = Command::new("runc").arg("spec").current_dir(&bundle).stdout(Stdio::null()).status()?;
    succeeded(made.success(), "runc spec")?;
    let path = bundle.join("config.json");
    let mut config: serde_json::Value = serde_json::from_slice(&fs::read(&path)?)?;
    config["process"]["terminal"] = false.into();
    config["process"]["args"] = PROGRAM.iter().map(|part| serde_json::Value::from(*part)).collect();
    if let Some(mounts) = config["mounts"].as_array_mut() {
        mounts.push(serde_json::json!({
            "destination": "/usr", "type": "bind", "source": "/usr", "options": ["rbind", "ro"],
        }));
    }
    fs::write(&path, serde_json::to_vec(&config)?)?;
    Ok(bundle)
}

/// An empty image: the host's `/usr` is mounted, as for the others.
fn docker_image(scratch: &Path) -> io::Result<String> {
    let root = scratch.join("docker");
    skeleton(&root)?;
    let archive = scratch.join("docker.tar");
    let mut builder = tar::Builder::new(fs::File::create(&archive)?);
    builder.follow_symlinks(false);
    builder.append_dir_all(".", &root)?;
    builder.finish()?;
    let image = "warren-bench:latest";
    let mut import = with_arguments("docker", &["import"]);
    let made = import.arg(&archive).arg(image).stdout(Stdio::null()).stderr(Stdio::null()).status()?;
    succeeded(made.success(), "docker import")?;
    Ok(image.to_owned())
}

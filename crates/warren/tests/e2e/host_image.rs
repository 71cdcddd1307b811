//! Image `host` stays true to a host whose packages change: real packages, on a host of the test's own.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use rustix::process::Signal;

use crate::{
    docker::{as_nobody, ordinary_world},
    pool,
    support::{PATIENCE, World, ends_within, until},
};

/// The directories that packages change.
const CHANGED: [&str; 3] = ["etc", "usr", "var"];

/// A mount namespace whose `/etc`, `/usr` and `/var` can be changed without the machine noticing, and a daemon in it.
struct OwnHost {
    daemon: Child,
}

impl OwnHost {
    /// `None` where the kernel or the file system does not allow it.
    fn start(world: &World) -> Option<Self> {
        let layers = world.files().join("own-host");
        fs::create_dir_all(&layers).unwrap();
        let mut script = format!("set -e\nmount -t tmpfs none {}\n", layers.display());
        for name in CHANGED {
            let at = layers.join(name);
            script.push_str(&format!(
                "mkdir -p {0}/up {0}/work\n\
                 mount -t overlay none -o lowerdir=/{name},upperdir={0}/up,workdir={0}/work /{name}\n",
                at.display()
            ));
        }
        let tried = Command::new("unshare").args(["-m", "sh", "-c", &script]).output().unwrap();
        if !tried.status.success() {
            println!("not tested: {}", String::from_utf8_lossy(&tried.stderr));
            return None;
        }
        let serve = world.command(&["serve", "--listen", "none", "--config", &pool::config(world)]);
        let mut daemon = Command::new("unshare");
        daemon.args(["-m", "sh", "-c", &format!("{script}exec \"$@\""), "sh"]).arg(serve.get_program());
        daemon.args(serve.get_args()).env_clear();
        daemon.envs(serve.get_envs().filter_map(|(name, value)| Some((name, value?))));
        let daemon = daemon.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        until("the daemon is ready", || world.socket().exists());
        Some(Self { daemon })
    }

    /// Installs a package on this host, and on no other.
    fn install(&self, archive: &Path) {
        let pid = self.daemon.id().to_string();
        let installed = Command::new("nsenter")
            .args(["-m", "-t", &pid, "dpkg", "-i"])
            .arg(archive)
            .env("DEBIAN_FRONTEND", "noninteractive")
            .output()
            .unwrap();
        assert!(installed.status.success(), "{}", String::from_utf8_lossy(&installed.stderr));
    }
}

impl Drop for OwnHost {
    fn drop(&mut self) {
        let pid = rustix::process::Pid::from_child(&self.daemon);
        rustix::process::kill_process(pid, Signal::TERM).ok();
        let pidfd = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty());
        if !pidfd.is_ok_and(|pidfd| ends_within(&pidfd, PATIENCE)) {
            self.daemon.kill().ok();
        }
        self.daemon.wait().ok();
    }
}

/// A package with these files and this script after it is unpacked.
fn package(world: &World, name: &str, files: &[(&str, &str)], after: &str) -> PathBuf {
    let tree = world.files().join(name);
    let put = |path: &str, text: &str, mode: u32| {
        let path = tree.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    };
    let control = format!(
        "Package: {name}\nVersion: 1:99\nArchitecture: all\nMaintainer: Nobody <nobody@example.org>\nDescription: test\n"
    );
    put("DEBIAN/control", &control, 0o644);
    put("DEBIAN/postinst", &format!("#!/bin/sh\nset -e\n{after}\n"), 0o755);
    for (path, text) in files {
        put(path, text, 0o755);
    }
    let archive = world.files().join(format!("{name}.deb"));
    let built = Command::new("dpkg-deb").args(["--root-owner-group", "-b"]).arg(&tree).arg(&archive).output();
    assert!(built.unwrap().status.success());
    archive
}

fn has_dpkg() -> bool {
    let has = Path::new("/usr/bin/dpkg-deb").exists() && Path::new("/var/lib/dpkg/status").exists();
    if !has {
        println!("not tested: no Debian here");
    }
    has
}

#[test]
fn packages_of_the_host_that_change_are_there_in_new_sandboxes() {
    if !rustix::process::geteuid().is_root() {
        return println!("not tested: only root has a host of its own");
    }
    let world = World::new();
    let Some(host) = has_dpkg().then(|| OwnHost::start(&world)).flatten() else { return };
    world.run(&["create", "--name", "old"]).expect(0);
    // Places that wait now are of the old world.
    world.run(&["create", "--name", "other"]).expect(0);
    until("two places wait", || pool::waiting(&world).len() == 2);
    let warnings = || world.run(&["inspect", "old"]).expect(0).json()["warnings"].to_string();
    assert!(!warnings().contains("packages changed"), "{}", warnings());
    let files =
        [("usr/bin/badger-1", "#!/bin/sh\necho badger\n"), ("etc/ld.so.conf.d/badger.conf", "/srv\n")];
    let after =
        "update-alternatives --install /usr/bin/badger badger /usr/bin/badger-1 10 >/dev/null\nldconfig";
    host.install(&package(&world, "badger", &files, after));

    // The program is a link through /etc, and dpkg and the linker know of it too.
    let script = "badger && dpkg -s badger | grep ^Status && cat /etc/ld.so.conf.d/badger.conf";
    let ran = world.run(&["run", "sh", "-c", script]).expect(0);
    assert_eq!(ran.text(), "badger\nStatus: install ok installed\n/srv\n");
    // The old one has the program in /usr, and no link in /etc; it says so, until it is started again.
    world.run(&["exec", "old", "badger-1"]).expect(0);
    world.run(&["exec", "old", "badger"]).expect(127);
    assert!(warnings().contains("packages changed") && warnings().contains("Restart it"), "{}", warnings());
    world.run(&["restart", "old"]).expect(0);
    assert_eq!(world.run(&["exec", "old", "badger"]).expect(0).text(), "badger\n");
    assert!(!warnings().contains("packages changed"), "{}", warnings());
    assert!(!Path::new("/usr/bin/badger-1").exists(), "the machine itself is as it was");
    world.run(&["rm", "-f", "old", "other"]).expect(0);
}

#[test]
fn a_user_without_root_upgrades_a_program_that_the_host_has() {
    if !has_dpkg() || !Path::new("/var/lib/dpkg/info/patch.list").exists() {
        return println!("not tested: the package patch is not installed");
    }
    let world = ordinary_world();
    as_nobody(&world, &["create", "--name", "dev"]).expect(0);
    let upgrade = |name: &str, files: &[(&str, &str)]| {
        let archive = package(&world, name, files, "");
        let target = format!("dev:/tmp/{name}.deb");
        as_nobody(&world, &["cp", archive.to_str().unwrap(), &target]).expect(0);
        as_nobody(&world, &["exec", "dev", "apt-get", "install", "-y", &format!("/tmp/{name}.deb")])
    };
    let patch = [
        ("usr/bin/patch", "#!/bin/sh\necho newer\n"),
        ("usr/share/man/man1/patch.1.gz", "not really"),
        ("usr/share/doc/patch/copyright", "left out"),
    ];
    upgrade("patch", &patch).expect(0);
    assert_eq!(as_nobody(&world, &["exec", "dev", "patch"]).expect(0).text(), "newer\n");
    // A package with directories of its own cannot be replaced without root. Nothing is half done then.
    if Path::new("/usr/lib/python3/dist-packages/numpy/version.py").exists() {
        let refused = upgrade("python3-numpy", &[("usr/lib/python3/dist-packages/numpy/version.py", "")]);
        let before = as_nobody(&world, &["exec", "dev", "dpkg", "-s", "python3-numpy"]).expect(0).text();
        assert!(refused.stderr.contains("cannot be replaced here") && refused.code != Some(0), "{refused:?}");
        assert!(before.contains("install ok installed") && !before.contains("1:99"), "{before}");
    }
    as_nobody(&world, &["rm", "-f", "dev"]).expect(0);
}

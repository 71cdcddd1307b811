//! What can be read off the host, each with the command that mends it.

use std::{fs, path::Path};

use rustix::{
    fs::{Access, access, statvfs},
    process::{Resource, getrlimit, getuid},
    system::uname,
};

use super::Check;
use crate::{directories::Directories, output};

/// The first kernel whose overlay works in a user namespace.
const MIN_KERNEL: (u32, u32) = (5, 11);
/// Below this a few sandboxes fill the disk.
const MIN_FREE_BYTES: u64 = 1024 * 1024 * 1024;
/// Each sandbox takes a handful of descriptors of the daemon.
const MIN_OPEN_FILES: u64 = 1024;
const CONTROLLERS: [&str; 3] = ["memory", "cpu", "pids"];

pub(crate) fn check_host(directories: &Directories) -> Vec<Check> {
    let is_root = getuid().is_root();
    let mut checks =
        vec![kernel(), user_namespaces(), apparmor(is_root), overlay(), seccomp(), cgroups(is_root)];
    if !is_root {
        checks.push(subordinate_ids());
    }
    checks.push(open_files());
    checks.push(home(&directories.home));
    checks
}

fn read(path: &str) -> Option<String> {
    fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}

fn kernel() -> Check {
    let name = "kernel";
    let release = uname().release().to_string_lossy().into_owned();
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|part| part.parse().unwrap_or(0));
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    if version >= MIN_KERNEL {
        return Check::works(name, format!("Linux {release}"));
    }
    let (major, minor) = MIN_KERNEL;
    Check::missing(name, format!("Linux {release}; {major}.{minor} is needed"), "Install a newer kernel.")
}

fn user_namespaces() -> Check {
    let name = "user namespaces";
    if !Path::new("/proc/self/ns/user").exists() {
        return Check::missing(
            name,
            "this kernel was built without them",
            "Install a kernel with CONFIG_USER_NS.",
        );
    }
    for (file, setting) in [
        ("/proc/sys/user/max_user_namespaces", "user.max_user_namespaces=15000"),
        ("/proc/sys/kernel/unprivileged_userns_clone", "kernel.unprivileged_userns_clone=1"),
    ] {
        if read(file).as_deref() == Some("0") {
            return Check::missing(name, format!("{file} is 0"), format!("sudo sysctl -w {setting}"));
        }
    }
    Check::works(name, "allowed")
}

fn apparmor(is_root: bool) -> Check {
    let name = "apparmor";
    let is_restricted =
        read("/proc/sys/kernel/apparmor_restrict_unprivileged_userns").as_deref() == Some("1");
    if is_restricted && !is_root {
        return Check::missing(
            name,
            "AppArmor keeps ordinary users from making user namespaces (Ubuntu 23.10 and later)",
            "sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0",
        );
    }
    Check::works(name, if is_restricted { "restricts ordinary users, not root" } else { "in nobody's way" })
}

fn overlay() -> Check {
    let name = "overlay file system";
    let known = read("/proc/filesystems").unwrap_or_default();
    if known.lines().any(|line| line.split_whitespace().next_back() == Some("overlay")) {
        return Check::works(name, "in the kernel");
    }
    Check::missing(name, "the kernel does not know it", "sudo modprobe overlay")
}

fn seccomp() -> Check {
    let name = "seccomp";
    match read("/proc/sys/kernel/seccomp/actions_avail") {
        Some(actions) if actions.contains("errno") => Check::works(name, "filters work"),
        _ => Check::missing(
            name,
            "the kernel has no syscall filters",
            "Install a kernel with CONFIG_SECCOMP_FILTER.",
        ),
    }
}

/// Where limits can be set: v1 controllers that we may write, and what was delegated on v2.
fn cgroups(is_root: bool) -> Check {
    let name = "cgroups";
    let mine = read("/proc/self/cgroup").unwrap_or_default();
    let mut usable = Vec::new();
    for line in mine.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(own)) = (parts.next(), parts.next()) else { continue };
        let own = if is_root { "/" } else { own };
        if controllers.is_empty() {
            let at = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"].map(|mount| format!("{mount}{own}"));
            usable.extend(at.iter().filter(|at| may_write(at)).flat_map(|at| v2_controllers(at)));
        } else if may_write(&format!("/sys/fs/cgroup/{controllers}{own}")) {
            usable.extend(controllers.split(',').map(str::to_owned));
        }
    }
    let missing: Vec<_> =
        CONTROLLERS.into_iter().filter(|one| !usable.iter().any(|has| has == one)).collect();
    if missing.is_empty() {
        return Check::works(name, format!("{} can be limited", CONTROLLERS.join(", ")));
    }
    let mend = if is_root {
        "Mount them: sudo mount -t cgroup2 none /sys/fs/cgroup"
    } else {
        "sudo mkdir -p /etc/systemd/system/user@.service.d && printf '[Service]\\nDelegate=cpu memory pids\\n' | \
         sudo tee /etc/systemd/system/user@.service.d/delegate.conf && sudo systemctl daemon-reload (then log in anew)"
    };
    Check::weak(
        name,
        format!("no right to {}: such limits are held by weaker means", missing.join(", ")),
        mend,
    )
}

fn may_write(path: &str) -> bool {
    access(path, Access::WRITE_OK).is_ok()
}

fn v2_controllers(directory: &str) -> Vec<String> {
    let text = read(&format!("{directory}/cgroup.controllers")).unwrap_or_default();
    text.split_whitespace().map(str::to_owned).collect()
}

fn subordinate_ids() -> Check {
    let name = "subordinate ids";
    let uid = getuid().as_raw().to_string();
    let user = read("/etc/passwd").and_then(|passwd| {
        let found = passwd.lines().find(|line| line.split(':').nth(2) == Some(&uid))?;
        found.split(':').next().map(str::to_owned)
    });
    let user = user.unwrap_or_else(|| uid.clone());
    let has_range = |file| {
        let text = read(file).unwrap_or_default();
        text.lines().any(|line| line.split(':').next().is_some_and(|who| who == user || who == uid))
    };
    if !Path::new("/usr/bin/newuidmap").exists() {
        return Check::weak(
            name,
            "newuidmap is not installed: a sandbox has one user id, its root",
            "sudo apt-get install uidmap",
        );
    }
    if has_range("/etc/subuid") && has_range("/etc/subgid") {
        return Check::works(name, format!("{user} has a range"));
    }
    Check::weak(
        name,
        format!("{user} has no range in /etc/subuid and /etc/subgid: a sandbox has one user id, its root"),
        format!("sudo usermod --add-subuids 100000-165535 --add-subgids 100000-165535 {user}"),
    )
}

fn open_files() -> Check {
    let name = "open files";
    match getrlimit(Resource::Nofile).maximum {
        Some(most) if most < MIN_OPEN_FILES => {
            Check::weak(name, format!("at most {most}"), "ulimit -n 65536")
        }
        Some(most) => Check::works(name, format!("at most {most}")),
        None => Check::works(name, "no limit"),
    }
}

fn home(home: &Path) -> Check {
    let name = "data directory";
    let shown = home.display();
    if let Err(error) = crate::directories::make_private(home) {
        return Check::missing(name, error.message(), format!("sudo install -d -m 0700 -o $(id -u) {shown}"));
    }
    let probe = home.join(format!(".doctor-{}", std::process::id()));
    let written = fs::write(&probe, "x").and_then(|()| fs::remove_file(&probe));
    if let Err(error) = written {
        return Check::missing(
            name,
            format!("{shown} cannot be written: {error}"),
            format!("chmod u+rwx {shown}"),
        );
    }
    let free = statvfs(home).map(|found| found.f_bavail * found.f_frsize).unwrap_or(u64::MAX);
    let detail = format!("{shown}, {} free", output::bytes(free));
    if free < MIN_FREE_BYTES {
        return Check::weak(name, detail, "Free some disk, or choose another place with WARREN_HOME.");
    }
    Check::works(name, detail)
}

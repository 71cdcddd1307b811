//! Features of this host, found by trying each; for `doctor`.

use std::{
    ffi::CString,
    fs, io,
    path::{Path, PathBuf},
};

use rustix::process::{Resource, geteuid, getrlimit};

use crate::{
    cage::MountFlag,
    cgroup::{Cgroups, Controller},
    mounts,
    network::NetworkMeans,
    outer, seccomp, spawner, sys,
};

/// Oldest kernel with everything that a cage needs (`mount_setattr` is the newest of those).
const OLDEST_KERNEL: (u32, u32) = (5, 12);
/// With less free disk than this, installing anything inside fails.
const LITTLE_DISK: u64 = 1024 * 1024 * 1024;
const FEW_FILES: u64 = 4096;

/// The result of one attempt.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Check {
    pub check: &'static str,
    pub works: bool,
    /// Without it no sandbox can be made; otherwise something is only weaker.
    pub is_needed: bool,
    /// The finding, or the error.
    pub detail: String,
    /// The command that fixes it.
    pub fix: Option<String>,
}

/// Tries everything. `home`: where sandboxes will be kept; need not exist yet.
///
/// Forks for attempts that change a process for good; each child ends at once.
pub fn run(home: &Path) -> Vec<Check> {
    let is_root = geteuid().is_root();
    let home = existing(home);
    let mut checks = vec![kernel(), user_namespaces(), overlay(), seccomp_filter()];
    if is_root {
        checks.push(idmapped(&home));
        checks.push(loop_devices());
    } else {
        checks.push(subordinate_ids());
    }
    checks.push(network());
    checks.extend(cgroups(is_root));
    checks.push(open_files());
    checks.push(disk_space(&home));
    checks
}

fn existing(path: &Path) -> PathBuf {
    path.ancestors().find(|ancestor| ancestor.exists()).unwrap_or(Path::new("/")).to_owned()
}

/// Runs something in a child that then ends; its error is returned with the same number.
fn attempt(work: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
    match sys::fork()? {
        None => {
            let failed = work().err().map(|error| error.raw_os_error().unwrap_or(libc::EIO));
            sys::exit_now(failed.unwrap_or(0))
        }
        Some(pid) => match sys::wait_for(pid)? {
            0 => Ok(()),
            status if status & 0x7f == 0 => Err(io::Error::from_raw_os_error((status >> 8) & 0xff)),
            status => Err(io::Error::other(format!("the attempt was killed by signal {}", status & 0x7f))),
        },
    }
}

fn result(
    check: &'static str,
    is_needed: bool,
    tried: io::Result<()>,
    fix: impl FnOnce() -> Option<String>,
) -> Check {
    match tried {
        Ok(()) => Check { check, works: true, is_needed, detail: "works".to_owned(), fix: None },
        Err(error) => Check { check, works: false, is_needed, detail: error.to_string(), fix: fix() },
    }
}

fn kernel() -> Check {
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    let mut numbers = release.split(['.', '-']).map_while(|word| word.parse::<u32>().ok());
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    let works = version >= OLDEST_KERNEL;
    let (major, minor) = OLDEST_KERNEL;
    let fix = (!works).then(|| format!("Boot Linux {major}.{minor} or later."));
    Check { check: "kernel", works, is_needed: true, detail: format!("Linux {release}"), fix }
}

fn enter_user_namespace() -> io::Result<()> {
    let (user, group) = (geteuid().as_raw(), rustix::process::getegid().as_raw());
    sys::unshare(libc::CLONE_NEWUSER)?;
    fs::write("/proc/self/setgroups", "deny")?;
    fs::write("/proc/self/uid_map", format!("0 {user} 1"))?;
    fs::write("/proc/self/gid_map", format!("0 {group} 1"))
}

fn user_namespaces() -> Check {
    let rest =
        libc::CLONE_NEWNS | libc::CLONE_NEWNET | libc::CLONE_NEWIPC | libc::CLONE_NEWUTS | libc::CLONE_NEWPID;
    let tried = attempt(|| {
        enter_user_namespace()?;
        sys::unshare(rest | libc::CLONE_NEWCGROUP)?;
        sys::loopback_up()
    });
    result("user namespaces", true, tried, namespaces_fix)
}

/// The switches by which distributions forbid user namespaces, and how to turn them on.
fn namespaces_fix() -> Option<String> {
    let setting =
        |name: &str| fs::read_to_string(format!("/proc/sys/{name}")).ok()?.trim().parse::<i64>().ok();
    let turn = |name: &str, value: i64| {
        let (name, sudo) = (name.replace('/', "."), sudo());
        Some(format!(
            "echo '{name} = {value}' | {sudo}tee /etc/sysctl.d/60-warren.conf && {sudo}sysctl --system"
        ))
    };
    if setting("kernel/apparmor_restrict_unprivileged_userns") == Some(1) {
        let for_all = turn("kernel/apparmor_restrict_unprivileged_userns", 0);
        let program = std::env::current_exe().ok();
        return match program.as_deref().and_then(Path::to_str) {
            Some(program) => Some(apparmor_fix(program, &for_all.unwrap_or_default())),
            None => for_all,
        };
    }
    if setting("kernel/unprivileged_userns_clone") == Some(0) {
        return turn("kernel/unprivileged_userns_clone", 1);
    }
    if setting("user/max_user_namespaces") == Some(0) {
        return turn("user/max_user_namespaces", 15_000);
    }
    Some(
        "In a container, run it with --privileged, or with a seccomp profile that allows unshare and mount."
            .to_owned(),
    )
}

/// A profile for this program, which the program itself prints; and the setting that needs none.
fn apparmor_fix(program: &str, for_all: &str) -> String {
    let file = format!("/etc/apparmor.d/{}", apparmor_name(program));
    let quoted = program.replace('\'', r"'\''");
    format!(
        "for this program: '{quoted}' reference apparmor | sudo tee {file} && sudo apparmor_parser --replace {file}; \
         or for every program: {for_all}"
    )
}

/// The name of a program's profile and its file, as AppArmor's own are named: `usr.local.bin.warren`. The packages'
/// own is `warren`.
pub fn apparmor_name(program: &str) -> String {
    if program == "/usr/bin/warren" {
        return "warren".to_owned();
    }
    let plain = |c: char| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '_' };
    program.trim_start_matches('/').replace('/', ".").chars().map(plain).collect()
}

fn overlay() -> Check {
    let tried = attempt(|| {
        enter_user_namespace()?;
        sys::unshare(libc::CLONE_NEWNS)?;
        mounts::hide()?;
        let stage = Path::new("/tmp");
        mounts::tmpfs(stage, 1 << 20, 0o755, &[MountFlag::NoDev])?;
        for name in ["lower", "upper", "work", "root"] {
            fs::create_dir(stage.join(name))?;
        }
        let at = |name: &str| stage.join(name);
        mounts::overlay(&at("root"), &[at("lower")], &at("upper"), &at("work"), &at("root"), &[])
    });
    result("overlay in a user namespace", true, tried, || Some(format!("{}modprobe overlay", sudo())))
}

fn seccomp_filter() -> Check {
    let tried = attempt(|| {
        rustix::thread::set_no_new_privs(true)?;
        seccomp::Filter::workload().install().map(drop)
    });
    result("seccomp filters", true, tried, || Some("Boot a kernel with CONFIG_SECCOMP_FILTER=y.".to_owned()))
}

fn network() -> Check {
    let means = NetworkMeans::begin_trial().finish().chosen();
    let detail = match &means {
        NetworkMeans::Tproxy { v6: true } => "tproxy, IPv4 and IPv6".to_owned(),
        NetworkMeans::Tproxy { v6: false } => "tproxy, IPv4 only".to_owned(),
        NetworkMeans::NamedPorts { why, .. } => {
            format!("named ports only (no tproxy for nftables: {why})")
        }
        NetworkMeans::None { why } => why.clone(),
    };
    let fix = match &means {
        NetworkMeans::Tproxy { .. } => None,
        NetworkMeans::NamedPorts { .. } => Some(format!("{}modprobe -a nf_tables nft_tproxy", sudo())),
        NetworkMeans::None { .. } => namespaces_fix(),
    };
    let works = !matches!(means, NetworkMeans::None { .. });
    Check { check: "network policies", works, is_needed: false, detail, fix }
}

fn idmapped(home: &Path) -> Check {
    let directories = [home.to_owned(), PathBuf::from("/usr")];
    let tried = attempt(|| {
        sys::unshare(libc::CLONE_NEWNS)?;
        spawner::try_idmap(&directories)
            .map_err(|failure| io::Error::from_raw_os_error(failure.errno.unwrap_or(libc::EIO)))
    });
    let fix = || {
        Some(format!("Keep sandboxes on ext4, xfs or btrfs: set WARREN_HOME ({} is not).", home.display()))
    };
    result("own id range for each sandbox", false, tried, fix)
}

fn loop_devices() -> Check {
    let mkfs = find_program("mkfs.ext4");
    let missing = if !Path::new("/dev/loop-control").exists() {
        Some(("no /dev/loop-control", format!("{}modprobe loop", sudo())))
    } else if mkfs.is_none() {
        Some(("mkfs.ext4 is not installed", install("e2fsprogs", "e2fsprogs")))
    } else {
        None
    };
    let (works, detail, fix) = match missing {
        None => (true, "works", None),
        Some((detail, fix)) => (false, detail, Some(fix)),
    };
    Check { check: "hard disk limits", works, is_needed: false, detail: detail.to_owned(), fix }
}

/// Looks in `PATH` and in the administrators' directories.
fn find_program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin", "/sbin", "/usr/bin"].map(PathBuf::from))
        .map(|directory| directory.join(name))
        .find(|file| file.is_file())
}

fn subordinate_ids() -> Check {
    let user = geteuid().as_raw();
    let helpers = ["newuidmap", "newgidmap"].iter().all(|name| find_program(name).is_some());
    let (works, detail, fix) = match (outer::Subordinate::of_user(user), helpers) {
        (Some(_), true) => (true, "works", None),
        (Some(_), false) => {
            (false, "newuidmap and newgidmap are not installed", Some(install("uidmap", "shadow-utils")))
        }
        (None, _) => {
            let first = outer::first_free();
            let range = format!("{first}-{}", first.saturating_add(65_535));
            let fix = format!("{}usermod --add-subuids {range} --add-subgids {range} $(id -un)", sudo());
            (false, "no ranges in /etc/subuid and /etc/subgid: sandboxes have one id", Some(fix))
        }
    };
    Check { check: "subordinate ids", works, is_needed: false, detail: detail.to_owned(), fix }
}

/// Exists where systemd is process 1.
const SYSTEMD: &str = "/run/systemd/system";

/// How this host lets the daemon limit what sandboxes use.
fn cgroups_fix(is_root: bool, has_systemd: bool) -> String {
    let drop_in = "/etc/systemd/system/user@.service.d/delegate.conf";
    let delegate = "[Service]\\nDelegate=cpu memory pids";
    match (is_root, has_systemd) {
        (true, _) => "In a container, give it cgroups that it may write, such as with docker run --privileged.".to_owned(),
        (false, true) => format!(
            "{sudo}mkdir -p {}; printf '{delegate}\\n' | {sudo}tee {drop_in}; then log in again",
            parent_of(drop_in),
            sudo = sudo()
        ),
        (false, false) => {
            "Run the daemon as root: limits need cgroups that this user may write, and only systemd would delegate them."
                .to_owned()
        }
    }
}

/// What goes before a command that needs root: nothing for root, and where there is no sudo.
pub fn sudo() -> &'static str {
    if geteuid().is_root() || find_program("sudo").is_none() { "" } else { "sudo " }
}

/// The command that installs a package here, by its names for apt and for others.
fn install(for_apt: &str, for_others: &str) -> String {
    let managers =
        [("apt-get", "install", for_apt), ("dnf", "install", for_others), ("apk", "add", for_others)];
    let found = managers.into_iter().find(|(program, ..)| find_program(program).is_some());
    let sudo = sudo();
    match found {
        Some((program, verb, package)) => format!("{sudo}{program} {verb} {package}"),
        None => format!("Install the package {for_others}."),
    }
}

fn cgroups(is_root: bool) -> Vec<Check> {
    let cgroups = Cgroups::detect("warren-doctor");
    let fix = cgroups_fix(is_root, Path::new(SYSTEMD).exists());
    let checks = [
        ("memory limits", Controller::Memory),
        ("cpu limits", Controller::Cpu),
        ("process limits", Controller::Pids),
        ("pause and resume", Controller::Freezer),
    ]
    .map(|(check, controller)| match cgroups.controller(controller) {
        Some(is_v2) => {
            let detail = format!("cgroup v{}", if is_v2 { 2 } else { 1 });
            Check { check, works: true, is_needed: false, detail, fix: None }
        }
        None => {
            let why = match cgroups.missing() {
                [] => "no cgroup has it here".to_owned(),
                missing => missing.join(" "),
            };
            Check { check, works: false, is_needed: false, detail: why, fix: Some(fix.clone()) }
        }
    });
    cgroups.forget();
    checks.to_vec()
}

fn parent_of(path: &str) -> &str {
    path.rsplit_once('/').map_or(path, |(parent, _)| parent)
}

fn open_files() -> Check {
    let most = getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX);
    let works = most >= FEW_FILES;
    let fix = (!works).then(|| "ulimit -Hn 65536, or LimitNOFILE=65536 in the service".to_owned());
    Check {
        check: "open files of a process",
        works,
        is_needed: false,
        detail: format!("at most {most}"),
        fix,
    }
}

fn disk_space(home: &Path) -> Check {
    let free = CString::new(home.as_os_str().as_encoded_bytes())
        .ok()
        .and_then(|path| rustix::fs::statvfs(path.as_c_str()).ok())
        .map(|found| found.f_bavail.saturating_mul(found.f_frsize));
    let works = free.is_some_and(|bytes| bytes >= LITTLE_DISK);
    let shown = free.map_or("unknown".to_owned(), |bytes| format!("{} MiB", bytes >> 20));
    let detail = format!("{shown} free below {}", home.display());
    let fix = (!works).then(|| "Free some disk, or set WARREN_HOME to a place with more.".to_owned());
    Check { check: "disk space", works, is_needed: false, detail, fix }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_remedy_fits_the_host() {
        assert!(cgroups_fix(false, true).contains("user@.service.d"));
        assert!(
            cgroups_fix(false, false).contains("as root")
                && !cgroups_fix(false, false).contains("/etc/systemd")
        );
        assert!(!cgroups_fix(true, true).contains("systemd"));
    }

    #[test]
    fn a_profile_for_the_program_comes_before_a_setting_for_all() {
        let fix = apparmor_fix("/home/ana/it's/warren", "SETTING");
        assert_eq!(
            fix,
            "for this program: '/home/ana/it'\\''s/warren' reference apparmor | sudo tee \
             /etc/apparmor.d/home.ana.it_s.warren && sudo apparmor_parser --replace \
             /etc/apparmor.d/home.ana.it_s.warren; or for every program: SETTING"
        );
        assert_eq!(apparmor_name("/usr/bin/warren"), "warren");
    }
}

//! The lowest layer of image `host`: a fresh root with a fresh `/etc`, made once for each state of the host.
//!
//! Programs come from the host's `/usr`, which is laid over it when a sandbox is made. The host's `/etc` contributes
//! only files that programs need to run and everybody may read; none of them names a user, a host or a secret.

mod dpkg;

use std::{
    collections::hash_map::DefaultHasher,
    fs,
    hash::{Hash as _, Hasher as _},
    io,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink},
    path::{Path, PathBuf},
    time::SystemTime,
};

/// Increased when the content below changes, so that old layers are not reused.
const FORMAT: u32 = 5;
/// Most entries copied from the host's `/etc`: a few hundred certificates and links are usual.
const MAX_COPIED: usize = 20_000;
/// Largest file copied from the host's `/etc`.
const MAX_FILE_BYTES: u64 = 8 * 1024 * 1024;

/// How the names of layers that are not complete begin.
pub(crate) const UNFINISHED: &str = ".unfinished-";

/// How deep the directories of `/usr`, and of `/usr/local`, become our own for daemons without root.
const USR_DEPTH: usize = 2;
const USR_LOCAL_DEPTH: usize = 5;
const MAX_USR_DIRECTORIES: usize = 4096;

/// The files that are copied from the host's `/etc`, if they exist. Directories are copied whole.
const COPIED: &[&str] = &[
    // The dynamic linker.
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    // Programs that are links through here.
    "alternatives",
    // Trust in certificate authorities. Never `ssl/private`.
    "ssl/certs",
    "ssl/openssl.cnf",
    "ca-certificates",
    "ca-certificates.conf",
    "pki/tls/certs",
    "pki/ca-trust",
    "crypto-policies",
    // Tables of names and numbers.
    "mime.types",
    "protocols",
    "services",
    "rpc",
    "ethertypes",
    "magic",
    "magic.mime",
    "xattr.conf",
    "locale.alias",
    "shells",
    // The identity of the system.
    "os-release",
    "debian_version",
    "lsb-release",
    "redhat-release",
    "fedora-release",
    "alpine-release",
    "arch-release",
    "system-release",
    // Language runtimes and tools that look here.
    "perl",
    "fonts",
    "terminfo",
    "inputrc",
    "bash.bashrc",
    "bash_completion.d",
    "gai.conf",
    "host.conf",
    "java",
    "R",
    "vim",
    "groff",
    "manpath.config",
    // Debian's matplotlib cannot be imported without it.
    "matplotlibrc",
    // What maintainer scripts of packages read. Never `apt/auth.conf` and `apt/apt.conf`, which may contain passwords.
    "dpkg",
    "debconf.conf",
    "adduser.conf",
    "deluser.conf",
    "login.defs",
    "pam.d",
    "skel",
    "apt/trusted.gpg.d",
    "apt/keyrings",
];

/// The same for names with a version.
const COPIED_PREFIXES: &[&str] = &["python3", "java-"];

const DIRECTORIES: &[(&str, u32)] = &[
    ("dev", 0o755),
    ("etc", 0o755),
    ("home", 0o755),
    ("home/sandbox", 0o755),
    ("media", 0o755),
    ("mnt", 0o755),
    ("opt", 0o755),
    ("proc", 0o555),
    ("root", 0o700),
    ("run", 0o755),
    ("srv", 0o755),
    ("sys", 0o555),
    ("tmp", 0o1777),
    ("usr", 0o755),
    ("var", 0o755),
    ("var/cache", 0o755),
    ("var/lib", 0o755),
    ("var/local", 0o755),
    ("var/log", 0o755),
    ("var/mail", 0o755),
    ("var/opt", 0o755),
    ("var/spool", 0o755),
    ("var/tmp", 0o1777),
    ("etc/profile.d", 0o755),
    ("etc/ssl", 0o755),
    ("etc/pki", 0o755),
    ("etc/pki/tls", 0o755),
];

/// name, uid, gid, home, shell. The system users are those that packages expect.
const USERS: &[(&str, u32, u32, &str, &str)] = &[
    ("root", 0, 0, "/root", "/bin/bash"),
    ("daemon", 1, 1, "/usr/sbin", "/usr/sbin/nologin"),
    ("bin", 2, 2, "/bin", "/usr/sbin/nologin"),
    ("sys", 3, 3, "/dev", "/usr/sbin/nologin"),
    ("games", 5, 60, "/usr/games", "/usr/sbin/nologin"),
    ("man", 6, 12, "/var/cache/man", "/usr/sbin/nologin"),
    ("lp", 7, 7, "/var/spool/lpd", "/usr/sbin/nologin"),
    ("mail", 8, 8, "/var/mail", "/usr/sbin/nologin"),
    ("www-data", 33, 33, "/var/www", "/usr/sbin/nologin"),
    ("backup", 34, 34, "/var/backups", "/usr/sbin/nologin"),
    ("_apt", 42, 65534, "/nonexistent", "/usr/sbin/nologin"),
    ("sandbox", 1000, 1000, "/home/sandbox", "/bin/bash"),
    ("nobody", 65534, 65534, "/nonexistent", "/usr/sbin/nologin"),
];

const GROUPS: &[(&str, u32)] = &[
    ("root", 0),
    ("daemon", 1),
    ("bin", 2),
    ("sys", 3),
    ("adm", 4),
    ("tty", 5),
    ("disk", 6),
    ("lp", 7),
    ("mail", 8),
    ("man", 12),
    ("kmem", 15),
    ("dialout", 20),
    ("sudo", 27),
    ("audio", 29),
    ("www-data", 33),
    ("backup", 34),
    ("shadow", 42),
    ("utmp", 43),
    ("video", 44),
    ("staff", 50),
    ("games", 60),
    ("users", 100),
    ("sandbox", 1000),
    ("nogroup", 65534),
];

/// Files with our own text.
const TEXTS: &[(&str, &str)] = &[
    ("etc/hosts", "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n"),
    ("etc/hostname", "sandbox\n"),
    ("etc/resolv.conf", "nameserver 10.83.66.53\n"),
    (
        "etc/nsswitch.conf",
        "passwd: files\ngroup: files\nshadow: files\nhosts: files dns\nprotocols: files\nservices: files\n",
    ),
    ("etc/fstab", ""),
    ("etc/timezone", "Etc/UTC\n"),
    ("etc/environment", ""),
    ("etc/profile", PROFILE),
];

const PROFILE: &str = "\
export PATH=\"${PATH:-/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin}\"
if [ -n \"$BASH\" ] && [ -f /etc/bash.bashrc ]; then . /etc/bash.bashrc; fi
for script in /etc/profile.d/*.sh; do [ -r \"$script\" ] && . \"$script\"; done
unset script
";

const LINKS: &[(&str, &str)] = &[
    ("etc/mtab", "../proc/self/mounts"),
    ("etc/localtime", "/usr/share/zoneinfo/Etc/UTC"),
    ("var/run", "/run"),
    ("var/lock", "/run/lock"),
];

/// Directories at the host's root that are links into `/usr` on some systems and real ones on others.
const MERGED: &[&str] = &["bin", "sbin", "lib", "lib32", "lib64", "libx32"];

/// The skeleton of this host.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Skeleton {
    pub(crate) directory: PathBuf,
    /// The directories of the host's `/usr`, empty and our own, to lie over it if we are not root: files can then be
    /// added and removed in them, which their real owner would prevent.
    pub(crate) usr: Option<PathBuf>,
    /// Directories of the host's root that are not links into `/usr`, to be shown read-only.
    pub(crate) bound: Vec<PathBuf>,
}

impl Skeleton {
    /// Name of its directory in `layers`.
    pub(crate) fn name(&self) -> Option<String> {
        Some(self.directory.parent()?.file_name()?.to_str()?.to_owned())
    }
}

/// The owner of the ids that the daemon can map to its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Owner {
    /// The host's, so that its `/usr` belongs to root inside.
    Root,
    /// Only the user's.
    User,
}

/// Finds the skeleton for the current state of the host whose root is `host`, or makes it. `layers`: where it is kept.
pub(crate) fn prepare(host: &Path, layers: &Path, owner: Owner) -> io::Result<Skeleton> {
    let sources = sources(&host.join("etc"))?;
    let mut usr = Vec::new();
    if owner == Owner::User {
        gather_directories(&host.join("usr"), Path::new(""), 0, &mut usr);
    }
    let database = dpkg::database(host);
    let packages = database.as_deref().map(dpkg::fingerprint);
    let layer = layers.join(format!("host-{:016x}", fingerprint(host, &sources, &usr, packages)));
    let directory = layer.join("root");
    let bound = MERGED
        .iter()
        .map(|name| host.join(name))
        .filter(|path| fs::symlink_metadata(path).is_ok_and(|found| found.is_dir()))
        .collect();
    if layer.exists() {
        // The layers that were not used for the longest time go first.
        fs::File::open(&layer)?.set_modified(SystemTime::now())?;
    } else {
        fs::create_dir_all(layers)?;
        let unfinished = tempdir_in(layers)?;
        fs::create_dir(unfinished.join("root"))?;
        if database.is_some() {
            dpkg::make_directories(&unfinished.join("root"))?;
        }
        build(host, &sources, &unfinished.join("root"))?;
        if let Some(database) = &database {
            dpkg::build(database, &unfinished.join("root"))?;
            if owner == Owner::User {
                dpkg::leave_out_documents(&unfinished.join("root"))?;
                usr.extend(dpkg::shared_directories(host, database, &merged(host)));
            }
        }
        fs::create_dir(unfinished.join("usr"))?;
        for path in &usr {
            fs::create_dir_all(unfinished.join("usr").join(path))?;
        }
        match fs::rename(&unfinished, &layer) {
            // Another daemon of the same home was faster.
            Err(_) if layer.exists() => fs::remove_dir_all(&unfinished)?,
            renamed => renamed?,
        }
    }
    let usr = (owner == Owner::User).then(|| layer.join("usr"));
    Ok(Skeleton { directory, usr, bound })
}

/// Names at the host's root that mean the same name in `/usr`.
fn merged(host: &Path) -> Vec<&'static str> {
    let is_link = |name: &&str| fs::read_link(host.join(name)).is_ok();
    MERGED.iter().copied().filter(is_link).collect()
}

/// Directories of `/usr` that programs are installed into, by their paths below it, parents first.
fn gather_directories(usr: &Path, below: &Path, depth: usize, found: &mut Vec<PathBuf>) {
    let deepest = if below.starts_with("local") { USR_LOCAL_DEPTH } else { USR_DEPTH };
    if depth >= deepest {
        return;
    }
    let mut names: Vec<_> = fs::read_dir(usr.join(below))
        .into_iter()
        .flatten()
        .flatten()
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .map(|entry| entry.file_name())
        .collect();
    names.sort_unstable();
    for name in names {
        if found.len() < MAX_USR_DIRECTORIES {
            found.push(below.join(&name));
            gather_directories(usr, &below.join(name), depth + 1, found);
        }
    }
}

/// A name that no unfinished directory of this or an earlier daemon has.
pub(crate) fn unique_name() -> String {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_nanos();
    format!("{}-{:?}-{now}", std::process::id(), std::thread::current().id())
}

fn tempdir_in(layers: &Path) -> io::Result<PathBuf> {
    let path = layers.join(format!("{UNFINISHED}{}", unique_name()));
    fs::create_dir(&path)?;
    Ok(path)
}

/// One entry of the host's `/etc` to be copied, by its path below `/etc`.
#[derive(Debug)]
struct Source {
    path: PathBuf,
    metadata: fs::Metadata,
}

fn sources(etc: &Path) -> io::Result<Vec<Source>> {
    let mut found = Vec::new();
    for name in COPIED {
        gather(etc, PathBuf::from(name), &mut found)?;
    }
    let mut versioned: Vec<_> = fs::read_dir(etc)?
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| COPIED_PREFIXES.iter().any(|prefix| name.starts_with(prefix)))
        .collect();
    versioned.sort_unstable();
    for name in versioned {
        gather(etc, PathBuf::from(name), &mut found)?;
    }
    Ok(found)
}

fn gather(etc: &Path, path: PathBuf, found: &mut Vec<Source>) -> io::Result<()> {
    let Ok(metadata) = fs::symlink_metadata(etc.join(&path)) else { return Ok(()) };
    let everybody_reads = metadata.mode() & 0o004 != 0;
    if found.len() >= MAX_COPIED || (!metadata.is_symlink() && !everybody_reads) {
        return Ok(());
    }
    if metadata.is_dir() {
        let mut entries: Vec<_> =
            fs::read_dir(etc.join(&path))?.flatten().map(|entry| entry.file_name()).collect();
        entries.sort_unstable();
        found.push(Source { path: path.clone(), metadata });
        for entry in entries {
            gather(etc, path.join(entry), found)?;
        }
    } else if metadata.is_symlink() || (metadata.is_file() && metadata.len() <= MAX_FILE_BYTES) {
        found.push(Source { path, metadata });
    }
    Ok(())
}

/// Changes when anything that goes into the skeleton changes.
fn fingerprint(host: &Path, sources: &[Source], usr: &[PathBuf], packages: Option<u64>) -> u64 {
    let mut hasher = DefaultHasher::new();
    (FORMAT, USERS, GROUPS, TEXTS, LINKS, DIRECTORIES, usr, packages).hash(&mut hasher);
    for name in MERGED {
        fs::read_link(host.join(name)).ok().hash(&mut hasher);
        host.join(name).is_dir().hash(&mut hasher);
    }
    for Source { path, metadata } in sources {
        (path, metadata.mode(), metadata.len(), metadata.mtime(), metadata.mtime_nsec()).hash(&mut hasher);
    }
    hasher.finish()
}

fn build(host: &Path, sources: &[Source], root: &Path) -> io::Result<()> {
    set_mode(root, 0o755)?;
    for (path, mode) in DIRECTORIES {
        fs::create_dir_all(root.join(path))?;
        set_mode(&root.join(path), *mode)?;
    }
    for (path, text) in TEXTS {
        write(&root.join(path), text)?;
    }
    write(&root.join("etc/passwd"), &passwd())?;
    write(&root.join("etc/group"), &group())?;
    for (path, target) in LINKS {
        symlink(target, root.join(path))?;
    }
    for name in MERGED {
        match fs::read_link(host.join(name)) {
            Ok(target) => symlink(target, root.join(name))?,
            Err(_) if host.join(name).is_dir() => fs::create_dir(root.join(name))?,
            Err(_) => {}
        }
    }
    for source in sources {
        copy(&host.join("etc"), source, &root.join("etc"))?;
    }
    give_home(&root.join("home/sandbox"))
}

/// Only root can give a directory away; without root there are few ids inside anyway, and everybody inside may use it.
fn give_home(home: &Path) -> io::Result<()> {
    std::os::unix::fs::chown(home, Some(1000), Some(1000)).or_else(|_denied| set_mode(home, 0o777))
}

fn copy(from: &Path, source: &Source, to: &Path) -> io::Result<()> {
    let (from, to) = (from.join(&source.path), to.join(&source.path));
    if let Some(parent) = to.parent() {
        fs::create_dir_all(parent)?;
    }
    if source.metadata.is_dir() {
        fs::create_dir_all(&to)?;
        set_mode(&to, 0o755)
    } else if fs::symlink_metadata(&to).is_ok() {
        // A directory of our own. A link of the host in its place could redirect writes out of the layer.
        Ok(())
    } else if source.metadata.is_symlink() {
        symlink(fs::read_link(&from)?, &to)
    } else {
        fs::write(&to, fs::read(&from)?)?;
        set_mode(&to, source.metadata.mode() & 0o755)
    }
}

fn set_mode(path: &Path, mode: u32) -> io::Result<()> {
    fs::set_permissions(path, fs::Permissions::from_mode(mode))
}

fn write(path: &Path, text: &str) -> io::Result<()> {
    fs::write(path, text)?;
    set_mode(path, 0o644)
}

fn passwd() -> String {
    USERS
        .iter()
        .map(|(name, uid, gid, home, shell)| format!("{name}:x:{uid}:{gid}:{name}:{home}:{shell}\n"))
        .collect()
}

fn group() -> String {
    GROUPS.iter().map(|(name, gid)| format!("{name}:x:{gid}:\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host() -> tempfile::TempDir {
        let host = tempfile::tempdir().unwrap();
        for directory in
            ["etc/ssl/certs", "etc/ssl/private", "etc/ld.so.conf.d", "etc/ssh", "usr/bin", "sbin"]
        {
            fs::create_dir_all(host.path().join(directory)).unwrap();
        }
        symlink("usr/bin", host.path().join("bin")).unwrap();
        for (path, mode) in [
            ("etc/shadow", 0o640),
            ("etc/passwd", 0o644),
            ("etc/machine-id", 0o444),
            ("etc/ssh/ssh_host_key", 0o600),
            ("etc/ssl/private/key", 0o600),
            ("etc/ssl/certs/ca.crt", 0o644),
            ("etc/ssl/certs/hidden.pem", 0o600),
            ("etc/services", 0o644),
        ] {
            fs::write(host.path().join(path), "of the host").unwrap();
            set_mode(&host.path().join(path), mode).unwrap();
        }
        host
    }

    #[test]
    fn it_has_what_programs_need_and_nothing_secret() {
        let (host, layers) = (host(), tempfile::tempdir().unwrap());
        let skeleton = prepare(host.path(), layers.path(), Owner::User).unwrap();
        let has = |path: &str| fs::symlink_metadata(skeleton.directory.join(path)).is_ok();
        for path in [
            "etc/ssl/certs/ca.crt",
            "etc/services",
            "etc/passwd",
            "tmp",
            "home/sandbox",
            "etc/mtab",
            "bin",
            "sbin",
            "usr",
        ] {
            assert!(has(path), "{path}");
        }
        for path in [
            "etc/shadow",
            "etc/machine-id",
            "etc/ssh",
            "etc/ssl/private",
            "etc/ssl/certs/hidden.pem",
            "lib64",
        ] {
            assert!(!has(path), "{path}");
        }
        let passwd = fs::read_to_string(skeleton.directory.join("etc/passwd")).unwrap();
        assert!(passwd.contains("sandbox:x:1000") && !passwd.contains("of the host"));
        assert_eq!(skeleton.bound, [host.path().join("sbin")]);
    }

    #[test]
    fn links_of_the_host_lead_nothing_out_of_the_layer() {
        let (host, layers, outside) = (host(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::create_dir_all(host.path().join("var/lib/dpkg/info")).unwrap();
        fs::write(host.path().join("var/lib/dpkg/status"), "Package: one\n").unwrap();
        fs::create_dir(host.path().join("etc/apt")).unwrap();
        symlink(outside.path(), host.path().join("etc/dpkg")).unwrap();
        symlink("/nowhere/at/all", host.path().join("etc/apt/keyrings")).unwrap();
        let skeleton = prepare(host.path(), layers.path(), Owner::User).unwrap();
        for path in ["etc/dpkg/dpkg.cfg.d", "etc/apt/keyrings"] {
            let found = fs::symlink_metadata(skeleton.directory.join(path)).unwrap();
            assert!(found.is_dir(), "{path}");
        }
        assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_user_gets_the_directories_of_usr_as_its_own() {
        let (host, layers) = (host(), tempfile::tempdir().unwrap());
        fs::create_dir_all(host.path().join("usr/local/lib/python3.9/dist-packages")).unwrap();
        fs::create_dir_all(host.path().join("usr/share/doc/a/b")).unwrap();
        let usr = prepare(host.path(), layers.path(), Owner::User).unwrap().usr.unwrap();
        assert!(usr.join("local/lib/python3.9/dist-packages").is_dir());
        assert!(usr.join("share/doc").is_dir() && !usr.join("share/doc/a").exists());
        assert_eq!(prepare(host.path(), layers.path(), Owner::Root).unwrap().usr, None);
    }

    #[test]
    fn it_is_made_once_and_again_when_the_host_changed() {
        let (host, layers) = (host(), tempfile::tempdir().unwrap());
        let first = prepare(host.path(), layers.path(), Owner::User).unwrap();
        assert_eq!(prepare(host.path(), layers.path(), Owner::User).unwrap(), first);
        fs::write(host.path().join("etc/services"), "changed on the host").unwrap();
        let second = prepare(host.path(), layers.path(), Owner::User).unwrap();
        assert_ne!(first, second);
        assert_eq!(fs::read_dir(layers.path()).unwrap().count(), 2);
    }
}

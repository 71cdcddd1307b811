//! The host's package database, so that apt works on image `host`: sandboxes see the host's `/usr`, and this is dpkg's
//! description of it. Only read, copied once for each of its states, and shared by all sandboxes.

use std::{
    collections::{BTreeSet, HashSet, hash_map::DefaultHasher},
    fs,
    hash::{Hash as _, Hasher as _},
    io::{self, BufRead as _, BufReader},
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

/// Files of the database itself. Never `statoverride`: it names groups that only the host has.
const TABLES: &[&str] = &["status", "diversions"];
/// Files that are empty at first. Without the last one dpkg would run the triggers of every package once.
const EMPTY: &[&str] = &["statoverride", "available", "triggers/Unincorp"];
/// The files that dpkg keeps for each package and needs again: the others verify checksums or help to build packages.
const KEPT: &[&str] =
    &["list", "triggers", "postinst", "preinst", "postrm", "prerm", "conffiles", "config", "templates"];
/// Most files copied; a desktop has some ten thousand.
const MAX_FILES: usize = 60_000;
/// Largest file copied.
const MAX_FILE_BYTES: u64 = 64 * 1024 * 1024;
/// Most directories shared by several packages.
const MAX_SHARED: usize = 8192;

const DIRECTORIES: &[&str] = &[
    "etc/apt/apt.conf.d",
    "etc/apt/keyrings",
    "etc/apt/preferences.d",
    "etc/apt/sources.list.d",
    "etc/apt/trusted.gpg.d",
    "etc/dpkg/dpkg.cfg.d",
    "var/cache/apt/archives/partial",
    "var/cache/debconf",
    "var/lib/apt/lists/partial",
    "var/lib/dpkg/alternatives",
    "var/lib/dpkg/info",
    "var/lib/dpkg/parts",
    "var/lib/dpkg/triggers",
    "var/lib/dpkg/updates",
    "var/log/apt",
];

/// The host's database; `None` on a system without one.
pub(super) fn database(host: &Path) -> Option<PathBuf> {
    let database = host.join("var/lib/dpkg");
    is_public(&database.join("status")).then_some(database)
}

/// Changes when packages of the host change.
pub(super) fn fingerprint(database: &Path) -> u64 {
    let mut hasher = DefaultHasher::new();
    (TABLES, EMPTY, KEPT, DIRECTORIES).hash(&mut hasher);
    for name in ["status", "info", "alternatives"] {
        let found = fs::metadata(database.join(name)).ok();
        found.map(|found| (found.len(), found.mtime(), found.mtime_nsec())).hash(&mut hasher);
    }
    hasher.finish()
}

/// Before anything of the host is copied into `root`: a link of the host at one of these paths would be followed.
pub(super) fn make_directories(root: &Path) -> io::Result<()> {
    DIRECTORIES.iter().try_for_each(|path| fs::create_dir_all(root.join(path)))
}

/// The directory of a package's documents belongs to the host, and without root nothing can be put there: a package
/// that the host has could not be upgraded.
pub(super) fn leave_out_documents(root: &Path) -> io::Result<()> {
    let directory = root.join("etc/dpkg/dpkg.cfg.d");
    fs::create_dir_all(&directory)?;
    // Of the host, perhaps a link.
    fs::remove_file(directory.join("warren")).ok();
    fs::write(directory.join("warren"), "path-exclude=/usr/share/doc/*\n")
}

/// Fills the sandboxes' own database below `root`, whose directories exist.
pub(super) fn build(database: &Path, root: &Path) -> io::Result<()> {
    let own = root.join("var/lib/dpkg");
    for name in TABLES.iter().filter(|name| is_public(&database.join(name))) {
        copy(&database.join(name), &own.join(name))?;
    }
    let mut n_taken = 0;
    for (directory, wanted) in [("info", Some(KEPT)), ("alternatives", None), ("triggers", None)] {
        for entry in fs::read_dir(database.join(directory)).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let is_wanted = wanted.is_none_or(|kept| {
                let extension = Path::new(&name).extension().and_then(|extension| extension.to_str());
                extension.is_some_and(|extension| kept.contains(&extension)) || name == "format"
            });
            let is_wanted = is_wanted && name != "Unincorp";
            if is_wanted && is_public(&entry.path()) && n_taken < MAX_FILES {
                copy(&entry.path(), &own.join(directory).join(&name))?;
                n_taken += 1;
            }
        }
    }
    for name in EMPTY {
        fs::write(own.join(name), "")?;
    }
    Ok(())
}

/// Whether it is a file, not a link, that everybody on the host may read, and not too large.
fn is_public(path: &Path) -> bool {
    fs::symlink_metadata(path)
        .is_ok_and(|found| found.is_file() && found.mode() & 0o004 != 0 && found.len() <= MAX_FILE_BYTES)
}

/// Never a hard link: a write to the layer would change the host's own database. The kernel shares the bytes if the
/// file system can.
fn copy(from: &Path, to: &Path) -> io::Result<()> {
    fs::copy(from, to).map(drop)
}

/// Directories of `/usr` that several packages install into, by their paths below it: the next package may do so too.
/// `merged`: names at the root that mean the same name in `/usr`.
pub(super) fn shared_directories(host: &Path, database: &Path, merged: &[&str]) -> BTreeSet<PathBuf> {
    // By their hashes: there are some hundred thousand paths, and one too many or too few does no harm.
    let (mut seen, mut shared) = (HashSet::new(), BTreeSet::new());
    for entry in fs::read_dir(database.join("info")).into_iter().flatten().flatten() {
        if Path::new(&entry.file_name()).extension().is_none_or(|extension| extension != "list") {
            continue;
        }
        let Ok(file) = fs::File::open(entry.path()) else { continue };
        for line in BufReader::new(file).lines().map_while(Result::ok) {
            let Some(path) = below_usr(&line, merged) else { continue };
            let mut hasher = DefaultHasher::new();
            path.hash(&mut hasher);
            if !seen.insert(hasher.finish()) && shared.len() < MAX_SHARED {
                shared.insert(path);
            }
        }
    }
    let is_directory =
        |path: &PathBuf| fs::symlink_metadata(host.join("usr").join(path)).is_ok_and(|found| found.is_dir());
    shared.retain(is_directory);
    shared
}

fn below_usr(line: &str, merged: &[&str]) -> Option<PathBuf> {
    let path = line.strip_prefix('/')?;
    let below = match path.strip_prefix("usr/") {
        Some(below) => below,
        None => merged.contains(&path.split('/').next()?).then_some(path)?,
    };
    (!below.is_empty()).then(|| PathBuf::from(below))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn host() -> tempfile::TempDir {
        let host = tempfile::tempdir().unwrap();
        let database = host.path().join("var/lib/dpkg");
        for directory in ["info", "alternatives", "triggers"] {
            fs::create_dir_all(database.join(directory)).unwrap();
        }
        fs::create_dir_all(host.path().join("usr/share/man/man1")).unwrap();
        fs::create_dir_all(host.path().join("usr/lib/one")).unwrap();
        for (path, text) in [
            ("status", "Package: one\n"),
            ("diversions", "/bin/sh\n/bin/sh.distrib\ndash\n"),
            ("statoverride", "root ssl-cert 710 /etc/ssl/private\n"),
            ("info/one.list", "/.\n/usr\n/usr/share/man/man1\n/usr/lib/one\n/usr/share/man/man1/one.1\n"),
            ("info/two.list", "/.\n/usr\n/usr/share/man/man1\n/usr/share/man/man1/two.1\n/lib/one\n"),
            ("info/one.md5sums", "x"),
            ("info/one.postinst", "#!/bin/sh\n"),
            ("alternatives/editor", "auto\n"),
            ("triggers/ldconfig", "libc-bin\n"),
            ("triggers/Unincorp", "/usr/share/man man-db\n"),
        ] {
            fs::write(database.join(path), text).unwrap();
        }
        let private = fs::Permissions::from_mode(0o600);
        fs::set_permissions(database.join("diversions"), private).unwrap();
        host
    }

    #[test]
    fn sandboxes_get_what_dpkg_needs_and_the_host_is_only_read() {
        let (host, root) = (host(), tempfile::tempdir().unwrap());
        let database = database(host.path()).unwrap();
        let before = fingerprint(&database);
        make_directories(root.path()).unwrap();
        build(&database, root.path()).unwrap();
        let own = root.path().join("var/lib/dpkg");
        for path in [
            "status",
            "info/one.list",
            "info/one.postinst",
            "alternatives/editor",
            "triggers/ldconfig",
            "updates",
        ] {
            assert!(own.join(path).exists(), "{path}");
        }
        assert!(!own.join("info/one.md5sums").exists());
        assert!(!own.join("diversions").exists(), "not everybody may read it");
        let inode = |path: &Path| fs::metadata(path).unwrap().ino();
        assert_ne!(inode(&own.join("status")), inode(&database.join("status")));
        assert_ne!(inode(&own.join("info/one.list")), inode(&database.join("info/one.list")));
        assert_eq!(fs::read_to_string(own.join("statoverride")).unwrap(), "");
        assert_eq!(fs::read_to_string(own.join("triggers/Unincorp")).unwrap(), "");
        assert!(root.path().join("var/lib/apt/lists/partial").is_dir());
        assert_eq!(fingerprint(&database), before);
        fs::write(database.join("status"), "Package: one\nPackage: two\n").unwrap();
        assert_ne!(fingerprint(&database), before);
    }

    #[test]
    fn directories_of_several_packages_are_found() {
        let host = host();
        let database = database(host.path()).unwrap();
        let found = shared_directories(host.path(), &database, &["lib"]);
        assert_eq!(found, BTreeSet::from(["lib/one".into(), "share/man/man1".into()]));
    }
}

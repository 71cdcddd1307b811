//! Notices in a few microseconds that the host's packages changed: only then is image `host`'s layer looked at anew.
//!
//! Programs inside come from the host's `/usr` as it is now, and `/etc` from a copy. After an upgrade of the host, a
//! new sandbox with the old copy would have libraries that its linker does not know.

use std::{
    fs,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

/// The paths that every package manager, and every `ldconfig` and `update-alternatives`, touches.
const WATCHED: &[&str] = &[
    "etc/ld.so.cache",
    "etc/alternatives",
    "etc/ssl/certs",
    "usr/bin",
    "usr/lib",
    "usr/local/bin",
    "var/lib/dpkg/status",
    "var/lib/dpkg/alternatives",
    "var/lib/rpm",
    "usr/lib/sysimage/rpm",
    "var/lib/pacman/local",
    "lib/apk/db/installed",
];

/// The times and lengths of what is watched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pulse(Vec<Option<(u64, i64, i64, u64)>>);

impl Pulse {
    /// `host`: its root.
    pub(crate) fn of(host: &Path) -> Self {
        let seen = |path: PathBuf| {
            let found = fs::metadata(path).ok()?;
            Some((found.ino(), found.mtime(), found.mtime_nsec(), found.len()))
        };
        Self(WATCHED.iter().map(|path| seen(host.join(path))).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_package_that_comes_or_goes_is_noticed() {
        let host = tempfile::tempdir().unwrap();
        let at = |path: &str| host.path().join(path);
        fs::create_dir_all(at("usr/bin")).unwrap();
        fs::create_dir_all(at("var/lib/dpkg")).unwrap();
        let mut before = Pulse::of(host.path());
        assert_eq!(before, Pulse::of(host.path()));
        for (path, text) in
            [("var/lib/dpkg/status", "one"), ("usr/bin/tool", "x"), ("var/lib/dpkg/status", "more")]
        {
            fs::write(at(path), text).unwrap();
            let now = Pulse::of(host.path());
            assert_ne!(before, now, "{path}");
            before = now;
        }
        fs::remove_file(at("usr/bin/tool")).unwrap();
        assert_ne!(before, Pulse::of(host.path()));
    }
}

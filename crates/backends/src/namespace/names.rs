//! What is derived from a sandbox's id, so that everything of it can be found again from the id alone.

use std::{
    collections::hash_map::DefaultHasher,
    hash::{Hash as _, Hasher as _},
    path::{Path, PathBuf},
};

use sandbox::SandboxId;

/// Where this back end keeps things.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Directories {
    /// `$WARREN_HOME`.
    pub home: PathBuf,
    /// Run directory: `<run>/<id>/` for each live sandbox.
    pub run: PathBuf,
}

impl Directories {
    pub(crate) fn layers(&self) -> PathBuf {
        self.home.join("layers")
    }

    pub(crate) fn sandboxes(&self) -> PathBuf {
        self.home.join("sandboxes")
    }

    /// Name of the cgroup above all sandboxes of this home: a second daemon with another home has another.
    pub(crate) fn cgroup_parent(&self) -> String {
        let home = self.home.canonicalize().unwrap_or_else(|_missing| self.home.clone());
        let mut hasher = DefaultHasher::new();
        home.hash(&mut hasher);
        format!("warren-{:016x}", hasher.finish())
    }

    pub(crate) fn place(&self, id: &SandboxId) -> PlaceNames {
        PlaceNames { run: self.run.join(id.as_str()) }
    }
}

/// Files of one live sandbox in the run directory.
#[derive(Debug, Clone)]
pub(crate) struct PlaceNames {
    pub(crate) run: PathBuf,
}

impl PlaceNames {
    pub(crate) fn socket(&self) -> PathBuf {
        self.run.join("guest.sock")
    }

    /// Pid and start time of the guest, written by the guest itself on its way in.
    pub(crate) fn pid(&self) -> PathBuf {
        self.run.join("pid")
    }

    /// What a later daemon must know; see [`super::record::Record`].
    pub(crate) fn record(&self) -> PathBuf {
        self.run.join("place.json")
    }
}

/// The sandbox's own files, below its directory.
#[derive(Debug, Clone)]
pub(crate) struct FileNames {
    /// Everything that is mounted inside, and nothing else (the logs lie beside it).
    pub(crate) own: PathBuf,
    /// A file system of a fixed size, instead of `own`.
    pub(crate) image: PathBuf,
}

impl FileNames {
    pub(crate) fn of(directory: &Path) -> Self {
        Self { own: directory.join("fs"), image: directory.join("disk.img") }
    }
}

/// Below `own`, or at the top of the image: layers of `/` and of `/usr`.
pub(crate) const OWN_DIRECTORIES: [&str; 7] =
    ["root", "root/upper", "root/upper/etc", "root/work", "usr", "usr/upper", "usr/work"];

/// What a new sandbox has of its own from the start: its name, so that programs which look themselves up find something.
pub(crate) fn own_files(hostname: &str) -> Vec<(String, String)> {
    let hosts = format!("127.0.0.1\tlocalhost {hostname}\n::1\tlocalhost ip6-localhost ip6-loopback\n");
    vec![
        ("root/upper/etc/hostname".to_owned(), format!("{hostname}\n")),
        ("root/upper/etc/hosts".to_owned(), hosts),
    ]
}

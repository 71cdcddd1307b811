//! Files and directories of the host that are read: opened first, and copied from the descriptor later.

use std::{
    io::Read,
    path::{Path, PathBuf},
};

use engine::{ByteStream, PatchSource};
use rustix::fs::{OFlags, fstat};
use sandbox::{Error, FileIdentity, Result};

use super::{
    HostCaller, HostPolicy, RULES,
    copy::{Copied, blocking, locate},
    error::{broken_off, failed, worded},
    location::{Access, Location},
    policy::normal,
};

/// Names that one listing takes.
const MAX_NAMES: usize = 10_000;

/// A file or directory of the host that may be read, held open.
#[derive(Debug)]
pub(crate) struct Source(hostfiles::Source);

impl Source {
    pub(crate) async fn open(caller: impl Into<HostCaller<'_>>, path: &str) -> Result<Self> {
        let caller = caller.into();
        let location = locate(caller, path, Access::Read).await?;
        let opened = blocking(move || location.into_source()).await;
        Ok(Self(opened.map_err(|error| caller.how_to_allow(error))?))
    }

    /// For the daemon's owner, who may read whatever the daemon can.
    pub(crate) async fn open_as_owner(path: &Path) -> Result<Self> {
        if !path.is_absolute() {
            return Err(Error::invalid(format!("the host path {} is not absolute", path.display()))
                .with_hint("Give a path that begins with /."));
        }
        let shown = normal(path);
        let policy = HostPolicy { unrestricted: true, ..HostPolicy::default() };
        let open = move || Location::find(&policy, &shown, Access::Read)?.into_source();
        blocking(open).await.map(Self)
    }

    /// Its absolute path, for people.
    pub(crate) fn shown(&self) -> String {
        self.0.shown.to_string_lossy().into_owned()
    }

    pub(crate) fn is_directory(&self) -> bool {
        self.0.is_directory()
    }

    /// Refuses a directory where a patch of a file was asked for, and the other way round.
    pub(crate) fn check_kind(&self, wants_directory: bool) -> Result<()> {
        let (is, right) = match (self.is_directory(), wants_directory) {
            (true, false) => ("a directory", "copyDir"),
            (false, true) => ("a file", "copyFile"),
            _ => return Ok(()),
        };
        Err(Error::invalid(format!("{} on the host is {is}", self.0.shown.display()))
            .with_hint(format!("Use a patch of kind {right}.")))
    }

    /// Names of what is in a directory, at most [`MAX_NAMES`], sorted.
    pub(crate) async fn names(self) -> Result<Vec<String>> {
        blocking(move || self.0.names(MAX_NAMES).map_err(worded)).await
    }

    /// A file's bytes; of a directory all that is beneath it, as a tar. Blocks.
    pub(crate) fn into_reader(self) -> Box<dyn Read + Send> {
        self.0.into_reader(RULES, broken_off)
    }

    /// The same for who does not block.
    pub(crate) fn into_stream(self) -> ByteStream {
        self.0.into_stream(PathBuf::new(), RULES, broken_off).0
    }

    /// Returns the source for a patch, and the report on how its copy went.
    pub(crate) fn into_patch(self) -> (PatchSource, Report) {
        let facts = self.0.file_facts();
        let (bytes, report) = self.0.into_stream(PathBuf::new(), RULES, broken_off);
        let source = match facts {
            // Without the bits that lend the owner's rights.
            Some((mode, _)) => PatchSource::File { mode: mode & 0o777, bytes },
            None => PatchSource::Directory { tar: bytes },
        };
        (source, Report(report))
    }
}

/// How reading went, once it is over.
#[derive(Debug, Clone)]
pub(crate) struct Report(hostfiles::Report);

impl Report {
    /// Takes the outcome of the copy, with the host's refusal if there was one. The sandbox only saw that the bytes
    /// broke off.
    pub(crate) fn take(&self) -> Option<Result<Copied>> {
        let counts = self.0.take()?;
        Some(counts.map(|counts| Copied { host_path: String::new(), counts }).map_err(worded))
    }
}

/// The absolute path that a caller means, and which file is there: whoever opens it later must find the same one.
pub(crate) async fn identify(
    caller: impl Into<HostCaller<'_>>,
    path: &str,
    access: Access,
) -> Result<(PathBuf, FileIdentity)> {
    let caller = caller.into();
    let location = locate(caller, path, access).await?;
    let shown = location.shown.clone();
    let looked_at = blocking(move || {
        let stat = location.open(OFlags::PATH).and_then(fstat);
        stat.map_err(|errno| failed("look at", &location.shown, errno))
    });
    let stat = looked_at.await.map_err(|error| caller.how_to_allow(error))?;
    Ok((shown, FileIdentity { device: stat.st_dev, inode: stat.st_ino }))
}

//! What the fuzz targets share: hostile archives, a directory with a canary beside it, and a daemon without a socket.

mod archive;
mod backend;
mod daemon;

pub use archive::{END_BYTES, Member, files, tar};
pub use daemon::Daemon;

use std::{fs, path::PathBuf};

const CANARY: &str = "untouched";

/// A directory to unpack into. Whatever is unpacked there must leave the file beside it alone.
#[derive(Debug)]
pub struct Cell {
    outer: tempfile::TempDir,
}

impl Cell {
    pub fn new() -> Self {
        let outer = tempfile::tempdir().expect("a temporary directory");
        fs::create_dir(outer.path().join("inside")).expect("a directory in it");
        fs::write(outer.path().join("canary"), CANARY).expect("a file beside it");
        Self { outer }
    }

    pub fn inside(&self) -> PathBuf {
        self.outer.path().join("inside")
    }

    /// Fails the run if anything outside of [`Self::inside`] was written, added or removed.
    pub fn check(&self) {
        let entries = fs::read_dir(self.outer.path()).expect("the directory").count();
        assert_eq!(entries, 2, "something was made or removed beside the directory");
        let canary = fs::read_to_string(self.outer.path().join("canary"));
        assert_eq!(canary.ok().as_deref(), Some(CANARY), "a file outside was changed");
    }
}

impl Default for Cell {
    fn default() -> Self {
        Self::new()
    }
}

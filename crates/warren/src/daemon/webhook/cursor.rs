//! The number of the next event to send, kept over restarts.

use std::{
    fs, io,
    io::Write as _,
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

const FILE_NAME: &str = "webhook.next";

#[derive(Debug)]
pub(super) struct Cursor {
    path: PathBuf,
    pub(super) next: u64,
}

impl Cursor {
    /// Continues where an earlier daemon was; else with the next event, `otherwise`.
    pub(super) fn open(home: &Path, otherwise: u64) -> Self {
        let path = home.join(FILE_NAME);
        let kept = fs::read_to_string(&path).ok().and_then(|text| text.trim().parse().ok());
        let cursor = Self { path, next: kept.unwrap_or(otherwise) };
        if kept.is_none() {
            cursor.keep();
        }
        cursor
    }

    pub(super) fn advance(&mut self, next: u64) {
        self.next = next;
        self.keep();
    }

    /// If it cannot be kept, the next daemon sends some events again.
    fn keep(&self) {
        if let Err(error) = self.write() {
            tracing::warn!("could not write {}: {error}", self.path.display());
        }
    }

    fn write(&self) -> io::Result<()> {
        let new = self.path.with_extension("new");
        let mut file =
            fs::OpenOptions::new().create(true).write(true).truncate(true).mode(0o600).open(&new)?;
        writeln!(file, "{}", self.next)?;
        fs::rename(&new, &self.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_daemon_continues() {
        let home = tempfile::tempdir().unwrap();
        assert_eq!(Cursor::open(home.path(), 7).next, 7);
        let mut cursor = Cursor::open(home.path(), 9);
        assert_eq!(cursor.next, 7);
        cursor.advance(12);
        assert_eq!(Cursor::open(home.path(), 1).next, 12);
        fs::write(home.path().join(FILE_NAME), "nonsense").unwrap();
        assert_eq!(Cursor::open(home.path(), 3).next, 3);
    }
}

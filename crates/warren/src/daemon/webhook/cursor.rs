//! The number of the next event to send, kept over restarts, and which daemon's records it counts in.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

const FILE_NAME: &str = "webhook.next";
/// Stands for the oldest event that is kept: numbers begin with 1.
pub(super) const OLDEST: u64 = 0;
/// In the file, where the history has no id.
const NO_HISTORY: &str = "-";

/// Where the records of events are now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Position {
    /// See [`engine::Engine::event_history`].
    pub(super) history: Option<String>,
    /// The number of the last event.
    pub(super) last: u64,
}

/// What became of the place that the daemon before had.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Found {
    /// It is kept, or there was none.
    Place,
    /// Its file cannot be read: some events come again.
    Nonsense,
    /// The events that it was among are lost.
    OtherRecords,
}

#[derive(Debug)]
pub(super) struct Cursor {
    path: PathBuf,
    history: Option<String>,
    pub(super) next: u64,
}

impl Cursor {
    /// Continues where an earlier daemon was; without one, with the next event. Where that place is of no use, with the
    /// oldest event that is kept.
    pub(super) fn open(home: &Path, now: Position) -> (Self, Found) {
        let path = home.join(FILE_NAME);
        let upcoming = now.last.saturating_add(1);
        let (next, found) = match fs::read_to_string(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => (upcoming, Found::Place),
            Err(error) => {
                tracing::warn!("cannot read {}: {error}", path.display());
                (OLDEST, Found::Nonsense)
            }
            Ok(text) => match parse(&text) {
                None => (OLDEST, Found::Nonsense),
                Some((next, history)) => {
                    let is_other = history.is_some_and(|history| Some(history) != now.history.as_deref());
                    if is_other || next > upcoming {
                        (OLDEST, Found::OtherRecords)
                    } else {
                        (next, Found::Place)
                    }
                }
            },
        };
        let cursor = Self { path, history: now.history, next };
        // Until a first batch is taken, the next daemon finds the same trouble again, and tells of it.
        if found == Found::Place {
            keep(&cursor.path, &cursor.text());
        }
        (cursor, found)
    }

    pub(super) async fn advance(&mut self, next: u64) {
        self.next = next;
        let (path, text) = (self.path.clone(), self.text());
        // It waits for the disk.
        drop(tokio::task::spawn_blocking(move || keep(&path, &text)).await);
    }

    fn text(&self) -> String {
        format!("{} {}\n", self.next, self.history.as_deref().unwrap_or(NO_HISTORY))
    }
}

/// If it cannot be kept, the next daemon sends some events again.
fn keep(path: &Path, text: &str) {
    if let Err(error) = write(path, text) {
        tracing::warn!("could not write {}: {error}", path.display());
    }
}

/// Synced: otherwise a machine that loses its power may leave an empty file.
fn write(path: &Path, text: &str) -> io::Result<()> {
    let new = path.with_extension("new");
    let mut file = OpenOptions::new().create(true).write(true).truncate(true).mode(0o600).open(&new)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(&new, path)?;
    File::open(path.parent().unwrap_or(Path::new(".")))?.sync_all()
}

/// The next number, and the history if it is known: the first versions wrote the number alone.
fn parse(text: &str) -> Option<(u64, Option<&str>)> {
    let mut words = text.strip_suffix('\n')?.split(' ');
    let next = words.next()?.parse().ok()?;
    Some((next, words.next().filter(|history| *history != NO_HISTORY)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(history: &str, last: u64) -> Position {
        Position { history: Some(history.to_owned()), last }
    }

    fn open(home: &Path, now: Position) -> (u64, Found) {
        let (cursor, found) = Cursor::open(home, now);
        (cursor.next, found)
    }

    #[tokio::test]
    async fn the_next_daemon_continues() {
        let home = tempfile::tempdir().unwrap();
        assert_eq!(open(home.path(), at("one", 6)), (7, Found::Place));
        let (mut cursor, _) = Cursor::open(home.path(), at("one", 8));
        assert_eq!(cursor.next, 7);
        cursor.advance(12).await;
        assert_eq!(open(home.path(), at("one", 11)), (12, Found::Place));
        // As the first versions wrote it.
        fs::write(home.path().join(FILE_NAME), "9\n").unwrap();
        assert_eq!(open(home.path(), at("one", 11)), (9, Found::Place));
    }

    #[tokio::test]
    async fn a_place_among_lost_events_is_none() {
        let home = tempfile::tempdir().unwrap();
        open(home.path(), at("one", 499));
        for _daemon in 0..2 {
            assert_eq!(open(home.path(), at("two", 3)), (OLDEST, Found::OtherRecords));
            // There are as many new ones already.
            assert_eq!(open(home.path(), at("two", 600)), (OLDEST, Found::OtherRecords));
            // An old copy of the records.
            assert_eq!(open(home.path(), at("one", 3)), (OLDEST, Found::OtherRecords));
        }
        let (mut cursor, _) = Cursor::open(home.path(), at("two", 3));
        cursor.advance(4).await;
        assert_eq!(open(home.path(), at("two", 3)), (4, Found::Place));
    }

    #[test]
    fn a_damaged_file_skips_no_event() {
        let home = tempfile::tempdir().unwrap();
        for text in ["", "nonsense\n", "\n", "-1\n", "12"] {
            fs::write(home.path().join(FILE_NAME), text).unwrap();
            assert_eq!(open(home.path(), at("one", 30)), (OLDEST, Found::Nonsense), "{text:?}");
        }
        fs::remove_file(home.path().join(FILE_NAME)).unwrap();
        fs::create_dir(home.path().join(FILE_NAME)).unwrap();
        assert_eq!(open(home.path(), at("one", 30)), (OLDEST, Found::Nonsense));
    }
}

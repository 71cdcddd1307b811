//! Opening the database: permissions, settings, migrations.

use std::{
    cell::Cell,
    collections::BTreeSet,
    fs::{self, DirBuilder, OpenOptions, Permissions},
    io,
    os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
    time::Duration,
};

use rusqlite::{Connection, OpenFlags, OptionalExtension, TransactionBehavior};

use crate::{
    error::{StoreError, from_sql},
    home::{HomeMark, Mark},
};

const FILE_NAME: &str = "warren.db";
/// The endings of the database's files, with those that SQLite keeps beside it.
const FILE_ENDINGS: [&str; 3] = ["", "-wal", "-shm"];
/// "WRRN": marks the file as ours, so that another program's database is never migrated.
const APPLICATION_ID: i64 = 0x5752_524e;
/// Each is applied once, in order, in a transaction of its own; its number is its place, from 1. Never edit one.
const MIGRATIONS: &[&str] = &[
    include_str!("../migrations/0001_records.sql"),
    include_str!("../migrations/0002_access.sql"),
    include_str!("../migrations/0003_callers.sql"),
    include_str!("../migrations/0004_packages.sql"),
    include_str!("../migrations/0005_volumes.sql"),
    include_str!("../migrations/0006_snapshots.sql"),
    include_str!("../migrations/0007_replaces.sql"),
    include_str!("../migrations/0008_home.sql"),
    include_str!("../migrations/0009_exec_ends.sql"),
    include_str!("../migrations/0010_ports.sql"),
    include_str!("../migrations/0011_secrets.sql"),
    include_str!("../migrations/0012_key_networks.sql"),
    include_str!("../migrations/0013_network_requests.sql"),
    include_str!("../migrations/0014_ssh_keys.sql"),
    include_str!("../migrations/0015_dashboard.sql"),
    include_str!("../migrations/0016_request_hashes.sql"),
    include_str!("../migrations/0017_request_owners.sql"),
];
/// The first version of the tables with a mark of the home.
const MARKED_SINCE: i64 = 8;
/// How long to wait for a person's `sqlite3` that reads at the same time.
const BUSY_TIMEOUT: Duration = Duration::from_secs(2);
/// All statements of this crate stay prepared.
const CACHED_STATEMENTS: usize = 64;
/// The write-ahead log is cut back to this many bytes after a checkpoint, so that one burst does not hold disk for
/// ever.
const MAX_IDLE_WAL_BYTES: i64 = 4 * 1024 * 1024;

#[derive(Debug)]
pub(crate) struct Database {
    pub(crate) connection: Connection,
    home: PathBuf,
    path: PathBuf,
    /// Whether it is known to be the one that the home was last used with.
    pub(crate) is_of_home: bool,
    /// Whether the write-ahead log may hold values that were removed.
    has_removed_values: Cell<bool>,
}

impl Database {
    fn new(connection: Connection, home: &Path, path: PathBuf) -> Self {
        let has_removed_values = Cell::new(false);
        Self { connection, home: home.to_owned(), path, is_of_home: false, has_removed_values }
    }

    /// Opens `home/warren.db`, making both where they are missing. What is there and cannot be read is never touched.
    pub(crate) fn open(home: &Path) -> Result<Self, StoreError> {
        make_directory(home)?;
        let path = home.join(FILE_NAME);
        make_private_file(&path)?;
        let has_log = fs::metadata(home.join(format!("{FILE_NAME}-wal"))).is_ok_and(|log| log.len() > 0);
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(&path, flags)
            .map_err(|source| from_sql(path.clone(), "opening it", source))?;
        let mut database = Self::new(connection, home, path);
        let version = database.check()?;
        database.configure()?;
        if has_log {
            // Of a daemon that died, perhaps right after it removed a secret.
            database.forget();
        }
        database.migrate(version)?;
        database.is_of_home = database.belongs_to_home(version)?;
        if database.is_of_home
            && let Err(error) = database.bind_to_home()
        {
            // On a full disk, say. The mark of before still fits.
            tracing::warn!(%error, "could not renew the mark that ties the database to its home");
        }
        Ok(database)
    }

    /// Opens what is there to look at it, and changes nothing. None when there is no database, or an empty one.
    pub(crate) fn open_to_look(home: &Path) -> Result<Option<Self>, StoreError> {
        let path = home.join(FILE_NAME);
        if !fs::metadata(&path).is_ok_and(|file| file.len() > 0) {
            return Ok(None);
        }
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(&path, flags)
            .map_err(|source| from_sql(path.clone(), "opening it", source))?;
        let mut database = Self::new(connection, home, path);
        let version = database.check()?;
        database.is_of_home = database.belongs_to_home(version)?;
        Ok((version > 0).then_some(database))
    }

    /// All ids in a table; none when an earlier version did not have it.
    pub(crate) fn ids(&self, table: &str) -> Result<BTreeSet<String>, StoreError> {
        let ids = || {
            if !self.has_table(table)? {
                return Ok(BTreeSet::new());
            }
            let mut statement = self.connection.prepare(&format!("SELECT id FROM {table}"))?;
            statement.query_map([], |row| row.get(0))?.collect()
        };
        ids().map_err(|source| self.error("listing its records", source))
    }

    fn has_table(&self, table: &str) -> Result<bool, rusqlite::Error> {
        let sql = "SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = ?1";
        self.connection.query_row(sql, [table], |row| row.get(0))
    }

    /// `version`: of its tables, before they were brought up to date.
    fn belongs_to_home(&self, version: i64) -> Result<bool, StoreError> {
        Ok(match (self.mark()?, Mark::of_home(&self.home)) {
            // The database is marked first, so it may be ahead of the home, never behind it.
            (Some(own), HomeMark::Is(home)) => own.id == home.id && own.generation >= home.generation,
            // Both are from before there were marks.
            (None, HomeMark::Missing) => (1..MARKED_SINCE).contains(&version),
            _ => false,
        })
    }

    pub(crate) fn mark(&self) -> Result<Option<Mark>, StoreError> {
        let read = |row: &rusqlite::Row<'_>| {
            Ok(Mark { id: row.get(0)?, generation: row.get::<_, i64>(1)?.unsigned_abs() })
        };
        let find = || match self.has_table("home")? {
            true => self.connection.query_row("SELECT id, generation FROM home", [], read).optional(),
            false => Ok(None),
        };
        find().map_err(|source| self.error("reading which home it belongs to", source))
    }

    /// From now on it is the home's own, and copies of before are not. One that was not gets a new id: its records and
    /// the numbers of its events do not continue those of the database before.
    pub(crate) fn bind_to_home(&mut self) -> Result<(), StoreError> {
        let sql = match self.mark()? {
            Some(_) if self.is_of_home => "UPDATE home SET generation = generation + 1",
            Some(_) => "UPDATE home SET id = lower(hex(randomblob(16))), generation = generation + 1",
            None => "INSERT INTO home VALUES (lower(hex(randomblob(16))), 1)",
        };
        self.connection.execute(sql, []).map_err(|source| self.error("marking it", source))?;
        if let Some(mark) = self.mark()? {
            mark.write(&self.home).map_err(|source| io_error("mark the directory", &self.home, source))?;
        }
        self.is_of_home = true;
        Ok(())
    }

    /// Whether it is ours and whole. Returns the version of its tables.
    fn check(&self) -> Result<i64, StoreError> {
        let settings = || {
            self.connection.busy_timeout(BUSY_TIMEOUT)?;
            self.connection.set_prepared_statement_cache_capacity(CACHED_STATEMENTS);
            // The first statement that reads the file: garbage is found here, before anything could be written.
            self.connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get::<_, i64>(0))
        };
        let n_tables = settings().map_err(|source| self.error("reading its schema", source))?;
        let version = self.pragma("user_version")?;
        let known = MIGRATIONS.len() as i64;
        if n_tables > 0 && self.pragma("application_id")? != APPLICATION_ID {
            let reason = "it belongs to another program".to_owned();
            return Err(StoreError::Unreadable { path: self.path.clone(), reason });
        }
        if version > known {
            return Err(StoreError::TooNew { path: self.path.clone(), found: version, known });
        }
        self.check_structure()?;
        Ok(version)
    }

    /// `secure_delete`: no value of a removed secret stays in the file's free space; [`Database::forget`] does the same
    /// for the log. Checkpoints wait for the disk, so no write makes one by itself: [`Database::checkpoint`].
    fn configure(&self) -> Result<(), StoreError> {
        self.connection
            .execute_batch(&format!(
                "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL; PRAGMA foreign_keys = ON; \
                 PRAGMA journal_size_limit = {MAX_IDLE_WAL_BYTES}; PRAGMA secure_delete = ON; \
                 PRAGMA wal_autocheckpoint = 0;"
            ))
            .map_err(|source| self.error("setting it up", source))
    }

    /// Folds the write-ahead log into the file, as far as nobody reads it.
    pub(crate) fn checkpoint(&self) -> Result<(), StoreError> {
        if self.has_removed_values.get() {
            return self.empty_log();
        }
        let folded = self.connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_row| Ok(()));
        folded.map_err(|source| self.error("folding its log", source))
    }

    /// Empties the write-ahead log, which has pages from before a secret was removed or replaced.
    pub(crate) fn forget(&self) {
        self.has_removed_values.set(true);
        if let Err(error) = self.empty_log() {
            tracing::warn!(%error, "a removed secret stays in the log of the database until the next checkpoint");
        }
    }

    /// Waits for others who read. If they take too long, the next checkpoint tries again.
    fn empty_log(&self) -> Result<(), StoreError> {
        let emptied = self.connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| {
            let is_busy: bool = row.get(0)?;
            Ok(!is_busy)
        });
        let is_empty = emptied.map_err(|source| self.error("emptying its log", source))?;
        self.has_removed_values.set(!is_empty);
        Ok(())
    }

    /// Damage in the middle of the file would show itself only when someone comes by, or hide records without a word.
    fn check_structure(&self) -> Result<(), StoreError> {
        let checked = self.connection.query_row("PRAGMA quick_check(1)", [], |row| row.get::<_, String>(0));
        match checked.map_err(|source| self.error("checking it", source))? {
            ok if ok == "ok" => Ok(()),
            problem => {
                let reason = format!("it is damaged: {}", problem.lines().last().unwrap_or_default());
                Err(StoreError::Unreadable { path: self.path.clone(), reason })
            }
        }
    }

    fn migrate(&mut self, version: i64) -> Result<(), StoreError> {
        let path = self.path.clone();
        let mut apply = |number: i64, script: &str| {
            let transaction = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            transaction.execute_batch(script)?;
            transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
            transaction.pragma_update(None, "user_version", number)?;
            transaction.commit()
        };
        for (number, script) in (1_i64..).zip(MIGRATIONS) {
            if number > version {
                apply(number, script)
                    .map_err(|source| from_sql(path.clone(), "bringing its tables up to date", source))?;
            }
        }
        Ok(())
    }

    fn pragma(&self, name: &str) -> Result<i64, StoreError> {
        self.connection
            .pragma_query_value(None, name, |row| row.get(0))
            .map_err(|source| self.error("reading its version", source))
    }

    pub(crate) fn error(&self, what: &'static str, source: rusqlite::Error) -> StoreError {
        from_sql(self.path.clone(), what, source)
    }
}

/// Gives the database another name, which ends with `suffix`, so that a new one can be made. Returns that name; none
/// when there is no database.
pub(crate) fn set_aside(home: &Path, suffix: &str) -> Result<Option<PathBuf>, StoreError> {
    let path = home.join(FILE_NAME);
    let aside = home.join(format!("{FILE_NAME}.{suffix}"));
    let mut is_there = false;
    for ending in FILE_ENDINGS {
        let with_ending = |path: &Path| PathBuf::from(format!("{}{ending}", path.display()));
        match fs::rename(with_ending(&path), with_ending(&aside)) {
            Ok(()) => is_there = true,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(source) => return Err(io_error("rename", &path, source)),
        }
    }
    Ok(is_there.then_some(aside))
}

fn make_directory(home: &Path) -> Result<(), StoreError> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(home)
        .map_err(|source| io_error("make the directory", home, source))
}

/// SQLite gives the files beside the database the same permissions.
fn make_private_file(path: &Path) -> Result<(), StoreError> {
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(path)
        .map_err(|source| io_error("open the database", path, source))?;
    file.set_permissions(Permissions::from_mode(0o600))
        .map_err(|source| io_error("set the permissions of", path, source))
}

fn io_error(what: &'static str, path: &Path, source: io::Error) -> StoreError {
    if source.kind() == io::ErrorKind::StorageFull {
        return StoreError::NoSpace { path: path.to_owned() };
    }
    StoreError::Io { what, path: path.to_owned(), source }
}

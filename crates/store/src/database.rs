//! Opening the database: permissions, settings, migrations.

use std::{
    fs::{DirBuilder, OpenOptions, Permissions},
    io,
    os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
    time::Duration,
};

use rusqlite::{Connection, OpenFlags, TransactionBehavior};

use crate::error::{StoreError, from_sql};

const FILE_NAME: &str = "warren.db";
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
];
/// How long to wait for a person's `sqlite3` that reads at the same time.
const BUSY_TIMEOUT: Duration = Duration::from_secs(2);
/// All statements of this crate stay prepared.
const CACHED_STATEMENTS: usize = 64;
/// The write-ahead log is cut back to this many bytes after a checkpoint, so that one burst does not hold disk for ever.
const MAX_IDLE_WAL_BYTES: i64 = 4 * 1024 * 1024;

#[derive(Debug)]
pub(crate) struct Database {
    pub(crate) connection: Connection,
    path: PathBuf,
}

impl Database {
    /// Opens `home/warren.db`, making both where they are missing. What is there and cannot be read is never touched.
    pub(crate) fn open(home: &Path) -> Result<Self, StoreError> {
        make_directory(home)?;
        let path = home.join(FILE_NAME);
        make_private_file(&path)?;
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(&path, flags)
            .map_err(|source| from_sql(path.clone(), "opening it", source))?;
        let mut database = Self { connection, path };
        database.check_and_configure()?;
        database.migrate()?;
        Ok(database)
    }

    fn check_and_configure(&self) -> Result<(), StoreError> {
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
        self.connection
            .execute_batch(&format!(
                "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL; PRAGMA foreign_keys = ON; \
                 PRAGMA journal_size_limit = {MAX_IDLE_WAL_BYTES};"
            ))
            .map_err(|source| self.error("setting it up", source))
    }

    fn migrate(&mut self) -> Result<(), StoreError> {
        let version = self.pragma("user_version")?;
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

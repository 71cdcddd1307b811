//! `warren doctor --recover`: rebuilds the records of a home whose daemon cannot open them.

use std::path::PathBuf;

use engine::{CorruptRecords, Recovery};
use jiff::{Timestamp, tz::TimeZone};
use sandbox::Result;
use store::{Store, StoreError};

use super::{lock::Asked, no_records, take_over::take_locks};
use crate::directories::Directories;

#[derive(Debug)]
pub(crate) struct Recovered {
    /// The new path of the database, if it was damaged.
    pub(crate) database: Option<PathBuf>,
    pub(crate) recovery: Recovery,
    /// The directory with the files for which no record could be rebuilt.
    pub(crate) lost: Option<PathBuf>,
}

/// Deletes nothing: unusable files are moved aside. Fails while a daemon runs.
pub(crate) async fn recover(directories: &Directories) -> Result<Recovered> {
    directories.make()?;
    let _locks = take_locks(directories, Asked::ByPerson)?;
    let home = &directories.home;
    let now = Timestamp::now();
    let stamp = now.to_zoned(TimeZone::UTC).strftime("%Y%m%dT%H%M%SZ").to_string();
    let failed = |error| no_records(home, error);
    let (store, database) = match Store::open(home) {
        Err(StoreError::Unreadable { .. }) => {
            let database = Store::set_aside(home, &format!("damaged-{stamp}")).map_err(failed)?;
            (Store::open(home).map_err(failed)?, database)
        }
        store => (store.map_err(failed)?, None),
    };
    let recovery = engine::recover(home, &store, now, CorruptRecords::Mend).await?;
    let lost = engine::put_aside(home, &store, &recovery, &stamp).await?;
    store.close().await;
    Ok(Recovered { database, recovery, lost })
}

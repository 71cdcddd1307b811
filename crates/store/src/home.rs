//! The home as its files tell it: manifests beside the files of sandboxes and volumes, and the mark that says which
//! database belongs to them.
//!
//! A database may be missing, damaged or an old copy. Nothing is ever taken away on the word of one that is not known
//! to be the home's own.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    str::FromStr,
};

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::{SandboxRecord, StoreError, VolumeRecord, database::Database};

const MARK_FILE: &str = "home.id";
/// An id, a number and what lies between.
const MAX_MARK_BYTES: u64 = 128;
const MANIFEST_FILE: &str = "manifest.json";
/// A record holds an environment, which is bounded far below this.
const MAX_MANIFEST_BYTES: u64 = 64 * 1024 * 1024;
const MANIFEST_VERSION: u32 = 1;

/// The mark that a database and its home have in common.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mark {
    pub(crate) id: String,
    pub(crate) generation: u64,
}

/// The home's own mark, as read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum HomeMark {
    Missing,
    Unreadable,
    Is(Mark),
}

impl Mark {
    pub(crate) fn of_home(home: &Path) -> HomeMark {
        let text = match read_bounded(&home.join(MARK_FILE), MAX_MARK_BYTES) {
            Ok(bytes) => String::from_utf8(bytes).unwrap_or_default(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return HomeMark::Missing,
            Err(_) => return HomeMark::Unreadable,
        };
        let mut words = text.split_whitespace();
        match (words.next(), words.next().map(str::parse)) {
            (Some(id), Some(Ok(generation))) => HomeMark::Is(Self { id: id.to_owned(), generation }),
            _ => HomeMark::Unreadable,
        }
    }

    pub(crate) fn write(&self, home: &Path) -> io::Result<()> {
        replace(&home.join(MARK_FILE), format!("{} {}\n", self.id, self.generation).as_bytes())
    }
}

/// A record beside the files that it tells of.
#[derive(Serialize, Deserialize)]
struct Manifest<T> {
    version: u32,
    record: T,
}

/// A record that has a copy beside its files.
pub trait Described: Serialize + DeserializeOwned {
    type Id: FromStr + Ord + Clone;

    /// The directory below the home in which each of them has one; the table of their records is called the same.
    const DIRECTORY: &'static str;

    fn id(&self) -> &Self::Id;

    /// Writes the manifest into `directory`, readable by its owner alone, unless it is there already. In one step:
    /// whoever reads it sees the one before or this one.
    fn write_manifest(&self, directory: &Path) -> io::Result<()> {
        let path = directory.join(MANIFEST_FILE);
        let manifest = serde_json::to_vec(&Manifest { version: MANIFEST_VERSION, record: self })?;
        match read_bounded(&path, MAX_MANIFEST_BYTES) {
            Ok(before) if before == manifest => Ok(()),
            _ => replace(&path, &manifest),
        }
    }
}

impl Described for SandboxRecord {
    type Id = sandbox::SandboxId;
    const DIRECTORY: &'static str = "sandboxes";

    fn id(&self) -> &Self::Id {
        &self.id
    }
}

impl Described for VolumeRecord {
    type Id = sandbox::VolumeId;
    const DIRECTORY: &'static str = "volumes";

    fn id(&self) -> &Self::Id {
        &self.id
    }
}

/// A directory of a sandbox or a volume.
#[derive(Debug)]
pub struct RecordedDirectory<T: Described> {
    pub id: T::Id,
    pub directory: PathBuf,
}

impl<T: Described> RecordedDirectory<T> {
    fn has_manifest(&self) -> bool {
        self.directory.join(MANIFEST_FILE).exists()
    }

    /// Reads the record in its manifest; fails with why that cannot be read.
    pub fn read(&self) -> io::Result<T> {
        let bytes = read_bounded(&self.directory.join(MANIFEST_FILE), MAX_MANIFEST_BYTES)?;
        let Manifest { version, record } = serde_json::from_slice::<Manifest<T>>(&bytes)?;
        if version != MANIFEST_VERSION {
            return Err(io::Error::other(format!("its manifest has version {version}")));
        }
        if *record.id() != self.id {
            return Err(io::Error::other("its manifest belongs to another"));
        }
        Ok(record)
    }
}

/// Every directory of that kind in the home, in no order. What is not named by an id is none of ours.
pub fn find_in_home<T: Described>(home: &Path) -> io::Result<Vec<RecordedDirectory<T>>> {
    let entries = match fs::read_dir(home.join(T::DIRECTORY)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut found = Vec::new();
    for entry in entries {
        let entry = entry?;
        if let Some(id) = entry.file_name().to_str().and_then(|name| name.parse().ok()) {
            found.push(RecordedDirectory { id, directory: entry.path() });
        }
    }
    Ok(found)
}

/// The findings of a look at a home. Nothing is changed by it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Survey {
    /// Whether there is a database with tables in it.
    pub has_database: bool,
    /// Whether it is known to be the one that the home was last used with.
    pub is_of_home: bool,
    /// Directories of sandboxes and volumes without a record: those with a manifest, and those without.
    pub described: Vec<PathBuf>,
    pub undescribed: Vec<PathBuf>,
}

impl Survey {
    /// Looks at the database and at what lies beside it. Fails where the database cannot be used.
    pub fn of(home: &Path) -> Result<Self, StoreError> {
        let database = Database::open_to_look(home)?;
        let mut survey = Self {
            has_database: database.is_some(),
            is_of_home: database.as_ref().is_some_and(|database| database.is_of_home),
            described: Vec::new(),
            undescribed: Vec::new(),
        };
        survey.look_for::<SandboxRecord>(home, database.as_ref())?;
        survey.look_for::<VolumeRecord>(home, database.as_ref())?;
        Ok(survey)
    }

    fn look_for<T: Described>(&mut self, home: &Path, database: Option<&Database>) -> Result<(), StoreError> {
        let known = database.map(|database| database.ids(T::DIRECTORY)).transpose()?.unwrap_or_default();
        let found = find_in_home::<T>(home).map_err(|source| StoreError::Io {
            what: "list",
            path: home.join(T::DIRECTORY),
            source,
        })?;
        for found in found {
            let is_known = found.directory.file_name().and_then(|name| name.to_str());
            match (is_known.is_some_and(|id| known.contains(id)), found.has_manifest()) {
                (true, _) => {}
                (false, true) => self.described.push(found.directory),
                (false, false) => self.undescribed.push(found.directory),
            }
        }
        Ok(())
    }
}

fn read_bounded(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(most + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        return Err(io::Error::other(format!("it has more than {most} bytes")));
    }
    Ok(bytes)
}

/// Not synced: the page cache outlives the daemon, and the database that it stands beside is not synced at each write
/// either.
fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let new = path.with_extension("new");
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
    let written = file.write_all(bytes).and_then(|()| fs::rename(&new, path));
    if written.is_err() {
        // The first error is the one to tell; the next write begins anew with the same file.
        fs::remove_file(&new).unwrap_or(());
    }
    written
}

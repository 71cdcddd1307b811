//! The address note: a file in the run directory with the daemon's URLs, by which commands and scripts find it on TCP.

use std::{
    fmt, fs, io,
    net::{Ipv4Addr, SocketAddr},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use sandbox::{Error, ErrorKind, Result};
use serde::{Deserialize, Serialize};

use crate::directories::Directories;

const NOTE_NAME: &str = "http.json";
/// How long a newly started daemon may take to listen, and how often its address note is checked.
const PATIENCE: Duration = Duration::from_secs(20);
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// The daemon's URL on this machine.
#[derive(Debug, Clone, Copy)]
pub(super) struct Url {
    pub(super) is_tls: bool,
    pub(super) address: SocketAddr,
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut address = self.address;
        // One cannot connect to the unspecified address.
        if address.ip().is_unspecified() {
            address.set_ip(Ipv4Addr::LOCALHOST.into());
        }
        write!(f, "{}://{address}", if self.is_tls { "https" } else { "http" })
    }
}

/// The note of this daemon. Removed at the end.
#[derive(Debug)]
pub(crate) struct Note {
    path: PathBuf,
}

/// The content of the note.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct NoteBody {
    /// The address of the first listener.
    pub(crate) url: String,
    pub(crate) pid: u32,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) also: Vec<FurtherUrl>,
}

/// A further listener.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FurtherUrl {
    pub(crate) url: String,
    pub(crate) dialect: String,
}

impl Note {
    pub(super) fn write(directories: &Directories, url: &Url, also: Vec<FurtherUrl>) -> Result<Self> {
        let path = directories.run.join(NOTE_NAME);
        let failed = |error: io::Error| {
            Error::new(ErrorKind::Unavailable, format!("could not write {}", path.display()))
                .with_source(error)
        };
        let body = NoteBody { url: url.to_string(), pid: std::process::id(), also };
        let text = serde_json::to_vec(&body).map_err(|error| failed(error.into()))?;
        replace(&path, &text).map_err(failed)?;
        Ok(Self { path })
    }

    /// The daemon's TCP address, from the note in its run directory. Waits for a daemon that was just started.
    pub(crate) async fn wait_for_address(run: &Path) -> Result<SocketAddr> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(address) = Self::address(run) {
                return Ok(address);
            }
            if Instant::now() >= deadline {
                let message = format!("the daemon in {} does not listen on TCP", run.display());
                return Err(Error::new(ErrorKind::TimedOut, message)
                    .with_hint("Run `warren doctor` to see what this host lacks."));
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    fn address(run: &Path) -> Option<SocketAddr> {
        address_of(&Self::read(run)?.url)
    }

    /// Reads the note in this run directory, if there is one. Its daemon may have died since.
    pub(crate) fn read(run: &Path) -> Option<NoteBody> {
        serde_json::from_slice(&fs::read(run.join(NOTE_NAME)).ok()?).ok()
    }

    /// The ports that the note lists.
    pub(super) fn ports(run: &Path) -> Vec<u16> {
        let Some(body) = Self::read(run) else { return Vec::new() };
        let urls = std::iter::once(&body.url).chain(body.also.iter().map(|also| &also.url));
        urls.filter_map(|url| address_of(url)).map(|address| address.port()).collect()
    }

    /// Called under the lock: an existing file belongs to a daemon that died.
    pub(super) fn remove_old(directories: &Directories) {
        remove(&directories.run.join(NOTE_NAME));
    }

    pub(super) fn remove(&self) {
        remove(&self.path);
    }
}

fn address_of(url: &str) -> Option<SocketAddr> {
    url.split_once("://")?.1.parse().ok()
}

/// Written atomically, so that nobody reads half of it.
fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    use std::io::Write as _;
    let new = path.with_extension("json.new");
    let mut file = fs::OpenOptions::new().create(true).write(true).truncate(true).mode(0o600).open(&new)?;
    file.write_all(bytes)?;
    fs::rename(&new, path)
}

fn remove(path: &Path) {
    match fs::remove_file(path) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => tracing::warn!("could not remove {}: {error}", path.display()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everywhere_is_reached_here() {
        let url = |address: &str, is_tls| Url { is_tls, address: address.parse().unwrap() }.to_string();
        assert_eq!(url("0.0.0.0:80", false), "http://127.0.0.1:80");
        assert_eq!(url("[::1]:443", true), "https://[::1]:443");
    }

    #[test]
    fn a_note_of_an_earlier_version_is_understood() {
        let place = tempfile::tempdir().unwrap();
        assert!(Note::read(place.path()).is_none() && Note::ports(place.path()).is_empty());
        fs::write(place.path().join(NOTE_NAME), r#"{"url":"http://127.0.0.1:5555","pid":7}"#).unwrap();
        assert_eq!(Note::ports(place.path()), [5555]);
        fs::write(place.path().join(NOTE_NAME), "{}").unwrap();
        assert!(Note::read(place.path()).is_none());
    }
}

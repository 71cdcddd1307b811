//! State that all tests of one program share: what the host can do, and the layer of image `host`, which takes longest
//! to make.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::OnceLock,
    thread,
    time::{Duration, Instant},
};

use backends::namespace::{Directories, NamespaceBackend};
use sandbox::{Backend as _, BackendError, Capabilities};
use tokio::sync::RwLock;

use crate::namespace::{LOOK_AGAIN, end, wait_for};

/// How long the layer may take: it has thousands of files, and others may be busy with the disk.
const LAYER_TIME: Duration = Duration::from_secs(180);

/// A back end that starts takes disk images that are half made for what an earlier one left. Held by whoever starts one
/// against those who make images.
pub(crate) static STARTS: RwLock<()> = RwLock::const_new(());

static COMMON: OnceLock<Result<Common, String>> = OnceLock::new();

#[derive(Debug)]
pub(crate) struct Common {
    directory: PathBuf,
    pub(crate) capabilities: Capabilities,
}

impl Common {
    /// Made by the first who asks; blocks, so that no clock of a test goes on meanwhile.
    pub(crate) fn get() -> Result<&'static Self, BackendError> {
        let made = COMMON.get_or_init(|| {
            make().map_err(|error| format!("sandboxes cannot be made here: {error} ({error:?})"))
        });
        made.as_ref().map_err(|what| BackendError::Unsupported { what: what.clone(), next: None })
    }

    pub(crate) fn layers(&self) -> PathBuf {
        self.directory.join("home/layers")
    }
}

fn make() -> Result<Common, BackendError> {
    let failed = |error: io::Error| BackendError::failed("no place for tests", error);
    let directory = tempfile::Builder::new().prefix("warren-tests-").tempdir().map_err(failed)?;
    let directories = Directories { home: directory.path().join("home"), run: directory.path().join("run") };
    let backend = wait_for(NamespaceBackend::new(directories.clone(), None))?;
    let capabilities = wait_for(backend.probe())?;
    wait_for_layer(&directories.home.join("layers")).map_err(failed)?;
    end(backend, &directories)?;
    Ok(Common { directory: directory.keep(), capabilities })
}

/// It is made behind the start.
fn wait_for_layer(layers: &Path) -> io::Result<()> {
    let began = Instant::now();
    loop {
        let is_there = fs::read_dir(layers)?
            .flatten()
            .any(|entry| entry.file_name().to_string_lossy().starts_with("host-"));
        match is_there {
            true => return Ok(()),
            false if began.elapsed() > LAYER_TIME => return Err(io::ErrorKind::TimedOut.into()),
            false => thread::sleep(LOOK_AGAIN),
        }
    }
}

/// At the end of the program.
pub(crate) fn clear_away() {
    if let Some(Ok(common)) = COMMON.get() {
        drop(fs::remove_dir_all(&common.directory));
    }
}

//! A guest that runs as a program of its own: found by its pid file, reached by its socket.

use std::{
    fs, io,
    os::{
        fd::OwnedFd,
        unix::{fs::DirBuilderExt as _, net::UnixListener},
    },
    path::{Path, PathBuf},
    time::Duration,
};

use bytes::BytesMut;
use rustix::process::{Signal, pidfd_send_signal};
use sandbox::{BackendError, GuestStream, Isolation, SandboxId};
use tokio::io::unix::AsyncFd;

use crate::namespace::{
    error, hello,
    instance::find_process,
    names::PlaceNames,
    record::{Record, read_pid},
    socket,
    sweep::{self, END_TIME},
    watched,
};

/// How long a guest may take from its start to its first answer. A runtime on a busy machine takes seconds.
const GREETING_TIME: Duration = Duration::from_secs(60);
/// Pause between two checks for a socket that the guest makes itself: there is no event for it.
const LOOK_EVERY: Duration = Duration::from_millis(5);

#[derive(Debug)]
pub(crate) struct GuestProcess {
    pub(crate) id: SandboxId,
    names: PlaceNames,
    /// Readable once the process is dead.
    pidfd: AsyncFd<OwnedFd>,
}

impl GuestProcess {
    /// The process that the pid file of a sandbox names, if it lives. Must be called in a Tokio runtime.
    pub(crate) fn find(id: &SandboxId, names: &PlaceNames) -> Option<Self> {
        let (pid, start_time) = read_pid(&names.pid())?;
        let pidfd = watched::readable(find_process(pid, start_time)?).ok()?;
        Some(Self { id: id.clone(), names: names.clone(), pidfd })
    }

    pub(crate) async fn connect(&self) -> Result<GuestStream, BackendError> {
        socket::connect(&self.id, &self.names.socket()).await
    }

    /// Returns once the guest answers; fails if it ends first or stays silent.
    pub(crate) async fn answers(&self) -> Result<(), BackendError> {
        let greeted = async {
            loop {
                if let Ok(mut stream) = self.connect().await
                    && hello::greeted(&mut stream, &mut BytesMut::new()).await.is_some()
                {
                    return;
                }
                tokio::time::sleep(LOOK_EVERY).await;
            }
        };
        tokio::select! {
            () = greeted => Ok(()),
            () = self.ended() => {
                let what = format!("the guest of {} ended before it answered", self.id);
                Err(BackendError::Failed { what, source: None })
            }
            () = tokio::time::sleep(GREETING_TIME) => {
                let what = format!("the first answer of the guest of {}", self.id);
                Err(BackendError::TimedOut { what, after: GREETING_TIME })
            }
        }
    }

    pub(crate) async fn kill(&self) -> Result<(), BackendError> {
        match pidfd_send_signal(self.pidfd.get_ref(), Signal::KILL) {
            Ok(()) | Err(rustix::io::Errno::SRCH) => {}
            Err(error) => return Err(error::from_io(format!("could not kill {}", self.id), error.into())),
        }
        tokio::time::timeout(END_TIME, self.ended()).await.map_err(|_elapsed| BackendError::TimedOut {
            what: format!("the end of {}, which was killed,", self.id),
            after: END_TIME,
        })
    }

    pub(crate) async fn ended(&self) {
        // An error here would mean that the runtime is shutting down; nobody waits then.
        drop(self.pidfd.readable().await);
    }
}

/// Writes the pid file of a process that another one started, with its start time: the number alone may be reused. The
/// process may write the same into it at any time, so nobody must see it half written.
pub(crate) fn write_pid(pid: i32, file: &Path) -> io::Result<()> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let (_, start_time) = jail::parse_stat(&stat).ok_or(io::ErrorKind::InvalidData)?;
    let written = file.with_extension("written");
    fs::write(&written, format!("{pid} {start_time}\n"))?;
    fs::rename(written, file)
}

/// Makes a directory that only its owner may enter, with its parents.
pub(crate) fn make_private(directory: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)
}

/// Makes the socket of a sandbox, for its guest to inherit.
pub(crate) fn listen(names: &PlaceNames) -> io::Result<OwnedFd> {
    let reach = socket::reachable(&names.socket())?;
    Ok(UnixListener::bind(reach.path())?.into())
}

/// A guest of an earlier daemon, with its recorded isolation. `None`: it is gone, or it does not answer.
pub(crate) async fn adopt(id: &SandboxId, names: &PlaceNames) -> Option<(GuestProcess, Isolation)> {
    let record = Record::read(names).ok()?;
    let guest = GuestProcess::find(id, names)?;
    guest.answers().await.ok()?;
    Some((guest, record.isolation))
}

/// Whether a sandbox in our run directory belongs to a daemon with another home.
pub(crate) fn is_of_other_home(names: &PlaceNames, home: &str) -> bool {
    Record::read(names).is_ok_and(|record| record.home.is_some_and(|its| its != home))
}

/// Deletes the directory of a sandbox with all files in it.
pub(crate) async fn remove_files(id: &SandboxId, directory: PathBuf) -> Result<(), BackendError> {
    let remove = move || match fs::remove_dir_all(&directory) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    };
    let removed = tokio::task::spawn_blocking(remove).await.map_err(error::from_join)?;
    removed.map_err(|error| error::from_io(format!("could not remove the files of {id}"), error))
}

/// Deletes the files of all sandboxes that are not `kept` and have a directory `own`, this back end's mark.
pub(crate) async fn remove_strangers(
    sandboxes: &Path,
    own: &str,
    kept: &[&[SandboxId]],
) -> Result<Vec<SandboxId>, BackendError> {
    let mut removed = Vec::new();
    for id in sweep::ids_in(sandboxes) {
        let directory = sandboxes.join(id.as_str());
        if !kept.iter().any(|ids| ids.contains(&id)) && directory.join(own).exists() {
            remove_files(&id, directory).await?;
            removed.push(id);
        }
    }
    Ok(removed)
}

/// Disk usage of everything in a directory, without following links. Files that vanish meanwhile are not counted.
pub(crate) fn disk_usage(directory: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt as _;
    let (mut bytes, mut waiting) = (0, vec![directory.to_owned()]);
    while let Some(directory) = waiting.pop() {
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            let Ok(found) = entry.metadata() else { continue };
            bytes += found.blocks() * 512;
            if found.is_dir() {
                waiting.push(entry.path());
            }
        }
    }
    bytes
}

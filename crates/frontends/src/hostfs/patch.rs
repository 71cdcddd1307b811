//! Files of the host for a sandbox that is being made: opened before it, read as it takes them.

use std::{
    os::fd::AsFd,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
};

use engine::{ByteStream, PatchSource};
use futures_util::{StreamExt, stream};
use rustix::fs::{OFlags, fstat};
use sandbox::{Error, ErrorKind, FileIdentity, Result};
use tokio::sync::mpsc;

use super::{
    HostCaller, HostPolicy, QUEUE,
    copy::{Copied, Source, Tally, blocking, find, received},
    place::{Access, Place, failed},
    policy::normal,
    source::{self, Chunks, Opened, Stop},
};

/// How reading went, once it is over.
#[derive(Debug, Clone, Default)]
pub(crate) struct Report(Arc<Mutex<Option<Result<Copied>>>>);

impl Report {
    fn set(&self, result: Result<Copied>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(result);
    }

    /// What the host refused, if it did. The sandbox only saw that the bytes broke off.
    pub(crate) fn take(&self) -> Option<Result<Copied>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl Source {
    /// For the daemon's owner, who may read whatever the daemon can.
    pub(crate) async fn open_as_owner(path: &Path) -> Result<Self> {
        if !path.is_absolute() {
            return Err(Error::invalid(format!("the host path {} is not absolute", path.display()))
                .with_hint("Give a path that starts with /."));
        }
        let shown = normal(path);
        let policy = HostPolicy { unrestricted: true, ..HostPolicy::default() };
        let wanted = shown.clone();
        let opened = blocking(move || source::open(&Place::find(&policy, &wanted, Access::Read)?)).await?;
        Ok(Self { shown, opened })
    }

    /// What a patch copies, and where to read how that went.
    pub(crate) fn into_patch(self) -> (PatchSource, Report) {
        let report = Report::default();
        let (shown, told) = (self.shown, report.clone());
        let source = match self.opened {
            Opened::File { mut file, mode } => {
                let read = move |chunks: &Chunks| {
                    let mut tally = Tally::default();
                    source::send_file(&mut file, &shown, chunks, &mut tally).map(|()| tally)
                };
                PatchSource::File { mode, bytes: bytes(told, read) }
            }
            Opened::Directory(directory) => {
                let read = move |chunks: &Chunks| {
                    source::send_tree(directory, &shown, chunks.clone(), Tally::default())
                };
                PatchSource::Directory { tar: bytes(told, read) }
            }
        };
        (source, report)
    }
}

/// The bytes that `read` sends, in a thread that begins when the first is asked for.
fn bytes(report: Report, read: impl FnOnce(&Chunks) -> Result<Tally, Stop> + Send + 'static) -> ByteStream {
    let begin = async move {
        let (chunks, incoming) = mpsc::channel(QUEUE);
        tokio::task::spawn_blocking(move || match read(&chunks) {
            Ok(tally) => report.set(Ok(tally.copied())),
            Err(Stop::Gone) => {}
            Err(Stop::Failed(error)) => {
                let broken = Error::new(ErrorKind::Unavailable, error.to_string());
                // First, so that whoever sees the bytes break off finds out why.
                report.set(Err(error));
                chunks.blocking_send(Err(broken)).unwrap_or(());
            }
        });
        received(incoming)
    };
    stream::once(begin).flatten().boxed()
}

/// The absolute path that a caller means, and which file is there: whoever opens it later must find the same one.
pub(crate) async fn identify(
    caller: impl Into<HostCaller<'_>>,
    path: &str,
    access: Access,
) -> Result<(std::path::PathBuf, FileIdentity)> {
    let caller = caller.into();
    let (shown, place) = find(caller, path, access).await?;
    let at = shown.clone();
    let found = blocking(move || {
        let told = |error| failed("look at", &at, error);
        let file = place.open(OFlags::PATH).map_err(told)?;
        fstat(file.as_fd()).map_err(told)
    });
    let stat = found.await.map_err(|error| caller.how_to_allow(error))?;
    Ok((shown, FileIdentity { device: stat.st_dev, inode: stat.st_ino }))
}

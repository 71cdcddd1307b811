//! File work that needs the spawner's rights, done in forks of it: without root, files of sandboxes belong to ids that
//! the daemon itself cannot use.

mod trees;

use std::{
    fs::File,
    io,
    os::fd::{AsFd as _, BorrowedFd, OwnedFd},
    path::{Path, PathBuf},
    sync::Arc,
};

use images::{PackOptions, UnpackOptions, Unpacked};
use jail::{Failure, Reply, Request};
use serde::{Deserialize, Serialize};

pub(crate) use self::trees::{Answer as TreeAnswer, DiffJob, Job as TreeJob, Layer, OverlayJob, Own};
use super::{Host, unexpected};
use sandbox::BackendError;

/// A worker's job; each names its descriptors.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Job {
    /// Unpacks the layer in the first descriptor into the directory in the second.
    Unpack {
        options: UnpackOptions,
    },
    /// Writes the upper directory of an overlay as a layer into the first descriptor.
    PackLayer {
        upper: PathBuf,
        options: PackOptions,
        max_bytes: u64,
    },
    Tree(trees::Job),
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Answer {
    Unpacked(Result<Unpacked, images::Error>),
    Tree(Result<trees::Answer, ::trees::Error>),
    /// The number of entries.
    LayerPacked(Result<u64, images::Error>),
}

/// Runs in a fork of the spawner: single-threaded when it begins, and gone when it returns.
pub fn worker(job: &str, descriptors: Vec<OwnedFd>) -> Result<String, Failure> {
    let job: Job = serde_json::from_str(job).map_err(|error| Failure::new("read the job", &error.into()))?;
    let mut descriptors = descriptors.into_iter();
    let mut next = || {
        let missing = || Failure::new("read the job", &io::ErrorKind::UnexpectedEof.into());
        descriptors.next().map(File::from).ok_or_else(missing)
    };
    let answer = match job {
        Job::Unpack { options } => {
            let (blob, into) = (next()?, next()?);
            Answer::Unpacked(images::unpack_layer(blob, into.as_fd(), &options))
        }
        Job::Tree(job) => Answer::Tree(trees::run(job, next)?),
        Job::PackLayer { upper, options, max_bytes } => {
            let archive = next()?;
            let opened = File::open(&upper).map_err(|source| images::Error::Io {
                act: "open".into(),
                path: upper,
                source,
            });
            let mut archive = Bounded::new(archive, max_bytes);
            let packed = opened.and_then(|upper| images::pack_layer(upper.as_fd(), &mut archive, &options));
            let too_large = || images::Error::TooLarge {
                what: "what was changed".to_owned(),
                limit: "the sandbox's disk".into(),
                most: max_bytes,
            };
            Answer::LayerPacked(if archive.is_full { Err(too_large()) } else { packed })
        }
    };
    serde_json::to_string(&answer).map_err(|error| Failure::new("write the answer", &error.into()))
}

/// Limits the bytes written: a file of nothing but holes is as long as its owner says.
struct Bounded {
    file: File,
    left: u64,
    is_full: bool,
}

impl Bounded {
    fn new(file: File, max_bytes: u64) -> Self {
        Self { file, left: max_bytes, is_full: false }
    }
}

impl io::Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Some(left) = self.left.checked_sub(bytes.len() as u64) else {
            self.is_full = true;
            return Err(io::Error::other("too much"));
        };
        let n = io::Write::write(&mut self.file, bytes)?;
        self.left = left + (bytes.len() - n) as u64;
        Ok(n)
    }

    fn flush(&mut self) -> io::Result<()> {
        io::Write::flush(&mut self.file)
    }
}

impl Host {
    /// Makes a worker do `job` and waits for it, on a thread that may block.
    pub(crate) fn work(&self, job: &Job, descriptors: &[BorrowedFd<'_>]) -> Result<Answer, BackendError> {
        let asked = self.spawner.wait()?.ask(&request_for(job)?, descriptors);
        answer_in(asked.map_err(super::spawner::gone)?)
    }

    /// Like [`Self::work`], without holding a thread. If nobody waits for it any more, the worker still finishes its
    /// job.
    pub(crate) async fn work_behind(
        &self,
        job: &Job,
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<Answer, BackendError> {
        let spawner = self.spawner.at_hand().await?;
        let socket = spawner.request(&request_for(job)?, descriptors).map_err(super::spawner::gone)?;
        let socket = Arc::new(socket);
        answer_in(super::receive(socket).await?.0)
    }
}

fn request_for(job: &Job) -> Result<Request, BackendError> {
    let text = |error| BackendError::failed("a job cannot be written down", error);
    Ok(Request::Work { job: serde_json::to_string(job).map_err(text)? })
}

fn answer_in(reply: Reply) -> Result<Answer, BackendError> {
    match reply {
        Reply::Worked { answer } => serde_json::from_str(&answer)
            .map_err(|error| BackendError::failed("the answer of a worker cannot be read", error)),
        Reply::Failed(failure) => {
            Err(super::error::from_failure("the work on files failed".to_owned(), failure))
        }
        other => Err(unexpected(&other)),
    }
}

/// Unpacks layers in a fork of the spawner.
#[derive(Debug)]
pub(crate) struct SpawnerUnpacker(Arc<Host>);

impl SpawnerUnpacker {
    pub(crate) fn new(host: Arc<Host>) -> Self {
        Self(host)
    }
}

impl images::Unpacker for SpawnerUnpacker {
    fn unpack(&self, blob: File, into: &Path, options: &UnpackOptions) -> images::Result<Unpacked> {
        let failed = |act| {
            move |source| images::Error::Io {
                act: std::borrow::Cow::Borrowed(act),
                path: into.to_owned(),
                source,
            }
        };
        let directory = File::open(into).map_err(failed("open"))?;
        let job = Job::Unpack { options: options.clone() };
        match self.0.work(&job, &[blob.as_fd(), directory.as_fd()]) {
            Ok(Answer::Unpacked(unpacked)) => unpacked,
            Ok(other) => {
                Err(failed("unpack into")(io::Error::other(format!("the worker answered {other:?}"))))
            }
            Err(error) => Err(failed("unpack into")(io::Error::other(error))),
        }
    }

    fn remove(&self, directory: &Path) -> io::Result<()> {
        let spawner = self.0.spawner.wait().map_err(io::Error::other)?;
        match spawner.ask(&Request::Remove { path: directory.to_owned() }, &[])? {
            Reply::Done => Ok(()),
            Reply::Failed(failure) => Err(failure
                .errno
                .map_or_else(|| io::Error::other(failure.to_string()), io::Error::from_raw_os_error)),
            other => Err(io::Error::other(format!("the spawner answered with {other:?}"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_layer_takes_only_so_much_room() {
        let upper = tempfile::tempdir().unwrap();
        // All of it is a hole.
        File::create(upper.path().join("hole")).unwrap().set_len(1 << 40).unwrap();
        let archive = tempfile::tempfile().unwrap();
        let job = Job::PackLayer {
            upper: upper.path().to_owned(),
            options: PackOptions::default(),
            max_bytes: 1 << 20,
        };
        let answer = worker(&serde_json::to_string(&job).unwrap(), vec![archive.try_clone().unwrap().into()]);
        assert!(answer.unwrap().contains("TooLarge"));
        assert!(archive.metadata().unwrap().len() <= 1 << 20);
    }
}

//! The namespace back end of one test: on a home of its own, started when it is first needed and gone with the test.

use std::{
    borrow::Borrow,
    fs::{self, File},
    future::Future,
    io,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    sync::{Arc, LazyLock, Mutex, OnceLock},
    thread,
    time::{Duration, Instant},
};

use backends::namespace::{Directories, NamespaceBackend};
use jail::cgroup::Cgroups;
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal},
};
use sandbox::{Backend, BackendError, BackendSnapshots, BackendVolumes, SandboxId};
use tempfile::TempDir;
use tokio::{runtime::Runtime, sync::OnceCell};
use tokio_util::task::AbortOnDropHandle;

use crate::{
    common::{Common, STARTS},
    lock,
};

/// How long what was killed may take to be gone, on a machine that is busy with other tests.
pub(crate) const END_TIME: Duration = Duration::from_secs(60);
pub(crate) const LOOK_AGAIN: Duration = Duration::from_millis(2);

/// Real sandboxes need time that passes and tasks that go on: tests' runtimes stop both, and some stop the clock.
static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.unwrap_or_else(|error| panic!("no runtime for sandboxes: {error}"))
});

/// Does the work of the real back end where its tasks and timers live on. A caller who leaves ends it.
pub(crate) async fn outside_of_tests<T: Send + 'static>(
    work: impl Future<Output = Result<T, BackendError>> + Send + 'static,
) -> Result<T, BackendError> {
    let done = AbortOnDropHandle::new(RUNTIME.spawn(work)).await;
    done.unwrap_or_else(|error| Err(BackendError::failed("the real back end panicked", error)))
}

pub(crate) fn spawn(task: impl Future<Output = ()> + Send + 'static) {
    RUNTIME.spawn(task);
}

/// Waits without the help of the runtime that the caller may be in.
pub(crate) fn wait_for<T: Send>(work: impl Future<Output = T> + Send) -> T {
    let waited = thread::scope(|scope| scope.spawn(|| RUNTIME.block_on(work)).join());
    waited.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

#[derive(Debug, Default)]
pub(crate) struct TestNamespace {
    /// One of its own where absent.
    home: Option<PathBuf>,
    directories: OnceLock<(TempDir, Directories)>,
    backend: OnceCell<Mutex<Option<Arc<NamespaceBackend>>>>,
}

impl TestNamespace {
    pub(crate) fn directories(&self) -> Option<&Directories> {
        self.directories.get().map(|(_, directories)| directories)
    }

    /// One in the home of the engine, which keeps its images there.
    pub(crate) fn in_home(home: &Path) -> Self {
        Self { home: Some(home.to_owned()), ..Self::default() }
    }

    /// Does something with the real back end, which is started by the first who needs it.
    pub(crate) async fn with_backend<T: Send + 'static, F>(
        &self,
        work: impl FnOnce(Arc<NamespaceBackend>) -> F,
    ) -> Result<T, BackendError>
    where
        F: Future<Output = Result<T, BackendError>> + Send + 'static,
    {
        outside_of_tests(work(self.backend().await?)).await
    }

    async fn backend(&self) -> Result<Arc<NamespaceBackend>, BackendError> {
        let start = || async {
            let failed = |error: io::Error| BackendError::failed("no place for a test", error);
            let directory = tempfile::Builder::new().prefix("warren-test-").tempdir().map_err(failed)?;
            let home = self.home.clone().unwrap_or_else(|| directory.path().join("home"));
            let directories = Directories { home, run: directory.path().join("run") };
            if self.home.is_none() {
                fs::create_dir(&directories.home).map_err(failed)?;
                symlink(Common::get()?.layers(), directories.home.join("layers")).map_err(failed)?;
            }
            let (_, directories) = self.directories.get_or_init(|| (directory, directories));
            let _no_half_made_images = STARTS.write().await;
            let backend = outside_of_tests(NamespaceBackend::new(directories.clone(), None)).await?;
            Ok(Mutex::new(Some(backend.into())))
        };
        let backend = lock(self.backend.get_or_try_init(start).await?).clone();
        backend.ok_or_else(|| BackendError::Unavailable { what: "the test is over".to_owned() })
    }

    /// Kills a guest as the kernel would, and waits until it is gone. False when there is none.
    pub(crate) fn kill_guest(&self, id: &SandboxId) -> bool {
        let Some(directories) = self.directories() else { return false };
        let note = fs::read_to_string(directories.run.join(id.as_str()).join("pid")).unwrap_or_default();
        let pid = note.split_ascii_whitespace().next().and_then(|word| Pid::from_raw(word.parse().ok()?));
        let Some(guest) = pid.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok()) else { return false };
        let is_killed = pidfd_send_signal(&guest, Signal::KILL).is_ok();
        let time = Timespec::try_from(END_TIME).ok();
        let mut end = [PollFd::new(&guest, PollFlags::IN)];
        is_killed && rustix::io::retry_on_intr(|| poll(&mut end, time.as_ref())).is_ok_and(|n| n > 0)
    }

    /// Takes away everything: processes, mounts, cgroups, files. Nothing can be made here afterwards.
    pub(crate) fn end(&self) {
        let Some((_, directories)) = self.directories.get() else { return };
        let Some(backend) = self.backend.get().and_then(|backend| lock(backend).take()) else { return };
        let ended = end(backend, directories);
        if !thread::panicking() {
            ended.unwrap_or_else(|error| panic!("something of this test stays: {error}"));
        }
    }
}

/// Ends a back end and takes away all that it made but its home.
pub(crate) fn end(
    backend: impl Borrow<NamespaceBackend>,
    directories: &Directories,
) -> Result<(), BackendError> {
    let cleared = wait_for(clear(backend.borrow(), directories));
    drop(backend);
    let ended = wait_for_spawner(&directories.home.join("spawner.lock"));
    Cgroups::detect(&directories.cgroup_parent()).forget();
    cleared.and(ended)
}

/// Files that belong to sandboxes' users can only be removed by the back end.
async fn clear(backend: &NamespaceBackend, directories: &Directories) -> Result<(), BackendError> {
    backend.sweep(&[], &[]).await?;
    for id in ids_in(&directories.home.join("snapshots")) {
        BackendSnapshots::remove(backend, &id).await?;
    }
    for id in ids_in(&directories.home.join("volumes")) {
        BackendVolumes::remove(backend, &id).await?;
    }
    Ok(())
}

/// Names in a directory that are ids, in order.
pub(crate) fn ids_in<I: std::str::FromStr + Ord>(directory: &Path) -> Vec<I> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut ids: Vec<I> = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    ids.sort_unstable();
    ids
}

/// The spawner and all its work hold this lock.
fn wait_for_spawner(lock: &Path) -> Result<(), BackendError> {
    let Ok(lock) = File::open(lock) else { return Ok(()) };
    let began = Instant::now();
    while lock.try_lock().is_err() {
        if began.elapsed() > END_TIME {
            return Err(BackendError::TimedOut { what: "the end of a spawner".to_owned(), after: END_TIME });
        }
        thread::sleep(LOOK_AGAIN);
    }
    Ok(())
}

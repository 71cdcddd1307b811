//! The files that an exec created or changed, found by their change times.
//!
//! A workload cannot set a file's change time, and every change moves it: writing, renaming, unpacking an archive with
//! old dates. A file changed since the exec's start has a change time not before the kernel's clock at the start. But
//! that clock is coarse: it stands still for some milliseconds, so a change just before the start may have the same
//! time as one just after it. An exec that starts right after a change of files therefore waits until the clock has
//! moved on; any other does not wait.

mod look;
mod skipped;

use std::{
    cell::RefCell,
    collections::HashSet,
    hash::{BuildHasher, RandomState},
    path::{Path, PathBuf},
    time::Duration,
};

use bytes::Bytes;
use guest_protocol::{ChangedFile, FileChange, Rich};
use rustix::time::{ClockId, clock_gettime};
use tokio::time::{Instant, sleep, timeout};

use self::look::{Changed, Look, Progress};
use crate::background;

/// Entries searched while everything else waits; the rest of a larger tree goes to a thread.
const INLINE_ENTRIES: usize = 128;
/// Most entries searched in total.
const MAX_ENTRIES: usize = 50_000;
/// How long a search may take: the exec's end is reported after it.
const LOOK_WITHIN: Duration = Duration::from_millis(100);
/// A thread that hangs in the file system does not delay the exec's end longer than this.
const GIVE_UP_AFTER: Duration = Duration::from_millis(400);
/// How long a start waits for the clock at most; the slowest kernels move it every 10 ms.
const CLOCK_PATIENCE: Duration = Duration::from_millis(25);
/// How often it checks the clock.
const CLOCK_STEP: Duration = Duration::from_millis(1);
/// Reported files are remembered, so that a replaced one is reported as modified.
const MAX_REMEMBERED: usize = 1024;

/// Seconds and nanoseconds since 1970.
type Stamp = (i64, i64);

#[derive(Debug, Default)]
struct Memory {
    /// When something may have changed files that no search has covered since.
    touched: Stamp,
    /// The last search that saw everything below its root.
    last: Option<Seen>,
    told: HashSet<u64>,
    hasher: RandomState,
}

#[derive(Debug)]
struct Seen {
    root: PathBuf,
    began: Stamp,
    newest: Stamp,
}

thread_local! {
    static MEMORY: RefCell<Memory> = RefCell::default();
}

fn clock(id: ClockId) -> Stamp {
    let now = clock_gettime(id);
    (now.tv_sec, now.tv_nsec)
}

/// Records that files may have been changed by something that no tracker follows.
pub(crate) fn touched() {
    MEMORY.with_borrow_mut(|memory| memory.touched = clock(ClockId::Realtime));
}

/// Records when an exec began, to report its changes at the end.
#[derive(Debug)]
pub(crate) struct Tracker {
    /// Absent in a system directory.
    root: Option<PathBuf>,
    since: Stamp,
}

impl Tracker {
    /// For an exec that starts now in the directory `cwd`.
    pub(crate) async fn begin(cwd: &str) -> Self {
        let root = PathBuf::from(cwd);
        if skipped::is_system(&root) {
            return Self { root: None, since: (0, 0) };
        }
        let busy_until = MEMORY.with_borrow(|memory| memory.busy_until(&root));
        let begun = Instant::now();
        let mut since = clock(ClockId::RealtimeCoarse);
        while since <= busy_until && begun.elapsed() < CLOCK_PATIENCE {
            sleep(CLOCK_STEP).await;
            since = clock(ClockId::RealtimeCoarse);
        }
        Self { root: Some(root), since }
    }

    /// The files created or changed since, as a line of the rich stream; none if there are none.
    pub(crate) async fn finish(self) -> Option<Bytes> {
        let Some(root) = self.root else {
            touched();
            return None;
        };
        let began = clock(ClockId::Realtime);
        let looked = match Look::open(&root, self.since) {
            Ok(look) => look_through(look).await,
            // The directory was removed, with everything in it.
            Err(_) => None,
        };
        let Some(look) = looked else {
            touched();
            return None;
        };
        let files = MEMORY.with_borrow_mut(|memory| memory.note(&root, began, &look));
        tell(files, look.is_partial)
    }
}

impl Memory {
    /// The time of the last known or possible change below `root`.
    fn busy_until(&self, root: &Path) -> Stamp {
        match &self.last {
            Some(last) if last.root == root && last.began >= self.touched => last.newest,
            Some(last) => last.began.max(self.touched),
            None => self.touched,
        }
    }

    fn note(&mut self, root: &Path, began: Stamp, look: &Look) -> Vec<ChangedFile> {
        match look.is_partial {
            true => self.touched = began,
            false => self.last = Some(Seen { root: root.to_owned(), began, newest: look.newest() }),
        }
        let mut files: Vec<_> = look.found().iter().map(|found| self.changed(found)).collect();
        files.sort_unstable_by(|one, other| one.path.cmp(&other.path));
        files
    }

    fn changed(&mut self, found: &Changed) -> ChangedFile {
        if self.told.len() >= MAX_REMEMBERED {
            self.told.clear();
        }
        // A file that is replaced as a whole is a new file under an old path.
        let is_new_here = self.told.insert(self.hasher.hash_one(&found.path));
        let change = if found.is_new && is_new_here { FileChange::Created } else { FileChange::Modified };
        ChangedFile { path: found.path.clone(), size: found.size, change }
    }
}

/// Searches a small tree at once, and the rest of a larger one on a thread.
async fn look_through(mut look: Look) -> Option<Look> {
    let give_up_at = std::time::Instant::now() + LOOK_WITHIN;
    if look.go_on(INLINE_ENTRIES, give_up_at) == Progress::Done {
        return Some(look);
    }
    let running = background::spawn(move || {
        if look.go_on(MAX_ENTRIES, give_up_at) == Progress::MoreToSee {
            look.is_partial = true;
        }
        look
    });
    timeout(GIVE_UP_AFTER, running.ok()?.done()).await.ok()?.ok()
}

fn tell(files: Vec<ChangedFile>, truncated: bool) -> Option<Bytes> {
    if files.is_empty() && !truncated {
        return None;
    }
    let mut line = serde_json::to_vec(&Rich::Files { files, truncated }).ok()?;
    line.push(b'\n');
    Some(line.into())
}

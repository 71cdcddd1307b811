//! Which files an exec made or changed, told by the times that the kernel gives them.
//!
//! A file's change time cannot be set by a workload and moves with everything that happens to it: writing, renaming, an
//! unpacked archive with dates of its own. What was changed since the exec's start has one that is not before the kernel's
//! clock at the start, and that would be all, were this clock not coarse: it stands still for some milliseconds, and what was
//! changed just before the start may have the same time as what is changed just after it. So an exec that follows closely on
//! something that changed files waits until the clock has moved on; one that follows on nothing of the kind waits for nothing.

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

use self::look::{Found, Look, Progress};
use crate::background;

/// Entries looked at while everything else waits; the rest of a larger tree goes to a thread.
const INLINE_ENTRIES: usize = 128;
/// Entries looked at in all.
const MAX_ENTRIES: usize = 50_000;
/// How long looking may take: the exec's end is not told before.
const LOOK_WITHIN: Duration = Duration::from_millis(100);
/// A thread that hangs in the file system does not keep the exec from its end.
const GIVE_UP_AFTER: Duration = Duration::from_millis(400);
/// How long a start waits for the clock at most; the slowest kernels move it every 10 ms.
const CLOCK_PATIENCE: Duration = Duration::from_millis(25);
/// How often it looks at the clock.
const CLOCK_STEP: Duration = Duration::from_millis(1);
/// Files that were told of are remembered, so that one which is replaced again is told as modified.
const MAX_REMEMBERED: usize = 1024;

/// Seconds and nanoseconds since 1970.
type Stamp = (i64, i64);

#[derive(Debug, Default)]
struct Memory {
    /// When something may have changed files that nobody looked at since.
    touched: Stamp,
    /// The last look that saw everything beneath its root.
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

/// Takes note that files may have been changed by something that no tracker follows.
pub(crate) fn touched() {
    MEMORY.with_borrow_mut(|memory| memory.touched = clock(ClockId::Realtime));
}

/// Remembers when an exec began, to tell at its end what it changed.
#[derive(Debug)]
pub(crate) struct Tracker {
    /// Absent where only system files are.
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

    /// What was made or changed since, as a line of the rich stream; nothing when there is nothing to tell.
    pub(crate) async fn finish(self) -> Option<Bytes> {
        let Some(root) = self.root else {
            touched();
            return None;
        };
        let began = clock(ClockId::Realtime);
        let looked = match Look::open(&root, self.since) {
            Ok(look) => look_through(look).await,
            // It went away, and all that was in it.
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
    /// The time of the last change beneath `root` that is known of, or may have been.
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

    fn changed(&mut self, found: &Found) -> ChangedFile {
        if self.told.len() >= MAX_REMEMBERED {
            self.told.clear();
        }
        // One that is replaced as a whole is a new file in an old place.
        let is_new_here = self.told.insert(self.hasher.hash_one(&found.path));
        let change = if found.is_new && is_new_here { FileChange::Created } else { FileChange::Modified };
        ChangedFile { path: found.path.clone(), size: found.size, change }
    }
}

/// Looks at a small tree at once, and at the rest of a larger one on a thread.
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

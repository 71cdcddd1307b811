//! Trees of sandboxes' files, on the daemon's side: requests to a worker, and its answers.

use std::{
    fs::File,
    io,
    os::fd::{AsFd as _, BorrowedFd, OwnedFd},
    path::PathBuf,
    sync::Arc,
};

use rustix::fs::{MemfdFlags, memfd_create};
use sandbox::{
    BackendError, DiffQuery, DiffReport, Holding, RootfsPlan, SandboxPlan, SnapshotId, TreeCopy, TreeFacts,
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::UnixStream,
    task::{JoinError, JoinHandle},
};

use super::{
    Host,
    cage::{Source, Sources},
    error, make_private,
    names::{own_directories, own_files},
    work::{self, DiffJob, Layer, OverlayJob, TreeAnswer, TreeJob},
};

/// Most changes and most bytes of patch in one answer, whatever was requested: both are held in memory.
const MAX_CHANGES: usize = 100_000;
const MAX_PATCH_BYTES: usize = 16 * 1024 * 1024;

/// Copies the sandbox's own files.
pub(crate) async fn copy_files(
    host: &Arc<Host>,
    plan: &SandboxPlan,
    id: &SnapshotId,
    hold: Holding<'_>,
) -> Result<TreeCopy, BackendError> {
    let job = TreeJob::Copy { own: own(host, plan), parts: parts(plan), into: make_tree(host, id)? };
    let what = format!("could not copy the files of sandbox {}", plan.id);
    let no_gate = |error| error::from_io("could not talk to a worker", error);
    let (mut gate, theirs) = gate().map_err(no_gate)?;
    let mut copying = ask_in_turn(host, plan, job, Arc::new(theirs), what).await;
    let is_ready = tokio::select! {
        // It could not even begin.
        answer = &mut copying => return copied(answer),
        ready = gate.read_u8() => ready.is_ok(),
    };
    // Not cancelled once begun: a half-held sandbox could not be released.
    let held = if is_ready { hold.await } else { Ok(()) };
    match held {
        // A missing worker has answered by ending.
        Ok(()) => drop(gate.write_u8(0).await),
        Err(_) => drop(gate),
    }
    let answer = copying.await;
    held?;
    copied(answer)
}

fn copied(answer: Result<Result<TreeAnswer, BackendError>, JoinError>) -> Result<TreeCopy, BackendError> {
    match answer.map_err(error::from_join)?? {
        TreeAnswer::Copied(copied) => Ok(copied),
        other => Err(strange(&other)),
    }
}

/// The gate between us and a copying worker: it says when it is ready, we say when nothing moves any more. So all slow
/// work that needs no stillness is done before.
fn gate() -> io::Result<(UnixStream, OwnedFd)> {
    let (ours, theirs) = std::os::unix::net::UnixStream::pair()?;
    ours.set_nonblocking(true)?;
    Ok((UnixStream::from_std(ours)?, theirs.into()))
}

/// Asks about a sandbox's own files. Its turn is held until the worker has answered, even if nobody waits any more: an
/// image must not be mounted for a new run of the sandbox while a worker has it on another device.
async fn ask_in_turn(
    host: &Arc<Host>,
    plan: &SandboxPlan,
    job: TreeJob,
    beside: Arc<OwnedFd>,
    what: String,
) -> JoinHandle<Result<TreeAnswer, BackendError>> {
    let (turn, host) = (host.turn(&plan.id).await, Arc::clone(host));
    tokio::spawn(async move {
        let answer = ask(&host, job, &[beside.as_fd()], what).await;
        drop(turn);
        answer
    })
}

/// Makes the empty directory of a new tree.
fn make_tree(host: &Host, id: &SnapshotId) -> Result<PathBuf, BackendError> {
    let tree = host.directories.tree(id);
    let made = tree.parent().map_or(Ok(()), make_private).and_then(|()| make_private(&tree));
    made.map_err(|error| error::from_io(format!("could not make {}", tree.display()), error))?;
    Ok(tree)
}

pub(crate) async fn facts(host: &Host, tree: PathBuf) -> Result<TreeFacts, BackendError> {
    let what = format!("could not read the tree {}", tree.display());
    match ask(host, TreeJob::Facts { tree }, &[], what).await? {
        TreeAnswer::Facts(facts) => Ok(facts),
        other => Err(strange(&other)),
    }
}

pub(crate) async fn pack(host: &Host, tree: PathBuf, archive: OwnedFd) -> Result<(), BackendError> {
    let what = format!("could not pack the tree {}", tree.display());
    match ask(host, TreeJob::Pack { tree }, &[archive.as_fd()], what).await? {
        TreeAnswer::Packed => Ok(()),
        other => Err(strange(&other)),
    }
}

pub(crate) async fn unpack(
    host: &Host,
    archive: OwnedFd,
    id: &SnapshotId,
) -> Result<TreeFacts, BackendError> {
    let (what, into) = ("could not unpack a tree".to_owned(), make_tree(host, id)?);
    match ask(host, TreeJob::Unpack { into }, &[archive.as_fd()], what).await? {
        TreeAnswer::Facts(facts) => Ok(facts),
        other => Err(strange(&other)),
    }
}

pub(crate) async fn diff(
    host: &Arc<Host>,
    plan: &SandboxPlan,
    mut query: DiffQuery,
) -> Result<DiffReport, BackendError> {
    query.max_changes = query.max_changes.min(MAX_CHANGES);
    query.max_patch_bytes = query.max_patch_bytes.min(MAX_PATCH_BYTES);
    let (worker, planned) = (Arc::clone(host), plan.clone());
    let job = tokio::task::spawn_blocking(move || diff_job(&worker, &planned, query))
        .await
        .map_err(error::from_join)??;
    let no_memory = |errno: rustix::io::Errno| error::from_io("could not make room for a diff", errno.into());
    let report = Arc::new(memfd_create("diff", MemfdFlags::CLOEXEC).map_err(no_memory)?);
    let what = format!("could not compare the files of sandbox {}", plan.id);
    let told = ask_in_turn(host, plan, TreeJob::Diff(job), Arc::clone(&report), what).await;
    match told.await.map_err(error::from_join)?? {
        TreeAnswer::Attached => {}
        other => return Err(strange(&other)),
    }
    tokio::task::spawn_blocking(move || read_report(&report)).await.map_err(error::from_join)?
}

fn read_report(report: &OwnedFd) -> Result<DiffReport, BackendError> {
    let unread = |error: std::io::Error| error::from_io("could not read a diff", error);
    let mut file = File::from(report.try_clone().map_err(unread)?);
    std::io::Seek::rewind(&mut file).map_err(unread)?;
    serde_json::from_reader(std::io::BufReader::new(file))
        .map_err(|error| BackendError::failed("a diff cannot be read", error))
}

/// Which layers to compare with which. May block while the layer of image `host` is made.
fn diff_job(host: &Host, plan: &SandboxPlan, query: DiffQuery) -> Result<DiffJob, BackendError> {
    let ground = match plan.rootfs {
        RootfsPlan::Host => host.ground()?,
        RootfsPlan::Image | RootfsPlan::Directory { .. } => host.ground.clone(),
        RootfsPlan::Disk { .. } => {
            let what = "sandboxes on a disk image cannot be compared with it".to_owned();
            return Err(BackendError::Unsupported { what, next: None });
        }
    };
    let sources = Sources::of(plan, &ground, &host.beneath(plan)?);
    let n_shared =
        plan.above.iter().rev().zip(query.against.iter().rev()).take_while(|(a, b)| a == b).count();
    let only = |trees: &[SnapshotId], name: &str| host.uppers(&trees[..trees.len() - n_shared], name);
    let overlay = |name: &str, at: &str, below: Vec<Source>| {
        let (new, old) = (only(&plan.above, name), only(&query.against, name));
        let below = below.into_iter().filter_map(|source| match source {
            Source::Directory { path, identity } => {
                Some(Layer::Directory { path, identity: identity.map(|found| (found.device, found.inode)) })
            }
            Source::Disk { .. } | Source::Nothing => None,
        });
        let mut layers: Vec<_> = std::iter::once(Layer::Own(name.to_owned())).chain(below).collect();
        let (n_new, n_old) = (1 + new.len(), old.len());
        let old = old.into_iter().map(|path| Layer::Directory { path, identity: None });
        layers.splice(n_new..n_new, old);
        OverlayJob { at: at.to_owned(), layers, n_new, n_old }
    };
    let mut overlays = vec![overlay("root", "/", sources.root)];
    if !sources.usr.is_empty() {
        overlays.push(overlay("usr", "/usr", sources.usr));
    }
    let inside = |name: &str| name.strip_prefix("root/upper/").map(|path| format!("/{path}"));
    let files = own_files(&plan.hostname).into_iter();
    let directories = own_directories(plan).into_iter();
    Ok(DiffJob {
        own: own(host, plan),
        overlays,
        given_files: files.filter_map(|(name, text)| Some((inside(&name)?, text))).collect(),
        given_directories: directories.filter_map(|(name, mode)| Some((inside(&name)?, mode))).collect(),
        query,
    })
}

/// Where the sandbox's own files are.
fn own(host: &Host, plan: &SandboxPlan) -> work::Own {
    let files = host.files(&plan.id);
    if files.image.exists() { work::Own::Image(files.image) } else { work::Own::Directory(files.own) }
}

/// The overlays of a sandbox, by the name of the directory with its own files.
fn parts(plan: &SandboxPlan) -> Vec<String> {
    let names: &[&str] = if plan.rootfs == RootfsPlan::Host { &["root", "usr"] } else { &["root"] };
    names.iter().map(|name| (*name).to_owned()).collect()
}

async fn ask(
    host: &Host,
    job: TreeJob,
    descriptors: &[BorrowedFd<'_>],
    what: String,
) -> Result<TreeAnswer, BackendError> {
    match host.work_behind(&work::Job::Tree(job), descriptors).await? {
        work::Answer::Tree(answer) => answer.map_err(|failure| error::from_tree(what, failure)),
        other => Err(BackendError::Failed { what: format!("the worker answered {other:?}"), source: None }),
    }
}

fn strange(answer: &TreeAnswer) -> BackendError {
    BackendError::Failed { what: format!("the worker answered {answer:?}"), source: None }
}

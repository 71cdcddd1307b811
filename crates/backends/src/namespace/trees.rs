//! Trees of sandboxes' files, from the side that asks: what goes to a worker, and what its answer means.

use std::{path::PathBuf, sync::Arc};

use jail::{Reply, Request};
use sandbox::{BackendError, RootfsPlan, SandboxPlan, TreeCopy, TreeFacts};

use super::{
    Host, error,
    names::FileNames,
    unexpected,
    work::{self, TreeAnswer, TreeJob},
};

/// Copies the sandbox's own files. What it holds on to stays held when nobody waits any more: an image must not be mounted for
/// a new life of the sandbox while a worker has it from elsewhere.
pub(crate) async fn copy_files(
    host: &Arc<Host>,
    plan: &SandboxPlan,
    into: PathBuf,
) -> Result<TreeCopy, BackendError> {
    let turn = host.turn(&plan.id).await;
    let job = TreeJob::Copy { own: own_files(plan), parts: parts(plan), into };
    let what = format!("could not copy the files of sandbox {}", plan.id);
    let worker = Arc::clone(host);
    let copying = async move {
        let answer = ask(&worker, job, what).await;
        drop(turn);
        answer
    };
    match tokio::spawn(copying).await.map_err(error::from_join)?? {
        TreeAnswer::Copied(copied) => Ok(copied),
        other => Err(strange(&other)),
    }
}

pub(crate) async fn facts(host: &Host, tree: PathBuf) -> Result<TreeFacts, BackendError> {
    let what = format!("could not read the tree {}", tree.display());
    match ask(host, TreeJob::Facts { tree }, what).await? {
        TreeAnswer::Facts(facts) => Ok(facts),
        other => Err(strange(&other)),
    }
}

pub(crate) async fn remove(host: &Host, tree: PathBuf) -> Result<(), BackendError> {
    let what = format!("could not remove the tree {}", tree.display());
    match host.ask(&Request::Remove { path: tree }).await? {
        Reply::Done => Ok(()),
        Reply::Failed(failure) => Err(error::from_failure(what, failure)),
        other => Err(unexpected(&other)),
    }
}

/// Where the sandbox's own files are.
fn own_files(plan: &SandboxPlan) -> work::Own {
    let files = FileNames::of(&plan.directory);
    if files.image.exists() { work::Own::Image(files.image) } else { work::Own::Directory(files.own) }
}

/// The overlays of a sandbox, by the name of the directory with its own files.
fn parts(plan: &SandboxPlan) -> Vec<String> {
    let names: &[&str] = if plan.rootfs == RootfsPlan::Host { &["root", "usr"] } else { &["root"] };
    names.iter().map(|name| (*name).to_owned()).collect()
}

async fn ask(host: &Host, job: TreeJob, what: String) -> Result<TreeAnswer, BackendError> {
    match host.work_behind(&work::Job::Tree(job), &[]).await? {
        work::Answer::Tree(answer) => answer.map_err(|failure| error::from_tree(what, failure)),
        other => Err(BackendError::Failed { what: format!("the worker answered {other:?}"), source: None }),
    }
}

fn strange(answer: &TreeAnswer) -> BackendError {
    BackendError::Failed { what: format!("the worker answered {answer:?}"), source: None }
}

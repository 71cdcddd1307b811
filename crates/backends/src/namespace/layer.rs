//! A sandbox's changes as an image layer.

use std::{
    os::fd::{AsFd as _, OwnedFd},
    sync::Arc,
};

use images::PackOptions;
use sandbox::{BackendError, ByteSize, Next, RootfsPlan, SandboxPlan};

use super::{
    Host, error,
    names::{MOUNT_POINTS, own_files},
    work::{Answer, Job},
};

/// The prefix of the path inside, in the names of a sandbox's own files.
const UPPER: &str = "root/upper/";

/// The space that a layer may have beyond its sandbox's disk: for names and so on.
const HEADROOM: ByteSize = ByteSize::gib(1);

fn not_packed(plan: &SandboxPlan, error: images::Error) -> BackendError {
    let what = format!("the layer of sandbox {} was not written: {error}", plan.id);
    let hint = match &error {
        images::Error::NoSpace { .. } => "Free space on the disk, or prune images that are not needed.",
        images::Error::TooLarge { .. } => "Write less: files with holes count in full.",
        _ => return BackendError::failed(what, error),
    };
    BackendError::Exhausted { what, next: Some(Next::Advice(hint.to_owned())) }
}

pub(crate) async fn pack(host: &Arc<Host>, plan: &SandboxPlan, archive: OwnedFd) -> Result<(), BackendError> {
    let files = host.files(&plan.id);
    let refused = |what: &str| {
        let what = format!("the changes of sandbox {} cannot become a layer: {what}", plan.id);
        Err(BackendError::Unsupported { what, next: None })
    };
    if plan.rootfs == RootfsPlan::Host {
        return refused("it is made on this machine's own files");
    }
    if files.image.exists() {
        return refused("its files are in a disk image");
    }
    let own = own_files(&plan.hostname);
    let options = PackOptions {
        own_directories: MOUNT_POINTS.iter().map(|(name, _)| (*name).to_owned()).collect(),
        own_files: own.into_iter().map(|(name, text)| (name.replacen(UPPER, "", 1), text)).collect(),
        ..PackOptions::default()
    };
    let max_bytes = plan.limits.disk.bytes().saturating_add(HEADROOM.bytes());
    let job = Job::PackLayer { upper: files.own.join("root/upper"), options, max_bytes };
    let host = Arc::clone(host);
    let answer = tokio::task::spawn_blocking(move || host.work(&job, &[archive.as_fd()]));
    match answer.await.map_err(error::from_join)?? {
        Answer::LayerPacked(Ok(_n_entries)) => Ok(()),
        Answer::LayerPacked(Err(error)) => Err(not_packed(plan, error)),
        other => Err(BackendError::Failed { what: format!("the worker answered {other:?}"), source: None }),
    }
}

//! What a sandbox changed, as a layer of an image.

use std::{
    os::fd::{AsFd as _, OwnedFd},
    sync::Arc,
};

use images::PackOptions;
use sandbox::{BackendError, RootfsPlan, SandboxPlan};

use super::{
    Host, error,
    names::{FileNames, MOUNT_POINTS, own_files},
    work::{Answer, Job},
};

/// In the names of a sandbox's own files, what stands before the path inside.
const UPPER: &str = "root/upper/";

pub(crate) async fn pack(host: &Arc<Host>, plan: &SandboxPlan, archive: OwnedFd) -> Result<(), BackendError> {
    let files = FileNames::of(&plan.directory);
    let refused = |what: &str| {
        let what = format!("what sandbox {} changed cannot become a layer: {what}", plan.id);
        Err(BackendError::Unsupported { what, hint: None })
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
    let job = Job::PackLayer { upper: files.own.join("root/upper"), options };
    let host = Arc::clone(host);
    let answer = tokio::task::spawn_blocking(move || host.work(&job, &[archive.as_fd()]));
    match answer.await.map_err(error::from_join)?? {
        Answer::LayerPacked(Ok(_n_entries)) => Ok(()),
        Answer::LayerPacked(Err(error)) => {
            Err(BackendError::failed(format!("the layer of sandbox {} was not written", plan.id), error))
        }
        other => Err(BackendError::Failed { what: format!("the worker answered {other:?}"), source: None }),
    }
}

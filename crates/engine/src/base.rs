//! What a new sandbox is made on: from a name to layers on disk.

use sandbox::{Base, Error, ErrorKind, Result, RootfsSpec, SandboxSpec};

use crate::{Principal, core::Core, snapshots};

/// Finds the image, the snapshot or the directory that was asked for.
pub(crate) async fn find(core: &Core, who: &Principal, spec: &SandboxSpec) -> Result<Base> {
    if let Some(RootfsSpec::Snapshot { snapshot }) = &spec.rootfs {
        return snapshots::base::find(core, who, spec, snapshot).await;
    }
    let hint = "Use the image `host`, which has the programs of this machine.";
    if !spec.image.is_host() {
        let message = format!("image {} cannot be used yet", spec.image);
        return Err(Error::new(ErrorKind::Unsupported, message).with_hint(hint));
    }
    if spec.rootfs.is_some() {
        return Err(Error::new(ErrorKind::Unsupported, "rootfs cannot be used yet").with_hint(hint));
    }
    Ok(Base::host())
}

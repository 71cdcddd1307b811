//! What a new sandbox is made on: from a name to layers on disk.

use sandbox::{Base, Error, ErrorKind, Result, SandboxSpec};

use crate::core::Core;

/// Finds the image, the snapshot or the directory that was asked for.
pub(crate) async fn find(_core: &Core, spec: &SandboxSpec) -> Result<Base> {
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

//! Mounts of a new sandbox: from fields to what is asked of the engine, and which files of the host they lead to.

use sandbox::{ByteSize, Error, ErrorKind, MountSource, MountSpec};

use super::fields::{DiskFormat, Mount, MountKind};
use crate::mcp::{
    Call, Failure,
    hostfs::{self, Access},
};

/// `field` is what the caller finds them by. Returns what they should know as well.
pub(crate) fn plan(field: &str, mounts: Vec<Mount>) -> Result<(Vec<MountSpec>, Vec<String>), Failure> {
    let (mut planned, mut warnings) = (Vec::with_capacity(mounts.len()), Vec::new());
    for (index, mount) in mounts.into_iter().enumerate() {
        let place = format!("{field}[{index}]");
        warnings.extend(warning(&place, &mount));
        planned.push(decide(&place, mount)?);
    }
    Ok((planned, warnings))
}

fn decide(place: &str, mount: Mount) -> Result<MountSpec, Failure> {
    let wants = |kind: &str, what: &str| {
        Failure::invalid(format!("{place}: a {kind} mount needs {what}"))
            .with_hint("The resource warren://schemas/sandbox-create has the fields of every mount.")
    };
    let host_path = mount.host_path.as_ref().or(mount.source.as_ref());
    let source = match mount.kind {
        MountKind::Bind => {
            let host_path = host_path.ok_or_else(|| wants("bind", "hostPath"))?.into();
            MountSource::Bind { host_path, no_links: false, allowed: None }
        }
        MountKind::Named => {
            let name = mount.name.as_ref().or(mount.source.as_ref());
            let name = name.ok_or_else(|| wants("named", "name"))?;
            MountSource::Named { name: name.parse().map_err(Error::from)? }
        }
        MountKind::Tmpfs => {
            let size = mount.size_mib.map(|mib| ByteSize(mib.saturating_mul(1024 * 1024)));
            MountSource::Tmpfs { size }
        }
        MountKind::Disk => {
            check_disk(place, &mount)?;
            let host_path = host_path.ok_or_else(|| wants("disk", "hostPath"))?.into();
            MountSource::Disk { host_path, allowed: None }
        }
    };
    Ok(MountSpec {
        guest_path: mount.guest_path,
        source,
        readonly: mount.readonly.unwrap_or(false),
        noexec: mount.noexec.unwrap_or(false),
    })
}

fn check_disk(place: &str, mount: &Mount) -> Result<(), Failure> {
    let refused = |what: String, hint: &str| {
        Err(Failure::from(Error::new(ErrorKind::Unsupported, what)).with_hint(hint))
    };
    match mount.format {
        None | Some(DiskFormat::Raw) => {}
        Some(DiskFormat::Qcow2) => {
            return refused(
                format!("{place}.format qcow2 is not supported: sandboxes mount raw images"),
                "Convert it with `qemu-img convert -O raw`, or use a volume.",
            );
        }
        Some(DiskFormat::Vmdk) => {
            return refused(
                format!("{place}.format vmdk is not supported: sandboxes mount raw images"),
                "Convert it with `qemu-img convert -O raw`, or use a volume.",
            );
        }
    }
    match mount.fstype.as_deref() {
        None | Some("ext4") => Ok(()),
        Some(other) => {
            let shown: String = other.chars().take(32).collect();
            refused(
                format!("{place}.fstype {shown:?} is not supported: sandboxes mount ext4"),
                "Create the file system with mkfs.ext4, or use a volume.",
            )
        }
    }
}

/// Returns a warning about fields that are accepted only because other systems accept them.
fn warning(place: &str, mount: &Mount) -> Option<String> {
    let ignored: Vec<_> = [
        ("nosuid: false", mount.nosuid == Some(false)),
        ("nodev: false", mount.nodev == Some(false)),
        ("statVirtualization", mount.stat_virtualization.is_some()),
        ("hostPermissions", mount.host_permissions.is_some()),
        ("sizeMib", mount.size_mib.is_some() && mount.kind != MountKind::Tmpfs),
    ]
    .into_iter()
    .filter_map(|(field, is_given)| is_given.then_some(field))
    .collect();
    (!ignored.is_empty()).then(|| format!("{place}: these have no effect here: {}.", ignored.join(", ")))
}

/// Lets the policy decide over what lies on the host, by descriptor, and notes which file it decided over.
pub(crate) async fn allow(call: &Call, mounts: &mut [MountSpec]) -> Result<(), Failure> {
    for mount in mounts {
        let access = if mount.readonly { Access::Read } else { Access::Write };
        let (MountSource::Bind { host_path, allowed, .. } | MountSource::Disk { host_path, allowed }) =
            &mut mount.source
        else {
            continue;
        };
        let found = hostfs::identify(call, &host_path.to_string_lossy(), access).await;
        let (path, identity) = found.map_err(|error| at_mount(&mount.guest_path, error.into()))?;
        (*host_path, *allowed) = (path, Some(identity));
    }
    Ok(())
}

fn at_mount(guest_path: &str, failure: Failure) -> Failure {
    failure.reworded(|words| format!("mount {guest_path}: {words}"))
}

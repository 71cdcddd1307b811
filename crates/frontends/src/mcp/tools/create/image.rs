//! The base of a new sandbox, as callers say it: an image, or another root file system.

use engine::{PullOptions, Reference};
use sandbox::{Error, ErrorKind, ImageRef, PullPolicy, RootfsSpec, SandboxSpec};

use super::fields::{Registry, RegistryAuthKind, Rootfs};
use crate::{
    images::{Pulling, Registry as Asking, reference},
    mcp::{
        Call, Failure,
        hostfs::{self, Access},
        tools::{
            images::{not_pulled, while_pulling},
            snapshots,
        },
    },
};

/// An image that begins like this is a directory of the host.
const PATH_BEGINNINGS: [&str; 4] = ["/", "./", "../", "~"];

/// The base that was asked for, checked as far as it can be without looking.
#[derive(Debug, Default)]
pub(super) struct Ground {
    pub(super) image: ImageRef,
    pub(super) pull: PullPolicy,
    pub(super) rootfs: Option<RootfsSpec>,
    /// How much the sandbox may write, where the root file system says so.
    pub(super) disk_mib: Option<u64>,
    /// Present: the image is got with these before the sandbox is made. They belong into no record.
    pub(super) registry: Option<(Reference, PullOptions)>,
}

/// The root file system wins over the image.
pub(super) fn plan(image: Option<&str>, rootfs: Option<Rootfs>) -> Result<Ground, Failure> {
    match rootfs {
        None => match image {
            Some(path) if PATH_BEGINNINGS.iter().any(|begin| path.starts_with(begin)) => Ok(directory(path)),
            Some(image) => Ok(Ground { image: parsed(image)?, ..Ground::default() }),
            None => Ok(Ground::default()),
        },
        Some(Rootfs::Host {}) => Ok(Ground::default()),
        Some(Rootfs::Oci { reference, pull_policy, upper_size_mib, registry }) => Ok(Ground {
            image: parsed(&reference)?,
            pull: pull_policy.unwrap_or_default(),
            disk_mib: upper_size_mib,
            registry: registry.map(|registry| asking(&reference, registry)).transpose()?.flatten(),
            rootfs: None,
        }),
        Some(Rootfs::Bind { path }) => Ok(directory(&path)),
        Some(Rootfs::Disk { path, fstype }) => {
            if let Some(other) = fstype.filter(|fstype| fstype != "ext4") {
                let shown: String = other.chars().take(32).collect();
                let message = format!("rootfs.fstype {shown:?} is not supported: sandboxes mount ext4");
                return Err(Failure::new(ErrorKind::Unsupported, message).with_hint(
                    "Create the file system with mkfs.ext4, or call image_import with its files.",
                ));
            }
            let rootfs = RootfsSpec::Disk { path: path.into(), allowed: None };
            Ok(Ground { rootfs: Some(rootfs), ..Ground::default() })
        }
        Some(Rootfs::Snapshot { path_or_name }) => {
            let rootfs = RootfsSpec::Snapshot { snapshot: path_or_name };
            Ok(Ground { rootfs: Some(rootfs), ..Ground::default() })
        }
    }
}

fn directory(path: &str) -> Ground {
    let rootfs = RootfsSpec::Directory { path: path.into(), no_links: false, allowed: None };
    Ground { rootfs: Some(rootfs), ..Ground::default() }
}

fn parsed(image: &str) -> Result<ImageRef, Failure> {
    let failure = |error: sandbox::InvalidImage| Failure::from(Error::from(error));
    image.parse().map_err(|error| {
        failure(error).with_hint("Call image_list to see local images, or use image: \"host\".")
    })
}

fn asking(image: &str, registry: Registry) -> Result<Option<(Reference, PullOptions)>, Failure> {
    if registry.ca_certs_path.is_some() {
        let error = Error::new(ErrorKind::Unsupported, "rootfs.registry.caCertsPath cannot be set in a call");
        return Err(Failure::from(error).with_hint(
            "Omit it; the daemon's operator sets authorities in its configuration: images.ca_files.",
        ));
    }
    let (username, password) = match registry.auth {
        Some(auth) if matches!(auth.kind, RegistryAuthKind::Basic) => (auth.username, auth.password),
        _ => (None, None),
    };
    let asking = Asking { platform: None, username, password, insecure: registry.insecure.unwrap_or(false) };
    if asking == Asking::default() {
        return Ok(None);
    }
    Ok(Some((reference(image)?, asking.options()?)))
}

/// Looks at what lies on the host, and gets what needs more than the daemon's own credentials.
pub(super) async fn settle(
    call: &Call,
    spec: &mut SandboxSpec,
    registry: Option<(Reference, PullOptions)>,
) -> Result<(), Failure> {
    if let Some(RootfsSpec::Directory { path, allowed, .. } | RootfsSpec::Disk { path, allowed }) =
        &mut spec.rootfs
    {
        let (found, identity) = hostfs::identify(call, &path.to_string_lossy(), Access::Read).await?;
        (*path, *allowed) = (found, Some(identity));
    }
    if let Some(RootfsSpec::Snapshot { snapshot }) = &mut spec.rootfs {
        *snapshot = snapshots::in_engine_words(call, snapshot).await?;
    }
    let Some((reference, options)) = registry else { return Ok(()) };
    let engine = call.engine();
    let is_wanted = match spec.pull {
        PullPolicy::Always => true,
        PullPolicy::IfMissing => engine.image(&call.who, &reference.to_string()).await.is_err(),
        PullPolicy::Never => false,
    };
    if is_wanted {
        let pulling = Pulling::default();
        let work = engine.pull_image(&call.who, &reference, options, pulling.progress());
        while_pulling(call, &pulling, || true, work).await?.map_err(not_pulled)?;
        spec.pull = PullPolicy::IfMissing;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use serde_json::json;

    use super::*;

    fn rootfs(value: serde_json::Value) -> Result<Ground, Failure> {
        plan(Some("ignored"), Some(serde_json::from_value(value).unwrap()))
    }

    #[test]
    fn an_image_is_a_name_or_a_path() {
        for (image, path) in [("/srv/root", true), ("./root", true), ("../root", true), ("~/root", true)] {
            let ground = plan(Some(image), None).unwrap();
            let is_directory = matches!(&ground.rootfs, Some(RootfsSpec::Directory { path, .. }) if path == Path::new(image));
            assert_eq!(is_directory, path, "{image}");
            assert!(ground.image.is_host());
        }
        assert_eq!(plan(Some("python:3.12"), None).unwrap().image.as_str(), "python:3.12");
        assert!(plan(None, None).unwrap().image.is_host());
        assert_eq!(plan(Some("no image"), None).unwrap_err().code(), "invalid_request");
    }

    #[test]
    fn every_kind_of_root_file_system_is_understood() {
        let oci = rootfs(
            json!({ "kind": "oci", "reference": "alpine:3", "pullPolicy": "always", "upperSizeMib": 64,
            "registry": { "auth": { "kind": "basic", "username": "ana", "password": "pw" } } }),
        )
        .unwrap();
        assert_eq!((oci.image.as_str(), oci.pull, oci.disk_mib), ("alpine:3", PullPolicy::Always, Some(64)));
        let (reference, options) = oci.registry.unwrap();
        assert_eq!(reference.to_string(), "docker.io/library/alpine:3");
        assert_eq!(options.credentials.unwrap().password, "pw");
        let anonymous =
            json!({ "kind": "oci", "reference": "a", "registry": { "auth": { "kind": "anonymous" } } });
        assert!(rootfs(anonymous).unwrap().registry.is_none());
        assert!(rootfs(json!({ "kind": "host" })).unwrap().image.is_host());
        let bind = rootfs(json!({ "kind": "bind", "path": "/srv" })).unwrap();
        assert!(matches!(bind.rootfs, Some(RootfsSpec::Directory { allowed: None, .. })));
        let disk = rootfs(json!({ "kind": "disk", "path": "/srv/d", "fstype": "ext4" })).unwrap();
        assert!(matches!(disk.rootfs, Some(RootfsSpec::Disk { .. })));
        let snapshot = rootfs(json!({ "kind": "snapshot", "pathOrName": "s" })).unwrap();
        assert!(matches!(snapshot.rootfs, Some(RootfsSpec::Snapshot { snapshot }) if snapshot == "s"));
        for (refused, kind) in [
            (json!({ "kind": "disk", "path": "/d", "fstype": "xfs" }), ErrorKind::Unsupported),
            (
                json!({ "kind": "oci", "reference": "a", "registry": { "caCertsPath": "/ca" } }),
                ErrorKind::Unsupported,
            ),
            (
                json!({ "kind": "oci", "reference": "a", "registry": { "auth": { "kind": "basic", "username": "a" } } }),
                ErrorKind::InvalidRequest,
            ),
        ] {
            let failure = rootfs(refused.clone()).unwrap_err();
            assert!(
                failure.error().kind() == kind && failure.error().next().is_some(),
                "{refused}: {failure:?}"
            );
        }
    }
}

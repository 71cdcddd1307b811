//! Snapshots: a sandbox's changes at one moment, and what it was made on. Types only.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{
    BaseConfig, Error, ErrorKind, ImageRef, Label, Limits, NetworkSpec, Policy, Result, RootfsPlan,
    SandboxName, TreeFacts,
};

/// The version of [`SnapshotManifest`] that this program writes, and the newest that it reads.
pub const SNAPSHOT_FORMAT: u32 = 1;
/// Most labels of one snapshot.
pub const MAX_SNAPSHOT_LABELS: usize = 64;
/// Most snapshots on top of each other: each adds a layer to every file system made from them.
pub const MAX_SNAPSHOT_CHAIN: usize = 64;

/// A snapshot's description, without its files. Its SHA-256 as canonical JSON is the snapshot's digest, so two
/// snapshots with the same digest have the same description and the same files.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SnapshotManifest {
    pub format: u32,
    pub created_at: Timestamp,
    pub image: ImageRef,
    /// Digest of the image's manifest; none for image `host`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image_digest: Option<String>,
    /// The host directory or disk that replaces the image beneath. Such a snapshot is useless elsewhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_path: Option<RootfsPlan>,
    /// Digest of the snapshot beneath: this one has only the changes since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    pub tree: TreeFacts,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// The image's configuration, with the changes of the snapshot's source.
    #[serde(default)]
    pub config: BaseConfig,
    pub source: SnapshotSource,
}

/// The sandbox that a snapshot was taken from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SnapshotSource {
    pub sandbox: SandboxName,
    /// As requested for the source; a restored sandbox gets the same.
    #[serde(default)]
    pub limits: Limits,
    /// As `limits`. Left out when it is the default, so that digests of earlier versions stay what they are.
    #[serde(default, skip_serializing_if = "NetworkSpec::is_default")]
    pub network: NetworkSpec,
}

impl SnapshotManifest {
    /// Checks that this program can use the manifest. Manifests come from strangers too.
    pub fn check(&self) -> Result<()> {
        let refuse = |why: String| Err(Error::invalid(format!("the snapshot's manifest {why}")));
        if self.format == 0 || self.format > SNAPSHOT_FORMAT {
            let why = format!("has format {}; only {SNAPSHOT_FORMAT} is supported", self.format);
            return Err(Error::new(ErrorKind::Unsupported, format!("the snapshot's manifest {why}"))
                .with_hint("Use the newer version of Warren that wrote it."));
        }
        for digest in [Some(&self.tree.digest), self.parent.as_ref(), self.image_digest.as_ref()] {
            if let Some(digest) = digest.filter(|digest| !is_digest(digest)) {
                return refuse(format!("has an invalid digest: {:?}", shorten(digest)));
            }
        }
        if self.image.is_host() != self.image_digest.is_none() {
            return refuse(format!(
                "names the image {} {}",
                self.image,
                match self.image_digest {
                    Some(_) => "and a digest for it",
                    None => "without its digest",
                }
            ));
        }
        match &self.host_path {
            None => {}
            Some(RootfsPlan::Directory { path, .. } | RootfsPlan::Disk { image: path, .. })
                if path.is_absolute() && self.image.is_host() => {}
            Some(_) => return refuse("has an invalid host path".to_owned()),
        }
        if let Err(error) = Policy::from_spec(&self.source.network) {
            return refuse(format!("has an invalid network: {error}"));
        }
        check_snapshot_labels(&self.labels)
    }
}

pub fn check_snapshot_labels(labels: &BTreeMap<String, String>) -> Result<()> {
    if labels.len() > MAX_SNAPSHOT_LABELS {
        return Err(Error::invalid(format!(
            "the snapshot has {} labels; the limit is {MAX_SNAPSHOT_LABELS}",
            labels.len()
        )));
    }
    for (key, value) in labels {
        Label::new(key, value)?;
    }
    Ok(())
}

/// `sha256:` and 64 digits.
pub fn is_digest(text: &str) -> bool {
    text.strip_prefix("sha256:").is_some_and(|hex| hex.len() == 64 && is_hex(hex))
}

/// Whether it consists of lower-case hexadecimal digits only.
pub fn is_hex(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
}

fn shorten(text: &str) -> String {
    text.chars().take(80).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest() -> SnapshotManifest {
        SnapshotManifest {
            format: SNAPSHOT_FORMAT,
            created_at: Timestamp::UNIX_EPOCH,
            image: ImageRef::host(),
            image_digest: None,
            host_path: None,
            parent: None,
            tree: TreeFacts { digest: format!("sha256:{}", "a".repeat(64)), bytes: 1, n_entries: 1 },
            labels: BTreeMap::new(),
            config: BaseConfig::default(),
            source: SnapshotSource {
                sandbox: "web".parse().unwrap(),
                limits: Limits::default(),
                network: NetworkSpec::default(),
            },
        }
    }

    #[test]
    fn a_manifest_that_lies_about_itself_is_refused() {
        manifest().check().unwrap();
        let digest = || Some(format!("sha256:{}", "b".repeat(64)));
        for lie in [
            SnapshotManifest { format: SNAPSHOT_FORMAT + 1, ..manifest() },
            SnapshotManifest { parent: Some("../../etc".into()), ..manifest() },
            SnapshotManifest { image_digest: digest(), ..manifest() },
            SnapshotManifest { image: "alpine".parse().unwrap(), ..manifest() },
            SnapshotManifest { host_path: Some(RootfsPlan::Host), ..manifest() },
            SnapshotManifest {
                host_path: Some(RootfsPlan::Directory {
                    path: "srv".into(),
                    identity: None,
                    no_links: false,
                }),
                ..manifest()
            },
            SnapshotManifest {
                source: SnapshotSource {
                    network: NetworkSpec { allow: vec!["*".to_owned()], ..NetworkSpec::default() },
                    ..manifest().source
                },
                ..manifest()
            },
            SnapshotManifest { labels: [("a b".to_owned(), String::new())].into(), ..manifest() },
        ] {
            assert!(lie.check().is_err(), "{lie:?}");
        }
        let image = "alpine".parse().unwrap();
        SnapshotManifest { image, image_digest: digest(), parent: digest(), ..manifest() }.check().unwrap();
    }
}

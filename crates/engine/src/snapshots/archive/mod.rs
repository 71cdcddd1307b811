//! Snapshots as one file: `tar` or `tar.zst`, sealed.
//!
//! Members, in this order: `index.json`; for each snapshot, the lowest first, `snapshots/<digest>/manifest.json` and
//! its tree as a tar in parts, `snapshots/<digest>/tree/<number>`; the image as an OCI archive in parts,
//! `image/<number>`. In parts, because nobody knows how long a stream is before it ends, and no member of a tar begins
//! without its length.

mod load;
mod part;
mod save;
mod seal;

use archive::{Content, Kind, Member};
use sandbox::SnapshotName;
use serde::{Deserialize, Serialize};

/// Version of the archive.
const FORMAT: u32 = 1;
/// Longest part of a tree or an image.
const PART_BYTES: usize = 1024 * 1024;
/// Longest `index.json`.
const MAX_INDEX_BYTES: usize = 64 * 1024;

const INDEX_NAME: &str = "index.json";
const IMAGE_PREFIX: &str = "image/";

/// The parts that go into an archive, and whether it is compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SaveOptions {
    /// All snapshots beneath it: without them it loads only where they are.
    pub with_parents: bool,
    /// The image beneath it.
    pub with_image: bool,
    /// Not compressed.
    pub plain: bool,
}

impl Default for SaveOptions {
    fn default() -> Self {
        Self { with_parents: true, with_image: false, plain: false }
    }
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Index {
    format: u32,
    /// The lowest first; the last one is what was saved.
    snapshots: Vec<Indexed>,
    /// Digest of the image inside.
    image: Option<String>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Indexed {
    digest: String,
    name: Option<SnapshotName>,
}

fn manifest_name(digest: &str) -> String {
    format!("snapshots/{}/manifest.json", hex(digest))
}

fn tree_prefix(digest: &str) -> String {
    format!("snapshots/{}/tree/", hex(digest))
}

fn hex(digest: &str) -> &str {
    digest.strip_prefix("sha256:").unwrap_or(digest)
}

/// The same for the same name and length. Names are ours: short enough for one block.
fn header(name: &str, len: u64) -> Vec<u8> {
    archive::header(&Member::new(name, Kind::File(Content::whole(len)), 0o644)).unwrap_or_default()
}

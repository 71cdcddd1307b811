//! The content of a project's page, whatever form the page had.

use std::collections::BTreeMap;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::{Deserialize, Serialize};
use url::Url;

use crate::{
    digest::Stated,
    table::{Named, Table},
};

/// Most files of one project. The most on the public index are some ten thousand.
const MAX_FILES: usize = 100_000;

/// Most files to a wheel or source archive have these endings; what else a listing names is not for installers.
const ENDINGS: &[&str] =
    &[".whl", ".tar.gz", ".zip", ".tar.bz2", ".tgz", ".tar.xz", ".tar.z", ".tar", ".egg", ".tbz", ".txz"];

/// In the path of a link.
const IN_PATH: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Project {
    pub(super) files: Vec<PipFile>,
    /// As the index says (API 1.1); empty where it does not.
    pub(super) versions: Vec<String>,
    /// As it came (API 1.4).
    pub(super) status: Option<serde_json::Value>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PipFile {
    pub(super) filename: String,
    /// Without a fragment.
    pub(super) url: Url,
    pub(super) hashes: BTreeMap<String, String>,
    pub(super) requires_python: Option<String>,
    pub(super) yanked: Option<Yanked>,
    pub(super) metadata: Option<Metadata>,
    pub(super) size: Option<u64>,
    pub(super) upload_time: Option<String>,
}

/// `true`, or the reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub(super) enum Yanked {
    Is(bool),
    Because(String),
}

/// Whether the metadata can be had beside the file: `true`, or with its hashes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub(super) enum Metadata {
    Is(bool),
    Hashed(BTreeMap<String, String>),
}

impl Project {
    pub(super) fn push(&mut self, file: PipFile) {
        let name = file.filename.to_ascii_lowercase();
        let is_plain = !file.filename.chars().any(|c| c.is_control() || matches!(c, '/' | '\\'));
        if is_plain && ENDINGS.iter().any(|ending| name.ends_with(ending)) && self.files.len() < MAX_FILES {
            self.files.push(file);
        }
    }

    pub(super) fn table(&self) -> Table {
        let mut table = Table::new();
        for file in &self.files {
            let stated = strongest(&file.hashes);
            if let Some(metadata) = &file.metadata {
                let mut url = file.url.clone();
                url.set_path(&format!("{}.metadata", url.path()));
                let stated = match metadata {
                    Metadata::Is(_) => None,
                    Metadata::Hashed(hashes) => strongest(hashes),
                };
                table.insert(format!("{}.metadata", file.filename), Named { url, stated });
            }
            // Twice the same name: the first counts, as it is the first that installers see.
            table.entry(file.filename.clone()).or_insert(Named { url: file.url.clone(), stated });
        }
        table
    }
}

impl PipFile {
    /// The address that clients are given, without hashes.
    pub(super) fn path(&self, project: &str) -> String {
        format!("/pip/files/{project}/{}", utf8_percent_encode(&self.filename, IN_PATH))
    }
}

fn strongest(hashes: &BTreeMap<String, String>) -> Option<Stated> {
    Stated::strongest(hashes.iter().map(|(name, hex)| (name.as_str(), hex.as_str())))
}

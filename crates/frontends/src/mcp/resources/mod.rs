//! Resources. Only their types so far: what they are comes with the tools for files.

use futures_util::stream::BoxStream;
use sandbox::{Error, Result};

use super::call::Call;

/// A resource, as it is listed.
#[derive(Debug, Clone)]
pub(crate) struct ResourceEntry {
    pub(crate) uri: String,
    pub(crate) name: String,
    pub(crate) title: Option<String>,
    pub(crate) description: Option<String>,
    pub(crate) mime_type: Option<String>,
    pub(crate) size: Option<u64>,
}

/// A family of resources.
#[derive(Debug, Clone)]
pub(crate) struct TemplateEntry {
    pub(crate) uri_template: String,
    pub(crate) name: String,
    pub(crate) title: Option<String>,
    pub(crate) description: Option<String>,
    pub(crate) mime_type: Option<String>,
}

/// What a resource holds.
#[derive(Debug, Clone)]
pub(crate) struct ResourceBody {
    pub(crate) uri: String,
    pub(crate) mime_type: Option<String>,
    pub(crate) content: ResourceContent,
}

#[derive(Debug, Clone)]
pub(crate) enum ResourceContent {
    Text(String),
    Blob(Vec<u8>),
}

pub(crate) async fn list(_call: &Call) -> Result<Vec<ResourceEntry>> {
    Ok(Vec::new())
}

pub(crate) fn templates() -> Vec<TemplateEntry> {
    Vec::new()
}

pub(crate) async fn read(_call: &Call, uri: &str) -> Result<Vec<ResourceBody>> {
    Err(no_resource(uri))
}

/// An item whenever it changed.
pub(crate) async fn watch(_call: &Call, uri: &str) -> Result<BoxStream<'static, ()>> {
    Err(no_resource(uri))
}

fn no_resource(uri: &str) -> Error {
    let shown: String = uri.chars().take(256).collect();
    Error::not_found(format!("no resource {shown:?}"))
}

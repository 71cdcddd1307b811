//! Resources: what a client can read without calling a tool, and be told of when it changes.
//!
//! Fixed ones have the names of microsandbox-mcp, under our scheme and under its own; files and output of sandboxes are
//! reached by templates.

mod inventory;
mod read;
#[cfg(test)]
mod tests;
mod uri;
mod watch;

use self::uri::Target;
pub(crate) use self::{read::read, watch::watch};
use super::{call::Call, surface::Surface};
use crate::links::sandbox_uri;

/// Sandboxes that a listing names at most; the others are in `warren://sandboxes`.
const MAX_LISTED_SANDBOXES: usize = 200;
/// Largest file, or other content, that is given as one resource.
const MAX_RESOURCE_BYTES: usize = 4 * 1024 * 1024;

pub(super) const JSON: &str = "application/json";
const NATIVE_SCHEME: &str = "warren";
/// Every scheme that is read, whoever asks.
const SCHEMES: [&str; 2] = [NATIVE_SCHEME, "microsandbox"];

/// Something that can be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ResourceEntry {
    pub(crate) uri: String,
    pub(crate) name: String,
    pub(crate) title: String,
    pub(crate) description: String,
    pub(crate) mime_type: String,
    pub(crate) size: Option<u64>,
}

/// A pattern of what can be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TemplateEntry {
    pub(crate) uri_template: String,
    pub(crate) name: String,
    pub(crate) title: String,
    pub(crate) description: String,
    pub(crate) mime_type: Option<String>,
}

/// The content of a resource that was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ResourceBody {
    pub(crate) uri: String,
    pub(crate) mime_type: String,
    pub(crate) content: Content,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Content {
    Text(String),
    Blob(Vec<u8>),
}

/// Path, name, title, description and media type of those that always exist.
const FIXED: [(&str, &str, &str, &str, &str); 7] = [
    ("runtime", "runtime", "Runtime", "What this host supports, and the policy that applies.", JSON),
    ("sandboxes", "sandboxes", "Sandboxes", "Every sandbox you can see.", JSON),
    ("volumes", "volumes", "Volumes", "Every volume you can see.", JSON),
    ("images", "images", "Images", "Images that sandboxes can be created from.", JSON),
    ("snapshots", "snapshots", "Snapshots", "Every snapshot you can see.", JSON),
    (
        "schemas/sandbox-create",
        "sandbox-create-schema",
        "Schema of sandbox_create",
        "Every parameter of sandbox_create, as JSON Schema.",
        "application/schema+json",
    ),
    ("policy", "policy", "Policy", "Host paths, limits and time limits that apply to you.", JSON),
];

/// Lists the resources that always exist, and the sandboxes that the caller sees.
pub(crate) async fn list(call: &Call) -> Vec<ResourceEntry> {
    let schemes = call.surface.manner.schemes;
    let fixed = schemes.iter().flat_map(|scheme| {
        FIXED.map(|(path, name, title, description, mime_type)| ResourceEntry {
            uri: format!("{scheme}://{path}"),
            name: name.to_owned(),
            title: title.to_owned(),
            description: description.to_owned(),
            mime_type: mime_type.to_owned(),
            size: None,
        })
    });
    let mut entries: Vec<_> = fixed.collect();
    if !schemes.contains(&NATIVE_SCHEME) {
        return entries;
    }
    let visible = inventory::sandboxes(call).await.unwrap_or_else(|error| {
        tracing::warn!(error = &error as &dyn std::error::Error, "the sandboxes could not be listed");
        Vec::new()
    });
    entries.extend(visible.iter().take(MAX_LISTED_SANDBOXES).map(|view| {
        let reference = inventory::reference(call, view);
        ResourceEntry {
            uri: sandbox_uri(&reference),
            name: reference,
            title: format!("Sandbox {}", view.name),
            description: format!("{} in namespace {}, {}.", view.id, view.namespace, view.state),
            mime_type: JSON.to_owned(),
            size: None,
        }
    }));
    entries
}

/// Returns the caller's references to the sandboxes that it sees.
pub(super) async fn references(call: &Call) -> sandbox::Result<Vec<String>> {
    let visible = inventory::sandboxes(call).await?;
    Ok(visible.iter().map(|view| inventory::reference(call, view)).collect())
}

/// Whether an address is a template's, or could be a resource's; under either scheme.
pub(super) fn is_known(uri: &str) -> bool {
    let is_template = |known: &TemplateEntry| {
        let path = known.uri_template.split_once("://").map(|(_, path)| path);
        path.is_some_and(|path| {
            SCHEMES.iter().any(|scheme| {
                uri.strip_prefix(scheme).and_then(|rest| rest.strip_prefix("://")) == Some(path)
            })
        })
    };
    all_templates().iter().any(is_template) || Target::parse(uri).is_ok()
}

/// Returns the templates that a surface lists.
pub(crate) fn templates(surface: &Surface) -> Vec<TemplateEntry> {
    if surface.manner.schemes.contains(&NATIVE_SCHEME) { all_templates() } else { Vec::new() }
}

fn all_templates() -> Vec<TemplateEntry> {
    let template =
        |uri: &str, name: &str, title: &str, description: &str, mime_type: Option<&str>| TemplateEntry {
            uri_template: uri.to_owned(),
            name: name.to_owned(),
            title: title.to_owned(),
            description: description.to_owned(),
            mime_type: mime_type.map(str::to_owned),
        };
    vec![
        template(
            "warren://sandboxes/{name}",
            "sandbox",
            "Sandbox",
            "The current state of one sandbox.",
            Some(JSON),
        ),
        template(
            "warren://sandboxes/{name}/files/{+path}",
            "sandbox-file",
            "File in a sandbox",
            "The content of a file inside a sandbox.",
            None,
        ),
        template(
            "warren://sandboxes/{name}/execs/{id}",
            "exec",
            "Exec",
            "The current state of one command in a sandbox.",
            Some(JSON),
        ),
        template(
            "warren://sandboxes/{name}/execs/{id}/output",
            "exec-output",
            "Output of an exec",
            "The output of a command so far, stdout and stderr in order.",
            Some("text/plain"),
        ),
        template(
            "warren://sandboxes/{name}/execs/{id}/outputs/{number}",
            "cell-output",
            "Output of code",
            "A complete picture or value that code displayed; ?mime= chooses a form other than the best.",
            None,
        ),
    ]
}

//! Completions: what could come next in an argument of a prompt or of a resource template.

use std::collections::BTreeMap;

use sandbox::{Error, Result};

use super::{Toolset, call::Call, resources};
use crate::code;

/// Values in one answer, as the protocol says.
const MAX_VALUES: usize = 100;
/// Entries of a directory that are looked at.
const MAX_ENTRIES: u32 = 2000;

/// The prompt or resource whose argument is being completed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Reference {
    Prompt(String),
    /// A template's or a resource's URI.
    Resource(String),
}

/// Values for `argument` that begin with `value`; `context` holds the arguments that are filled in already.
///
/// Values that the caller may not see are not offered. If looking them up fails for any reason, nothing is offered.
pub(crate) async fn complete(
    call: &Call,
    reference: Reference,
    argument: &str,
    value: &str,
    context: &BTreeMap<String, String>,
) -> Result<Vec<String>> {
    check(call, &reference)?;
    let found = match (&reference, argument) {
        (Reference::Prompt(_), "sandbox") | (Reference::Resource(_), "name") => names(call).await,
        (Reference::Prompt(_), "toolset") => Ok(Toolset::ALL.map(|set| set.to_string()).to_vec()),
        (Reference::Resource(_), "path") => paths(call, context, value).await,
        (Reference::Resource(_), "id") => execs(call, context).await,
        (Reference::Resource(_), "number") => outputs(call, context).await,
        _ => Ok(Vec::new()),
    };
    let mut values = found.unwrap_or_default();
    values.retain(|known| known.starts_with(value));
    values.truncate(MAX_VALUES);
    Ok(values)
}

fn check(call: &Call, reference: &Reference) -> Result<()> {
    match reference {
        Reference::Prompt(name) if call.surface.manner.prompts.iter().any(|prompt| prompt.name == name) => {
            Ok(())
        }
        Reference::Prompt(name) => {
            let shown: String = name.chars().take(64).collect();
            Err(Error::invalid(format!("no prompt {shown:?}"))
                .with_hint("List the prompts to see which there are."))
        }
        Reference::Resource(uri) if resources::is_known(uri) => Ok(()),
        Reference::Resource(uri) => {
            let shown: String = uri.chars().take(200).collect();
            Err(Error::invalid(format!("no resource or template {shown}"))
                .with_hint("List the resources and the resource templates to see what can be read."))
        }
    }
}

async fn names(call: &Call) -> Result<Vec<String>> {
    let mut names: Vec<_> = resources::references(call).await?;
    names.sort_unstable();
    Ok(names)
}

/// Returns the entries of the directory that has been typed so far; directories end with `/`.
async fn paths(call: &Call, context: &BTreeMap<String, String>, value: &str) -> Result<Vec<String>> {
    let Some(name) = context.get("name") else { return Ok(Vec::new()) };
    let typed = value.rfind('/').map_or("", |at| &value[..=at]);
    let directory = format!("/{}", typed.trim_start_matches('/'));
    let found = call.engine().list(&call.who, &call.sandbox(name)?, &directory, false, MAX_ENTRIES).await?;
    let completed = found.entries.iter().filter_map(|entry| {
        let file_name = entry.path.rsplit('/').next()?;
        let end = if entry.kind == sandbox::FileKind::Directory { "/" } else { "" };
        Some(format!("{typed}{file_name}{end}"))
    });
    Ok(completed.collect())
}

/// The newest first.
async fn execs(call: &Call, context: &BTreeMap<String, String>) -> Result<Vec<String>> {
    let Some(name) = context.get("name") else { return Ok(Vec::new()) };
    let execs = call.engine().execs(&call.who, &call.sandbox(name)?).await?;
    Ok(execs.iter().rev().map(|exec| exec.id.to_string()).collect())
}

/// Numbers of what a cell has shown.
async fn outputs(call: &Call, context: &BTreeMap<String, String>) -> Result<Vec<String>> {
    let (Some(name), Some(id)) = (context.get("name"), context.get("id")) else { return Ok(Vec::new()) };
    let id = id.parse().map_err(Error::from)?;
    let n = code::n_outputs(call.mcp.links().outputs(), &call.who, &call.sandbox(name)?, &id).await?;
    Ok((1..=n).take(MAX_VALUES).map(|number| number.to_string()).collect())
}

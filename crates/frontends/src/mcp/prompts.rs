//! Prompts. Only their types so far.

use std::collections::BTreeMap;

use sandbox::{Error, Result};

#[derive(Debug, Clone)]
pub(crate) struct PromptEntry {
    pub(crate) name: String,
    pub(crate) title: Option<String>,
    pub(crate) description: Option<String>,
    pub(crate) arguments: Vec<PromptArgument>,
}

#[derive(Debug, Clone)]
pub(crate) struct PromptArgument {
    pub(crate) name: String,
    pub(crate) description: Option<String>,
    pub(crate) required: bool,
}

pub(crate) fn list() -> Vec<PromptEntry> {
    Vec::new()
}

/// The texts of the messages, all from the user.
pub(crate) fn get(name: &str, _arguments: BTreeMap<String, String>) -> Result<Vec<String>> {
    let shown: String = name.chars().take(64).collect();
    Err(Error::not_found(format!("no prompt {shown:?}")))
}

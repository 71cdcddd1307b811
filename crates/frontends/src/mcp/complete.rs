//! Completions. Only their types so far.

use std::collections::BTreeMap;

use super::call::Call;

/// Of what an argument is to be completed.
#[derive(Debug, Clone)]
pub(crate) enum Reference {
    Prompt(String),
    Resource(String),
}

/// Values that the argument may have, best first.
pub(crate) async fn complete(
    _call: &Call,
    _reference: &Reference,
    _argument: &str,
    _value: &str,
    _context: &BTreeMap<String, String>,
) -> Vec<String> {
    Vec::new()
}

//! A probe's findings, as they leave the sandbox: the orchestrator outside decides what they mean.

use std::{collections::BTreeMap, fmt::Display};

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Breaches reported one by one; the rest are only counted.
const MAX_TOLD: usize = 8;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Attempt {
    pub what: String,
    /// The error's name, or the result.
    pub answer: String,
}

/// All attempts of one probe.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// Attempts that the walls stopped.
    pub n_held: usize,
    pub n_breached: usize,
    /// The first breaches.
    pub breaches: Vec<Attempt>,
    /// Why nothing could be tried, if so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skipped: Option<String>,
    /// Values that the other side compares with its own view.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub facts: BTreeMap<String, Value>,
}

impl Report {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Records something that must not happen.
    pub(crate) fn breach(&mut self, what: impl Into<String>, answer: impl Display) {
        self.n_breached += 1;
        if self.breaches.len() < MAX_TOLD {
            self.breaches.push(Attempt { what: what.into(), answer: answer.to_string() });
        }
    }

    pub(crate) fn held(&mut self) {
        self.n_held += 1;
    }

    /// Held if the attempt failed.
    pub(crate) fn must_fail<T, E>(&mut self, what: impl Into<String>, tried: Result<T, E>) {
        match tried {
            Ok(_) => self.breach(what, "done"),
            Err(_) => self.held(),
        }
    }

    pub(crate) fn must(&mut self, what: impl Into<String>, holds: bool, answer: impl Display) {
        if holds { self.held() } else { self.breach(what, answer) }
    }

    pub(crate) fn fact(&mut self, name: &str, value: impl Into<Value>) {
        self.facts.insert(name.to_owned(), value.into());
    }

    pub(crate) fn skip(why: impl Into<String>) -> Self {
        Self { skipped: Some(why.into()), ..Self::default() }
    }
}

//! Ways to make sandboxes: implementations of `sandbox::Backend`.
#![forbid(unsafe_code)]

pub mod fake;
pub mod namespace;

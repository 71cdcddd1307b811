//! Ways to make sandboxes: implementations of `sandbox::Backend`.
#![forbid(unsafe_code)]

pub mod fake;
mod guest_process;
pub mod namespace;
pub mod oci;
pub mod process;

//! Implementations of `sandbox::Backend`: the ways to make sandboxes.
#![forbid(unsafe_code)]

pub mod fake;
mod guest_process;
pub mod namespace;
pub mod oci;
pub mod process;

//! Implementations of `sandbox::Backend`: the ways to make sandboxes.
#![forbid(unsafe_code)]

mod guest_process;
pub mod namespace;
pub mod oci;
pub mod process;

//! The files of the dashboard's page, compressed with gzip, as part of the binary.
//!
//! The page is made in `web/` and committed as `web/dist`, so that a build needs no Node. It is a crate of its own
//! because every crate that depends on it is compiled again when the page changes: only `warren` does.
#![forbid(unsafe_code)]

/// Paths without a first slash, and their files.
pub static FILES: &[(&str, &[u8])] = include!(concat!(env!("OUT_DIR"), "/files.rs"));

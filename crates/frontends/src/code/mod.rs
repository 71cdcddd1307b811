//! Code run as cells, as REST and MCP tell of it: one reading of a cell's ledger for both.

mod file_link;
pub(crate) mod language;

pub use self::file_link::{FileChange, FileLink};

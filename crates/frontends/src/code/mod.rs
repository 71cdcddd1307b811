//! Code run as cells, as REST and MCP tell of it: one reading of a cell's ledger for both.

pub(crate) mod language;

//! Code run as cells, as REST and MCP tell of it: one reading of a cell's ledger for both.
//!
//! A cell is an exec. What it shows besides its output is a stream of records in the ledger (`records`), which becomes
//! outputs, an error, files and warnings (`result`), all bounded (`collect`). An output can be read again, whole
//! (`reread`).

mod bundle;
mod collect;
mod file_link;
pub(crate) mod language;
mod records;
mod reread;
mod result;
mod serving;
pub(crate) mod surroundings;

pub(crate) use self::{
    bundle::Form,
    collect::{Cell, Collected, Finished},
    records::{CellEvent, PictureCaps},
    reread::{MAX_OUTPUT_NUMBER, Searches, n_outputs, output},
    serving::{Budget, Serving},
};
pub use self::{
    file_link::{FileChange, FileLink},
    result::{CellError, CellResult, Image, Output, OutputKind, StateLoss},
};

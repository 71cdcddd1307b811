//! How fast it is, beside others on the same machine in the same run.
//!
//! Machines are shared and noisy, so what is compared runs turn by turn, and the ratios are what to read.

mod code;
mod mcp;
mod peers;
mod report;
mod samples;
mod scenarios;
mod storage;

pub(crate) use self::{
    code::{CodeOptions, measure as measure_code},
    mcp::{McpOptions, measure as measure_mcp},
    report::Report,
    scenarios::Options,
    storage::{StorageOptions, measure as measure_storage},
};

use crate::error::CommandResult;

/// Measures everything, on a daemon and in directories of its own.
pub(crate) async fn measure(options: &Options) -> CommandResult<Report> {
    let mut bench = scenarios::Bench::start(options).await?;
    let report = bench.measure().await;
    bench.stop().await;
    report
}

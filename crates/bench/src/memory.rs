//! The daemon's memory: idle, with many sandboxes, after many calls, and when it had time to give back.

use std::{path::Path, time::Duration};

use anyhow::{Context as _, Result};
use futures_util::{StreamExt as _, TryStreamExt as _, future, stream};
use serde_json::json;

use crate::{
    daemon::{Daemon, machine, text},
    mcp, progress,
    report::Report,
};

/// A daemon looks every ten seconds whether it was idle meanwhile, and then lets go of what it does not need.
const GIVEN_BACK_WITHIN: Duration = Duration::from_secs(25);
/// Sandboxes that are made or removed at the same time.
const AT_ONCE: usize = 16;

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Sandboxes that are made, used and removed
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    sandboxes: u32,
    /// MCP calls in them, of all clients together; one in ten is a command
    #[arg(long, default_value_t = 60_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    calls: u32,
    /// Clients at the same time
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    clients: u32,
}

pub(crate) async fn measure(program: &Path, options: &Options) -> Result<Report> {
    let daemon = Daemon::start(program, &mcp::ARGUMENTS).await?;
    let mut memory = Memory { options, daemon: &daemon, report: machine() };
    let measured = memory.measure().await;
    let report = memory.report;
    daemon.stop().await;
    measured.map(|()| report)
}

struct Memory<'a> {
    options: &'a Options,
    daemon: &'a Daemon,
    report: Report,
}

impl Memory<'_> {
    async fn measure(&mut self) -> Result<()> {
        wait().await;
        self.resident("idle".to_owned())?;
        let Options { sandboxes, calls, .. } = *self.options;
        let names = self.create().await?;
        self.resident(format!("{sandboxes} sandboxes alive"))?;
        self.call(&names).await?;
        self.resident(format!("{sandboxes} sandboxes alive, after {calls} calls"))?;
        let removed = stream::iter(names).map(async |name| self.daemon.remove(&name).await);
        removed.buffer_unordered(AT_ONCE).try_collect::<()>().await?;
        let after = format!("after {sandboxes} sandboxes and {calls} calls");
        self.resident(after.clone())?;
        wait().await;
        self.resident(format!("{after}, {} s later", GIVEN_BACK_WITHIN.as_secs()))
    }

    fn resident(&mut self, when: String) -> Result<()> {
        let bytes = self.daemon.bytes().context("the daemon ended")?;
        self.report.fact(format!("daemon, resident, {when}"), bytes as f64 / 1024.0 / 1024.0, "MiB");
        Ok(())
    }

    /// Returns their names, which tools need.
    async fn create(&self) -> Result<Vec<String>> {
        let n = self.options.sandboxes as usize;
        let made = (0..n).map(async |made| {
            let sandbox = self.daemon.post("/sandboxes", json!({})).await?;
            progress("creating", made + 1, n);
            text(&sandbox, "/name")
        });
        stream::iter(made).buffer_unordered(AT_ONCE).try_collect().await
    }

    /// Every sandbox is used: the clients share them out.
    async fn call(&self, names: &[String]) -> Result<()> {
        let address = self.daemon.address().await?;
        let n_clients = self.options.clients as usize;
        let n_each = (self.options.calls as usize / n_clients).max(1);
        let clients = (0..n_clients).map(|client| {
            let own: Vec<_> = names.iter().skip(client % names.len()).step_by(n_clients).cloned().collect();
            mcp::client_of_crowd(address, own, n_each)
        });
        future::try_join_all(clients).await.map(drop)
    }
}

async fn wait() {
    progress("waiting for the daemon to give memory back", 0, 1);
    tokio::time::sleep(GIVEN_BACK_WITHIN).await;
}

//! `warren stats`

use std::{
    collections::HashMap,
    io::{IsTerminal as _, stdout},
    process::ExitCode,
    time::{Duration, Instant},
};

use frontends::rest::v1;
use sandbox::{SandboxState, Usage};
use serde::Serialize;

use super::Context;
use crate::{arguments, client::Client, error::CommandResult, output};

/// Time between the two readings when not watching.
const GLANCE: Duration = Duration::from_millis(200);

/// Show resource usage of sandboxes
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Names or ids [default: all running sandboxes]
    #[arg(value_name = "SANDBOX")]
    sandboxes: Vec<String>,
    /// Keep updating
    #[arg(long, short)]
    watch: bool,
    /// Accepted and without effect, as only --watch shows more than one reading
    #[arg(long, hide = true, conflicts_with = "watch")]
    no_stream: bool,
    /// Accepted and without effect, as names are never cut
    #[arg(long, hide = true)]
    no_trunc: bool,
    /// Interval between updates of --watch
    #[arg(long, value_name = "SPAN", default_value = "1s", value_parser = arguments::duration)]
    interval: Duration,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Reading {
    id: String,
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    cpu_percent: Option<f64>,
    memory_limit_bytes: u64,
    #[serde(flatten)]
    usage: Usage,
}

/// CPU time at the last reading, to compute percentages.
#[derive(Default)]
struct Before(HashMap<String, (Instant, u64)>);

impl Before {
    fn percent(&mut self, id: &str, cpu_micros: Option<u64>) -> Option<f64> {
        let (now, used) = (Instant::now(), cpu_micros?);
        let (then, before) = self.0.insert(id.to_owned(), (now, used))?;
        let passed = now.duration_since(then).as_micros().max(1) as f64;
        Some(used.saturating_sub(before) as f64 * 100.0 / passed)
    }
}

pub(crate) async fn run(context: &Context, args: Args) -> CommandResult {
    let client = context.client().await?;
    let mut before = Before::default();
    if !args.watch {
        // CPU usage is the difference between two readings.
        read(&client, &args.sandboxes, &mut before).await?;
        tokio::time::sleep(GLANCE).await;
    }
    loop {
        let readings = read(&client, &args.sandboxes, &mut before).await?;
        show(context, &readings, args.watch)?;
        if !args.watch {
            return Ok(ExitCode::SUCCESS);
        }
        tokio::time::sleep(args.interval.max(Duration::from_millis(100))).await;
    }
}

async fn read(client: &Client, asked: &[String], before: &mut Before) -> CommandResult<Vec<Reading>> {
    let sandboxes = if asked.is_empty() {
        let live = [SandboxState::Running, SandboxState::Paused];
        client.list(&live.map(|state| ("state".to_owned(), state.to_string()))).await?
    } else {
        let mut found = Vec::new();
        for sandbox in asked {
            found.push(client.inspect(sandbox).await?);
        }
        found
    };
    let mut readings = Vec::new();
    for v1::Sandbox { id, name, limits, .. } in sandboxes {
        let usage = match client.usage(id.as_str()).await {
            Ok(usage) => usage,
            // It ended after it was listed, which is an error only if the user named it.
            Err(_gone) if asked.is_empty() => continue,
            Err(error) => return Err(error),
        };
        let cpu_percent = before.percent(id.as_str(), usage.cpu_micros);
        let memory_limit_bytes = limits.memory.bytes();
        readings.push(Reading {
            id: id.to_string(),
            name: name.to_string(),
            cpu_percent,
            memory_limit_bytes,
            usage,
        });
    }
    Ok(readings)
}

fn show(context: &Context, readings: &[Reading], is_watching: bool) -> CommandResult<()> {
    if context.json && is_watching {
        return output::json_line(&readings);
    }
    if context.json {
        return output::json(&readings);
    }
    if is_watching && stdout().is_terminal() {
        // Cursor home, then clear below: the table is drawn over the last one.
        output::line("\u{1b}[H\u{1b}[J")?;
    }
    let heading = [
        "NAME",
        "CPU",
        "CPU TIME",
        "MEMORY",
        "LIMIT",
        "PEAK",
        "PIDS",
        "DISK",
        "OOM KILLS",
        "NET IN",
        "NET OUT",
    ];
    output::table_that_fits(heading, readings.iter().map(row), &["PEAK", "OOM KILLS", "CPU TIME", "LIMIT"])
}

fn row(reading: &Reading) -> [String; 11] {
    let unknown = || "-".to_owned();
    let size = |value: Option<u64>| value.map_or_else(unknown, output::bytes);
    let count = |value: Option<u64>| value.map_or_else(unknown, |n| n.to_string());
    let usage = &reading.usage;
    [
        reading.name.clone(),
        reading.cpu_percent.map_or_else(unknown, |percent| format!("{percent:.1}%")),
        usage.cpu_micros.map_or_else(unknown, |micros| format!("{:.2}s", micros as f64 / 1e6)),
        size(usage.memory_bytes),
        output::bytes(reading.memory_limit_bytes),
        size(usage.memory_peak_bytes),
        count(usage.pids),
        size(usage.disk_bytes),
        count(usage.oom_kills),
        size(usage.network.map(|network| network.received_bytes)),
        size(usage.network.map(|network| network.sent_bytes)),
    ]
}

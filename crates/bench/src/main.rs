//! How fast Warren is, compared with others on the same machine in the same run: `cargo run --release -p bench`.
//!
//! The bench uses the product as any client does: it starts the program and talks to it over REST and MCP. Machines are
//! shared and noisy, so compared jobs run in turns, and the ratios are what to read.
#![forbid(unsafe_code)]

mod code;
mod daemon;
mod growth;
mod mcp;
mod memory;
mod network;
mod peers;
mod ports;
mod report;
mod samples;
mod spine;
mod ssh;
mod storage;

use std::{
    io::{self, IsTerminal as _, Write as _},
    path::PathBuf,
};

use anyhow::{Context as _, Result};
use clap::Parser;

/// Measure how fast sandboxes are on this machine, compared with its peers
///
/// Uses a daemon and directories of its own. bwrap, runc and docker take part if they are installed. Compared jobs run
/// in turns, so read the ratios: the first of each group is 1.
#[derive(Debug, Parser)]
#[command(name = "bench", version, args_conflicts_with_subcommands = true)]
struct Arguments {
    #[command(subcommand)]
    suite: Option<Suite>,
    #[command(flatten)]
    spine: spine::Options,
    /// The program that is measured; the `warren` beside this program when absent
    #[arg(long, global = true, value_name = "PATH")]
    program: Option<PathBuf>,
    /// Print JSON
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Debug, clap::Subcommand)]
enum Suite {
    /// Code: the first result of a new sandbox, warm cells, forks, many cells, beside python3 -c and Jupyter
    Code(code::Options),
    /// How times grow with sandboxes, clients and output, and a chart of it
    Growth(growth::Options),
    /// Memory of the daemon: idle, with many sandboxes, after many calls, and some seconds later
    Memory(memory::Options),
    /// MCP: from spawn to the first answer, lists, commands, many clients at once
    Mcp(mcp::Options),
    /// Network: streams, connections and denials of a sandbox, beside veth with masquerade, pasta and slirp4netns
    /// (root)
    Network(network::Options),
    /// Ports: small answers and large ones from a server inside, beside nginx as a reverse proxy to one outside
    Ports(ports::Options),
    /// SSH: files by sftp and new connections, beside OpenSSH's own server
    Ssh(ssh::Options),
    /// Storage: images of many layers, unpacking beside tar, pulls beside plain downloads, snapshots, forks
    Storage(storage::Options),
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let program = match arguments.program {
        Some(program) => program,
        None => std::env::current_exe()?.with_file_name("warren"),
    };
    let program = program
        .canonicalize()
        .with_context(|| format!("{}: build it first (make build)", program.display()))?;
    // One thread: the process that measures the kernel's floor clones itself.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let report = runtime.block_on(async {
        match &arguments.suite {
            None => spine::measure(&program, &arguments.spine).await,
            Some(Suite::Code(options)) => code::measure(&program, options).await,
            Some(Suite::Growth(options)) => growth::measure(&program, options).await,
            Some(Suite::Mcp(options)) => mcp::measure(&program, options).await,
            Some(Suite::Memory(options)) => memory::measure(&program, options).await,
            Some(Suite::Network(options)) => match network::measure(&program, options).await? {
                Some(report) => Ok(report),
                // Another process measured and printed it.
                None => std::process::exit(0),
            },
            Some(Suite::Ports(options)) => ports::measure(&program, options).await,
            Some(Suite::Ssh(options)) => ssh::measure(&program, options).await,
            Some(Suite::Storage(options)) => storage::measure(&program, options).await,
        }
    })?;
    let text = if arguments.json { serde_json::to_string_pretty(&report)? } else { report.as_text() };
    Ok(writeln!(io::stdout(), "{text}")?)
}

/// Shows the progress of long work, on a terminal only, always on the same line.
fn progress(what: &str, done: usize, of: usize) {
    let mut stderr = io::stderr().lock();
    if stderr.is_terminal() {
        write!(stderr, "\r\x1b[K{what} {done}/{of}\r").and_then(|()| stderr.flush()).ok();
    }
}

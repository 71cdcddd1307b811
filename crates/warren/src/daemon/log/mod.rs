//! The daemon's log: events with fields. As text or lines of JSON on stderr, which a command that starts a daemon
//! redirects to a file; or in systemd's journal.

mod json;

use std::{io, os::fd::AsFd};

use sandbox::{Error, ErrorKind, Result};
use tracing::Metadata;
use tracing_subscriber::{
    EnvFilter, Layer, Registry,
    filter::{FilterExt as _, filter_fn},
    fmt,
    layer::SubscriberExt as _,
    util::SubscriberInitExt as _,
};

use self::json::JsonLayer;
use super::trace::{self, Traces};
use crate::{env, output::Paint};

/// The MCP library logs every connection at `info`, every mistake of a client at `warn`, and clients that disconnect at
/// `error`; our own code logs what matters.
const DEFAULT_FILTER: &str = "info,rmcp=error,rmcp::service=off";
/// Names the daemon in the journal.
const IDENTIFIER: &str = "warren";
/// Set by systemd to the device and inode of the journal's stream, for programs whose stderr it is.
const JOURNAL_STREAM: &str = "JOURNAL_STREAM";

/// How the log is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum LogFormat {
    /// Lines for people
    Text,
    /// One JSON object on each line
    Json,
    /// systemd's journal, with fields
    Journald,
}

type AnyLayer = Box<dyn Layer<Registry> + Send + Sync>;

/// Begins to log. Returns what collects traces, if any are wanted.
pub(super) fn init(filter: Option<&str>, format: Option<LogFormat>) -> Result<Option<Traces>> {
    let asked = filter.map(str::to_owned).or_else(|| env::text(env::LOG));
    let text = asked.unwrap_or_else(|| DEFAULT_FILTER.to_owned());
    let filter = EnvFilter::try_new(&text).map_err(|error| {
        Error::invalid(format!("{text:?} is not a log filter: {error}"))
            .with_hint("Use error, warn, info, debug, trace, or a filter such as info,engine=debug.")
    })?;
    let format = format
        .unwrap_or_else(|| if is_journal(io::stderr()) { LogFormat::Journald } else { LogFormat::Text });
    let mut warnings = Vec::new();
    let (traces, trace_layer) = trace::from_environment(&mut warnings).unzip();
    let mut layers = vec![log_layer(format, filter)?];
    layers.extend(trace_layer.map(|layer| layer.with_filter(filter_fn(is_traced)).boxed()));
    tracing_subscriber::registry().with(layers).try_init().ok();
    if format != LogFormat::Text {
        log_panics();
    }
    for warning in warnings {
        tracing::warn!("{warning}");
    }
    Ok(traces)
}

/// Whoever reads JSON or the journal reads no other form. The text log has the usual one, on the same stream.
fn log_panics() {
    std::panic::set_hook(Box::new(|panic| tracing::error!("{panic}")));
}

/// Spans are for traces. Where a line has a place for the id of its request, they are for the log too.
fn is_traced(about: &Metadata<'_>) -> bool {
    about.is_span() && about.target() == trace::TARGET
}

fn log_layer(format: LogFormat, filter: EnvFilter) -> Result<AnyLayer> {
    let no_spans = filter_fn(|about| about.target() != trace::TARGET);
    Ok(match format {
        LogFormat::Text => fmt::layer()
            .with_writer(io::stderr)
            .with_ansi(Paint::for_stderr().is_on())
            .with_target(true)
            .with_filter(filter.and(no_spans))
            .boxed(),
        LogFormat::Json => JsonLayer::new(io::stderr).with_filter(filter.or(filter_fn(is_traced))).boxed(),
        LogFormat::Journald => {
            let layer = tracing_journald::layer().map_err(|error| {
                Error::new(ErrorKind::Unavailable, format!("cannot reach systemd's journal: {error}"))
                    .with_hint("Use --log-format text or json on a system without it.")
            })?;
            let layer = layer.with_field_prefix(None).with_syslog_identifier(IDENTIFIER.to_owned());
            layer.with_filter(filter.and(no_spans)).boxed()
        }
    })
}

/// Whether systemd started us, with the journal as this stream.
fn is_journal(stream: impl AsFd) -> bool {
    let Some(named) = env::text(JOURNAL_STREAM) else { return false };
    rustix::fs::fstat(stream).is_ok_and(|found| named == format!("{}:{}", found.st_dev, found.st_ino))
}

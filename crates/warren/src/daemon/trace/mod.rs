//! Traces: spans of our own code, sent to an OpenTelemetry collector as OTLP over HTTP. Configured by the standard
//! `OTEL_*` variables; without an endpoint nothing is collected, and a span costs one comparison.

mod context;
mod export;
mod layer;
mod otlp;
mod settings;

use tokio::sync::mpsc;

pub(super) use self::export::Traces;
use self::{context::SpanContext, layer::TraceLayer, settings::Settings};

/// The target of all spans.
pub(super) const TARGET: &str = "trace";
/// Spans that wait to be sent; further ones are dropped and counted.
const MAX_WAITING: usize = 4096;

/// One span that has ended.
#[derive(Debug)]
struct EndedSpan {
    context: SpanContext,
    parent: Option<[u8; 8]>,
    name: String,
    kind: Kind,
    began_ns: u64,
    ended_ns: u64,
    attributes: Vec<(&'static str, Attribute)>,
    error: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Internal,
    /// Answers a request.
    Server,
}

#[derive(Debug, Clone, PartialEq)]
enum Attribute {
    Text(String),
    Integer(i64),
    Number(f64),
    Truth(bool),
}

/// The layer that collects, and what sends; nothing if traces are off. `warnings`: for the log, which is not there yet.
pub(super) fn from_environment(warnings: &mut Vec<String>) -> Option<(Traces, TraceLayer)> {
    let settings = Settings::from_environment(warnings)?;
    let (sender, ended) = mpsc::channel(MAX_WAITING);
    let layer = TraceLayer::new(settings.sampler, sender);
    let dropped = layer.dropped();
    Some((Traces::new(settings, ended, dropped), layer))
}

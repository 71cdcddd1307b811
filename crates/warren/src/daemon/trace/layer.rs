//! Collects spans: gives each its place in a trace, and hands it on when it ends.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{SystemTime, UNIX_EPOCH},
};

use tokio::sync::mpsc;
use tracing::{
    Subscriber,
    field::{Field, Visit},
    span,
};
use tracing_subscriber::{
    Layer,
    layer::Context,
    registry::{LookupSpan, SpanRef},
};

use super::{Attribute, EndedSpan, Kind, SpanContext, settings::Sampler};

/// Fields with a meaning of their own.
const NAME: &str = "otel.name";
const KIND: &str = "otel.kind";
const ERROR: &str = "error";
/// A caller's context, which the span continues.
const PARENT: &str = "traceparent";

pub(in crate::daemon) struct TraceLayer {
    sampler: Sampler,
    ended: mpsc::Sender<EndedSpan>,
    dropped: Arc<AtomicU64>,
}

impl TraceLayer {
    pub(super) fn new(sampler: Sampler, ended: mpsc::Sender<EndedSpan>) -> Self {
        Self { sampler, ended, dropped: Arc::default() }
    }

    /// Spans for which there was no room.
    pub(super) fn dropped(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.dropped)
    }

    /// Returns the place of a span: beneath its parent, where a caller says, or at the top of a new trace.
    fn place(
        &self,
        outer: Option<SpanContext>,
        named: Option<SpanContext>,
    ) -> (SpanContext, Option<[u8; 8]>) {
        let span = random();
        if let Some(outer) = outer.filter(|_| named.is_none()) {
            return (SpanContext { span, ..outer }, Some(outer.span));
        }
        let trace = named.map_or_else(random, |caller| caller.trace);
        let is_sampled = match named {
            Some(caller) if self.sampler.follows_parent => caller.is_sampled,
            _ => self.sampler.takes(&trace),
        };
        (SpanContext { trace, span, is_sampled }, named.map(|caller| caller.span))
    }
}

/// Ids need only differ.
fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    // Without random numbers no sandbox could be made either; an id of zeros is refused by the receiver.
    getrandom::fill(&mut bytes).unwrap_or_default();
    bytes
}

fn now_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

/// Reads the fields of a span.
#[derive(Default)]
struct Fields {
    name: Option<String>,
    kind: Option<Kind>,
    error: Option<String>,
    parent: Option<SpanContext>,
    attributes: Vec<(&'static str, Attribute)>,
}

impl Fields {
    fn text(&mut self, field: &Field, text: String) {
        match field.name() {
            NAME => self.name = Some(text),
            KIND => self.kind = (text == "server").then_some(Kind::Server),
            ERROR => self.error = Some(text),
            PARENT => self.parent = SpanContext::parse(&text),
            name => self.attributes.push((name, Attribute::Text(text))),
        }
    }
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.text(field, format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.text(field, value.to_owned());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.attributes.push((field.name(), Attribute::Truth(value)));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.attributes.push((field.name(), Attribute::Integer(value)));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.attributes.push((field.name(), Attribute::Integer(i64::try_from(value).unwrap_or(i64::MAX))));
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.attributes.push((field.name(), Attribute::Number(value)));
    }
}

fn context_of<S: for<'a> LookupSpan<'a>>(span: &SpanRef<'_, S>) -> Option<SpanContext> {
    let extensions = span.extensions();
    let kept = extensions.get::<EndedSpan>().map(|span| span.context);
    kept.or_else(|| extensions.get::<SpanContext>().copied())
}

impl<S> Layer<S> for TraceLayer
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    fn on_new_span(&self, attributes: &span::Attributes<'_>, id: &span::Id, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        let mut fields = Fields::default();
        attributes.record(&mut fields);
        let outer = span.parent().and_then(|parent| context_of(&parent));
        let (place, parent) = self.place(outer, fields.parent);
        if !place.is_sampled {
            span.extensions_mut().insert(place);
            return;
        }
        span.extensions_mut().insert(EndedSpan {
            context: place,
            parent,
            name: fields.name.unwrap_or_else(|| attributes.metadata().name().to_owned()),
            kind: fields.kind.unwrap_or(Kind::Internal),
            began_ns: now_ns(),
            ended_ns: 0,
            attributes: fields.attributes,
            error: fields.error,
        });
    }

    fn on_record(&self, id: &span::Id, values: &span::Record<'_>, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        let mut extensions = span.extensions_mut();
        let Some(kept) = extensions.get_mut::<EndedSpan>() else { return };
        let mut fields = Fields::default();
        values.record(&mut fields);
        kept.error = fields.error.or(kept.error.take());
        if let Some(name) = fields.name {
            kept.name = name;
        }
        kept.attributes.retain(|(known, _)| !fields.attributes.iter().any(|(name, _)| name == known));
        kept.attributes.extend(fields.attributes);
    }

    fn on_close(&self, id: span::Id, context: Context<'_, S>) {
        let Some(span) = context.span(&id) else { return };
        let Some(mut ended) = span.extensions_mut().remove::<EndedSpan>() else { return };
        ended.ended_ns = now_ns();
        if self.ended.try_send(ended).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

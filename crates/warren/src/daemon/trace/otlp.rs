//! Spans as OTLP has them in JSON: ids in hexadecimal, 64-bit numbers as text.

use serde_json::{Value, json};

use super::{Attribute, EndedSpan, Kind, context::hex};

/// The body of one request.
pub(super) fn request(resource: &[(String, String)], spans: &[EndedSpan]) -> Value {
    let resource: Vec<_> =
        resource.iter().map(|(name, value)| json!({"key": name, "value": {"stringValue": value}})).collect();
    let scope = json!({"name": "warren", "version": env!("CARGO_PKG_VERSION")});
    let spans: Vec<_> = spans.iter().map(span).collect();
    json!({"resourceSpans": [{
        "resource": {"attributes": resource},
        "scopeSpans": [{"scope": scope, "spans": spans}],
    }]})
}

fn span(span: &EndedSpan) -> Value {
    let attributes: Vec<_> =
        span.attributes.iter().map(|(name, value)| json!({"key": name, "value": attribute(value)})).collect();
    let mut shown = json!({
        "traceId": hex(&span.context.trace),
        "spanId": hex(&span.context.span),
        // Sampled.
        "flags": 1,
        "name": span.name,
        "kind": match span.kind {
            Kind::Internal => 1,
            Kind::Server => 2,
        },
        "startTimeUnixNano": span.began_ns.to_string(),
        "endTimeUnixNano": span.ended_ns.to_string(),
        "attributes": attributes,
    });
    if let Some(parent) = &span.parent {
        shown["parentSpanId"] = hex(parent).into();
    }
    if let Some(error) = &span.error {
        // 2: an error.
        shown["status"] = json!({"code": 2, "message": error});
    }
    shown
}

fn attribute(value: &Attribute) -> Value {
    match value {
        Attribute::Text(text) => json!({"stringValue": text}),
        Attribute::Integer(number) => json!({"intValue": number.to_string()}),
        Attribute::Number(number) => json!({"doubleValue": number}),
        Attribute::Truth(is_so) => json!({"boolValue": is_so}),
    }
}

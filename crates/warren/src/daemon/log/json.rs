//! One JSON object for each event of the log, with the same fields whatever it is about: `time`, `level`, `target`,
//! `message`, `fields`; and `sandbox` and `request` where it is about one.

use std::{fmt, io::Write};

use jiff::Timestamp;
use serde_json::{Map, Value, json};
use tracing::{
    Event, Subscriber,
    field::{Field, Visit},
    span,
};
use tracing_subscriber::{Layer, layer::Context, registry::LookupSpan};

/// Fields that have a place of their own.
const OWN_PLACES: [&str; 2] = ["sandbox", "request"];

pub(super) struct JsonLayer<W> {
    writer: fn() -> W,
}

impl<W> JsonLayer<W> {
    pub(super) fn new(writer: fn() -> W) -> Self {
        Self { writer }
    }
}

/// The fields of an event or a span.
#[derive(Default)]
struct Fields(Map<String, Value>);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.put(field, format!("{value:?}").into());
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(field, value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field, value.into());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field, value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field, value.into());
    }

    /// Milliseconds of a duration are such a number.
    fn record_u128(&mut self, field: &Field, value: u128) {
        match u64::try_from(value) {
            Ok(value) => self.record_u64(field, value),
            Err(_) => self.put(field, value.to_string().into()),
        }
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.put(field, value.into());
    }

    /// With its causes: the outer message alone often says only that something failed.
    fn record_error(&mut self, field: &Field, value: &(dyn std::error::Error + 'static)) {
        let causes = sandbox::causes(value).into_iter();
        let text = causes.fold(value.to_string(), |text, cause| format!("{text}: {cause}"));
        self.put(field, text.into());
    }
}

impl Fields {
    fn put(&mut self, field: &Field, value: Value) {
        self.0.insert(field.name().to_owned(), value);
    }
}

impl<S, W> Layer<S> for JsonLayer<W>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    W: Write + 'static,
{
    fn on_new_span(&self, attributes: &span::Attributes<'_>, id: &span::Id, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        let mut fields = Fields::default();
        attributes.record(&mut fields);
        fields.0.retain(|name, _| OWN_PLACES.contains(&name.as_str()));
        if !fields.0.is_empty() {
            span.extensions_mut().insert(fields);
        }
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        let mut fields = fields.0;
        let about = event.metadata();
        let mut line = Map::new();
        line.insert("time".to_owned(), format!("{:.6}", Timestamp::now()).into());
        line.insert("level".to_owned(), about.level().as_str().to_lowercase().into());
        line.insert("target".to_owned(), about.target().into());
        line.insert("message".to_owned(), fields.remove("message").unwrap_or_else(|| json!("")));
        for name in OWN_PLACES {
            let found = fields.remove(name).or_else(|| from_spans(&context, event, name));
            line.extend(found.map(|value| (name.to_owned(), value)));
        }
        line.insert("fields".to_owned(), fields.into());
        let mut bytes = Value::Object(line).to_string().into_bytes();
        bytes.push(b'\n');
        // One write for each line. Where nobody can be told, nobody is.
        (self.writer)().write_all(&bytes).unwrap_or(());
    }
}

/// Returns the field's value in the nearest span around an event that has it.
fn from_spans<S>(context: &Context<'_, S>, event: &Event<'_>, name: &str) -> Option<Value>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    let mut spans = context.event_scope(event)?;
    spans.find_map(|span| span.extensions().get::<Fields>()?.0.get(name).cloned())
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use tracing_subscriber::layer::SubscriberExt as _;

    use super::*;

    static WRITTEN: Mutex<Vec<u8>> = Mutex::new(Vec::new());

    struct Writer;

    impl Write for Writer {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            WRITTEN.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn numbers_are_numbers_and_panics_are_lines() {
        let subscriber = tracing_subscriber::registry().with(JsonLayer::new(|| Writer));
        let (time, before) = (std::time::Duration::from_millis(7), std::panic::take_hook());
        super::super::log_panics();
        let panicked = tracing::subscriber::with_default(subscriber, || {
            tracing::info!(ms = time.as_millis(), "answered");
            std::panic::catch_unwind(|| panic!("a badger"))
        });
        std::panic::set_hook(before);
        assert!(panicked.is_err());
        let written = String::from_utf8(WRITTEN.lock().unwrap().clone()).unwrap();
        let lines: Vec<Value> = written.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!((&lines[0]["message"], &lines[0]["fields"]), (&json!("answered"), &json!({"ms": 7})));
        assert_eq!((lines.len(), &lines[1]["level"]), (2, &json!("error")));
        assert!(lines[1]["message"].as_str().unwrap().contains("a badger"), "{written}");
    }
}

//! The daemon's metrics, in the text formats of OpenMetrics and of Prometheus.
//!
//! No label takes a value that a caller can make up: no names, no keys, no hosts, no paths. Every label has a fixed
//! list of values, or one for each route and tool of the program. Counting is an atomic addition behind a lock for
//! reading.

mod labels;
mod measure;
mod optional;
mod process;
mod text;

use std::{
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use jiff::Timestamp;
use prometheus_client::{
    encoding::text::{encode_eof, encode_registry},
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram, info::Info},
    registry::{Registry, Unit},
};
use sandbox::{ErrorKind, EventKind, Frontend, NetworkEventKind, Result};

pub(crate) use self::labels::ExecKind;
pub use self::text::MetricsFormat;
use self::{
    labels::{
        Action, Bytes, Decision, ExecStart, Kind, Of, OnBackend, Outcome, Refused, Request, State,
        known_result,
    },
    measure::Measured,
    optional::OptionalGauge,
    process::Process,
};

/// Upper bounds of requests and starts of execs, in seconds: from a tool answered from memory, which takes a tenth of a
/// millisecond, to a wait for output.
const REQUEST_BOUNDS: [f64; 16] =
    [0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0];
/// Upper bounds of creates, in seconds: most take 2 to 10 milliseconds, with the pull of an image up to minutes.
const CREATE_BOUNDS: [f64; 22] = [
    0.001, 0.002, 0.003, 0.004, 0.005, 0.006, 0.008, 0.01, 0.015, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0,
    10.0, 30.0, 60.0, 120.0, 300.0,
];

type Times<L> = Family<L, Histogram, fn() -> Histogram>;

fn of_requests() -> Histogram {
    Histogram::new(REQUEST_BOUNDS)
}

fn of_creates() -> Histogram {
    Histogram::new(CREATE_BOUNDS)
}

/// Everything that is counted. Registered once, when the engine opens.
#[derive(Debug)]
pub(crate) struct Metrics {
    own: Registry,
    of_process: Registry,
    creates: Family<Outcome, Counter>,
    create_time: Times<OnBackend>,
    execs: Family<ExecStart, Counter>,
    exec_start_time: Times<Kind>,
    exec_ends: Family<Outcome, Counter>,
    requests: Family<Request, Counter>,
    request_time: Times<Action>,
    refused: Family<Refused, Counter>,
    events: Family<Of, Counter>,
    decisions: Family<Decision, Counter>,
    traffic: Family<Bytes, Counter>,
    output: Counter,
    image_lookups: Family<Outcome, Counter>,
    deliveries: Family<Outcome, Counter>,
    lost_events: Counter,
    /// The number of the next event for the webhook; 0 without one.
    webhook_next: AtomicU64,
    pending_events: OptionalGauge,
    last_delivery: OptionalGauge,
    sandboxes: Family<State, Gauge>,
    /// Locked while somebody sets what is looked at on demand and writes it down: another scrape must not find the half
    /// of it.
    looking: Mutex<()>,
    measured: Measured,
    process: Process,
}

impl Metrics {
    pub(crate) fn new() -> Self {
        let mut own = Registry::with_prefix("warren");
        let mut of_process = Registry::default();
        let metrics = Self {
            creates: Family::default(),
            create_time: Family::new_with_constructor(of_creates),
            execs: Family::default(),
            exec_start_time: Family::new_with_constructor(of_requests),
            exec_ends: Family::default(),
            requests: Family::default(),
            request_time: Family::new_with_constructor(of_requests),
            refused: Family::default(),
            events: Family::default(),
            decisions: Family::default(),
            traffic: Family::default(),
            output: Counter::default(),
            image_lookups: Family::default(),
            deliveries: Family::default(),
            lost_events: Counter::default(),
            webhook_next: AtomicU64::default(),
            pending_events: OptionalGauge::default(),
            last_delivery: OptionalGauge::default(),
            looking: Mutex::default(),
            sandboxes: Family::default(),
            measured: Measured::register(&mut own),
            process: Process::register(&mut of_process),
            own,
            of_process,
        };
        metrics.register()
    }

    fn register(mut self) -> Self {
        let own = &mut self.own;
        let about = Info::new([("version", env!("CARGO_PKG_VERSION"))]);
        own.register("build", "The daemon's version", about);
        own.register("sandboxes", "Sandboxes by back end and state", self.sandboxes.clone());
        own.register("creates", "Requests for a sandbox, by result", self.creates.clone());
        let seconds = || Unit::Seconds;
        own.register_with_unit(
            "create",
            "From the request for a sandbox until its guest was ready, with the pull of its image",
            seconds(),
            self.create_time.clone(),
        );
        own.register("execs", "Commands and cells that were asked for, by result", self.execs.clone());
        own.register_with_unit(
            "exec_start",
            "From the request for a command or cell until it ran",
            seconds(),
            self.exec_start_time.clone(),
        );
        own.register("exec_ends", "How commands and cells ended", self.exec_ends.clone());
        own.register("requests", "Requests by front end, action and result", self.requests.clone());
        own.register_with_unit(
            "request",
            "From a request until its answer began",
            seconds(),
            self.request_time.clone(),
        );
        own.register("refused_calls", "Calls that were refused, by reason", self.refused.clone());
        own.register("events", "Events, by kind", self.events.clone());
        own.register("network_decisions", "Decisions about sandboxes' traffic", self.decisions.clone());
        let bytes = "Traffic of sandboxes that have a network";
        own.register_with_unit("network", bytes, Unit::Bytes, self.traffic.clone());
        let output = "Output of commands and cells that was recorded";
        own.register_with_unit("output", output, Unit::Bytes, self.output.clone());
        let lookups = "Sandboxes whose image was here already (hit), or had to be fetched (miss)";
        own.register("image_lookups", lookups, self.image_lookups.clone());
        let deliveries = "Attempts to send events to the webhook, by result";
        own.register("webhook_deliveries", deliveries, self.deliveries.clone());
        let lost = "Events that were dropped before the webhook's receiver took them";
        own.register("webhook_lost_events", lost, self.lost_events.clone());
        let pending = "Events that the webhook's receiver has not taken yet, of all kinds";
        own.register("webhook_pending_events", pending, self.pending_events.clone());
        let success = "When the webhook's receiver last took a batch, since the epoch";
        let seconds = Unit::Seconds;
        own.register_with_unit(
            "webhook_last_success_timestamp",
            success,
            seconds,
            self.last_delivery.clone(),
        );
        self
    }

    /// Zero is said too: a rate can be computed from the first event on.
    pub(crate) fn show_zeros(&self) {
        for result in std::iter::once(labels::OK).chain(ErrorKind::ALL.map(ErrorKind::as_str)) {
            drop(self.creates.get_or_create(&Outcome { result }));
            for kind in ExecKind::ALL {
                drop(self.execs.get_or_create(&ExecStart { kind: kind.as_str(), result }));
            }
        }
        for result in labels::ENDS {
            drop(self.exec_ends.get_or_create(&Outcome { result }));
        }
        for kind in EventKind::ALL {
            drop(self.events.get_or_create(&Of { kind: kind.as_str() }));
        }
        for result in ["hit", "miss"] {
            drop(self.image_lookups.get_or_create(&Outcome { result }));
        }
        for result in [labels::OK, labels::FAILED] {
            drop(self.deliveries.get_or_create(&Outcome { result }));
        }
        for direction in ["received", "sent"] {
            drop(self.traffic.get_or_create(&Bytes { direction }));
        }
        for frontend in [Frontend::Mcp, Frontend::Rest, Frontend::Ssh] {
            for reason in labels::REFUSALS {
                drop(self.refused.get_or_create(&Refused { frontend: frontend.as_str(), reason }));
            }
        }
        for decision in ["allowed", "denied", "failed"] {
            drop(self.decisions.get_or_create(&Decision { decision }));
        }
    }

    pub(crate) fn created<T>(&self, made: &Result<T>, backend: Option<sandbox::BackendKind>, time: Duration) {
        self.creates.get_or_create(&Outcome { result: labels::result_of(made) }).inc();
        if let Some(backend) = backend {
            let labels = OnBackend { backend: backend.as_str() };
            self.create_time.get_or_create(&labels).observe(time.as_secs_f64());
        }
    }

    /// `started`: whether it ran, or failed to, which is an outcome; or why it was refused.
    pub(crate) fn exec_asked<T>(&self, kind: ExecKind, started: &Result<T>, time: Duration) {
        let kind = kind.as_str();
        self.execs.get_or_create(&ExecStart { kind, result: labels::result_of(started) }).inc();
        if started.is_ok() {
            self.exec_start_time.get_or_create(&Kind { kind }).observe(time.as_secs_f64());
        }
    }

    pub(crate) fn exec_ended(&self, outcome: &sandbox::ExecOutcome) {
        self.exec_ends.get_or_create(&Outcome { result: labels::ended(outcome) }).inc();
    }

    pub(crate) fn request(&self, frontend: Frontend, action: &str, error: Option<&str>, time: Duration) {
        let (frontend, result) = (frontend.as_str(), known_result(error));
        let action = Action { frontend, action: action.to_owned() };
        self.request_time.get_or_create(&action).observe(time.as_secs_f64());
        self.requests.get_or_create(&Request { frontend, action: action.action, result }).inc();
        if labels::REFUSALS.contains(&result) {
            self.refused.get_or_create(&Refused { frontend, reason: result }).inc();
        }
    }

    pub(crate) fn event(&self, kind: EventKind) {
        self.events.get_or_create(&Of { kind: kind.as_str() }).inc();
    }

    pub(crate) fn network_decided(&self, kind: NetworkEventKind, count: u32) {
        let decision = match kind {
            NetworkEventKind::Allowed => "allowed",
            NetworkEventKind::Denied => "denied",
            NetworkEventKind::Failed => "failed",
        };
        self.decisions.get_or_create(&Decision { decision }).inc_by(count.into());
    }

    pub(crate) fn output(&self, bytes: usize) {
        self.output.inc_by(bytes as u64);
    }

    pub(crate) fn image_found(&self, was_here: bool) {
        let result = if was_here { "hit" } else { "miss" };
        self.image_lookups.get_or_create(&Outcome { result }).inc();
    }

    pub(crate) fn delivery(&self, is_taken: bool) {
        let result = if is_taken { labels::OK } else { labels::FAILED };
        self.deliveries.get_or_create(&Outcome { result }).inc();
        if is_taken {
            self.last_delivery.set(Timestamp::now().as_second().unsigned_abs());
        }
    }

    pub(crate) fn webhook_at(&self, next: u64) {
        self.webhook_next.store(next.max(1), Ordering::Relaxed);
    }

    fn count_pending(&self, last: u64) {
        let next = self.webhook_next.load(Ordering::Relaxed);
        if next > 0 {
            self.pending_events.set(last.saturating_add(1).saturating_sub(next));
        }
    }

    pub(crate) fn lost_events(&self, count: u64) {
        self.lost_events.inc_by(count);
    }

    fn text(&self) -> String {
        let mut text = String::new();
        // Writing to a string does not fail.
        encode_registry(&mut text, &self.own).unwrap_or_default();
        encode_registry(&mut text, &self.of_process).unwrap_or_default();
        encode_eof(&mut text).unwrap_or_default();
        text
    }
}

/// The part of one sandbox's traffic that is counted already. The sandbox's own counts begin anew with a daemon or a
/// start.
#[derive(Debug, Default)]
pub(crate) struct CountedTraffic {
    received: AtomicU64,
    sent: AtomicU64,
}

impl CountedTraffic {
    pub(crate) fn count(&self, metrics: &Metrics, now: &sandbox::NetworkTraffic) {
        let add = |counted: &AtomicU64, now: u64, direction| {
            let before = counted.swap(now, Ordering::Relaxed);
            let more = if now >= before { now - before } else { now };
            metrics.traffic.get_or_create(&Bytes { direction }).inc_by(more);
        };
        add(&self.received, now.received_bytes, "received");
        add(&self.sent, now.sent_bytes, "sent");
    }
}

/// A counter whose value is kept elsewhere.
fn set(counter: &Counter, value: u64) {
    counter.inner().store(value, Ordering::Relaxed);
}

fn set_gauge(gauge: &Gauge, value: u64) {
    gauge.set(i64::try_from(value).unwrap_or(i64::MAX));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_of_each_kind_is_an_increase() {
        let metrics = Metrics::new();
        metrics.show_zeros();
        let text = metrics.text();
        let mut expected = vec![
            r#"warren_exec_ends_total{result="killed"} 0"#.to_owned(),
            r#"warren_creates_total{result="limit_reached"} 0"#.to_owned(),
            r#"warren_execs_total{kind="cell",result="wrong_state"} 0"#.to_owned(),
        ];
        expected.extend(
            EventKind::ALL.map(|kind| format!("warren_events_total{{kind=\"{}\"}} 0", kind.as_str())),
        );
        for line in expected {
            assert!(text.contains(&line), "{line}: {text}");
        }
    }

    #[test]
    fn usual_times_fall_into_different_buckets() {
        let bucket = |bounds: &[f64], seconds: f64| bounds.iter().position(|bound| seconds <= *bound);
        let apart = |bounds: &[f64], times: &[f64]| {
            let buckets: Vec<_> = times.iter().map(|time| bucket(bounds, *time)).collect();
            assert!(buckets.windows(2).all(|pair| pair[0] < pair[1]), "{buckets:?}");
        };
        apart(&REQUEST_BOUNDS, &[0.00008, 0.0002, 0.0004, 0.0009]);
        apart(&CREATE_BOUNDS, &[0.0025, 0.0035, 0.0045, 0.0055, 0.007, 0.009, 4.0, 20.0, 100.0, 200.0]);
    }

    #[test]
    fn a_backlog_is_shown_once_there_is_a_webhook() {
        let metrics = Metrics::new();
        metrics.count_pending(7);
        let has = |name: &str| metrics.text().lines().find(|line| line.starts_with(name)).map(str::to_owned);
        let (pending, success) =
            ("warren_webhook_pending_events", "warren_webhook_last_success_timestamp_seconds");
        assert_eq!((has(pending), has(success)), (None, None));
        metrics.webhook_at(5);
        metrics.count_pending(7);
        metrics.delivery(false);
        assert_eq!(has(pending), Some(format!("{pending} 3")));
        assert_eq!(has(success), None);
        metrics.delivery(true);
        metrics.webhook_at(8);
        metrics.count_pending(7);
        assert_eq!(has(pending), Some(format!("{pending} 0")));
        assert!(has(success).is_some());
    }

    #[test]
    fn traffic_is_counted_once_and_a_restart_loses_none() {
        let (metrics, one) = (Metrics::new(), CountedTraffic::default());
        let traffic = |received_bytes| sandbox::NetworkTraffic { received_bytes, ..Default::default() };
        for received in [100, 100, 150, 7] {
            one.count(&metrics, &traffic(received));
        }
        let text = metrics.text();
        assert!(text.contains("warren_network_bytes_total{direction=\"received\"} 157\n"), "{text}");
    }

    #[test]
    fn codes_that_nobody_knows_share_one_label() {
        let metrics = Metrics::new();
        for n in 0..1000 {
            metrics.request(Frontend::Rest, "GET /x", Some(&format!("code_{n}")), Duration::ZERO);
            metrics.request(Frontend::Rest, "GET /x", Some(&format!("http_{n}")), Duration::ZERO);
        }
        let text = metrics.text();
        let n_lines = text.lines().filter(|line| line.starts_with("warren_requests_total")).count();
        assert!(n_lines <= 3, "{text}");
    }
}

//! The standard variables of OpenTelemetry, as far as they concern traces over HTTP.

use std::time::Duration;

use gateway::Url;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};

use super::context::hex;
use crate::env;

const DEFAULT_SERVICE: &str = "warren";
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);
const DEFAULT_SAMPLER: &str = "parentbased_always_on";
/// The only one that is spoken.
const PROTOCOL: &str = "http/json";

#[derive(Debug, Clone)]
pub(super) struct Settings {
    pub(super) endpoint: Url,
    pub(super) headers: HeaderMap,
    pub(super) timeout: Duration,
    /// The attributes of the resource.
    pub(super) attributes: Vec<(String, String)>,
    pub(super) sampler: Sampler,
}

/// The choice of traces that are kept.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Sampler {
    /// A caller who brings a trace has decided already.
    pub(super) follows_parent: bool,
    /// The share of other traces.
    pub(super) ratio: f64,
}

impl Sampler {
    /// By the trace's id, so that all who see it decide alike.
    pub(super) fn takes(self, trace: &[u8; 16]) -> bool {
        let mut last = [0; 8];
        last.copy_from_slice(&trace[8..]);
        // As the specification's libraries do: the lower 63 bits as a share of all.
        let place = (u64::from_be_bytes(last) >> 1) as f64 / (1_u64 << 63) as f64;
        self.ratio >= 1.0 || place < self.ratio
    }
}

impl Settings {
    /// Nothing, unless an endpoint is named. What is wrong or not supported goes into `warnings`, by the name of its
    /// variable: these variables are those of many programs at once, so none of them is a reason not to start. As the
    /// specification has it, such a value is as good as none.
    pub(super) fn from_environment(warnings: &mut Vec<String>) -> Option<Self> {
        Self::read(&|name| env::text(name), warnings)
    }

    fn read(text: &dyn Fn(&str) -> Option<String>, warnings: &mut Vec<String>) -> Option<Self> {
        let is = |name: &str, word: &str| text(name).is_some_and(|value| value.eq_ignore_ascii_case(word));
        if is("OTEL_SDK_DISABLED", "true") || is("OTEL_TRACES_EXPORTER", "none") {
            return None;
        }
        let variables = Variables(text);
        let endpoint = endpoint(&variables, warnings)?;
        if let Some(exporters) = text("OTEL_TRACES_EXPORTER")
            && !exporters.split(',').any(|exporter| exporter.trim() == "otlp")
        {
            warnings.push(
                "OTEL_TRACES_EXPORTER names no exporter that is supported (otlp); otlp is used".to_owned(),
            );
        }
        variables.warn_of_unsupported(warnings);
        Some(Self {
            endpoint,
            headers: headers(&variables, warnings),
            timeout: timeout(&variables, warnings),
            attributes: attributes(text),
            sampler: sampler(text, warnings),
        })
    }
}

/// The environment.
struct Variables<'a>(&'a dyn Fn(&str) -> Option<String>);

impl Variables<'_> {
    /// A variable of the exporter with its value. What is for traces goes first.
    fn exporter(&self, name: &str) -> Option<(String, String)> {
        let names = [format!("OTEL_EXPORTER_OTLP_TRACES_{name}"), format!("OTEL_EXPORTER_OTLP_{name}")];
        names.into_iter().find_map(|name| (self.0)(&name).map(|value| (name, value)))
    }

    fn warn_of_unsupported(&self, warnings: &mut Vec<String>) {
        if let Some((name, value)) = self.exporter("PROTOCOL")
            && value != PROTOCOL
        {
            warnings.push(format!("{name} is not supported but as {PROTOCOL}; traces are sent so"));
        }
        if let Some((name, value)) = self.exporter("COMPRESSION")
            && value != "none"
        {
            warnings.push(format!("{name} is not supported; traces are sent without compression"));
        }
        for name in ["CERTIFICATE", "CLIENT_CERTIFICATE", "CLIENT_KEY"] {
            if let Some((name, _)) = self.exporter(name) {
                warnings.push(format!("{name} is not supported; the host's certificates are used"));
            }
        }
    }
}

fn endpoint(variables: &Variables<'_>, warnings: &mut Vec<String>) -> Option<Url> {
    let (name, value) = variables.exporter("ENDPOINT")?;
    let is_whole = name.contains("_TRACES_");
    let value = if is_whole { value } else { format!("{}/v1/traces", value.trim_end_matches('/')) };
    let url = Url::parse(&value).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
    if url.is_none() {
        warnings.push(format!("{name} is not an http or https address; no traces are sent"));
    }
    url
}

fn timeout(variables: &Variables<'_>, warnings: &mut Vec<String>) -> Duration {
    let Some((name, value)) = variables.exporter("TIMEOUT") else { return DEFAULT_TIMEOUT };
    value.parse().map_or_else(
        |_no_number| {
            warnings.push(format!("{name} is not a number of milliseconds, and is ignored"));
            DEFAULT_TIMEOUT
        },
        Duration::from_millis,
    )
}

/// `name=value` pairs, separated by commas; values are percent-encoded. `None`: one that is no pair.
fn pairs(text: &str) -> impl Iterator<Item = Option<(String, String)>> {
    let decoded =
        |value: &str| percent_encoding::percent_decode_str(value.trim()).decode_utf8_lossy().into_owned();
    let pairs = text.split(',').filter(|pair| !pair.trim().is_empty()).map(|pair| pair.split_once('='));
    let pairs = pairs.map(|pair| pair.map(|(name, value)| (name.trim().to_owned(), decoded(value))));
    pairs.collect::<Vec<_>>().into_iter()
}

fn headers(variables: &Variables<'_>, warnings: &mut Vec<String>) -> HeaderMap {
    let mut headers = HeaderMap::new();
    let Some((variable, text)) = variables.exporter("HEADERS") else { return headers };
    let named = |(name, value): (String, String)| {
        HeaderName::try_from(&name).ok().zip(HeaderValue::try_from(&value).ok())
    };
    let (good, bad): (Vec<_>, Vec<_>) =
        pairs(&text).map(|pair| pair.and_then(named)).partition(Option::is_some);
    if !bad.is_empty() {
        // A value may be a secret, so none is shown.
        let n_bad = bad.len();
        warnings
            .push(format!("{variable} is not a list such as name=value; {n_bad} of its parts are ignored"));
    }
    for (name, mut value) in good.into_iter().flatten() {
        value.set_sensitive(true);
        headers.insert(name, value);
    }
    headers
}

fn attributes(text: &dyn Fn(&str) -> Option<String>) -> Vec<(String, String)> {
    let mut attributes: Vec<_> =
        pairs(&text("OTEL_RESOURCE_ATTRIBUTES").unwrap_or_default()).flatten().collect();
    let mut set = |name: &str, value: String| {
        attributes.retain(|(known, _)| known != name);
        attributes.push((name.to_owned(), value));
    };
    if let Some(service) = text("OTEL_SERVICE_NAME") {
        set("service.name", service);
    }
    let defaults = [
        ("service.name", DEFAULT_SERVICE.to_owned()),
        ("service.version", env!("CARGO_PKG_VERSION").to_owned()),
        ("service.instance.id", instance_id()),
        ("host.name", rustix::system::uname().nodename().to_string_lossy().into_owned()),
    ];
    for (name, value) in defaults {
        if !attributes.iter().any(|(known, _)| known == name) {
            attributes.push((name.to_owned(), value));
        }
    }
    attributes
}

/// A random UUID: another one for each daemon.
fn instance_id() -> String {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).unwrap_or_default();
    // Version 4, variant 1.
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let digits = hex(&bytes);
    [&digits[..8], &digits[8..12], &digits[12..16], &digits[16..20], &digits[20..]].join("-")
}

fn sampler(text: &dyn Fn(&str) -> Option<String>, warnings: &mut Vec<String>) -> Sampler {
    let asked = text("OTEL_TRACES_SAMPLER").unwrap_or_default();
    let (follows_parent, own) = match asked.strip_prefix("parentbased_") {
        Some(own) => (true, own),
        None => (false, asked.as_str()),
    };
    let ratio = match own {
        "always_on" => 1.0,
        "always_off" => 0.0,
        "traceidratio" => share(text, warnings),
        _ => {
            if !asked.is_empty() {
                warnings.push(format!(
                    "OTEL_TRACES_SAMPLER is not always_on, always_off, traceidratio, or one of them after parentbased_; \
                     {DEFAULT_SAMPLER} is used"
                ));
            }
            return Sampler { follows_parent: true, ratio: 1.0 };
        }
    };
    Sampler { follows_parent, ratio }
}

fn share(text: &dyn Fn(&str) -> Option<String>, warnings: &mut Vec<String>) -> f64 {
    let Some(share) = text("OTEL_TRACES_SAMPLER_ARG") else { return 1.0 };
    let share = share.parse::<f64>().ok().filter(|share| (0.0..=1.0).contains(share));
    if share.is_none() {
        warnings.push("OTEL_TRACES_SAMPLER_ARG is not a number from 0 to 1; all traces are sent".to_owned());
    }
    share.unwrap_or(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> (Option<Settings>, Vec<String>) {
        let find = |name: &str| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        let mut warnings = Vec::new();
        (Settings::read(&find, &mut warnings), warnings)
    }

    fn settings(variables: &[(&str, &str)]) -> Option<Settings> {
        let (settings, warnings) = read(variables);
        assert_eq!(warnings, Vec::<String>::new());
        settings
    }

    const ENDPOINT: (&str, &str) = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4318/");

    #[test]
    fn nothing_is_sent_unless_somebody_named_an_endpoint() {
        // They are another program's then, whatever is in them.
        let others = [("OTEL_SERVICE_NAME", "x"), ("OTEL_TRACES_SAMPLER", "jaeger_remote")];
        assert!(settings(&others).is_none());
        assert!(settings(&[ENDPOINT, ("OTEL_SDK_DISABLED", "TRUE")]).is_none());
        assert!(settings(&[ENDPOINT, ("OTEL_TRACES_EXPORTER", "none")]).is_none());
        let settings = settings(&[ENDPOINT]).unwrap();
        assert_eq!(settings.endpoint.as_str(), "http://collector:4318/v1/traces");
        assert_eq!(settings.sampler, Sampler { follows_parent: true, ratio: 1.0 });
        let named: Vec<_> = settings.attributes.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(named, ["service.name", "service.version", "service.instance.id", "host.name"]);
        let id = &settings.attributes[2].1;
        assert!(id.len() == 36 && id.as_bytes()[14] == b'4', "{id}");
    }

    #[test]
    fn what_is_for_traces_goes_first() {
        let settings = settings(&[
            ENDPOINT,
            ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "https://other/own/path"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "a=b"),
            ("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "authorization=Bearer%20x, x-org = 7"),
            ("OTEL_RESOURCE_ATTRIBUTES", "service.name=loses,deployment.environment=lab"),
            ("OTEL_SERVICE_NAME", "burrow"),
            ("OTEL_TRACES_SAMPLER", "traceidratio"),
            ("OTEL_TRACES_SAMPLER_ARG", "0.25"),
        ]);
        let settings = settings.unwrap();
        assert_eq!(settings.endpoint.as_str(), "https://other/own/path");
        assert_eq!(
            (settings.headers["authorization"].to_str().unwrap(), settings.headers.len()),
            ("Bearer x", 2)
        );
        assert!(settings.attributes.contains(&("service.name".to_owned(), "burrow".to_owned())));
        assert_eq!(settings.sampler, Sampler { follows_parent: false, ratio: 0.25 });
    }

    #[test]
    fn what_is_wrong_is_named_and_never_shown_and_stops_nothing() {
        for (name, value) in [
            ("OTEL_EXPORTER_OTLP_HEADERS", "a b=hidden"),
            ("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "good=1,hidden"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "hidden"),
            ("OTEL_TRACES_SAMPLER", "hidden"),
            ("OTEL_TRACES_SAMPLER", "jaeger_remote"),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
            ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "http/protobuf"),
            ("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip"),
            ("OTEL_EXPORTER_OTLP_CERTIFICATE", "/hidden"),
            ("OTEL_TRACES_EXPORTER", "console"),
        ] {
            let (settings, warnings) = read(&[ENDPOINT, (name, value)]);
            let [warning] = &warnings[..] else { panic!("{name}: {warnings:?}") };
            assert!(warning.contains(name) && !warning.contains("hidden"), "{warning}");
            let settings = settings.unwrap();
            assert_eq!(settings.endpoint.port(), Some(4318));
            assert_eq!(settings.sampler, Sampler { follows_parent: true, ratio: 1.0 });
            assert_eq!(settings.timeout, DEFAULT_TIMEOUT);
        }
        let share = [ENDPOINT, ("OTEL_TRACES_SAMPLER", "traceidratio"), ("OTEL_TRACES_SAMPLER_ARG", "2")];
        let (settings, warnings) = read(&share);
        assert_eq!((settings.unwrap().sampler.ratio, warnings.len()), (1.0, 1));
        // As gRPC's exporters have it.
        let (settings, warnings) = read(&[("OTEL_EXPORTER_OTLP_ENDPOINT", "localhost:4317")]);
        assert!(settings.is_none() && warnings[0].contains("OTEL_EXPORTER_OTLP_ENDPOINT"), "{warnings:?}");
    }

    #[test]
    fn a_share_of_traces_is_about_that_share() {
        let sampler = Sampler { follows_parent: false, ratio: 0.25 };
        let taken = (0..1000_u64).filter(|n| {
            let mut trace = [1; 16];
            trace[8..].copy_from_slice(&n.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes());
            sampler.takes(&trace)
        });
        assert!((200..300).contains(&taken.count()));
        assert!(!Sampler { ratio: 0.0, ..sampler }.takes(&[0; 16]));
        assert!(Sampler { ratio: 1.0, ..sampler }.takes(&[0xff; 16]));
    }
}

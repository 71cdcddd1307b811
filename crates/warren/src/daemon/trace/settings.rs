//! The standard variables of OpenTelemetry, as far as they concern traces over HTTP.

use std::time::Duration;

use gateway::Url;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use sandbox::{Error, Result};

use crate::env;

const DEFAULT_SERVICE: &str = "warren";
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);

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
    /// Nothing, unless an endpoint is named.
    pub(super) fn from_environment() -> Result<Option<Self>> {
        Self::read(&|name| env::text(name))
    }

    fn read(text: &dyn Fn(&str) -> Option<String>) -> Result<Option<Self>> {
        let is = |name: &str, word: &str| text(name).is_some_and(|value| value.eq_ignore_ascii_case(word));
        if is("OTEL_SDK_DISABLED", "true") || is("OTEL_TRACES_EXPORTER", "none") {
            return Ok(None);
        }
        let of_traces = |name: &str| {
            let specific = text(&format!("OTEL_EXPORTER_OTLP_TRACES_{name}"));
            specific.or_else(|| text(&format!("OTEL_EXPORTER_OTLP_{name}")))
        };
        let Some(endpoint) = endpoint(text)? else { return Ok(None) };
        let milliseconds = |text: String| {
            let wanted = "a number of milliseconds";
            text.parse::<u64>().map_err(|_no_number| wrong("OTEL_EXPORTER_OTLP_TIMEOUT", wanted))
        };
        let timeout = of_traces("TIMEOUT").map(milliseconds);
        let headers = headers(&of_traces("HEADERS").unwrap_or_default())?;
        Ok(Some(Self {
            endpoint,
            headers,
            timeout: timeout.transpose()?.map_or(DEFAULT_TIMEOUT, Duration::from_millis),
            attributes: attributes(text),
            sampler: sampler(text)?,
        }))
    }
}

fn endpoint(text: &dyn Fn(&str) -> Option<String>) -> Result<Option<Url>> {
    let parse = |name: &str, value: String| {
        let url = Url::parse(&value).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
        url.ok_or_else(|| wrong(name, "an http or https address"))
    };
    let (whole, base) = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT");
    if let Some(value) = text(whole) {
        return parse(whole, value).map(Some);
    }
    let Some(value) = text(base) else { return Ok(None) };
    parse(base, format!("{}/v1/traces", value.trim_end_matches('/'))).map(Some)
}

/// `name=value` pairs, separated by commas; values are percent-encoded.
fn pairs(text: &str) -> impl Iterator<Item = (String, String)> {
    let decoded =
        |value: &str| percent_encoding::percent_decode_str(value.trim()).decode_utf8_lossy().into_owned();
    let pairs = text.split(',').filter_map(|pair| pair.split_once('='));
    pairs.map(|(name, value)| (name.trim().to_owned(), decoded(value))).collect::<Vec<_>>().into_iter()
}

fn headers(text: &str) -> Result<HeaderMap> {
    let mut headers = HeaderMap::new();
    for (name, value) in pairs(text) {
        let named = HeaderName::try_from(&name).ok().zip(HeaderValue::try_from(&value).ok());
        // The value may be a secret, so it is not shown.
        let (name, mut value) =
            named.ok_or_else(|| wrong("OTEL_EXPORTER_OTLP_HEADERS", "a list such as name=value"))?;
        value.set_sensitive(true);
        headers.insert(name, value);
    }
    Ok(headers)
}

fn attributes(text: &dyn Fn(&str) -> Option<String>) -> Vec<(String, String)> {
    let mut attributes: Vec<_> = pairs(&text("OTEL_RESOURCE_ATTRIBUTES").unwrap_or_default()).collect();
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
    ];
    for (name, value) in defaults {
        if !attributes.iter().any(|(known, _)| known == name) {
            attributes.push((name.to_owned(), value));
        }
    }
    attributes
}

fn sampler(text: &dyn Fn(&str) -> Option<String>) -> Result<Sampler> {
    let name = "OTEL_TRACES_SAMPLER";
    let asked = text(name).unwrap_or_else(|| "parentbased_always_on".to_owned());
    let (follows_parent, own) = match asked.strip_prefix("parentbased_") {
        Some(own) => (true, own),
        None => (false, asked.as_str()),
    };
    let ratio = match own {
        "always_on" => 1.0,
        "always_off" => 0.0,
        "traceidratio" => {
            let share = text("OTEL_TRACES_SAMPLER_ARG").map_or(Ok(1.0), |share| share.parse::<f64>());
            let share = share.ok().filter(|share| (0.0..=1.0).contains(share));
            share.ok_or_else(|| wrong("OTEL_TRACES_SAMPLER_ARG", "a number from 0 to 1"))?
        }
        _ => {
            let known = "always_on, always_off, traceidratio, or one of them after parentbased_";
            return Err(wrong(name, known));
        }
    };
    Ok(Sampler { follows_parent, ratio })
}

fn wrong(name: &str, wanted: &str) -> Error {
    Error::invalid(format!("{name} is not {wanted}")).with_hint(format!("Correct {name}, or unset it."))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> Result<Option<Settings>> {
        let find = |name: &str| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        Settings::read(&find)
    }

    const ENDPOINT: (&str, &str) = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4318/");

    #[test]
    fn nothing_is_sent_unless_somebody_named_an_endpoint() {
        assert!(read(&[("OTEL_SERVICE_NAME", "x")]).unwrap().is_none());
        assert!(read(&[ENDPOINT, ("OTEL_SDK_DISABLED", "TRUE")]).unwrap().is_none());
        assert!(read(&[ENDPOINT, ("OTEL_TRACES_EXPORTER", "none")]).unwrap().is_none());
        let settings = read(&[ENDPOINT]).unwrap().unwrap();
        assert_eq!(settings.endpoint.as_str(), "http://collector:4318/v1/traces");
        assert_eq!(settings.sampler, Sampler { follows_parent: true, ratio: 1.0 });
        let named: Vec<_> = settings.attributes.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(named, ["service.name", "service.version"]);
    }

    #[test]
    fn what_is_for_traces_goes_first() {
        let settings = read(&[
            ENDPOINT,
            ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "https://other/own/path"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "a=b"),
            ("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "authorization=Bearer%20x, x-org = 7"),
            ("OTEL_RESOURCE_ATTRIBUTES", "service.name=loses,deployment.environment=lab"),
            ("OTEL_SERVICE_NAME", "burrow"),
            ("OTEL_TRACES_SAMPLER", "traceidratio"),
            ("OTEL_TRACES_SAMPLER_ARG", "0.25"),
        ]);
        let settings = settings.unwrap().unwrap();
        assert_eq!(settings.endpoint.as_str(), "https://other/own/path");
        assert_eq!(
            (settings.headers["authorization"].to_str().unwrap(), settings.headers.len()),
            ("Bearer x", 2)
        );
        assert!(settings.attributes.contains(&("service.name".to_owned(), "burrow".to_owned())));
        assert_eq!(settings.sampler, Sampler { follows_parent: false, ratio: 0.25 });
    }

    #[test]
    fn what_is_wrong_is_named_and_never_shown() {
        for (name, value) in [
            ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "hidden"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "a b=hidden"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "hidden"),
            ("OTEL_TRACES_SAMPLER", "hidden"),
        ] {
            let error = read(&[ENDPOINT, (name, value)]).unwrap_err().to_string();
            assert!(error.contains(name) && !error.contains("hidden"), "{error}");
        }
        let share = [ENDPOINT, ("OTEL_TRACES_SAMPLER", "traceidratio"), ("OTEL_TRACES_SAMPLER_ARG", "2")];
        assert!(read(&share).is_err());
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

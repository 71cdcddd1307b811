//! Metrics for Prometheus: `/metrics` beside the other routes, and a listener that serves nothing else.

use std::net::IpAddr;

use axum::{
    Router,
    extract::{Extension, Request, State},
    http::{
        HeaderMap, StatusCode,
        header::{ACCEPT, CONTENT_TYPE, HOST, VARY},
        uri::Authority,
    },
    middleware::{self, Next},
    response::{IntoResponse, Response},
    routing::get,
};
use engine::{Engine, MetricsFormat, Principal};

use crate::http::{ApiResult, handler::erased};

const PATH: &str = "/metrics";
const OPEN_METRICS: &str = "application/openmetrics-text";
const PLAIN: &str = "text/plain";

/// `/metrics` for callers of all namespaces.
pub fn router(engine: Engine) -> Router {
    Router::new().route(PATH, get(erased(metrics))).with_state(engine)
}

/// `/metrics` for everyone who reaches a listener that the operator opened for nothing else. On loopback, a web page
/// that a browser here has open must not read it by a name of its own that leads here: `is_loopback` refuses such
/// names.
pub fn open_router(engine: Engine, is_loopback: bool) -> Router {
    let router = Router::new().route(PATH, get(erased(open_metrics))).with_state(engine);
    match is_loopback {
        true => router.layer(middleware::from_fn(own_names_only)),
        false => router,
    }
}

async fn own_names_only(request: Request, next: Next) -> Response {
    let host = request.headers().get(HOST).and_then(|value| value.to_str().ok()).unwrap_or_default();
    match is_own_name(host) {
        true => next.run(request).await,
        false => StatusCode::FORBIDDEN.into_response(),
    }
}

fn is_own_name(host: &str) -> bool {
    let name = host.parse::<Authority>().map(|host| host.host().to_owned()).unwrap_or_default();
    let address = name.trim_start_matches('[').trim_end_matches(']');
    name == "localhost" || address.parse::<IpAddr>().is_ok()
}

async fn metrics(
    State(engine): State<Engine>,
    Extension(who): Extension<Principal>,
    headers: HeaderMap,
) -> ApiResult<Response> {
    answer(&engine, &who, &headers).await
}

async fn open_metrics(State(engine): State<Engine>, headers: HeaderMap) -> Response {
    let answer = answer(&engine, &Principal::operator("metrics"), &headers).await;
    answer.unwrap_or_else(IntoResponse::into_response)
}

async fn answer(engine: &Engine, who: &Principal, headers: &HeaderMap) -> ApiResult<Response> {
    let accepted: Vec<_> = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok()).collect();
    let format = accepted_format(&accepted);
    let text = engine.metrics(who, format).await?;
    let sort = match format {
        MetricsFormat::OpenMetrics => format!("{OPEN_METRICS}; version=1.0.0; charset=utf-8"),
        MetricsFormat::Prometheus => format!("{PLAIN}; version=0.0.4; charset=utf-8"),
    };
    Ok(([(CONTENT_TYPE, sort.as_str()), (VARY, "accept")], text).into_response())
}

/// OpenMetrics for those who accept it by name, unless they would rather have the other.
fn accepted_format(accepted: &[&str]) -> MetricsFormat {
    let weight = |wanted: &str| {
        let kinds = accepted.iter().flat_map(|value| value.split(','));
        let weights = kinds.filter_map(|kind| {
            let mut parts = kind.split(';').map(str::trim);
            let is_wanted = parts.next().is_some_and(|name| name.eq_ignore_ascii_case(wanted));
            let weight = parts.find_map(|part| part.strip_prefix("q="));
            is_wanted.then(|| weight.map_or(1.0, |weight| weight.parse::<f64>().unwrap_or(0.0)))
        });
        weights.fold(0.0, f64::max)
    };
    let open = weight(OPEN_METRICS);
    if open > 0.0 && open >= weight(PLAIN) { MetricsFormat::OpenMetrics } else { MetricsFormat::Prometheus }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reader_gets_the_format_that_it_asks_for() {
        let is_open = |accept: &str| accepted_format(&[accept]) == MetricsFormat::OpenMetrics;
        let prometheus = "application/openmetrics-text;version=1.0.0;q=0.5,application/openmetrics-text;version=0.0.1;q=0.4,\
            text/plain;version=0.0.4;q=0.3,*/*;q=0.2";
        for open in [
            prometheus,
            "application/openmetrics-text",
            "text/plain;q=0.1, Application/OpenMetrics-Text; q=0.9",
        ] {
            assert!(is_open(open), "{open}");
        }
        for plain in [
            "",
            "*/*",
            "text/plain;version=0.0.4",
            "text/plain;version=0.0.4;q=0.5,application/openmetrics-text;q=0.1",
            "application/openmetrics-text;q=0",
        ] {
            assert!(!is_open(plain), "{plain}");
        }
        assert_eq!(accepted_format(&[]), MetricsFormat::Prometheus);
    }

    #[test]
    fn a_name_of_somebody_else_is_refused() {
        for own in ["127.0.0.1:9464", "localhost:9464", "[::1]:9464", "localhost", "10.0.0.7"] {
            assert!(is_own_name(own), "{own}");
        }
        for other in ["evil.example:9464", "", "localhost.evil.example", "127.0.0.1.evil.example"] {
            assert!(!is_own_name(other), "{other}");
        }
    }
}

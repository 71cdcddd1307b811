//! A byte stream to a port or socket inside, over an upgraded connection.

use axum::{
    extract::{Request, State},
    http::{
        HeaderMap, HeaderValue, StatusCode,
        header::{CONNECTION, UPGRADE},
    },
    response::{IntoResponse, Response},
};
use engine::{PortStream, Target};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use sandbox::Error;
use tokio_util::sync::CancellationToken;
use utoipa_axum::{router::OpenApiRouter, routes};

use super::{Rest, extract::Ask, v1};
use crate::http::{ActivityGuard, ApiResult};

/// What `Upgrade` must say; bytes run both ways after the 101.
pub const UPGRADE_PROTOCOL: &str = "warren-stream";

pub(super) fn routes() -> OpenApiRouter<Rest> {
    OpenApiRouter::new().routes(routes!(connect))
}

/// Opens a byte stream to a TCP port or Unix socket inside. Needs `Connection: Upgrade` and `Upgrade: warren-stream`.
#[utoipa::path(post, path = "/sandboxes/{sandbox}/connect", tag = "ports",
    params(("sandbox" = String, Path, description = "Id or name."), v1::ConnectQuery),
    responses((status = 101, description = "The stream is open.")))]
async fn connect(
    State(rest): State<Rest>,
    ask: Ask<v1::ConnectQuery>,
    mut request: Request,
) -> ApiResult<Response> {
    if !asks_for_upgrade(request.headers()) {
        return Err(Error::invalid("this route answers with a byte stream, which was not asked for")
            .with_hint("Send the headers Connection: Upgrade and Upgrade: warren-stream.")
            .into());
    }
    let inside = rest.engine.connect(&ask.who, &ask.which, target(&ask.query)?).await?;
    let outside = hyper::upgrade::on(&mut request);
    let (engine, who) = (rest.engine.clone(), ask.who);
    let ended = async move { engine.principal_ended(&who).await };
    tokio::spawn(join(outside, inside, ended, rest.stop.clone(), rest.activity.enter()));
    let mut response = StatusCode::SWITCHING_PROTOCOLS.into_response();
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("upgrade"));
    response.headers_mut().insert(UPGRADE, HeaderValue::from_static(UPGRADE_PROTOCOL));
    Ok(response)
}

fn asks_for_upgrade(headers: &HeaderMap) -> bool {
    let asked = headers.get(UPGRADE).and_then(|value| value.to_str().ok());
    asked.is_some_and(|value| value.eq_ignore_ascii_case(UPGRADE_PROTOCOL))
}

fn target(query: &v1::ConnectQuery) -> Result<Target, Error> {
    match (query.port, &query.unix) {
        (Some(0), None) => Err(Error::invalid("0 is not a port")),
        (Some(port), None) => Ok(Target::Tcp(port)),
        (None, Some(path)) => Ok(Target::Unix(path.clone())),
        (None, None) | (Some(_), Some(_)) => Err(Error::invalid("give either port or unix")),
    }
}

/// Until one side ends it, the caller's key ends, or the daemon stops.
async fn join(
    outside: OnUpgrade,
    mut inside: PortStream,
    ended: impl Future<Output = ()>,
    stop: CancellationToken,
    guard: ActivityGuard,
) {
    let outside = match outside.await {
        Ok(upgraded) => upgraded,
        Err(error) => {
            tracing::debug!("a port stream was not taken up: {error}");
            return;
        }
    };
    let mut outside = TokioIo::new(outside);
    tokio::select! {
        ended = tokio::io::copy_bidirectional(&mut outside, &mut inside) => {
            if let Err(error) = ended {
                tracing::debug!("a port stream ended: {error}");
            }
        }
        () = ended => {}
        () = stop.cancelled() => {}
    }
    drop(guard);
}

//! A byte stream to a port or socket inside, over an upgraded connection.

use std::future::pending;

use axum::{
    extract::{Request, State},
    http::{
        HeaderMap, HeaderValue, StatusCode,
        header::{CONNECTION, UPGRADE},
    },
    response::{IntoResponse, Response},
};
use engine::{PortStream, Target};
use futures_util::future::{BoxFuture, FutureExt as _};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use sandbox::Error;
use tokio_util::sync::CancellationToken;
use utoipa_axum::router::OpenApiRouter;

use super::{Rest, extract::Ask, v1};
use crate::http::{ActivityGuard, Refusal, StreamLease, StreamPlace};

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
) -> Result<Response, Refusal> {
    if !asks_for_upgrade(request.headers()) {
        return Err(Error::invalid("this route needs a connection upgrade, which was not requested")
            .with_hint("Send the headers Connection: Upgrade and Upgrade: warren-stream.")
            .into());
    }
    let lease = request.extensions().get::<StreamLease>().cloned();
    let place = lease.as_ref().map(StreamLease::take).transpose()?.flatten();
    let key_ended = lease.map_or_else(|| pending().boxed(), |lease| lease.ended());
    let inside = rest.engine.connect(&ask.who, &ask.which, target(&ask.query)?).await?;
    let outside = hyper::upgrade::on(&mut request);
    let tie = Tie { stop: rest.stop.clone(), key_ended, _activity: rest.activity.enter(), _place: place };
    tokio::spawn(join(outside, inside, tie));
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

/// What a byte stream is tied to: it ends with the daemon or the key, and is counted as long as it lasts.
struct Tie {
    stop: CancellationToken,
    key_ended: BoxFuture<'static, ()>,
    _activity: ActivityGuard,
    _place: Option<StreamPlace>,
}

async fn join(outside: OnUpgrade, mut inside: PortStream, mut tie: Tie) {
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
        () = tie.stop.cancelled() => {}
        () = &mut tie.key_ended => {}
    }
}

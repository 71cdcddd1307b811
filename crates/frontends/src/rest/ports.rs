//! A byte stream to a port or socket inside, over an upgraded connection.

use std::time::Duration;

use axum::{
    Extension, Json,
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
use sandbox::{Error, ErrorKind};
use utoipa_axum::router::OpenApiRouter;

use super::{
    Rest,
    extract::{Ask, JsonBody, PathPort},
    v1,
};
use crate::{
    http::{ApiResult, Refusal, StreamLease},
    links::BaseUrl,
    ports::{self, ExposeOptions, Tie, listening_processes},
};

/// The value that `Upgrade` must have; bytes run both ways after the 101.
pub const UPGRADE_PROTOCOL: &str = "warren-stream";

pub(super) fn routes() -> OpenApiRouter<Rest> {
    OpenApiRouter::new()
        .routes(routes!(connect))
        .routes(routes!(list_ports, expose_port))
        .routes(routes!(withdraw_port))
}

/// The ports that listen inside, and the exposed ones.
#[utoipa::path(get, path = "/sandboxes/{sandbox}/ports", tag = "ports",
    params(("sandbox" = String, Path, description = "Id or name."), v1::NamespaceQuery),
    responses((status = 200, body = v1::PortList)))]
async fn list_ports(State(rest): State<Rest>, ask: Ask) -> ApiResult<Json<v1::PortList>> {
    let exposed = rest.engine.exposed_ports(&ask.who, &ask.which).await?;
    let found = match listening_processes(&rest.engine, &ask.who, &ask.which).await {
        Ok(found) => Some(found),
        // Exposed ports are known of a stopped sandbox too, and of one without the kernel's tables.
        Err(error) if matches!(error.kind(), ErrorKind::WrongState | ErrorKind::Unsupported) => None,
        Err(error) => return Err(error.into()),
    };
    Ok(Json(v1::PortList::new(exposed, found)))
}

/// Makes an address of a port, and exposes it if asked.
///
/// Without `public` the address is signed: whoever has it reaches this one port until it expires. With `host` the port
/// is also published as TCP on the host, for as long as the sandbox exists.
#[utoipa::path(post, path = "/sandboxes/{sandbox}/ports", tag = "ports",
    params(("sandbox" = String, Path, description = "Id or name."), v1::NamespaceQuery),
    request_body = v1::ExposeRequest, responses((status = 201, body = v1::Endpoint)))]
async fn expose_port(
    State(rest): State<Rest>,
    ask: Ask,
    base: Option<Extension<BaseUrl>>,
    JsonBody(asked): JsonBody<v1::ExposeRequest>,
) -> ApiResult<(StatusCode, Json<v1::Endpoint>)> {
    let links = rest.links.of(&ask.who, base.as_deref());
    let v1::ExposeRequest { port, protocol, public, host, address, ttl_seconds } = asked;
    let ttl = ttl_seconds.map(Duration::from_secs);
    let options = ExposeOptions { protocol, public, host, address, ttl };
    let endpoint = ports::expose(&rest.engine, &ask.who, &links, &ask.which, port, &options).await?;
    Ok((StatusCode::CREATED, Json(endpoint.into())))
}

/// Withdraws an exposed port, TCP and UDP: it is neither public nor published any more. Signed addresses stay valid
/// until they expire.
#[utoipa::path(delete, path = "/sandboxes/{sandbox}/ports/{port}", tag = "ports",
    params(("sandbox" = String, Path, description = "Id or name."), ("port" = u16, Path), v1::NamespaceQuery),
    responses((status = 204)))]
async fn withdraw_port(
    State(rest): State<Rest>,
    ask: Ask,
    PathPort(port): PathPort,
) -> ApiResult<StatusCode> {
    rest.engine.withdraw_port(&ask.who, &ask.which, port).await?;
    Ok(StatusCode::NO_CONTENT)
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
    let inside = rest.engine.connect(&ask.who, &ask.which, target(&ask.query)?).await?;
    let outside = hyper::upgrade::on(&mut request);
    let tie = Tie::stream(&rest.stop, lease.as_ref(), rest.activity.enter(), place);
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

async fn join(outside: OnUpgrade, inside: PortStream, tie: Tie) {
    match outside.await {
        Ok(outside) => tie.join(TokioIo::new(outside), inside).await,
        Err(error) => tracing::debug!("a port stream was not taken up: {error}"),
    }
}

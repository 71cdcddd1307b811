//! `GET /sandboxes/{id}/endpoints/{port}`: where a port inside is reached, and the token that opens it.
//!
//! Its clients send no key there, but every header that they are given here.

use std::time::Duration;

use axum::{Extension, Json, extract::State};
use engine::LinkTarget;
use jiff::Timestamp;
use sandbox::{Error, ErrorKind, Next};
use serde_json::{Value, json};

use crate::{
    dialects::opensandbox::ask::{Ask, Front},
    http::{ApiResult, INSIDE_HEADER, OPENSANDBOX},
    links::BaseUrl,
};

/// Where its daemons inside would listen: commands and files, and the network.
pub(in crate::dialects::opensandbox) const OWN_PORTS: [u16; 2] = [44772, 18080];
/// How long a token holds where nobody says otherwise. Clients keep it as long as they run and never ask again; the
/// engine bounds it, and it ends with the sandbox and with the key that asked.
const TTL: Duration = Duration::from_secs(365 * 24 * 60 * 60);

pub(super) async fn endpoint(
    State(front): State<Front>,
    ask: Ask,
    base: Option<Extension<BaseUrl>>,
) -> ApiResult<Json<Value>> {
    let query = ask.query().only(&["use_server_proxy", "expires"])?;
    // Both ways lead through the daemon: nothing of a sandbox is on the network.
    query.flag("use_server_proxy")?;
    let port = ask.caller.port()?;
    let ttl = match query.number("expires")? {
        Some(at) => until(at)?,
        None => TTL,
    };
    let id = ask.view().await?.id;
    let target = match OWN_PORTS.contains(&port) {
        true => LinkTarget::Inside,
        false => LinkTarget::Port { port },
    };
    let link = front.engine().sign_link(ask.who(), &id, &target, ttl)?;
    let links = front.mcp.links().of(ask.who(), base.as_deref());
    let host = links.host().ok_or_else(|| {
        Error::new(ErrorKind::WrongState, "this daemon does not listen on TCP").with_next(Next::Listen)
    })?;
    Ok(Json(json!({
        "endpoint": format!("{host}{OPENSANDBOX}/sandboxes/{id}/proxy/{port}"),
        "headers": { INSIDE_HEADER: link.token },
    })))
}

/// From now until a second since 1970.
fn until(at: u64) -> Result<Duration, Error> {
    let now = u64::try_from(Timestamp::now().as_second()).unwrap_or_default();
    match at.checked_sub(now).filter(|seconds| *seconds > 0) {
        Some(seconds) => Ok(Duration::from_secs(seconds)),
        None => Err(Error::invalid(format!("expires {at} is not in the future"))),
    }
}

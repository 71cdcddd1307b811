//! REST: version 1 under `/v1`, described by an OpenAPI document that is generated from this code.
//!
//! One file for each noun (`sandboxes runs execs output code contexts files links packages archives images builds
//! snapshots volumes ports events keys calls session live terminal fleet system`), wire types in `v1/`. A handler turns
//! a request into one call of the engine. What all requests share is in `extract` and `stream`, and what all front ends
//! on HTTP share in [`crate::http`].

// First, for its macro.
#[macro_use]
mod routes;

mod below;
mod builds;
mod calls;
mod code;
mod contexts;
mod entries;
mod events;
mod execs;
mod extract;
mod files;
mod fleet;
mod images;
mod keys;
mod links;
mod live;
mod network;
mod openapi;
mod output;
pub(crate) mod packages;
mod patches;
mod ports;
mod pulls;
mod runs;
mod sandboxes;
mod secrets;
mod session;
mod snapshots;
mod ssh_keys;
mod stream;
mod system;
mod terminal;
pub mod v1;
mod volumes;

use std::{sync::Arc, time::Instant};

use axum::Router;
use engine::Engine;
use jiff::Timestamp;
use tokio_util::sync::CancellationToken;
use utoipa_axum::router::OpenApiRouter;

pub use self::{fleet::Doctor, openapi::document, ports::UPGRADE_PROTOCOL};
use crate::{
    code::Serving,
    http::Activity,
    links::{LinkSettings, Links},
    ports::Proxy,
};

/// The state that every handler can reach.
#[derive(Debug, Clone)]
pub struct Rest {
    engine: Engine,
    links: Links,
    serving: Serving,
    activity: Activity,
    stop: CancellationToken,
    proxy: Proxy,
    started: Instant,
    started_at: Timestamp,
    build: Option<&'static str>,
    doctor: Option<Arc<dyn Doctor>>,
}

impl Rest {
    /// `stop` ends open streams, so that a daemon can leave; `activity` counts streams that outlive their request.
    pub fn new(engine: Engine, activity: Activity, stop: CancellationToken) -> Self {
        let links = Links::new(engine.clone(), LinkSettings::default());
        let proxy = Proxy::new(engine.clone(), activity.clone(), stop.clone());
        Self {
            engine,
            links,
            serving: Serving::default(),
            activity,
            stop,
            proxy,
            started: Instant::now(),
            started_at: Timestamp::now(),
            build: None,
            doctor: None,
        }
    }

    /// With links as the operator wants them.
    #[must_use]
    pub fn with_links(mut self, links: Links) -> Self {
        self.links = links;
        self
    }

    /// With the program's version and commit, for clients that compare.
    #[must_use]
    pub fn with_build(mut self, build: &'static str) -> Self {
        self.build = Some(build);
        self
    }

    /// With someone who looks at the daemon's machine.
    #[must_use]
    pub fn with_doctor(mut self, doctor: Arc<dyn Doctor>) -> Self {
        self.doctor = Some(doctor);
        self
    }
}

/// Every route, for [`crate::http::app`], which lets nobody through unasked.
pub fn router(rest: Rest) -> Router {
    let (router, _document) = routes().split_for_parts();
    router.merge(below::routes()).with_state(rest)
}

/// Every route with its description.
fn routes() -> OpenApiRouter<Rest> {
    let v1 = OpenApiRouter::new()
        .merge(system::routes())
        .merge(sandboxes::routes())
        .merge(runs::routes())
        .merge(execs::routes())
        .merge(entries::routes())
        .merge(output::routes())
        .merge(code::routes())
        .merge(contexts::routes())
        .merge(files::routes())
        .merge(links::routes())
        .merge(builds::routes())
        .merge(packages::routes())
        .merge(images::routes())
        .merge(snapshots::routes())
        .merge(network::routes())
        .merge(ports::routes())
        .merge(events::routes())
        .merge(volumes::routes())
        .merge(secrets::routes())
        .merge(keys::routes())
        .merge(ssh_keys::routes())
        .merge(calls::routes())
        .merge(session::routes())
        .merge(live::routes())
        .merge(terminal::routes())
        .merge(fleet::routes());
    OpenApiRouter::with_openapi(openapi::head()).nest("/v1", v1)
}

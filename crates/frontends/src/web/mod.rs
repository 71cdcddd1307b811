//! The dashboard's page: files that are part of the binary, served at `/`. What the page does, it does over `/v1`.
//!
//! Nothing here is behind a key: a browser loads the page before anyone has signed in, and it contains nothing of
//! anybody's.

mod files;
mod welcome;

use axum::{Router, routing::get};

pub use self::files::Page;
use self::files::serve;
use crate::http::handler::erased;

/// `/` and the files of the page.
pub fn router(page: Page) -> Router {
    Router::new()
        .route("/", get(erased(welcome::welcome)))
        .route("/favicon.svg", get(erased(serve)))
        .route("/assets/{*path}", get(erased(serve)))
        .with_state(page)
}

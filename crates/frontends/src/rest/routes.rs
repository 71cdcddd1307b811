//! Handlers behind one type, so that axum's router is compiled once and not once for each of them.

use std::{fmt, pin::Pin};

use axum::{extract::Request, handler::Handler, response::Response};

use super::Rest;

type Answering = Pin<Box<dyn Future<Output = Response> + Send>>;

/// A handler whose type is forgotten.
#[derive(Clone, Copy)]
pub(super) struct AnyHandler(&'static (dyn Fn(Request, Rest) -> Answering + Send + Sync));

impl AnyHandler {
    pub(super) fn new<T, H: Handler<T, Rest>>(handler: H) -> Self {
        let call = move |request, rest| -> Answering { Box::pin(handler.clone().call(request, rest)) };
        // A handler is a function, so this has no size and nothing is leaked.
        const { assert!(size_of::<H>() == 0) };
        Self(Box::leak(Box::new(call)))
    }
}

impl fmt::Debug for AnyHandler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AnyHandler").finish_non_exhaustive()
    }
}

impl Handler<Self, Rest> for AnyHandler {
    type Future = Answering;

    fn call(self, request: Request, rest: Rest) -> Answering {
        (self.0)(request, rest)
    }
}

/// As `utoipa_axum::routes!`, which it replaces in `rest`: docs/design/build-time.md says why.
macro_rules! routes {
    ($($handler:ident),+ $(,)?) => {{
        $(let $handler = $crate::rest::routes::AnyHandler::new($handler);)+
        utoipa_axum::routes!($($handler),+)
    }};
}

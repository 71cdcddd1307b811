//! Handlers behind one type, so that axum's router is compiled once and not once for each of them.

use std::{fmt, pin::Pin};

use axum::{extract::Request, handler::Handler, response::Response};

type Answering = Pin<Box<dyn Future<Output = Response> + Send>>;

/// A handler whose type is forgotten.
pub(crate) struct AnyHandler<S: 'static>(&'static (dyn Fn(Request, S) -> Answering + Send + Sync));

/// Forgets the type of a handler: docs/design/build-time.md says why.
pub(crate) fn erased<T, S: 'static, H: Handler<T, S>>(handler: H) -> AnyHandler<S> {
    let call = move |request, state| -> Answering { Box::pin(handler.clone().call(request, state)) };
    // A handler is a function, so this has no size and nothing is leaked.
    const { assert!(size_of::<H>() == 0) };
    AnyHandler(Box::leak(Box::new(call)))
}

impl<S> Clone for AnyHandler<S> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<S> Copy for AnyHandler<S> {}

impl<S> fmt::Debug for AnyHandler<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AnyHandler").finish_non_exhaustive()
    }
}

impl<S: Send + 'static> Handler<Self, S> for AnyHandler<S> {
    type Future = Answering;

    fn call(self, request: Request, state: S) -> Answering {
        (self.0)(request, state)
    }
}

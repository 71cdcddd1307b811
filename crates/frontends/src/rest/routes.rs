//! As `utoipa_axum::routes!`, with handlers whose types are forgotten: docs/design/build-time.md says why.

macro_rules! routes {
    ($($handler:ident),+ $(,)?) => {{
        $(let $handler = $crate::http::handler::erased($handler);)+
        utoipa_axum::routes!($($handler),+)
    }};
}

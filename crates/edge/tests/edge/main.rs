//! The edge between sandboxes and a world, both made of network namespaces.
#![expect(clippy::unwrap_used, reason = "what a test cannot do, it reports by panicking")]

mod edge;
mod inside;
mod tcp;
mod world;

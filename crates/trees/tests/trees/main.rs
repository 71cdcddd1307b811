//! Trees on the real file system, most of them hostile.
#![expect(clippy::unwrap_used, reason = "what a test cannot do, it reports by panicking")]

mod copying;
mod diffing;
mod digest;
mod packing;
mod random;
mod refused;
mod world;

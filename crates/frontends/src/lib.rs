//! Front ends: each turns a protocol into requests to the engine, and its answers back. They authenticate; the engine
//! decides.
#![forbid(unsafe_code)]

mod builds;
pub mod code;
mod denials;
pub mod dialects;
pub mod hostfs;
pub mod http;
pub mod images;
pub mod lacks;
pub mod links;
pub mod mcp;
pub mod metrics;
mod output;
mod pipe;
pub mod ports;
pub mod rest;
mod terminal;
mod trace;
pub mod web;

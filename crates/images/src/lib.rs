//! OCI images on disk: pull, load, save, unpack. Knows nothing of sandboxes.
//!
//! Start at [`Images`]. Everything in an image comes from strangers: what is read is bounded ([`Limits`]), what is
//! written stays inside its directory ([`unpack_layer`]), and what has a name is whole.
#![forbid(unsafe_code)]

mod blocking;
mod compression;
mod config;
mod digest;
mod error;
mod images;
mod manifest;
mod options;
mod pack;
mod platform;
mod progress;
mod reference;
mod registry;
mod store;
mod unpack;

// A future that the engine awaits is boxed here, so that it is compiled here and only here: docs/design/build-time.md.
pub(crate) use async_recursion::async_recursion as boxed;

pub use crate::{
    config::ImageConfig,
    digest::Digest,
    error::{Error, Result},
    images::{
        Commit, DiskUsage, Format, History, Image, ImageDetail, ImageSummary, Images, InUse, LayerDetail,
        Origin, PullOptions, lower_directories,
    },
    options::{Auth, Credentials, Limits, Mirror, NoUsers, Options, Reach, Retry, Timeouts, Users},
    pack::{PackOptions, pack_layer},
    platform::Platform,
    progress::{Event, LayerState, Progress},
    reference::Reference,
    store::Freed,
    unpack::{InProcess, OpaqueMark, UnpackOptions, Unpacked, Unpacker, Warnings, unpack_layer},
};

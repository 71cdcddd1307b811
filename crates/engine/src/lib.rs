//! The engine: decides what happens to sandboxes, and is the only thing that front ends call.
//!
//! One driver task owns each sandbox; the record is written before the effect; an exec's output goes to a ledger that
//! outlives the daemon. Front ends authenticate and pass a [`Principal`]; every refusal comes from here.
#![forbid(unsafe_code)]

mod access;
mod adopt;
mod audit;
mod backends;
mod base;
mod build;
mod clerk;
mod client;
mod clock;
mod code;
mod config;
mod core;
mod create;
mod disk;
mod driver;
mod engine;
mod ensure;
mod entries;
mod entry;
mod error;
mod events;
mod exec;
mod feed;
mod files;
mod images;
mod keys;
mod lifecycle;
mod links;
mod live;
mod metrics;
mod mounts;
mod names;
mod network;
mod occupy;
mod outcome;
mod packages;
mod patches;
mod ports;
mod pump;
mod recover;
mod reference;
mod replace;
mod request_hash;
mod rich;
mod run;
mod search;
mod secret;
mod secrets;
mod sessions;
mod shared;
mod snapshots;
mod ssh_keys;
mod tasks;
mod text;
mod token;
mod turns;
mod view;
mod volumes;

pub use ::build::Ignore as BuildIgnore;
pub use ::images::{
    Auth as ImageAuth, Credentials, Digest, DiskUsage, Error as ImageError, Event as PullEvent,
    Format as ArchiveFormat, Freed, History as ImageHistory, ImageConfig, ImageDetail, ImageSummary, Images,
    LayerDetail, LayerState, Mirror, Options as ImageOptions, Platform, Progress, PullOptions, Reference,
    Unpacker,
};
// A future that front ends await is boxed here. Bare, its state machine would be compiled again in every crate, and in
// every unit of code, that awaits it. See docs/design/build-time.md.
pub(crate) use async_recursion::async_recursion as boxed;
use bytes::Bytes;
use futures_util::stream::BoxStream;
pub use guest_protocol::{
    ChangedFile, ContextState, ExitReport, FileChange, GrepMatch, MimeBundle, Rich, SignalScope, StateLoss,
    Target, WatchEvent, WatchKind,
};
use sandbox::Result;
pub use sandbox::{Call, Frontend};
pub use store::{LedgerLimits, OwnSecret, Store};

pub use crate::{
    access::{Access, Principal, Quota, Scope},
    audit::{CallFilter, CallRecord},
    build::{
        BuildEvent, BuildSpec, BuiltImage, DockerfileSource, MAX_BUILD_TIME, OUTSIDE_DOCKERFILE,
        QUEUED_BUILD_EVENTS,
    },
    client::PortStream,
    clock::{Clock, ManualClock, SystemClock},
    code::{ContextSpec, ContextView, LanguageView, Made},
    config::{Deadlines, EngineConfig, MAX_STOP_GRACE},
    create::{FirstExec, NewRun},
    engine::Engine,
    ensure::{Ensured, SandboxIdentity},
    entries::Follow,
    entry::{Entry, EntryBody, ExitEntry, OutputStream},
    feed::{
        BackendHealth, FleetMoment, FleetView, HomeDisk, LiveEvent, LiveSpec, LiveTopic, LoadSample,
        PackagesCache, SandboxLoad,
    },
    files::{FilesOf, GrepQuery, InsideListener, Listing, Matches, Paths, WriteOptions},
    keys::NewKey,
    lifecycle::Force,
    links::{LinkLasts, LinkRefused, LinkTarget, MAX_LINK_TTL, OpenLink, SignedLink},
    metrics::MetricsFormat,
    network::{
        NetworkChange, NetworkDenial, NetworkDenials, NetworkLogEntry, NetworkPatch, NetworkReach,
        NetworkRequestView, NetworkView,
    },
    packages::{
        GatewayStats, PACKAGES_PORT, PackageGateway, PackageJob, PackageListing, PackagePresence,
        PackageStatus,
    },
    patches::{CreateRequest, PatchSource},
    recover::{CorruptRecords, Recovery, Unknown, put_aside, recover},
    reference::SandboxRef,
    request_hash::request_hash,
    rich::{MAX_RICH_BYTES, RichReader},
    run::{RECORD_PATIENCE, Run, RunEnd, RunOptions},
    search::{OutputCursor, OutputLine, OutputMatches, OutputSearch},
    secrets::{GivenSecrets, MAX_SECRETS_EACH, SecretRef, SecretSpec, SecretView},
    sessions::{
        NewSession, ONCE_LASTS, OnceToken, SESSION_LASTS, SessionId, SessionKind, SessionRights, SessionView,
        ShareSpec, ShareTarget, ShareView, SignIn, SignedShare, Watched,
    },
    snapshots::{
        DiffSpec, ForkSpec, MAX_FORKS, Reindexed, RestoreSpec, SaveOptions, Since, SnapshotCheck,
        SnapshotFate, SnapshotRef, SnapshotSpec, SnapshotView,
    },
    text::TextDecoder,
    turns::Turns,
    view::{
        CellView, ExecView, SandboxFilter, SandboxView, names_of_defaults_not_held, not_held_as_asked,
        weaknesses,
    },
    volumes::{VolumeLimits, VolumeRef, VolumeView},
};

/// A stream of bytes, pulled by the reader; dropping it stops the sender.
pub type ByteStream = BoxStream<'static, Result<Bytes>>;

//! Images from Dockerfiles. Every instruction that changes files runs in a sandbox of its own, made from the image so
//! far; when it is done the sandbox stops, and what it changed becomes one more layer.
//!
//! The inputs of a build are kept as archives and never unpacked on the host: all files are written by the guest of a
//! sandbox, into that sandbox. A build's intermediate results are kept as images without a name; see
//! `images::Images::built`.

mod context;
mod copying;
mod holes;
mod instruction_sandbox;
mod keys;
mod network;
mod pieces;
mod spool;
mod stage;

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use ::images::{Digest, Platform, Progress, Reference};
use sandbox::{
    ByteSize, Defaults, Error, ErrorKind, NetworkSpec, PullPolicy, Result, SandboxName, SandboxSpec,
    plan_network,
};
use tokio::{
    sync::{mpsc, oneshot},
    time::Instant,
};
use tokio_util::sync::CancellationToken;

pub(crate) use self::spool::sweep;
use self::{
    context::{Context, Odd, Reading},
    spool::Spool,
};
use crate::{ByteStream, Engine, OutputStream, Principal, SandboxRef, disk::may_block, error};

/// Largest context, and largest copy from another stage.
const MAX_CONTEXT: ByteSize = ByteSize::gib(4);
/// Most instructions that one build does.
const MAX_STEPS: usize = 500;
/// Longest build, also when more is asked for.
pub const MAX_BUILD_TIME: Duration = Duration::from_secs(6 * 60 * 60);
const DEFAULT_BUILD_TIME: Duration = Duration::from_secs(60 * 60);
/// Arguments that one build may be given.
const MAX_BUILD_ARGS: usize = 256;
/// Most names of one image.
const MAX_TAGS: usize = 64;
/// Events that wait for the caller; a slow one slows the build.
pub const QUEUED_BUILD_EVENTS: usize = 256;

/// A sandbox with this label belongs to a build, and goes when its daemon does.
const LABEL: &str = "warren.build";
/// Where a caller puts a Dockerfile that is no part of the context.
pub const OUTSIDE_DOCKERFILE: &str = ".warren.Dockerfile";

/// A request for a build.
#[derive(Debug, Clone, Default)]
pub struct BuildSpec {
    pub dockerfile: DockerfileSource,
    pub tags: Vec<Reference>,
    pub args: BTreeMap<String, String>,
    /// Name or number of a stage; the last one when absent.
    pub target: Option<String>,
    /// Makes every layer anew.
    pub no_cache: bool,
    pub platform: Option<Platform>,
    /// For the images of `FROM`.
    pub pull: PullPolicy,
    /// The network of `RUN` commands: package indexes by default.
    pub network: NetworkSpec,
    pub timeout: Option<Duration>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DockerfileSource {
    /// In the context.
    Path(String),
    Text(String),
}

impl Default for DockerfileSource {
    fn default() -> Self {
        Self::Path("Dockerfile".to_owned())
    }
}

/// Progress of a running build.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BuildEvent {
    /// An instruction begins.
    Step {
        number: usize,
        total: usize,
        stage: Option<String>,
        line: usize,
        text: String,
    },
    /// Its layer was made before.
    Cached {
        number: usize,
    },
    Output {
        stream: OutputStream,
        text: String,
    },
    /// Its layer is made.
    Layer {
        number: usize,
        bytes: u64,
    },
    /// An image is asked for at its registry. How far it is, the build's `pulls` are told.
    Pull {
        reference: String,
    },
    Warning {
        message: String,
    },
}

/// The result of a build.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BuiltImage {
    pub digest: Digest,
    pub names: Vec<Reference>,
    pub n_steps: usize,
    pub n_cached: usize,
    pub warnings: Vec<String>,
}

impl Engine {
    /// Builds an image from a Dockerfile and the tar of its context. A caller who goes away ends it. However it ends,
    /// nothing is left but layers for the next build.
    #[crate::boxed]
    pub async fn build_image(
        &self,
        who: &Principal,
        spec: BuildSpec,
        context: ByteStream,
        events: mpsc::Sender<BuildEvent>,
        pulls: Progress,
    ) -> Result<BuiltImage> {
        self.core().images_to_name(who).await?;
        let time = check(&spec)?;
        // Before the context is read; every sandbox of the build is planned by the same.
        plan_network(&spec.network, &crate::network::ceilings(self.core(), who))?;
        let engine = self.for_task();
        let id = crate::names::random_exec_id()?.to_string();
        let gone = self.core().closing.child_token();
        let builder = Arc::new(Builder {
            spool: Spool::make(&engine.core().config.home)?,
            engine,
            who: who.clone(),
            id,
            events,
            pulls,
            places: Mutex::default(),
            n_places: AtomicUsize::new(0),
            deadline: Instant::now() + time,
            time,
            gone: gone.clone(),
        });
        let _ends_with_us = gone.clone().drop_guard();
        let (done, result) = oneshot::channel();
        let closing = self.core().closing.clone();
        self.core().drivers.spawn(async move {
            let built = tokio::select! {
                biased;
                // The next daemon clears away.
                () = closing.cancelled() => return,
                () = gone.cancelled() => Err(given_up()),
                () = tokio::time::sleep_until(builder.deadline) => Err(out_of_time(time)),
                built = stage::build(&builder, spec, context) => built,
            };
            tokio::select! {
                () = instruction_sandbox::clear(&builder) => {}
                () = closing.cancelled() => {}
            }
            // Fails when the caller has gone.
            let _nobody_waits = done.send(built);
        });
        result.await.map_err(|_dropped| error::closing())?
    }
}

fn check(spec: &BuildSpec) -> Result<Duration> {
    if spec.tags.len() > MAX_TAGS {
        return Err(Error::invalid(format!(
            "the build has {} names; the limit is {MAX_TAGS}",
            spec.tags.len()
        )));
    }
    if let Some(tag) = spec.tags.iter().find(|tag| tag.digest().is_some()) {
        return Err(Error::invalid(format!("{tag} contains a digest and cannot be used as a name"))
            .with_hint("Use a name such as team/app:1.2."));
    }
    spec.tags.iter().try_for_each(::images::Reference::check_as_name).map_err(crate::images::from_images)?;
    if spec.args.len() > MAX_BUILD_ARGS {
        let message = format!("the build has {} arguments; the limit is {MAX_BUILD_ARGS}", spec.args.len());
        return Err(Error::invalid(message));
    }
    let time = spec.timeout.unwrap_or(DEFAULT_BUILD_TIME);
    if time.is_zero() || time > MAX_BUILD_TIME {
        let message = format!("the time limit {time:?} is invalid; the maximum is {MAX_BUILD_TIME:?}");
        return Err(Error::invalid(message).with_hint("Omit the time limit for the default."));
    }
    Ok(time)
}

fn given_up() -> Error {
    Error::new(ErrorKind::Cancelled, "the build was cancelled")
}

fn out_of_time(time: Duration) -> Error {
    Error::new(ErrorKind::TimedOut, format!("the build took longer than {time:?}"))
        .with_hint("Finished layers are kept: build again with a longer time limit to continue.")
}

/// Returns the defaults for sandboxes of builds.
pub(crate) fn defaults(usual: &Defaults) -> Defaults {
    let mut defaults = usual.clone();
    // What one instruction puts into /tmp, the next one finds.
    defaults.limits.tmp = ByteSize(0);
    // What it changes becomes a layer, which is read from its directory.
    defaults.limits.disk_is_hard = false;
    defaults
}

/// Whether a sandbox belongs to a build, and so to the daemon that began it.
pub(crate) fn is_of_builds(spec: &SandboxSpec) -> bool {
    spec.labels.contains_key(LABEL)
}

/// For callers: a sandbox with a build's label would go with the daemon.
pub(crate) fn check_label_keys<'a>(mut keys: impl Iterator<Item = &'a String>) -> Result<()> {
    if keys.any(|key| key == LABEL) {
        return Err(Error::invalid(format!("the label {LABEL} is reserved for builds"))
            .with_hint("Use another label."));
    }
    Ok(())
}

fn label(id: &str) -> (String, String) {
    (LABEL.to_owned(), id.to_owned())
}

/// State that all parts of one build share.
#[derive(Debug)]
struct Builder {
    engine: Engine,
    who: Principal,
    id: String,
    spool: Spool,
    events: mpsc::Sender<BuildEvent>,
    pulls: Progress,
    /// Sandboxes that are there or about to be.
    places: Mutex<Vec<SandboxRef>>,
    n_places: AtomicUsize,
    deadline: Instant,
    time: Duration,
    /// The caller has gone, or the daemon is about to.
    gone: CancellationToken,
}

impl Builder {
    async fn tell(&self, event: BuildEvent) {
        // Who does not listen still wants the image; who has gone ends the build by other ways.
        let _nobody_listens = self.events.send(event).await;
    }

    fn next_name(&self) -> Result<SandboxName> {
        let number = self.n_places.fetch_add(1, Ordering::Relaxed);
        let id: String = self.id.chars().rev().take(10).collect();
        Ok(format!("build-{id}-{number}").to_ascii_lowercase().parse()?)
    }

    fn remember(&self, which: SandboxRef) {
        self.places.lock().unwrap_or_else(PoisonError::into_inner).push(which);
    }

    fn forget(&self, which: &SandboxRef) {
        self.places.lock().unwrap_or_else(PoisonError::into_inner).retain(|known| known != which);
    }

    fn places(&self) -> Vec<SandboxRef> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The context, in whatever compression it came.
    async fn read_context(&self, bytes: ByteStream) -> Result<Context> {
        let file = self.spool.take(bytes, &mut MAX_CONTEXT.bytes(), "the build context").await?;
        let wanted = || self.still_wanted();
        may_block(|| {
            let plain = spool::decompressed(&self.spool, file, &wanted)?;
            Context::read(plain, Reading { what: "the build context", odd: Odd::Refused, wanted: &wanted })
        })
    }

    /// For work that takes long on a thread, and would not notice otherwise that nobody waits any more.
    fn still_wanted(&self) -> Result<()> {
        if self.gone.is_cancelled() {
            return Err(given_up());
        }
        if Instant::now() >= self.deadline {
            return Err(out_of_time(self.time));
        }
        Ok(())
    }
}

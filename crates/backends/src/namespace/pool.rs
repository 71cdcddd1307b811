//! Places that are made before their sandboxes are asked for.
//!
//! Where sandboxes of one shape are made often, a few places wait: complete, with a guest that serves and a process
//! beside it that waits for the name. A sandbox that fits takes one, with the id that the place was made with:
//!
//! ```text
//!   prepared(plan) → offered, and checked meanwhile → record → create(plan) → files moved, name set → instance
//! ```
//!
//! Nobody but this module knows a place before it is taken: its files are in a directory of their own, and the next
//! daemon clears away whatever waits. A place that turns out not to be as a new one would be is taken back, and the
//! sandbox is made in the ordinary way; so a pool can make nothing fail.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use jail::{Naming, Reply};
use sandbox::{BackendError, LimitsPlan, RootfsPlan, SandboxId, SandboxPlan};
use tokio::{sync::Notify, task::JoinHandle};

use super::{
    Host,
    cage::Ground,
    create::{self, CreateCosts, For, HalfMade, Standing},
    error,
    instance::NamespaceInstance,
    names, receive,
    record::Record,
    socket,
    statement::DiskHold,
    sweep::END_TIME,
    unexpected,
};

/// The time in which creates are counted.
const WINDOW: Duration = Duration::from_secs(60);
/// How long nothing must be made before a place is: whoever waits for a sandbox has the processors first.
const QUIET: Duration = Duration::from_millis(10);
/// How long an offered place is kept for its record.
const OFFERED_FOR: Duration = Duration::from_secs(10);
/// How long nothing is tried after a failure.
const AFTER_FAILURE: Duration = Duration::from_secs(5);
/// A guest starts within milliseconds.
const START_TIME: Duration = Duration::from_secs(20);
/// A name is set within microseconds.
const NAME_TIME: Duration = Duration::from_secs(10);

/// When places wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PoolConfig {
    /// Most places that wait at a time. None with 0.
    pub size: usize,
    /// So many sandboxes of one shape must have been made in a minute.
    pub from_rate: usize,
}

impl Default for PoolConfig {
    /// One that waits costs less than a megabyte, and more than four are taken only by bursts. A caller who makes a
    /// sandbox every quarter of a minute hardly notices milliseconds.
    fn default() -> Self {
        Self { size: 4, from_rate: 6 }
    }
}

impl PoolConfig {
    const OFF: Self = Self { size: 0, from_rate: usize::MAX };
}

#[derive(Debug)]
pub(super) struct Pool {
    state: Mutex<State>,
    /// Held while the keeper makes a place or takes one back, so that a pool that is closed waits for that.
    keeping: tokio::sync::Mutex<()>,
    changed: Arc<Notify>,
    /// Sandboxes that are being made right now.
    n_busy: AtomicUsize,
}

#[derive(Debug)]
struct State {
    config: PoolConfig,
    /// The last plan that a place could serve.
    template: Option<SandboxPlan>,
    /// When sandboxes of its shape were made, the oldest first.
    made: VecDeque<Instant>,
    last_made: Instant,
    waiting: Vec<Place>,
    offered: BTreeMap<SandboxId, Offer>,
    /// Ids of all places that exist or are being made: no sweep touches them.
    ids: BTreeSet<SandboxId>,
    is_kept: bool,
}

/// A complete place without a sandbox.
#[derive(Debug)]
struct Place {
    id: SandboxId,
    standing: Standing,
    limits: LimitsPlan,
    /// The state of the host when it was made.
    ground: Ground,
}

/// A place that a sandbox takes. It gets its name while the sandbox's record is written.
#[derive(Debug)]
pub(super) struct Offer {
    named: JoinHandle<Result<Place, BackendError>>,
    since: Instant,
}

impl Default for Pool {
    fn default() -> Self {
        let state = State {
            config: PoolConfig::OFF,
            template: None,
            made: VecDeque::new(),
            last_made: Instant::now(),
            waiting: Vec::new(),
            offered: BTreeMap::new(),
            ids: BTreeSet::new(),
            is_kept: false,
        };
        Self {
            state: Mutex::new(state),
            keeping: tokio::sync::Mutex::default(),
            changed: Arc::default(),
            n_busy: AtomicUsize::new(0),
        }
    }
}

impl Pool {
    pub(super) fn configure(&self, config: PoolConfig) {
        self.state().config = config;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a create as long as the value lives.
    pub(super) fn busy(&self) -> Busy<'_> {
        self.n_busy.fetch_add(1, Ordering::Relaxed);
        Busy(self)
    }

    pub(super) fn knows(&self, id: &SandboxId) -> bool {
        self.state().ids.contains(id)
    }

    /// The place that was offered for this id. Its sandbox has a record by now.
    pub(super) fn take(&self, id: &SandboxId) -> Option<Offer> {
        let mut state = self.state();
        let offer = state.offered.remove(id)?;
        state.ids.remove(id);
        Some(offer)
    }
}

impl Drop for Pool {
    /// The guests of places that still wait would live on.
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        for place in state.waiting.drain(..) {
            place.standing.half_made.kill();
        }
    }
}

/// A sandbox is being made.
pub(super) struct Busy<'a>(&'a Pool);

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.0.n_busy.fetch_sub(1, Ordering::Relaxed);
        self.0.state().last_made = Instant::now();
    }
}

/// Whether a place could have been made for this plan before it was known.
fn could_wait(plan: &SandboxPlan) -> bool {
    plan.rootfs == RootfsPlan::Host
        && plan.above.is_empty()
        && plan.mounts.is_empty()
        && !plan.limits.disk_is_hard
        && !plan.network.needs_edge()
}

/// Offers a place that fits the plan of a new sandbox, if one waits, and has more made if such plans come often.
pub(super) fn offer(host: &Arc<Host>, plan: &SandboxPlan) -> Option<SandboxId> {
    if !could_wait(plan) {
        return None;
    }
    let now = Instant::now();
    let mut state = host.pool.state();
    if state.config.size == 0 {
        return None;
    }
    let place = state.fitting(plan, now);
    // Makes the keeper wait: the next place is made when the first command of this sandbox has had its time.
    state.last_made = now;
    if !state.is_kept && state.is_often(now) {
        state.is_kept = true;
        tokio::spawn(keep(Arc::downgrade(host)));
    }
    // A place is taken, or places of another shape are wanted.
    host.pool.changed.notify_one();
    let mut place = place?;
    let id = place.id.clone();
    // Whatever happens to it now, nothing of it is left.
    place.standing.half_made.watch_again(host);
    let named = tokio::spawn(named(Arc::clone(host), place, plan.hostname.clone()));
    state.offered.insert(id.clone(), Offer { named, since: now });
    Some(id)
}

impl State {
    /// Notes that a sandbox of this shape is made, and takes a place for it.
    fn fitting(&mut self, plan: &SandboxPlan, now: Instant) -> Option<Place> {
        if self.template.as_ref().is_none_or(|template| template.limits != plan.limits) {
            self.made.clear();
            self.template = Some(plan.clone());
        }
        self.made.push_back(now);
        if self.made.len() > self.config.from_rate.max(1) {
            self.made.pop_front();
        }
        let fits = self.waiting.iter().position(|place| place.limits == plan.limits)?;
        Some(self.waiting.swap_remove(fits))
    }

    /// Whether sandboxes are made often enough for places to wait.
    fn is_often(&self, now: Instant) -> bool {
        let enough = self.made.len() >= self.config.from_rate.max(1);
        enough && self.made.front().is_some_and(|first| now - *first < WINDOW)
    }

    /// Places that nobody will take. Those that were offered in vain undo themselves when they are dropped.
    fn stale(&mut self, now: Instant) -> Vec<Place> {
        let is_often = self.config.size > 0 && self.is_often(now);
        let wanted = self.template.as_ref().map(|template| template.limits.clone());
        let is_stale = |place: &mut Place| !is_often || Some(&place.limits) != wanted.as_ref();
        let (offered, ids) = (&mut self.offered, &mut self.ids);
        offered.retain(|id, offer| {
            let is_kept = now - offer.since <= OFFERED_FOR;
            is_kept || !ids.remove(id)
        });
        self.waiting.extract_if(.., is_stale).collect()
    }
}

/// The next step of the pool's keeper.
enum Step {
    Make(Box<SandboxPlan>),
    Rest(Duration),
    End,
}

fn next_step(host: &Host) -> Step {
    let now = Instant::now();
    let mut state = host.pool.state();
    if state.config.size == 0 || !state.is_often(now) {
        if state.offered.is_empty() {
            state.is_kept = false;
            return Step::End;
        }
        return Step::Rest(OFFERED_FOR);
    }
    let until_quiet = QUIET.saturating_sub(now - state.last_made);
    match state.template.clone().filter(|_| state.waiting.len() < state.config.size) {
        None => Step::Rest(OFFERED_FOR),
        Some(_) if host.pool.n_busy.load(Ordering::Relaxed) > 0 => Step::Rest(QUIET),
        Some(_) if !until_quiet.is_zero() => Step::Rest(until_quiet),
        Some(template) => Step::Make(Box::new(template)),
    }
}

/// Makes places as long as sandboxes are made often, and takes back those that nobody takes.
async fn keep(pool_of: Weak<Host>) {
    while let Some(host) = pool_of.upgrade() {
        let keeping = host.pool.keeping.lock().await;
        let stale = host.pool.state().stale(Instant::now());
        for place in stale {
            take_back(&host, place).await;
        }
        let pause = match next_step(&host) {
            Step::End => return,
            Step::Rest(pause) => pause,
            Step::Make(template) => match make(&host, &template).await {
                Ok(place) => {
                    host.pool.state().waiting.push(place);
                    continue;
                }
                Err(error) => {
                    tracing::warn!(%error, "no place can be made beforehand");
                    AFTER_FAILURE
                }
            },
        };
        drop(keeping);
        // Not held while resting: a back end that is given up ends.
        let changed = Arc::clone(&host.pool.changed);
        drop(host);
        drop(tokio::time::timeout(pause, changed.notified()).await);
    }
}

/// Makes a place for plans like this one.
async fn make(host: &Arc<Host>, template: &SandboxPlan) -> Result<Place, BackendError> {
    let began = Instant::now();
    let id = random_id()?;
    host.pool.state().ids.insert(id.clone());
    let made = make_with(host, template, id.clone(), began).await;
    if made.is_err() {
        host.pool.state().ids.remove(&id);
    }
    made
}

async fn make_with(
    host: &Arc<Host>,
    template: &SandboxPlan,
    id: SandboxId,
    began: Instant,
) -> Result<Place, BackendError> {
    let turn = host.turn(&id).await;
    host.spawner.at_hand().await?;
    let half_made = HalfMade::new(Arc::clone(host), id.clone(), turn);
    let plan = SandboxPlan { id: id.clone(), hostname: id.to_string(), ..template.clone() };
    let worker = Arc::clone(host);
    let work = move || {
        // What changes from now on makes the place another one than a new one would be.
        let ground = worker.ground()?;
        Ok::<_, BackendError>((ground, create::begin(&worker, &plan, half_made, For::Pool)?))
    };
    let (ground, begun) = tokio::task::spawn_blocking(work).await.map_err(error::from_join)??;
    let (mut standing, _costs) = create::stand(began, begun).await?;
    // Once it greets, all of its start is behind it.
    let stream = socket::connect_unix(&id, &host.directories.place(&id).socket()).await?;
    let greeted = tokio::time::timeout(START_TIME, stream.readable()).await;
    greeted
        .map_err(|_elapsed| BackendError::TimedOut { what: format!("the start of {id}"), after: START_TIME })?
        .map_err(|error| error::from_io(format!("could not reach the guest of {id}"), error))?;
    standing.stream = Some(stream);
    // Else the pool, which is a part of the host, would hold the host.
    standing.half_made.let_be();
    Ok(Place { id, standing, limits: template.limits.clone(), ground })
}

fn random_id() -> Result<SandboxId, BackendError> {
    let mut bytes = [0; 8];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())
        .map_err(|error| error::from_io("could not get random numbers from the host", error.into()))?;
    Ok(SandboxId::from_random(bytes))
}

async fn take_back(host: &Arc<Host>, place: Place) {
    let Place { id, mut standing, .. } = place;
    standing.half_made.watch_again(host);
    standing.half_made.undo().await;
    host.pool.state().ids.remove(&id);
}

/// Takes back all that waits, and makes no more.
pub(super) async fn close(host: &Arc<Host>) {
    host.pool.configure(PoolConfig::OFF);
    // Whatever the keeper does next, it makes nothing. What hangs is left to the next daemon.
    drop(tokio::time::timeout(END_TIME, host.pool.keeping.lock()).await);
    let (offered, waiting) = {
        let mut state = host.pool.state();
        (std::mem::take(&mut state.offered), std::mem::take(&mut state.waiting))
    };
    for place in waiting {
        take_back(host, place).await;
    }
    for offer in offered.into_values() {
        if let Ok(Ok(place)) = offer.named.await {
            take_back(host, place).await;
        }
    }
}

/// Makes an offered place the sandbox of this plan. A failure takes the place back.
pub(super) async fn use_place(
    host: &Arc<Host>,
    offer: Offer,
    plan: &SandboxPlan,
    began: Instant,
) -> Result<(NamespaceInstance, CreateCosts), BackendError> {
    let Place { mut standing, .. } = offer.named.await.map_err(error::from_join)??;
    if let Err(error) = settle(host, &mut standing, plan) {
        standing.half_made.undo().await;
        return Err(error);
    }
    let instance = standing.into_instance(host, Vec::new()).await?;
    Ok((instance, CreateCosts { begin: began.elapsed(), cage: Duration::ZERO, steps: Vec::new() }))
}

/// Gives a place the name of its sandbox, unless a new one would be another by now. A failure takes the place back.
async fn named(host: Arc<Host>, place: Place, hostname: String) -> Result<Place, BackendError> {
    let (ground, worker) = (place.ground.clone(), Arc::clone(&host));
    let is_current = tokio::task::spawn_blocking(move || worker.ground().is_ok_and(|now| now == ground));
    let (named, is_current) = tokio::join!(name(&place.standing, &hostname), is_current);
    let failed = match (named, is_current) {
        (Ok(()), Ok(true)) => return Ok(place),
        (Err(error), _) => error,
        (Ok(()), _) => {
            let what = "the host changed since it was made".to_owned();
            BackendError::Failed { what, source: None }
        }
    };
    place.standing.half_made.undo().await;
    Err(failed)
}

async fn name(standing: &Standing, hostname: &str) -> Result<(), BackendError> {
    let gone = || super::spawner::gone(std::io::ErrorKind::UnexpectedEof.into());
    let reply = standing.half_made.reply().ok_or_else(gone)?;
    let files = names::files_with_the_name(hostname).into_iter();
    let inside = |(path, text): (String, String)| (path.replacen("root/upper", "", 1), text);
    let naming = Naming { hostname: hostname.to_owned(), files: files.map(inside).collect() };
    reply.name(&naming).map_err(super::spawner::gone)?;
    match tokio::time::timeout(NAME_TIME, receive(reply)).await {
        Ok(Ok((Reply::Done, _))) => Ok(()),
        Ok(Ok((Reply::Failed(failure), _))) => {
            Err(error::from_failure("could not set its name".to_owned(), failure))
        }
        Ok(Ok((other, _))) => Err(unexpected(&other)),
        Ok(Err(error)) => Err(error),
        Err(_elapsed) => {
            Err(BackendError::TimedOut { what: "setting its name".to_owned(), after: NAME_TIME })
        }
    }
}

/// Puts the files of a place where those of a sandbox are, and notes what is to be said of its walls.
fn settle(host: &Host, standing: &mut Standing, plan: &SandboxPlan) -> Result<(), BackendError> {
    let moved = standing.half_made.move_files(host);
    moved.map_err(|error| error::from_io("could not move its files", error))?;
    let isolation = create::isolation(host, plan, &DiskHold::Accounting { note: None }, None);
    if isolation != standing.isolation {
        let place = host.directories.place(&plan.id);
        let noted = Record::read(&place)
            .and_then(|record| Record { isolation: isolation.clone(), ..record }.replace(&place));
        noted.map_err(|error| error::from_io("could not note its walls", error))?;
        standing.isolation = isolation;
    }
    Ok(())
}

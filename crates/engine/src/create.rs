//! Making a sandbox: a name, a plan, a record, an instance. In this order.

use std::{
    fs::DirBuilder,
    io,
    os::unix::fs::DirBuilderExt,
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use images::Progress;
use sandbox::{
    Base, Defaults, Error, ErrorKind, ExecSpec, Lifetime, Next, OnExpiry, PortSpec, Result, SandboxId,
    SandboxSpec, SandboxState, Subject, plan,
};
use store::{ExecRecord, SandboxRecord, StoreError};
use tokio::sync::oneshot;
use tracing::{Instrument as _, field::Empty};

use crate::{
    CreateRequest, Engine, ExecView, Force, GivenSecrets, Principal, SandboxRef, SandboxView, base, build,
    core::Core,
    driver::{Birth, Conceived, Driver},
    error, exec,
    metrics::ExecKind,
    names, network,
    patches::Pending,
    ports,
    request_hash::{self, request_hash},
    secrets,
    shared::{Gone, Shared},
};

/// Attempts to find a free name, or to find the sandbox of the same request before it is removed again.
const MAX_TRIES: usize = 16;

/// The sandbox to replace, and the base found while it still existed. A registry is not asked again while neither of
/// the two runs.
#[derive(Debug)]
pub(crate) struct Instead {
    pub(crate) of: SandboxId,
    pub(crate) base: base::HeldBase,
}

pub(crate) enum Attempt {
    /// With the start of its first exec, if it was made for this request and has one.
    Made(Arc<Shared>, Option<Began>),
    /// The invented name was taken, or the sandbox of the same request was removed meanwhile.
    Again,
}

/// Resolves when the first exec runs, or cannot.
type Began = oneshot::Receiver<Result<ExecRecord>>;

/// A command that is requested together with its sandbox.
#[derive(Debug, Clone)]
pub struct FirstExec {
    pub spec: ExecSpec,
    /// Its program is [`Engine::shell`] of the new sandbox, whatever the spec says.
    pub in_default_shell: bool,
}

impl From<ExecSpec> for FirstExec {
    fn from(spec: ExecSpec) -> Self {
        Self { spec, in_default_shell: false }
    }
}

/// A new sandbox with the command that was requested together with it.
#[derive(Debug)]
pub struct NewRun {
    pub sandbox: SandboxView,
    /// It runs, or it turned out not to start (state `Done`, outcome `NotStarted`).
    pub exec: ExecView,
    /// Made for this request; false if the same request made it before.
    pub is_new: bool,
}

impl Engine {
    /// Makes a sandbox and starts a command in it: like [`Engine::create_sandbox`] and then [`Engine::exec`], in less
    /// time, because much of the second is done during the first. A failure leaves nothing behind.
    #[crate::boxed]
    pub async fn create_and_exec(
        &self,
        who: &Principal,
        request: CreateRequest,
        first: FirstExec,
        progress: Progress,
    ) -> Result<NewRun> {
        build::check_label_keys(request.spec.labels.keys())?;
        first.spec.check().map_err(Error::from)?;
        // In a task of its own: a caller who goes away leaves a whole sandbox or none.
        let (engine, who) = (self.for_task(), who.clone());
        let running = async move { engine.run_new(&who, request, first, progress).await };
        let making = self.core().drivers.spawn(running.in_current_span());
        making.await.map_err(|_aborted| error::closing())?
    }

    async fn run_new(
        &self,
        who: &Principal,
        request: CreateRequest,
        first: FirstExec,
        progress: Progress,
    ) -> Result<NewRun> {
        let FirstExec { mut spec, in_default_shell } = first.clone();
        let (shared, view, began) = self.create_whole(who, request, progress, None, Some(first)).await?;
        let Some(began) = began else {
            let which = SandboxRef::from(&view.id);
            if in_default_shell
                && let (Ok(shell), Some(program)) = (self.shell(who, &which).await, spec.command.first_mut())
            {
                *program = shell;
            }
            let exec = self.exec(who, &which, spec).await?;
            return Ok(NewRun { sandbox: view, exec, is_new: false });
        };
        let (kind, since) = (ExecKind::of(&spec), Instant::now());
        let began = began.await.map_err(|_dropped| error::closing()).flatten();
        self.core().metrics.exec_asked(kind, &began, since.elapsed());
        match began {
            Ok(record) => Ok(NewRun { sandbox: view, exec: exec::view_of(&shared, record), is_new: true }),
            Err(error) => {
                // The key may have ended meanwhile.
                let ender = Principal { key: None, session: None, ..who.clone() };
                if let Err(error) = self.remove_sandbox(&ender, &SandboxRef::from(&view.id), Force::Yes).await
                {
                    tracing::warn!(sandbox = %view.id, %error, "a sandbox whose command did not begin stays");
                }
                Err(error)
            }
        }
    }

    /// Makes a sandbox and returns when it runs, with its patches applied. A failure leaves nothing behind. A repeated
    /// `requestId` returns the sandbox of the first request, waiting until it is ready.
    ///
    /// A caller who goes away in the middle leaves a complete sandbox or none.
    pub async fn create_sandbox(
        &self,
        who: &Principal,
        request: impl Into<CreateRequest>,
    ) -> Result<SandboxView> {
        self.create_sandbox_with(who, request, Progress::none()).await
    }

    /// Like [`Engine::create_sandbox`], and reports the progress of its image's pull, if there is one.
    pub async fn create_sandbox_with(
        &self,
        who: &Principal,
        request: impl Into<CreateRequest>,
        progress: Progress,
    ) -> Result<SandboxView> {
        let request = request.into();
        build::check_label_keys(request.spec.labels.keys())?;
        self.create_any(who, request, progress, None).await
    }

    /// The same for builds too, whose sandboxes carry a reserved label.
    #[crate::boxed]
    pub(crate) async fn create_any(
        &self,
        who: &Principal,
        request: CreateRequest,
        progress: Progress,
        instead: Option<Instead>,
    ) -> Result<SandboxView> {
        Ok(self.create_whole(who, request, progress, instead, None).await?.1)
    }

    async fn create_whole(
        &self,
        who: &Principal,
        request: CreateRequest,
        progress: Progress,
        instead: Option<Instead>,
        first: Option<FirstExec>,
    ) -> Result<(Arc<Shared>, SandboxView, Option<Began>)> {
        let began = Instant::now();
        let span = tracing::info_span!(
            target: "trace", "create", sandbox.id = Empty, sandbox.backend = Empty, error = Empty,
        );
        let made = self.try_create(who, request, progress, instead, first).instrument(span.clone()).await;
        match &made {
            Ok((_, view, _)) => {
                span.record("sandbox.id", view.id.as_str());
                span.record("sandbox.backend", view.plan.backend.as_str());
            }
            Err(error) => drop(span.record("error", error.kind().as_str())),
        }
        let backend = made.as_ref().ok().map(|(_, view, _)| view.plan.backend);
        self.core().metrics.created(&made, backend, began.elapsed());
        made
    }

    async fn try_create(
        &self,
        who: &Principal,
        mut request: CreateRequest,
        progress: Progress,
        instead: Option<Instead>,
        first: Option<FirstExec>,
    ) -> Result<(Arc<Shared>, SandboxView, Option<Began>)> {
        self.check_caller(who, &request.spec)?;
        let hash = hash_of(&mut request);
        let pending = Pending::take_from(who, &mut request)?;
        let is_unlimited = request.spec.lifetime.ttl.is_none() && request.spec.lifetime.idle.is_none();
        let idle = self.core().config.agent_idle.filter(|_| request.by_agent && is_unlimited);
        let mut spec = request.spec;
        if idle.is_some() {
            // Agents forget what they made. Its files stay when it stops, whatever `on_expiry` said.
            spec.lifetime = Lifetime { ttl: None, idle, on_expiry: OnExpiry::Stop };
        }
        let said = idle.map(said_idle);
        let (replaces, mut base) = instead.map(|instead| (instead.of, instead.base)).unzip();
        for _ in 0..MAX_TRIES {
            // A base found earlier is used once.
            let base = base.take();
            let wanted = Wanted {
                spec: &spec,
                hash: hash.as_deref(),
                pending: &pending,
                replaces: replaces.as_ref(),
                first: first.as_ref(),
            };
            match attempt(self.core(), who, wanted, &progress, base).await? {
                Attempt::Made(shared, began) => {
                    let mut view = shared.view();
                    view.warnings.extend(said);
                    return Ok((shared, view, began));
                }
                Attempt::Again => {}
            }
        }
        Err(gave_up(&spec))
    }

    /// Whether this sandbox could be made now if `instead_of` were gone: checked before that one is removed for it.
    /// Returns the sandbox to remove, if it exists.
    ///
    /// The create checks again. It can still fail if another caller takes the slot in between.
    pub(crate) async fn check_create(
        &self,
        who: &Principal,
        spec: &SandboxSpec,
        given: &GivenSecrets,
        instead_of: &SandboxRef,
        progress: &Progress,
    ) -> Result<Option<Instead>> {
        self.check_caller(who, spec)?;
        let core = self.core();
        let mut base = base::find(core, who, spec, progress).await?;
        base.base.secrets = secrets::resolve(core, spec, given).await?;
        let planned = new_record(core, who, spec, &base.base)?;
        let replaced = match core.find_to_change(who, instead_of).await {
            Ok(shared) => Some(shared.subject.id.clone()),
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        core.check_room(who, core.claimed_memory(&planned.plan), replaced.as_ref())?;
        Ok(replaced.map(|of| Instead { of, base }))
    }

    fn check_caller(&self, who: &Principal, spec: &SandboxSpec) -> Result<()> {
        who.may_create_in(&spec.namespace)?;
        self.core().keys.admit(who, self.core().clock.now())?;
        check_lifetime(&spec.lifetime)?;
        sandbox::check_ports(&spec.ports)?;
        spec.ports
            .iter()
            .filter_map(PortSpec::listen)
            .try_for_each(|at| ports::check_address(self.core(), who, at))?;
        // Before anything is pulled, or removed to make room.
        let core = self.core();
        sandbox::check_spec(spec, &defaults_for(core, who, spec), core.backends.capabilities()).map(drop)
    }
}

/// Words the notice for a caller who set no time limit.
fn said_idle(idle: Duration) -> String {
    let seconds = idle.as_secs();
    let span = match seconds {
        _ if seconds >= 3600 && seconds.is_multiple_of(3600) => format!("{} h", seconds / 3600),
        _ if seconds >= 60 && seconds.is_multiple_of(60) => format!("{} min", seconds / 60),
        _ => format!("{} s", idle.as_secs_f64()),
    };
    format!("No limit of time was set, so it stops after {span} without use; its files are kept.")
}

/// After [`MAX_TRIES`]: either all invented names were taken, or each sandbox of the same request was removed again.
fn gave_up(spec: &SandboxSpec) -> Error {
    let error = |message| Error::new(ErrorKind::Unavailable, message);
    match &spec.request_id {
        Some(request) => error(format!(
            "the sandbox of request {request} kept being removed while this request waited for it"
        ))
        .with_next(Next::Retry),
        None => error("could not find a free name".to_owned()).with_hint("Give the sandbox a name."),
    }
}

/// The sandbox that one attempt is to make.
struct Wanted<'a> {
    spec: &'a SandboxSpec,
    /// The hash of its request.
    hash: Option<&'a str>,
    pending: &'a Pending,
    replaces: Option<&'a SandboxId>,
    first: Option<&'a FirstExec>,
}

async fn attempt(
    core: &Arc<Core>,
    who: &Principal,
    wanted: Wanted<'_>,
    progress: &Progress,
    base: Option<base::HeldBase>,
) -> Result<Attempt> {
    let Wanted { spec, hash, pending, replaces, first } = wanted;
    if let Some(request) = &spec.request_id
        && let Some(shared) = core.requested(who, &spec.namespace, request)
    {
        return earlier(core, &shared, hash).await;
    }
    // Holds the image until the sandbox is known to use it.
    let mut base = match base {
        Some(base) => base,
        None => {
            let finding = tracing::info_span!(target: "trace", "find image", image = spec.image.as_str());
            base::find(core, who, spec, progress).instrument(finding).await?
        }
    };
    base.base.secrets = secrets::resolve(core, spec, &pending.secrets).await?;
    let mut record = new_record(core, who, spec, &base.base)?;
    record.replaces = replaces.cloned();
    record.request_hash = hash.map(str::to_owned);
    if let Some(id) = core.backends.of(&record.plan).ok().and_then(|backend| backend.prepared(&record.plan)) {
        record.plan.id = id.clone();
        record.id = id;
    }
    // Before the record: a port that is taken makes no sandbox, and one that was any gets its number.
    let bound = ports::bind_all(core, who, &spec.ports)?;
    record.ports = bound.iter().map(|(exposed, _)| exposed.clone()).collect();
    // Read first: the obstacle may be removed before we learn of it.
    let was_settled = *core.is_settled.borrow();
    let conceived = Driver::create(core, who, record, pending.clone(), bound, first.cloned())?;
    let Birth { shared, recorded, made, began } = match conceived {
        Conceived::New(birth) => birth,
        Conceived::Known(shared) => return earlier(core, &shared, hash).await,
    };
    drop(base);
    match recorded.await.map_err(|_dropped| error::closing())? {
        Ok(()) => {
            made.await.map_err(|_dropped| error::closing())??;
            Ok(Attempt::Made(shared, began))
        }
        Err(StoreError::NameTaken { .. }) if !was_settled && is_unseen(core, spec) => {
            core.settled().await;
            Ok(Attempt::Again)
        }
        Err(StoreError::NameTaken { .. }) if spec.name.is_none() => Ok(Attempt::Again),
        Err(StoreError::RequestKnown { id }) => match core.reserved(&id) {
            Some(shared) => earlier(core, &shared, hash).await,
            None => {
                // An unfinished create of an earlier daemon that is being cleaned up.
                core.settled().await;
                Ok(Attempt::Again)
            }
        },
        Err(error) => Err(error::from_store(error)),
    }
}

/// Whether the requested name is in use by something invisible: an earlier daemon's unfinished create has it until it
/// is cleaned up.
fn is_unseen(core: &Core, spec: &SandboxSpec) -> bool {
    spec.name.as_ref().is_some_and(|name| !core.is_name_known(&spec.namespace, name))
}

/// None without a request id: nobody will compare it.
fn hash_of(request: &mut CreateRequest) -> Option<String> {
    request.spec.request_id.as_ref()?;
    request.request_hash.take().or_else(|| request_hash(&request.spec))
}

/// The sandbox that the same request made before, or is making now. Another request with its id is refused.
pub(crate) async fn earlier(core: &Core, shared: &Arc<Shared>, hash: Option<&str>) -> Result<Attempt> {
    let known = shared.status.borrow().record.request_hash.clone();
    request_hash::check(shared.request_id.as_ref(), known.as_deref(), hash)?;
    let mut status = shared.status.subscribe();
    let settled =
        status.wait_for(|status| status.gone.is_some() || status.record.state != SandboxState::Creating);
    let settled = tokio::select! {
        settled = settled => settled.map_err(|_closed| error::closing())?.gone.clone(),
        () = core.closing.cancelled() => return Err(error::closing()),
    };
    match settled {
        None => Ok(Attempt::Made(Arc::clone(shared), None)),
        Some(Gone::NotMade(refusal)) => Err(refusal.clone()),
        Some(Gone::Removed) => Ok(Attempt::Again),
    }
}

fn defaults_for(core: &Core, who: &Principal, spec: &SandboxSpec) -> Defaults {
    let defaults = Defaults { ceilings: network::ceilings(core, who), ..core.config.defaults.clone() };
    match build::is_of_builds(spec) {
        true => build::defaults(&defaults),
        false => defaults,
    }
}

fn new_record(core: &Core, who: &Principal, spec: &SandboxSpec, base: &Base) -> Result<SandboxRecord> {
    let id = names::random_sandbox_id()?;
    let name = spec.name.clone().map_or_else(names::random_name, Ok)?;
    let defaults = defaults_for(core, who, spec);
    let plan = plan(&id, &name, spec, &defaults, base, core.backends.capabilities())?;
    let now = core.clock.now();
    Ok(SandboxRecord {
        id,
        name,
        namespace: spec.namespace.clone(),
        spec: SandboxSpec { ports: Vec::new(), ..spec.clone() },
        plan,
        state: SandboxState::Creating,
        reason: None,
        isolation: None,
        created_at: now,
        started_at: None,
        stopped_at: None,
        expires_at: None,
        lifetime: spec.lifetime.clone(),
        last_active_at: now,
        owner: who.key.clone(),
        replaces: None,
        ports: Vec::new(),
        network_requests: Vec::new(),
        request_hash: None,
    })
}

pub(crate) fn check_lifetime(lifetime: &Lifetime) -> Result<()> {
    for (what, span) in [("time to live", lifetime.ttl), ("idle limit", lifetime.idle)] {
        if span.is_some_and(|span| span < Duration::from_millis(1)) {
            return Err(Error::invalid(format!("the {what} must be longer than zero"))
                .with_hint(format!("Omit the {what} for a sandbox without one.")));
        }
    }
    Ok(())
}

/// Makes `sandboxes/<id>` with its `logs`. The home itself is not made: if it is gone, something is wrong that a new
/// directory would hide.
pub(crate) fn make_directory(directory: &Path) -> Result<()> {
    if let Some(all) = directory.parent() {
        make_private(all).or_else(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => Ok(()),
            _ => Err(error::from_io("create the directory", all, error)),
        })?;
    }
    for directory in [directory, &directory.join("logs")] {
        make_private(directory).map_err(|error| error::from_io("create the directory", directory, error))?;
    }
    Ok(())
}

/// Removes the directories of [`make_directory`], while they are empty.
pub(crate) fn unmake_directory(directory: &Path) {
    for directory in [&directory.join("logs"), directory] {
        if let Err(error) = std::fs::remove_dir(directory) {
            tracing::warn!(directory = %directory.display(), %error, "an empty directory stays");
        }
    }
}

fn make_private(directory: &Path) -> io::Result<()> {
    DirBuilder::new().mode(0o700).create(directory)
}

/// Checks the files from which a stopped sandbox is started.
pub(crate) fn check_directory(directory: &Path, label: &Subject) -> Result<()> {
    if directory.is_dir() {
        return Ok(());
    }
    let message = format!("the files of {label} are gone: no directory {}", directory.display());
    Err(Error::new(ErrorKind::Unavailable, message)
        .with_hint("Restore the directory from a backup, or remove the sandbox and create another."))
}

//! Making a sandbox: a name, a plan, a record, a place. In this order.

use std::{
    borrow::Cow, fs::DirBuilder, io, os::unix::fs::DirBuilderExt, path::Path, sync::Arc, time::Duration,
};

use images::Progress;
use sandbox::{
    Base, Defaults, Error, ErrorKind, Lifetime, Result, SandboxId, SandboxSpec, SandboxState, Subject, plan,
};
use store::{SandboxRecord, StoreError};

use crate::{
    CreateRequest, Engine, Principal, SandboxRef, SandboxView, base, build,
    core::Core,
    driver::{Birth, Conceived, Driver},
    error, names,
    patches::Pending,
    shared::{Gone, Shared},
};

/// Tries to find a name that is free, or to find the sandbox of the same request before it is gone again.
const MAX_TRIES: usize = 16;

/// What a new sandbox takes the place of, and what was found for it when that was still there. A registry is not asked again
/// while neither of the two runs.
#[derive(Debug)]
pub(crate) struct Instead {
    pub(crate) of: SandboxId,
    pub(crate) found: base::Found,
}

/// How one try ended.
pub(crate) enum Attempt {
    Made(Arc<Shared>),
    /// The made-up name was taken, or the sandbox of the same request went away meanwhile.
    Again,
}

impl Engine {
    /// Makes a sandbox and returns when it runs, with its patches applied. A failure leaves nothing behind. The same
    /// `requestId` again returns the sandbox of the first request, waiting for it where it is not ready.
    ///
    /// A caller who goes away in the middle leaves a whole sandbox or none.
    pub async fn create_sandbox(
        &self,
        who: &Principal,
        request: impl Into<CreateRequest>,
    ) -> Result<SandboxView> {
        self.create_sandbox_with(who, request, Progress::none()).await
    }

    /// As [`Engine::create_sandbox`], and tells how the pull of its image goes on, where there is one.
    pub async fn create_sandbox_with(
        &self,
        who: &Principal,
        request: impl Into<CreateRequest>,
        progress: Progress,
    ) -> Result<SandboxView> {
        let request = request.into();
        build::check_labels(&request.spec)?;
        self.create_any(who, request, progress, None).await
    }

    /// The same for a build too, whose sandboxes carry a label that nobody else may give.
    pub(crate) async fn create_any(
        &self,
        who: &Principal,
        mut request: CreateRequest,
        progress: Progress,
        instead: Option<Instead>,
    ) -> Result<SandboxView> {
        self.check_caller(who, &request.spec)?;
        let pending = Pending::take_from(who, &mut request)?;
        let spec = request.spec;
        let (replaces, mut found) = instead.map(|instead| (instead.of, instead.found)).unzip();
        for _ in 0..MAX_TRIES {
            // What was found before is as good as what would be found now, once.
            let found = found.take();
            match attempt(self.core(), who, &spec, &pending, &progress, replaces.as_ref(), found).await? {
                Attempt::Made(shared) => return Ok(shared.view()),
                Attempt::Again => {}
            }
        }
        Err(gave_up(&spec))
    }

    /// Whether this sandbox could be made now if `instead_of` were gone: to ask before that one is removed for its sake.
    /// Returns the one that would have to go, if it is there.
    ///
    /// Making it asks again. Who else takes the place in between can still make it fail.
    pub(crate) async fn check_create(
        &self,
        who: &Principal,
        spec: &SandboxSpec,
        instead_of: &SandboxRef,
        progress: &Progress,
    ) -> Result<Option<Instead>> {
        self.check_caller(who, spec)?;
        let core = self.core();
        let found = base::find(core, who, spec, progress).await?;
        let planned = new_record(core, who, spec, &found.base)?;
        let replaced = match core.find_to_change(who, instead_of).await {
            Ok(shared) => Some(shared.subject.id.clone()),
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        core.check_room(who, core.claimed_memory(&planned.plan), replaced.as_ref())?;
        Ok(replaced.map(|of| Instead { of, found }))
    }

    fn check_caller(&self, who: &Principal, spec: &SandboxSpec) -> Result<()> {
        who.may_create_in(&spec.namespace)?;
        self.core().keys.admit(who, self.core().clock.now())?;
        check_lifetime(&spec.lifetime)?;
        // Before anything is pulled, or goes to make room.
        let core = self.core();
        sandbox::check_spec(spec, &defaults_for(core, spec), core.backends.capabilities()).map(drop)
    }
}

/// After [`MAX_TRIES`]: either all made-up names were taken, or each sandbox of the same request went away again.
fn gave_up(spec: &SandboxSpec) -> Error {
    let error = |message| Error::new(ErrorKind::Unavailable, message);
    match &spec.request_id {
        Some(request) => {
            error(format!("the sandbox of request {request} was removed repeatedly while waiting for it"))
                .with_hint("Try again.")
        }
        None => error("could not find a free name".to_owned()).with_hint("Give the sandbox a name."),
    }
}

async fn attempt(
    core: &Arc<Core>,
    who: &Principal,
    spec: &SandboxSpec,
    pending: &Pending,
    progress: &Progress,
    replaces: Option<&SandboxId>,
    found: Option<base::Found>,
) -> Result<Attempt> {
    if let Some(request) = &spec.request_id
        && let Some(shared) = core.requested(&spec.namespace, request)
    {
        return earlier(core, &shared).await;
    }
    // Holds on to the image until the sandbox is known to use it.
    let found = match found {
        Some(found) => found,
        None => base::find(core, who, spec, progress).await?,
    };
    let mut record = new_record(core, who, spec, &found.base)?;
    record.replaces = replaces.cloned();
    // Asked first: what is in the way may be cleared away before we are told of it.
    let was_settled = *core.is_settled.borrow();
    let Birth { shared, recorded, made } = match Driver::create(core, who, record, pending.clone())? {
        Conceived::New(birth) => birth,
        Conceived::Known(shared) => return earlier(core, &shared).await,
    };
    drop(found);
    match recorded.await.map_err(|_dropped| error::closing())? {
        Ok(()) => {
            made.await.map_err(|_dropped| error::closing())??;
            Ok(Attempt::Made(shared))
        }
        Err(StoreError::NameTaken { .. }) if !was_settled && is_unseen(core, spec) => {
            core.settled().await;
            Ok(Attempt::Again)
        }
        Err(StoreError::NameTaken { .. }) if spec.name.is_none() => Ok(Attempt::Again),
        Err(StoreError::RequestKnown { id }) => match core.reserved(&id) {
            Some(shared) => earlier(core, &shared).await,
            None => {
                // A create that an earlier daemon did not finish, and that is being cleared away.
                core.settled().await;
                Ok(Attempt::Again)
            }
        },
        Err(error) => Err(error::from_store(error)),
    }
}

/// Whether a name was asked for that nobody can see in use: a create that an earlier daemon did not finish has it until that is
/// cleared away.
fn is_unseen(core: &Core, spec: &SandboxSpec) -> bool {
    spec.name.as_ref().is_some_and(|name| !core.is_name_known(&spec.namespace, name))
}

/// The sandbox that the same request made before, or is making now.
pub(crate) async fn earlier(core: &Core, shared: &Arc<Shared>) -> Result<Attempt> {
    let mut status = shared.status.subscribe();
    let settled =
        status.wait_for(|status| status.gone.is_some() || status.record.state != SandboxState::Creating);
    let settled = tokio::select! {
        settled = settled => settled.map_err(|_closed| error::closing())?.gone.clone(),
        () = core.closing.cancelled() => return Err(error::closing()),
    };
    match settled {
        None => Ok(Attempt::Made(Arc::clone(shared))),
        Some(Gone::NotMade(refusal)) => Err(refusal.clone()),
        Some(Gone::Removed) => Ok(Attempt::Again),
    }
}

fn defaults_for<'a>(core: &'a Core, spec: &SandboxSpec) -> Cow<'a, Defaults> {
    let defaults = &core.config.defaults;
    match build::is_of_builds(spec) {
        true => Cow::Owned(build::defaults(defaults)),
        false => Cow::Borrowed(defaults),
    }
}

fn new_record(core: &Core, who: &Principal, spec: &SandboxSpec, base: &Base) -> Result<SandboxRecord> {
    let id = names::random_sandbox_id()?;
    let name = spec.name.clone().map_or_else(names::random_name, Ok)?;
    let plan = plan(&id, &name, spec, &defaults_for(core, spec), base, core.backends.capabilities())?;
    let now = core.clock.now();
    Ok(SandboxRecord {
        id,
        name,
        namespace: spec.namespace.clone(),
        spec: spec.clone(),
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

/// Makes `sandboxes/<id>` with its `logs`. The home itself is not made: where it is gone, something is wrong that a new
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

/// Takes back what [`make_directory`] made, while nobody has put anything into it.
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

/// A stopped sandbox is started from its files.
pub(crate) fn check_directory(directory: &Path, label: &Subject) -> Result<()> {
    if directory.is_dir() {
        return Ok(());
    }
    let message = format!("the files of {label} are gone: no directory {}", directory.display());
    Err(Error::new(ErrorKind::Unavailable, message)
        .with_hint("Restore the directory from a backup, or remove the sandbox and create another."))
}

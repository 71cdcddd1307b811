//! Replaces a sandbox by another of the same name. The earlier one is renamed, with its files, and removed when the new
//! one runs: whatever fails, and whenever the daemon dies, one of the two exists.

use std::time::Duration;

use images::Progress;
use sandbox::{Error, ErrorKind, Result, SandboxId, SandboxName, SandboxState};
use store::{SandboxRecord, Store};
use tokio::sync::oneshot;

use crate::{
    CreateRequest, Engine, Force, Principal, SandboxRef, SandboxView, build,
    core::{Changeable, until},
    create::Instead,
    driver::Command,
    error,
    lifecycle::ask,
    names,
};

/// Between the name of a sandbox that was set aside and random letters.
const ASIDE: &str = "-replaced-";
const MAX_NAME_BYTES: usize = 63;

impl Engine {
    /// Like [`Engine::create_sandbox_with`], replacing `earlier` if that exists. Everything that can be checked is
    /// checked before anything happens to it; until then a caller who goes away changes nothing. Then it is stopped,
    /// with this much grace, and replaced whether or not anybody waits; if the new one still fails, it gets its name
    /// back and is started again if it ran.
    pub async fn replace_sandbox(
        &self,
        who: &Principal,
        request: impl Into<CreateRequest>,
        earlier: &SandboxRef,
        grace: Option<Duration>,
        progress: Progress,
    ) -> Result<SandboxView> {
        self.replace(who, request.into(), earlier, grace, progress).await
    }

    #[crate::boxed]
    async fn replace(
        &self,
        who: &Principal,
        request: CreateRequest,
        earlier: &SandboxRef,
        grace: Option<Duration>,
        progress: Progress,
    ) -> Result<SandboxView> {
        let core = self.core();
        build::check_label_keys(request.spec.labels.keys())?;
        let turn = core.replacing.take((request.spec.namespace.clone(), request.spec.name.clone())).await;
        let CreateRequest { spec, secrets, .. } = &request;
        let (spec, secrets) = (spec.clone(), secrets.clone());
        let Some(instead) = self.check_create(who, &spec, &secrets, earlier, &progress).await? else {
            return self.create_any(who, request, progress, None).await;
        };
        // By its id from here on: this one was checked, and not another that may have the name by then.
        let found = core.find_to_change(who, &SandboxRef::from(&instead.of)).await?;
        let replacing = Replacing { engine: self.for_task(), who: who.clone(), found, grace };
        let (tell, told) = oneshot::channel();
        let closing = core.closing.clone();
        core.drivers.spawn(async move {
            let work = async {
                let made = replacing.run(request, instead).await;
                // The caller may be gone; the new one stays, since the earlier one is gone.
                drop((tell.send(made), turn));
            };
            until(&closing, work).await;
        });
        told.await.map_err(|_dropped| error::closing())?
    }
}

struct Replacing {
    engine: Engine,
    who: Principal,
    /// The earlier one.
    found: Changeable,
    grace: Option<Duration>,
}

impl Replacing {
    async fn run(&self, request: CreateRequest, instead: Instead) -> Result<SandboxView> {
        let id = &self.found.subject.id;
        let which = SandboxRef::from(id);
        let had_processes = matches!(self.found.state(), SandboxState::Running | SandboxState::Paused);
        let name = self.found.status.borrow().record.name.clone();
        let aside = aside(&name)?;
        match self.engine.stop_sandbox(&self.who, &which, Some(self.grace.unwrap_or_default())).await {
            // A failed sandbox cannot be stopped but can be replaced.
            Err(error) if error.kind() != ErrorKind::WrongState => return Err(error),
            _ => {}
        }
        let made = match self.rename(aside, false).await {
            // Everything was pulled during the check.
            Ok(()) => self.engine.create_any(&self.who, request, Progress::none(), Some(instead)).await,
            Err(error) => Err(error),
        };
        match made {
            Ok(mut made) => {
                let removed = self.engine.remove_sandbox(&self.who, &which, Force::Yes).await;
                if let Err(error) = removed.or_else(gone) {
                    let kept = self.kept_name();
                    // It must not get its earlier name back once the new one is gone.
                    drop(self.rename(kept.clone(), true).await);
                    made.warnings.push(format!("The old sandbox still exists as {kept}: {error}."));
                }
                Ok(made)
            }
            Err(error) => Err(self.put_back(name, had_processes, error).await),
        }
    }

    /// Returns why it was not replaced, and how the earlier one differs from before.
    async fn put_back(&self, name: SandboxName, had_processes: bool, why: Error) -> Error {
        let id = &self.found.subject.id;
        let renamed = if self.kept_name() == name { Ok(()) } else { self.rename(name, false).await };
        if had_processes && let Err(error) = self.engine.start_sandbox(&self.who, &SandboxRef::from(id)).await
        {
            tracing::warn!(sandbox = %id, error = &error as &dyn std::error::Error, "a sandbox that was not replaced does not run again");
        }
        let Err(error) = renamed else { return why };
        tracing::warn!(sandbox = %id, error = &error as &dyn std::error::Error, "a sandbox that was not replaced keeps another name");
        why.reworded(|why| format!("{why}; the old sandbox is now called {}", self.kept_name()))
    }

    async fn rename(&self, name: SandboxName, for_good: bool) -> Result<()> {
        ask(&self.found, |reply| Command::Rename { name, for_good, reply }).await
    }

    fn kept_name(&self) -> SandboxName {
        self.found.status.borrow().record.name.clone()
    }
}

fn gone(error: Error) -> Result<()> {
    if error.kind() == ErrorKind::NotFound { Ok(()) } else { Err(error) }
}

fn aside(name: &SandboxName) -> Result<SandboxName> {
    let chance = u32::from_le_bytes(names::random_bytes()?);
    let end = format!("{ASIDE}{chance:08x}");
    // Names are ASCII.
    let kept = name.as_str().len().min(MAX_NAME_BYTES - end.len());
    Ok(format!("{}{end}", &name.as_str()[..kept]).parse()?)
}

/// Returns their names to sandboxes that a dead daemon had set aside, and returns those that only remained to be
/// removed. `was_told` is false for creates that were cut short.
pub(crate) async fn settle(
    store: &Store,
    records: &mut [SandboxRecord],
    was_told: impl Fn(&SandboxRecord) -> bool,
) -> Vec<SandboxId> {
    let replaced: Vec<_> = records
        .iter()
        .filter(|record| was_told(record))
        .filter_map(|record| record.replaces.clone())
        .collect();
    let mut to_remove = Vec::new();
    for at in 0..records.len() {
        let before = records[at].clone();
        let asked = before.spec.name.clone().filter(|name| *name != before.name && was_told(&before));
        let Some(name) = asked else { continue };
        if replaced.contains(&before.id) {
            to_remove.push(before.id);
            continue;
        }
        let mut has_it = records.iter().enumerate();
        let holder = has_it.find(|(_, other)| other.namespace == before.namespace && other.name == name);
        let holder = holder.map(|(holder, other)| (holder, was_told(other)));
        if let Err(error) = give_back(store, records, at, name, holder).await {
            tracing::warn!(sandbox = %before.id, error = &error as &dyn std::error::Error, "it keeps another name");
            records[at] = before;
        }
    }
    to_remove
}

async fn give_back(
    store: &Store,
    records: &mut [SandboxRecord],
    at: usize,
    name: SandboxName,
    holder: Option<(usize, bool)>,
) -> Result<()> {
    match holder {
        // Another sandbox took the name before it could be given back. It keeps the other one from now on.
        Some((_, true)) => records[at].spec.name = Some(records[at].name.clone()),
        // Its replacement is removed in any case, and must not be in the way.
        Some((holder, false)) => {
            records[holder].name = aside(&name)?;
            store.update_sandbox(records[holder].clone()).await.map_err(error::from_store)?;
            records[at].name = name;
        }
        None => records[at].name = name,
    }
    store.update_sandbox(records[at].clone()).await.map_err(error::from_store)
}

//! A sandbox in the place of another of the same name. The earlier one is put aside under another name, with its files, and
//! removed when the new one runs: whatever fails, and wherever the daemon dies, one of the two is there.

use std::{sync::Arc, time::Duration};

use images::Progress;
use sandbox::{ErrorKind, Result, SandboxName, SandboxState};
use tokio::sync::oneshot;

use crate::{
    CreateRequest, Engine, Force, Principal, SandboxRef, SandboxView, build,
    core::{Changeable, Core},
    driver::Command,
    lifecycle::ask,
    names,
    shared::Shared,
};

/// Between the name of one that was put aside and some letters of chance.
const ASIDE: &str = "-replaced-";
const MAX_NAME_BYTES: usize = 63;

impl Engine {
    /// As [`Engine::create_sandbox_with`], in the place of `earlier` where that is there. All that can be found out before is
    /// found out before anything happens to it. Then it is stopped, with this much grace; should the new one still fail, it
    /// gets its name back and is started again if it ran.
    pub async fn replace_sandbox(
        &self,
        who: &Principal,
        request: impl Into<CreateRequest>,
        earlier: &SandboxRef,
        grace: Option<Duration>,
        progress: Progress,
    ) -> Result<SandboxView> {
        let request = request.into();
        build::check_labels(&request.spec)?;
        let Some(id) = self.check_create(who, &request.spec, earlier).await? else {
            return self.create_any(who, request, progress, None).await;
        };
        // By its id from here on: this one was asked about, and no other that may have the name by then.
        let which = SandboxRef::from(&id);
        let found = self.core().find_to_change(who, &which).await?;
        let was_running = found.state() == SandboxState::Running;
        match self.stop_sandbox(who, &which, Some(grace.unwrap_or_default())).await {
            // What has failed cannot be stopped and can be replaced.
            Err(error) if error.kind() != ErrorKind::WrongState => return Err(error),
            _ => {}
        }
        let name = found.subject.name.clone();
        rename(&found, aside(&name)?).await?;
        match self.create_any(who, request, progress, Some(&id)).await {
            Ok(mut made) => {
                let removed = self.remove_sandbox(who, &which, Force::Yes).await;
                if let Err(error) = removed.or_else(gone) {
                    let kept = found.status.borrow().record.name.clone();
                    made.warnings.push(format!("The sandbox it replaces is still there as {kept}: {error}."));
                }
                Ok(made)
            }
            Err(error) => {
                self.put_back(who, &found, name, was_running).await;
                Err(error)
            }
        }
    }

    async fn put_back(&self, who: &Principal, found: &Changeable, name: SandboxName, was_running: bool) {
        let id = &found.subject.id;
        if let Err(error) = rename(found, name).await {
            tracing::error!(sandbox = %id, error = &error as &dyn std::error::Error, "one that was not replaced keeps another name");
        }
        if was_running && let Err(error) = self.start_sandbox(who, &SandboxRef::from(id)).await {
            tracing::warn!(sandbox = %id, error = &error as &dyn std::error::Error, "one that was not replaced does not run again");
        }
    }
}

fn gone(error: sandbox::Error) -> Result<()> {
    if error.kind() == ErrorKind::NotFound { Ok(()) } else { Err(error) }
}

async fn rename(found: &Changeable, name: SandboxName) -> Result<()> {
    ask(found, |reply| Command::Rename { name, reply }).await
}

fn aside(name: &SandboxName) -> Result<SandboxName> {
    let chance = u32::from_le_bytes(names::random_bytes()?);
    let end = format!("{ASIDE}{chance:08x}");
    // Names are ASCII.
    let kept = name.as_str().len().min(MAX_NAME_BYTES - end.len());
    Ok(format!("{}{end}", &name.as_str()[..kept]).parse()?)
}

/// Gives those their names back that a daemon had put aside when it died, unless what was to replace them is there.
pub(crate) async fn settle(core: &Arc<Core>) {
    for shared in core.all() {
        let Some(name) = asked_name(&shared) else { continue };
        let id = &shared.subject.id;
        if core.is_named(&shared.subject.namespace, &name) {
            tracing::warn!(sandbox = %id, %name, "it was replaced and not removed; it is there under another name");
            continue;
        }
        let (reply, answer) = oneshot::channel();
        if shared.inbox.send(Command::Rename { name: name.clone(), reply }).await.is_err() {
            continue;
        }
        match answer.await {
            Ok(Err(error)) => tracing::warn!(sandbox = %id, %error, "it keeps another name"),
            _ => tracing::info!(sandbox = %id, %name, "it was not replaced and has its name again"),
        }
    }
}

/// The name it was asked for by, where it has another now.
fn asked_name(shared: &Shared) -> Option<SandboxName> {
    let status = shared.status.borrow();
    let record = &status.record;
    record.spec.name.clone().filter(|name| *name != record.name)
}

//! Telling that a resource has changed.

use std::time::Duration;

use engine::{Entry, EntryBody, Follow};
use futures_util::{
    StreamExt,
    stream::{self, BoxStream},
};
use sandbox::{Error, ErrorKind, Event, EventKind, Result, SandboxId};
use tokio::time::{Instant, sleep_until};

use super::uri::Target;
use crate::mcp::call::Call;

/// At most this often a change is told; what happens meanwhile is told once, afterwards.
pub(super) const GAP: Duration = Duration::from_millis(250);

/// An item each time the resource may read differently. Ends when it cannot change any more, as with the output of an
/// exec that is over or the files of a sandbox that stopped.
pub(crate) async fn watch(call: &Call, uri: &str) -> Result<BoxStream<'static, ()>> {
    let changes = match Target::parse(uri)? {
        Target::Sandboxes => events(call, is_of_sandbox, None).await?,
        Target::Snapshots => events(call, is_of_snapshot, None).await?,
        Target::Sandbox { name } => {
            let view = call.engine().sandbox(&call.who, &call.sandbox(&name)?).await?;
            events(call, is_of_sandbox, Some(view.id)).await?
        }
        Target::File { name, path } => file(call, &name, &path).await?,
        Target::Exec { name, id } | Target::Output { name, id } | Target::Shown { name, id, .. } => {
            let which = call.sandbox(&name)?;
            let next = call.engine().exec_view(&call.who, &which, &id).await?.last_entry + 1;
            let entries = call.engine().exec_entries(&call.who, &which, &id, next, Follow::Yes).await?;
            // An entry that is damaged is one that reads differently too.
            let is_news =
                |entry: &Result<Entry>| !matches!(entry, Ok(Entry { body: EntryBody::Stdin(_), .. }));
            entries.filter(move |entry| std::future::ready(is_news(entry))).map(drop).boxed()
        }
        // Silence would say that nothing changed.
        Target::Volumes => return Err(untold(uri, "volume_list")),
        Target::Images => return Err(untold(uri, "image_list")),
        // These stay as they are while the daemon runs.
        Target::Runtime | Target::CreateSchema | Target::Policy => stream::pending().boxed(),
    };
    Ok(coalesced(changes))
}

/// Returns the error for a resource whose changes no event tells.
fn untold(uri: &str, tool: &str) -> Error {
    Error::new(ErrorKind::Unsupported, format!("changes of {uri} cannot be subscribed to"))
        .with_hint(format!("Read it again, or call {tool}, when it matters."))
}

async fn events(
    call: &Call,
    is_of: fn(EventKind) -> bool,
    only: Option<SandboxId>,
) -> Result<BoxStream<'static, ()>> {
    let events = call.engine().events(&call.who, None, Follow::Yes).await?;
    let namespace = call.namespace.clone();
    let concerns = move |event: &Result<Event>| match event {
        Ok(event) => {
            is_of(event.kind)
                && only.as_ref().is_none_or(|id| event.sandbox.as_ref() == Some(id))
                && namespace.as_ref().is_none_or(|namespace| event.namespace.as_ref() == Some(namespace))
        }
        Err(_) => true,
    };
    Ok(events.filter(move |event| std::future::ready(concerns(event))).map(drop).boxed())
}

fn is_of_snapshot(kind: EventKind) -> bool {
    matches!(kind, EventKind::SnapshotCreated | EventKind::SnapshotRemoved)
}

fn is_of_sandbox(kind: EventKind) -> bool {
    match kind {
        EventKind::SandboxCreated
        | EventKind::SandboxStarted
        | EventKind::SandboxPaused
        | EventKind::SandboxResumed
        | EventKind::SandboxStopped
        | EventKind::SandboxFailed
        | EventKind::SandboxExpired
        | EventKind::SandboxAdopted
        | EventKind::SandboxRemoved
        | EventKind::SandboxRenewed
        | EventKind::SandboxRenamed
        | EventKind::ExecStarted
        | EventKind::ExecEnded => true,
        EventKind::OutOfMemory
        | EventKind::DiskLimit
        | EventKind::LedgerTrimmed
        | EventKind::NetworkDenied
        | EventKind::NetworkRequested
        | EventKind::NetworkGranted
        | EventKind::NetworkRefused
        | EventKind::NetworkGrantEnded
        | EventKind::SnapshotCreated
        | EventKind::SnapshotRemoved => false,
    }
}

/// Watches the directory above: a file that is written whole is another file each time.
async fn file(call: &Call, name: &str, path: &str) -> Result<BoxStream<'static, ()>> {
    let which = call.sandbox(name)?;
    let path = path.trim_end_matches('/');
    let (above, file_name) = path.rsplit_once('/').unwrap_or(("", ""));
    let above = if above.is_empty() { "/" } else { above };
    let changes = call.engine().watch(&call.who, &which, above, false).await?;
    let file_name = file_name.to_owned();
    let is_named = move |path: &str| path.rsplit('/').next() == Some(file_name.as_str());
    let concerns = move |change: &Result<engine::WatchEvent>| match change {
        Ok(change) => {
            change.kind == engine::WatchKind::Overflow
                || is_named(&change.path)
                || change.from.as_deref().is_some_and(&is_named)
        }
        Err(_) => false,
    };
    Ok(changes.filter(move |change| std::future::ready(concerns(change))).map(drop).boxed())
}

struct Coalesced {
    changes: BoxStream<'static, ()>,
    quiet_until: Option<Instant>,
    is_over: bool,
}

/// Told at once, and then not again before [`GAP`] has passed. Changes are taken meanwhile, so nothing piles up.
fn coalesced(changes: BoxStream<'static, ()>) -> BoxStream<'static, ()> {
    let start = Coalesced { changes, quiet_until: None, is_over: false };
    stream::unfold(start, |mut watch| async move {
        let mut has_changed = false;
        if let Some(until) = watch.quiet_until {
            let quiet = sleep_until(until);
            tokio::pin!(quiet);
            while !watch.is_over {
                tokio::select! {
                    () = &mut quiet => break,
                    change = watch.changes.next() => match change {
                        Some(()) => has_changed = true,
                        None => watch.is_over = true,
                    },
                }
            }
        }
        if !has_changed {
            if watch.is_over {
                return None;
            }
            watch.changes.next().await?;
        }
        watch.quiet_until = Some(Instant::now() + GAP);
        Some(((), watch))
    })
    .boxed()
}

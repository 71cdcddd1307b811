//! What a failed command lacked, said on stderr with the command that leads on: what the network policy denied, a
//! package, memory.

use engine::EntryBody;
use frontends::{lacks, rest::v1};
use sandbox::{ExecOutcome, KillReason, NetworkEventKind, NetworkHold};

use crate::{
    client::{Client, EntryStream},
    error::CommandResult,
    output,
    session::Ended,
};

/// Entries at the end of the log that are looked at: programs say last why they fail.
const LAST_ENTRIES: u64 = 16;
/// Entries of the network log that are looked at.
const NETWORK_ENTRIES: u32 = 1000;
/// Different hosts that are named.
const MAX_HOSTS: usize = 3;

/// The sandbox of a command that failed, as hints call it.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Of<'a> {
    /// It stays.
    Named(&'a str),
    /// It goes with its command, which can only be run again.
    Temporary,
}

impl Of<'_> {
    fn allow(self, target: &str) -> String {
        match self {
            Self::Named(name) => format!("`warren network {name} --allow {target}`"),
            Self::Temporary => format!("--allow {target}"),
        }
    }
}

/// Says what the command lacked, if that can be known. Nothing that fails here is worth an error of its own.
pub(crate) async fn tell(client: &Client, exec: &v1::Exec, ended: &Ended, of: Of<'_>) {
    let Ended::Outcome(outcome) = ended else { return };
    let told = match outcome {
        ExecOutcome::Killed { reason: KillReason::MemoryLimit }
        | ExecOutcome::Exited { memory_limit_hit: true, .. } => memory(client, exec, of).await,
        ExecOutcome::Exited { code: 1.., .. } | ExecOutcome::Killed { reason: KillReason::TimeLimit } => {
            network_or_package(client, exec, outcome, of).await
        }
        _ => return,
    };
    told.unwrap_or_default().iter().for_each(|hint| output::hint(&output::printable(hint)));
}

async fn memory(client: &Client, exec: &v1::Exec, of: Of<'_>) -> CommandResult<Vec<String>> {
    let has = client.inspect(exec.sandbox.as_str()).await?.limits.memory;
    let more = match of {
        Of::Named(name) => format!("`warren update {name} -m SIZE` gives it more"),
        Of::Temporary => "-m SIZE gives it more".to_owned(),
    };
    Ok(vec![format!("The sandbox has {has} of memory; {more}.")])
}

async fn network_or_package(
    client: &Client,
    exec: &v1::Exec,
    outcome: &ExecOutcome,
    of: Of<'_>,
) -> CommandResult<Vec<String>> {
    let denied = denied(client, exec, of).await?;
    if !denied.is_empty() {
        return Ok(denied);
    }
    let said = last_words(client, exec).await?;
    if lacks::says_no_network(&[&said])
        || lacks::means_no_network(&exec.command, i32::from(outcome.exit_code()))
    {
        return no_network(client, exec, of).await;
    }
    let package = lacks::missing_package(&said).map(|(manager, package)| match of {
        Of::Named(name) => {
            format!("If it is a package, `warren package install {name} {manager} {package}` installs it.")
        }
        Of::Temporary => format!(
            "If it is a package: make a sandbox with `warren create --name lab`, install it with \
             `warren package install lab {manager} {package}`, and run this in it."
        ),
    });
    Ok(package.into_iter().collect())
}

/// What was denied since the command began.
async fn denied(client: &Client, exec: &v1::Exec, of: Of<'_>) -> CommandResult<Vec<String>> {
    let log = client.network_log(exec.sandbox.as_str(), NETWORK_ENTRIES).await?;
    let mut hosts: Vec<(String, String)> = Vec::new();
    for entry in log.entries {
        let is_of_time = entry.at >= exec.created_at && entry.event.kind == NetworkEventKind::Denied;
        if let Some(target) = entry.event.target().filter(|_| is_of_time)
            && hosts.iter().all(|(known, _)| *known != target)
        {
            hosts.push((target, entry.event.rule));
        }
    }
    let n_more = hosts.len().saturating_sub(MAX_HOSTS);
    let shown = hosts.iter().take(MAX_HOSTS);
    let mut told: Vec<_> = shown
        .map(|(target, rule)| format!("{target} was not reached: {rule}; {} allows it.", of.allow(target)))
        .collect();
    if n_more > 0 {
        told.push(format!("{n_more} more were not reached."));
    }
    Ok(told)
}

/// A sandbox without an edge has nobody who could record what it asks for.
async fn no_network(client: &Client, exec: &v1::Exec, of: Of<'_>) -> CommandResult<Vec<String>> {
    let held_by = client.network(exec.sandbox.as_str()).await?.held_by;
    let is = |hold: NetworkHold| held_by.as_deref() == Some(hold.to_string().as_str());
    let has = match () {
        () if is(NetworkHold::Loopback) => "no network",
        () if is(NetworkHold::Packages) => "no network but package indexes",
        () => return Ok(Vec::new()),
    };
    Ok(vec![format!("The sandbox has {has}; {} allows a host.", of.allow("HOST"))])
}

async fn last_words(client: &Client, exec: &v1::Exec) -> CommandResult<String> {
    let last = client.exec_view(exec.sandbox.as_str(), exec.id.as_str()).await?.last_entry;
    let from = last.saturating_sub(LAST_ENTRIES).max(1);
    let mut entries = EntryStream::new(client, &exec.sandbox, &exec.id, from, false);
    let mut bytes = Vec::new();
    loop {
        let batch = entries.next_batch().await?;
        if batch.is_empty() {
            return Ok(String::from_utf8_lossy(&bytes).into_owned());
        }
        for entry in batch {
            if let EntryBody::Stdout(part) | EntryBody::Stderr(part) | EntryBody::Rich(part) = entry.body {
                bytes.extend_from_slice(&part);
            }
        }
    }
}

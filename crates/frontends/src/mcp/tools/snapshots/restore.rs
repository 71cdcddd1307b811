//! `sandbox_restore`.

use engine::{RestoreSpec, SnapshotRef};
use sandbox::{Error, ErrorKind};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{archives, is_path, listed_at, named, none_at, waiting};
use crate::mcp::{
    Answer, Call, Failure, ToolResult,
    hostfs::Source,
    tools::{
        create::{LogLevel, Mount, Port, mounts},
        select::Status,
    },
};

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct RestoreArguments {
    name: String,
    /// Name, digest, path of snapshot_list, or host path of an archive, which is loaded first
    snapshot: String,
    /// Not needed: a snapshot knows its parents
    #[schemars(extend("x-full-only" = true))]
    snapshot_base: Option<String>,
    /// There is no memory to share; sandbox_fork makes sandboxes from a running one
    #[schemars(extend("x-full-only" = true))]
    forked: Option<bool>,
    /// Snapshots have files only
    #[schemars(extend("x-full-only" = true))]
    disk_only: Option<bool>,
    /// Give these files to a sandbox that has the name: it stops, keeps its settings, and loses its other files
    replace: Option<bool>,
    /// Default the user of its source
    user: Option<String>,
    #[schemars(extend("x-full-only" = true))]
    log_level: Option<LogLevel>,
    #[schemars(extend("x-full-only" = true))]
    external_mount_policy: Option<MountPolicy>,
    /// Mounts are not part of a snapshot: name them again
    volumes: Option<Vec<Mount>>,
    #[schemars(extend("x-full-only" = true))]
    ports: Option<Vec<Port>>,
    #[schemars(extend("x-full-only" = true))]
    vsock: Option<Vec<Vsock>>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum MountPolicy {
    Strict,
    Relaxed,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[expect(dead_code, reason = "refused as a whole")]
struct Vsock {
    path: String,
    #[schemars(range(min = 1, max = 4_294_967_295_u64))]
    port: u64,
    datagram: Option<bool>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Restored {
    name: String,
    id: String,
    status: Status,
}

pub(super) async fn restore(call: Call, arguments: RestoreArguments) -> ToolResult<Restored> {
    let mut warnings = Vec::new();
    let unsupported = |field: &str, why: &str, next: &str| {
        let error = Error::new(ErrorKind::Unsupported, format!("{field} is not supported: {why}"));
        Err(Failure::from(error).with_hint(next.to_owned()))
    };
    if arguments.vsock.is_some_and(|all| !all.is_empty()) {
        return unsupported("vsock", "sandboxes here have no vsock", "Omit vsock and use sandbox_ports.");
    }
    if arguments.ports.is_some_and(|all| !all.is_empty()) {
        return unsupported(
            "ports",
            "a restored sandbox has no ports of the host at first",
            "Omit ports, and call sandbox_ports with expose.hostPort afterwards.",
        );
    }
    if arguments.forked == Some(true) {
        warnings.push("forked: files are shared until they change; there is no memory to share.".to_owned());
    }
    if arguments.disk_only == Some(false) {
        warnings.push(
            "diskOnly: false has no effect: a snapshot has only files, so nothing is running yet.".to_owned(),
        );
    }
    if arguments.snapshot_base.is_some() {
        warnings.push("snapshotBase has no effect: a snapshot knows its parents.".to_owned());
    }
    if arguments.log_level.is_some() {
        warnings.push("logLevel has no effect: the daemon has one log.".to_owned());
    }
    if matches!(arguments.external_mount_policy, Some(MountPolicy::Relaxed)) {
        warnings.push(
            "externalMountPolicy relaxed has no effect: only the mounts in volumes are used.".to_owned(),
        );
    }
    let (mut mounts, told) = mounts::plan("volumes", arguments.volumes.unwrap_or_default())?;
    mounts::allow(&call, &mut mounts).await?;
    warnings.extend(told);
    let name = arguments.name.parse().map_err(Error::from)?;
    let (which, loaded) = named_or_loaded(&call, &arguments.snapshot).await?;
    let spec = RestoreSpec {
        name: Some(name),
        namespace: call.namespace.clone().unwrap_or_else(|| call.who.home_namespace()),
        user: arguments.user,
        mounts,
        replace: arguments.replace.unwrap_or(false),
        by_agent: true,
        ..RestoreSpec::default()
    };
    let restored = waiting(&call, call.engine().restore_snapshot(&call.who, &which, spec)).await;
    let restored = restored.map_err(|failure| {
        failure.or_hint(
            ErrorKind::AlreadyExists,
            "Choose another name (sandbox_list shows what uses it), or set replace: true to replace that sandbox.",
        )
    });
    let view = restored.map_err(|failure| match &loaded {
        // It stays; whoever asked has to know.
        Some(loaded) => failure.with_details(json!({ "loaded": loaded })),
        None => failure,
    })?;
    if let Some(loaded) = loaded {
        warnings
            .push(format!("The archive was loaded as snapshot {loaded}; remove it with snapshot_remove."));
    }
    let restored =
        Restored { name: view.name.to_string(), id: view.id.to_string(), status: Status::of(&view) };
    Ok(Answer::new(restored).warn_all(warnings).warn_all(view.warnings))
}

/// The snapshot that is meant. One in an archive is loaded, and it is told under which name.
async fn named_or_loaded(call: &Call, snapshot: &str) -> Result<(SnapshotRef, Option<String>), Failure> {
    if !is_path(snapshot) || listed_at(call, snapshot).await?.is_some() {
        return Ok((named(call, snapshot).await?, None));
    }
    let archive = Source::open(call, snapshot).await?;
    if archive.is_directory() {
        return Err(none_at(snapshot));
    }
    let before = call.engine().snapshots(&call.who, None).await?;
    let view = archives::take_in(call, None, archive).await?;
    // One that was here already is not ours to speak of as a leftover.
    let is_new = before.iter().all(|known| known.id != view.id);
    let called = view.name.map_or(view.digest, |name| name.to_string());
    Ok((SnapshotRef::from(&view.id), is_new.then_some(called)))
}

//! From fields to what is decided: grouped fields over flat ones, and every refusal before anything is made.

use std::{collections::BTreeMap, time::Duration};

use engine::{MAX_STOP_GRACE, PullOptions, Reference};
use sandbox::{
    ByteSize, CpuCount, Error, ErrorKind, InitSpec, Lifetime, Limits, Rlimit, SandboxName, SandboxSpec,
};

use super::{
    fields::{CreateFields, Init, Lifecycle, Port, Resources},
    image, mounts, network, patches,
    secrets::{self, Secrets},
};
use crate::mcp::{
    Call, Failure,
    tools::{
        exec::{RlimitField, rlimit},
        select,
    },
};

/// A limit on processes is held for the sandbox; this is the most that it takes.
const MAX_PIDS: u64 = 4_194_304;

/// A sandbox that can be made: nothing of what was asked is left unchecked.
#[derive(Debug)]
pub(crate) struct Prepared {
    pub(crate) spec: SandboxSpec,
    /// Of the spec as it was asked for.
    pub(super) request_hash: Option<String>,
    /// Sentences about what was asked for and is met otherwise, or not at all.
    pub(crate) warnings: Vec<String>,
    pub(super) replace: Option<Replace>,
    /// How the registry is asked, where not as the daemon is configured.
    pub(super) registry: Option<(Reference, PullOptions)>,
    pub(super) secrets: Secrets,
}

/// A sandbox of the same name goes first.
#[derive(Debug, Clone, Copy)]
pub(super) struct Replace {
    pub(super) grace: Option<Duration>,
}

/// Decides what is to be made, and refuses what cannot be.
pub(crate) fn prepare(call: &Call, fields: CreateFields) -> Result<Prepared, Failure> {
    let process = fields.process.unwrap_or_default();
    let resources = fields.resources.unwrap_or_default();
    let lifecycle = fields.lifecycle.unwrap_or_default();
    let mut warnings = Vec::new();
    let mut mounted = Vec::new();
    for (field, given) in [("volumes", fields.volumes), ("mounts", fields.mounts)] {
        let (planned, more) = mounts::plan(field, given.unwrap_or_default())?;
        mounted.extend(planned);
        warnings.extend(more);
    }
    let ground = image::plan(fields.image.as_deref(), fields.rootfs)?;
    let network = network::plan(fields.network.as_ref(), &mut warnings)?;
    let ports = fields.network.iter().flat_map(|network| network.ports.iter().flatten());
    let ports = ports.map(Port::spec).collect::<Result<_, _>>()?;
    warnings.extend(lifecycle_warnings(&lifecycle));

    let mut limits = decide_limits(
        &Resources {
            cpus: fields.cpus,
            memory_mib: fields.memory_mib,
            disk_mib: fields.disk_mib.or(ground.disk_mib),
        },
        &resources,
    )?;
    let (rlimits, more) = rlimits(process.rlimits.as_deref().unwrap_or_default(), &mut limits)?;
    warnings.extend(more);
    let mut env = merged(fields.env, process.env);
    if let Some(shell) = &process.shell {
        env.entry("SHELL".to_owned()).or_insert_with(|| shell.clone());
    }
    let secrets = secrets::plan(fields.secrets.unwrap_or_default())?;
    let on_expiry = lifecycle.on_expiry.or(fields.on_expiry);
    let spec = SandboxSpec {
        name: parsed(fields.name.as_deref())?,
        namespace: select::namespace(call),
        backend: parsed(fields.backend.as_deref())?,
        image: ground.image,
        pull: ground.pull,
        image_fallback: fields.image_fallback.unwrap_or(call.surface.habits.image_fallback),
        rootfs: ground.rootfs,
        mounts: mounted,
        patches: patches::plan(fields.patches.unwrap_or_default())?,
        scripts: process.scripts.unwrap_or_default(),
        limits,
        rlimits,
        env,
        cwd: process.workdir.or(fields.workdir),
        user: process.user,
        shell: process.shell,
        entrypoint: process.entrypoint.or(fields.entrypoint).unwrap_or_default(),
        init: process.init.map(Init::decided),
        hostname: hostname(fields.hostname.as_deref())?,
        labels: merged(fields.labels, process.labels),
        ports,
        network,
        secrets: secrets.uses.clone(),
        lifetime: Lifetime {
            ttl: span(fields.max_duration_ms, lifecycle.max_duration_secs.or(fields.max_duration)),
            idle: span(fields.idle_timeout_ms, lifecycle.idle_timeout_secs.or(fields.idle_timeout)),
            on_expiry: on_expiry.unwrap_or_default(),
        },
        request_id: parsed(fields.request_id.as_deref())?,
    };
    let request_hash = spec.request_id.as_ref().and_then(|_| engine::request_hash(&spec));
    let replace = replace(&lifecycle);
    Ok(Prepared { spec, request_hash, warnings, replace, registry: ground.registry, secrets })
}

/// Milliseconds win over seconds, which are the unit of older names.
fn span(ms: Option<u64>, secs: Option<u64>) -> Option<Duration> {
    ms.map(Duration::from_millis).or(secs.map(Duration::from_secs))
}

pub(super) fn refuse_if(field: &str, is_given: bool, hint: &str) -> Result<(), Failure> {
    if !is_given {
        return Ok(());
    }
    let error = Error::new(ErrorKind::Unsupported, format!("{field} is not supported in this version"));
    Err(Failure::from(error).with_hint(hint))
}

fn lifecycle_warnings(lifecycle: &Lifecycle) -> Vec<String> {
    let ignored: Vec<_> = [
        ("logLevel", lifecycle.log_level.is_some()),
        ("metricsSampleIntervalMs", lifecycle.metrics_sample_interval_ms.is_some()),
        ("disableMetricsSample", lifecycle.disable_metrics_sample.is_some()),
        ("quietLogs", lifecycle.quiet_logs.is_some()),
    ]
    .into_iter()
    .filter(|(_, is_given)| *is_given)
    .map(|(field, _)| format!("lifecycle.{field}"))
    .collect();
    let mut warnings = Vec::new();
    if !ignored.is_empty() {
        warnings.push(format!("These have no effect here: {}.", ignored.join(", ")));
    }
    if lifecycle.detached == Some(false) {
        warnings.push(
            "A sandbox outlives the connection that created it; set maxDurationMs to end it.".to_owned(),
        );
    }
    warnings
}

fn decide_limits(flat: &Resources, grouped: &Resources) -> Result<Limits, Failure> {
    let cpus = grouped.cpus.or(flat.cpus);
    let count = |cpus: f64| {
        let count = CpuCount::from_f64(cpus);
        count.ok_or_else(|| Failure::invalid(format!("{cpus} is not a number of cpus between 0.01 and 4096")))
    };
    let mib = |mib: u64| ByteSize(mib.saturating_mul(1024 * 1024));
    Ok(Limits {
        cpus: cpus.map(count).transpose()?,
        memory: grouped.memory_mib.or(flat.memory_mib).map(mib),
        disk: grouped.disk_mib.or(flat.disk_mib).map(mib),
        ..Limits::default()
    })
}

/// Returns the limits of commands that ask for nothing else, and warnings about what was made of them. Processes are
/// counted for the whole sandbox: by user, as the kernel would, root inside could have as many as it likes.
fn rlimits(given: &[RlimitField], limits: &mut Limits) -> Result<(Vec<Rlimit>, Vec<String>), Failure> {
    let (mut held, mut warnings) = (Vec::new(), Vec::new());
    for limit in given {
        let limit = rlimit(&limit.resource, limit.soft, limit.hard)?;
        if limit.resource == "nproc" {
            let pids = u32::try_from(limit.hard.min(MAX_PIDS)).unwrap_or(u32::MAX);
            limits.pids = Some(pids);
            warnings.push(format!(
                "process.rlimits nproc applies to all processes of the sandbox together: {pids}."
            ));
        } else {
            held.retain(|other: &Rlimit| other.resource != limit.resource);
            held.push(limit);
        }
    }
    Ok((held, warnings))
}

/// The second wins.
fn merged(
    flat: Option<BTreeMap<String, String>>,
    grouped: Option<BTreeMap<String, String>>,
) -> BTreeMap<String, String> {
    let mut all = flat.unwrap_or_default();
    all.extend(grouped.unwrap_or_default());
    all
}

fn parsed<T>(text: Option<&str>) -> Result<Option<T>, Failure>
where
    T: std::str::FromStr,
    Error: From<T::Err>,
{
    Ok(text.map(str::parse).transpose().map_err(Error::from)?)
}

/// The engine's refusal would speak of a sandbox's name.
fn hostname(text: Option<&str>) -> Result<Option<SandboxName>, Failure> {
    let Some(text) = text else { return Ok(None) };
    text.parse().map(Some).map_err(|_of_sandboxes: sandbox::InvalidName| {
        let shown: String = text.chars().take(80).collect();
        Failure::invalid(format!("{shown:?} is not a valid hostname for a sandbox")).with_hint(
            "A hostname has at most 63 letters, digits, '-', '_' and '.', and starts with a letter or digit; \
             the default is the sandbox's name.",
        )
    })
}

impl Init {
    fn decided(self) -> InitSpec {
        InitSpec { path: self.path, args: self.args.unwrap_or_default(), env: self.env.unwrap_or_default() }
    }
}

fn replace(lifecycle: &Lifecycle) -> Option<Replace> {
    // A time for it means it, unless it is refused in so many words: what is lost cannot be had again.
    let is_asked = lifecycle.replace.unwrap_or(lifecycle.replace_timeout_ms.is_some());
    let grace = lifecycle.replace_timeout_ms.map(|ms| Duration::from_millis(ms).min(MAX_STOP_GRACE));
    is_asked.then_some(Replace { grace })
}

//! `sandbox_create`: a sandbox from one call, with its files, or none at all.

mod fields;
mod image;
pub(crate) mod mounts;
mod net_rule;
mod network;
mod patches;
mod prepare;
mod secrets;
#[cfg(test)]
mod tests;

use engine::{CreateRequest, Ensured, ExecView, FirstExec, Force, SandboxIdentity, SandboxRef, SandboxView};
use sandbox::{ByteSize, DEFAULT_SHELL, Error, ErrorKind, SandboxId, SandboxPlan, Thing};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

pub(crate) use self::{
    fields::{CreateFields, Init, LogLevel, Mount, Network, Port, Process, Protocol},
    prepare::{Prepared, prepare},
};
use super::{
    network::rules as network_rules,
    select::{self, Status},
};
use crate::images::Pulling;
use crate::mcp::{
    Answer, Call, Failure, Tool, ToolResult, hostfs::Report, instructions::user_name, schema,
    tools::images::while_pulling,
};

pub(super) fn tools() -> Vec<Tool> {
    tools! { Lifecycle;
        // With lifecycle.replace, a sandbox of the same name is removed.
        "sandbox_create", "Create sandbox", DESTROYS_MORE, create, core:
            "Create a sandbox without network; it lives until removed. Returns workdir, user, shell, languages. Toolsets network, volumes and lifecycle list more fields.";
    }
}

/// The whole schema of what can be asked of a new sandbox.
pub(crate) fn create_schema() -> Value {
    Value::Object(schema::checked(schema::input::<CreateFields>()))
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Created {
    name: String,
    id: String,
    status: Status,
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    image: Option<String>,
    /// Start directory of commands and relative paths.
    workdir: String,
    user: String,
    shell: String,
    /// Languages that sandbox_run_code can run.
    languages: Vec<String>,
    /// Hosts reached without a rule: none, packages, public …
    network: &'static str,
    /// What is allowed and denied beside that; the first that matches decides.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(default)]
    network_rules: Vec<String>,
    cpus: f64,
    memory_mib: u64,
    disk_mib: u64,
    /// Time limit of commands that set none.
    timeout_ms: u64,
}

async fn create(call: Call, fields: CreateFields) -> ToolResult<Created> {
    let prepared = prepare(&call, fields)?;
    let warnings = prepared.warnings.clone();
    let Ensured { view, .. } = make(&call, prepared).await?;
    let created = described(&call, &view).await;
    Ok(Answer::new(created).warn_all(warnings).warn_all(view.warnings))
}

/// Describes a new sandbox, so that nobody has to find out by trying.
async fn described(call: &Call, view: &SandboxView) -> Created {
    let which = SandboxRef::from(&view.id);
    let (engine, who) = (call.engine(), &call.who);
    // The sandbox is made; what it cannot say just now can be asked again.
    let shell = engine.shell(who, &which).await.unwrap_or_else(|_| DEFAULT_SHELL.to_owned());
    let languages = engine.languages(who, &which).await.unwrap_or_default();
    let mib = |size: ByteSize| size.0 / (1024 * 1024);
    let SandboxPlan { limits, cwd, user, image, .. } = &view.plan;
    Created {
        name: view.name.to_string(),
        id: view.id.to_string(),
        status: Status::of(view),
        expires_at: view.expires_at.map(|at| at.to_string()),
        image: view.spec.rootfs.is_none().then(|| image.to_string()),
        workdir: cwd.clone(),
        user: user_name(user).to_owned(),
        shell,
        languages: languages.into_iter().map(|language| language.name).collect(),
        network: view.plan.network.own.preset.as_str(),
        network_rules: network_rules(&view.spec.network),
        cpus: limits.cpus.as_f64(),
        memory_mib: mib(limits.memory),
        disk_mib: mib(limits.disk),
        timeout_ms: call.settings.default_timeout_ms,
    }
}

/// Makes the sandbox with all its files, in a task of its own: a caller who goes away, or cancels, leaves a whole
/// sandbox or none. What the same request made before is found: it has its files, and replaced what was to be replaced.
pub(crate) async fn make(call: &Call, prepared: Prepared) -> Result<Ensured, Failure> {
    Ok(begin(call, prepared, None).await?.0)
}

/// The same with a command, which is started with the sandbox where that can be: not in one that was found, and not in
/// one that replaces another.
pub(crate) async fn make_and_begin(
    call: &Call,
    prepared: Prepared,
    first: FirstExec,
) -> Result<(Ensured, Option<ExecView>), Failure> {
    begin(call, prepared, Some(first)).await
}

async fn begin(
    call: &Call,
    prepared: Prepared,
    first: Option<FirstExec>,
) -> Result<(Ensured, Option<ExecView>), Failure> {
    let call = call.clone();
    let making = tokio::spawn(async move {
        let (namespace, request_id) = (prepared.spec.namespace.clone(), prepared.spec.request_id.clone());
        let request_hash = prepared.request_hash.clone();
        let identity =
            SandboxIdentity { namespace, request_id, request_hash: request_hash.clone(), which: None };
        let mut begun = None;
        let make = make_whole(&call, prepared, request_hash, first, &mut begun);
        let ensured = call.engine().ensure_exists(&call.who, &identity, make).await?;
        Ok((ensured, begun))
    });
    making.await.unwrap_or_else(|error| {
        Err(Failure::from(
            Error::new(ErrorKind::Internal, "creating the sandbox stopped unexpectedly").with_source(error),
        ))
    })
}

async fn make_whole(
    call: &Call,
    prepared: Prepared,
    request_hash: Option<String>,
    first: Option<FirstExec>,
    begun: &mut Option<ExecView>,
) -> Result<Ensured, Failure> {
    let Prepared { mut spec, replace, registry, secrets, .. } = prepared;
    secrets.check(call, &spec.namespace).await?;
    mounts::allow(call, &mut spec.mounts).await?;
    image::settle(call, &mut spec, registry).await?;
    let (sources, reports) = patches::open(call, &spec.patches).await?;
    let earlier = replace.zip(spec.name.clone());
    let is_replacing = earlier.is_some();
    let pulling = Pulling::default();
    let request = CreateRequest { spec, sources, secrets: secrets.given(), request_hash, by_agent: true };
    let work = async {
        let (engine, progress) = (call.engine(), pulling.progress());
        match (earlier, first) {
            (Some((replace, name)), _) => {
                let named = SandboxRef::new(name.as_str(), Some(select::namespace(call)))?;
                engine.replace_sandbox(&call.who, request, &named, replace.grace, progress).await
            }
            (None, None) => engine.create_sandbox_with(&call.who, request, progress).await,
            (None, Some(first)) => {
                let made = engine.create_and_exec(&call.who, request, first, progress).await?;
                *begun = Some(made.exec);
                Ok(made.sandbox)
            }
        }
    };
    // While it pulls there is no sandbox yet; after that it is made whole, and then removed.
    let made = while_pulling(call, &pulling, || pulling.is_underway(), work).await?;
    let mut view = made.map_err(|error| why_not(error, &reports))?;
    if call.cancelled.is_cancelled() {
        // The one that it replaced is gone, and without this one there would be none.
        if !is_replacing {
            unmake(call, &view.id).await;
        }
        return Err(select::cancelled());
    }
    let copied = reports.iter().filter_map(|(_, report)| report.take()?.ok()?.warning());
    view.warnings.extend(copied);
    Ok(Ensured { view, is_new: true })
}

/// Returns the failure for a creation that failed. The host's refusal comes first: the engine only saw that the bytes
/// broke off.
fn why_not(error: Error, reports: &[(usize, Report)]) -> Failure {
    let at_host = reports.iter().find_map(|(index, report)| match report.take() {
        Some(Err(error)) => Some(patches::at_place(*index, error.into())),
        _ => None,
    });
    at_host.unwrap_or_else(|| {
        let is_patch = error.is_about(Thing::Patch);
        let failure = Failure::from(error);
        if is_patch {
            return failure;
        }
        failure.or_hint(
            ErrorKind::AlreadyExists,
            "Choose another name, or set lifecycle.replace: true to replace the existing sandbox.",
        )
    })
}

/// Removes what a call made and nobody is to find, also when the caller's key has ended meanwhile.
pub(crate) async fn unmake(call: &Call, id: &SandboxId) {
    match call.engine().remove_sandbox(&call.ender(), &SandboxRef::from(id), Force::Yes).await {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            tracing::warn!(%id, error = &error as &dyn std::error::Error, "not removed");
        }
        _ => {}
    }
}

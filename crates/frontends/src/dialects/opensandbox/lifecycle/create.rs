//! `POST /sandboxes`.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use axum::{Extension, Json, extract::State, http::StatusCode};
use engine::{Principal, Progress};
use sandbox::{
    Error, ErrorKind, ImageRef, InitSpec, Lifetime, MountSource, MountSpec, OnExpiry, PullPolicy, Result,
    RootfsSpec, SandboxSpec,
};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    resources::{self, Platform},
    view,
};
use crate::{
    dialects::opensandbox::{
        ask::{Caller, Front, shown},
        egress::NetworkPolicy,
    },
    http::{ApiResult, JsonBody},
    images::{Password, Registry, reference},
    links::BaseUrl,
    mcp::{Call, Failure, Surface, create::mounts},
};

/// Its image with interpreters stands for the programs of this machine, which has them or not.
const INTERPRETERS: &str = "opensandbox/code-interpreter";
/// Programs that only the image above has. They start a server that code does not need here.
const OF_INTERPRETERS: &str = "/opt/";
/// Longest value of a label.
const MAX_STORED_BYTES: usize = 1024;

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct NewSandbox {
    image: Option<Image>,
    snapshot_id: Option<String>,
    template_id: Option<String>,
    entrypoint: Option<Vec<String>>,
    /// Seconds; without it, the sandbox stays until it is deleted.
    timeout: Option<u64>,
    resource_limits: Option<BTreeMap<String, String>>,
    /// What a scheduler would set aside. Nothing is set aside here.
    resource_requests: Option<BTreeMap<String, String>>,
    env: Option<BTreeMap<String, String>>,
    metadata: Option<BTreeMap<String, String>>,
    platform: Option<Platform>,
    network_policy: Option<NetworkPolicy>,
    credential_proxy: Option<CredentialProxy>,
    /// Always so: without a token or a key nobody reaches into a sandbox.
    #[expect(dead_code, reason = "it makes no difference")]
    secure_access: Option<bool>,
    volumes: Option<Vec<Volume>>,
    lifecycle: Option<Value>,
    extensions: Option<BTreeMap<String, String>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Image {
    uri: String,
    auth: Option<Auth>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Auth {
    username: Option<String>,
    password: Option<Password>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct CredentialProxy {
    enabled: Option<bool>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Volume {
    name: String,
    mount_path: String,
    read_only: Option<bool>,
    sub_path: Option<String>,
    host: Option<HostPath>,
    pvc: Option<Claim>,
    ossfs: Option<Value>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct HostPath {
    path: String,
}

/// A volume of the daemon. It exists already, and outlives the sandbox.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Claim {
    claim_name: String,
    create_if_not_exists: Option<bool>,
    delete_on_sandbox_termination: Option<bool>,
    storage_class: Option<String>,
    storage: Option<String>,
    access_modes: Option<Vec<String>>,
}

pub(super) async fn create(
    State(front): State<Front>,
    caller: Caller,
    base: Option<Extension<BaseUrl>>,
    JsonBody(asked): JsonBody<NewSandbox>,
) -> ApiResult<(StatusCode, Json<Value>)> {
    caller.query.only(&[])?;
    let who = caller.who;
    let mut spec = spec(&asked, &who)?;
    if let Some(id) = &asked.snapshot_id {
        let snapshot = front.engine().snapshot(&who, &id.parse()?).await?;
        spec.labels.insert(view::SNAPSHOT.to_owned(), snapshot.id.to_string());
        spec.rootfs = Some(RootfsSpec::Snapshot { snapshot: snapshot.digest });
    }
    if spec.mounts.iter().any(|mount| matches!(mount.source, MountSource::Bind { .. })) {
        let surface = Arc::new(Surface::native());
        let call = Call::alone(front.mcp.clone(), surface, who.clone(), base.map(|base| base.0));
        mounts::allow(&call, &mut spec.mounts).await.map_err(refused)?;
    }
    if let Some(Image { uri, auth: Some(auth) }) = asked.image {
        pull(&front, &who, &uri, auth, &mut spec).await?;
    }
    // In a task of its own: a client that goes away leaves a whole sandbox or none.
    let engine = front.engine().clone();
    let making = tokio::spawn(async move { engine.create_sandbox(&who, spec).await });
    let view = making.await.map_err(|error| {
        Error::new(ErrorKind::Internal, "creating the sandbox stopped unexpectedly").with_source(error)
    })??;
    Ok((StatusCode::ACCEPTED, Json(view::of(&view))))
}

/// The image, got with credentials that belong into no record.
async fn pull(front: &Front, who: &Principal, uri: &str, auth: Auth, spec: &mut SandboxSpec) -> Result<()> {
    let registry = Registry { username: auth.username, password: auth.password, ..Registry::default() };
    let options = registry.options()?;
    if spec.image.is_host() {
        return Ok(());
    }
    let reference = reference(uri)?;
    if front.engine().image(who, &reference.to_string()).await.is_err() {
        front.engine().pull_image(who, &reference, options, Progress::none()).await?;
    }
    spec.pull = PullPolicy::IfMissing;
    Ok(())
}

fn spec(asked: &NewSandbox, who: &Principal) -> Result<SandboxSpec> {
    refuse_unsupported(asked)?;
    let metadata = asked.metadata.clone().unwrap_or_default();
    view::check_keys(metadata.keys())?;
    let mut labels = metadata;
    let is_stand_in = asked.image.as_ref().is_some_and(|image| stands_in(&image.uri));
    let image = match &asked.image {
        Some(image) if is_stand_in => {
            labels.insert(view::IMAGE.to_owned(), image.uri.clone());
            ImageRef::host()
        }
        Some(image) => image.uri.parse()?,
        None => ImageRef::host(),
    };
    let init = asked.entrypoint.as_deref().and_then(|entrypoint| init(entrypoint, is_stand_in));
    if let Some(entrypoint) = asked.entrypoint.as_ref().filter(|_| init.is_none()) {
        labels.insert(view::ENTRYPOINT.to_owned(), stored("entrypoint", &json!(entrypoint))?);
    }
    if let Some(extensions) = asked.extensions.as_ref().filter(|map| !map.is_empty()) {
        labels.insert(view::EXTENSIONS.to_owned(), stored("extensions", &json!(extensions))?);
    }
    if let Some(requests) = &asked.resource_requests {
        resources::limits(requests)?;
    }
    Ok(SandboxSpec {
        namespace: who.home_namespace(),
        image,
        init,
        limits: resources::limits(&asked.resource_limits.clone().unwrap_or_default())?,
        env: asked.env.clone().unwrap_or_default(),
        mounts: asked.volumes.iter().flatten().map(mount).collect::<Result<_>>()?,
        labels,
        lifetime: Lifetime {
            ttl: asked.timeout.map(Duration::from_secs),
            idle: None,
            on_expiry: OnExpiry::Remove,
        },
        ..SandboxSpec::default()
    })
}

/// What is kept as a label, which has little room.
fn stored(field: &str, value: &Value) -> Result<String> {
    let text = value.to_string();
    if text.len() > MAX_STORED_BYTES {
        let message = format!("{field} has {} bytes as JSON; the limit is {MAX_STORED_BYTES}", text.len());
        return Err(Error::invalid(message));
    }
    Ok(text)
}

fn refuse_unsupported(asked: &NewSandbox) -> Result<()> {
    let pool = asked.extensions.iter().flatten().any(|(key, _)| key == "poolRef");
    if pool || asked.template_id.is_some() {
        let what = if pool { "pools" } else { "templates" };
        return Err(super::no_such(what, "Create the sandbox from an image or a snapshot."));
    }
    if asked.image.is_some() == asked.snapshot_id.is_some() {
        return Err(Error::invalid("give either image or snapshotId"));
    }
    if let Some(policy) = &asked.network_policy {
        policy.check()?;
    }
    if let Some(platform) = &asked.platform {
        platform.check()?;
    }
    for (field, is_asked) in [
        ("lifecycle", asked.lifecycle.as_ref().is_some_and(|hooks| !hooks.is_null())),
        ("credentialProxy", asked.credential_proxy.as_ref().is_some_and(|proxy| proxy.enabled == Some(true))),
    ] {
        if is_asked {
            let message = format!("{field} is not supported in this version");
            return Err(Error::new(ErrorKind::Unsupported, message).with_hint("Omit it."));
        }
    }
    Ok(())
}

fn stands_in(image: &str) -> bool {
    let name = image.split([':', '@']).next().unwrap_or(image);
    name == INTERPRETERS || name == format!("docker.io/{INTERPRETERS}")
}

/// The program beside the others; none where it would do nothing.
fn init(entrypoint: &[String], is_stand_in: bool) -> Option<InitSpec> {
    let (path, args) = entrypoint.split_first()?;
    let is_idle = entrypoint == view::DEFAULT_ENTRYPOINT;
    let is_missing = is_stand_in && path.starts_with(OF_INTERPRETERS);
    (!is_idle && !is_missing).then(|| InitSpec {
        path: path.clone(),
        args: args.to_vec(),
        env: BTreeMap::new(),
    })
}

fn mount(volume: &Volume) -> Result<MountSpec> {
    let name = shown(&volume.name);
    let source = match (&volume.host, &volume.pvc) {
        (Some(HostPath { path }), None) => {
            let path = match &volume.sub_path {
                Some(below) => format!("{}/{}", path.trim_end_matches('/'), below.trim_start_matches('/')),
                None => path.clone(),
            };
            MountSource::Bind { host_path: path.into(), allowed: None }
        }
        (None, Some(claim)) => {
            let has_more =
                claim.storage_class.is_some() || claim.storage.is_some() || claim.access_modes.is_some();
            if has_more || claim.delete_on_sandbox_termination == Some(true) || volume.sub_path.is_some() {
                let message = format!("volume {name}: only claimName is supported");
                return Err(Error::new(ErrorKind::Unsupported, message)
                    .with_hint("Create the volume first, and remove it when no sandbox uses it."));
            }
            // A volume that does not exist is refused when the sandbox is made.
            let _ = claim.create_if_not_exists;
            MountSource::Named { name: claim.claim_name.parse()? }
        }
        _ if volume.ossfs.is_some() => {
            let message = format!("volume {name}: ossfs is not supported");
            return Err(Error::new(ErrorKind::Unsupported, message).with_hint("Use pvc or host."));
        }
        _ => return Err(Error::invalid(format!("volume {name}: give one of host and pvc"))),
    };
    let readonly = volume.read_only.unwrap_or(false);
    Ok(MountSpec { guest_path: volume.mount_path.clone(), source, readonly, noexec: false })
}

/// The policy of host paths speaks as tools do.
fn refused(failure: Failure) -> Error {
    // Every code is a kind or, of what is refused by policy, a closer name for it.
    let kind = ErrorKind::ALL.into_iter().find(|kind| kind.as_str() == failure.code);
    let error = Error::new(kind.unwrap_or(ErrorKind::Denied), failure.message);
    match failure.hint {
        Some(hint) => error.with_hint(hint),
        None => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(value: Value) -> Result<SandboxSpec> {
        let asked = serde_json::from_value(value).map_err(|error| Error::invalid(error.to_string()))?;
        spec(&asked, &Principal::developer("dev"))
    }

    #[test]
    fn what_their_sdk_sends_is_understood() {
        let spec = asked(json!({
            "image": { "uri": "python:3.12" }, "timeout": 600, "resourceLimits": { "cpu": "1", "memory": "2Gi" },
            "env": { "A": "1" }, "metadata": { "team": "x" }, "entrypoint": ["tail", "-f", "/dev/null"],
            "secureAccess": false,
        }))
        .unwrap();
        assert_eq!((spec.image.as_str(), spec.init), ("python:3.12", None));
        assert_eq!(spec.lifetime.ttl, Some(Duration::from_secs(600)));
        assert_eq!((spec.lifetime.on_expiry, spec.labels["team"].as_str()), (OnExpiry::Remove, "x"));
    }

    #[test]
    fn their_interpreters_are_this_machines() {
        let spec = |image: &str, entrypoint: &str| {
            asked(json!({ "image": { "uri": image }, "entrypoint": [entrypoint] })).unwrap()
        };
        let stand_in =
            spec("opensandbox/code-interpreter:v1.0.2", "/opt/code-interpreter/code-interpreter.sh");
        assert!(stand_in.image.is_host() && stand_in.init.is_none());
        assert!(spec("opensandbox/code-interpreter", "sleep").init.is_some());
        let other = spec("evil/opensandbox/code-interpreter", "/opt/x");
        assert!(!other.image.is_host() && other.init.is_some());
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let kind = |extra: Value| {
            let mut body = json!({ "image": { "uri": "host" } });
            body.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
            asked(body).map(drop).map_err(|error| error.kind())
        };
        let (invalid, unsupported) = (Err(ErrorKind::InvalidRequest), Err(ErrorKind::Unsupported));
        assert_eq!(kind(json!({ "networkPolicy": { "defaultAction": "deny" } })), Ok(()));
        assert_eq!(kind(json!({ "networkPolicy": { "defaultAction": "allow" } })), unsupported);
        let allows = json!({ "networkPolicy": { "egress": [{ "action": "allow", "target": "a.example" }] } });
        assert_eq!(kind(allows), unsupported);
        assert_eq!(kind(json!({ "extensions": { "poolRef": "p" } })), unsupported);
        assert_eq!(kind(json!({ "templateId": "t" })), unsupported);
        assert_eq!(kind(json!({ "lifecycle": { "preStart": {} } })), unsupported);
        assert_eq!(kind(json!({ "credentialProxy": { "enabled": true } })), unsupported);
        assert_eq!(kind(json!({ "platform": { "os": "windows", "arch": "amd64" } })), unsupported);
        assert_eq!(kind(json!({ "snapshotId": "s" })), invalid);
        assert_eq!(kind(json!({ "metadata": { "opensandbox.io/x": "y" } })), invalid);
        assert_eq!(kind(json!({ "unknown": 1 })), invalid);
        assert_eq!(kind(json!({ "timeout": -1 })), invalid);
        assert_eq!(kind(json!({ "volumes": [{ "name": "v", "mountPath": "/v" }] })), invalid);
    }
}

//! `POST /sandboxes`.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use axum::{Extension, Json, extract::State, http::StatusCode};
use engine::{Engine, Principal};
use sandbox::{
    Error, ErrorKind, MountSource, MountSpec, Namespace, Result, RootfsSpec, VolumeKind, VolumeName,
    VolumeSpec,
};
use serde::Deserialize;
use serde_json::Value;

use crate::{
    dialects::opensandbox::{
        ask::{Caller, Front},
        create::{Creation, SandboxRequest},
        egress::NetworkPolicy,
        handle::shown,
        resources, view,
    },
    http::{ApiResult, JsonBody},
    images::{Password, Registry},
    links::BaseUrl,
    mcp::{Call, Surface, create::mounts},
};

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct NewSandbox {
    image: Option<Image>,
    snapshot_id: Option<String>,
    template_id: Option<String>,
    entrypoint: Option<Vec<String>>,
    /// Seconds; without it, the sandbox stops after the time of `[defaults] idle` without use.
    timeout: Option<u64>,
    resource_limits: Option<BTreeMap<String, String>>,
    /// Resources for a scheduler to set aside. Nothing is set aside here.
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

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Auth {
    username: Option<String>,
    password: Option<Password>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Platform {
    os: String,
    arch: String,
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

/// A volume of the daemon, which outlives the sandbox.
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
    let who = caller.who;
    let (snapshot, claims) = (asked.snapshot_id.clone(), new_claims(&asked)?);
    let Creation { mut spec, pull } = creation(asked, &who)?;
    if let Some(id) = snapshot {
        let snapshot = front.engine().snapshot(&who, &id.parse()?).await?;
        spec.labels.insert(view::SNAPSHOT.to_owned(), snapshot.id.to_string());
        spec.rootfs = Some(RootfsSpec::Snapshot { snapshot: snapshot.digest });
    }
    if spec.mounts.iter().any(|mount| matches!(mount.source, MountSource::Bind { .. })) {
        let surface = Arc::new(Surface::native());
        let call = Call::alone(front.mcp.clone(), surface, who.clone(), base.map(|base| base.0));
        mounts::allow(&call, &mut spec.mounts).await.map_err(Error::from)?;
    }
    for name in claims {
        make_volume(front.engine(), &who, VolumeSpec { namespace: spec.namespace.clone(), ..volume(name) })
            .await?;
    }
    let made = Creation { spec, pull }.make(front.engine(), &who).await?;
    Ok((StatusCode::ACCEPTED, Json(super::shape(&made))))
}

/// The volumes to make where they do not exist.
fn new_claims(asked: &NewSandbox) -> Result<Vec<VolumeName>> {
    let claims = asked.volumes.iter().flatten().filter_map(|volume| volume.pvc.as_ref());
    let wanted = claims.filter(|claim| claim.create_if_not_exists != Some(false));
    wanted.map(|claim| Ok(claim.claim_name.parse()?)).collect()
}

fn volume(name: VolumeName) -> VolumeSpec {
    VolumeSpec {
        name,
        namespace: Namespace::default(),
        kind: VolumeKind::default(),
        size: None,
        quota: None,
        labels: BTreeMap::new(),
    }
}

/// Makes a volume that does not exist. It stays, as it does there, should the sandbox not be made.
async fn make_volume(engine: &Engine, who: &Principal, spec: VolumeSpec) -> Result<()> {
    match engine.create_volume(who, spec).await {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
        made => made.map(drop),
    }
}

fn creation(asked: NewSandbox, who: &Principal) -> Result<Creation> {
    refuse_unsupported(&asked)?;
    if let Some(requests) = &asked.resource_requests {
        resources::limits(requests)?;
    }
    let mounts = asked.volumes.iter().flatten().map(mount).collect::<Result<_>>()?;
    let (image, auth) = asked.image.map_or((None, None), |image| (Some(image.uri), image.auth));
    let Auth { username, password } = auth.unwrap_or_default();
    let request = SandboxRequest {
        image,
        registry: Registry { username, password, ..Registry::default() },
        entrypoint: asked.entrypoint,
        ttl: asked.timeout.map(Duration::from_secs),
        resources: asked.resource_limits.unwrap_or_default(),
        env: asked.env.unwrap_or_default(),
        metadata: asked.metadata.unwrap_or_default(),
        extensions: asked.extensions.unwrap_or_default(),
        network_policy: asked.network_policy,
    };
    let mut creation = request.creation(who.home_namespace())?;
    creation.spec.mounts = mounts;
    Ok(creation)
}

fn refuse_unsupported(asked: &NewSandbox) -> Result<()> {
    if asked.template_id.is_some() {
        return Err(super::no_such("templates", "Create the sandbox from an image or a snapshot."));
    }
    let is_pooled = asked.extensions.as_ref().is_some_and(|map| map.contains_key("poolRef"));
    if !is_pooled && asked.image.is_some() == asked.snapshot_id.is_some() {
        return Err(Error::invalid("give either image or snapshotId"));
    }
    if let Some(Platform { os, arch }) = &asked.platform {
        view::check_platform(os, arch)?;
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

fn mount(volume: &Volume) -> Result<MountSpec> {
    let name = shown(&volume.name);
    let source = match (&volume.host, &volume.pvc) {
        (Some(HostPath { path }), None) => {
            let path = match &volume.sub_path {
                Some(below) => format!("{}/{}", path.trim_end_matches('/'), below.trim_start_matches('/')),
                None => path.clone(),
            };
            MountSource::Bind { host_path: path.into(), no_links: false, allowed: None }
        }
        (None, Some(claim)) => {
            let has_more =
                claim.storage_class.is_some() || claim.storage.is_some() || claim.access_modes.is_some();
            if has_more || claim.delete_on_sandbox_termination == Some(true) || volume.sub_path.is_some() {
                let message = format!("volume {name}: only claimName is supported");
                return Err(Error::new(ErrorKind::Unsupported, message)
                    .with_hint("Create the volume first, and remove it when no sandbox uses it."));
            }
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

#[cfg(test)]
mod tests {
    use sandbox::{OnExpiry, SandboxSpec};
    use serde_json::json;

    use super::*;

    fn asked(value: Value) -> Result<SandboxSpec> {
        let asked = serde_json::from_value(value).map_err(|error| Error::invalid(error.to_string()))?;
        creation(asked, &Principal::developer("dev")).map(|creation| creation.spec)
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
    fn what_cannot_be_is_refused() {
        let kind = |extra: Value| {
            let mut body = json!({ "image": { "uri": "host" } });
            body.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
            asked(body).map(drop).map_err(|error| error.kind())
        };
        let (invalid, unsupported) = (Err(ErrorKind::InvalidRequest), Err(ErrorKind::Unsupported));
        assert_eq!(kind(json!({ "networkPolicy": { "defaultAction": "allow" } })), Ok(()));
        assert_eq!(
            kind(json!({ "networkPolicy": { "egress": [{ "action": "allow", "target": "*" }] } })),
            invalid
        );
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

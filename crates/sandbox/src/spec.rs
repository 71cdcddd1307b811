//! The request for a sandbox: image, limits, lifetime. Mostly optional.

use std::{collections::BTreeMap, fmt, path::PathBuf, str::FromStr, time::Duration};

use serde::{Deserialize, Serialize};

use crate::{
    BackendKind, ExecSpec, FileIdentity, Limits, MountSpec, Namespace, NetworkSpec, Patch, PortSpec,
    RequestId, Rlimit, SandboxName, SecretUse, object::only_object,
};

const MAX_IMAGE_BYTES: usize = 512;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text:?} is not an image reference: write `host`, or a name such as python or registry.example/team/app:1.2"
)]
pub struct InvalidImage {
    pub text: String,
}

/// A reference to an image: `host`, or an OCI reference.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, utoipa::ToSchema)]
#[schema(default = "host", example = "host")]
#[serde(try_from = "String", into = "String")]
pub struct ImageRef(String);

impl ImageRef {
    pub const HOST: &'static str = "host";

    pub fn host() -> Self {
        Self(Self::HOST.to_owned())
    }

    pub fn is_host(&self) -> bool {
        self.0 == Self::HOST
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Default for ImageRef {
    fn default() -> Self {
        Self::host()
    }
}

impl FromStr for ImageRef {
    type Err = InvalidImage;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let begins_well = text.starts_with(|c: char| c.is_ascii_alphanumeric());
        let is_plain = text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_./:@+".contains(&byte));
        let climbs = text.split('/').any(|part| part.is_empty() || part == "." || part == "..");
        if !begins_well || !is_plain || climbs || text.len() > MAX_IMAGE_BYTES {
            return Err(InvalidImage { text: text.chars().take(80).collect() });
        }
        Ok(Self(text.to_owned()))
    }
}

impl fmt::Display for ImageRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl TryFrom<String> for ImageRef {
    type Error = InvalidImage;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<ImageRef> for String {
    fn from(image: ImageRef) -> Self {
        image.0
    }
}

/// When a registry is asked for an image.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum PullPolicy {
    /// Every time, so that a moved tag is noticed.
    Always,
    #[default]
    IfMissing,
    Never,
}

/// A root file system that is not an image. Paths of the host are for the daemon's owner, and for those whom the policy
/// of a front end lets use them.
// `allowed`: which file the path led to when such a policy allowed it. Never read from a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase", tag = "kind")]
pub enum RootfsSpec {
    /// By name, digest or the beginning of the digest.
    Snapshot { snapshot: String },
    /// A directory of the host. Never written to: the sandbox has its own layer over it.
    Directory {
        #[schema(value_type = String)]
        path: PathBuf,
        /// Refuse the path if a link is on it, now or at a later start.
        #[serde(default, rename = "noLinks", skip_serializing_if = "std::ops::Not::not")]
        no_links: bool,
        #[serde(skip)]
        allowed: Option<FileIdentity>,
    },
    /// An ext4 file system in a file of the host. Never written to.
    Disk {
        #[schema(value_type = String)]
        path: PathBuf,
        #[serde(skip)]
        allowed: Option<FileIdentity>,
    },
}

/// The action taken when a lifetime ends.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum OnExpiry {
    /// Keep the files; the sandbox can be started again.
    #[default]
    Stop,
    Remove,
}

/// The lifetime of a sandbox: since its start, and while idle.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, remote = "Self")]
pub struct Lifetime {
    /// From its start.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "millis", rename = "ttlMs")]
    #[schema(value_type = Option<u64>)]
    pub ttl: Option<Duration>,
    /// Without a request, and without a living process of the workload.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "millis", rename = "idleMs")]
    #[schema(value_type = Option<u64>)]
    pub idle: Option<Duration>,
    /// The action taken then.
    #[serde(default)]
    pub on_expiry: OnExpiry,
}
only_object!(Lifetime);

/// A program that starts with the sandbox each time and runs beside everything else.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields, remote = "Self")]
pub struct InitSpec {
    /// Looked up in `PATH` if it has no slash.
    pub path: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub args: Vec<String>,
    /// Added to the sandbox's own environment.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
}
only_object!(InitSpec);

impl InitSpec {
    pub fn exec(&self) -> ExecSpec {
        let command = std::iter::once(&self.path).chain(&self.args).cloned().collect();
        ExecSpec { command, env: self.env.clone(), ..ExecSpec::default() }
    }
}

/// The specification of a new sandbox. Every member is optional.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SandboxSpec {
    /// Made up by the engine when absent. Letters, digits, `-`, `_` and `.`, at most 63.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<SandboxName>,
    /// The caller's own when absent.
    #[serde(default)]
    pub namespace: Namespace,
    /// Chosen by what the host supports when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backend: Option<BackendKind>,
    /// `host`, or an OCI reference.
    #[serde(default)]
    pub image: ImageRef,
    /// When the registry is asked.
    #[serde(default)]
    pub pull: PullPolicy,
    /// Use image `host` if this one cannot be pulled and `host` has its interpreter (`python`, `node`). Without this
    /// the create fails.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub image_fallback: bool,
    /// In place of an image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rootfs: Option<RootfsSpec>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mounts: Vec<MountSpec>,
    /// Applied in their order before anything runs; one that fails makes no sandbox.
    // A record has none: they are done once. Nor has it scripts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub patches: Vec<Patch>,
    /// Programs for `/usr/local/bin`, name and text; written after the patches.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub scripts: BTreeMap<String, String>,
    #[serde(default)]
    pub limits: Limits,
    /// Applied to every exec that does not set the same resource itself.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rlimits: Vec<Rlimit>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// Absolute.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// `name`, `uid`, `name:group` or `uid:gid`: the user of execs that name none; root inside when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// The shell for command lines that name none; the image's, or bash where there is one, or `sh`, when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shell: Option<String>,
    /// Replaces the image's entry point and its command.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub entrypoint: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub init: Option<InitSpec>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hostname: Option<SandboxName>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Ports to expose. A fork or a restored sandbox does not get them.
    // A record has none: what was bound for them is in its own list.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<PortSpec>,
    /// Its network policy. Forks and restored sandboxes get the same.
    #[serde(default, skip_serializing_if = "NetworkSpec::is_default")]
    pub network: NetworkSpec,
    /// Secrets that it uses. Its programs see placeholders; the values are put in outside, on the way to their hosts.
    /// A fork gets the same; a restored sandbox gets none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<crate::secret::SecretUseForms>)]
    pub secrets: Vec<SecretUse>,
    #[serde(default)]
    pub lifetime: Lifetime,
    /// The same id again returns the first sandbox instead of making a second one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<RequestId>,
}

/// Durations cross the wire as whole milliseconds.
pub(crate) mod millis {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serializer};

    pub(crate) fn serialize<S: Serializer>(
        span: &Option<Duration>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        match span {
            Some(span) => serializer.serialize_u64(u64::try_from(span.as_millis()).unwrap_or(u64::MAX)),
            None => serializer.serialize_none(),
        }
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Duration>, D::Error> {
        Ok(Option::<u64>::deserialize(deserializer)?.map(Duration::from_millis))
    }
}

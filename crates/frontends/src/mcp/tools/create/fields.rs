//! The fields for a new sandbox. Flat fields and grouped ones mean the same; the grouped ones win.

use std::collections::BTreeMap;

use sandbox::{OnExpiry, PortSpec, Preset, PullPolicy, network};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::{
    images::Password,
    mcp::{Failure, Native, tools::exec::RlimitField},
};

/// Everything that `sandbox_create` and `sandbox_run` take to make a sandbox.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct CreateFields {
    /// Made up when absent.
    pub(crate) name: Option<String>,
    /// host: the programs of this machine (default); else an OCI reference
    pub(crate) image: Option<String>,
    /// Accept host in place of a python or node image
    pub(crate) image_fallback: Option<bool>,
    #[schemars(extend("x-full-only" = true))]
    pub(crate) rootfs: Option<Rootfs>,
    #[schemars(range(min = 0.01, max = 4096.0))]
    pub(crate) cpus: Option<f64>,
    #[schemars(range(min = 16))]
    pub(crate) memory_mib: Option<u64>,
    #[schemars(range(min = 1))]
    pub(crate) disk_mib: Option<u64>,
    pub(crate) workdir: Option<String>,
    pub(crate) env: Option<BTreeMap<String, String>>,
    #[schemars(extend("x-full-only" = "lifecycle"))]
    pub(crate) labels: Option<BTreeMap<String, String>>,
    #[schemars(extend("x-full-only" = "volumes"))]
    pub(crate) volumes: Option<Vec<Mount>>,
    #[schemars(extend("x-full-only" = "volumes"))]
    pub(crate) mounts: Option<Vec<Mount>>,
    #[schemars(extend("x-full-only" = true))]
    /// Files to write before it is handed over.
    pub(crate) patches: Option<Vec<Patch>>,
    #[schemars(extend("x-full-only" = true))]
    pub(crate) entrypoint: Option<Vec<String>>,
    #[schemars(extend("x-full-only" = "lifecycle"))]
    pub(crate) hostname: Option<String>,
    #[schemars(extend("x-full-only" = true))]
    pub(crate) backend: Option<String>,
    /// Until it expires.
    #[schemars(range(min = 1))]
    pub(crate) max_duration_ms: Option<u64>,
    #[schemars(extend("x-full-only" = "lifecycle"))]
    /// Without work until it expires.
    #[schemars(range(min = 1))]
    pub(crate) idle_timeout_ms: Option<u64>,
    /// Seconds until it expires.
    #[schemars(range(min = 1), extend("x-unlisted" = true))]
    pub(crate) max_duration: Option<u64>,
    /// Seconds without work until it expires.
    #[schemars(range(min = 1), extend("x-unlisted" = true))]
    pub(crate) idle_timeout: Option<u64>,
    #[schemars(extend("x-full-only" = "lifecycle"))]
    #[schemars(with = "Option<Native<OnExpiry>>")]
    pub(crate) on_expiry: Option<OnExpiry>,
    #[schemars(extend("x-full-only" = "lifecycle"))]
    /// The same again returns the sandbox made first.
    pub(crate) request_id: Option<String>,
    #[schemars(extend("x-full-only" = true))]
    pub(crate) resources: Option<Resources>,
    #[schemars(extend("x-full-only" = true))]
    pub(crate) process: Option<Process>,
    #[schemars(extend("x-full-only" = "lifecycle"))]
    pub(crate) lifecycle: Option<Lifecycle>,
    #[schemars(extend("x-full-only" = "network"))]
    pub(crate) network: Option<Network>,
    #[schemars(extend("x-full-only" = "network"))]
    pub(crate) secrets: Option<Vec<Secret>>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "lowercase", rename_all_fields = "camelCase")]
pub(crate) enum Rootfs {
    Host {},
    Oci {
        reference: String,
        #[schemars(with = "Option<Native<PullPolicy>>")]
        pull_policy: Option<PullPolicy>,
        #[schemars(range(min = 1))]
        upper_size_mib: Option<u64>,
        registry: Option<Registry>,
    },
    Bind {
        path: String,
    },
    Disk {
        path: String,
        fstype: Option<String>,
    },
    Snapshot {
        path_or_name: String,
    },
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Registry {
    /// Without TLS.
    pub(super) insecure: Option<bool>,
    pub(super) ca_certs_path: Option<String>,
    pub(super) auth: Option<RegistryAuth>,
}

#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct RegistryAuth {
    pub(super) kind: RegistryAuthKind,
    pub(super) username: Option<String>,
    pub(super) password: Option<Password>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum RegistryAuthKind {
    Anonymous,
    Basic,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Mount {
    pub(super) kind: MountKind,
    pub(super) guest_path: String,
    pub(super) host_path: Option<String>,
    /// Of a volume.
    pub(super) name: Option<String>,
    #[schemars(extend("x-full-only" = true))]
    /// In place of hostPath or name.
    pub(super) source: Option<String>,
    pub(super) readonly: Option<bool>,
    #[schemars(extend("x-full-only" = true))]
    pub(super) noexec: Option<bool>,
    #[schemars(extend("x-full-only" = true))]
    pub(super) nosuid: Option<bool>,
    #[schemars(extend("x-full-only" = true))]
    pub(super) nodev: Option<bool>,
    #[schemars(range(min = 1))]
    pub(super) size_mib: Option<u64>,
    #[schemars(extend("x-full-only" = true))]
    pub(super) format: Option<DiskFormat>,
    #[schemars(extend("x-full-only" = true))]
    pub(super) fstype: Option<String>,
    #[schemars(extend("x-full-only" = true))]
    pub(super) stat_virtualization: Option<StatVirtualization>,
    #[schemars(extend("x-full-only" = true))]
    pub(super) host_permissions: Option<HostPermissions>,
}

impl Mount {
    /// A path of the host, which may be written to.
    pub(crate) fn bind(host_path: String, guest_path: String) -> Self {
        Self {
            kind: MountKind::Bind,
            guest_path,
            host_path: Some(host_path),
            name: None,
            source: None,
            readonly: None,
            noexec: None,
            nosuid: None,
            nodev: None,
            size_mib: None,
            format: None,
            fstype: None,
            stat_virtualization: None,
            host_permissions: None,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum MountKind {
    Bind,
    Named,
    Tmpfs,
    Disk,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum DiskFormat {
    Raw,
    Qcow2,
    Vmdk,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum StatVirtualization {
    Strict,
    Relaxed,
    Off,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum HostPermissions {
    Private,
    Mirror,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Patch {
    pub(crate) kind: PatchKind,
    /// Ignored; kind says it.
    #[serde(rename = "type")]
    #[expect(dead_code, reason = "taken because others take it, and never looked at")]
    other_kind: Option<PatchKind>,
    pub(crate) path: Option<String>,
    pub(crate) guest_path: Option<String>,
    pub(crate) host_path: Option<String>,
    pub(crate) content: Option<String>,
    pub(crate) content_base64: Option<String>,
    pub(crate) target: Option<String>,
    pub(crate) link_path: Option<String>,
    /// Permission bits, as a decimal number: 420 is 0644.
    #[schemars(range(min = 0, max = 65535))]
    pub(crate) mode: Option<u32>,
    /// Whether something that is there may be overwritten.
    pub(crate) replace: Option<bool>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) enum PatchKind {
    Text,
    File,
    CopyFile,
    CopyDir,
    Mkdir,
    Append,
    Remove,
    Symlink,
}

impl PatchKind {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::File => "file",
            Self::CopyFile => "copyFile",
            Self::CopyDir => "copyDir",
            Self::Mkdir => "mkdir",
            Self::Append => "append",
            Self::Remove => "remove",
            Self::Symlink => "symlink",
        }
    }
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Resources {
    #[schemars(range(min = 0.01, max = 4096.0))]
    pub(crate) cpus: Option<f64>,
    #[schemars(range(min = 16))]
    pub(crate) memory_mib: Option<u64>,
    #[schemars(range(min = 1))]
    pub(crate) disk_mib: Option<u64>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Process {
    pub(crate) workdir: Option<String>,
    pub(crate) shell: Option<String>,
    pub(crate) env: Option<BTreeMap<String, String>>,
    pub(crate) labels: Option<BTreeMap<String, String>>,
    pub(crate) entrypoint: Option<Vec<String>>,
    pub(crate) user: Option<String>,
    /// Programs for /usr/local/bin: name and text.
    pub(crate) scripts: Option<BTreeMap<String, String>>,
    pub(crate) rlimits: Option<Vec<RlimitField>>,
    pub(crate) init: Option<Init>,
}

/// Started with the sandbox, each time.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct Init {
    pub(crate) path: String,
    pub(crate) args: Option<Vec<String>>,
    pub(crate) env: Option<BTreeMap<String, String>>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Lifecycle {
    pub(crate) detached: Option<bool>,
    /// Remove a sandbox of that name first.
    pub(crate) replace: Option<bool>,
    pub(crate) replace_timeout_ms: Option<u64>,
    #[schemars(range(min = 1), extend("x-unlisted" = true))]
    pub(crate) max_duration_secs: Option<u64>,
    #[schemars(range(min = 1), extend("x-unlisted" = true))]
    pub(crate) idle_timeout_secs: Option<u64>,
    #[schemars(with = "Option<Native<OnExpiry>>")]
    pub(crate) on_expiry: Option<OnExpiry>,
    pub(crate) log_level: Option<LogLevel>,
    pub(crate) metrics_sample_interval_ms: Option<u64>,
    pub(crate) disable_metrics_sample: Option<bool>,
    pub(crate) quiet_logs: Option<bool>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum LogLevel {
    Error,
    Warn,
    Info,
    Debug,
    Trace,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Network {
    /// Reached without a rule; default packages
    #[schemars(with = "Option<Native<Preset>>")]
    pub(crate) preset: Option<Preset>,
    /// Such as api.example.org, *.example.org:443, 10.2.0.0/16:5432, host:3000
    pub(crate) allow: Option<Vec<String>>,
    pub(crate) deny: Option<Vec<String>>,
    #[schemars(extend("x-full-only" = true))]
    /// microsandbox's profiles, in place of preset: none, public, private, host, all
    pub(crate) policy: Option<String>,
    #[schemars(extend("x-full-only" = true))]
    /// microsandbox's rules, the first that matches decides: allow@*.example.org:tcp:443
    pub(crate) rules: Option<Vec<String>>,
    #[schemars(extend("x-full-only" = true))]
    /// The same as preset none
    pub(crate) disabled: Option<bool>,
    pub(crate) ports: Option<Vec<Port>>,
    #[schemars(extend("x-full-only" = true))]
    #[schemars(range(min = 1))]
    pub(crate) max_connections: Option<u64>,
    #[schemars(extend("x-full-only" = true))]
    pub(crate) trust_host_cas: Option<bool>,
    #[schemars(extend("x-full-only" = true))]
    pub(crate) ipv4_pool: Option<String>,
    #[schemars(extend("x-full-only" = true))]
    pub(crate) ipv6_pool: Option<String>,
    #[schemars(extend("x-full-only" = true))]
    pub(crate) dns: Option<Dns>,
    #[schemars(extend("x-full-only" = true))]
    pub(crate) tls: Option<Tls>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Port {
    /// 0 for any free one
    pub(crate) host_port: u16,
    #[schemars(range(min = 1))]
    pub(crate) guest_port: u16,
    pub(crate) bind_address: Option<String>,
    pub(crate) protocol: Option<Protocol>,
}

impl Port {
    pub(crate) fn published(spec: &PortSpec) -> Self {
        Self {
            host_port: spec.host.unwrap_or_default(),
            guest_port: spec.inside,
            bind_address: spec.address.map(|address| address.to_string()),
            protocol: (spec.protocol == network::Protocol::Udp).then_some(Protocol::Udp),
        }
    }

    /// As a spec has it.
    pub(crate) fn spec(&self) -> Result<PortSpec, Failure> {
        let address = self.bind_address.as_ref().map(|text| {
            text.parse().map_err(|_malformed| Failure::invalid(format!("{text:?} is not an IP address")))
        });
        let address = address.transpose()?;
        let protocol = self.protocol.map(Protocol::meant).unwrap_or_default();
        Ok(PortSpec { protocol, address, ..PortSpec::published(self.host_port, self.guest_port) })
    }
}

#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Protocol {
    Tcp,
    Udp,
}

impl Protocol {
    pub(crate) fn meant(self) -> network::Protocol {
        match self {
            Self::Tcp => network::Protocol::Tcp,
            Self::Udp => network::Protocol::Udp,
        }
    }
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Dns {
    pub(crate) allow_rebind: Option<bool>,
    pub(crate) nameservers: Option<Vec<String>>,
    #[schemars(range(min = 1))]
    pub(crate) query_timeout_ms: Option<u64>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Tls {
    #[schemars(inner(range(min = 1)))]
    pub(super) ports: Option<Vec<u16>>,
    pub(super) bypass_domains: Option<Vec<String>>,
    pub(super) block_quic: Option<bool>,
    pub(super) ca_cert_path: Option<String>,
    pub(super) ca_key_path: Option<String>,
    pub(super) upstream_ca_cert_paths: Option<Vec<String>>,
    pub(super) trust_host_cas: Option<bool>,
}

/// A secret's name, or more.
// The object first: what is wrong with one is told in its terms, which never quote its value.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(untagged)]
pub(crate) enum Secret {
    Fields(SecretFields),
    Name(String),
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct SecretFields {
    /// One of the operator's, as sandbox_secrets lists them
    pub(super) name: Option<String>,
    /// Variable inside; default its name
    pub(super) env: Option<String>,
    /// The same as env
    pub(super) env_var: Option<String>,
    /// For this sandbox only
    pub(super) value: Option<Password>,
    /// The same as name
    pub(super) value_env: Option<String>,
    pub(super) allowed_host: Option<String>,
    pub(super) on_violation: Option<OnViolation>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum OnViolation {
    Block,
    BlockAndLog,
    BlockAndTerminate,
}

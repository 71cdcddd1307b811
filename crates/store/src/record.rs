//! One row each, as the engine sees them.

use jiff::Timestamp;
use sandbox::{
    Authority, Call, DnsName, EventKind, ExecId, ExecOutcome, ExecSpec, ExecState, ExposedPort, Frontend,
    InstalledPackage, Isolation, KeyId, KeyView, Lifetime, Namespace, NetworkRequest, PackageJobId,
    PackageManager, PackageState, RequestId, SandboxId, SandboxName, SandboxPlan, SandboxSpec, SandboxState,
    SecretName, SecretRules, SecretValue, ShareId, SnapshotId, SnapshotName, VolumeId, VolumeSpec,
    VolumeStorage,
};
use serde::{Deserialize, Serialize};

/// All that is known of one sandbox. Its `requestId`, if any, is in `spec`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SandboxRecord {
    pub id: SandboxId,
    pub name: SandboxName,
    pub namespace: Namespace,
    pub spec: SandboxSpec,
    pub plan: SandboxPlan,
    pub state: SandboxState,
    /// Why it failed or stopped.
    pub reason: Option<String>,
    /// The walls it got; absent until it was made.
    pub isolation: Option<Isolation>,
    pub created_at: Timestamp,
    pub started_at: Option<Timestamp>,
    pub stopped_at: Option<Timestamp>,
    pub expires_at: Option<Timestamp>,
    pub lifetime: Lifetime,
    pub last_active_at: Timestamp,
    /// The key that made it; none for the daemon's owner.
    pub owner: Option<KeyId>,
    /// The sandbox that goes for its sake as soon as this one runs.
    pub replaces: Option<SandboxId>,
    /// The ports that are reachable from outside.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<ExposedPort>,
    /// Requests beyond its network policy, oldest first. The grants that hold are in the plan.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub network_requests: Vec<NetworkRequest>,
    /// The SHA-256 of what was asked, in hexadecimal; none without a request id, and for records of earlier releases.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_hash: Option<String>,
}

/// All that is known of one exec but its output, which is in the ledger.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExecRecord {
    pub id: ExecId,
    pub sandbox: SandboxId,
    pub spec: ExecSpec,
    pub state: ExecState,
    pub outcome: Option<ExecOutcome>,
    pub pid: Option<i32>,
    pub created_at: Timestamp,
    pub started_at: Option<Timestamp>,
    pub ended_at: Option<Timestamp>,
    /// Number of the ledger's last entry when it ended; more may have followed.
    pub last_entry: Option<u64>,
    /// Pieces of output that never came into the ledger.
    pub n_lost: u64,
    /// Whoever asked for it, in words. Unknown for a sandbox's own init, and for execs of earlier releases.
    pub asked_by: Option<String>,
    /// The SHA-256 of what was asked, in hexadecimal; none without a request id, and for records of earlier releases.
    pub request_hash: Option<String>,
}

/// A share: an address that shows a sandbox, or what a key does, to whoever has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShareRecord {
    pub id: ShareId,
    /// Whoever made it, in words.
    pub made_by: String,
    /// The key of whoever made it, if one was used.
    pub key: Option<KeyId>,
    /// The sandbox or the key that it shows.
    pub sandbox: Option<SandboxId>,
    pub shown_key: Option<KeyId>,
    pub created_at: Timestamp,
    pub expires_at: Timestamp,
}

/// All that is known of one job that installs packages but what it printed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PackageJobRecord {
    pub id: PackageJobId,
    pub sandbox: SandboxId,
    pub request_id: Option<RequestId>,
    pub manager: PackageManager,
    /// As the manager was told.
    pub packages: Vec<String>,
    pub state: PackageState,
    /// The install itself; absent until it began.
    pub exec: Option<ExecId>,
    /// Where inside the index is served for it.
    pub port: Option<u16>,
    /// A note on how it stands or ended.
    pub message: Option<String>,
    /// The packages of the job that are there now.
    pub installed: Vec<InstalledPackage>,
    pub created_at: Timestamp,
    pub started_at: Option<Timestamp>,
    pub ended_at: Option<Timestamp>,
    /// The SHA-256 of what was asked, in hexadecimal; none without a request id, and for records of earlier releases.
    pub request_hash: Option<String>,
}

/// All that is known of one snapshot but its files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotRecord {
    pub id: SnapshotId,
    pub namespace: Namespace,
    /// None: kept for whoever uses it, and removed with the last of them.
    pub name: Option<SnapshotName>,
    /// The digest of `manifest`.
    pub digest: String,
    /// A [`sandbox::SnapshotManifest`] as canonical JSON, byte for byte as on disk.
    pub manifest: String,
    /// How long its source stood still for it, where it ran.
    pub held_micros: Option<u64>,
    /// The key that made it; none for the daemon's owner.
    pub owner: Option<KeyId>,
    /// When it came to be on this host.
    pub created_at: Timestamp,
}

/// The result of a listing, oldest first. One bad row never hides the others.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SnapshotRows {
    pub records: Vec<SnapshotRecord>,
    pub corrupt: Vec<CorruptRow>,
}

/// A [`sandbox::Event`] before it has a number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewEvent {
    pub at: Timestamp,
    pub kind: EventKind,
    pub sandbox: Option<SandboxId>,
    pub name: Option<SandboxName>,
    pub namespace: Option<Namespace>,
    pub exec: Option<ExecId>,
    pub detail: String,
}

/// A key as it is kept: what may be told of it, and the SHA-256 of its secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyRecord {
    pub key: KeyView,
    pub hash: [u8; 32],
}

/// A secret of the operator. Never printed: its value has no words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecretRecord {
    pub namespace: Namespace,
    pub name: SecretName,
    pub rules: SecretRules,
    pub value: SecretValue,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    /// When a sandbox was last started with it.
    pub last_used_at: Option<Timestamp>,
}

/// The secrets and the authority that belong to one sandbox alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SandboxSecrets {
    pub authority: Authority,
    /// The hosts that the authority can vouch for.
    pub hosts: Vec<DnsName>,
    pub own: Vec<OwnSecret>,
}

/// A secret that belongs to one sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwnSecret {
    pub name: SecretName,
    pub value: SecretValue,
    pub rules: SecretRules,
}

/// A [`sandbox::Call`] before it has a number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewCall {
    pub at: Timestamp,
    pub who: Option<String>,
    pub key: Option<KeyId>,
    pub frontend: Frontend,
    pub action: String,
    pub sandbox: Option<String>,
    pub namespace: Option<Namespace>,
    pub error: Option<String>,
    pub duration_ms: u64,
    pub client: Option<String>,
}

impl NewCall {
    pub fn numbered(self, number: u64) -> Call {
        Call {
            number,
            at: self.at,
            who: self.who,
            key: self.key,
            frontend: self.frontend,
            action: self.action,
            sandbox: self.sandbox,
            namespace: self.namespace,
            error: self.error,
            duration_ms: self.duration_ms,
            client: self.client,
        }
    }
}

/// Which lines of the audit to read. Everything given must hold.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CallQuery {
    /// The first number wanted; without it the last `limit` calls.
    pub from: Option<u64>,
    /// Only calls with lower numbers.
    pub before: Option<u64>,
    pub limit: u32,
    pub namespace: Option<Namespace>,
    /// Name of the caller, or label or id of its key.
    pub who: Option<String>,
    /// Each must be found somewhere in the call, whatever its case.
    pub words: Vec<String>,
    /// Only those that failed, or only those that did not.
    pub has_failed: Option<bool>,
}

/// The result of a listing, oldest first. One bad row never hides the others.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SandboxRows {
    pub records: Vec<SandboxRecord>,
    pub corrupt: Vec<CorruptRow>,
}

/// All that is known of one volume.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct VolumeRecord {
    pub id: VolumeId,
    pub spec: VolumeSpec,
    pub state: VolumeState,
    /// How its files are kept; absent until they are.
    pub storage: Option<VolumeStorage>,
    pub created_at: Timestamp,
    /// The key that made it; none for the daemon's owner.
    pub owner: Option<KeyId>,
}

/// How far a volume has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum VolumeState {
    Making,
    Ready,
    Removing,
}

/// As [`SandboxRows`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct VolumeRows {
    pub records: Vec<VolumeRecord>,
    pub corrupt: Vec<CorruptRow>,
}

/// A row that cannot be read. It stays as it is until someone removes the sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CorruptRow {
    /// As stored, whether or not it is a well-formed id.
    pub id: String,
    pub reason: String,
}

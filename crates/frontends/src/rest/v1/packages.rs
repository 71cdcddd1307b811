//! Packages on the wire.

use jiff::Timestamp;
use sandbox::{
    ExecId, InstalledPackage, Namespace, PackageJobId, PackageManager, PackageState, RequestId, SandboxId,
};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

/// A job that installs packages.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct PackageJob {
    #[schema(value_type = String, example = "pkg-0123456789abc")]
    pub id: PackageJobId,
    #[schema(value_type = String)]
    pub sandbox: SandboxId,
    #[schema(value_type = String, example = "pip")]
    pub manager: PackageManager,
    /// As passed to the package manager.
    pub packages: Vec<String>,
    /// `installing`, `installed` or `failed`.
    #[schema(value_type = String, example = "installed")]
    pub state: PackageState,
    /// Why it failed, or what it is waiting for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The installed packages; present once the job is done.
    #[schema(value_type = Vec<Package>)]
    pub installed: Vec<InstalledPackage>,
    /// The install itself; its log is this exec's output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub exec: Option<ExecId>,
    /// The last lines of the log; empty in lists.
    pub log: Vec<String>,
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub started_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub ended_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub request_id: Option<RequestId>,
}

/// A package that is there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Package {
    pub name: String,
    pub version: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PackageJobList {
    /// Oldest first.
    pub jobs: Vec<PackageJob>,
}

/// What to install.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PackageRequest {
    /// `pip` (default), `npm` or `apt`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub manager: Option<PackageManager>,
    /// Names with versions, as the manager writes them: `numpy`, `requests>=2,<3`, `@types/node@20`, `jq=1.6-2`.
    pub packages: Vec<String>,
    /// Kill the installation after this long; half an hour by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// The same again returns the first job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub request_id: Option<RequestId>,
}

#[derive(Debug, Clone, Default, Deserialize, IntoParams)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct InstallQuery {
    #[param(value_type = Option<String>)]
    pub namespace: Option<Namespace>,
    /// Answer when the job ended, instead of at once.
    #[serde(default)]
    pub wait: bool,
    /// With `wait`: answer after this long even if it is still running. The job continues.
    pub timeout_ms: Option<u64>,
}

#[derive(Debug, Clone, Default, Deserialize, IntoParams)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct PackagesQuery {
    #[param(value_type = Option<String>)]
    pub namespace: Option<Namespace>,
    /// Only this manager's: `pip`, `npm` or `apt`.
    #[param(value_type = Option<String>)]
    pub manager: Option<PackageManager>,
    /// Only this package: whether it is there, and the newest job for it.
    pub package: Option<String>,
}

/// Installed packages, by package manager; if one package was asked for, its status.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Packages {
    pub managers: Vec<ManagerPackages>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<PackageStatus>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ManagerPackages {
    #[schema(value_type = String, example = "pip")]
    pub manager: PackageManager,
    /// By name.
    #[schema(value_type = Vec<Package>)]
    pub packages: Vec<InstalledPackage>,
    /// The package manager did not answer in time: ask for it alone, or check what is running in the sandbox.
    #[serde(default, rename = "timedOut", skip_serializing_if = "std::ops::Not::not")]
    pub timed_out: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PackageStatus {
    pub name: String,
    #[schema(value_type = String, example = "pip")]
    pub manager: PackageManager,
    /// `installing`, `installed`, `failed` or `not_installed`.
    pub state: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The newest job for it, while it runs or when it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<PackageJob>,
}

//! Packages on the wire.

pub use engine::{PackageJob, PackageListing as ManagerPackages, PackageStatus};
pub use sandbox::InstalledPackage as Package;
use sandbox::{PackageManager, RequestId};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PackageJobList {
    /// Oldest first.
    pub jobs: Vec<PackageJob>,
}

/// The packages to install.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PackageRequest {
    /// `pip` (default), `npm` or `apt`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub manager: Option<PackageManager>,
    /// Names with versions, as the manager writes them: `numpy`, `requests>=2,<3`, `@types/node@20`, `jq=1.6-2`.
    /// May be empty with `requirementsFile`, and for npm with `cwd`.
    #[serde(default)]
    pub packages: Vec<String>,
    /// For pip: a requirements file in the sandbox, absolute or from `cwd`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requirements_file: Option<String>,
    /// The directory in which the install runs; the sandbox's working directory by default. npm installs for the
    /// project there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// Kill the installation after this long; half an hour by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// The same again returns the first job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<RequestId>,
}

query!(InstallQuery {
    /// Answer when the job ended, instead of at once.
    #[serde(default)]
    pub wait: bool,
    /// With `wait`: answer after this long even if it is still running. The job continues.
    pub timeout_ms: Option<u64>,
});

query!(PackagesQuery {
    /// Only this manager's: `pip`, `npm` or `apt`.
    pub manager: Option<PackageManager>,
    /// Only this package: whether it is there, and the newest job for it.
    pub package: Option<String>,
});

/// Installed packages, by package manager; if one package was asked for, its status.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Packages {
    pub managers: Vec<ManagerPackages>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<PackageStatus>,
}

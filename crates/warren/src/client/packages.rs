//! Calls about packages.

use std::time::Duration;

use frontends::rest::v1;
use sandbox::PackageManager;

use super::{Client, sandboxes::millis};
use crate::error::CommandResult;

impl Client {
    pub(crate) async fn install_packages(
        &self,
        sandbox: &str,
        request: &v1::PackageRequest,
    ) -> CommandResult<v1::PackageJob> {
        self.post_json(self.of(sandbox, &["packages"]), request).await
    }

    pub(crate) async fn package_job(&self, sandbox: &str, job: &str) -> CommandResult<v1::PackageJob> {
        self.get(self.of(sandbox, &["package-jobs", job])).await
    }

    pub(crate) async fn package_jobs(&self, sandbox: &str) -> CommandResult<Vec<v1::PackageJob>> {
        Ok(self.get::<v1::PackageJobList>(self.of(sandbox, &["package-jobs"])).await?.jobs)
    }

    pub(crate) async fn wait_package_job(
        &self,
        sandbox: &str,
        job: &str,
        timeout: Duration,
    ) -> CommandResult<v1::PackageJob> {
        let target = self.of(sandbox, &["package-jobs", job, "wait"]);
        self.get(target.maybe("timeoutMs", millis(Some(timeout)))).await
    }

    pub(crate) async fn packages(
        &self,
        sandbox: &str,
        manager: Option<PackageManager>,
        package: Option<&str>,
    ) -> CommandResult<v1::Packages> {
        let target = self.of(sandbox, &["packages"]).maybe("manager", manager).maybe("package", package);
        self.get(target).await
    }
}

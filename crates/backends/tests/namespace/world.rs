//! A back end on a home of its own, and a small client for the guests it makes.

use std::path::PathBuf;

use backends::namespace::{Directories, NamespaceBackend};
use sandbox::{Backend, Defaults, Instance, SandboxId, SandboxPlan, SandboxSpec};

pub(crate) use crate::client::*;

#[derive(Debug)]
pub(crate) struct World {
    pub(crate) backend: NamespaceBackend,
    pub(crate) directories: Directories,
}

impl World {
    pub(crate) fn plan_with(&self, spec: &SandboxSpec) -> SandboxPlan {
        let id = fresh_id();
        let directory = self.directories.home.join("sandboxes").join(id.as_str());
        sandbox::plan(
            &id,
            &"box".parse().unwrap(),
            spec,
            directory,
            &Defaults::default(),
            &sandbox::Base::host(),
        )
        .unwrap()
    }

    pub(crate) fn plan(&self) -> SandboxPlan {
        self.plan_with(&SandboxSpec::default())
    }

    pub(crate) async fn create(&self, plan: &SandboxPlan) -> Box<dyn Instance> {
        let made = tokio::time::timeout(PATIENCE, self.backend.create(plan)).await.unwrap();
        made.unwrap_or_else(|error| panic!("{error}: {:?}", std::error::Error::source(&error)))
    }

    pub(crate) fn run_directory(&self, id: &SandboxId) -> PathBuf {
        self.directories.run.join(id.as_str())
    }
}

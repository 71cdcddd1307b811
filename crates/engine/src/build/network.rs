//! The network of a `RUN` command: the package indexes that the operator chose, as for installs in sandboxes. Whatever
//! the build's policy allows beyond them is reached through its sandboxes' own network.
//!
//! pip, uv and npm are told by variables. apt is told by a file in `/run`, which is in no layer: the gateway is its
//! proxy, so that the sources which the image has keep their names, and nothing that apt writes down names us. What
//! managers would keep for themselves is thrown away before the layer is taken.

use std::{collections::BTreeMap, sync::Arc};

use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use sandbox::{
    Action, ErrorKind, NetworkSpec, PackageManager, Preset, Result, SandboxId,
    network::{RuleAction, RuleSpec},
};

use super::{Builder, instruction_sandbox::InstructionSandbox};
use crate::{
    PackageGateway, WriteOptions,
    disk::may_block,
    error,
    packages::Indexes,
    shared::{ActivityGuard, Life},
};

const APT_FILE: &str = "/run/warren/apt.conf";

/// The indexes as one sandbox of a build sees them.
pub(super) struct Reach {
    life: Arc<Life>,
    gateway: Arc<dyn PackageGateway>,
    sandbox: SandboxId,
    indexes: Indexes,
    /// A directory that is there only if a manager made it.
    scratch: String,
    _guard: ActivityGuard,
}

pub(super) fn reaches_packages(network: &NetworkSpec) -> bool {
    network.preset.unwrap_or_default() >= Preset::Packages
}

/// Whether nothing at all is reached. Package indexes are not where the operator wants no packages.
pub(super) fn is_cut_off(builder: &Builder, network: &NetworkSpec) -> bool {
    let has_packages = reaches_packages(network) && builder.engine.core().config.packages.is_some();
    let allows = |rule: &RuleSpec| rule.action == RuleAction::Allow;
    let opens = network.preset > Some(Preset::Packages)
        || !network.allow.is_empty()
        || network.rules.iter().any(allows);
    !has_packages && !opens
}

impl Reach {
    /// `None` where there is none to be had.
    pub(super) async fn open(builder: &Builder, sandbox: &InstructionSandbox<'_>) -> Result<Option<Self>> {
        let Builder { engine, who, id, .. } = builder;
        let Some(gateway) = engine.core().config.packages.clone() else { return Ok(None) };
        may_block(|| gateway.open())?;
        let shared = engine.core().find_to_change(who, &sandbox.which).await?;
        let (life, guard) = shared.enter(Action::Exec, &engine.core().clock)?;
        let indexes = Indexes::open(&life).await;
        let indexes = indexes.map_err(|error| error::from_guest(error, &shared.label()))?;
        let apt = indexes.address(PackageManager::Apt);
        let settings = format!("Acquire::http::Proxy \"{apt}\";\nAPT::Sandbox::User \"root\";\n");
        let settings = stream::iter([Ok(Bytes::from(settings))]).boxed();
        let options = WriteOptions { parents: true, permissions: Some(0o644), ..WriteOptions::default() };
        engine.write_file(who, &sandbox.which, APT_FILE, options, settings).await?;
        let scratch = format!("/tmp/.warren-{id}");
        let sandbox = shared.subject.id.clone();
        Ok(Some(Self { life, gateway, sandbox, indexes, scratch, _guard: guard }))
    }

    /// Adds what managers are told by. What the Dockerfile says itself stays.
    pub(super) fn tell(&self, env: &mut BTreeMap<String, String>) {
        let pip = format!("{}/pip/simple/", self.indexes.address(PackageManager::Pip));
        let npm = format!("{}/npm/", self.indexes.address(PackageManager::Npm));
        let npm_cache = format!("{}/npm", self.scratch);
        let told = [
            ("PIP_INDEX_URL", pip.as_str()),
            ("PIP_NO_CACHE_DIR", "1"),
            ("PIP_DISABLE_PIP_VERSION_CHECK", "1"),
            ("UV_DEFAULT_INDEX", &pip),
            ("UV_NO_CACHE", "1"),
            ("npm_config_registry", &npm),
            ("npm_config_cache", &npm_cache),
            ("npm_config_update_notifier", "false"),
            // Else our port would stand in the project's lock file.
            ("npm_config_omit_lockfile_registry_resolved", "true"),
            ("APT_CONFIG", APT_FILE),
        ];
        for (name, value) in told {
            env.entry(name.to_owned()).or_insert_with(|| value.to_owned());
        }
        let has_proxy = env.keys().any(|name| name.to_ascii_lowercase().ends_with("_proxy"));
        if has_proxy {
            // Ours is on loopback, whatever is said of proxies.
            for name in ["NO_PROXY", "no_proxy"] {
                let others = env.remove(name).filter(|others| !others.is_empty());
                let all =
                    others.map_or_else(|| "127.0.0.1".to_owned(), |others| format!("{others},127.0.0.1"));
                env.insert(name.to_owned(), all);
            }
        }
    }

    /// Does `work` while the indexes are served, and takes away what managers kept for themselves: whether that went
    /// well is the second of the answers.
    pub(super) async fn during<T>(
        self,
        builder: &Builder,
        sandbox: &InstructionSandbox<'_>,
        work: impl Future<Output = T>,
    ) -> (T, Result<()>) {
        let done = self.indexes.serve(&self.life, &self.gateway, &self.sandbox, work).await;
        let removed = builder.engine.remove_path(&builder.who, &sandbox.which, &self.scratch, true).await;
        let removed = match removed {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            removed => removed,
        };
        (done, removed)
    }
}

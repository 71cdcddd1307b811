//! What can be changed while the sandbox lives: its ports, its network, its name and its labels.

use std::{collections::BTreeMap, sync::atomic::Ordering};

use sandbox::{ErrorKind, EventKind, ExposedPort, NetworkHeld, Policy, Result, SandboxName, check_labels};

use super::{Driver, manifest::Manifest};
use crate::{NetworkChange, error, network};

impl Driver {
    /// The record first; the listeners follow it.
    pub(super) async fn change_ports(
        &mut self,
        change: impl FnOnce(&mut Vec<ExposedPort>) -> Result<()>,
    ) -> Result<()> {
        let before = self.record.ports.clone();
        let changed = match change(&mut self.record.ports) {
            Ok(()) => self.save().await,
            Err(error) => Err(error),
        };
        if changed.is_err() {
            self.record.ports = before;
        }
        self.publish();
        changed
    }

    /// The record first; then the instance holds it, if there is one.
    pub(super) async fn change_network(&mut self, change: &NetworkChange, ceilings: &[Policy]) -> Result<()> {
        let (spec, plan) = network::decide(&self.core, &self.record, change, ceilings)?;
        let before = self.record.clone();
        (self.record.spec.network, self.record.plan.network) = (spec, plan);
        if let Err(error) = self.save().await {
            self.record = before;
            return Err(error);
        }
        self.publish();
        let held = self.hold_network().await;
        if held.as_ref().is_err_and(|error| error.kind() == ErrorKind::Unsupported) {
            // The back end never could, and took nothing of it.
            self.record = before;
            self.save().await?;
            self.publish();
        }
        held
    }

    pub(super) async fn hold_network(&mut self) -> Result<()> {
        let Some(life) = &self.life else { return Ok(()) };
        let held = life.instance.hold_network(&self.record.plan.network).await;
        let held = held.map_err(|error| error::from_backend(error, &self.shared.label()))?;
        life.network_waits.store(held == NetworkHeld::FromNextStart, Ordering::Relaxed);
        // It may have got a network that it was started without.
        let isolation = Some(life.instance.isolation().clone());
        if self.record.isolation != isolation {
            self.record.isolation = isolation;
            self.publish();
            self.save().await?;
        }
        Ok(())
    }

    /// The requested name stays in the spec until a final rename, so that its own name is known.
    pub(super) async fn rename(&mut self, name: SandboxName, for_good: bool) -> Result<()> {
        let before = self.record.clone();
        match for_good {
            true => self.record.spec.name = Some(name.clone()),
            false => drop(self.record.spec.name.get_or_insert_with(|| before.name.clone())),
        }
        self.record.name = name;
        if let Err(error) = self.save().await {
            self.record = before;
            return Err(error);
        }
        self.core.renamed(&self.shared, &before.name, &self.record.name);
        self.publish();
        if for_good {
            self.shared.set_name(&self.record.name);
            self.tell(EventKind::SandboxRenamed, format!("it was called {}", before.name)).await;
        }
        Ok(())
    }

    pub(super) async fn relabel(&mut self, changes: BTreeMap<String, Option<String>>) -> Result<()> {
        let mut changed = self.record.clone();
        for (key, value) in changes {
            match value {
                Some(value) => drop(changed.spec.labels.insert(key, value)),
                None => drop(changed.spec.labels.remove(&key)),
            }
        }
        check_labels(&changed.spec.labels)?;
        self.core.store.update_sandbox(changed.clone()).await.map_err(error::from_store)?;
        self.record = changed;
        self.manifest = Manifest::Due;
        self.publish();
        Ok(())
    }
}

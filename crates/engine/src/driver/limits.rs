//! Limits that change while the sandbox lives.

use sandbox::{Isolation, LimitKind, Limits, LimitsPlan, Result, SandboxPlan, limit_warnings};
use store::SandboxRecord;

use super::Driver;
use crate::{Principal, error};

impl Driver {
    /// The record first; then the instance holds it, if there is one. If it cannot, everything stays as it was.
    pub(super) async fn change_limits(&mut self, change: &Limits, who: &Principal) -> Result<()> {
        let before = self.record.clone();
        let mut plan = before.plan.clone();
        plan.limits = sandbox::change_limits(&before.plan.limits, change)?;
        let (claimed, claim) = (self.shared.claimed_memory(), self.core.claimed_memory(&plan));
        // Memory that is given back counts until the change has succeeded.
        self.core.claim_memory(who, claim.max(claimed), &self.shared)?;
        let changed = self.put_limits(before, plan, change).await;
        self.shared.claim_memory(if changed.is_ok() { claim } else { claimed });
        changed
    }

    async fn put_limits(
        &mut self,
        before: SandboxRecord,
        mut plan: SandboxPlan,
        change: &Limits,
    ) -> Result<()> {
        let decided = plan.limits.clone();
        let asked = &mut self.record.spec.limits;
        asked.memory = change.memory.or(asked.memory);
        asked.swap = change.swap.or(asked.swap);
        asked.cpus = change.cpus.or(asked.cpus);
        asked.pids = change.pids.or(asked.pids);
        plan.limit_warnings = limit_warnings(asked, &self.core.config.defaults);
        self.record.plan = plan;
        if let Some(isolation) = &mut self.record.isolation {
            restate(isolation, &decided);
        }
        if let Err(error) = self.save().await {
            self.record = before;
            return Err(error);
        }
        let held = match &self.life {
            Some(life) => life.instance.hold_limits(&decided).await,
            None => Ok(()),
        };
        if let Err(error) = held {
            self.record = before;
            self.save_if_possible().await;
            self.publish();
            return Err(error::from_backend(error, &self.shared.label()));
        }
        self.publish();
        Ok(())
    }
}

/// The statement has the values that hold now. What nothing held is still not held.
fn restate(isolation: &mut Isolation, limits: &LimitsPlan) {
    for statement in &mut isolation.limits {
        let value = match statement.limit {
            LimitKind::Memory => limits.memory.bytes(),
            LimitKind::Swap => limits.swap.bytes(),
            LimitKind::Cpus => u64::from(limits.cpus.millis),
            LimitKind::Pids => u64::from(limits.pids),
            LimitKind::OpenFiles | LimitKind::Disk | LimitKind::Tmp | LimitKind::Shm => continue,
        };
        statement.value = value;
    }
}

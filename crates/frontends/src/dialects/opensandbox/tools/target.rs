//! The sandbox that a call is about.

use engine::{SandboxRef, SandboxView};
use sandbox::Namespace;

use super::words;
use crate::{
    dialects::opensandbox::handle::SandboxHandle,
    mcp::{Call, Failure},
};

/// A sandbox that the caller may see.
#[derive(Debug)]
pub(super) struct Target {
    pub(super) view: SandboxView,
    pub(super) which: SandboxRef,
}

impl Target {
    /// By its id, or by its name in the caller's namespace.
    pub(super) async fn find(call: &Call, sandbox_id: &str) -> Result<Self, Failure> {
        let named = call.sandbox(sandbox_id).map_err(words::failure)?;
        let view = call.engine().sandbox(&call.who, &named).await.map_err(words::failure)?;
        Ok(Self { which: SandboxRef::from(&view.id), view })
    }

    pub(super) fn sandbox<'a>(&'a self, call: &'a Call) -> SandboxHandle<'a> {
        SandboxHandle { engine: call.engine(), who: &call.who, which: &self.which }
    }
}

/// Returns the namespace of the caller's sandboxes.
pub(super) fn namespace(call: &Call) -> Namespace {
    call.namespace.clone().unwrap_or_else(|| call.who.home_namespace())
}

//! One sandbox and who asks about it: what everything needs that the tools and the APIs have in common.

use engine::{Engine, Principal, SandboxRef, SandboxView};
use sandbox::{FileEntry, Result};

use crate::mcp::read_up_to;

#[derive(Debug, Clone, Copy)]
pub(super) struct SandboxHandle<'a> {
    pub(super) engine: &'a Engine,
    pub(super) who: &'a Principal,
    pub(super) which: &'a SandboxRef,
}

impl SandboxHandle<'_> {
    pub(super) async fn view(self) -> Result<SandboxView> {
        self.engine.sandbox(self.who, self.which).await
    }

    /// A file from `offset` on, at most `max` bytes, and whether there are more.
    pub(super) async fn read(
        self,
        path: &str,
        offset: u64,
        max: usize,
    ) -> Result<(FileEntry, Vec<u8>, bool)> {
        read_up_to(self.engine, self.who, self.which, path, offset, max).await
    }
}

/// As much of a caller's text as a message repeats.
pub(super) fn shown(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(64).collect()
}

/// Milliseconds since 1970.
pub(super) fn now_ms() -> i64 {
    jiff::Timestamp::now().as_millisecond()
}

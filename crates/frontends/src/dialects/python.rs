//! The program `python` where an image of another system stands for the programs of this machine. Those images have it;
//! machines often have `python3` only.

use engine::{Engine, Principal, SandboxRef, WriteOptions};
use sandbox::WriteMode;

use crate::mcp::once;

const DIRECTORIES: [&str; 2] = ["/usr/local/bin", "/usr/bin"];
const ADDED: &str = "/usr/local/bin/python";
const SCRIPT: &[u8] = b"#!/bin/sh\nexec python3 \"$@\"\n";
const EXECUTABLE: u32 = 0o755;

/// Adds it to a new sandbox that has `python3` alone. A sandbox without it is as good as any other, so nothing fails
/// where it cannot be added.
pub(super) async fn add(engine: &Engine, who: &Principal, which: &SandboxRef) {
    if has(engine, who, which, "python").await || !has(engine, who, which, "python3").await {
        return;
    }
    let options = WriteOptions { mode: WriteMode::CreateNew, permissions: Some(EXECUTABLE), parents: true };
    if let Err(error) = engine.write_file(who, which, ADDED, options, once(SCRIPT.to_vec())).await {
        tracing::debug!(%which, %error, "there is no program python");
    }
}

async fn has(engine: &Engine, who: &Principal, which: &SandboxRef, program: &str) -> bool {
    for directory in DIRECTORIES {
        if engine.stat(who, which, &format!("{directory}/{program}"), true).await.is_ok() {
            return true;
        }
    }
    false
}

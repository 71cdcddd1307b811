//! Files and directories that get another path.

use sandbox::Result;

use crate::dialects::opensandbox::handle::SandboxHandle;

/// Moves one entry, and makes missing directories on the way to its new place. What is there already stays.
pub(crate) async fn rename(sandbox: SandboxHandle<'_>, from: &str, to: &str) -> Result<()> {
    let SandboxHandle { engine, who, which } = sandbox;
    // Checked first, so that no directory is made for an entry that does not exist.
    engine.stat(who, which, from, false).await?;
    if let Some((parent, _)) = to.trim_end_matches('/').rsplit_once('/')
        && !parent.is_empty()
    {
        engine.mkdir(who, which, parent, true, None).await?;
    }
    engine.rename_path(who, which, from, to, false).await
}

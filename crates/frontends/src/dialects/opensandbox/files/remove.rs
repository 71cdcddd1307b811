//! Files and directories that are deleted.

use sandbox::{Error, ErrorKind, FileKind, Result, Thing};

use crate::dialects::opensandbox::handle::SandboxHandle;

/// The kind of entry that a client deletes: directories go with all that is in them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Removed {
    Files,
    Directories,
}

/// Deletes all or, where one of them is of the other sort, none. What is not there is as good as deleted.
pub(crate) async fn remove(
    sandbox: SandboxHandle<'_>,
    paths: &[impl AsRef<str>],
    what: Removed,
) -> Result<()> {
    let SandboxHandle { engine, who, which } = sandbox;
    let mut present = Vec::new();
    for path in paths.iter().map(AsRef::as_ref) {
        match engine.stat(who, which, path, false).await {
            Ok(entry) => {
                refuse_other(path, entry.kind, what)?;
                present.push(path);
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    for path in present {
        match engine.remove_path(who, which, path, what == Removed::Directories).await {
            // One of them was below another.
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            removed => removed?,
        }
    }
    Ok(())
}

fn refuse_other(path: &str, kind: FileKind, what: Removed) -> Result<()> {
    let is = match (what, kind == FileKind::Directory) {
        (Removed::Files, true) => "a directory",
        (Removed::Directories, false) => "not a directory",
        _ => return Ok(()),
    };
    Err(Error::invalid(format!("{path} is {is}; nothing was deleted"))
        .about(Thing::File, path)
        .with_hint("Files and directories are deleted by different calls."))
}

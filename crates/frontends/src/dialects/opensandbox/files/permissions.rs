//! Mode and owner of files that are written, made or changed.

use engine::{ByteStream, WriteOptions};
use sandbox::{Error, Result, Thing, WriteMode};
use serde::Deserialize;

use super::owners::Owners;
use crate::dialects::opensandbox::handle::SandboxHandle;

/// All permission bits.
const MAX_MODE: u32 = 0o7777;

/// As clients ask for them. What is absent stays as it is.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Permissions {
    /// Octal digits in a decimal number: 755 is `rwxr-xr-x`. Clients send 0 where none are given.
    pub(crate) mode: Option<u32>,
    pub(crate) owner: Option<String>,
    pub(crate) group: Option<String>,
}

/// Permissions as the sandbox has them: bits and numbers.
#[derive(Debug, Clone, Copy)]
struct Settings {
    mode: Option<u32>,
    uid: Option<u32>,
    gid: Option<u32>,
}

/// Like `mkdir -p`. All entries are checked before the first directory is made.
pub(crate) async fn create_directories(
    sandbox: SandboxHandle<'_>,
    asked: impl IntoIterator<Item = (String, Permissions)>,
) -> Result<()> {
    for (path, settings) in checked(sandbox, asked).await? {
        sandbox.engine.mkdir(sandbox.who, sandbox.which, &path, true, settings.mode).await?;
        settings.chown(sandbox, &path).await?;
    }
    Ok(())
}

/// All entries are checked before the first file is changed.
pub(crate) async fn set_permissions(
    sandbox: SandboxHandle<'_>,
    asked: impl IntoIterator<Item = (String, Permissions)>,
) -> Result<()> {
    for (path, settings) in checked(sandbox, asked).await? {
        settings.apply(sandbox, &path).await?;
    }
    Ok(())
}

/// Writes a file, with missing directories. An old file stays until all of the new one is there.
pub(crate) async fn write(
    sandbox: SandboxHandle<'_>,
    path: &str,
    permissions: &Permissions,
    bytes: ByteStream,
) -> Result<()> {
    let settings = permissions.check(sandbox, &mut None).await?;
    let options = WriteOptions { mode: WriteMode::Replace, permissions: settings.mode, parents: true };
    sandbox.engine.write_file(sandbox.who, sandbox.which, path, options, bytes).await?;
    // A file that was there before has kept its own.
    settings.apply(sandbox, path).await
}

async fn checked(
    sandbox: SandboxHandle<'_>,
    asked: impl IntoIterator<Item = (String, Permissions)>,
) -> Result<Vec<(String, Settings)>> {
    let (mut owners, mut all) = (None, Vec::new());
    for (path, permissions) in asked {
        all.push((path, permissions.check(sandbox, &mut owners).await?));
    }
    Ok(all)
}

impl Permissions {
    /// `owners`: read when somebody is named, and kept for the next.
    async fn check(&self, sandbox: SandboxHandle<'_>, owners: &mut Option<Owners>) -> Result<Settings> {
        let given = |name: &&String| !name.is_empty();
        let (owner, group) = (self.owner.as_ref().filter(given), self.group.as_ref().filter(given));
        let mode = self.mode.filter(|mode| *mode != 0).map(octal).transpose()?;
        if owner.is_none() && group.is_none() {
            return Ok(Settings { mode, uid: None, gid: None });
        }
        let owners = match owners {
            Some(owners) => owners,
            None => owners.insert(Owners::read(sandbox).await),
        };
        let uid = owner.map(|name| owners.uid(name)).transpose()?;
        let gid = group.map(|name| owners.gid(name)).transpose()?;
        Ok(Settings { mode, uid, gid })
    }
}

impl Settings {
    async fn apply(self, sandbox: SandboxHandle<'_>, path: &str) -> Result<()> {
        if let Some(mode) = self.mode {
            sandbox.engine.chmod(sandbox.who, sandbox.which, path, mode, false).await?;
        }
        self.chown(sandbox, path).await
    }

    async fn chown(self, sandbox: SandboxHandle<'_>, path: &str) -> Result<()> {
        if self.uid.is_none() && self.gid.is_none() {
            return Ok(());
        }
        sandbox.engine.chown(sandbox.who, sandbox.which, path, self.uid, self.gid, false).await
    }
}

fn octal(mode: u32) -> Result<u32> {
    let bits = u32::from_str_radix(&mode.to_string(), 8).ok();
    bits.filter(|bits| *bits <= MAX_MODE).ok_or_else(|| {
        Error::invalid(format!("mode: {mode} are not permission bits"))
            .about(Thing::File, "")
            .with_hint("Write octal digits as a number, such as 755 or 644.")
    })
}

/// The reverse of [`octal`].
pub(super) fn digits(bits: u32) -> u32 {
    format!("{:o}", bits & MAX_MODE).parse().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_are_octal_digits_in_a_decimal_number() {
        for (mode, bits) in [(755, 0o755), (0, 0), (7777, 0o7777), (644, 0o644)] {
            assert_eq!((octal(mode).unwrap(), digits(bits | 0o10_0000)), (bits, mode));
        }
        for wrong in [8, 99, 800, 10_000, u32::MAX] {
            assert!(octal(wrong).is_err(), "{wrong}");
        }
    }
}

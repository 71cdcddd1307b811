//! Shows the key by which SSH clients know the daemon.

use std::path::Path;

use ssh::HostKey;

use super::Check;

const NAME: &str = "ssh host key";

pub(crate) fn check_ssh(home: &Path) -> Check {
    match HostKey::load(home) {
        Ok(Some(key)) => Check::works(NAME, key.fingerprint()),
        Ok(None) => Check::works(NAME, "none yet; made at the daemon's next start"),
        Err(error) => Check::weak(NAME, error.to_string(), "Remove the file; a new key is made."),
    }
}

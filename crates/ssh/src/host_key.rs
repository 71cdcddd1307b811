//! The key by which clients know the daemon: made at its first start, kept in its home.

use std::{
    fs::{self, OpenOptions},
    io::{self, Read as _, Write as _},
    os::unix::fs::{MetadataExt as _, OpenOptionsExt as _},
    path::Path,
};

use russh::keys::{
    HashAlg, PrivateKey,
    ssh_key::{
        LineEnding,
        private::{Ed25519Keypair, Ed25519PrivateKey},
    },
};
use sandbox::{Error, ErrorKind, Result};

/// Below the daemon's home.
const FILE_NAME: &str = "ssh_host_ed25519_key";
/// More than a key file ever has.
const MAX_BYTES: u64 = 64 * 1024;

#[derive(Debug, Clone)]
pub struct HostKey(pub(crate) PrivateKey);

impl HostKey {
    /// Reads the key, or makes one if there is none. A file that others may read is refused.
    pub fn load_or_make(home: &Path) -> Result<Self> {
        match Self::load(home)? {
            Some(key) => Ok(key),
            None => Self::make(home),
        }
    }

    /// The key, if there is one.
    pub fn load(home: &Path) -> Result<Option<Self>> {
        let path = home.join(FILE_NAME);
        let failed = |error: io::Error| cannot_use(&path, &error.to_string()).with_source(error);
        // Opening a pipe must not block until a writer comes.
        let file = match OpenOptions::new().read(true).custom_flags(O_NONBLOCK).open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failed(error)),
        };
        let found = file.metadata().map_err(failed)?;
        if !found.is_file() {
            return Err(cannot_use(&path, "it is not a regular file"));
        }
        if found.mode() & 0o077 != 0 {
            return Err(cannot_use(&path, "other users may read it")
                .with_hint(format!("Make it private: chmod 600 {}", path.display())));
        }
        let mut text = String::new();
        file.take(MAX_BYTES).read_to_string(&mut text).map_err(failed)?;
        let key = PrivateKey::from_openssh(&text).map_err(|error| cannot_use(&path, &error.to_string()))?;
        Ok(Some(Self(key)))
    }

    /// Written whole beside its place first: a crash leaves no half key, and two daemons that start make one.
    fn make(home: &Path) -> Result<Self> {
        let path = home.join(FILE_NAME);
        let mut seed = [0; Ed25519PrivateKey::BYTE_SIZE];
        getrandom::fill(&mut seed).map_err(|error| cannot_use(&path, &error.to_string()))?;
        let key = PrivateKey::from(Ed25519Keypair::from_seed(&seed));
        let text = key.to_openssh(LineEnding::LF).map_err(|error| cannot_use(&path, &error.to_string()))?;
        let draft = home.join(format!("{FILE_NAME}.{}.part", std::process::id()));
        let write = || {
            fs::remove_file(&draft).or_else(ignore_missing)?;
            let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft)?;
            file.write_all(text.as_bytes())?;
            file.sync_all()?;
            let placed = fs::hard_link(&draft, &path);
            fs::remove_file(&draft)?;
            placed
        };
        match write() {
            Ok(()) => Ok(Self(key)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                Self::load(home)?.ok_or_else(|| cannot_use(&path, "it comes and goes"))
            }
            Err(error) => Err(cannot_use(&path, &error.to_string()).with_source(error)),
        }
    }

    /// As `ssh-keygen -l` shows it.
    pub fn fingerprint(&self) -> String {
        self.0.public_key().fingerprint(HashAlg::Sha256).to_string()
    }

    /// A line for a file of known hosts, under this name.
    pub fn known_hosts_line(&self, name: &str) -> Result<String> {
        let key = self.0.public_key().to_openssh().map_err(|error| {
            Error::new(ErrorKind::Internal, "the host key cannot be written").with_source(error)
        })?;
        // Without the comment.
        let key: Vec<_> = key.split(' ').take(2).collect();
        Ok(format!("{name} {}\n", key.join(" ")))
    }
}

/// The number of `O_NONBLOCK` on Linux.
const O_NONBLOCK: i32 = 0o4000;

fn ignore_missing(error: io::Error) -> io::Result<()> {
    if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) }
}

fn cannot_use(path: &Path, why: &str) -> Error {
    Error::new(ErrorKind::Unavailable, format!("cannot use the SSH host key {}: {why}", path.display()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_key_is_made_once_and_stays_private() {
        let home = tempfile::tempdir().unwrap();
        assert!(HostKey::load(home.path()).unwrap().is_none());
        let made = HostKey::load_or_make(home.path()).unwrap();
        let path = home.path().join(FILE_NAME);
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert_eq!(HostKey::load_or_make(home.path()).unwrap().fingerprint(), made.fingerprint());
        assert_eq!(fs::read_dir(home.path()).unwrap().count(), 1, "no draft stays");
        let line = made.known_hosts_line("[127.0.0.1]:2222").unwrap();
        assert!(line.starts_with("[127.0.0.1]:2222 ssh-ed25519 AAAA") && line.ends_with('\n'), "{line}");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        assert!(HostKey::load_or_make(home.path()).unwrap_err().to_string().contains("other users"));
    }

    #[test]
    fn what_is_not_a_key_is_left_alone() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join(FILE_NAME);
        for text in ["", "nonsense", "-----BEGIN OPENSSH PRIVATE KEY-----\nAAAA\n"] {
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
            assert_eq!(HostKey::load_or_make(home.path()).unwrap_err().kind(), ErrorKind::Unavailable);
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
        }
    }
}

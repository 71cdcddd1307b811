//! Public keys of SSH: bound to a key of the daemon, whose rights and end they share.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use base64::{
    Engine as _,
    engine::general_purpose::{STANDARD, STANDARD_NO_PAD},
};
use sandbox::{Error, ErrorKind, KeyId, Limit, Next, Result, SshKeyView, Thing};
use sha2::{Digest as _, Sha256};
use store::{Store, StoreError};

use crate::{
    Engine, Principal, error,
    keys::{no_such_key, refuse_ended, unknown_key, whole},
    names,
};

/// Most public keys of all keys together.
const MAX_SSH_KEYS: usize = 10_000;
/// Longest line of a public key; one of 16,384 bits for RSA has 2,800 bytes.
const MAX_LINE_BYTES: usize = 8 * 1024;
/// Longest comment that is kept, in characters.
const MAX_COMMENT_CHARS: usize = 128;
/// Algorithms whose signatures the server verifies.
const ALGORITHMS: [&str; 5] =
    ["ssh-ed25519", "ecdsa-sha2-nistp256", "ecdsa-sha2-nistp384", "ecdsa-sha2-nistp521", "ssh-rsa"];

/// All of them, by fingerprint, so that a login reads no file.
#[derive(Debug)]
pub(crate) struct SshKeys(Mutex<HashMap<String, SshKeyView>>);

impl SshKeys {
    pub(crate) async fn load(store: &Store) -> Result<Self, StoreError> {
        let records = store.ssh_keys().await?;
        let by_fingerprint = records.into_iter().map(|record| (record.fingerprint.clone(), record)).collect();
        Ok(Self(Mutex::new(by_fingerprint)))
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, SshKeyView>> {
        // Every change in there is one insert or remove; a panic elsewhere leaves it consistent.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets those of keys whose records are gone.
    pub(crate) fn forget(&self, keys: &[KeyId]) {
        self.lock().retain(|_, record| !keys.contains(&record.key));
    }
}

/// A public key as `ssh-keygen` writes it, in one line.
#[derive(Debug, PartialEq, Eq)]
struct PublicKey {
    algorithm: String,
    fingerprint: String,
    comment: String,
}

impl PublicKey {
    fn parse(text: &str) -> Result<Self> {
        let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
        let line = lines.next().ok_or_else(|| not_a_key("there is none"))?;
        if lines.next().is_some() {
            return Err(not_a_key("there are several lines"));
        }
        if line.len() > MAX_LINE_BYTES {
            return Err(not_a_key("the line is too long"));
        }
        if line.contains("PRIVATE KEY") {
            return Err(not_a_key("this is a private key, which stays with its owner"));
        }
        let mut words = line.splitn(3, char::is_whitespace);
        let (algorithm, encoded) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        if !ALGORITHMS.contains(&algorithm) {
            return Err(not_a_key("its algorithm is not supported"));
        }
        let blob = STANDARD.decode(encoded).map_err(|_malformed| not_a_key("it is not base64"))?;
        if !names_itself(&blob, algorithm) {
            return Err(not_a_key("it is not of the algorithm that it names"));
        }
        let comment = words.next().unwrap_or_default().trim();
        let comment = comment.chars().filter(|char| !char.is_control()).take(MAX_COMMENT_CHARS).collect();
        Ok(Self { algorithm: algorithm.to_owned(), fingerprint: fingerprint(&blob), comment })
    }
}

/// Whether a key begins with its algorithm's name, as all do.
fn names_itself(blob: &[u8], algorithm: &str) -> bool {
    let Some((length, rest)) = blob.split_first_chunk::<4>() else { return false };
    u32::from_be_bytes(*length) as usize == algorithm.len() && rest.starts_with(algorithm.as_bytes())
}

/// As `ssh-keygen -l` shows it.
fn fingerprint(blob: &[u8]) -> String {
    format!("SHA256:{}", STANDARD_NO_PAD.encode(Sha256::digest(blob)))
}

impl Engine {
    /// Binds a public key to a key. What logs in ends with that key.
    #[crate::boxed]
    pub async fn add_ssh_key(&self, who: &Principal, key: &str, public_key: &str) -> Result<SshKeyView> {
        who.may_bind_ssh_keys()?;
        let (core, named) = (self.core(), key);
        let now = core.clock.now();
        core.keys.admit(who, now)?;
        let key = core.keys.named(named).ok_or_else(|| no_such_key(named))?;
        refuse_ended(&key, now).map_err(|ended| Error::new(ErrorKind::WrongState, ended.to_string()))?;
        let PublicKey { algorithm, fingerprint, comment } = PublicKey::parse(public_key)?;
        if core.ssh_keys.lock().len() >= MAX_SSH_KEYS {
            let message = format!("the limit of {MAX_SSH_KEYS} SSH keys is reached");
            return Err(Error::over_limit(
                Limit::Keys,
                MAX_SSH_KEYS as u64,
                MAX_SSH_KEYS as u64 + 1,
                message,
            )
            .with_next(Next::Remove(Thing::SshKey)));
        }
        let record = SshKeyView {
            id: sandbox::SshKeyId::from_random(names::random_bytes()?),
            key: key.id,
            fingerprint,
            algorithm,
            comment,
            created_at: now,
        };
        let added = record.clone();
        whole(core, |core| async move {
            core.store.insert_ssh_key(record.clone()).await.map_err(error::from_store)?;
            core.ssh_keys.lock().insert(record.fingerprint.clone(), record);
            Ok(())
        })
        .await?;
        Ok(added)
    }

    /// Oldest first: all of them for the daemon's owner, a key's own for that key.
    #[crate::boxed]
    pub async fn ssh_keys(&self, who: &Principal) -> Result<Vec<SshKeyView>> {
        self.core().keys.admit(who, self.core().clock.now())?;
        let mut seen: Vec<_> = self.core().ssh_keys.lock().values().cloned().collect();
        seen.retain(|record| who.manages_ssh_keys_of(&record.key));
        seen.sort_by(|a, b| (a.created_at, &a.id).cmp(&(b.created_at, &b.id)));
        Ok(seen)
    }

    /// Removes a public key, named by its id or its fingerprint. It logs in no more; connections made with it end.
    #[crate::boxed]
    pub async fn remove_ssh_key(&self, who: &Principal, which: &str) -> Result<()> {
        who.may_change()?;
        let core = self.core();
        let seen = self.ssh_keys(who).await?;
        let mut named = seen.into_iter().filter(|key| key.id.as_str() == which || key.fingerprint == which);
        let found = named.next().ok_or_else(|| no_such_ssh_key(which))?;
        whole(core, |core| async move {
            core.store.remove_ssh_key(found.id.clone()).await.map_err(error::from_store)?;
            core.ssh_keys.lock().remove(&found.fingerprint);
            core.keys.note_change();
            Ok(())
        })
        .await
    }

    /// The principal whom a public key is bound to. `blob`: the key as it is on the wire, proven by a signature.
    #[crate::boxed]
    pub async fn authenticate_ssh_key(&self, blob: &[u8]) -> Result<Principal> {
        let fingerprint = fingerprint(blob);
        let bound = self.core().ssh_keys.lock().get(&fingerprint).map(|record| record.key.clone());
        match bound {
            Some(key) => self.principal_named(key.as_str()).await,
            None => Err(unknown_key()),
        }
    }

    /// The principal of a key, by its id or label, for callers whom a certificate names. The front end has checked
    /// that.
    #[crate::boxed]
    pub async fn principal_named(&self, key: &str) -> Result<Principal> {
        let key = self.core().keys.named(key).ok_or_else(unknown_key)?;
        self.core().admit_key(&key)
    }

    /// Returns when a public key is no longer bound to the key of this principal.
    #[crate::boxed]
    pub async fn ssh_key_removed(&self, who: &Principal, blob: &[u8]) {
        let fingerprint = fingerprint(blob);
        let core = self.core();
        let mut changes = core.keys.changes();
        loop {
            let bound = core.ssh_keys.lock().get(&fingerprint).map(|record| record.key.clone());
            if bound.is_none() || bound != who.key {
                return;
            }
            // `core` holds the sender, so it cannot be gone.
            changes.changed().await.unwrap_or(());
        }
    }
}

impl Principal {
    /// A watcher and the holder of a link have the id of the key that gave them access, but manage nothing of it.
    fn manages_ssh_keys_of(&self, key: &KeyId) -> bool {
        self.is_owner || self.has_namespace() && self.key.as_ref() == Some(key)
    }
}

fn not_a_key(why: &str) -> Error {
    Error::invalid(format!("not a public key of SSH: {why}")).about(Thing::SshKey, "").with_hint(format!(
        "Give the one line of a file such as id_ed25519.pub. Its first word is one of {}.",
        ALGORITHMS.join(", ")
    ))
}

fn no_such_ssh_key(which: &str) -> Error {
    let shown: String = which.chars().take(64).collect();
    Error::no_such(Thing::SshKey, format!("{shown:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str =
        "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJFWOZgUFJTL3GuZ7Ju8GKB9eDCBOlp+UC9lxz1iBrOB ana@laptop of hers";

    #[test]
    fn a_line_of_a_public_key_file_is_read() {
        let key = PublicKey::parse(&format!("# mine\n\n  {LINE}\n")).unwrap();
        assert_eq!(key.algorithm, "ssh-ed25519");
        assert_eq!(key.comment, "ana@laptop of hers");
        assert!(key.fingerprint.starts_with("SHA256:") && key.fingerprint.len() == 50, "{key:?}");
        let bare = PublicKey::parse(LINE.split(" ana").next().unwrap()).unwrap();
        assert_eq!((bare.fingerprint, bare.comment), (key.fingerprint, String::new()));
    }

    #[test]
    fn what_is_not_one_public_key_is_refused_with_a_reason() {
        let encoded = LINE.split(' ').nth(1).unwrap();
        for text in [
            "",
            "# nothing",
            "-----BEGIN OPENSSH PRIVATE KEY-----",
            &format!("{LINE}\n{LINE}"),
            &format!("ssh-dss {encoded}"),
            &format!("ssh-rsa {encoded}"),
            &format!("command=\"x\" {LINE}"),
            "ssh-ed25519 %%%",
            "ssh-ed25519 AAAA",
            &format!("ssh-ed25519 {}", "A".repeat(9000)),
        ] {
            assert_eq!(PublicKey::parse(text).unwrap_err().kind(), ErrorKind::InvalidRequest, "{text:?}");
        }
    }
}

//! The base of a sandbox: an image's layers and the image's configuration.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{
    ByteSize, Error, ImageRef, ResolvedSecret, Result, RootfsPlan, SnapshotId, VolumeId, VolumeName,
};

/// Longest working directory that the kernel accepts.
const MAX_CWD_BYTES: usize = 4095;

/// The things that the names in a spec resolve to: an image reference, a snapshot or a path, volumes and secrets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Base {
    pub rootfs: RootfsPlan,
    /// The underlying image, if it is not the one that the spec names.
    pub image: Option<ImageRef>,
    /// Snapshots over the root file system, the topmost first; see [`crate::SandboxPlan::above`].
    pub above: Vec<SnapshotId>,
    /// Digest of the image's manifest; none for image `host`.
    pub image_digest: Option<String>,
    /// Digest of the snapshot it comes from.
    pub snapshot: Option<String>,
    pub config: BaseConfig,
    /// Where the base differs from the request: sentences for the caller.
    pub warnings: Vec<String>,
    pub volumes: BTreeMap<VolumeName, ResolvedVolume>,
    /// The secrets that the spec names, in its order, and then those that came with the request.
    pub secrets: Vec<ResolvedSecret>,
}

/// The volume behind a name in a spec.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResolvedVolume {
    pub id: VolumeId,
    /// See [`crate::MountPlan::quota`].
    pub quota: Option<ByteSize>,
}

impl Base {
    pub fn host() -> Self {
        Self {
            rootfs: RootfsPlan::Host,
            image: None,
            above: Vec::new(),
            image_digest: None,
            snapshot: None,
            config: BaseConfig::default(),
            warnings: Vec::new(),
            volumes: BTreeMap::new(),
            secrets: Vec::new(),
        }
    }
}

/// Defaults from an image: they override the daemon's, and a spec overrides them. Empty if the image has none.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct BaseConfig {
    /// In order; a later entry wins.
    pub env: Vec<(String, String)>,
    pub user: Option<String>,
    pub cwd: Option<String>,
    pub entrypoint: Vec<String>,
    pub cmd: Vec<String>,
    pub exposed_ports: Vec<String>,
    /// As a name or a number: `SIGINT`.
    pub stop_signal: Option<String>,
    pub shell: Vec<String>,
    pub labels: BTreeMap<String, String>,
}

impl BaseConfig {
    /// Checks that a program could run with this configuration. It may come from strangers.
    pub fn check(&self) -> Result<()> {
        let refuse = |why: String| Err(Error::invalid(format!("the configuration cannot be run: {why}")));
        for (name, value) in &self.env {
            if name.is_empty() || name.contains(['=', '\0']) || value.contains('\0') {
                let name: String = name.chars().take(80).collect();
                return refuse(format!("the variable {name:?} cannot be set"));
            }
        }
        if let Some(cwd) =
            self.cwd.as_deref().filter(|cwd| !cwd.starts_with('/') || cwd.len() > MAX_CWD_BYTES)
        {
            let cwd: String = cwd.chars().take(80).collect();
            return refuse(format!("{cwd:?} is not an absolute path to start in"));
        }
        let words = [&self.entrypoint, &self.cmd, &self.shell].into_iter().flatten();
        if words.chain(&self.cwd).chain(&self.user).any(|word| word.contains('\0')) {
            return refuse("an argument contains a NUL byte".to_owned());
        }
        Ok(())
    }
}

/// Signals by name, with the numbers Linux gives them on every processor that we support.
const SIGNALS: [(&str, i32); 31] = [
    ("HUP", 1),
    ("INT", 2),
    ("QUIT", 3),
    ("ILL", 4),
    ("TRAP", 5),
    ("ABRT", 6),
    ("BUS", 7),
    ("FPE", 8),
    ("KILL", 9),
    ("USR1", 10),
    ("SEGV", 11),
    ("USR2", 12),
    ("PIPE", 13),
    ("ALRM", 14),
    ("TERM", 15),
    ("STKFLT", 16),
    ("CHLD", 17),
    ("CONT", 18),
    ("STOP", 19),
    ("TSTP", 20),
    ("TTIN", 21),
    ("TTOU", 22),
    ("URG", 23),
    ("XCPU", 24),
    ("XFSZ", 25),
    ("VTALRM", 26),
    ("PROF", 27),
    ("WINCH", 28),
    ("IO", 29),
    ("PWR", 30),
    ("SYS", 31),
];
/// The first real-time signal that programs may use, and the last.
const REAL_TIME: (i32, i32) = (34, 64);

/// Returns the name of a signal without `SIG`; none for one that has only a number.
pub(crate) fn signal_name(number: i32) -> Option<&'static str> {
    SIGNALS.iter().find(|(_, known)| *known == number).map(|(name, _)| *name)
}

impl BaseConfig {
    /// The signal's number; none if the image names no existing signal.
    pub fn stop_signal_number(&self) -> Option<i32> {
        let text = self.stop_signal.as_deref()?.trim().to_ascii_uppercase();
        if let Ok(number) = text.parse::<i32>() {
            return (1..=REAL_TIME.1).contains(&number).then_some(number);
        }
        let name = text.strip_prefix("SIG").unwrap_or(&text);
        if let Some(offset) = name.strip_prefix("RTMIN+").and_then(|offset| offset.parse::<i32>().ok()) {
            return REAL_TIME
                .0
                .checked_add(offset)
                .filter(|number| (REAL_TIME.0..=REAL_TIME.1).contains(number));
        }
        SIGNALS.iter().find(|(known, _)| *known == name).map(|(_, number)| *number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_are_read_as_images_write_them() {
        let number = |text: &str| {
            BaseConfig { stop_signal: Some(text.to_owned()), ..BaseConfig::default() }.stop_signal_number()
        };
        for (text, expected) in
            [("SIGTERM", 15), ("sigint", 2), ("QUIT", 3), ("3", 3), ("SIGRTMIN+3", 37), ("SIGWINCH", 28)]
        {
            assert_eq!(number(text), Some(expected), "{text}");
        }
        for text in ["", "0", "-1", "65", "SIGNOTHING", "SIGRTMIN+31", "SIGRTMIN+99999999999", "TERM KILL"] {
            assert_eq!(number(text), None, "{text}");
        }
        assert_eq!(BaseConfig::default().stop_signal_number(), None);
    }
}

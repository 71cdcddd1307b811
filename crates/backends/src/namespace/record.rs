//! The facts of a live sandbox for a later daemon: a small file in its run directory.

use std::{fs, io, path::Path};

use jail::NamedPorts;
use sandbox::Isolation;
use serde::{Deserialize, Serialize};

use super::names::PlaceNames;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Record {
    pub(crate) isolation: Isolation,
    /// First host id of its range, if it has one.
    pub(crate) first_id: Option<u32>,
    /// Of the daemon that made it, as in [`super::names::Directories`]: another with the same run directory leaves it
    /// alone.
    #[serde(default)]
    pub(crate) home: Option<String>,
    /// The layer beneath it, which must stay as long as it lives.
    #[serde(default)]
    pub(crate) skeleton: Option<String>,
    /// The only ports that its network brings out, if it has one in that form.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) named_ports: Option<NamedPorts>,
}

impl Record {
    pub(crate) fn write(&self, names: &PlaceNames) -> io::Result<()> {
        fs::write(names.record(), serde_json::to_vec(self)?)
    }

    /// Puts it in the place of the one that is there; whoever reads finds one of them.
    pub(crate) fn replace(&self, names: &PlaceNames) -> io::Result<()> {
        let new = names.record().with_extension("new");
        fs::write(&new, serde_json::to_vec(self)?)?;
        fs::rename(new, names.record())
    }

    pub(crate) fn read(names: &PlaceNames) -> io::Result<Self> {
        Ok(serde_json::from_slice(&fs::read(names.record())?)?)
    }
}

/// The number of a sandbox's network namespace, as its guest noted it before any program of the sandbox ran. `None`:
/// the sandbox is of a version that did not note it.
pub(crate) fn read_network_namespace(file: &Path) -> Option<u64> {
    fs::read_to_string(file).ok()?.split_ascii_whitespace().nth(2)?.parse().ok()
}

/// Reads `pid start-time` as the guest wrote them.
pub(crate) fn read_pid(file: &Path) -> Option<(i32, u64)> {
    parse_pid(&fs::read_to_string(file).ok()?)
}

pub(crate) fn parse_pid(text: &str) -> Option<(i32, u64)> {
    let mut words = text.split_ascii_whitespace();
    Some((words.next()?.parse().ok()?, words.next()?.parse().ok()?))
}

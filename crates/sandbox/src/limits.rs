//! Resource limits of a sandbox: requested in part (`Limits`), decided in full (`LimitsPlan`).

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use crate::{ByteSize, object::only_object};

/// A number of processors in thousandths, so that it can be compared and stored exactly: 1500 is one and a half.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CpuCount {
    pub millis: u32,
}

impl CpuCount {
    pub const fn whole(n: u32) -> Self {
        Self { millis: n.saturating_mul(1000) }
    }

    pub fn from_f64(cpus: f64) -> Option<Self> {
        let millis = (cpus * 1000.0).round();
        (millis.is_finite() && (1.0..=4_096_000.0).contains(&millis))
            .then_some(Self { millis: millis as u32 })
    }

    pub fn as_f64(self) -> f64 {
        f64::from(self.millis) / 1000.0
    }
}

impl Serialize for CpuCount {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(self.as_f64())
    }
}

impl<'de> Deserialize<'de> for CpuCount {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let cpus = f64::deserialize(deserializer)?;
        Self::from_f64(cpus).ok_or_else(|| {
            serde::de::Error::custom(format!("{cpus} is not a number of cpus between 0.001 and 4096"))
        })
    }
}

impl FromStr for CpuCount {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse::<f64>()
            .ok()
            .and_then(Self::from_f64)
            .ok_or_else(|| format!("{text:?} is not a number of cpus between 0.001 and 4096"))
    }
}

impl fmt::Display for CpuCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.as_f64())
    }
}

/// Limits that were asked for. What is absent gets the daemon's default.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, remote = "Self")]
pub struct Limits {
    /// Bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<ByteSize>,
    /// Bytes of swap on top of memory; none unless asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub swap: Option<ByteSize>,
    /// Processors; 0.5 is half of one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<f64>, minimum = 0.001, maximum = 4096)]
    pub cpus: Option<CpuCount>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pids: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub open_files: Option<u32>,
    /// Bytes the sandbox may write to its own layer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk: Option<ByteSize>,
    /// Bytes of `/tmp`, a tmpfs counted as memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tmp: Option<ByteSize>,
    /// Bytes of `/dev/shm`, as `tmp`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shm: Option<ByteSize>,
}
only_object!(Limits);

/// The limits that were decided: each has a value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct LimitsPlan {
    pub memory: ByteSize,
    pub swap: ByteSize,
    #[schema(value_type = f64)]
    pub cpus: CpuCount,
    pub pids: u32,
    pub open_files: u32,
    pub disk: ByteSize,
    /// Whether `disk` was asked for by name.
    // Then it is worth a file system of its own where the host can make one; the default is held by accounting, which
    // costs nothing at creation.
    pub disk_is_hard: bool,
    pub tmp: ByteSize,
    pub shm: ByteSize,
}

impl LimitsPlan {
    /// The host memory that the sandbox may take, including swap.
    pub fn memory_and_swap(&self) -> ByteSize {
        ByteSize(self.memory.bytes().saturating_add(self.swap.bytes()))
    }

    /// The memory that counts against a quota. `tmpfs_is_memory`: whether the memory limit includes `/tmp` and
    /// `/dev/shm`; otherwise they are added.
    pub fn claimed_memory(&self, tmpfs_is_memory: bool) -> ByteSize {
        let beside = if tmpfs_is_memory { 0 } else { self.tmp.bytes().saturating_add(self.shm.bytes()) };
        ByteSize(self.memory_and_swap().bytes().saturating_add(beside))
    }
}

//! A number of bytes, written as people write it.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

/// A number of bytes. Its text form is exact: `512MiB`, `1GiB`, `1500`.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, utoipa::ToSchema,
)]
#[serde(transparent)]
pub struct ByteSize(pub u64);

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a size: write a number and a unit, such as 512m, 1GiB or 1073741824")]
pub struct InvalidSize {
    pub text: String,
}

impl ByteSize {
    pub const fn mib(n: u64) -> Self {
        Self(n << 20)
    }

    pub const fn gib(n: u64) -> Self {
        Self(n << 30)
    }

    pub const fn bytes(self) -> u64 {
        self.0
    }
}

impl FromStr for ByteSize {
    type Err = InvalidSize;

    /// Units are powers of two in every spelling (`k`, `kb`, `KiB`), as in Docker and Kubernetes' `Mi`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let invalid = || InvalidSize { text: text.chars().take(64).collect() };
        let trimmed = text.trim();
        let digits = trimmed.bytes().take_while(|byte| byte.is_ascii_digit() || *byte == b'.').count();
        let (number, unit) = trimmed.split_at(digits);
        let shift = match unit.trim_start().to_ascii_lowercase().as_str() {
            "" | "b" => 0,
            "k" | "kb" | "ki" | "kib" => 10,
            "m" | "mb" | "mi" | "mib" => 20,
            "g" | "gb" | "gi" | "gib" => 30,
            "t" | "tb" | "ti" | "tib" => 40,
            _ => return Err(invalid()),
        };
        if let Ok(whole) = number.parse::<u64>() {
            return whole.checked_mul(1 << shift).map(Self).ok_or_else(invalid);
        }
        let fraction: f64 = number.parse().map_err(|_not_a_number| invalid())?;
        let bytes = fraction * (1_u64 << shift) as f64;
        // Above 2^53 a fraction cannot name an exact byte; nobody means that.
        if !bytes.is_finite() || !(0.0..=9_007_199_254_740_992.0).contains(&bytes) {
            return Err(invalid());
        }
        Ok(Self(bytes as u64))
    }
}

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (shift, unit) in [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")] {
            if self.0 > 0 && self.0.is_multiple_of(1 << shift) {
                return f.pad(&format!("{}{unit}", self.0 >> shift));
            }
        }
        f.pad(&self.0.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_people_write_them() {
        for (text, bytes) in
            [("0", 0), ("1500", 1500), ("64k", 65_536), ("1.5g", 1_610_612_736), ("512 MiB", 536_870_912)]
        {
            assert_eq!(text.parse(), Ok(ByteSize(bytes)), "{text:?}");
        }
        for text in
            ["", "-1", "1x", "m", "1e9", "99999999999999999999", "18446744073709551615k", "NaN", "inf"]
        {
            assert!(text.parse::<ByteSize>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn a_size_reads_back_as_itself() {
        for bytes in [0, 1, 1500, 1 << 20, 3 << 30, u64::MAX] {
            assert_eq!(ByteSize(bytes).to_string().parse(), Ok(ByteSize(bytes)));
        }
    }
}

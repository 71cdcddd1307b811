//! The section `volumes`: how many may exist, and how much the volumes of one key may hold.

use engine::VolumeLimits;
use sandbox::ByteSize;
use toml::Value;

use super::{count, size};

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct VolumesConfig {
    max_count: Option<usize>,
    max_count_per_key: Option<usize>,
    max_size_per_key: Option<ByteSize>,
}

impl VolumesConfig {
    /// Sets one key of the section. The error describes the expected value.
    pub(super) fn set(&mut self, key: &str, value: &Value) -> Result<(), &'static str> {
        match key {
            "volumes.max_count" => self.max_count = Some(count(value)?),
            "volumes.max_count_per_key" => self.max_count_per_key = Some(count(value)?),
            _ => self.max_size_per_key = Some(size(value).ok_or("a size such as \"20g\"")?),
        }
        Ok(())
    }

    /// Settings that the file does not mention stay as they are.
    pub(crate) fn apply(&self, limits: &mut VolumeLimits) {
        limits.count = self.max_count.unwrap_or(limits.count);
        limits.count_each = self.max_count_per_key.unwrap_or(limits.count_each);
        limits.bytes_each = self.max_size_per_key.or(limits.bytes_each);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(text: &str) -> Result<VolumesConfig, &'static str> {
        let table: toml::Table = text.parse().unwrap();
        let mut config = VolumesConfig::default();
        for (key, value) in &table {
            config.set(&format!("volumes.{key}"), value)?;
        }
        Ok(config)
    }

    #[test]
    fn what_the_file_says_is_what_the_engine_is_told() {
        let mut limits = VolumeLimits::default();
        VolumesConfig::default().apply(&mut limits);
        assert_eq!(limits, VolumeLimits::default());
        set("max_count = 7\nmax_count_per_key = 3\nmax_size_per_key = '2g'").unwrap().apply(&mut limits);
        let told = VolumeLimits { count: 7, count_each: 3, bytes_each: Some(ByteSize(2 << 30)) };
        assert_eq!(limits, told);
        for wrong in ["max_count = -1", "max_count_per_key = 1.5", "max_size_per_key = 'much'"] {
            assert!(set(wrong).is_err(), "{wrong}");
        }
    }
}

//! The section `snapshots`: how many may exist, and how large an archive may be.

use engine::EngineConfig;
use sandbox::ByteSize;
use toml::Value;

use super::{count, size};

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct SnapshotsConfig {
    max_count: Option<usize>,
    max_count_per_key: Option<usize>,
    max_archive: Option<ByteSize>,
}

impl SnapshotsConfig {
    /// Sets one key of the section. The error describes the expected value.
    pub(super) fn set(&mut self, key: &str, value: &Value) -> Result<(), &'static str> {
        match key {
            "snapshots.max_count" => self.max_count = Some(count(value)?),
            "snapshots.max_count_per_key" => self.max_count_per_key = Some(count(value)?),
            _ => self.max_archive = Some(size(value).ok_or("a size such as \"20g\"")?),
        }
        Ok(())
    }

    /// Settings that the file does not mention stay as they are.
    pub(crate) fn apply(&self, engine: &mut EngineConfig) {
        engine.max_snapshots = self.max_count.unwrap_or(engine.max_snapshots);
        engine.max_snapshots_each = self.max_count_per_key.unwrap_or(engine.max_snapshots_each);
        engine.max_snapshot_bytes = self.max_archive.map_or(engine.max_snapshot_bytes, ByteSize::bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(text: &str) -> Result<SnapshotsConfig, &'static str> {
        let table: toml::Table = text.parse().unwrap();
        let mut config = SnapshotsConfig::default();
        for (key, value) in &table {
            config.set(&format!("snapshots.{key}"), value)?;
        }
        Ok(config)
    }

    #[test]
    fn what_the_file_says_is_what_the_engine_is_told() {
        let mut engine = EngineConfig::new("/home");
        let before = (engine.max_snapshots, engine.max_snapshots_each, engine.max_snapshot_bytes);
        SnapshotsConfig::default().apply(&mut engine);
        assert_eq!((engine.max_snapshots, engine.max_snapshots_each, engine.max_snapshot_bytes), before);
        set("max_count = 7\nmax_count_per_key = 3\nmax_archive = '2g'").unwrap().apply(&mut engine);
        assert_eq!(
            (engine.max_snapshots, engine.max_snapshots_each, engine.max_snapshot_bytes),
            (7, 3, 2 << 30)
        );
        for wrong in ["max_count = -1", "max_count = '7'", "max_count_per_key = 1.5", "max_archive = 'much'"]
        {
            assert!(set(wrong).is_err(), "{wrong}");
        }
    }
}

//! Keeping the cache within its size: what was not used for longest goes first.

use std::{fs, io, path::PathBuf, sync::PoisonError, time::SystemTime};

use super::Cache;

/// An eviction makes more room than is needed at once, so that not every new file pays for a look through the whole
/// cache.
const KEPT_PERCENT: u64 = 90;

struct Entry {
    path: PathBuf,
    size: u64,
    used_at: SystemTime,
}

impl Cache {
    /// A file of `added` bytes replaced one of `replaced` bytes.
    pub(super) fn account(&self, added: u64, replaced: u64) -> io::Result<()> {
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        let now = match *used {
            Some(before) => before.saturating_add(added).saturating_sub(replaced),
            // The file is already in its place, so counting finds it.
            None => self.entries()?.iter().map(|entry| entry.size).sum(),
        };
        *used = Some(if now > self.max_bytes { self.evict()? } else { now });
        Ok(())
    }

    /// Returns what is left, in bytes. Files that clients are reading stay readable: they are open.
    fn evict(&self) -> io::Result<u64> {
        let mut entries = self.entries()?;
        let mut left: u64 = entries.iter().map(|entry| entry.size).sum();
        let wanted = self.max_bytes / 100 * KEPT_PERCENT;
        entries.sort_by_key(|entry| entry.used_at);
        for entry in entries {
            if left <= wanted {
                break;
            }
            match fs::remove_file(&entry.path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => left = left.saturating_sub(entry.size),
            }
        }
        Ok(left)
    }

    fn entries(&self) -> io::Result<Vec<Entry>> {
        let mut entries = Vec::new();
        for place in ["blobs/sha256", "index"] {
            for shelf in fs::read_dir(self.root.join(place))? {
                for file in fs::read_dir(shelf?.path())? {
                    let file = file?;
                    // Gone meanwhile: not an entry.
                    let Ok(metadata) = file.metadata() else { continue };
                    entries.push(Entry {
                        path: file.path(),
                        size: metadata.len(),
                        used_at: metadata.modified()?,
                    });
                }
            }
        }
        Ok(entries)
    }
}

#[cfg(test)]
mod tests {
    use std::{fs::File, time::Duration};

    use super::*;

    fn cache(max_bytes: u64) -> (tempfile::TempDir, Cache) {
        let home = tempfile::tempdir().unwrap();
        let cache = Cache::open(home.path(), max_bytes).unwrap();
        (home, cache)
    }

    fn aged(cache: &Cache, sha256: &str, seconds: u64) {
        let file = File::open(cache.blob_path(sha256)).unwrap();
        file.set_modified(SystemTime::now() - Duration::from_secs(seconds)).unwrap();
    }

    #[test]
    fn the_least_recently_used_goes_first() {
        let (_home, cache) = cache(1000);
        let [old, used, fresh] = [b'a', b'b', b'c'].map(|byte| cache.put_blob(&[byte; 300]).unwrap());
        aged(&cache, &old, 200);
        aged(&cache, &used, 300);
        aged(&cache, &fresh, 100);
        assert!(cache.blob(&used).unwrap().is_some(), "which makes it the newest in use");

        let newest = cache.put_blob(&[b'd'; 300]).unwrap();

        let kept = [&old, &used, &fresh, &newest].map(|sha256| cache.blob_path(sha256).exists());
        assert_eq!(kept, [false, true, true, true]);
    }

    #[test]
    fn what_is_open_outlives_its_eviction() {
        let (_home, cache) = cache(1000);
        let first = cache.put_blob(&[b'a'; 800]).unwrap();
        let (file, size) = cache.blob(&first).unwrap().unwrap();
        aged(&cache, &first, 10);
        cache.put_blob(&[b'b'; 800]).unwrap();
        assert!(!cache.blob_path(&first).exists());
        assert_eq!(super::super::read_whole(&file, size).unwrap(), [b'a'; 800]);
    }

    #[test]
    fn what_an_earlier_process_left_counts() {
        let (home, first) = cache(1000);
        let old = first.put_blob(&[b'a'; 800]).unwrap();
        aged(&first, &old, 10);
        drop(first);
        let second = Cache::open(home.path(), 1000).unwrap();
        second.put_blob(&[b'b'; 800]).unwrap();
        assert!(!second.blob_path(&old).exists());
    }

    #[test]
    fn half_made_files_are_swept_and_a_second_writer_is_refused() {
        let (home, first) = cache(1000);
        fs::write(home.path().join("tmp/left"), "half").unwrap();
        let refused = Cache::open(home.path(), 1000).unwrap_err().to_string();
        assert!(refused.contains("held by another process"), "{refused}");
        assert!(home.path().join("tmp/left").exists(), "the loser touches nothing");
        drop(first);
        Cache::open(home.path(), 1000).unwrap();
        assert!(!home.path().join("tmp/left").exists());
    }
}

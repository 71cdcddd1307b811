//! A file system of a few megabytes, as root makes it.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// Unmounted when dropped.
pub(crate) struct SmallDisk(PathBuf);

impl SmallDisk {
    pub(crate) fn at(place: &Path, size: &str) -> Self {
        fs::create_dir_all(place).unwrap();
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={size}"), "warren-test"])
            .arg(place)
            .status()
            .unwrap();
        assert!(mounted.success());
        Self(place.to_owned())
    }

    /// Takes what is free, but for so many bytes.
    pub(crate) fn fill_but(&self, bytes: u64) -> PathBuf {
        let free = rustix::fs::statvfs(&self.0).unwrap();
        let filler = self.0.join("filler");
        let file = fs::File::create(&filler).unwrap();
        let length = (free.f_bavail * free.f_frsize).saturating_sub(bytes);
        rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, length).unwrap();
        filler
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        Command::new("umount").arg("-l").arg(&self.0).status().ok();
    }
}

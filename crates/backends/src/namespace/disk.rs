//! Hard limits on what a sandbox may write to its own files, as root and when asked for by name: a file system of that size
//! in a file. All others are held by [`super::accounting`].

use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use rustix::fs::SeekFrom;
use sandbox::ByteSize;

use super::skeleton::unique_name;

/// Below this a journal does not fit, or fills the disk.
const SMALLEST_WITH_JOURNAL: ByteSize = ByteSize::mib(64);

/// Whether this host can make file systems of a size, found out once. The error says what is missing.
pub(crate) fn find_tools() -> Result<PathBuf, String> {
    if !rustix::process::geteuid().is_root() {
        return Err("only root can mount a file system of its own size".to_owned());
    }
    if !Path::new("/dev/loop-control").exists() {
        return Err("the host has no loop devices (/dev/loop-control)".to_owned());
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let beside = ["/usr/sbin", "/sbin", "/usr/bin"].map(PathBuf::from);
    std::env::split_paths(&path)
        .chain(beside)
        .map(|directory| directory.join("mkfs.ext4"))
        .find(|program| program.is_file())
        .ok_or_else(|| "mkfs.ext4 is not installed (package e2fsprogs)".to_owned())
}

/// Makes the image of a new sandbox: a copy of an empty file system of that size, which is made once and kept in `layers`.
pub(crate) fn make_image(mkfs: &Path, layers: &Path, size: ByteSize, image: &Path) -> io::Result<()> {
    let template = layers.join(format!("ext4-{}.img", size.bytes()));
    if !template.exists() {
        let unfinished = layers.join(format!(".ext4-{}-{}.img", size.bytes(), unique_name()));
        File::create(&unfinished)?.set_len(size.bytes())?;
        format(mkfs, size, &unfinished)?;
        fs::rename(&unfinished, &template)?;
    }
    copy_sparse(&template, image)
}

fn format(mkfs: &Path, size: ByteSize, file: &Path) -> io::Result<()> {
    let mut command = Command::new(mkfs);
    command.args([
        "-q",
        "-F",
        "-m",
        "0",
        "-E",
        "lazy_itable_init=1,lazy_journal_init=1,nodiscard,root_owner=0:0",
    ]);
    if size < SMALLEST_WITH_JOURNAL {
        command.args(["-O", "^has_journal"]);
    }
    let output = command.arg(file).stdin(Stdio::null()).output()?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().chars().take(500).collect::<String>();
    Err(io::Error::other(format!("mkfs.ext4 failed: {said}")))
}

/// Copies what is written in a file and leaves its holes.
fn copy_sparse(from: &Path, to: &Path) -> io::Result<()> {
    let (from, to) = (File::open(from)?, File::create_new(to)?);
    let length = from.metadata()?.len();
    to.set_len(length)?;
    let mut at = 0;
    while at < length {
        let data = match rustix::fs::seek(&from, SeekFrom::Data(at)) {
            Err(rustix::io::Errno::NXIO) => break,
            found => found?,
        };
        let end = rustix::fs::seek(&from, SeekFrom::Hole(data))?;
        let (mut read, mut written) = (data, data);
        while read < end {
            let left = usize::try_from(end - read).unwrap_or(usize::MAX);
            if rustix::fs::copy_file_range(&from, Some(&mut read), &to, Some(&mut written), left)? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        at = end;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;

    use super::*;

    #[test]
    fn holes_stay_holes() {
        let place = tempfile::tempdir().unwrap();
        let (from, to) = (place.path().join("from"), place.path().join("to"));
        let file = File::create(&from).unwrap();
        file.set_len(1 << 30).unwrap();
        std::os::unix::fs::FileExt::write_all_at(&file, b"near the end", (1 << 30) - 4096).unwrap();
        copy_sparse(&from, &to).unwrap();
        let copied = fs::metadata(&to).unwrap();
        assert_eq!(copied.len(), 1 << 30);
        assert!(copied.blocks() * 512 < 1 << 20, "{}", copied.blocks());
        let mut read = [0; 12];
        std::os::unix::fs::FileExt::read_exact_at(&File::open(&to).unwrap(), &mut read, (1 << 30) - 4096)
            .unwrap();
        assert_eq!(&read, b"near the end");
    }
}

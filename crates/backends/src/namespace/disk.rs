//! Hard limits on a sandbox's own files, for root and when requested explicitly: a file system of that size in a file.
//! All others are enforced by [`super::accounting`].

use std::{
    fs::{self, File},
    io::{self, Read as _, Seek as _},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use rustix::fs::SeekFrom;
use sandbox::ByteSize;

use super::{
    remains::{self, KEPT_TEMPLATES},
    skeleton::unique_name,
};

/// Below this size a journal does not fit, or fills the disk.
const SMALLEST_WITH_JOURNAL: ByteSize = ByteSize::mib(64);

/// Whether this host can make file systems of a fixed size, determined once. The error says what is missing.
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

/// Makes an image with an empty file system of that size: a copy of a template, which is made once and kept in
/// `layers`. Only a limited number is kept, whatever sizes callers invent.
pub(crate) fn make_image(mkfs: &Path, layers: &Path, size: ByteSize, image: &Path) -> io::Result<()> {
    let template = layers.join(format!("ext4-{}.img", size.bytes()));
    if !template.exists() {
        if remains::n_templates(layers) >= KEPT_TEMPLATES {
            File::create_new(image)?.set_len(size.bytes())?;
            return format(mkfs, size, image);
        }
        let unfinished = layers.join(format!(".ext4-{}-{}.img", size.bytes(), unique_name()));
        let made = File::create(&unfinished)
            .and_then(|file| file.set_len(size.bytes()))
            .and_then(|()| format(mkfs, size, &unfinished))
            .and_then(|()| fs::rename(&unfinished, &template));
        if let Err(error) = made {
            // A failed attempt must not occupy a full disk.
            let _gone = fs::remove_file(&unfinished);
            return Err(error);
        }
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
    // It has two ways of saying it.
    if said.contains("No space left on device") || said.contains("short write") {
        return Err(rustix::io::Errno::NOSPC.into());
    }
    Err(io::Error::other(format!("mkfs.ext4 failed: {said}")))
}

/// Copies a file's data and leaves its holes.
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
            match rustix::fs::copy_file_range(&from, Some(&mut read), &to, Some(&mut written), left) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(_) => {}
                // They may be on two file systems of different kinds.
                Err(rustix::io::Errno::XDEV | rustix::io::Errno::NOSYS | rustix::io::Errno::OPNOTSUPP) => {
                    (&from).seek(io::SeekFrom::Start(read))?;
                    (&to).seek(io::SeekFrom::Start(read))?;
                    read += io::copy(&mut (&from).take(end - read), &mut &to)?;
                }
                Err(error) => return Err(error.into()),
            }
        }
        at = end;
    }
    Ok(())
}

/// How long the kernel may take to write out and release a file system whose last process is gone.
const FREE_TIME: Duration = Duration::from_secs(20);
/// Pause between two checks. Nothing notifies us when a loop device releases its file.
const FREE_RETRY: Duration = Duration::from_millis(2);

/// Waits until no earlier run of a sandbox has its image attached, so that the spawner need not. Blocks.
pub(crate) fn await_free(image: &Path) -> io::Result<()> {
    let began = Instant::now();
    while !jail::is_image_free(image)? {
        if began.elapsed() >= FREE_TIME {
            return Err(io::Error::from_raw_os_error(libc::EBUSY));
        }
        std::thread::sleep(FREE_RETRY);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;

    use super::*;

    #[test]
    fn there_are_only_so_many_templates_whatever_sizes_are_asked_for() {
        let Ok(mkfs) = find_tools() else { return };
        let layers = tempfile::tempdir().unwrap();
        for number in 0..KEPT_TEMPLATES as u64 + 2 {
            let (size, image) = (ByteSize::mib(4 + number), layers.path().join(format!("image-{number}")));
            make_image(&mkfs, layers.path(), size, &image).unwrap();
            assert_eq!(fs::metadata(&image).unwrap().len(), size.bytes());
            let mut magic = [0; 2];
            std::os::unix::fs::FileExt::read_exact_at(&File::open(&image).unwrap(), &mut magic, 1080)
                .unwrap();
            assert_eq!(magic, [0x53, 0xef]);
        }
        assert_eq!(remains::n_templates(layers.path()), KEPT_TEMPLATES);
    }

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

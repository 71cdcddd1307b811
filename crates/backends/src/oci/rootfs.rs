//! Root file systems for runtimes: overlays that the daemon mounts in the run directory.

use std::{
    ffi::CString,
    fs, io,
    os::{fd::AsRawFd as _, unix::ffi::OsStrExt as _},
    path::{Path, PathBuf},
};

use rustix::{
    fs::{FileType, Mode, OFlags},
    io::Errno,
    mount::{MountFlags, UnmountFlags},
};

use sandbox::FileIdentity;

/// The kernel accepts one page of options; this leaves room for the keywords in it.
const MAX_OPTION_BYTES: usize = 4000;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Overlay {
    /// Directories, the topmost first.
    pub(super) lower: Vec<PathBuf>,
    /// Contains `upper` and `work`.
    pub(super) own: PathBuf,
    pub(super) at: PathBuf,
}

impl Overlay {
    pub(super) fn mount(&self) -> io::Result<()> {
        fs::create_dir_all(&self.at)?;
        let options = self.options();
        if options.len() > MAX_OPTION_BYTES {
            let what = format!("the names of {} layers take {} bytes", self.lower.len(), options.len());
            return Err(io::Error::new(io::ErrorKind::ArgumentListTooLong, what));
        }
        let options = CString::new(options)?;
        let flags = MountFlags::NODEV | MountFlags::NOSUID;
        Ok(rustix::mount::mount("overlay", &self.at, "overlay", flags, &*options)?)
    }

    fn options(&self) -> Vec<u8> {
        let lower: Vec<Vec<u8>> = self.lower.iter().map(|path| escaped(path)).collect();
        let (upper, work) = (escaped(&self.own.join("upper")), escaped(&self.own.join("work")));
        [&b"lowerdir="[..], &lower.join(&b':'), b",upperdir=", &upper, b",workdir=", &work].concat()
    }
}

/// Escapes the separators of options and layers.
fn escaped(path: &Path) -> Vec<u8> {
    let mut text = Vec::new();
    for byte in path.as_os_str().as_bytes() {
        if matches!(byte, b'\\' | b',' | b':') {
            text.push(b'\\');
        }
        text.push(*byte);
    }
    text
}

/// Mounts a host file or directory at `at`, if it is still the allowed one: opened first, checked then, and mounted
/// from the open descriptor.
pub(super) fn bind(path: &Path, identity: Option<FileIdentity>, at: &Path) -> io::Result<()> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let opened = rustix::fs::open(path, flags, Mode::empty())?;
    let found = rustix::fs::fstat(&opened)?;
    if identity.is_some_and(|wanted| (wanted.device, wanted.inode) != (found.st_dev, found.st_ino)) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is another file by now"));
    }
    if FileType::from_raw_mode(found.st_mode) == FileType::Directory {
        fs::create_dir_all(at)?;
    } else {
        fs::write(at, "")?;
    }
    let source = format!("/proc/self/fd/{}", opened.as_raw_fd());
    Ok(rustix::mount::mount_bind_recursive(source, at)?)
}

/// Unmounts everything at a path. Current users of a mount keep it until they end.
pub(super) fn unmount(at: &Path) -> io::Result<()> {
    loop {
        match rustix::mount::unmount(at, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW) {
            Ok(()) => {}
            // Nothing is mounted there, or nothing is there.
            Err(Errno::INVAL | Errno::NOENT) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn odd_names_of_layers_stay_names() {
        let overlay = Overlay {
            lower: vec!["/a:b".into(), "/c,upperdir=/etc".into()],
            own: "/own\\".into(),
            at: "/at".into(),
        };
        assert_eq!(
            String::from_utf8(overlay.options()).unwrap(),
            "lowerdir=/a\\:b:/c\\,upperdir=/etc,upperdir=/own\\\\/upper,workdir=/own\\\\/work"
        );
    }
}

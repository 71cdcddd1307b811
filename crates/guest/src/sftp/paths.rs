//! Paths as clients ask for them.

use std::{
    ffi::OsStr,
    fs,
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::{Path, PathBuf},
};

use rustix::io::Errno;

/// The absolute path without symlinks. The last component need not exist: clients ask before they make it.
pub(super) fn real(path: &[u8]) -> Result<Vec<u8>, Errno> {
    let path = Path::new(OsStr::from_bytes(if path.is_empty() { b"." } else { path }));
    match fs::canonicalize(path) {
        Ok(real) => Ok(real.into_os_string().into_vec()),
        Err(error) => match (Errno::from_io_error(&error), path.file_name()) {
            (Some(Errno::NOENT), Some(name)) => {
                let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
                let parent = fs::canonicalize(parent.unwrap_or(Path::new(".")));
                let parent: PathBuf =
                    parent.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
                Ok(parent.join(name).into_os_string().into_vec())
            }
            (errno, _) => Err(errno.unwrap_or(Errno::IO)),
        },
    }
}

/// `~` at the beginning is the home directory of the session's user; other users' are not looked up.
pub(super) fn expanded(path: &[u8], home: &str) -> Vec<u8> {
    match path {
        b"~" => home.as_bytes().to_vec(),
        [b'~', b'/', rest @ ..] => [home.as_bytes(), b"/", rest].concat(),
        path => path.to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_component_need_not_exist() {
        let place = tempfile::tempdir().unwrap();
        let root = fs::canonicalize(place.path()).unwrap().into_os_string().into_vec();
        std::os::unix::fs::symlink(place.path(), place.path().join("link")).unwrap();
        let path = |end: &[u8]| [&root[..], end].concat();
        assert_eq!(real(&path(b"/link/./link")), Ok(root.clone()));
        assert_eq!(real(&path(b"/link/\xff")), Ok(path(b"/\xff")));
        assert_eq!(real(&path(b"/none/x")), Err(Errno::NOENT));
        assert_eq!(real(b"/"), Ok(b"/".to_vec()));
    }

    #[test]
    fn a_tilde_is_the_home_directory() {
        assert_eq!(expanded(b"~", "/root"), b"/root");
        assert_eq!(expanded(b"~/a", "/root"), b"/root/a");
        assert_eq!(expanded(b"~ana", "/root"), b"~ana");
        assert_eq!(expanded(b"/a/~", "/root"), b"/a/~");
    }
}

//! Small helpers for attempts.

use std::{
    ffi::{CString, c_long},
    fs::{File, OpenOptions},
    io,
    os::unix::fs::OpenOptionsExt as _,
    path::Path,
};

use crate::sys::{Argument, call};

/// The name of an error, as in the manuals.
pub(crate) fn errno_name(number: i32) -> String {
    let name = match number {
        libc::EPERM => "EPERM",
        libc::ENOENT => "ENOENT",
        libc::EIO => "EIO",
        libc::EBADF => "EBADF",
        libc::EAGAIN => "EAGAIN",
        libc::ENOMEM => "ENOMEM",
        libc::EACCES => "EACCES",
        libc::EFAULT => "EFAULT",
        libc::EBUSY => "EBUSY",
        libc::EINVAL => "EINVAL",
        libc::ENOSPC => "ENOSPC",
        libc::EROFS => "EROFS",
        libc::ENOSYS => "ENOSYS",
        libc::ETXTBSY => "ETXTBSY",
        libc::EOPNOTSUPP => "EOPNOTSUPP",
        libc::ESRCH => "ESRCH",
        other => return format!("error {other}"),
    };
    name.to_owned()
}

/// Opens for writing and does nothing else: only the permission matters.
pub(crate) fn open_to_write(path: impl AsRef<Path>) -> io::Result<File> {
    OpenOptions::new().write(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(path)
}

/// Text for the kernel, NUL-terminated.
pub(crate) fn text(text: &str) -> Vec<u8> {
    CString::new(text).unwrap_or_default().into_bytes_with_nul()
}

/// A call with plain integer arguments.
pub(crate) fn numbers<const N: usize>(number: c_long, values: [i64; N]) -> Result<i64, i32> {
    let mut words = [0; 6];
    words[..N].copy_from_slice(&values);
    call(number, words.map(Argument::Number))
}

/// The value of a line `Name:\tvalue` of `/proc/…/status`.
pub(crate) fn status_field(pid: &str, name: &str) -> Option<String> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    Some(line.trim().to_owned())
}

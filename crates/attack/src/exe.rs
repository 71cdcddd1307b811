//! The guest's own binary, reached by `/proc/self/exe` (CVE-2019-5736). Even where the wall is open, nothing here
//! changes it: modes and times are set to their current values.

use std::{
    fs::{self, File},
    os::unix::fs::MetadataExt as _,
};

use rustix::{
    fs::{Gid, Mode, Timespec, Timestamps, Uid, XattrFlags},
    io::Errno,
};

use crate::{attempts::open_to_write, report::Report};

const SELF: &str = "/proc/self/exe";
const MARK: &str = "user.warren-attack";

/// Runs as the binary itself: the caller used a link to `/proc/self/exe` as the program.
pub(crate) fn of_guest() -> Report {
    let mut report = Report::new();
    let (Ok(exe), Ok(found)) = (File::open(SELF), fs::metadata(SELF)) else {
        return Report::skip("/proc/self/exe cannot be opened");
    };
    report.fact("inode", found.ino());
    report.fact("device", found.dev());
    // The kernel checks permission first: "text file busy" means that it was granted.
    match open_to_write(SELF) {
        Err(error) if error.raw_os_error() != Some(libc::ETXTBSY) => report.held(),
        Err(_busy) => report.breach("open to write", "permitted, and only busy now"),
        Ok(_) => report.breach("open to write", "done"),
    }
    report.must_fail("fchmod", rustix::fs::fchmod(&exe, Mode::from_raw_mode(found.mode() & 0o7777)));
    let time = |seconds, nanoseconds| Timespec { tv_sec: seconds, tv_nsec: nanoseconds };
    let times = Timestamps {
        last_access: time(found.atime(), found.atime_nsec()),
        last_modification: time(found.mtime(), found.mtime_nsec()),
    };
    report.must_fail("futimens", rustix::fs::futimens(&exe, &times));
    let owner = (Uid::from_raw(found.uid()), Gid::from_raw(found.gid()));
    match rustix::fs::fchown(&exe, Some(owner.0), Some(owner.1)) {
        // Without an id mapping for it, the kernel refuses with another error.
        Err(_) => report.held(),
        Ok(()) => report.breach("fchown", "done"),
    }
    match rustix::fs::fsetxattr(&exe, MARK, b"1", XattrFlags::empty()) {
        Err(_) => report.held(),
        Ok(()) => {
            report.breach("fsetxattr", "done");
            rustix::fs::fremovexattr(&exe, MARK).ok();
        }
    }
    match fs::hard_link(SELF, "/root/attack-exe") {
        Err(_) => report.held(),
        Ok(()) => {
            // A link to the link itself is no breach; one to the binary is.
            let linked = fs::symlink_metadata("/root/attack-exe");
            let is_binary = linked.is_ok_and(|linked| linked.is_file());
            report.must("link into the sandbox", !is_binary, "done");
            fs::remove_file("/root/attack-exe").ok();
        }
    }
    match rustix::fs::ftruncate(&exe, found.len()) {
        Err(Errno::INVAL | Errno::BADF | Errno::PERM | Errno::ACCESS | Errno::ROFS) => report.held(),
        answer => report.breach("ftruncate", format!("{answer:?}")),
    }
    report
}

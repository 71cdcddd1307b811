//! The host's secrets: variables, files, keys.

use std::{
    fs,
    path::{Path, PathBuf},
};

use crate::report::Report;

/// Most characters returned for the search.
const MAX_TEXT: usize = 256 * 1024;

/// All readable variables and command lines, for the other side to search: the secret itself must not come in here.
pub(crate) fn environment() -> Report {
    let mut report = Report::new();
    let mut text = String::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().parse::<u32>().is_err() {
            continue;
        }
        for name in ["environ", "cmdline"] {
            let bytes = fs::read(entry.path().join(name)).unwrap_or_default();
            text.push_str(&String::from_utf8_lossy(&bytes).replace('\0', " "));
        }
    }
    report.fact("text", text.chars().take(MAX_TEXT).collect::<String>());
    report
}

/// Most files examined.
const MAX_FILES: usize = 400_000;
/// The kernel's own files, which are no host's.
const KERNELS: [&str; 2] = ["/proc", "/sys"];

/// `secrets-files NAME`: no file of that name anywhere, and none of a host's private paths.
pub(crate) fn files(arguments: &[String]) -> Report {
    let mut report = Report::new();
    for path in
        ["/root/.ssh", "/root/.aws", "/root/.docker", "/root/.bash_history", "/etc/ssh", "/etc/sudoers"]
    {
        report.must_fail(path, fs::metadata(path));
    }
    let shadow = fs::read_to_string("/etc/shadow").unwrap_or_default();
    report.must("/etc/shadow", !shadow.contains('$'), "has passwords");
    let Some(name) = arguments.first() else { return report };
    let mut left = vec![PathBuf::from("/")];
    let mut n_seen = 0;
    while let Some(directory) = left.pop() {
        for entry in fs::read_dir(&directory).into_iter().flatten().flatten() {
            n_seen += 1;
            if entry.file_name() == name.as_str() {
                report.breach(entry.path().display().to_string(), "there");
            }
            // Of files only the name is looked at: a host's `/usr` has hundreds of thousands.
            let is_directory = entry.file_type().is_ok_and(|kind| kind.is_dir());
            if !is_directory || n_seen >= MAX_FILES {
                continue;
            }
            let below = entry.path();
            if !KERNELS.iter().any(|kernel| below == Path::new(kernel)) {
                left.push(below);
            }
        }
    }
    report.held();
    report
}

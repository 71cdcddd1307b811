//! Checks of the host, each with the command that fixes it.

use std::{fs, path::Path};

use super::{Check, Status};
use crate::directories::{self, Directories};

/// Number of sandboxes that should be able to open as many files as their limits allow, at the same time.
const SANDBOXES_AT_ONCE: u64 = 4;

/// Runs all checks. Forks, so the process must have one thread.
pub(crate) fn check_host(directories: &Directories) -> Vec<Check> {
    let mut checks: Vec<Check> = jail::probe::run(&directories.home).into_iter().map(Check::from).collect();
    checks.push(home(&directories.home));
    checks.push(files_of_all(&fs::read_to_string("/proc/sys/fs/file-max").unwrap_or_default()));
    checks
}

/// Checks that a few sandboxes that open all the files they may leave some for the rest of the host, because the
/// kernel's limit is for the whole machine. `file_max`: the text of `fs.file-max`.
fn files_of_all(file_max: &str) -> Check {
    let (name, limits) = ("open files of the host", sandbox::Defaults::default().limits);
    let each = u64::from(limits.open_files) * u64::from(limits.pids);
    let wanted = each * SANDBOXES_AT_ONCE;
    match file_max.trim().parse::<u64>() {
        Ok(most) if most < wanted => Check::weak(
            name,
            format!("fs.file-max is {most}; the processes of one sandbox may open {each} files by default"),
            format!(
                "echo 'fs.file-max = {wanted}' | {sudo}tee /etc/sysctl.d/61-warren.conf && {sudo}sysctl --system",
                sudo = jail::probe::sudo()
            ),
        ),
        Ok(most) => Check::works(name, format!("at most {most}")),
        Err(_) => Check::works(name, "not limited"),
    }
}

impl From<jail::probe::Check> for Check {
    fn from(probed: jail::probe::Check) -> Self {
        let status = match (probed.works, probed.is_needed) {
            (true, _) => Status::Works,
            (false, false) => Status::Weak,
            (false, true) => Status::Missing,
        };
        Self { name: probed.check, status, detail: probed.detail, mend: probed.fix }
    }
}

fn home(home: &Path) -> Check {
    let name = "data directory";
    let shown = home.display();
    if let Err(error) = directories::make_private(home) {
        return Check::missing(
            name,
            error.to_string(),
            format!("{}install -d -m 0700 -o $(id -u) {shown}", jail::probe::sudo()),
        );
    }
    let probe = home.join(format!(".doctor-{}", std::process::id()));
    match fs::write(&probe, "x").and_then(|()| fs::remove_file(&probe)) {
        Ok(()) => Check::works(name, format!("{shown} is writable")),
        Err(error) => {
            Check::missing(name, format!("{shown} is not writable: {error}"), format!("chmod u+rwx {shown}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_that_a_few_sandboxes_could_leave_without_files_is_weak() {
        let small = files_of_all("200000\n");
        assert_eq!(small.status, Status::Weak);
        assert!(small.detail.contains("2097152"), "{small:?}");
        assert!(small.mend.is_some_and(|mend| mend.contains("fs.file-max = 8388608")));
        assert_eq!(files_of_all("9223372036854775807\n").status, Status::Works);
        assert_eq!(files_of_all("").status, Status::Works);
    }
}

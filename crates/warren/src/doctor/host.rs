//! What the host lets us do, each with the command that mends it.

use std::{fs, path::Path};

use super::{Check, Status};
use crate::directories::{self, Directories};

/// Tries everything. Forks, so the process must have one thread.
pub(crate) fn check_host(directories: &Directories) -> Vec<Check> {
    let mut checks: Vec<Check> = jail::probe::run(&directories.home).into_iter().map(Check::from).collect();
    checks.push(home(&directories.home));
    checks
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
        return Check::missing(name, error.message(), format!("sudo install -d -m 0700 -o $(id -u) {shown}"));
    }
    let probe = home.join(format!(".doctor-{}", std::process::id()));
    match fs::write(&probe, "x").and_then(|()| fs::remove_file(&probe)) {
        Ok(()) => Check::works(name, format!("{shown} can be written")),
        Err(error) => Check::missing(
            name,
            format!("{shown} cannot be written: {error}"),
            format!("chmod u+rwx {shown}"),
        ),
    }
}

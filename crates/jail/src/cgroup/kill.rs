//! Kills a workload from outside, without its guest.

use std::{
    fs, io,
    time::{Duration, Instant},
};

use super::{CgroupError, Cgroups, RETRY_EVERY, kill_all, write};

/// How long the processes of a killed workload may take to end.
const KILL_TIME: Duration = Duration::from_secs(5);

impl Cgroups {
    /// Kills every process of the workload and returns when none is left. `false`: no cgroup here knows its processes.
    pub fn kill(&self, id: &str) -> Result<bool, CgroupError> {
        // Version 2 kills them all at once, including newborn ones.
        let Some(hierarchy) =
            self.hierarchies.iter().find(|one| one.is_v2).or_else(|| self.hierarchies.first())
        else {
            return Ok(false);
        };
        let group = hierarchy.directory.join(id);
        let workload = hierarchy.workload(&group);
        let (list, at_once) = (workload.join("cgroup.procs"), workload.join("cgroup.kill"));
        let began = Instant::now();
        loop {
            if at_once.exists() {
                write(&at_once, "1")?;
            } else {
                // Frozen, so that none is born while they are listed; frozen processes of version 1 die when they wake.
                let _held = self.freeze(id, true);
                kill_all(&workload);
                let _woken = self.freeze(id, false);
            }
            match fs::read_to_string(&list) {
                Ok(left) if left.trim().is_empty() => return Ok(true),
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(true),
                _ if began.elapsed() < KILL_TIME => std::thread::sleep(RETRY_EVERY),
                _ => {
                    let source = io::ErrorKind::TimedOut.into();
                    return Err(CgroupError { action: "empty".to_owned(), file: list, source });
                }
            }
        }
    }
}

//! Creates the group above all sandboxes, where most controllers are available.

use std::{
    fs, io,
    path::{Path, PathBuf},
    time::Duration,
};

use super::{
    CgroupError, Controller, GUESTS, detect::Mount, failed, make_directory, open_for_writing, write,
};

/// How old an empty parent must be to count as abandoned.
const STALE: Duration = Duration::from_secs(60);
/// Below a parent is a group for each sandbox, and in version 2 two more in each.
const GROUP_DEPTH: u32 = 2;
/// The group that a daemon with a delegated group moves itself into.
const DAEMON: &str = "daemon";

/// A parent that was made.
#[derive(Debug)]
pub(super) struct Parent {
    pub(super) directory: PathBuf,
    /// The controllers that work in it.
    pub(super) controllers: Vec<Controller>,
    /// The requested controllers that do not work, and why.
    pub(super) refused: Vec<(Controller, CgroupError)>,
}

impl Parent {
    /// Removes it again, if unused. A daemon's spawner and all guests are in one group: once the kernel removes that,
    /// only groups of sandboxes that ended without their daemon are left beside it.
    pub(super) fn forget(directory: &Path) {
        match fs::remove_dir(directory.join(GUESTS)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {}
            _unused => remove_empty(directory, GROUP_DEPTH),
        }
    }
}

/// The group that this process may divide: its own, or the one above if it is in the `daemon` of that, where systemd
/// put it (`DelegateSubgroup=daemon`) or it moved itself. Dividing the group that a unit's process starts in would keep
/// systemd from starting the unit again while sandboxes are in it.
pub(super) fn delegated(mount: &Mount) -> &Path {
    let own = mount.own.as_path();
    let above = own.parent().filter(|_| mount.is_v2 && own != mount.top && own.ends_with(DAEMON));
    let has_no_process = |group: &Path| {
        fs::read_to_string(group.join("cgroup.procs")).is_ok_and(|pids| pids.trim().is_empty())
    };
    let is_ours = |group: &Path| {
        rustix::fs::access(group.join("cgroup.subtree_control"), rustix::fs::Access::WRITE_OK).is_ok()
    };
    above.filter(|above| has_no_process(above) && is_ours(above)).unwrap_or(own)
}

/// Creates the parent below the first of `bases` that provides every controller; failing that, below the one that
/// provides most.
pub(super) fn make_best(
    bases: &[&Path],
    name: &str,
    is_v2: bool,
    controllers: &[Controller],
) -> Result<Parent, CgroupError> {
    let mut best: Result<Parent, CgroupError> =
        Err(failed("find a place for", Path::new(name))(io::ErrorKind::NotFound.into()));
    for base in bases {
        if best.as_ref().is_ok_and(|parent| parent.refused.is_empty()) {
            break;
        }
        remove_stale(base, name);
        best = match (best, make(base, name, is_v2, controllers)) {
            (Ok(before), Ok(made)) => Ok(better(before, made)),
            (Ok(before), Err(_refused)) => Ok(before),
            (Err(_refused), made) => made,
        };
    }
    best
}

/// The earlier one, unless the later has more.
fn better(before: Parent, later: Parent) -> Parent {
    let is_later = later.controllers.len() > before.controllers.len();
    let (kept, other) = if is_later { (later, before) } else { (before, later) };
    Parent::forget(&other.directory);
    kept
}

/// Removes a group with its children; the kernel refuses if a process is in it.
fn remove_empty(group: &Path, depth: u32) {
    let entries = fs::read_dir(group).into_iter().flatten().flatten().filter(|_| depth > 0);
    for entry in entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
        remove_empty(&entry.path(), depth - 1);
    }
    drop(fs::remove_dir(group));
}

/// Removes parents of dead daemons. The kernel refuses while anything is in them.
fn remove_stale(base: &Path, parent: &str) {
    let Some((prefix, _)) = parent.split_once('-') else { return };
    for entry in fs::read_dir(base).into_iter().flatten().flatten() {
        let is_alike = entry.file_name().to_str().is_some_and(|name| {
            name != parent && name.strip_prefix(prefix).is_some_and(|rest| rest.starts_with('-'))
        });
        let made = entry.metadata().and_then(|metadata| metadata.modified()).ok();
        if is_alike && made.and_then(|made| made.elapsed().ok()).is_some_and(|age| age > STALE) {
            Parent::forget(&entry.path());
        }
    }
}

/// Creates the parent and its `guests` below `base`.
fn make(base: &Path, name: &str, is_v2: bool, controllers: &[Controller]) -> Result<Parent, CgroupError> {
    let directory = base.join(name);
    let mut errors = Vec::new();
    if is_v2 {
        vacate(base);
        errors.extend(enable(base, controllers));
    }
    make_directory(&directory)?;
    if is_v2 {
        errors.extend(enable(&directory, controllers));
    }
    let guests = directory.join(GUESTS);
    make_directory(&guests)?;
    // Checks that the right to move processes comes with the right to create directories.
    open_for_writing(&guests.join(if is_v2 { "cgroup.procs" } else { "tasks" }))?;
    let mut parent = Parent { directory, controllers: controllers.to_vec(), refused: Vec::new() };
    if is_v2 {
        parent.find_refused(errors);
    }
    Ok(parent)
}

impl Parent {
    /// Checks which controllers of version 2 really work: a failed write may not have been needed. `errors`: the
    /// failures, in order.
    fn find_refused(&mut self, mut errors: Vec<(Controller, CgroupError)>) {
        let list = self.directory.join("cgroup.subtree_control");
        let freeze = self.directory.join("cgroup.freeze");
        let enabled = fs::read_to_string(&list).unwrap_or_default();
        for controller in std::mem::take(&mut self.controllers) {
            let (works, file) = match controller {
                Controller::Freezer => (freeze.exists(), &freeze),
                // `cpu.stat` exists without any controller.
                Controller::CpuAccounting => (true, &list),
                other => (enabled.split_ascii_whitespace().any(|name| name == other.name(true)), &list),
            };
            if works {
                self.controllers.push(controller);
                continue;
            }
            let told = errors.iter().position(|(about, _)| *about == controller);
            let error = match told {
                Some(position) => errors.remove(position).1,
                None => {
                    let action = format!("find {} by", controller.name(true));
                    failed(&action, file)(io::ErrorKind::NotFound.into())
                }
            };
            self.refused.push((controller, error));
        }
    }
}

/// A group of version 2 can only delegate controllers while no process is in it. In a group delegated to us, we and our
/// spawner are; both move into a group beside the sandboxes. No other process is moved, and the top of the tree does
/// not need this.
fn vacate(base: &Path) {
    let ours = std::process::id();
    let is_ours = |pid: &u32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let parent =
            stat.rsplit_once(')').and_then(|(_, rest)| rest.split_ascii_whitespace().nth(1)?.parse().ok());
        *pid == ours || parent == Some(ours)
    };
    let listed = fs::read_to_string(base.join("cgroup.procs")).unwrap_or_default();
    let inside: Vec<u32> = listed.lines().filter_map(|line| line.parse().ok()).collect();
    let is_top = !base.join("cgroup.type").exists();
    if is_top || !inside.contains(&ours) || !inside.iter().all(is_ours) {
        return;
    }
    let aside = base.join(DAEMON);
    if make_directory(&aside).is_ok() {
        for pid in inside {
            drop(fs::write(aside.join("cgroup.procs"), pid.to_string()));
        }
    }
}

/// One by one, so that a controller that cannot be delegated does not hold back the others. Returns the refused ones.
fn enable(group: &Path, controllers: &[Controller]) -> Vec<(Controller, CgroupError)> {
    let file = group.join("cgroup.subtree_control");
    controllers
        .iter()
        .filter(|one| !matches!(one, Controller::CpuAccounting | Controller::Freezer))
        .filter_map(|one| Some((*one, write(&file, &format!("+{}", one.name(true))).err()?)))
        .collect()
}

//! Leftovers of interrupted work in the home, and unused layers.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    time::SystemTime,
};

use sandbox::BackendKind;

use super::{Directories, record::Record, skeleton::UNFINISHED, sweep};

/// The newest templates of disk images that are kept.
pub(crate) const KEPT_TEMPLATES: usize = 8;
/// The layers of image `host` that are kept besides those in use: the last ones that were made or found again, which a
/// sandbox in the making may be about to use.
pub(crate) const KEPT_SKELETONS: usize = 4;

/// Finds them at the start, before anything new is begun: later work is never in the list.
pub(crate) fn find(directories: &Directories) -> Vec<PathBuf> {
    let (sandboxes, layers) = (directories.sandboxes(), directories.layers());
    let mut found = named(&sandboxes, ".deep-");
    // Their sandboxes never came.
    found.extend(named(&directories.waiting(), ""));
    for prefix in [".deep-", ".making-"] {
        found.extend(named(&directories.volumes(), prefix));
    }
    for prefix in [".deep-", ".ext4-", UNFINISHED] {
        found.extend(named(&layers, prefix));
    }
    found.extend(all_but_newest(named(&layers, "ext4-"), KEPT_TEMPLATES));
    found.extend(unused_skeletons(directories));
    found
}

pub(crate) fn n_templates(layers: &Path) -> usize {
    named(layers, "ext4-").len()
}

/// Layers of image `host` that no sandbox uses or is about to use.
pub(crate) fn unused_skeletons(directories: &Directories) -> Vec<PathBuf> {
    let Some(used) = used_skeletons(directories) else { return Vec::new() };
    let is_unused = |path: &PathBuf| {
        !path.file_name().and_then(|name| name.to_str()).is_some_and(|name| used.contains(name))
    };
    all_but_newest(named(&directories.layers(), "host-"), KEPT_SKELETONS)
        .into_iter()
        .filter(is_unused)
        .collect()
}

/// The layers beneath live sandboxes. `None`: the record of one cannot be read, so any may be in use.
fn used_skeletons(directories: &Directories) -> Option<BTreeSet<String>> {
    // Sandboxes of runtimes use them too.
    let runs = [BackendKind::Oci, BackendKind::Gvisor].map(|kind| directories.run.join(kind.as_str()));
    let all = runs
        .into_iter()
        .chain([directories.run.clone()])
        .map(|run| Directories { run, ..directories.clone() });
    let places = all.flat_map(|found| sweep::ids_in(&found.run).into_iter().map(move |id| found.place(&id)));
    // Dead sandboxes use nothing.
    let records = places.filter(sweep::lives).map(|place| Record::read(&place).ok());
    records.collect::<Option<Vec<_>>>().map(|all| all.into_iter().filter_map(|one| one.skeleton).collect())
}

fn named(directory: &Path, prefix: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries
        .filter(|entry| entry.file_name().to_str().is_some_and(|name| name.starts_with(prefix)))
        .map(|entry| entry.path())
        .collect()
}

fn all_but_newest(mut paths: Vec<PathBuf>, kept: usize) -> Vec<PathBuf> {
    let made = |path: &PathBuf| {
        fs::metadata(path).and_then(|found| found.modified()).unwrap_or(SystemTime::UNIX_EPOCH)
    };
    paths.sort_by_key(|path| std::cmp::Reverse(made(path)));
    paths.split_off(kept.min(paths.len()))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use sandbox::{Isolation, NetworkHold, Walls};

    use super::*;

    #[test]
    fn remains_are_found_and_what_is_needed_is_not() {
        let place = tempfile::tempdir().unwrap();
        let directories = Directories { home: place.path().join("home"), run: place.path().join("run") };
        let (sandboxes, layers) = (directories.sandboxes(), directories.layers());
        for path in [&sandboxes.join(".deep-1-1"), &sandboxes.join("sbx-1"), &layers.join(".unfinished-7")] {
            fs::create_dir_all(path).unwrap();
        }
        fs::write(layers.join(".ext4-1-x.img"), "").unwrap();
        for number in 0..10 {
            let file = fs::File::create(layers.join(format!("ext4-{number}.img"))).unwrap();
            file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(number)).unwrap();
        }
        fs::create_dir(layers.join("host-1")).unwrap();
        let mut found = find(&directories);
        found.sort_unstable();
        let expected =
            [".ext4-1-x.img", ".unfinished-7", "ext4-0.img", "ext4-1.img"].map(|name| layers.join(name));
        assert_eq!(found[..4], expected);
        assert_eq!(found[4..], [sandboxes.join(".deep-1-1")]);
    }

    #[test]
    fn what_is_left_of_the_dead_keeps_no_layer() {
        let place = tempfile::tempdir().unwrap();
        let directories = Directories { home: place.path().join("home"), run: place.path().join("run") };
        for number in 0..=KEPT_SKELETONS {
            let layer = directories.layers().join(format!("host-{number}"));
            fs::create_dir_all(&layer).unwrap();
            let made = SystemTime::UNIX_EPOCH + Duration::from_secs(number as u64);
            fs::File::open(layer).unwrap().set_modified(made).unwrap();
        }
        let oldest = directories.layers().join("host-0");
        assert_eq!(find(&directories), [oldest.as_path()]);
        // As left by an interrupted removal: nothing says which layer it had.
        let names = directories.place(&sandbox::SandboxId::from_random([7; 8]));
        fs::create_dir_all(&names.run).unwrap();
        assert_eq!(find(&directories), [oldest.as_path()]);
        fs::write(names.pid(), "1 1\n").unwrap();
        assert_eq!(find(&directories), [oldest.as_path()]);
        // A living one may use any.
        let stat = fs::read_to_string("/proc/self/stat").unwrap();
        let (pid, start_time) = jail::parse_stat(&stat).unwrap();
        fs::write(names.pid(), format!("{pid} {start_time}\n")).unwrap();
        assert_eq!(find(&directories), Vec::<PathBuf>::new());
        // One of another image uses none.
        let isolation = Isolation {
            backend: BackendKind::Namespace,
            walls: Walls::SharedKernel,
            rootless: false,
            id_map: String::new(),
            namespaces: Vec::new(),
            capabilities: Vec::new(),
            no_new_privileges: true,
            seccomp: None,
            network: NetworkHold::Loopback,
            cgroups: String::new(),
            limits: Vec::new(),
            warnings: Vec::new(),
        };
        let record = |skeleton: Option<&str>| Record {
            isolation: isolation.clone(),
            first_id: None,
            home: None,
            skeleton: skeleton.map(str::to_owned),
            named_ports: None,
        };
        record(None).write(&names).unwrap();
        assert_eq!(find(&directories), [oldest.as_path()]);
        record(Some("host-0")).write(&names).unwrap();
        assert_eq!(find(&directories), Vec::<PathBuf>::new());
    }
}

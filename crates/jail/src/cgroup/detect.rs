//! Reads how a host has its cgroups mounted.

use std::path::{Path, PathBuf};

/// The controllers that we use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Controller {
    Memory,
    Cpu,
    CpuAccounting,
    Pids,
    Freezer,
}

impl Controller {
    const ALL: [Self; 5] = [Self::Memory, Self::Cpu, Self::CpuAccounting, Self::Pids, Self::Freezer];

    pub(super) fn name(self, is_v2: bool) -> &'static str {
        match (self, is_v2) {
            (Self::Memory, _) => "memory",
            (Self::Cpu, _) => "cpu",
            (Self::CpuAccounting, false) => "cpuacct",
            (Self::CpuAccounting, true) => "cpu.stat",
            (Self::Pids, _) => "pids",
            (Self::Freezer, false) => "freezer",
            (Self::Freezer, true) => "cgroup.freeze",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    None,
    V1,
    V2,
    /// Both are mounted.
    Hybrid,
}

impl Version {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::V1 => "v1",
            Self::V2 => "v2",
            Self::Hybrid => "hybrid",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CgroupMounts {
    pub(super) version: Version,
    pub(super) mounts: Vec<Mount>,
}

/// A hierarchy with controllers that we use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Mount {
    pub(super) is_v2: bool,
    pub(super) controllers: Vec<Controller>,
    /// The mount point of the hierarchy.
    pub(super) top: PathBuf,
    /// The group of this process.
    pub(super) own: PathBuf,
}

/// Parses `/proc/self/mountinfo` and `/proc/self/cgroup`. A controller of version 1 is not looked for in version 2.
pub(super) fn find(mountinfo: &str, own: &str) -> CgroupMounts {
    let mounted: Vec<Line<'_>> = mountinfo.lines().filter_map(Line::parse).collect();
    let (mut mounts, mut taken) = (Vec::<Mount>::new(), Vec::new());
    for line in mounted.iter().filter(|line| line.kind == "cgroup") {
        let has = |one: &Controller| line.options.split(',').any(|option| option == one.name(false));
        let controllers: Vec<_> =
            Controller::ALL.into_iter().filter(has).filter(|one| !taken.contains(one)).collect();
        if !controllers.is_empty() {
            taken.extend_from_slice(&controllers);
            let first = controllers[0].name(false);
            let path = own_path(own, |names| names.split(',').any(|name| name == first));
            mounts.push(line.mount(false, controllers, path));
        }
    }
    if let Some(line) = mounted.iter().find(|line| line.kind == "cgroup2") {
        let controllers: Vec<_> = Controller::ALL.into_iter().filter(|one| !taken.contains(one)).collect();
        if !controllers.is_empty() {
            mounts.push(line.mount(true, controllers, own_path(own, str::is_empty)));
        }
    }
    let has = |kind| mounted.iter().any(|line| line.kind == kind);
    let version = match (has("cgroup"), has("cgroup2")) {
        (true, true) => Version::Hybrid,
        (true, false) => Version::V1,
        (false, true) => Version::V2,
        (false, false) => Version::None,
    };
    CgroupMounts { version, mounts }
}

/// This process's group in the hierarchy whose controllers satisfy `is_it`.
fn own_path(own: &str, is_it: impl Fn(&str) -> bool) -> &str {
    own.lines()
        .find_map(|line| {
            let mut words = line.splitn(3, ':').skip(1);
            let (names, path) = (words.next()?, words.next()?);
            is_it(names).then_some(path)
        })
        .unwrap_or("/")
}

/// The fields of a mountinfo line that matter here.
struct Line<'a> {
    root: &'a str,
    at: &'a str,
    kind: &'a str,
    options: &'a str,
}

impl<'a> Line<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let (before, after) = line.split_once(" - ")?;
        let mut before = before.split(' ').skip(3);
        let mut after = after.split(' ');
        Some(Self { root: before.next()?, at: before.next()?, kind: after.next()?, options: after.nth(1)? })
    }

    fn mount(&self, is_v2: bool, controllers: Vec<Controller>, own: &str) -> Mount {
        let top = PathBuf::from(self.at);
        // In a container the mount shows only a part of the hierarchy, but paths are relative to its true top.
        let below = Path::new(own).strip_prefix(self.root).unwrap_or(Path::new(""));
        let below = below.strip_prefix("/").unwrap_or(below);
        let own = if below.as_os_str().is_empty() { top.clone() } else { top.join(below) };
        Mount { is_v2, controllers, top, own }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HYBRID: &str = "\
31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755
32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct
35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
37 31 0:34 / /sys/fs/cgroup/freezer rw,relatime shared:9 - cgroup cgroup rw,freezer
38 31 0:35 / /sys/fs/cgroup/blkio rw,relatime - cgroup cgroup rw,blkio
40 31 0:37 / /sys/fs/cgroup/systemd rw,relatime - cgroup cgroup rw,name=systemd
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
";

    #[test]
    fn on_a_hybrid_host_version_2_has_what_version_1_has_not() {
        let found = find(HYBRID, "4:memory:/job/7\n1:cpu,cpuacct:/\n3:freezer:/\n0::/x\n");
        assert_eq!(found.version, Version::Hybrid);
        let shown: Vec<_> = found
            .mounts
            .iter()
            .map(|one| (one.is_v2, one.own.display().to_string(), one.controllers.len()))
            .collect();
        assert_eq!(
            shown,
            [
                (false, "/sys/fs/cgroup/cpu,cpuacct".to_owned(), 2),
                (false, "/sys/fs/cgroup/memory/job/7".to_owned(), 1),
                (false, "/sys/fs/cgroup/freezer".to_owned(), 1),
                (true, "/sys/fs/cgroup/unified/x".to_owned(), 1),
            ]
        );
        assert_eq!(found.mounts[3].controllers, [Controller::Pids]);
    }

    #[test]
    fn version_2_alone_has_everything() {
        let line = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";
        let found = find(line, "0::/user.slice/user-1000.slice/session-3.scope\n");
        assert_eq!((found.version, found.mounts.len()), (Version::V2, 1));
        assert_eq!(found.mounts[0].controllers, Controller::ALL);
        assert_eq!(
            found.mounts[0].own,
            Path::new("/sys/fs/cgroup/user.slice/user-1000.slice/session-3.scope")
        );
    }

    #[test]
    fn in_a_container_the_mount_shows_a_part() {
        let line = "35 31 0:32 /docker/ab /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n";
        let found = find(line, "4:memory:/docker/ab/inner\n");
        assert_eq!(found.version, Version::V1);
        assert_eq!(found.mounts[0].own, Path::new("/sys/fs/cgroup/memory/inner"));
    }

    #[test]
    fn nothing_mounted_is_nothing_found() {
        assert_eq!(find("", ""), CgroupMounts { version: Version::None, mounts: Vec::new() });
        assert_eq!(
            find("garbage\n1 2 3 - x", "::::\n"),
            CgroupMounts { version: Version::None, mounts: Vec::new() }
        );
    }
}

//! Layouts over plain directories: the kernel's files are ordinary files here, and the tests check what is written to
//! them.

use super::{detect::Mount, *};

const LIMITS: CgroupLimits =
    CgroupLimits { memory_bytes: 64 << 20, swap_bytes: 1 << 20, cpu_millis: 1500, pids: 32 };

/// A host whose hierarchies are directories below `top`. The parents exist, with the files that the kernel would
/// create.
fn host(top: &Path, version: Version, hierarchies: &[(bool, &[Controller])]) -> Cgroups {
    let mounts = hierarchies.iter().enumerate().map(|(number, (is_v2, controllers))| {
        let base = top.join(number.to_string());
        let parent = base.join("warren");
        fs::create_dir_all(parent.join("guests")).unwrap();
        fs::write(parent.join("cgroup.freeze"), "0").unwrap();
        let sandbox = parent.join("sbx-1");
        for group in [parent.join("guests"), sandbox.join("workload"), sandbox.join("files"), sandbox] {
            fs::create_dir_all(&group).unwrap();
            fs::write(group.join(if *is_v2 { "cgroup.procs" } else { "tasks" }), "").unwrap();
            fs::write(group.join("memory.events"), "oom 4\noom_kill 3\n").unwrap();
            fs::write(group.join("memory.oom_control"), "under_oom 0\noom_kill 3\n").unwrap();
            fs::write(group.join("memory.memsw.limit_in_bytes"), "").unwrap();
            fs::write(group.join("memory.swap.max"), "").unwrap();
            fs::write(group.join("memory.kmem.tcp.limit_in_bytes"), "").unwrap();
        }
        Mount { is_v2: *is_v2, controllers: controllers.to_vec(), top: base.clone(), own: base }
    });
    Cgroups::prepare(CgroupMounts { version, mounts: mounts.collect() }, "warren", true)
}

fn read(top: &Path, file: &str) -> String {
    fs::read_to_string(top.join(file)).unwrap_or_else(|error| panic!("{file}: {error}"))
}

#[test]
fn version_1_has_a_directory_in_each_hierarchy() {
    let top = tempfile::tempdir().unwrap();
    let all: &[(bool, &[Controller])] = &[
        (false, &[Controller::Memory]),
        (false, &[Controller::Cpu, Controller::CpuAccounting]),
        (false, &[Controller::Pids]),
    ];
    let cgroups = host(top.path(), Version::V1, all);
    let files = cgroups.create("sbx-1", &LIMITS).unwrap();
    assert_eq!((files.enter.len(), files.memory.is_some(), files.oom_counter.is_some()), (3, true, true));
    assert_eq!(read(top.path(), "0/warren/sbx-1/memory.limit_in_bytes"), (64 << 20).to_string());
    assert_eq!(read(top.path(), "0/warren/sbx-1/memory.memsw.limit_in_bytes"), (65 << 20).to_string());
    assert_eq!(read(top.path(), "0/warren/sbx-1/memory.kmem.tcp.limit_in_bytes"), (8 << 20).to_string());
    assert!(cgroups.limits_sockets());
    assert_eq!(read(top.path(), "1/warren/sbx-1/cpu.cfs_quota_us"), "150000");
    assert_eq!(read(top.path(), "2/warren/sbx-1/pids.max"), "32");
    assert_eq!(cgroups.ids(), ["sbx-1"]);
    assert_eq!(cgroups.usage("sbx-1").oom_kills, Some(3));
    assert!(!cgroups.can_freeze());
    assert!(cgroups.freeze("sbx-1", true).is_err());
}

#[test]
fn version_2_has_one_and_uses_the_controllers_that_were_given_on() {
    let top = tempfile::tempdir().unwrap();
    let all: &[(bool, &[Controller])] = &[(
        true,
        &[
            Controller::Memory,
            Controller::Cpu,
            Controller::CpuAccounting,
            Controller::Pids,
            Controller::Freezer,
        ],
    )];
    // A plain file keeps only the last write, like a kernel that delegates only the last controller.
    let cgroups = host(top.path(), Version::V2, all);
    assert_eq!(cgroups.controller(Controller::Memory), None);
    fs::write(top.path().join("0/warren/cgroup.subtree_control"), "memory cpu pids").unwrap();

    let hierarchy =
        Hierarchy { is_v2: true, controllers: all[0].1.to_vec(), directory: top.path().join("0/warren") };
    let cgroups = Cgroups { version: Version::V2, hierarchies: vec![hierarchy], missing: Vec::new() };
    let files = cgroups.create("sbx-1", &LIMITS).unwrap();
    assert_eq!((files.enter.len(), files.oom_counter.is_some()), (1, true));
    for (file, entered) in [(&files.enter[0], "workload"), (files.memory.as_ref().unwrap(), "files")] {
        rustix::io::write(file, b"0").unwrap();
        assert_eq!(read(top.path(), &format!("0/warren/sbx-1/{entered}/cgroup.procs")), "0");
    }
    assert_eq!(read(top.path(), "0/warren/sbx-1/memory.max"), (64 << 20).to_string());
    assert_eq!(read(top.path(), "0/warren/sbx-1/memory.swap.max"), (1 << 20).to_string());
    assert_eq!(read(top.path(), "0/warren/sbx-1/cpu.max"), "150000 100000");
    assert_eq!(read(top.path(), "0/warren/sbx-1/pids.max"), "32");
    assert_eq!(cgroups.usage("sbx-1").oom_kills, Some(3));
}

#[test]
fn a_host_that_lets_us_make_nothing_says_so() {
    let top = tempfile::tempdir().unwrap();
    let nowhere = top.path().join("missing");
    let mount =
        Mount { is_v2: false, controllers: vec![Controller::Memory], top: nowhere.clone(), own: nowhere };
    let cgroups =
        Cgroups::prepare(CgroupMounts { version: Version::V1, mounts: vec![mount] }, "warren", true);
    assert_eq!(cgroups.version(), Version::None);
    assert!(cgroups.missing()[0].contains("memory"), "{:?}", cgroups.missing());
}

#[test]
fn one_cause_that_several_hierarchies_have_is_one_sentence() {
    let top = tempfile::tempdir().unwrap();
    let mount = |name: &str, controller| {
        let nowhere = top.path().join("missing").join(name);
        Mount { is_v2: false, controllers: vec![controller], top: nowhere.clone(), own: nowhere }
    };
    let mounts = vec![mount("memory", Controller::Memory), mount("freezer", Controller::Freezer)];
    let cgroups = Cgroups::prepare(CgroupMounts { version: Version::V1, mounts }, "warren", true);
    let [sentence] = cgroups.missing() else { panic!("{:?}", cgroups.missing()) };
    assert!(sentence.contains("controllers memory, freezer cannot be used: No such file"), "{sentence}");
}

#[test]
fn a_workload_that_cannot_be_frozen_in_time_is_not_left_half_frozen() {
    let top = tempfile::tempdir().unwrap();
    let group = top.path().join("sbx-1");
    fs::create_dir(&group).unwrap();
    // As the kernel shows it while a process is in the middle of disk work.
    fs::write(group.join("cgroup.events"), "populated 1\nfrozen 0\n").unwrap();
    let hierarchy =
        Hierarchy { is_v2: true, controllers: vec![Controller::Freezer], directory: top.path().to_owned() };
    let cgroups = Cgroups { version: Version::V2, hierarchies: vec![hierarchy], missing: Vec::new() };
    let error = cgroups.freeze_within("sbx-1", true, Duration::ZERO).unwrap_err();
    assert_eq!(error.source.kind(), io::ErrorKind::TimedOut);
    assert_eq!(read(top.path(), "sbx-1/cgroup.freeze"), "0");
}

/// A base of version 2 that delegates nothing: `/dev/full` fails every write with "no space".
fn base_of_version_2(top: &Path, name: &str, can_freeze: bool) -> PathBuf {
    let base = top.join(name);
    let guests = base.join("warren/guests");
    fs::create_dir_all(&guests).unwrap();
    fs::write(guests.join("cgroup.procs"), "").unwrap();
    std::os::unix::fs::symlink("/dev/full", base.join("cgroup.subtree_control")).unwrap();
    if can_freeze {
        fs::write(base.join("warren/cgroup.freeze"), "0").unwrap();
    }
    base
}

#[test]
fn a_controller_that_cannot_be_given_on_is_named_with_the_kernels_answer() {
    let top = tempfile::tempdir().unwrap();
    let base = base_of_version_2(top.path(), "base", true);
    let controllers = vec![Controller::Memory, Controller::Freezer];
    let mount = Mount { is_v2: true, controllers, top: base.clone(), own: base };
    let cgroups =
        Cgroups::prepare(CgroupMounts { version: Version::V2, mounts: vec![mount] }, "warren", true);
    assert_eq!((cgroups.controller(Controller::Memory), cgroups.can_freeze()), (None, true));
    let [sentence] = cgroups.missing() else { panic!("{:?}", cgroups.missing()) };
    for part in ["controller memory cannot", "+memory", "base/cgroup.subtree_control", "No space left"] {
        assert!(sentence.contains(part), "{sentence}");
    }
}

#[test]
fn the_base_that_gives_more_is_taken() {
    let place = tempfile::tempdir().unwrap();
    let poor = base_of_version_2(place.path(), "poor", false);
    let rich = base_of_version_2(place.path(), "rich", true);
    for (top, own) in [(&poor, &rich), (&rich, &poor)] {
        let controllers = vec![Controller::Memory, Controller::Freezer];
        let mount = Mount { is_v2: true, controllers, top: top.clone(), own: own.clone() };
        let cgroups =
            Cgroups::prepare(CgroupMounts { version: Version::V2, mounts: vec![mount] }, "warren", true);
        assert_eq!(cgroups.hierarchies[0].directory, rich.join("warren"));
        assert_eq!(cgroups.missing().len(), 1, "{:?}", cgroups.missing());
    }
}

#[test]
fn a_daemon_in_a_subgroup_of_its_unit_divides_the_unit() {
    let place = tempfile::tempdir().unwrap();
    let unit = base_of_version_2(place.path(), "warren.service", true);
    let subgroup = base_of_version_2(&unit, "daemon", true);
    fs::write(subgroup.join("cgroup.procs"), std::process::id().to_string()).unwrap();
    let mount = |top: &Path, own: &Path| Mount {
        is_v2: true,
        controllers: vec![Controller::Memory, Controller::Freezer],
        top: top.to_owned(),
        own: own.to_owned(),
    };
    let base_of = |mount: Mount| {
        let mounts = CgroupMounts { version: Version::V2, mounts: vec![mount] };
        Cgroups::prepare(mounts, "warren", false).hierarchies.remove(0).directory
    };
    fs::write(unit.join("cgroup.procs"), "").unwrap();
    assert_eq!(base_of(mount(place.path(), &subgroup)), unit.join("warren"));
    // The same after it moved there by itself: nothing is divided a second time.
    assert_eq!(base_of(mount(&unit, &subgroup)), unit.join("warren"));
    // Not what others use, and not what is above the top.
    assert_eq!(base_of(mount(&subgroup, &subgroup)), subgroup.join("warren"));
    fs::write(unit.join("cgroup.procs"), "1").unwrap();
    assert_eq!(base_of(mount(place.path(), &subgroup)), subgroup.join("warren"));
}

#[test]
fn groups_that_nobody_uses_go_with_their_parent() {
    let top = tempfile::tempdir().unwrap();
    let parent = |name: &str| {
        let parent = top.path().join(name);
        fs::create_dir_all(parent.join("sbx-1/workload")).unwrap();
        fs::create_dir_all(parent.join("sbx-2/files")).unwrap();
        parent
    };
    // The daemon was killed, and everything in its sandboxes with it.
    let left = parent("warren-1");
    fs::create_dir(left.join(GUESTS)).unwrap();
    Parent::forget(&left);
    assert!(!left.exists());

    let half_gone = parent("warren-2");
    Parent::forget(&half_gone);
    assert!(!half_gone.exists());

    // A daemon or a guest is in it; the sandbox has no processes of its own.
    let used = parent("warren-3");
    fs::create_dir_all(used.join(GUESTS).join("held")).unwrap();
    Parent::forget(&used);
    assert!(used.join("sbx-1/workload").exists());
}

//! Volumes: made completely or not at all, hidden from other namespaces, and not removed while mounted.

use engine::{GrepQuery, Principal, VolumeLimits, VolumeRef, WriteOptions};
use sandbox::{
    ByteSize, ErrorKind, FileIdentity, KeySpec, MountOrigin, MountSource, MountSpec, SandboxSpec, VolumeId,
    VolumeSpec,
};
use serde_json::json;
use store::{VolumeRecord, VolumeState};

use super::support::{World, bytes, collect, in_time};

fn volume(name: &str) -> VolumeRef {
    VolumeRef { namespace: None, name: name.parse().unwrap() }
}

fn volume_spec(name: &str) -> VolumeSpec {
    serde_json::from_value(json!({"name": name, "labels": {"team": "a"}})).unwrap()
}

fn mounting(name: &str, at: &str) -> SandboxSpec {
    let mount = MountSpec {
        guest_path: at.to_owned(),
        source: MountSource::Named { name: name.parse().unwrap() },
        readonly: false,
        noexec: false,
    };
    SandboxSpec { mounts: vec![mount], ..SandboxSpec::default() }
}

fn binding(path: &std::path::Path, allowed: Option<FileIdentity>) -> SandboxSpec {
    let source = MountSource::Bind { host_path: path.to_owned(), no_links: false, allowed };
    let mount = MountSpec { guest_path: "/in".to_owned(), source, readonly: true, noexec: false };
    SandboxSpec { mounts: vec![mount], ..SandboxSpec::default() }
}

#[tokio::test]
async fn a_volume_is_made_listed_written_and_removed() {
    let world = World::new().await;
    let (engine, who) = (&world.engine, &world.who);
    let made = engine.create_volume(who, volume_spec("models")).await.unwrap();
    assert_eq!((made.name.as_str(), made.labels["team"].as_str()), ("models", "a"));
    assert_eq!(engine.volumes(who, None).await.unwrap(), [made]);
    let taken = engine.create_volume(who, volume_spec("models")).await.unwrap_err();
    assert_eq!(taken.kind(), ErrorKind::AlreadyExists);

    let which = volume("models");
    let options = WriteOptions { parents: true, ..WriteOptions::default() };
    assert_eq!(engine.write_file(who, &which, "/a/b", options, bytes("text")).await.unwrap(), 4);
    let (entry, content) = engine.read_file(who, &which, "/a/b", 0, None).await.unwrap();
    assert_eq!((entry.size, collect(content).await.unwrap().as_str()), (4, "text"));
    let listing = engine.list(who, &which, "/", true, 10).await.unwrap();
    assert_eq!(listing.entries.iter().map(|entry| entry.path.as_str()).collect::<Vec<_>>(), ["/a", "/a/b"]);

    engine.remove_volume(who, &which).await.unwrap();
    assert_eq!(engine.volume(who, &which).await.unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(engine.stat(who, &which, "/a", false).await.unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(std::fs::read_dir(world.home.path().join("volumes")).unwrap().count(), 0);
    engine.create_volume(who, volume_spec("models")).await.unwrap();
    assert!(engine.stat(who, &which, "/a", false).await.is_err());
}

#[tokio::test]
async fn whatever_can_be_asked_of_a_sandboxs_files_can_be_asked_of_a_volumes() {
    let world = World::new().await;
    let (engine, who, which) = (&world.engine, &world.who, &volume("models"));
    engine.create_volume(who, volume_spec("models")).await.unwrap();
    engine.write_file(who, which, "/a.txt", WriteOptions::default(), bytes("one\ntwo\n")).await.unwrap();
    engine.symlink(who, which, "a.txt", "/link").await.unwrap();
    assert_eq!(engine.read_link(who, which, "/link").await.unwrap(), "a.txt");
    engine.chmod(who, which, "/a.txt", 0o600, false).await.unwrap();
    assert_eq!(engine.stat(who, which, "/a.txt", false).await.unwrap().mode, 0o600);
    assert_eq!(engine.glob(who, which, "/", "*.txt", 10).await.unwrap().paths, ["/a.txt"]);
    let query = GrepQuery {
        root: "/".to_owned(),
        pattern: "tw".to_owned(),
        include: None,
        ignore_case: false,
        literal: true,
        limit: 10,
    };
    assert_eq!(engine.grep(who, which, query).await.unwrap().matches[0].line, 2);
}

#[tokio::test]
async fn what_a_namespace_does_not_see_does_not_exist_for_it() {
    let world = World::new().await;
    let engine = &world.engine;
    engine.create_volume(&world.who, volume_spec("models")).await.unwrap();
    let ana = Principal::of_namespace("ana", "red".parse().unwrap());
    let theirs = VolumeRef { namespace: Some(Default::default()), name: "models".parse().unwrap() };
    for which in [&volume("models"), &theirs] {
        assert_eq!(engine.volume(&ana, which).await.unwrap_err().kind(), ErrorKind::NotFound);
        assert_eq!(engine.remove_volume(&ana, which).await.unwrap_err().kind(), ErrorKind::NotFound);
        assert_eq!(engine.list(&ana, which, "/", false, 1).await.unwrap_err().kind(), ErrorKind::NotFound);
    }
    assert!(engine.volumes(&ana, None).await.unwrap().is_empty());
    assert_eq!(engine.create_volume(&ana, volume_spec("x")).await.unwrap_err().kind(), ErrorKind::Denied);
    let in_red = SandboxSpec { namespace: "red".parse().unwrap(), ..mounting("models", "/data") };
    let refused = engine.create_sandbox(&ana, in_red).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::NotFound);
    assert!(refused.to_string().contains("/data") && refused.to_string().contains("models"), "{refused}");
}

#[tokio::test]
async fn a_volume_in_use_stays_and_its_users_are_named() {
    let world = World::new().await;
    let (engine, who) = (&world.engine, &world.who);
    engine.create_volume(who, volume_spec("models")).await.unwrap();
    let spec = SandboxSpec { name: Some("reader".parse().unwrap()), ..mounting("models", "/data") };
    let made = engine.create_sandbox(who, spec).await.unwrap();
    let sandbox = (&made.id).into();
    for stop in [false, true] {
        if stop {
            engine.stop_sandbox(who, &sandbox, None).await.unwrap();
        }
        let refused = engine.remove_volume(who, &volume("models")).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::WrongState);
        assert!(refused.to_string().contains("reader"), "{refused}");
    }
    let world = world.crash().await;
    let (engine, who) = (&world.engine, &world.who);
    assert_eq!(engine.volume(who, &volume("models")).await.unwrap().used_by, ["reader".parse().unwrap()]);
    engine.remove_sandbox(who, &sandbox, engine::Force::Yes).await.unwrap();
    engine.remove_volume(who, &volume("models")).await.unwrap();
}

#[tokio::test]
async fn a_sandbox_and_the_removal_of_its_volume_never_both_succeed() {
    let world = World::new().await;
    let (engine, who) = (&world.engine, &world.who);
    for _ in 0..20 {
        engine.create_volume(who, volume_spec("models")).await.unwrap();
        let which = volume("models");
        let making = engine.create_sandbox(who, mounting("models", "/data"));
        let (made, removed) = tokio::join!(making, engine.remove_volume(who, &which));
        assert!(made.is_err() || removed.is_err());
        if let Ok(made) = made {
            engine.remove_sandbox(who, &(&made.id).into(), engine::Force::Yes).await.unwrap();
        }
        if removed.is_err() {
            engine.remove_volume(who, &volume("models")).await.unwrap();
        }
    }
}

#[tokio::test]
async fn what_a_daemon_left_half_made_or_half_removed_is_gone_after_the_next_start() {
    let world = World::new().await;
    world.engine.create_volume(&world.who, volume_spec("kept")).await.unwrap();
    let volumes = world.home.path().join("volumes");
    for (seed, name, state) in [(1, "half", VolumeState::Making), (2, "going", VolumeState::Removing)] {
        let id = VolumeId::from_random([seed; 8]);
        let created_at = "2026-01-01T00:00:00Z".parse().unwrap();
        std::fs::create_dir_all(volumes.join(id.as_str()).join("data")).unwrap();
        let spec = volume_spec(name);
        let record = VolumeRecord { id, spec, state, storage: None, created_at, owner: None };
        world.store.insert_volume(record).await.unwrap();
    }
    let stranger = VolumeId::from_random([3; 8]);
    std::fs::create_dir(volumes.join(stranger.as_str())).unwrap();
    std::fs::create_dir(volumes.join("not-ours")).unwrap();

    let world = world.crash().await;
    assert_eq!(world.engine.volumes(&world.who, None).await.unwrap().len(), 1);
    in_time(async {
        while !(world.engine.is_idle().await && std::fs::read_dir(&volumes).unwrap().count() == 2) {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_eq!(world.store.volumes().await.unwrap().records.len(), 1);
    assert!(volumes.join("not-ours").exists());
    world.engine.create_volume(&world.who, volume_spec("half")).await.unwrap();
}

#[tokio::test]
async fn host_paths_are_for_the_owner_and_for_what_a_policy_has_seen() {
    use std::os::unix::fs::MetadataExt;
    let world = World::new().await;
    let engine = &world.engine;
    let outside = tempfile::tempdir().unwrap();
    let path = outside.path().join("files");
    std::fs::create_dir(&path).unwrap();
    engine.create_sandbox(&world.who, binding(&path, None)).await.unwrap();
    let ana = Principal::of_namespace("ana", Default::default());
    let refused = engine.create_sandbox(&ana, binding(&path, None)).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Denied);
    assert!(refused.next().is_some(), "{refused}");

    let metadata = std::fs::metadata(&path).unwrap();
    let allowed = FileIdentity { device: metadata.dev(), inode: metadata.ino() };
    let made = engine.create_sandbox(&ana, binding(&path, Some(allowed))).await.unwrap();
    assert!(
        matches!(&made.plan.mounts[0].source, MountOrigin::Path { identity: Some(seen), .. } if *seen == allowed)
    );

    // Another directory in its place is not the allowed one, now or at a later start.
    let which = (&made.id).into();
    engine.stop_sandbox(&ana, &which, None).await.unwrap();
    std::fs::rename(&path, outside.path().join("old")).unwrap();
    std::os::unix::fs::symlink("/etc", &path).unwrap();
    for refused in [
        engine.create_sandbox(&ana, binding(&path, Some(allowed))).await.map(drop),
        engine.start_sandbox(&ana, &which).await.map(drop),
    ] {
        let refused = refused.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Denied, "{refused}");
        assert!(refused.to_string().contains("/in"), "{refused}");
    }
}

#[tokio::test]
async fn a_path_that_was_free_of_links_must_stay_so() {
    let world = World::new().await;
    let (engine, who) = (&world.engine, &world.who);
    let outside = tempfile::tempdir().unwrap();
    let above = outside.path().canonicalize().unwrap().join("project");
    let path = above.join("files");
    std::fs::create_dir_all(&path).unwrap();
    let spec = |name: &str, path: &std::path::Path| -> SandboxSpec {
        let mount = json!({"kind": "bind", "guestPath": "/in", "hostPath": path, "noLinks": true});
        serde_json::from_value(json!({"name": name, "mounts": [mount]})).unwrap()
    };
    let made = engine.create_sandbox(who, spec("box", &path)).await.unwrap();
    let which = (&made.id).into();
    let start_again = async || {
        engine.stop_sandbox(who, &which, None).await.unwrap();
        engine.start_sandbox(who, &which).await
    };
    // Another directory at the same path is the project's own too.
    std::fs::remove_dir(&path).unwrap();
    std::fs::create_dir(&path).unwrap();
    start_again().await.unwrap();
    // A link is not, wherever it is on the path.
    for at in [&path, &above] {
        let aside = outside.path().join("aside");
        std::fs::rename(at, &aside).unwrap();
        std::os::unix::fs::symlink(&aside, at).unwrap();
        let refused = start_again().await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Denied, "{refused}");
        assert!(refused.to_string().contains("/in") && refused.to_string().contains("link"), "{refused}");
        let refused = engine.create_sandbox(who, spec("other", &path)).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Denied, "{refused}");
        std::fs::remove_file(at).unwrap();
        std::fs::rename(&aside, at).unwrap();
        engine.start_sandbox(who, &which).await.unwrap();
    }
}

#[tokio::test]
async fn a_root_that_was_free_of_links_must_stay_so() {
    let world = World::new().await;
    let (engine, who) = (&world.engine, &world.who);
    let outside = tempfile::tempdir().unwrap();
    let root = outside.path().canonicalize().unwrap().join("root");
    std::fs::create_dir(&root).unwrap();
    let rootfs = json!({"kind": "directory", "path": root, "noLinks": true});
    let spec: SandboxSpec = serde_json::from_value(json!({"name": "box", "rootfs": rootfs})).unwrap();
    let made = engine.create_sandbox(who, spec).await.unwrap();
    let which = (&made.id).into();
    engine.stop_sandbox(who, &which, None).await.unwrap();
    std::fs::rename(&root, outside.path().join("aside")).unwrap();
    std::os::unix::fs::symlink("/etc", &root).unwrap();
    let refused = engine.start_sandbox(who, &which).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Denied, "{refused}");
    // What was copied of it must be as careful.
    std::fs::remove_file(&root).unwrap();
    std::fs::rename(outside.path().join("aside"), &root).unwrap();
    world.snapshot(&which, "base").await;
    let forked = engine.fork_sandbox(who, &which, Default::default()).await.unwrap().remove(0).id;
    let restored =
        engine.restore_snapshot(who, &"base".parse().unwrap(), Default::default()).await.unwrap().id;
    for copy in [forked, restored] {
        engine.stop_sandbox(who, &(&copy).into(), None).await.unwrap();
        std::fs::rename(&root, outside.path().join("aside")).unwrap();
        std::os::unix::fs::symlink("/etc", &root).unwrap();
        let refused = engine.start_sandbox(who, &(&copy).into()).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Denied, "{refused}");
        std::fs::remove_file(&root).unwrap();
        std::fs::rename(outside.path().join("aside"), &root).unwrap();
    }
}

#[tokio::test]
async fn mounts_that_make_no_sense_are_refused_by_name() {
    let world = World::new().await;
    let tries = [
        json!([{"kind": "tmpfs", "guestPath": "/a"}, {"kind": "tmpfs", "guestPath": "//a/"}]),
        json!([{"kind": "tmpfs", "guestPath": "/a", "size": 1}]),
        json!([{"kind": "tmpfs", "guestPath": "/proc/a"}]),
        json!([{"kind": "bind", "guestPath": "/a", "hostPath": "relative"}]),
        json!([{"kind": "bind", "guestPath": "/a", "hostPath": "/dev/null"}]),
        json!([{"kind": "bind", "guestPath": "/a", "hostPath": world.home.path().join("volumes/..")}]),
        json!([{"kind": "bind", "guestPath": "/a", "hostPath": world.home.path()}]),
        // A parent directory shows it as well.
        json!([{"kind": "bind", "guestPath": "/a", "hostPath": world.home.path().parent().unwrap()}]),
        json!([{"kind": "bind", "guestPath": "/a", "hostPath": "/", "readonly": true}]),
        json!([{"kind": "disk", "guestPath": "/a", "hostPath": "/etc/passwd"}]),
    ];
    for mounts in tries {
        let spec: SandboxSpec = serde_json::from_value(json!({"mounts": mounts.clone()})).unwrap();
        let error = world.engine.create_sandbox(&world.who, spec).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidRequest, "{mounts}: {error}");
        assert!(error.to_string().contains("/a"), "{error}");
    }
    let many: Vec<_> = (0..65).map(|n| json!({"kind": "tmpfs", "guestPath": format!("/{n}")})).collect();
    let spec: SandboxSpec = serde_json::from_value(json!({"mounts": many})).unwrap();
    assert!(world.engine.create_sandbox(&world.who, spec).await.is_err());
    let long: Vec<_> = (0..5)
        .map(|n| json!({"kind": "tmpfs", "guestPath": format!("/{n}/{}", "x/".repeat(2000))}))
        .collect();
    let spec: SandboxSpec = serde_json::from_value(json!({"mounts": long})).unwrap();
    let error = world.engine.create_sandbox(&world.who, spec).await.unwrap_err();
    assert!(error.to_string().contains("bytes"), "{error}");
    let ordered = json!([{"kind": "tmpfs", "guestPath": "/a/b"}, {"kind": "tmpfs", "guestPath": "/a-b"},
        {"kind": "tmpfs", "guestPath": "/a"}]);
    let spec: SandboxSpec = serde_json::from_value(json!({"mounts": ordered})).unwrap();
    let made = world.engine.create_sandbox(&world.who, spec).await.unwrap();
    assert_eq!(
        made.plan.mounts.iter().map(|mount| mount.guest_path.as_str()).collect::<Vec<_>>(),
        ["/a", "/a/b", "/a-b"]
    );
}

#[tokio::test]
async fn a_volume_that_is_asked_for_twice_at_once_is_made_once() {
    let world = World::new().await;
    for number in 0..10 {
        let name = format!("twin-{number}");
        let make = || world.engine.create_volume(&world.who, volume_spec(&name));
        let (one, two) = tokio::join!(make(), make());
        let refused = one.and(two).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::AlreadyExists, "{refused}");
    }
    assert_eq!(world.engine.volumes(&world.who, None).await.unwrap().len(), 10);
}

#[tokio::test]
async fn what_would_pass_a_measured_quota_is_refused_while_it_comes_and_changes_nothing() {
    const MIB: usize = 1024 * 1024;
    let world = World::new().await;
    world.backend.measure_quotas();
    let (engine, who, which) = (&world.engine, &world.who, volume("small"));
    let spec: VolumeSpec = serde_json::from_value(json!({"name": "small", "quota": 4 * MIB})).unwrap();
    engine.create_volume(who, spec).await.unwrap();
    let content = |n_bytes: usize| bytes(&"x".repeat(n_bytes));
    let write = async |path: &str, n_bytes: usize| {
        engine.write_file(who, &which, path, WriteOptions::default(), content(n_bytes)).await
    };
    let size = async |path: &str| engine.stat(who, &which, path, false).await.map(|entry| entry.size);
    write("/a", 10).await.unwrap();
    let refused = write("/a", 5 * MIB).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::LimitReached, "{refused}");
    assert!(refused.to_string().contains("small") && refused.next().is_some(), "{refused}");
    assert_eq!(size("/a").await.unwrap(), 10);

    // Two at once do not get the same room twice.
    let (one, two) = tokio::join!(write("/b", 3 * MIB), write("/c", 3 * MIB));
    assert!(one.is_err() || two.is_err());
    assert!(engine.volume(who, &which).await.unwrap().used.unwrap().bytes() <= 4 * MIB as u64);
    let path = if one.is_ok() { "/b" } else { "/c" };
    if one.is_err() && two.is_err() {
        write(path, 3 * MIB).await.unwrap();
    }
    let refused = engine.copy_path(who, &which, path, "/d", false).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::LimitReached, "{refused}");
    assert_eq!(size("/d").await.unwrap_err().kind(), ErrorKind::NotFound);
    let refused = engine.unpack(who, &which, "/", false, content(2 * MIB)).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::LimitReached, "{refused}");
    engine.remove_path(who, &which, path, false).await.unwrap();
    write("/d", 3 * MIB).await.unwrap();
}

#[tokio::test]
async fn a_key_has_so_many_volumes_and_so_much_in_them_and_the_owner_is_not_bound_by_that() {
    let world = World::with(|config| {
        config.volumes = VolumeLimits { count: 4, count_each: 2, bytes_each: Some(ByteSize::mib(40)) };
    })
    .await;
    let secret = world.engine.create_key(&world.who, KeySpec::default()).await.unwrap().secret;
    let ana = world.engine.authenticate_key(&secret).await.unwrap();
    let make = async |who: &Principal, name: &str, quota: Option<u64>| {
        let spec = VolumeSpec { quota: quota.map(ByteSize::mib), ..volume_spec(name) };
        world.engine.create_volume(who, spec).await.map_err(|error| error.kind())
    };
    assert_eq!(make(&ana, "open", None).await.unwrap_err(), ErrorKind::Denied);
    make(&ana, "one", Some(20)).await.unwrap();
    assert_eq!(make(&ana, "large", Some(21)).await.unwrap_err(), ErrorKind::LimitReached);
    make(&ana, "two", Some(10)).await.unwrap();
    assert_eq!(make(&ana, "three", Some(10)).await.unwrap_err(), ErrorKind::LimitReached);
    make(&world.who, "open", None).await.unwrap();
    make(&world.who, "more", Some(100)).await.unwrap();
    assert_eq!(make(&world.who, "five", None).await.unwrap_err(), ErrorKind::LimitReached);
    // A removed volume no longer counts.
    world.engine.remove_volume(&ana, &volume("one")).await.unwrap();
    make(&ana, "three", Some(20)).await.unwrap();
}

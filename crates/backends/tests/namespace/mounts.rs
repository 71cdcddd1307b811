//! Mounts and volumes on the real kernel: what is shared, what is refused, and what hostile links reach.

use std::{
    fs,
    os::unix::fs::{MetadataExt as _, symlink},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use guest_protocol::{Request, Response};
use sandbox::{
    Backend as _, BackendError, ByteSize, FileIdentity, MountOrigin, MountPlan, SandboxPlan, VolumeId,
    VolumeKind, VolumeStorage,
};

use crate::world::{Client, World, fresh_id, fresh_volume, run_as, sh};

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

fn mount(guest_path: &str, source: MountOrigin) -> MountPlan {
    let guest_path = guest_path.to_owned();
    MountPlan { guest_path, source, readonly: false, noexec: false, quota: None }
}

fn readonly(mount: MountPlan) -> MountPlan {
    MountPlan { readonly: true, ..mount }
}

/// An owner's bind mount as a back end gets it: with the identity of the current file.
fn bind(path: &Path) -> MountOrigin {
    let found = fs::metadata(path).unwrap();
    let identity = Some(FileIdentity { device: found.dev(), inode: found.ino() });
    MountOrigin::Path { path: path.to_owned(), identity }
}

fn plan_with(world: &World, mounts: Vec<MountPlan>) -> SandboxPlan {
    SandboxPlan { mounts, ..world.plan() }
}

/// A new directory in the home.
fn directory(world: &World, name: &str) -> PathBuf {
    let path = world.directories.home.join(format!("{name}-{}", fresh_id()));
    fs::create_dir(&path).unwrap();
    path
}

async fn volume(
    world: &World,
    kind: VolumeKind,
    limit: Option<ByteSize>,
) -> (VolumeId, MountOrigin, VolumeStorage) {
    let id = fresh_volume();
    let storage = world.volumes().make(&id, kind, limit).await.unwrap();
    (id.clone(), MountOrigin::Volume { id }, storage)
}

fn files_of(world: &World, id: &VolumeId) -> PathBuf {
    world.directories.home.join("volumes").join(id.as_str())
}

pub(crate) async fn a_volume_is_shared_and_outlives_its_sandboxes(world: Arc<World>) {
    let (id, origin, storage) = volume(&world, VolumeKind::Directory, None).await;
    assert_eq!(storage, VolumeStorage::Directory);
    let plans = ["/data", "/deep/er/data"].map(|at| plan_with(&world, vec![mount(at, origin.clone())]));
    let (one, other) = (world.create(&plans[0]).await, world.create(&plans[1]).await);
    let output =
        sh(&*one, "echo hello > /data/file && chmod 640 /data/file && stat -c '%u:%g %a' /data/file").await;
    assert_eq!(output.stdout, "0:0 640\n", "{output:?}");
    let output = sh(
        &*other,
        "cat /deep/er/data/file && stat -c %u:%g /deep/er/data && echo more >> /deep/er/data/file",
    )
    .await;
    assert_eq!(output.stdout, "hello\n0:0\n", "{output:?}");
    for (instance, plan) in [(one, &plans[0]), (other, &plans[1])] {
        instance.stop().await.unwrap();
        world.backend.remove(&plan.id).await.unwrap();
    }
    let last = plan_with(&world, vec![readonly(mount("/data", origin.clone()))]);
    let instance = world.create(&last).await;
    assert_eq!(sh(&*instance, "cat /data/file").await.stdout, "hello\nmore\n");
    assert!(world.volumes().used(&id).await.unwrap() >= 4096);
    instance.stop().await.unwrap();
    world.volumes().remove(&id).await.unwrap();
    assert!(!files_of(&world, &id).exists());
}

pub(crate) async fn ids_inside_are_kept_in_a_volume(world: Arc<World>) {
    if is_single() {
        return;
    }
    let (id, origin, _) = volume(&world, VolumeKind::Directory, None).await;
    let plans = [(); 2].map(|()| plan_with(&world, vec![mount("/data", origin.clone())]));
    let first = world.create(&plans[0]).await;
    let output = sh(&*first, "chmod 777 /data").await;
    assert_eq!(output.code(), Some(0), "{output:?}");
    let output = run_as(&*first, "1000:1000", &["/bin/sh", "-c", "echo x > /data/theirs"]).await;
    assert_eq!(output.code(), Some(0), "{output:?}");
    first.stop().await.unwrap();
    let second = world.create(&plans[1]).await;
    let output = sh(&*second, "stat -c %u:%g /data/theirs").await;
    assert_eq!(output.stdout, "1000:1000\n", "{output:?}");
    second.stop().await.unwrap();
    if is_root() {
        assert_eq!(fs::metadata(files_of(&world, &id).join("data/theirs")).unwrap().uid(), 1000);
    }
    world.volumes().remove(&id).await.unwrap();
    assert!(!files_of(&world, &id).exists());
}

fn is_single() -> bool {
    std::env::var("WARREN_TEST_WHO").is_ok_and(|who| who == "single_id")
}

pub(crate) async fn read_only_noexec_and_nosuid_hold_for_root_inside(world: Arc<World>) {
    let host = directory(&world, "bound");
    fs::write(host.join("program"), "#!/bin/sh\necho ran\n").unwrap();
    rustix::fs::chmod(host.join("program"), 0o755.into()).unwrap();
    fs::write(host.join("file"), "as it was").unwrap();
    let quiet = MountPlan { noexec: true, ..mount("/quiet", bind(&host)) };
    let plan =
        plan_with(&world, vec![readonly(mount("/fixed", bind(&host))), mount("/open", bind(&host)), quiet]);
    let instance = world.create(&plan).await;
    let output = sh(&*instance, "/open/program && /fixed/program && ! /quiet/program").await;
    assert_eq!((output.stdout.as_str(), output.code()), ("ran\nran\n", Some(0)), "{output:?}");
    for attempt in [
        "echo x > /fixed/file",
        "echo x > /fixed/new",
        "rm /fixed/file",
        "chmod 777 /fixed/file",
        "mount -o remount,rw /fixed",
        "mount -o remount,bind,rw /fixed",
        "mount --bind / /fixed",
        "umount /fixed",
        "umount -l /quiet",
        "unshare -Urm mount -o remount,bind,rw /fixed",
    ] {
        let output = sh(&*instance, attempt).await;
        assert_ne!(output.code(), Some(0), "{attempt}: {output:?}");
    }
    let output = sh(&*instance, "grep -E ' /(open|fixed|quiet) ' /proc/self/mounts").await;
    assert_eq!(output.stdout.lines().count(), 3, "{output:?}");
    for line in output.stdout.lines() {
        assert!(line.contains("nosuid") && line.contains("nodev"), "{line}");
        assert_eq!(line.contains(" ro,"), line.contains(" /fixed "), "{line}");
        assert_eq!(line.contains("noexec"), line.contains(" /quiet "), "{line}");
    }
    assert_eq!(fs::read_to_string(host.join("file")).unwrap(), "as it was");
    instance.stop().await.unwrap();
}

pub(crate) async fn a_single_file_and_mounts_in_mounts(world: Arc<World>) {
    let host = directory(&world, "bound");
    fs::write(host.join("settings"), "one\n").unwrap();
    fs::create_dir(host.join("inner")).unwrap();
    let tmpfs = MountOrigin::Tmpfs { size: ByteSize::mib(1) };
    let plan = plan_with(
        &world,
        vec![
            mount("/a", tmpfs.clone()),
            mount("/a/b", bind(&host)),
            mount("/a/b/inner", tmpfs),
            readonly(mount("/etc/app/settings", bind(&host.join("settings")))),
        ],
    );
    let instance = world.create(&plan).await;
    let output = sh(
        &*instance,
        "cat /etc/app/settings && touch /a/x /a/b/y /a/b/inner/z && ! echo > /etc/app/settings",
    )
    .await;
    assert_eq!((output.stdout.as_str(), output.code()), ("one\n", Some(0)), "{output:?}");
    let output =
        sh(&*instance, "dd if=/dev/zero of=/a/fill bs=64k count=64 2>&1; stat -c %s /a/fill; stat -c %a /a")
            .await;
    assert!(output.stdout.contains("No space left") && output.stdout.ends_with("1777\n"), "{output:?}");
    instance.stop().await.unwrap();
    assert!(host.join("y").exists() && !host.join("inner/z").exists());
    // The mount points were made in the sandbox's own files, so it starts again.
    let instance = world.create(&plan).await;
    assert_eq!(sh(&*instance, "ls /a /a/b/inner").await.stdout, "/a:\nb\n\n/a/b/inner:\n");
    instance.stop().await.unwrap();
}

pub(crate) async fn links_at_the_place_of_a_mount_stay_inside(world: Arc<World>) {
    let (id, origin, _) = volume(&world, VolumeKind::Directory, None).await;
    let outside = directory(&world, "outside");
    let before = names(Path::new("/etc"));
    let plain = world.plan();
    let instance = world.create(&plain).await;
    let script = format!(
        "ln -s /etc /data && ln -s /proc/1/root/etc /magic && ln -s /dev /kernel && ln -s {} /away && ln -s ../../../../etc/x /up",
        outside.display()
    );
    assert_eq!(sh(&*instance, &script).await.code(), Some(0));
    instance.stop().await.unwrap();

    // Its own /etc is covered, the host's is not touched.
    let plan = SandboxPlan { mounts: vec![mount("/data", origin.clone())], ..plain.clone() };
    let instance = world.create(&plan).await;
    let output = sh(&*instance, "touch /data/mark && ls /etc").await;
    assert_eq!(output.stdout, "mark\n", "{output:?}");
    instance.stop().await.unwrap();
    let plan = SandboxPlan { mounts: vec![mount("/up", origin.clone())], ..plain.clone() };
    assert!(world.backend.create(&plan).await.is_err());
    for at in ["/magic", "/kernel", "/kernel/x", "/away", "/away/x"] {
        let plan = SandboxPlan { mounts: vec![mount(at, origin.clone())], ..plain.clone() };
        let error = world.backend.create(&plan).await.expect_err(at);
        let is_refused = matches!(error, BackendError::Unsupported { .. } | BackendError::Failed { .. });
        assert!(is_refused && error.to_string().contains(at), "{error}");
    }
    assert_eq!(names(Path::new("/etc")), before);
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 0);
    // The failed ones left nothing that would keep the sandbox from starting.
    let instance = world.create(&plain).await;
    assert_eq!(sh(&*instance, "test -e /etc/passwd && echo whole").await.stdout, "whole\n");
    instance.stop().await.unwrap();
    world.volumes().remove(&id).await.unwrap();
}

fn names(directory: &Path) -> Vec<std::ffi::OsString> {
    let mut names: Vec<_> =
        fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    names
}

pub(crate) async fn a_host_path_that_is_another_file_by_now_is_refused(world: Arc<World>) {
    let place = directory(&world, "swapped");
    let (path, secret) = (place.join("allowed"), place.join("secret"));
    fs::create_dir(&path).unwrap();
    fs::create_dir(&secret).unwrap();
    let plan = plan_with(&world, vec![mount("/in", bind(&path))]);
    fs::remove_dir(&path).unwrap();
    symlink(&secret, &path).unwrap();
    let error = world.backend.create(&plan).await.unwrap_err();
    assert!(error.to_string().contains("another file"), "{error}");
    assert!(!world.run_directory(&plan.id).exists());
}

pub(crate) async fn the_quota_of_a_volume_holds(world: Arc<World>) {
    let quota = ByteSize::mib(8);
    let (id, origin, storage) = volume(&world, VolumeKind::Directory, Some(quota)).await;
    assert_eq!(storage == VolumeStorage::Image, is_root() && can_mount(&world).await);
    let limited = MountPlan { quota: Some(quota), ..mount("/data", origin.clone()) };
    let plan = plan_with(&world, vec![limited]);
    let instance = world.create(&plan).await;
    let output = sh(&*instance, "ls -A /data; echo kept > /data/kept; sync").await;
    assert_eq!((output.stdout.as_str(), output.code()), ("", Some(0)), "{output:?}");
    let fill = "i=0; while dd if=/dev/zero of=/data/fill$i bs=1M count=1 status=none; do i=$((i+1)); sleep 0.05; done; exit 7";
    let output = sh(&*instance, fill).await;
    assert!(output.code() == Some(7) || output.report.disk_limit, "{output:?}");
    assert_eq!(sh(&*instance, "cat /data/kept").await.stdout, "kept\n");
    let used = world.volumes().used(&id).await.unwrap();
    // Measuring allows as much too much as can be written in between.
    assert!(used < quota.bytes() + ByteSize::mib(120).bytes(), "{used}");
    instance.stop().await.unwrap();
    world.volumes().remove(&id).await.unwrap();
}

async fn can_mount(world: &World) -> bool {
    world.backend.probe().await.unwrap().has(sandbox::Capability::HardDiskLimit)
}

pub(crate) async fn a_disk_volume_is_one_file_system_for_all(world: Arc<World>) {
    if !can_mount(&world).await {
        let limit = Some(ByteSize::mib(16));
        let refused = world.volumes().make(&fresh_volume(), VolumeKind::Disk, limit).await;
        assert!(matches!(refused, Err(BackendError::Unsupported { next: Some(_), .. })), "{refused:?}");
        return;
    }
    let (id, origin, _) = volume(&world, VolumeKind::Disk, Some(ByteSize::mib(32))).await;
    let devices = || {
        fs::read_dir("/sys/block")
            .unwrap()
            .flatten()
            .filter(|it| it.path().join("loop/backing_file").exists())
            .count()
    };
    let before = devices();
    let plans: Vec<_> = (0..3).map(|_| plan_with(&world, vec![mount("/data", origin.clone())])).collect();
    let one = world.create(&plans[0]).await;
    let other = world.create(&plans[1]).await;
    let reader = SandboxPlan { mounts: vec![readonly(mount("/data", origin.clone()))], ..world.plan() };
    let reader = world.create(&reader).await;
    assert_eq!(devices(), before + 1);
    assert_eq!(sh(&*one, "echo first > /data/a; stat -c %u:%g /data/a").await.stdout, "0:0\n");
    assert_eq!(sh(&*other, "cat /data/a; echo second > /data/b").await.stdout, "first\n");
    let output = sh(&*reader, "cat /data/b; ! echo x > /data/c").await;
    assert_eq!((output.stdout.as_str(), output.code()), ("second\n", Some(0)), "{output:?}");
    let full = sh(&*other, "dd if=/dev/zero of=/data/fill bs=1M count=64 2>&1").await;
    assert!(full.stdout.contains("No space left"), "{full:?}");
    for instance in [one, other, reader] {
        instance.stop().await.unwrap();
    }
    let third = world.create(&plans[2]).await;
    assert_eq!(sh(&*third, "cat /data/a /data/b").await.stdout, "first\nsecond\n");
    third.stop().await.unwrap();
    world.volumes().remove(&id).await.unwrap();
}

pub(crate) async fn a_volume_is_shown_without_a_sandbox(world: Arc<World>) {
    let mut origins = vec![volume(&world, VolumeKind::Directory, None).await];
    if can_mount(&world).await {
        origins.push(volume(&world, VolumeKind::Disk, Some(ByteSize::mib(16))).await);
    }
    for (id, origin, _) in origins {
        let plan = plan_with(&world, vec![mount("/data", origin.clone())]);
        let instance = world.create(&plan).await;
        let script = "mkdir /data/sub && echo text > /data/sub/file && ln -s /etc/passwd /data/link && \
            ln -s ../../../etc /data/up && ln -s /proc/1/root /data/magic";
        assert_eq!(sh(&*instance, script).await.code(), Some(0));

        let place = fresh_id();
        let shown = world.volumes().open(&place, &id).await.unwrap();
        let mut client = Client::connect(&*shown).await;
        let list = Request::List { path: "/".to_owned(), recursive: true, limit: 100 };
        let Response::Entries { entries, .. } = client.ask(&list).await else { panic!("no list") };
        let paths: Vec<_> = entries.iter().map(|entry| entry.path.as_str()).collect();
        assert_eq!(paths, ["/link", "/magic", "/sub", "/sub/file", "/up"]);
        // Links lead only into the volume.
        for path in ["/link", "/up/passwd", "/magic/etc/passwd", "/../../etc/passwd"] {
            let mut client = Client::connect(&*shown).await;
            let answer = client.try_ask(&Request::Stat { path: path.to_owned(), follow: true }).await;
            assert!(answer.is_none(), "{path}: {answer:?}");
        }
        let made = client.ask(&Request::Mkdir { path: "/new".to_owned(), parents: true, mode: None }).await;
        assert!(matches!(made, Response::Done), "{made:?}");
        assert_eq!(sh(&*instance, "stat -c %u:%g /data/new").await.stdout, "0:0\n");
        // Nothing runs there, whatever it contains.
        let start = guest_protocol::ExecStart {
            id: "exc-x".to_owned(),
            command: vec!["/bin/sh".to_owned()],
            cwd: "/".to_owned(),
            user: "0:0".to_owned(),
            ..Default::default()
        };
        let started = client.try_ask(&Request::ExecStart(start)).await;
        assert!(!matches!(started, Some(Response::Started { .. })), "{started:?}");
        shown.stop().await.unwrap();
        instance.stop().await.unwrap();
        wait_until(|| !world.run_directory(&place).exists()).await;
        world.volumes().remove(&id).await.unwrap();
    }
}

async fn wait_until(condition: impl Fn() -> bool) {
    for _ in 0..200 {
        if condition() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("it does not come to pass");
}

pub(crate) async fn many_mounts_fit(world: Arc<World>) {
    let host = directory(&world, "bound");
    fs::write(host.join("file"), "x").unwrap();
    let mounts = (0..sandbox::MAX_MOUNTS).map(|n| mount(&format!("/m/{n}"), bind(&host))).collect();
    let plan = plan_with(&world, mounts);
    let instance = world.create(&plan).await;
    assert_eq!(sh(&*instance, "cat /m/*/file | wc -c").await.stdout.trim(), "64");
    instance.stop().await.unwrap();
    let explained = world.backend.explain(&plan).join("\n");
    assert!(
        explained.contains("place mount 63 at /m/63") && explained.contains("mount 63: show "),
        "{explained}"
    );
}

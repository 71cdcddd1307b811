//! Places that are made before their sandboxes are asked for.

use std::{fs, sync::Arc};

use backends::namespace::{Directories, NamespaceBackend, PoolConfig};
use sandbox::{Backend as _, ByteSize, Limits, SandboxPlan, SandboxSpec};

use crate::world::{World, sh};

pub(crate) async fn a_place_becomes_the_sandbox_that_asks(world: Arc<World>) {
    let plan = SandboxPlan { hostname: "asked".to_owned(), ..world.plan_with(&SandboxSpec::default()) };
    let plan = world.with_place(plan).await;
    assert!(world.run_directory(&plan.id).exists() && !world.directory(&plan).exists());
    let instance = world.create(&plan).await;
    // Nothing that waited is left, and nothing tells it from one that was made at once.
    let told = sh(
        &*instance,
        "hostname; cat /etc/hostname; grep -c 'localhost asked$' /etc/hosts; ls /proc | grep -c '^[0-9]'",
    )
    .await;
    assert_eq!(told.stdout, "asked\nasked\n1\n4\n", "guest, shell, ls and grep: {told:?}");
    assert!(world.directory(&plan).join("fs/root/upper").exists());
    let waiting = fs::read_dir(world.directories.home.join("waiting")).unwrap();
    assert!(waiting.flatten().all(|entry| entry.file_name() != plan.id.as_str()));
    instance.stop().await.unwrap();
    let again = world.create(&plan).await;
    assert_eq!(sh(&*again, "hostname").await.stdout, "asked\n");
    again.stop().await.unwrap();
    world.backend.remove(&plan.id).await.unwrap();
}

pub(crate) async fn a_place_is_for_sandboxes_of_its_shape(world: Arc<World>) {
    let plain = world.with_place(world.plan_with(&SandboxSpec::default())).await;
    let limits = Limits { memory: Some(ByteSize::mib(300)), ..Limits::default() };
    let larger = world.plan_with(&SandboxSpec { limits, ..SandboxSpec::default() });
    assert_eq!(world.backend.prepared(&larger), None);
    let with_disk = Limits { disk: Some(ByteSize::mib(16)), ..Limits::default() };
    let with_disk = world.plan_with(&SandboxSpec { limits: with_disk, ..SandboxSpec::default() });
    for _ in 0..4 {
        assert_eq!(world.backend.prepared(&with_disk), None);
    }
    let larger = world.with_place(larger).await;
    let instance = world.create(&larger).await;
    assert_eq!(instance.isolation().limits.iter().filter(|held| held.value == 300 << 20).count(), 1);
    instance.stop().await.unwrap();
    world.create(&plain).await.stop().await.unwrap();
}

pub(crate) async fn a_place_that_cannot_be_used_is_replaced(world: Arc<World>) {
    let plan = world.with_place(world.plan_with(&SandboxSpec::default())).await;
    let waiting = world.directories.home.join("waiting").join(plan.id.as_str());
    fs::rename(&waiting, waiting.with_extension("lost")).unwrap();
    let instance = world.create(&plan).await;
    assert_eq!(sh(&*instance, "hostname").await.stdout, "box\n", "another was made");
    instance.stop().await.unwrap();
    world.backend.remove(&plan.id).await.unwrap();
    // Without root, only the back end can remove them.
    fs::rename(waiting.with_extension("lost"), world.directory(&plan)).unwrap();
    world.backend.remove(&plan.id).await.unwrap();
}

pub(crate) async fn a_pool_that_is_closed_leaves_nothing(_world: Arc<World>) {
    let place = tempfile::tempdir().unwrap();
    let directories = Directories { home: place.path().join("home"), run: place.path().join("run") };
    let backend = NamespaceBackend::new(directories.clone(), None).await.unwrap();
    let backend = backend.with_pool(PoolConfig { size: 1, from_rate: 1 });
    let world = World { backend, directories, has_pool: true };
    let offered = world.plan();
    let one_more = world.with_place(world.plan_with(&SandboxSpec::default())).await;
    world.create(&one_more).await.stop().await.unwrap();
    world.backend.remove(&one_more.id).await.unwrap();
    world.backend.close_pool().await;
    assert!(!world.run_directory(&offered.id).exists());
    assert_eq!(world.backend.prepared(&world.plan_with(&SandboxSpec::default())), None);
    while !world.backend.sweep(&[], &[]).await.unwrap().is_empty() {}
    for directory in ["waiting", "sandboxes"] {
        let left: Vec<_> = fs::read_dir(world.directories.home.join(directory)).unwrap().flatten().collect();
        assert!(left.is_empty(), "{left:?}");
    }
}

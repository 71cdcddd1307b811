//! What sandboxes changed, taken out of them.

use std::{
    fs,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    sync::Arc,
    time::Instant,
};

use sandbox::{Backend as _, ByteSize, Capability, Limits, SandboxSpec};

use crate::world::{World, sh};

/// An empty directory for a tree, in the daemon's home as trees are.
fn new_tree(world: &World, name: &str) -> PathBuf {
    let tree = world.directories.home.join(format!("tree-{}-{name}", std::process::id()));
    fs::create_dir_all(&tree).unwrap();
    tree
}

/// Reads a file whoever owns it, as far as the test itself may.
fn text(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

const CHANGES: &str = "echo new > /root/new && ln /root/new /root/again && ln -s new /root/link \
    && rm /etc/hosts && mkdir /srv/made && chmod 0711 /srv/made && mkfifo /srv/pipe && dd if=/dev/zero of=/srv/holes bs=1 count=1 seek=10M 2>/dev/null";

pub(crate) async fn a_copy_is_what_the_sandbox_changed(world: Arc<World>) {
    let plan = world.plan();
    let instance = world.create(&plan).await;
    let done = sh(&*instance, CHANGES).await;
    assert_eq!(done.code(), Some(0), "{}", done.stderr);

    let tree = new_tree(&world, "changed");
    let copied = world.backend.copy_files(&plan, tree.clone()).await.unwrap();
    let upper = tree.join("root/upper");
    assert!(copied.n_entries >= 6 && copied.bytes > 10 << 20, "{copied:?}");
    assert_eq!(text(&upper.join("etc/hostname")), "box\n");
    // `/root` may be closed to who runs the test without root.
    assert!(upper.join("srv/made").is_dir());
    assert!(tree.join("usr/upper").is_dir());
    let holes = upper.join("srv/holes").metadata().unwrap();
    assert!(holes.len() > 10 << 20 && holes.blocks() < 1000, "{holes:?}");

    let facts = world.backend.tree_facts(tree.clone()).await.unwrap();
    assert_eq!((facts.bytes, facts.n_entries >= copied.n_entries), (copied.bytes, true));
    let again = new_tree(&world, "changed-again");
    world.backend.copy_files(&plan, again.clone()).await.unwrap();
    assert_eq!(world.backend.tree_facts(again.clone()).await.unwrap(), facts);
    sh(&*instance, "echo more >> /root/new").await;
    let third = new_tree(&world, "changed-third");
    world.backend.copy_files(&plan, third.clone()).await.unwrap();
    assert_ne!(world.backend.tree_facts(third.clone()).await.unwrap().digest, facts.digest);

    for tree in [tree, again, third] {
        world.backend.remove_tree(tree.clone()).await.unwrap();
        assert!(!tree.exists());
    }
    instance.stop().await.unwrap();
    world.backend.remove_files(&plan.id, plan.directory.clone()).await.unwrap();
}

pub(crate) async fn a_paused_sandbox_with_a_disk_of_its_own_is_copied_and_so_is_a_stopped_one(
    world: Arc<World>,
) {
    let capabilities = world.backend.probe().await.unwrap();
    if !capabilities.has(Capability::HardDiskLimit) {
        println!("skipped: no hard disk limits here");
        return;
    }
    let limits = Limits { disk: Some(ByteSize::mib(64)), ..Limits::default() };
    let plan = world.plan_with(&SandboxSpec { limits, ..SandboxSpec::default() });
    let instance = world.create(&plan).await;
    assert!(plan.directory.join("disk.img").exists());
    let done = sh(&*instance, CHANGES).await;
    assert_eq!(done.code(), Some(0), "{}", done.stderr);

    let can_pause = capabilities.has(Capability::Pause);
    if can_pause {
        instance.pause().await.unwrap();
    }
    let paused = new_tree(&world, "paused");
    world.backend.copy_files(&plan, paused.clone()).await.unwrap();
    if can_pause {
        instance.resume().await.unwrap();
    }
    assert_eq!(text(&paused.join("root/upper/root/again")), "new\n");
    let facts = world.backend.tree_facts(paused.clone()).await.unwrap();
    // The sandbox is none the worse for it.
    assert_eq!(sh(&*instance, "cat /root/link && echo late > /root/late && sync").await.stdout, "new\n");
    sh(&*instance, "rm /root/late").await;
    instance.stop().await.unwrap();

    let stopped = new_tree(&world, "stopped");
    world.backend.copy_files(&plan, stopped.clone()).await.unwrap();
    assert_eq!(text(&stopped.join("root/upper/root/again")), "new\n");
    let later = world.backend.tree_facts(stopped.clone()).await.unwrap();
    assert_eq!(later.n_entries, facts.n_entries);

    let instance = world.create(&plan).await;
    assert_eq!(sh(&*instance, "cat /root/again").await.stdout, "new\n");
    instance.stop().await.unwrap();
    for tree in [paused, stopped] {
        world.backend.remove_tree(tree).await.unwrap();
    }
    world.backend.remove_files(&plan.id, plan.directory.clone()).await.unwrap();
}

pub(crate) async fn a_copy_that_nobody_waits_for_does_no_harm(world: Arc<World>) {
    let limits = Limits { disk: Some(ByteSize::mib(64)), ..Limits::default() };
    let plan = world.plan_with(&SandboxSpec { limits, ..SandboxSpec::default() });
    let instance = world.create(&plan).await;
    sh(
        &*instance,
        "dd if=/dev/urandom of=/root/big bs=1M count=20 2>/dev/null; sha256sum /root/big > /root/sum",
    )
    .await;
    instance.stop().await.unwrap();
    for number in 0..3 {
        let tree = new_tree(&world, &format!("given-up-{number}"));
        let copying = world.backend.copy_files(&plan, tree.clone());
        // Asked for, and let go of at once.
        drop(tokio::time::timeout(std::time::Duration::ZERO, copying).await);
        let instance = world.create(&plan).await;
        let checked = sh(&*instance, "sha256sum -c /root/sum").await;
        assert_eq!(checked.code(), Some(0), "{}", checked.stderr);
        instance.stop().await.unwrap();
        world.backend.remove_tree(tree).await.unwrap();
    }
    world.backend.remove_files(&plan.id, plan.directory.clone()).await.unwrap();
}

pub(crate) async fn a_small_sandbox_is_copied_quickly(world: Arc<World>) {
    let plan = world.plan();
    let instance = world.create(&plan).await;
    sh(
        &*instance,
        "mkdir -p /srv/app && cd /srv/app && for i in 1 2 3 4 5 6 7 8 9 10; do echo $i > file-$i; done",
    )
    .await;
    let mut took = Vec::new();
    for number in 0..20 {
        let tree = new_tree(&world, &format!("quick-{number}"));
        let began = Instant::now();
        world.backend.copy_files(&plan, tree.clone()).await.unwrap();
        took.push(began.elapsed().as_micros());
        assert_eq!(text(&tree.join("root/upper/srv/app/file-10")), "10\n");
        world.backend.remove_tree(tree).await.unwrap();
    }
    took.sort_unstable();
    println!(
        "copy of a small sandbox: median {} us, worst {} us",
        took[took.len() / 2],
        took[took.len() - 1]
    );
    instance.stop().await.unwrap();
    world.backend.remove_files(&plan.id, plan.directory.clone()).await.unwrap();
}

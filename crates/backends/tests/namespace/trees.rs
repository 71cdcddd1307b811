//! What sandboxes changed, taken out of them.

use std::{
    fs,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    sync::Arc,
    time::Instant,
};

use sandbox::{
    Backend as _, BackendError, ByteSize, Capability, ChangeKind, DiffQuery, DiffReport, Limits, SandboxPlan,
    SandboxSpec,
};

use crate::world::{World, sh};

/// An empty directory for a tree, where snapshots are.
fn new_tree(world: &World, name: &str) -> PathBuf {
    let tree = world.directories.home.join("snapshots").join(format!("tree-{}-{name}", std::process::id()));
    fs::create_dir_all(&tree).unwrap();
    tree
}

/// Reads a file whoever owns it, as far as the test itself may.
fn text(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Whoever is to be copied stands still already.
fn as_it_is() -> sandbox::Holding<'static> {
    Box::pin(async { Ok(()) })
}

const CHANGES: &str = "echo new > /root/new && ln /root/new /root/again && ln -s new /root/link \
    && rm /etc/hosts && mkdir /srv/made && chmod 0711 /srv/made && mkfifo /srv/pipe && dd if=/dev/zero of=/srv/holes bs=1 count=1 seek=10M 2>/dev/null";

pub(crate) async fn a_copy_is_what_the_sandbox_changed(world: Arc<World>) {
    let plan = world.plan();
    let instance = world.create(&plan).await;
    let done = sh(&*instance, CHANGES).await;
    assert_eq!(done.code(), Some(0), "{}", done.stderr);

    let tree = new_tree(&world, "changed");
    let copied = world.backend.copy_files(&plan, tree.clone(), as_it_is()).await.unwrap();
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
    world.backend.copy_files(&plan, again.clone(), as_it_is()).await.unwrap();
    assert_eq!(world.backend.tree_facts(again.clone()).await.unwrap(), facts);
    sh(&*instance, "echo more >> /root/new").await;
    let third = new_tree(&world, "changed-third");
    world.backend.copy_files(&plan, third.clone(), as_it_is()).await.unwrap();
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
    world.backend.copy_files(&plan, paused.clone(), as_it_is()).await.unwrap();
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
    world.backend.copy_files(&plan, stopped.clone(), as_it_is()).await.unwrap();
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
        let copying = world.backend.copy_files(&plan, tree.clone(), as_it_is());
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
        world.backend.copy_files(&plan, tree.clone(), as_it_is()).await.unwrap();
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

fn query(under: &str) -> DiffQuery {
    DiffQuery {
        against: Vec::new(),
        under: under.to_owned(),
        patch: true,
        max_changes: 1000,
        max_patch_bytes: 1 << 20,
    }
}

fn told(report: &DiffReport) -> Vec<String> {
    let letter = |change: &sandbox::Change| match change.kind {
        ChangeKind::Added => "A",
        ChangeKind::Modified if change.only_metadata => "m",
        ChangeKind::Modified => "M",
        ChangeKind::Removed => "D",
    };
    report.changes.iter().map(|change| format!("{} {}", letter(change), change.path)).collect()
}

async fn is_told(world: &World, plan: &SandboxPlan) {
    let instance = world.create(plan).await;
    let fresh = world.backend.diff(plan, query("/")).await.unwrap();
    assert_eq!(told(&fresh), [""; 0], "nothing was done yet");
    let script = "echo hello > /root/new && rm /etc/passwd && echo nobody > /etc/group && cp -p /etc/profile /tmp/p && touch /etc/profile; \
        mkdir -p /srv/a/b && chmod 0700 /srv";
    sh(&*instance, script).await;
    let report = world.backend.diff(plan, query("/")).await.unwrap();
    let found = told(&report);
    for expected in ["A /root/new", "D /etc/passwd", "M /etc/group", "A /srv/a", "A /srv/a/b", "m /srv"] {
        assert!(found.iter().any(|line| line == expected), "{expected}: {found:?}");
    }
    assert!(
        !found.iter().any(|line| line.contains("/etc/profile") || line.contains("/etc/host")),
        "{found:?}"
    );
    assert!(report.patch.as_ref().unwrap().contains("+++ b/root/new\n@@ -0,0 +1 @@\n+hello\n"), "{report:?}");
    let some = world.backend.diff(plan, query("/srv/a")).await.unwrap();
    assert_eq!(told(&some), ["A /srv/a", "A /srv/a/b"]);

    // Where `/usr` can be written to, it is an overlay of its own.
    if sh(&*instance, "echo x > /usr/local/mark").await.code() == Some(0) {
        let usr = world.backend.diff(plan, query("/usr/local")).await.unwrap();
        assert_eq!(told(&usr), ["A /usr/local/mark"]);
    }
    instance.stop().await.unwrap();
    let later = world.backend.diff(plan, query("/srv/a")).await.unwrap();
    assert_eq!(later, some, "a stopped one can be asked too");
    world.backend.remove_files(&plan.id, plan.directory.clone()).await.unwrap();
}

pub(crate) async fn changes_are_told(world: Arc<World>) {
    is_told(&world, &world.plan()).await;
}

pub(crate) async fn changes_on_a_disk_of_its_own_are_told(world: Arc<World>) {
    let limits = Limits { disk: Some(ByteSize::mib(64)), ..Limits::default() };
    is_told(&world, &world.plan_with(&SandboxSpec { limits, ..SandboxSpec::default() })).await;
}

pub(crate) async fn what_is_packed_is_a_tree_again(world: Arc<World>) {
    let plan = world.plan();
    let instance = world.create(&plan).await;
    sh(&*instance, CHANGES).await;
    sh(&*instance, "chown 1:2 /srv/made; chmod 4755 /root/new; rm -r /var/lib/* 2>/dev/null; true").await;
    let (tree, again) = (new_tree(&world, "packed"), new_tree(&world, "unpacked"));
    world.backend.copy_files(&plan, tree.clone(), as_it_is()).await.unwrap();
    let facts = world.backend.tree_facts(tree.clone()).await.unwrap();
    let archive = tree.with_extension("tar");
    let file = fs::File::create_new(&archive).unwrap();
    world.backend.pack_tree(tree.clone(), file.into()).await.unwrap();
    let file = fs::File::open(&archive).unwrap();
    assert_eq!(world.backend.unpack_tree(file.into(), again.clone()).await.unwrap(), facts);
    fs::remove_file(archive).unwrap();
    instance.stop().await.unwrap();
    for tree in [tree, again] {
        world.backend.remove_tree(tree).await.unwrap();
    }
    world.backend.remove_files(&plan.id, plan.directory.clone()).await.unwrap();
}

pub(crate) async fn an_archive_that_is_no_tree_of_a_sandbox_is_refused(world: Arc<World>) {
    let attempts: [&[(&str, Option<&str>)]; 6] = [
        &[],
        &[("root", Some("/"))],
        &[("root", None), ("root/upper", Some("/etc"))],
        &[("root", None), ("root/upper", None), ("root/work", None)],
        &[("other", None), ("root", None), ("root/upper", None)],
        &[("root", None), ("root/upper", None), ("usr", Some("/usr"))],
    ];
    for (number, entries) in attempts.iter().enumerate() {
        let into = new_tree(&world, &format!("refused-{number}"));
        let archive = into.with_extension("tar");
        let mut builder = tar::Builder::new(fs::File::create_new(&archive).unwrap());
        for (path, link) in *entries {
            let mut header = tar::Header::new_ustar();
            header.set_path(path).unwrap();
            header.set_mode(0o755);
            header.set_uid(0);
            header.set_gid(0);
            header.set_mtime(0);
            header.set_size(0);
            match link {
                Some(target) => {
                    header.set_entry_type(tar::EntryType::Symlink);
                    header.set_link_name(target).unwrap();
                }
                None => header.set_entry_type(tar::EntryType::Directory),
            }
            header.set_cksum();
            builder.append(&header, std::io::empty()).unwrap();
        }
        builder.into_inner().unwrap();
        let file = fs::File::open(&archive).unwrap();
        let refused = world.backend.unpack_tree(file.into(), into.clone()).await;
        assert!(matches!(refused, Err(BackendError::Unsupported { .. })), "{entries:?}: {refused:?}");
        fs::remove_file(archive).unwrap();
        world.backend.remove_tree(into).await.unwrap();
    }
}

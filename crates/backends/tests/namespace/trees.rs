//! Changes of sandboxes, copied out of them.

use std::{fs, os::unix::fs::MetadataExt as _, path::Path, sync::Arc, time::Instant};

use sandbox::{
    Backend as _, BackendError, ByteSize, Capability, ChangeKind, DiffQuery, DiffReport, Limits, SandboxPlan,
    SandboxSpec,
};

use crate::world::{World, fresh_snapshot, sh};

/// Reads a file whoever owns it, as far as the test itself may.
fn text(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// A hold for a sandbox that already stands still.
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

    let tree = fresh_snapshot();
    let copied = world.snapshots().take(&plan, &tree, as_it_is()).await.unwrap();
    let upper = world.tree(&tree).join("root/upper");
    assert!(copied.n_entries >= 6 && copied.bytes > 10 << 20, "{copied:?}");
    assert_eq!(text(&upper.join("etc/hostname")), "box\n");
    // `/root` may be closed to a test without root.
    assert!(upper.join("srv/made").is_dir());
    assert!(world.tree(&tree).join("usr/upper").is_dir());
    let holes = upper.join("srv/holes").metadata().unwrap();
    assert!(holes.len() > 10 << 20 && holes.blocks() < 1000, "{holes:?}");

    let facts = world.snapshots().facts(&tree).await.unwrap();
    assert_eq!((facts.bytes, facts.n_entries >= copied.n_entries), (copied.bytes, true));
    let again = fresh_snapshot();
    world.snapshots().take(&plan, &again, as_it_is()).await.unwrap();
    assert_eq!(world.snapshots().facts(&again).await.unwrap(), facts);
    sh(&*instance, "echo more >> /root/new").await;
    let third = fresh_snapshot();
    world.snapshots().take(&plan, &third, as_it_is()).await.unwrap();
    assert_ne!(world.snapshots().facts(&third).await.unwrap().digest, facts.digest);

    for tree in [tree, again, third] {
        world.snapshots().remove(&tree).await.unwrap();
        assert!(!world.tree(&tree).exists());
    }
    instance.stop().await.unwrap();
    world.backend.remove(&plan.id).await.unwrap();
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
    assert!(world.directory(&plan).join("disk.img").exists());
    let done = sh(&*instance, CHANGES).await;
    assert_eq!(done.code(), Some(0), "{}", done.stderr);

    let can_pause = capabilities.has(Capability::Pause);
    if can_pause {
        instance.pause().await.unwrap();
    }
    let paused = fresh_snapshot();
    world.snapshots().take(&plan, &paused, as_it_is()).await.unwrap();
    if can_pause {
        instance.resume().await.unwrap();
    }
    assert_eq!(text(&world.tree(&paused).join("root/upper/root/again")), "new\n");
    let facts = world.snapshots().facts(&paused).await.unwrap();
    // The sandbox is not affected.
    assert_eq!(sh(&*instance, "cat /root/link && echo late > /root/late && sync").await.stdout, "new\n");
    sh(&*instance, "rm /root/late").await;
    instance.stop().await.unwrap();

    let stopped = fresh_snapshot();
    world.snapshots().take(&plan, &stopped, as_it_is()).await.unwrap();
    assert_eq!(text(&world.tree(&stopped).join("root/upper/root/again")), "new\n");
    let later = world.snapshots().facts(&stopped).await.unwrap();
    assert_eq!(later.n_entries, facts.n_entries);

    let instance = world.create(&plan).await;
    assert_eq!(sh(&*instance, "cat /root/again").await.stdout, "new\n");
    instance.stop().await.unwrap();
    for tree in [paused, stopped] {
        world.snapshots().remove(&tree).await.unwrap();
    }
    world.backend.remove(&plan.id).await.unwrap();
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
    for _ in 0..3 {
        let tree = fresh_snapshot();
        let copying = world.snapshots().take(&plan, &tree, as_it_is());
        // Requested, and cancelled at once.
        drop(tokio::time::timeout(std::time::Duration::ZERO, copying).await);
        let instance = world.create(&plan).await;
        let checked = sh(&*instance, "sha256sum -c /root/sum").await;
        assert_eq!(checked.code(), Some(0), "{}", checked.stderr);
        instance.stop().await.unwrap();
        world.snapshots().remove(&tree).await.unwrap();
    }
    world.backend.remove(&plan.id).await.unwrap();
}

pub(crate) async fn a_sandbox_that_cannot_be_held_is_not_copied(world: Arc<World>) {
    let plan = world.plan();
    let instance = world.create(&plan).await;
    // An unlinked file is not copied, though a program still writes to it.
    sh(
        &*instance,
        "echo x > /srv/x; (exec 3> /srv/gone; rm /srv/gone; echo y >&3; sleep 1000) >/dev/null 2>&1 &",
    )
    .await;
    let tree = fresh_snapshot();
    let hold = async { Err(BackendError::Gone(plan.id.clone())) };
    let refused = world.snapshots().take(&plan, &tree, Box::pin(hold)).await;
    assert!(matches!(refused, Err(BackendError::Gone(_))), "{refused:?}");
    assert!(!world.tree(&tree).join("root/upper/srv").exists());
    world.snapshots().remove(&tree).await.unwrap();
    world.snapshots().take(&plan, &tree, as_it_is()).await.unwrap();
    let names: Vec<_> = fs::read_dir(world.tree(&tree).join("root/upper/srv"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert_eq!(names, ["x"]);
    world.snapshots().remove(&tree).await.unwrap();
    instance.stop().await.unwrap();
    world.backend.remove(&plan.id).await.unwrap();
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
    for _ in 0..20 {
        let tree = fresh_snapshot();
        let began = Instant::now();
        world.snapshots().take(&plan, &tree, as_it_is()).await.unwrap();
        took.push(began.elapsed().as_micros());
        assert_eq!(text(&world.tree(&tree).join("root/upper/srv/app/file-10")), "10\n");
        world.snapshots().remove(&tree).await.unwrap();
    }
    took.sort_unstable();
    println!(
        "copy of a small sandbox: median {} us, worst {} us",
        took[took.len() / 2],
        took[took.len() - 1]
    );
    instance.stop().await.unwrap();
    world.backend.remove(&plan.id).await.unwrap();
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
    let fresh = world.snapshots().diff(plan, query("/")).await.unwrap();
    assert_eq!(told(&fresh), [""; 0], "nothing was done yet");
    let script = "echo hello > /root/new && rm /etc/passwd && echo nobody > /etc/group && cp -p /etc/profile /tmp/p && touch /etc/profile; \
        mkdir -p /srv/a/b && chmod 0700 /srv";
    sh(&*instance, script).await;
    let report = world.snapshots().diff(plan, query("/")).await.unwrap();
    let found = told(&report);
    for expected in ["A /root/new", "D /etc/passwd", "M /etc/group", "A /srv/a", "A /srv/a/b", "m /srv"] {
        assert!(found.iter().any(|line| line == expected), "{expected}: {found:?}");
    }
    assert!(
        !found.iter().any(|line| line.contains("/etc/profile") || line.contains("/etc/host")),
        "{found:?}"
    );
    assert!(report.patch.as_ref().unwrap().contains("+++ b/root/new\n@@ -0,0 +1 @@\n+hello\n"), "{report:?}");
    let some = world.snapshots().diff(plan, query("/srv/a")).await.unwrap();
    assert_eq!(told(&some), ["A /srv/a", "A /srv/a/b"]);

    // If `/usr` is writable, it is an overlay of its own.
    if sh(&*instance, "echo x > /usr/local/mark").await.code() == Some(0) {
        let usr = world.snapshots().diff(plan, query("/usr/local")).await.unwrap();
        assert_eq!(told(&usr), ["A /usr/local/mark"]);
    }
    instance.stop().await.unwrap();
    let later = world.snapshots().diff(plan, query("/srv/a")).await.unwrap();
    assert_eq!(later, some, "a stopped one can be asked too");
    world.backend.remove(&plan.id).await.unwrap();
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
    let (tree, again) = (fresh_snapshot(), fresh_snapshot());
    world.snapshots().take(&plan, &tree, as_it_is()).await.unwrap();
    let facts = world.snapshots().facts(&tree).await.unwrap();
    let archive = world.directories.home.join(format!("{tree}.tar"));
    let file = fs::File::create_new(&archive).unwrap();
    world.snapshots().export(&tree, file.into()).await.unwrap();
    let file = fs::File::open(&archive).unwrap();
    assert_eq!(world.snapshots().import(&again, file.into()).await.unwrap(), facts);
    fs::remove_file(archive).unwrap();
    instance.stop().await.unwrap();
    for tree in [tree, again] {
        world.snapshots().remove(&tree).await.unwrap();
    }
    world.backend.remove(&plan.id).await.unwrap();
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
    for entries in attempts {
        let into = fresh_snapshot();
        let archive = world.directories.home.join(format!("{into}.tar"));
        let mut builder = tar::Builder::new(fs::File::create_new(&archive).unwrap());
        for (path, link) in entries {
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
        let refused = world.snapshots().import(&into, file.into()).await;
        assert!(matches!(refused, Err(BackendError::Unsupported { .. })), "{entries:?}: {refused:?}");
        fs::remove_file(archive).unwrap();
        world.snapshots().remove(&into).await.unwrap();
    }
}

//! Hostile trees as roots: whatever links and files they contain, nothing outside is touched and the walls hold.

use std::{
    fs,
    io::Seek as _,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink},
    path::{Path, PathBuf},
    sync::Arc,
};

use attack::hostile::{HostileTree, lay_tree, plant_of};
use proptest::{
    prelude::*,
    sample::select,
    test_runner::{TestCaseError, TestRunner},
};
use sandbox::{
    Backend as _, BackendError, ByteSize, FileIdentity, MountOrigin, MountPlan, RootfsPlan, SandboxPlan,
    SnapshotId,
};

use crate::{
    escape,
    world::{World, fresh_snapshot},
};

/// Random trees for each kind of user.
const CASES: u32 = 40;
const SETTING: &str = "sys/net/ipv4/ip_unprivileged_port_start";

/// Host files that everybody may write to, so that only the walls protect them.
struct Canary(tempfile::TempDir);

impl Canary {
    fn new() -> Self {
        let place = tempfile::Builder::new().prefix("warren-canary-").tempdir_in("/tmp").unwrap();
        for directory in ["sys/net/ipv4", "pressure", "pts", "shm", "class/net/lo", "etc"] {
            fs::create_dir_all(place.path().join(directory)).unwrap();
        }
        for file in [SETTING, "kcore", "null", "pressure/cpu", "etc/hostname", "file"] {
            fs::write(place.path().join(file), "canary").unwrap();
        }
        open_to_all(place.path());
        Self(place)
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    /// Everything that a change would affect: names, kinds, modes, owners, times, contents.
    fn facts(&self) -> Vec<String> {
        let mut facts = Vec::new();
        gather(self.path(), &mut facts);
        facts
    }
}

fn open_to_all(path: &Path) {
    fs::set_permissions(path, fs::Permissions::from_mode(0o777)).unwrap();
    for entry in fs::read_dir(path).into_iter().flatten().flatten() {
        open_to_all(&entry.path());
    }
}

fn gather(path: &Path, facts: &mut Vec<String>) {
    let found = fs::symlink_metadata(path).unwrap();
    let text = if found.is_file() { fs::read_to_string(path).unwrap() } else { String::new() };
    facts.push(format!(
        "{} {:o} {} {} {}.{} {text}",
        path.display(),
        found.mode(),
        found.uid(),
        found.ino(),
        found.mtime(),
        found.mtime_nsec()
    ));
    let mut entries: Vec<_> =
        fs::read_dir(path).into_iter().flatten().map(|entry| entry.unwrap().path()).collect();
    entries.sort();
    entries.iter().for_each(|entry| gather(entry, facts));
}

/// A snapshot, and the `root/upper` of its tree.
fn new_tree(world: &World) -> (SnapshotId, PathBuf) {
    let tree = fresh_snapshot();
    let upper = world.tree(&tree).join("root/upper");
    fs::create_dir_all(&upper).unwrap();
    (tree, upper)
}

/// `proc` is a link that leads to one directory before `/sys` is mounted and to another one after: a write to a kernel
/// setting then goes through the second one's link to a file outside.
pub(crate) async fn a_link_that_changes_its_meaning_leads_nowhere(world: Arc<World>) {
    let canary = Canary::new();
    let before = canary.facts();
    let (tree, upper) = new_tree(&world);
    for directory in ["sys/class/net", "d1/d2/d3/d4/d5/d6", "d1/q", "q/sys/net/ipv4"] {
        fs::create_dir_all(upper.join(directory)).unwrap();
    }
    symlink("../../../d1/d2/d3/d4/d5/d6", upper.join("sys/class/net/lo")).unwrap();
    symlink("sys/class/net/lo/../../../../../q", upper.join("proc")).unwrap();
    symlink(canary.path().join(SETTING), upper.join("q").join(SETTING)).unwrap();

    // As it comes from a stranger.
    let (archive, unpacked) = (tempfile::tempfile().unwrap(), fresh_snapshot());
    world.snapshots().export(&tree, archive.try_clone().unwrap().into()).await.unwrap();
    (&archive).rewind().unwrap();
    world.snapshots().import(&unpacked, archive.into()).await.unwrap();

    let plan = SandboxPlan { above: vec![unpacked.clone()], ..world.plan() };
    let error = world.backend.create(&plan).await.expect_err("a link where /proc belongs");
    assert_eq!(canary.facts(), before);
    assert!(matches!(error, BackendError::Unsupported { .. }), "{error:?}");
    let why = "mount proc at /proc: a link or a file is in the place of a directory";
    assert!(error.to_string().ends_with(why), "{error}");
    for tree in [tree, unpacked] {
        world.snapshots().remove(&tree).await.unwrap();
    }
}

pub(crate) async fn a_mount_on_the_root_itself_is_refused(world: Arc<World>) {
    let (tree, upper) = new_tree(&world);
    symlink("/", upper.join("data")).unwrap();
    let plan = SandboxPlan { above: vec![tree.clone()], mounts: vec![tmpfs("/data")], ..world.plan() };
    let error = world.backend.create(&plan).await.unwrap_err();
    assert!(error.to_string().contains("/data: a link leads there to the root itself"), "{error}");
    world.snapshots().remove(&tree).await.unwrap();
}

fn tmpfs(at: &str) -> MountPlan {
    let (guest_path, source) = (at.to_owned(), MountOrigin::Tmpfs { size: ByteSize::mib(1) });
    MountPlan { guest_path, source, readonly: false, noexec: false, quota: None }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Root {
    /// A snapshot's tree over image `host`.
    Snapshot,
    /// The own files of a restarted sandbox.
    Own,
    Directory,
}

fn plants() -> impl Strategy<Value = HostileTree> {
    proptest::collection::vec(any::<u64>().prop_map(plant_of), 1..8)
}

async fn plan_on(world: &World, root: Root, mut plants: HostileTree, canary: &Path) -> SandboxPlan {
    let mut plan = SandboxPlan { mounts: vec![tmpfs("/data/in")], ..world.plan() };
    let (tree, upper) = new_tree(world);
    let top = match root {
        Root::Own => {
            world.create(&plan).await.stop().await.unwrap();
            world.directory(&plan).join("fs/root/upper")
        }
        Root::Snapshot | Root::Directory => upper.clone(),
    };
    let is_host = matches!(root, Root::Snapshot | Root::Own);
    if !is_host {
        // Programs to look around with.
        let usr = fs::metadata("/usr").unwrap();
        let identity = Some(FileIdentity { device: usr.dev(), inode: usr.ino() });
        let source = MountOrigin::Path { path: "/usr".into(), identity };
        plan.mounts.insert(0, MountPlan { source, readonly: true, ..tmpfs("/usr") });
        for name in ["bin", "lib", "lib64"] {
            symlink(format!("usr/{name}"), top.join(name)).unwrap();
        }
    }
    plants.retain(|(at, _)| is_host || *at != "usr");
    lay_tree(&top, &plants, canary).unwrap();
    match root {
        Root::Own => {}
        Root::Snapshot => plan.above = vec![tree],
        Root::Directory => {
            plan.rootfs = RootfsPlan::Directory { path: upper, identity: None, no_links: false };
        }
    }
    plan
}

/// Makes a sandbox on such a root. Either that fails or all of its walls hold, and nothing outside changes.
async fn is_contained(world: &World, root: Root, plants: HostileTree) -> Result<(), TestCaseError> {
    let canary = Canary::new();
    let before = canary.facts();
    let plan = plan_on(world, root, plants, canary.path()).await;
    let open = match world.backend.create(&plan).await {
        Ok(instance) => {
            let open = escape::open_walls(world, &plan, &*instance).await;
            instance.stop().await.unwrap();
            open
        }
        Err(_refused) => String::new(),
    };
    prop_assert_eq!(open, "");
    prop_assert_eq!(canary.facts(), before);
    world.backend.remove(&plan.id).await.unwrap();
    Ok(())
}

pub(crate) async fn random_trees_touch_nothing_outside(world: Arc<World>) {
    let handle = tokio::runtime::Handle::current();
    let cases = || {
        let config = ProptestConfig { cases: CASES, failure_persistence: None, ..ProptestConfig::default() };
        let roots = select(vec![Root::Snapshot, Root::Own, Root::Directory]);
        TestRunner::new(config)
            .run(&(roots, plants()), |(root, plants)| handle.block_on(is_contained(&world, root, plants)))
    };
    tokio::task::block_in_place(cases).unwrap();
}

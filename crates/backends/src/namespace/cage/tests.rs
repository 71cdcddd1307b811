//! The complete cage of image `host`, as text. `BLESS=1` rewrites it.

use std::fs;

use sandbox::{ByteSize, Defaults, FileIdentity, SandboxId, SandboxSpec};

use super::*;
use crate::namespace::mounts::{LocatedSource, MountFiles};

fn explain(ids: Ids, decided: &Decided) -> String {
    explain_on(ids, decided, &[])
}

fn explain_on(ids: Ids, decided: &Decided, usr_mounts: &[&str]) -> String {
    explain_with(&sandbox::Base::host(), ids, decided, usr_mounts, Vec::new())
}

fn explain_base(base: &sandbox::Base, ids: Ids, decided: &Decided, usr_mounts: &[&str]) -> String {
    explain_with(base, ids, decided, usr_mounts, Vec::new())
}

fn explain_with(
    base: &sandbox::Base,
    ids: Ids,
    decided: &Decided,
    usr_mounts: &[&str],
    mounts: Vec<LocatedMount>,
) -> String {
    let id = SandboxId::from_random([7; 8]);
    let name = "box".parse().unwrap();
    let spec = SandboxSpec::default();
    let plan = sandbox::plan(
        &id,
        &name,
        &spec,
        &Defaults::default(),
        base,
        &[sandbox::Capabilities::all(sandbox::BackendKind::Namespace)],
    )
    .unwrap();
    let layer = PathBuf::from("/home-of-warren/layers/host-1");
    let skeleton = Skeleton {
        directory: layer.join("root"),
        usr: matches!(ids, Ids::Shared(_)).then(|| layer.join("usr")),
        bound: vec![PathBuf::from("/lib64")],
    };
    let hidden = HIDDEN.iter().map(|name| Path::new("/").join(name)).collect();
    let usr_mounts = usr_mounts.iter().map(PathBuf::from).collect();
    let pools = vec![PathBuf::from("/home-of-warren/layers"), PathBuf::from("/home-of-warren/snapshots")];
    let ground = Ground {
        sandboxes: PathBuf::from("/home-of-warren/sandboxes"),
        stage: PathBuf::from("/mnt"),
        skeleton,
        pools,
        ids,
        usr_mounts,
        has_own_devices: !matches!(ids, Ids::Shared(_)),
        kernel_files: KernelFiles::all(),
        hidden,
    };
    let beneath = Beneath { mounts, ..decided.beneath.clone() };
    let cage = build(&plan, &ground, &Decided { beneath, ..decided.clone() });
    let mut text = format!("users {:?}\n", cage.id_map.users);
    text.extend(cage.layers.iter().map(|layer| format!("layer {layer:?}\n")));
    text.extend(cage.mounts.iter().map(|mount| format!("mount {mount} {:?}\n", mount.identity)));
    text.extend(cage.steps.iter().map(|step| format!("{step}\n")));
    text
}

fn check(name: &str, text: &str) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/namespace/golden").join(name);
    if std::env::var_os("BLESS").is_some() {
        fs::write(&file, text).unwrap();
    }
    let golden = fs::read_to_string(&file).unwrap_or_default();
    assert!(golden == text, "{name} is not what is committed; BLESS=1 writes this instead:\n{text}");
}

#[test]
fn the_cage_of_a_root_daemon() {
    let decided = Decided {
        first_id: Some(0x7000_0000),
        has_image: false,
        beneath: Beneath::default(),
        affinity: None,
        rlimits: Vec::new(),
        network: None,
    };
    check("root.txt", &explain(Ids::OwnRange, &decided));
}

#[test]
fn the_cage_of_a_root_daemon_with_a_disk_of_its_own() {
    let decided = Decided {
        first_id: Some(0x7000_0000),
        has_image: true,
        beneath: Beneath::default(),
        affinity: None,
        rlimits: Vec::new(),
        network: None,
    };
    check("root-image.txt", &explain(Ids::OwnRange, &decided));
}

#[test]
fn the_cage_of_a_sandbox_with_a_network() {
    let network = NetworkEnd {
        v4: sandbox::network::OWN_ADDRESS_V4,
        v6: Some(sandbox::network::OWN_ADDRESS_V6),
        mark: sandbox::network::RELEASE_MARK,
        named: None,
    };
    let without = Decided {
        first_id: None,
        has_image: false,
        beneath: Beneath::default(),
        affinity: None,
        rlimits: Vec::new(),
        network: None,
    };
    let with = Decided { network: Some(network), ..without.clone() };
    let (without, with) = (explain(Ids::Shared(1), &without), explain(Ids::Shared(1), &with));
    let only_in = |one: &str, other: &str| {
        let lines: Vec<_> = other.lines().collect();
        one.lines().filter(|line| !lines.contains(line)).map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(only_in(&without, &with), ["loopback"]);
    assert_eq!(
        only_in(&with, &without),
        [
            "network 10.83.66.1 fd77:6172:7265:6e00::1",
            "setting /proc/sys/net/ipv4/tcp_congestion_control = reno"
        ]
    );
}

#[test]
fn the_cage_of_a_user_with_one_id() {
    let decided = Decided {
        first_id: None,
        has_image: false,
        beneath: Beneath::default(),
        affinity: Some(1),
        rlimits: Vec::new(),
        network: None,
    };
    check("single.txt", &explain(Ids::Shared(1), &decided));
}

#[test]
fn the_cage_of_a_user_with_subordinate_ids() {
    let decided = Decided {
        first_id: None,
        has_image: false,
        beneath: Beneath::default(),
        affinity: None,
        rlimits: Vec::new(),
        network: None,
    };
    check("subordinate.txt", &explain(Ids::Shared(65537), &decided));
}

#[test]
fn the_cage_of_a_user_whose_host_has_mounts_beneath_usr() {
    let decided = Decided {
        first_id: None,
        has_image: false,
        beneath: Beneath::default(),
        affinity: None,
        rlimits: Vec::new(),
        network: None,
    };
    let text = explain_on(Ids::Shared(1), &decided, &["/usr/lib/wsl/drivers"]);
    check("fixed-usr.txt", &text);
    assert!(text.contains("mask /usr/lib/wsl/drivers"));
    let table = "1 0 8:1 / / rw - ext4 /dev/sda rw\n2 1 8:2 / /usr/lo\\040c\\134al rw - ext4 /dev/sdb rw\n3 1 8:3 / /usr rw - ext4 x rw\n";
    assert_eq!(usr_mounts(table), [PathBuf::from("/usr/lo c\\al")]);
}

fn paths<const N: usize>(paths: [&str; N]) -> Vec<PathBuf> {
    paths.map(PathBuf::from).to_vec()
}

#[test]
fn the_cage_of_an_image_with_a_snapshot_above_it() {
    let image = paths(["/home-of-warren/layers/sha256-b/fs", "/home-of-warren/layers/sha256-a/fs"]);
    let base = sandbox::Base { rootfs: RootfsPlan::Image, ..sandbox::Base::host() };
    let root = paths(["/home-of-warren/snapshots/s/tree/root/upper"]);
    let beneath = Beneath { root, image, ..Beneath::default() };
    let decided = Decided {
        first_id: None,
        has_image: false,
        beneath,
        affinity: None,
        rlimits: Vec::new(),
        network: None,
    };
    let as_root = Decided { first_id: Some(0x7000_0000), ..decided.clone() };
    check("layers-root.txt", &explain_base(&base, Ids::OwnRange, &as_root, &[]));
    check("layers-subordinate.txt", &explain_base(&base, Ids::Shared(65537), &decided, &[]));
}

#[test]
fn trees_lie_over_both_parts_of_image_host() {
    let tree = "/home-of-warren/snapshots/s/tree";
    let beneath = Beneath {
        root: vec![Path::new(tree).join("root/upper")],
        usr: vec![Path::new(tree).join("usr/upper")],
        ..Beneath::default()
    };
    let decided = Decided {
        first_id: Some(0x7000_0000),
        has_image: false,
        beneath,
        affinity: None,
        rlimits: Vec::new(),
        network: None,
    };
    let text = explain(Ids::OwnRange, &decided);
    let overlays: Vec<_> = text.lines().filter(|line| line.starts_with("overlay")).collect();
    assert!(
        overlays[0].contains(r#"["/mnt/layer-0/s/tree/root/upper", "/mnt/layer-1/host-1/root"]"#),
        "{text}"
    );
    assert!(overlays[1].contains(r#"["/mnt/layer-0/s/tree/usr/upper", "/mnt/layer-2"]"#), "{text}");
}

#[test]
fn a_directory_that_was_allowed_is_held_before_it_is_looked_at() {
    let identity = Some(sandbox::FileIdentity { device: 1, inode: 2 });
    let rootfs = RootfsPlan::Directory { path: PathBuf::from("/srv/root"), identity, no_links: false };
    let base = sandbox::Base { rootfs, ..sandbox::Base::host() };
    let decided = Decided {
        first_id: None,
        has_image: false,
        beneath: Beneath::default(),
        affinity: None,
        rlimits: Vec::new(),
        network: None,
    };
    let text = explain_base(&base, Ids::Shared(1), &decided, &[]);
    let at = |line: &str| text.lines().position(|found| found.starts_with(line)).unwrap();
    assert!(at("bind /srv/root at /mnt/layer-0") < at("expect /mnt/layer-0"), "{text}");
    assert!(text.contains(r#"lower ["/mnt/layer-0"]"#), "{text}");
    let text = explain_base(&base, Ids::OwnRange, &decided, &[]);
    assert!(text.contains("identity: Some(FileIdentity { device: 1, inode: 2 })"), "{text}");
}

fn some_mounts() -> Vec<LocatedMount> {
    let volume = Path::new("/home-of-warren/volumes/vol-0");
    let identity = Some(FileIdentity { device: 8, inode: 9 });
    let origins = [
        ("/data", LocatedSource::Files(MountFiles::Path { path: volume.join("data"), identity: None })),
        ("/disk", LocatedSource::Files(MountFiles::Image { path: volume.join("disk.img"), identity: None })),
        ("/host", LocatedSource::Files(MountFiles::Path { path: "/srv/files".into(), identity })),
        ("/mem", LocatedSource::Tmpfs { size: ByteSize::mib(1) }),
    ];
    let mount = |(guest_path, source): (&str, LocatedSource)| {
        let guest_path = guest_path.to_owned();
        let (readonly, noexec) = (guest_path == "/host", guest_path == "/disk");
        LocatedMount { guest_path, source, readonly, noexec, quota: None }
    };
    origins.map(mount).into()
}

#[test]
fn the_cage_of_a_root_daemon_with_mounts() {
    let decided = Decided {
        first_id: Some(0x7000_0000),
        has_image: false,
        beneath: Beneath::default(),
        affinity: None,
        rlimits: Vec::new(),
        network: None,
    };
    let text = explain_with(&sandbox::Base::host(), Ids::OwnRange, &decided, &[], some_mounts());
    check("root-mounts.txt", &text);
    // After everything of the sandbox's own is mounted, and before the host's files are out of reach.
    let at = |what: &str| text.find(what).unwrap();
    assert!(at("setting ") < at("place mount 0") && at("place tmpfs") < at("pivot"));
}

#[test]
fn the_spawners_own_steps() {
    let text: String = prepare_steps(Path::new("/mnt")).iter().map(|step| format!("{step}\n")).collect();
    check("prepare.txt", &text);
}

#[test]
fn settings_with_passwords_are_hidden_where_they_truly_are() {
    let host = tempfile::tempdir().unwrap();
    let (host, none) = (host.path().canonicalize().unwrap(), Vec::new());
    assert_eq!(hidden_here(&host, &none), none);
    for directory in ["usr/etc", "usr/local/etc", "usr/share", "etc"] {
        fs::create_dir_all(host.join(directory)).unwrap();
    }
    let link = |to: &str| {
        fs::remove_file(host.join("usr/local/etc/npmrc")).ok();
        std::os::unix::fs::symlink(to, host.join("usr/local/etc/npmrc")).unwrap();
    };
    for file in ["usr/etc/npmrc", "usr/share/npmrc", "etc/npmrc"] {
        fs::write(host.join(file), "//r.example/:_authToken=secret").unwrap();
    }
    let hidden =
        |usr_mounts: &[&str]| hidden_here(&host, &usr_mounts.iter().map(PathBuf::from).collect::<Vec<_>>());
    link("../../share/npmrc");
    assert_eq!(hidden(&[]), ["/usr/etc/npmrc", "/usr/share/npmrc"].map(PathBuf::from));
    assert_eq!(hidden(&["/usr/share"]), ["/usr/etc/npmrc"].map(PathBuf::from));
    // Links to the same file, or out of the visible tree.
    for to in ["../../etc/npmrc", "../../../etc/npmrc"] {
        link(to);
        assert_eq!(hidden(&[]), ["/usr/etc/npmrc"].map(PathBuf::from), "{to}");
    }
}

#[test]
fn the_stage_hides_nothing_that_is_needed() {
    let stage = |needed: &str| choose_stage(&[Path::new(needed), Path::new("/usr")]).unwrap();
    let usual = stage("/var/lib/warren");
    assert!(!usual.starts_with("/mnt") && !usual.starts_with("/srv"), "{}", usual.display());
    assert_ne!(stage(usual.join("data/warren").to_str().unwrap()), usual);
}

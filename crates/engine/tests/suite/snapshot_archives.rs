//! Archives of snapshots from strangers, sealed like ours: their claims about themselves are not believed.

use std::io::{self, Write};

use engine::SaveOptions;
use sandbox::{Error, ErrorKind};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::{
    snapshots::which,
    support::{World, advice, in_time},
};

type Member = (String, Vec<u8>);

fn digest_of(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().fold("sha256:".to_owned(), |text, byte| text + &format!("{byte:02x}"))
}

fn header(name: &str, len: u64) -> tar::Header {
    let mut header = tar::Header::new_ustar();
    // Bypasses the library's own rules.
    header.as_old_mut().name[..name.len().min(100)].copy_from_slice(&name.as_bytes()[..name.len().min(100)]);
    header.set_size(len);
    header.set_mode(0o644);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header.set_entry_type(tar::EntryType::Regular);
    header.set_cksum();
    header
}

fn container(members: &[Member]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (name, content) in members {
        bytes.extend(header(name, content.len() as u64).as_bytes());
        bytes.extend(content);
        bytes.resize(bytes.len().next_multiple_of(512), 0);
    }
    bytes
}

/// With the seal of a plain archive.
fn sealed(mut bytes: Vec<u8>) -> Vec<u8> {
    let digest = digest_of(&bytes);
    bytes.extend(header("sha256", digest.len() as u64).as_bytes());
    bytes.extend(digest.as_bytes());
    bytes.resize(bytes.len().next_multiple_of(512) + 1024, 0);
    bytes
}

/// With the seal of a compressed archive.
fn sealed_zstd(mut bytes: Vec<u8>) -> Vec<u8> {
    let hash = Sha256::digest(&bytes);
    bytes.extend([0x5f, 0x2a, 0x4d, 0x18, 32, 0, 0, 0]);
    bytes.extend(hash);
    bytes
}

fn compressed(bytes: &[u8], window_log: u32) -> Vec<u8> {
    let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), 1).unwrap();
    encoder.long_distance_matching(true).unwrap();
    encoder.window_log(window_log).unwrap();
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// The members of one of our own archives.
fn members_of(archive: &[u8]) -> Vec<Member> {
    let mut archive = tar::Archive::new(archive);
    let mut members = Vec::new();
    for entry in archive.entries().unwrap() {
        let mut entry = entry.unwrap();
        let name = entry.path().unwrap().display().to_string();
        let mut content = Vec::new();
        io::Read::read_to_end(&mut entry, &mut content).unwrap();
        members.push((name, content));
    }
    members.pop();
    members
}

/// One snapshot: index, manifest, tree.
struct Parts {
    manifest: Value,
    tree: Vec<u8>,
}

impl Parts {
    async fn saved(world: &World) -> Self {
        let source = world.create().await;
        world.write(&source, "/note", "note").await;
        world.snapshot(&source, "base").await;
        let archive = world.save("base", SaveOptions { plain: true, ..SaveOptions::default() }).await;
        let members = members_of(&archive);
        assert_eq!(members.len(), 3);
        Self { manifest: serde_json::from_slice(&members[1].1).unwrap(), tree: members[2].1.clone() }
    }

    /// Its changed manifest, and its members.
    fn with(&self, change: impl FnOnce(&mut Value)) -> (String, Vec<Member>) {
        let mut manifest = self.manifest.clone();
        change(&mut manifest);
        let manifest = serde_json::to_vec(&manifest).unwrap();
        let digest = digest_of(&manifest);
        let hex = digest.strip_prefix("sha256:").unwrap();
        let members = vec![
            (format!("snapshots/{hex}/manifest.json"), manifest),
            (format!("snapshots/{hex}/tree/00000000"), self.tree.clone()),
        ];
        (digest, members)
    }
}

fn index(digests: &[&str]) -> Member {
    let snapshots: Vec<_> = digests.iter().map(|digest| json!({"digest": digest, "name": "base"})).collect();
    let index = json!({"format": 1, "snapshots": snapshots, "image": null});
    ("index.json".to_owned(), serde_json::to_vec(&index).unwrap())
}

fn archive(index: Member, parts: &[&[Member]]) -> Vec<u8> {
    sealed(container(&[&[index][..], &parts.concat()].concat()))
}

async fn refused(there: &World, what: &str, archive: Vec<u8>) -> Error {
    let error = there.load(archive).await.map(drop).expect_err(what);
    assert_eq!(
        (there.snapshot_names().await, there.snapshots_on_disk()),
        (vec![], vec![]),
        "{what}: {error}"
    );
    error
}

/// Changes one thing in a manifest.
type Lie = fn(&mut Value);

#[tokio::test]
async fn what_a_manifest_says_is_held_against_what_is_there() {
    let (here, there) = (World::new().await, World::new().await);
    let parts = Parts::saved(&here).await;
    let lies: [(&str, Lie); 12] = [
        ("a directory of the host", |manifest| {
            manifest["hostPath"] = json!({ "type": "directory", "path": "/" });
        }),
        ("bytes", |manifest| manifest["tree"]["bytes"] = json!(1)),
        ("entries", |manifest| manifest["tree"]["nEntries"] = json!(9_000_000)),
        ("digest of the tree", |manifest| manifest["tree"]["digest"] = json!(digest_of(b"other"))),
        ("a parent that is not here", |manifest| manifest["parent"] = json!(digest_of(b"other"))),
        ("a parent that is a path", |manifest| manifest["parent"] = json!("../../../etc")),
        ("an image without a digest", |manifest| manifest["image"] = json!("alpine")),
        ("a later format", |manifest| manifest["format"] = json!(99)),
        ("a variable without a name", |manifest| manifest["config"]["env"] = json!([["", "x"]])),
        ("a variable with two", |manifest| manifest["config"]["env"] = json!([["A=B", "x"]])),
        ("a directory beside the root", |manifest| manifest["config"]["cwd"] = json!("../x")),
        ("a word with a zero byte", |manifest| manifest["config"]["cmd"] = json!(["a\0b"])),
    ];
    for (what, lie) in lies {
        let (digest, members) = parts.with(lie);
        let error = refused(&there, what, archive(index(&[&digest]), &[&members])).await;
        let kinds = [ErrorKind::InvalidRequest, ErrorKind::NotFound, ErrorKind::Unsupported];
        assert!(kinds.contains(&error.kind()), "{what}: {error}");
    }
    // The same without a lie is fine.
    let (digest, members) = parts.with(|_| {});
    assert_eq!(there.load(archive(index(&[&digest]), &[&members])).await.unwrap().digest, digest);
}

#[tokio::test]
async fn members_that_are_missing_doubled_or_out_of_place_are_refused() {
    let (here, there) = (World::new().await, World::new().await);
    let parts = Parts::saved(&here).await;
    let (digest, members) = parts.with(|_| {});
    let (child, above) = parts.with(|manifest| manifest["parent"] = json!(digest));
    let (orphan, alone) = parts.with(|manifest| manifest["parent"] = json!(digest_of(b"x")));
    let extra = |name: &str| vec![(name.to_owned(), b"x".to_vec())];
    let other_manifest = vec![(members[0].0.clone(), b"{}".to_vec()), members[1].clone()];
    let cases: Vec<(&str, Vec<u8>)> = vec![
        ("nothing", sealed(Vec::new())),
        ("no snapshots", archive(index(&[]), &[])),
        ("too many snapshots", archive(index(&vec![digest.as_str(); 65]), &[&members])),
        ("no manifest", archive(index(&[&digest]), &[])),
        ("no tree", archive(index(&[&digest]), &[&members[..1]])),
        ("the same twice", archive(index(&[&digest, &digest]), &[&members, &members])),
        ("the child before its parent", archive(index(&[&child, &digest]), &[&above, &members])),
        ("two that do not know each other", archive(index(&[&digest, &orphan]), &[&members, &alone])),
        ("another manifest under its digest", archive(index(&[&digest]), &[&other_manifest])),
        ("a path of the host", archive(index(&[&digest]), &[&extra("../../etc/cron.d/x"), &members])),
        ("no index", sealed(container(&members))),
        ("a digest that is a path", archive(index(&["../../x"]), &[&members])),
        ("an index that is no JSON", archive(("index.json".into(), b"[".repeat(9000)), &[&members])),
        ("a long index", archive(("index.json".into(), vec![b' '; 70_000]), &[&members])),
        ("a tree that is no tree", {
            let bad = vec![members[0].clone(), (members[1].0.clone(), b"no tree".to_vec())];
            archive(index(&[&digest]), &[&bad])
        }),
        ("a long part", {
            let bad = vec![members[0].clone(), (members[1].0.clone(), vec![b'x'; 1024 * 1024 + 1])];
            archive(index(&[&digest]), &[&bad])
        }),
        ("a part with a size that nothing has", {
            let mut bytes = container(&[index(&[&digest]), members[0].clone()]);
            bytes.extend(header(&members[1].0, (1 << 33) - 1).as_bytes());
            sealed(bytes)
        }),
    ];
    for (what, bytes) in cases {
        let error = refused(&there, what, bytes).await;
        let expected = match what {
            "the child before its parent" => ErrorKind::NotFound,
            _ => ErrorKind::InvalidRequest,
        };
        assert_eq!(error.kind(), expected, "{what}: {error}");
    }
    // In their order they are fine.
    let bytes = archive(index(&[&digest, &child]), &[&members, &above]);
    assert_eq!(there.load(bytes).await.unwrap().digest, child);
}

#[tokio::test]
async fn bytes_that_no_reader_looks_at_are_refused_too() {
    let (here, there) = (World::new().await, World::new().await);
    let parts = Parts::saved(&here).await;
    let (digest, members) = parts.with(|_| {});
    let plain = [container(&[&[index(&[&digest])][..], &members].concat()), vec![0; 1024]].concat();
    let frame = compressed(&plain, 20);
    for (what, bytes) in [
        ("a second frame", sealed_zstd([frame.clone(), compressed(b"more", 20)].concat())),
        ("bytes behind the frame", sealed_zstd([&frame[..], b"x"].concat())),
        ("bytes behind the seal", [sealed_zstd(frame.clone()), vec![0]].concat()),
        ("two seals", sealed_zstd(sealed_zstd(frame.clone()))),
        ("no seal", frame.clone()),
        ("the seal of another", {
            let mut bytes = sealed_zstd(frame.clone());
            let last = bytes.len() - 1;
            bytes[last] ^= 1;
            bytes
        }),
    ] {
        assert_eq!(refused(&there, what, bytes).await.kind(), ErrorKind::InvalidRequest, "{what}");
    }
    assert_eq!(there.load(sealed_zstd(frame)).await.unwrap().digest, digest);
}

#[tokio::test]
async fn a_bomb_is_stopped_while_it_goes_off() {
    let (here, there) = (World::new().await, World::with(|config| config.max_snapshot_bytes = 1 << 20).await);
    let parts = Parts::saved(&here).await;
    let (digest, members) = parts.with(|_| {});
    let start = container(&[index(&[&digest]), members[0].clone()]);
    let part = (members[1].0.clone(), vec![0; 1024 * 1024]);
    // A gigabyte takes long to read but is almost nothing to send.
    let many = container(std::slice::from_ref(&part)).repeat(64);
    let bytes = sealed_zstd(compressed(&[start.clone(), many].concat(), 20));
    assert!(bytes.len() < 100_000, "{}", bytes.len());
    let error = refused(&there, "a bomb", bytes).await;
    assert_eq!(error.kind(), ErrorKind::LimitReached, "{error}");
    assert!(advice(&error).contains("limit"), "{error:?}");
    // A window larger than the memory limit.
    let wide = compressed(&[start, vec![7; 1 << 18], vec![0; 1024]].concat(), 30);
    let error = refused(&there, "a wide window", sealed_zstd(wide)).await;
    assert_eq!(error.kind(), ErrorKind::InvalidRequest, "{error}");
}

#[tokio::test]
async fn names_that_are_taken_are_left_to_those_who_have_them() {
    let (here, there) = (World::new().await, World::new().await);
    let parts = Parts::saved(&here).await;
    let (digest, members) = parts.with(|_| {});
    let (child, above) = parts.with(|manifest| manifest["parent"] = json!(digest));
    let own = there.create().await;
    let base = there.snapshot(&own, "base").await;
    let bytes = archive(index(&[&digest, &child]), &[&members, &above]);
    let load = async |name: Option<&str>| {
        let (name, bytes) = (name.map(|name| name.parse().unwrap()), io::Cursor::new(bytes.clone()));
        in_time(there.engine.load_snapshot(&there.who, &Default::default(), name, bytes)).await
    };
    // Requested by name it is refused, and the one beneath is removed as well.
    assert_eq!(load(Some("base")).await.unwrap_err().kind(), ErrorKind::AlreadyExists);
    assert_eq!(there.snapshots_on_disk(), std::slice::from_ref(&base.path));
    // Otherwise it gets another name, and the one beneath none.
    let loaded = load(None).await.unwrap();
    let name = loaded.name.unwrap().to_string();
    assert_ne!(name, "base");
    let mut names = [None, Some("base".to_owned()), Some(name)];
    names.sort();
    assert_eq!(there.snapshot_names().await, names);
    assert_eq!(there.engine.snapshot(&there.who, &which("base")).await.unwrap(), base);
}

#[tokio::test]
async fn an_archive_for_which_there_is_no_room_leaves_nothing_of_it() {
    let (here, there) = (World::new().await, World::with(|config| config.max_snapshots = 1).await);
    let parts = Parts::saved(&here).await;
    let (digest, members) = parts.with(|_| {});
    let (child, above) = parts.with(|manifest| manifest["parent"] = json!(digest));
    let bytes = archive(index(&[&digest, &child]), &[&members, &above]);
    assert_eq!(refused(&there, "no room", bytes).await.kind(), ErrorKind::LimitReached);
}

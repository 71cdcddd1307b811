//! Images that are made here, layer by layer, and layers from what an overlay holds.

use std::{
    collections::BTreeSet,
    fs::{self, File},
    io::Cursor,
    os::fd::AsFd as _,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _},
    path::Path,
};

use images::{
    Commit, Digest, Error, History, Image, ImageConfig, Images, InUse, Origin, PackOptions, Platform,
    pack_layer,
};

use crate::fixture::{Layer, options, run};

fn commit(key: Option<&str>, name: Option<&str>) -> Commit {
    Commit {
        config: ImageConfig { cmd: vec!["x".to_owned()], ..ImageConfig::default() },
        platform: Platform::host(),
        origin: Origin {
            created: Some("2026-01-02T03:04:05Z".to_owned()),
            history: vec![History { created_by: Some("RUN x".to_owned()), ..History::default() }],
        },
        names: name.into_iter().map(|name| name.parse().unwrap()).collect(),
        build_key: key.map(|key| Digest::of(key.as_bytes())),
    }
}

fn layer(name: &str) -> Option<Box<dyn std::io::Read + Send>> {
    Some(Box::new(Cursor::new(Layer::default().file(name, name.as_bytes()).tar())))
}

async fn built(images: &Images, key: &str) -> Option<Image> {
    images.built(&Digest::of(key.as_bytes())).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_builds_make_is_found_by_its_key_and_goes_when_room_is_wanted() {
    let home = tempfile::tempdir().unwrap();
    let images = Images::open(home.path(), options()).await.unwrap();
    let one = images.commit(None, layer("one"), commit(Some("first"), None)).await.unwrap();
    let two = images.commit(Some(&one), layer("two"), commit(Some("second"), None)).await.unwrap();
    let named = images.commit(Some(&two), None, commit(None, Some("app"))).await.unwrap();
    assert_eq!((one.lowers.len(), two.lowers.len(), named.lowers.len()), (1, 2, 2));
    // It has two layers, and a step for each.
    let mut origin = commit(None, None).origin;
    origin.history.insert(0, History::default());
    assert_eq!(images.origin(&named).await.unwrap(), origin);
    // The same again is the same, and takes no room.
    let again = images.commit(Some(&two), None, commit(None, Some("app"))).await.unwrap();
    assert_eq!(again.digest, named.digest);
    drop((one, two, named, again));

    // Only what has a name is listed; the rest survives a restart all the same.
    drop(images);
    let images = Images::open(home.path(), options()).await.unwrap();
    let listed = images.list().await.unwrap();
    assert_eq!(listed.len(), 1);
    assert_eq!(built(&images, "first").await.unwrap().lowers.len(), 1);
    assert!(built(&images, "none").await.is_none());

    // Removing the image keeps the layers for the next build; pruning does not.
    images.remove("app", InUse::Refuse).await.unwrap();
    assert!(built(&images, "second").await.is_some());
    images.prune().await.unwrap();
    assert!(built(&images, "first").await.is_none() && built(&images, "second").await.is_none());
    let usage = images.disk_usage().await.unwrap();
    assert_eq!((usage.blob_bytes, usage.layer_bytes, usage.partial_bytes), (0, 0, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_layer_that_is_none_leaves_nothing() {
    let home = tempfile::tempdir().unwrap();
    let images = Images::open(home.path(), options()).await.unwrap();
    let evil = Layer::default().file("../evil", b"x").tar();
    let refused =
        images.commit(None, Some(Box::new(Cursor::new(evil))), commit(Some("k"), Some("app"))).await;
    assert!(matches!(refused, Err(Error::Refused { .. })), "{refused:?}");
    assert!(images.list().await.unwrap().is_empty());
    let usage = images.disk_usage().await.unwrap();
    assert_eq!((usage.blob_bytes, usage.layer_bytes, usage.partial_bytes), (0, 0, 0));
}

fn packed(upper: &Path, options: &PackOptions) -> Vec<u8> {
    let mut bytes = Vec::new();
    let directory = File::open(upper).unwrap();
    pack_layer(directory.as_fd(), &mut bytes, options).unwrap();
    bytes
}

fn names(bytes: &[u8]) -> BTreeSet<String> {
    let mut archive = tar::Archive::new(bytes);
    let entries = archive.entries().unwrap();
    entries.map(|entry| String::from_utf8(entry.unwrap().path_bytes().into_owned()).unwrap()).collect()
}

fn set(path: &Path, name: &str, value: &str) {
    rustix::fs::setxattr(path, name, value.as_bytes(), rustix::fs::XattrFlags::empty()).unwrap();
}

#[test]
fn an_upper_directory_becomes_a_layer_and_that_one_again() {
    if !rustix::process::geteuid().is_root() {
        println!("whiteouts cannot be made without root");
        return;
    }
    let upper = tempfile::tempdir().unwrap();
    let at = |name: &str| upper.path().join(name);
    fs::create_dir_all(at("etc/deep")).unwrap();
    fs::write(at("etc/hosts"), "ours").unwrap();
    fs::write(at("etc/deep/file"), vec![7; 100_000]).unwrap();
    fs::hard_link(at("etc/deep/file"), at("etc/deep/same")).unwrap();
    std::os::unix::fs::symlink("/anywhere", at("link")).unwrap();
    std::os::unix::fs::chown(at("etc/deep/file"), Some(1234), Some(3_000_000_000)).unwrap();
    fs::set_permissions(at("etc/deep/file"), fs::Permissions::from_mode(0o4755)).unwrap();
    run("mknod", &[at("gone").to_str().unwrap(), "c", "0", "0"]);
    fs::create_dir(at("new")).unwrap();
    set(&at("new"), "user.overlay.opaque", "y");
    set(&at("etc/deep/file"), "user.mine", "kept");
    set(&at("etc/deep"), "user.overlay.origin", "x");
    let long = format!("{}/{}", "d".repeat(90), "f".repeat(200));
    fs::create_dir(at(&"d".repeat(90))).unwrap();
    fs::write(at(&long), "long").unwrap();
    fs::create_dir(at("proc")).unwrap();
    fs::create_dir(at("tmp")).unwrap();
    fs::write(at("tmp/kept"), "kept").unwrap();

    let options = PackOptions {
        own_directories: ["proc", "tmp", "etc"].map(str::to_owned).to_vec(),
        own_files: vec![("etc/hosts".to_owned(), "ours".to_owned())],
        ..PackOptions::default()
    };
    let bytes = packed(upper.path(), &options);
    assert_eq!(bytes, packed(upper.path(), &options), "the same tree gives the same bytes");
    let expected = [
        ".wh.gone",
        "etc/",
        "etc/deep/",
        "etc/deep/file",
        "etc/deep/same",
        "link",
        "new/",
        "new/.wh..wh..opq",
        "tmp/",
        "tmp/kept",
        &format!("{}/", "d".repeat(90)),
        &long,
    ];
    assert_eq!(names(&bytes), expected.into_iter().map(str::to_owned).collect());

    // And back: what an overlay would see is what was there.
    let layer = tempfile::tempdir().unwrap();
    let archive = layer.path().join("layer.tar");
    fs::write(&archive, &bytes).unwrap();
    let into = layer.path().join("fs");
    fs::create_dir(&into).unwrap();
    let directory = File::open(&into).unwrap();
    images::unpack_layer(File::open(&archive).unwrap(), directory.as_fd(), &Default::default()).unwrap();
    assert_eq!(bytes, packed(&into, &PackOptions::default()));
    let file = fs::metadata(into.join("etc/deep/file")).unwrap();
    assert_eq!(
        (file.uid(), file.gid(), file.mode() & 0o7777, file.nlink()),
        (1234, 3_000_000_000, 0o4755, 2)
    );

    // A file of ours that was changed is theirs.
    fs::write(at("etc/hosts"), "else").unwrap();
    assert!(names(&packed(upper.path(), &options)).contains("etc/hosts"));
    // And a name that would be read as a removal is refused.
    fs::write(at(".wh.trick"), "").unwrap();
    let refused = pack_layer(File::open(upper.path()).unwrap().as_fd(), std::io::sink(), &options);
    assert!(matches!(refused, Err(Error::Refused { .. })), "{refused:?}");
}

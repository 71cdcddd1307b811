//! Archives of others, and ours as others read them.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{Cursor, Read as _},
    path::Path,
};

use images::{Digest, Error, Format, ImageConfig, Images, Limits, Options, Platform, Reference};
use serde_json::{Value, json};

use crate::{
    fixture::{
        Layer, TestImage, everything_in, gzip, options, run, small_image, stacked_image_of_gzip, zstd,
    },
    server::Server,
};

struct Home {
    directory: tempfile::TempDir,
    images: Images,
}

impl Home {
    async fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let images = Images::open(directory.path(), options()).await.unwrap();
        Self { directory, images }
    }

    async fn load(&self, archive: &Path) -> Result<Vec<images::Image>, Error> {
        self.images.load(File::open(archive).unwrap(), Platform::host()).await
    }
}

fn skopeo_copy(from: &str, to: &str) {
    run("skopeo", &["--insecure-policy", "copy", "--quiet", from, to]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_skopeo_and_docker_write_is_read() {
    let image = stacked_image_of_gzip();
    let scratch = tempfile::tempdir().unwrap();
    let at = |name: &str| scratch.path().join(name);
    image.write_layout(&at("layout"), "v1");
    let layout = format!("oci:{}:v1", at("layout").display());
    skopeo_copy(&layout, &format!("docker-archive:{}:team/app:v2", at("docker.tar").display()));
    skopeo_copy(&layout, &format!("oci-archive:{}:team/app:v3", at("oci.tar").display()));
    run("gzip", &["-k", "-1", at("docker.tar").to_str().unwrap()]);

    let home = Home::new().await;
    fs::write(at("layout.tar"), crate::fixture::tar_of(&at("layout"))).unwrap();
    for (archive, name) in [
        ("layout.tar", "localhost/loaded:v1"),
        ("oci.tar", "docker.io/team/app:v3"),
        ("docker.tar", "docker.io/team/app:v2"),
        ("docker.tar.gz", "docker.io/team/app:v2"),
    ] {
        let loaded = home.load(&at(archive)).await.unwrap();
        assert_eq!(loaded.len(), 1, "{archive}");
        assert!(
            loaded[0].names.iter().any(|known| known.to_string() == name),
            "{archive}: {:?}",
            loaded[0].names
        );
        assert_eq!(loaded[0].config.entrypoint, ["/bin/busybox"]);
        let trees: Vec<_> =
            loaded[0].lowers.iter().map(|lower| fs::read_dir(lower).unwrap().count()).collect();
        assert_eq!(trees, [1, 3, 5], "{archive}");
    }
    // The same layers however they came: unpacked once.
    let layers = fs::read_dir(home.directory.path().join("layers")).unwrap().count();
    assert_eq!(layers, 3);
    assert_eq!(home.images.get("localhost/loaded:v1").await.unwrap().digest, image.digest());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_we_write_is_read_by_skopeo_and_by_us() {
    let image = stacked_image_of_gzip();
    let scratch = tempfile::tempdir().unwrap();
    let at = |name: &str| scratch.path().join(name);
    let home = Home::new().await;
    home.images.load(Cursor::new(image.layout("team/app:v1")), Platform::host()).await.unwrap();

    for (format, transport) in [(Format::Docker, "docker-archive"), (Format::Oci, "oci-archive")] {
        let archive = at(transport);
        home.images.save("team/app:v1", File::create(&archive).unwrap(), format).await.unwrap();
        let again = at("again.tar");
        home.images.save("team/app:v1", File::create(&again).unwrap(), format).await.unwrap();
        assert!(fs::read(&archive).unwrap() == fs::read(&again).unwrap(), "the same image, the same bytes");

        let copy = at(&format!("copy-of-{transport}"));
        skopeo_copy(&format!("{transport}:{}", archive.display()), &format!("oci:{}:it", copy.display()));
        let bundle = at(&format!("bundle-of-{transport}"));
        let of = format!("{}:it", copy.display());
        run("umoci", &["unpack", "--rootless", "--image", &of, bundle.to_str().unwrap()]);
        assert_eq!(fs::read_to_string(bundle.join("rootfs/etc/kept")).unwrap(), "changed");
        assert!(!bundle.join("rootfs/etc/removed").exists() && !bundle.join("rootfs/gone").exists());

        let other = Home::new().await;
        let loaded = other.load(&archive).await.unwrap();
        assert_eq!(loaded[0].names[0].to_string(), "docker.io/team/app:v1");
        let detail = other.images.inspect("team/app:v1").await.unwrap();
        let diff_ids: Vec<_> = detail.layers.iter().map(|layer| layer.diff_id.clone()).collect();
        assert_eq!(diff_ids, image.diff_ids);
        assert_eq!(detail.summary.config_digest, Digest::of(&image.config));
        if format == Format::Oci {
            assert_eq!(loaded[0].digest, image.digest());
        }
    }
}

/// Returns the names of the images in a saved archive, then how many images have none.
async fn names_in(images: &Images, asked: &[&str], format: Format) -> (Vec<String>, usize) {
    let archive = tempfile::NamedTempFile::new().unwrap();
    images.save_all(asked, archive.reopen().unwrap(), format).await.unwrap();
    let listed: Vec<Vec<String>> = match format {
        Format::Docker => {
            let listed: Value = serde_json::from_slice(&member(archive.path(), "manifest.json")).unwrap();
            let tags = listed.as_array().unwrap().iter().map(|image| image["RepoTags"].clone());
            tags.map(|tags| serde_json::from_value(tags).unwrap()).collect()
        }
        Format::Oci => {
            let index: Value = serde_json::from_slice(&member(archive.path(), "index.json")).unwrap();
            let named = index["manifests"].as_array().unwrap().iter().map(|image| &image["annotations"]);
            named.map(annotated_names).collect()
        }
    };
    let nameless = listed.iter().filter(|names| names.is_empty()).count();
    (listed.concat(), nameless)
}

/// The name in full, which ends as the short one says.
fn annotated_names(annotations: &Value) -> Vec<String> {
    let named = annotations.get("io.containerd.image.name").map(|name| name.as_str().unwrap());
    let tag = annotations.get("org.opencontainers.image.ref.name").map(|tag| tag.as_str().unwrap());
    assert_eq!(named.and_then(|name| name.rsplit_once(':')).map(|(_, tag)| tag), tag, "{annotations}");
    named.map(|name| name.parse::<Reference>().unwrap().familiar()).into_iter().collect()
}

fn member(archive: &Path, name: &str) -> Vec<u8> {
    let mut archive = tar::Archive::new(File::open(archive).unwrap());
    let mut entries = archive.entries().unwrap().map(Result::unwrap);
    let mut entry = entries.find(|entry| entry.path().unwrap() == Path::new(name)).unwrap();
    let mut bytes = Vec::new();
    entry.read_to_end(&mut bytes).unwrap();
    bytes
}

#[tokio::test(flavor = "multi_thread")]
async fn an_archive_has_the_names_that_were_asked_for_and_no_others() {
    let home = Home::new().await;
    let (one, two) = (small_image("one"), small_image("two"));
    for (image, names) in
        [(&one, ["app:1", "app:latest", "registry.lan/app:1"]), (&two, ["b:1", "b:2", "b:3"])]
    {
        home.images.load(Cursor::new(image.layout(names[0])), Platform::host()).await.unwrap();
        for further in &names[1..] {
            home.images.tag(names[0], &further.parse().unwrap()).await.unwrap();
        }
    }
    let (digest, id) = (one.digest().to_string(), Digest::of(&one.config).hex()[..12].to_owned());
    let pinned = format!("app@{digest}");
    for format in [Format::Docker, Format::Oci] {
        for (asked, names, nameless) in [
            (&["app:1"][..], &["app:1"][..], 0),
            (&["app"], &["app:latest"], 0),
            (
                &["registry.lan/app:1", "app:1", "docker.io/library/app:1"],
                &["app:1", "registry.lan/app:1"],
                0,
            ),
            (&["b:3", "app", "b:1"], &["b:1", "b:3", "app:latest"], 0),
            (&[&digest], &[], 1),
            (&[&id], &[], 1),
            (&[&pinned], &[], 1),
            (&[&digest, "b:2", "app:1", &id], &["app:1", "b:2"], 0),
            (&["b:2", &digest], &["b:2"], 1),
        ] {
            let found = names_in(&home.images, asked, format).await;
            assert_eq!(found, (names.iter().map(ToString::to_string).collect(), nameless), "{asked:?}");
        }
    }

    // For what goes with a snapshot they all count.
    let archive = tempfile::NamedTempFile::new().unwrap();
    let image = home.images.get("app").await.unwrap();
    home.images.save_with_names(image, archive.reopen().unwrap(), Format::Oci).await.unwrap();
    let other = Home::new().await;
    other.load(archive.path()).await.unwrap();
    let listed = other.images.list().await.unwrap();
    let names: Vec<_> = listed[0].names.iter().map(Reference::familiar).collect();
    assert_eq!(names, ["app:1", "app:latest", "registry.lan/app:1"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_whose_layer_came_in_another_compression_can_be_saved() {
    let tar = Layer::default().file("a", b"a").tar();
    let plain = TestImage::new(&[(tar.clone(), tar.clone())]);
    let packed = TestImage::new(&[(tar.clone(), gzip(&tar))]);
    let home = Home::new().await;
    home.images.load(Cursor::new(plain.layout("plain:v1")), Platform::host()).await.unwrap();
    let server = Server::of(&packed, |_| None);
    let pulled =
        home.images.pull(&server.reference("packed:v1"), Default::default(), images::Progress::none()).await;
    drop(pulled.unwrap());
    home.images.remove("plain:v1", images::InUse::Refuse).await.unwrap();

    let archive = tempfile::NamedTempFile::new().unwrap();
    let name = packed.digest().to_string();
    home.images.save(&name, archive.reopen().unwrap(), Format::Oci).await.unwrap();
    let other = Home::new().await;
    let loaded = other.load(archive.path()).await.unwrap();
    assert_eq!(fs::read(loaded[0].lowers[0].join("a")).unwrap(), b"a");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_root_file_system_becomes_an_image() {
    let home = Home::new().await;
    let tar = Layer::default().directory("etc").file("etc/hostname", b"imported").tar();
    let config = ImageConfig {
        cmd: vec!["/bin/sh".to_owned()],
        labels: BTreeMap::from([("from".to_owned(), "a tar".to_owned())]),
        ..ImageConfig::default()
    };
    let mut digests = Vec::new();
    for blob in [tar.clone(), tar.clone(), gzip(&tar), zstd(&tar)] {
        let name = "mine/root:1".parse().unwrap();
        let imported =
            home.images.import(Cursor::new(blob), config.clone(), Platform::host(), name).await.unwrap();
        assert_eq!(imported.config, config);
        assert_eq!(fs::read(imported.lowers[0].join("etc/hostname")).unwrap(), b"imported");
        digests.push(imported.digest.clone());
    }
    assert_eq!(digests[0], digests[1], "the same tar, the same image");
    assert_eq!(home.images.list().await.unwrap().len(), 1, "a name that moved took its image along");
    let detail = home.images.inspect("mine/root:1").await.unwrap();
    assert_eq!(detail.layers[0].diff_id, Digest::of(&tar));

    let evil = Layer::default().file("../out", b"").tar();
    let name = "mine/evil:1".parse().unwrap();
    let error = home.images.import(Cursor::new(evil), config, Platform::host(), name).await.unwrap_err();
    assert!(matches!(error, Error::Refused { .. }), "{error}");
    assert_eq!(home.images.disk_usage().await.unwrap().partial_bytes, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_makes_no_image() {
    let home = Home::new().await;
    let empty = Layer::default().tar();
    // As a tar that failed at the other end of a pipe sends it, and as one of no files does.
    for root in [Vec::new(), empty.clone(), gzip(&empty)] {
        let name = "mine/root:1".parse().unwrap();
        let imported =
            home.images.import(Cursor::new(root), ImageConfig::default(), Platform::host(), name).await;
        let error = imported.unwrap_err();
        assert!(matches!(&error, Error::Corrupt { got, .. } if got == "none"), "{error}");
    }
    assert!(home.images.list().await.unwrap().is_empty());
    assert_eq!(fs::read_dir(home.directory.path().join("layers")).unwrap().count(), 0);
}

/// Returns the archive that `docker save` would write of `image` under these names.
fn docker_archive(image: &TestImage, names: &[&str]) -> Vec<u8> {
    let manifest = json!([{"Config": "c.json", "Layers": ["l.tar"], "RepoTags": names}]).to_string();
    archive_of(&[
        ("manifest.json", manifest.as_bytes()),
        ("c.json", &image.config),
        ("l.tar", &image.blobs[0]),
    ])
}

#[tokio::test(flavor = "multi_thread")]
async fn a_platform_that_was_asked_for_is_the_one_that_comes() {
    let home = Home::new().await;
    let image = small_image("for this machine");
    for archive in [image.layout("app:1"), docker_archive(&image, &["app:1"])] {
        let load = |platform: Option<Platform>| home.images.load(Cursor::new(archive.clone()), platform);
        let error = load(Some("linux/sparc64".parse().unwrap())).await.unwrap_err();
        let host = Platform::host().to_string();
        assert!(matches!(&error, Error::Unsupported { what } if what.contains(&host)), "{error}");
        assert!(home.images.list().await.unwrap().is_empty());
        assert_eq!(load(Some(Platform::host())).await.unwrap().len(), 1);
        assert_eq!(load(None).await.unwrap().len(), 1);
        home.images.remove("app:1", images::InUse::Refuse).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn names_that_mean_something_else_are_left_out() {
    let home = Home::new().await;
    let image = small_image("named");
    let names = async |archive: Vec<u8>| {
        let loaded = home.images.load(Cursor::new(archive), None::<Platform>).await.unwrap();
        loaded[0].names.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let some = docker_archive(&image, &["host:latest", "team/app:1", "sha256:abc"]);
    assert_eq!(names(some).await, ["docker.io/team/app:1"]);
    home.images.remove("team/app:1", images::InUse::Refuse).await.unwrap();
    for none_left in
        [docker_archive(&image, &["0123456789ab:latest"]), image.layout("docker.io/library/host:1")]
    {
        let given = names(none_left).await;
        assert!(given.iter().all(|name| name.starts_with("localhost/loaded:")), "{given:?}");
    }

    let known = home.images.list().await.unwrap()[0].digest.to_string();
    for bad in ["host", "sha256:abc", "0123456789ab"] {
        let bad: images::Reference = bad.parse().unwrap();
        let error = home.images.tag(&known, &bad).await.unwrap_err();
        assert!(matches!(error, Error::Invalid { .. }), "{error}");
        let root = Cursor::new(Layer::default().file("a", b"a").tar());
        let imported = home.images.import(root, ImageConfig::default(), Platform::host(), bad.clone()).await;
        assert!(matches!(imported, Err(Error::Invalid { .. })), "{imported:?}");
        let pulled = home.images.pull(&bad, Default::default(), images::Progress::none()).await;
        assert!(matches!(pulled, Err(Error::Invalid { .. })), "{pulled:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn garbage_is_not_quoted() {
    let home = Home::new().await;
    let garbage = b"\x1b[31m\x07garbage\xff".repeat(100);
    let error = home.images.load(Cursor::new(garbage.clone()), Platform::host()).await.unwrap_err();
    assert!(!error.to_string().contains("garbage"), "{error}");
    let name = "mine/root:1".parse().unwrap();
    let imported =
        home.images.import(Cursor::new(garbage), ImageConfig::default(), Platform::host(), name).await;
    let error = imported.unwrap_err().to_string();
    assert!(!error.contains("garbage") && !error.contains('\u{1b}'), "{error}");
}

/// A tar of files by name.
fn archive_of(files: &[(&str, &[u8])]) -> Vec<u8> {
    files.iter().fold(Layer::default(), |archive, (name, bytes)| archive.file(name, bytes)).tar()
}

#[tokio::test(flavor = "multi_thread")]
async fn archives_that_lie_leave_nothing() {
    let image = small_image("archive");
    let blob = |digest: &Digest| format!("blobs/sha256/{}", digest.hex());
    let (config, layer) = (blob(&Digest::of(&image.config)), blob(&Digest::of(&image.blobs[0])));
    let manifest = blob(&image.digest());
    let index = json!({"schemaVersion": 2, "manifests": [
        crate::fixture::descriptor("application/vnd.oci.image.manifest.v1+json", &image.manifest)
    ]})
    .to_string();
    let marker = br#"{"imageLayoutVersion":"1.0.0"}"#;
    let whole: Vec<(&str, &[u8])> = vec![
        ("oci-layout", marker),
        ("index.json", index.as_bytes()),
        (&manifest, &image.manifest),
        (&config, &image.config),
        (&layer, &image.blobs[0]),
    ];
    let with = |name: &str, bytes: &'static [u8]| {
        let files: Vec<_> =
            whole.iter().map(|(known, old)| (*known, if *known == name { bytes } else { *old })).collect();
        archive_of(&files)
    };
    let docker = |manifest: &str| {
        archive_of(&[
            ("manifest.json", manifest.as_bytes()),
            ("c.json", &image.config),
            ("l.tar", &image.blobs[0]),
        ])
    };

    let home = Home::new().await;
    let load = async |bytes: Vec<u8>| home.images.load(Cursor::new(bytes), Platform::host()).await;
    for bytes in [
        archive_of(&whole[..4]),
        with(&layer, b"another layer"),
        with(&config, b"{}"),
        with(&manifest, b"{}"),
        with("index.json", b"not json"),
        archive_of(&whole)[..1500].to_vec(),
        docker("{}"),
        docker(r#"[{"Config": "c.json", "Layers": []}]"#),
        docker(r#"[{"Config": "c.json", "Layers": ["missing.tar"]}]"#),
        docker(r#"[{"Config": "../../../etc/passwd", "Layers": ["l.tar"]}]"#),
        docker(r#"[{"Config": "l.tar", "Layers": ["l.tar"]}]"#),
    ] {
        let error = load(bytes).await.unwrap_err();
        assert!(matches!(error, Error::Corrupt { .. }), "{error}");
    }
    for bytes in [archive_of(&[("readme", b"hello")]), b"".to_vec()] {
        let error = load(bytes).await.unwrap_err();
        assert!(matches!(error, Error::NoImages), "{error}");
    }
    let secret = Layer::default()
        .file("manifest.json", br#"[{"Config": "c.json", "Layers": ["l.tar"]}]"#)
        .symlink("c.json", "/etc/passwd")
        .symlink("l.tar", "../../../../../../etc/passwd")
        .tar();
    let error = load(secret).await.unwrap_err();
    assert!(matches!(error, Error::Corrupt { .. }), "{error}");
    let many = r#"{"Config": "c.json", "RepoTags": ["a:1"], "Layers": ["l.tar"]}"#;
    let named = (0..1001).map(|number| format!(r#""a:{number}""#)).collect::<Vec<_>>().join(",");
    let names = format!(r#"[{{"Config": "c.json", "RepoTags": [{named}], "Layers": ["l.tar"]}}]"#);
    for bytes in [docker(&format!("[{}]", [many; 1001].join(","))), docker(&names)] {
        let error = load(bytes).await.unwrap_err();
        assert!(
            matches!(error, Error::TooLarge { ref limit, .. } if limit == "max_archive_images"),
            "{error}"
        );
    }
    // The second image is bad, and so the first is not taken in either.
    let second = r#"{"Config": "c.json", "RepoTags": ["b:1"], "Layers": ["l.tar", "l.tar"]}"#;
    let error = load(docker(&format!("[{many},{second}]"))).await.unwrap_err();
    assert!(matches!(error, Error::Corrupt { .. }), "{error}");
    assert_eq!(home.images.list().await.unwrap(), []);

    home.images.prune().await.unwrap();
    assert_eq!(everything_in(home.directory.path()), Vec::<std::path::PathBuf>::new());
    let loaded = load(archive_of(&whole)).await.unwrap();
    assert_eq!(loaded[0].digest, image.digest());

    let limits = Limits { max_archive_members: 3, ..Limits::default() };
    let small = tempfile::tempdir().unwrap();
    let images = Images::open(small.path(), Options { limits, ..options() }).await.unwrap();
    let error = images.load(Cursor::new(archive_of(&whole)), Platform::host()).await.unwrap_err();
    assert!(matches!(error, Error::TooLarge { ref limit, .. } if limit == "max_archive_members"), "{error}");
    assert_eq!(everything_in(small.path()), Vec::<std::path::PathBuf>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_of_an_archive_that_cannot_become_a_blob_leaves_no_scratch_file() {
    let image = small_image("archive");
    let home = Home::new().await;
    // No file can be renamed to the name of a directory.
    let layer = Digest::of(&image.blobs[0]);
    let in_its_way = home.directory.path().join("images/blobs/sha256").join(layer.hex());
    fs::create_dir(&in_its_way).unwrap();
    let archive = image.layout("app:1");
    let error = home.images.load(Cursor::new(archive.clone()), Platform::host()).await.unwrap_err();
    assert!(matches!(error, Error::Io { .. }), "{error}");
    assert_eq!(everything_in(home.directory.path()), std::slice::from_ref(&in_its_way));
    fs::remove_dir(in_its_way).unwrap();
    home.images.load(Cursor::new(archive), Platform::host()).await.unwrap();
}

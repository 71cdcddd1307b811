//! Collections: what stays and what goes.

use std::{
    collections::BTreeMap,
    fs,
    io::Cursor,
    sync::{Arc, Mutex},
    time::{Duration, SystemTime},
};

use images::{
    Digest, Error, Image, ImageConfig, Images, InUse, Options, Platform, Progress, PullOptions, Users,
};

use crate::{
    fixture::{Layer, TestImage, everything_in, gzip, links, noise, options, small_image},
    server::{Answer, Server},
};

/// Users of images, as the test says them.
#[derive(Debug)]
struct RecordingKeep(Mutex<Option<BTreeMap<Digest, Vec<String>>>>);

impl Default for RecordingKeep {
    fn default() -> Self {
        Self(Mutex::new(Some(BTreeMap::new())))
    }
}

impl RecordingKeep {
    fn set(&self, image: &Digest, users: &[&str]) {
        let mut told = self.0.lock().unwrap();
        let told = told.get_or_insert_default();
        told.remove(image);
        if !users.is_empty() {
            told.insert(image.clone(), users.iter().map(|user| (*user).to_owned()).collect());
        }
    }
}

impl Users for RecordingKeep {
    fn of_images(&self) -> Option<BTreeMap<Digest, Vec<String>>> {
        self.0.lock().unwrap().clone()
    }
}

async fn pull(images: &Images, image: &TestImage, name: &str) -> Image {
    let server = Server::of(image, |_| None);
    let pulled =
        images.pull(&server.reference(name), PullOptions::default(), Progress::none()).await.unwrap();
    images.tag(&pulled.digest.to_string(), &name.parse().unwrap()).await.unwrap();
    let elsewhere = pulled.names[0].to_string();
    images.remove(&elsewhere, InUse::Refuse).await.unwrap();
    pulled
}

async fn names(images: &Images) -> Vec<String> {
    let listed = images.list().await.unwrap();
    listed.iter().flat_map(|image| image.names.iter().map(|name| name.familiar())).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn names_come_and_go_and_the_last_takes_the_image_along() {
    let home = tempfile::tempdir().unwrap();
    let images = Images::open(home.path(), options()).await.unwrap();
    let digest = pull(&images, &small_image("one"), "one:1").await.digest;
    images.tag("one:1", &"uno:1".parse().unwrap()).await.unwrap();
    assert_eq!(names(&images).await, ["one:1", "uno:1"]);
    for name in ["one:1", "uno:1", &digest.to_string(), &digest.hex()[..12], digest.hex()] {
        assert_eq!(images.get(name).await.unwrap().digest, digest, "{name}");
    }
    assert!(matches!(images.get("one:2").await, Err(Error::NotFound { .. })));
    assert!(matches!(images.get("not a name").await, Err(Error::Invalid { .. })));

    let freed = images.remove("one:1", InUse::Refuse).await.unwrap();
    assert_eq!((freed.names.len(), freed.images.len(), freed.n_layers), (1, 0, 0));
    let freed = images.remove("uno:1", InUse::Refuse).await.unwrap();
    assert_eq!((freed.names.len(), freed.images, freed.n_layers), (1, vec![digest], 1));
    assert!(freed.bytes > 0);
    assert_eq!(everything_in(home.path()), Vec::<std::path::PathBuf>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shared_layer_goes_with_its_last_image() {
    let layer = |name: &str| {
        let tar = Layer::default().file(name, name.as_bytes()).tar();
        (tar.clone(), tar)
    };
    let home = tempfile::tempdir().unwrap();
    let images = Images::open(home.path(), options()).await.unwrap();
    drop(pull(&images, &TestImage::new(&[layer("shared"), layer("a")]), "a:1").await);
    drop(pull(&images, &TestImage::new(&[layer("shared"), layer("b")]), "b:1").await);
    assert_eq!(images.remove("a:1", InUse::Refuse).await.unwrap().n_layers, 1);
    let left = images.get("b:1").await.unwrap();
    assert!(left.lowers.iter().all(|lower| lower.is_dir()));
    drop(left);
    assert_eq!(images.remove("b:1", InUse::Refuse).await.unwrap().n_layers, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_in_use_stays_over_restarts_until_its_users_are_gone() {
    let home = tempfile::tempdir().unwrap();
    let users = Arc::new(RecordingKeep::default());
    let with_users = || Options { users: users.clone(), ..options() };
    let images = Images::open(home.path(), with_users()).await.unwrap();
    let digest = pull(&images, &small_image("used"), "used:1").await.digest;
    users.set(&digest, &["sandbox one", "sandbox two"]);
    drop(images);

    let images = Images::open(home.path(), with_users()).await.unwrap();
    match images.remove("used:1", InUse::Refuse).await {
        Err(Error::InUse { by, .. }) => assert_eq!(by, ["sandbox one", "sandbox two"]),
        other => panic!("{other:?}"),
    }
    assert_eq!(images.prune().await.unwrap().images, []);
    assert_eq!(images.list().await.unwrap()[0].used_by, ["sandbox one", "sandbox two"]);

    // Its name may go before its users do.
    images.remove("used:1", InUse::Untag).await.unwrap();
    let image = images.get(&digest.to_string()).await.unwrap();
    assert_eq!(fs::read(image.lowers[0].join("etc/text")).unwrap(), b"used");
    drop(image);
    users.set(&digest, &["sandbox two"]);
    assert_eq!(images.collect().await.unwrap().images, []);
    drop(images);
    let images = Images::open(home.path(), with_users()).await.unwrap();
    assert_eq!(images.list().await.unwrap().len(), 1);
    // Where nobody can tell, everything is in use.
    *users.0.lock().unwrap() = None;
    assert_eq!(images.collect().await.unwrap().images, []);
    assert_eq!(images.prune().await.unwrap().images, []);
    let removed = images.remove(digest.as_str(), InUse::Refuse).await;
    assert!(matches!(removed, Err(Error::InUse { .. })), "{removed:?}");
    users.set(&digest, &[]);
    assert_eq!(images.collect().await.unwrap().images, [digest]);
    assert_eq!(images.list().await.unwrap(), []);
    assert_eq!(everything_in(home.path()), Vec::<std::path::PathBuf>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn to_use_an_image_writes_no_index() {
    let home = tempfile::tempdir().unwrap();
    let images = Images::open(home.path(), options()).await.unwrap();
    drop(pull(&images, &small_image("used"), "used:1").await);
    let index = home.path().join("images/index.json");
    let before = fs::metadata(&index).unwrap();
    let used = images.list().await.unwrap()[0].last_used_at;
    drop(images.get("used:1").await.unwrap());
    assert!(images.list().await.unwrap()[0].last_used_at > used);
    // Written anew it would be another file.
    use std::os::unix::fs::MetadataExt as _;
    assert_eq!(fs::metadata(&index).unwrap().ino(), before.ino());
    assert_eq!(fs::metadata(&index).unwrap().modified().unwrap(), before.modified().unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_held_in_this_process_is_not_taken_away() {
    let home = tempfile::tempdir().unwrap();
    let images = Images::open(home.path(), options()).await.unwrap();
    let held = pull(&images, &small_image("held"), "held:1").await;
    assert_eq!(images.prune().await.unwrap().images, []);
    images.remove("held:1", InUse::Refuse).await.unwrap();
    assert_eq!(fs::read(held.lowers[0].join("etc/text")).unwrap(), b"held");
    drop(held);
    images.prune().await.unwrap();
    assert_eq!(everything_in(home.path()), Vec::<std::path::PathBuf>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_cap_takes_the_least_recently_used_and_never_what_is_used() {
    let image_of = |name: &str, bytes: usize| {
        let tar = Layer::default().file(name, &noise(bytes)).tar();
        TestImage::new(&[(tar.clone(), tar)])
    };
    let image = |name: &str| image_of(name, 200_000);
    // An image is its blob and its files: 400 kB. Three fit.
    let home = tempfile::tempdir().unwrap();
    let users = Arc::new(RecordingKeep::default());
    let capped = Options { disk_cap: Some(1_400_000), users: users.clone(), ..options() };
    let images = Images::open(home.path(), capped).await.unwrap();
    let pinned = pull(&images, &image("pinned"), "pinned:1").await.digest;
    users.set(&pinned, &["sandbox one"]);
    drop(pull(&images, &image("old"), "old:1").await);
    drop(pull(&images, &image("used"), "used:1").await);
    drop(images.get("old:1").await.unwrap());
    drop(pull(&images, &image("new"), "new:1").await);
    assert_eq!(names(&images).await, ["new:1", "old:1", "pinned:1"]);

    // One could go, and that would not help.
    users.set(&images.get("new:1").await.unwrap().digest, &["sandbox two"]);
    let before = everything_in(home.path());
    let server = Server::of(&image_of("large", 700_000), |_| None);
    let large = images.pull(&server.reference("large:1"), PullOptions::default(), Progress::none()).await;
    assert!(matches!(large, Err(Error::NoSpace { .. })), "{large:?}");
    assert_eq!(everything_in(home.path()), before);

    // Nothing that could go: the new one has no place, and leaves nothing behind.
    users.set(&images.get("old:1").await.unwrap().digest, &["sandbox two"]);
    let server = Server::of(&image("more"), |_| None);
    let more = images.pull(&server.reference("more:1"), PullOptions::default(), Progress::none()).await;
    assert!(matches!(more, Err(Error::NoSpace { .. })), "{more:?}");
    assert_eq!(everything_in(home.path()), before);
    let usage = images.disk_usage().await.unwrap();
    assert!(usage.blob_bytes + usage.layer_bytes <= 1_400_000, "{usage:?}");
    assert_eq!((usage.n_images, usage.partial_bytes, usage.cap_bytes), (3, 0, Some(1_400_000)));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_could_never_fit_below_the_cap_drives_nothing_out_and_fills_no_disk() {
    let home = tempfile::tempdir().unwrap();
    let capped = Options { disk_cap: Some(500_000), ..options() };
    let images = Images::open(home.path(), capped).await.unwrap();
    drop(pull(&images, &small_image("kept"), "kept:1").await);
    let before = everything_in(home.path());

    // A manifest that says so is not even believed.
    let noisy = Layer::default().file("noise", &noise(600_000)).tar();
    let server = Server::of(&TestImage::new(&[(noisy.clone(), noisy.clone())]), |_| None);
    let pulled = images.pull(&server.reference("more:1"), PullOptions::default(), Progress::none()).await;
    assert!(matches!(pulled, Err(Error::NoSpace { .. })), "{pulled:?}");
    assert_eq!(server.blob_requests().len(), 1, "the configuration only");

    // Small as it comes, large when unpacked; large as it comes, without a word about it before.
    let zeros = Layer::default().file("zeros", &vec![0; 600_000]).tar();
    let bomb = TestImage::new(&[(zeros.clone(), gzip(&zeros))]);
    let server = Server::of(&bomb, |_| None);
    let pulled = images.pull(&server.reference("bomb:1"), PullOptions::default(), Progress::none()).await;
    let is_over = |error: &Error, which: &str| matches!(error, Error::TooLarge { limit, most: 500_000, .. } if limit == which);
    assert!(is_over(&pulled.unwrap_err(), "max_layer_bytes"));
    let loaded = images.load(Cursor::new(bomb.layout("bomb:1")), Platform::host()).await;
    assert!(is_over(&loaded.unwrap_err(), "max_layer_bytes"));
    for (root, limit) in [(gzip(&zeros), "max_layer_bytes"), (noisy, "max_blob_bytes")] {
        let name = "root:1".parse().unwrap();
        let imported = images.import(Cursor::new(root), ImageConfig::default(), Platform::host(), name).await;
        assert!(is_over(&imported.unwrap_err(), limit));
    }
    let layer = |text: &str| Layer::default().file(text, &noise(200_000)).tar();
    let three = ["a", "b", "c"].map(|text| (layer(text), layer(text)));
    let loaded = images.load(Cursor::new(TestImage::new(&three).layout("three:1")), Platform::host()).await;
    assert!(is_over(&loaded.unwrap_err(), "max_layer_bytes"));
    assert_eq!(names(&images).await, ["kept:1"]);
    images.get("kept:1").await.unwrap();
    let kept = images.get("kept:1").await.unwrap();
    images.prune().await.unwrap();
    assert_eq!(everything_in(home.path()), before);
    drop(kept);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_downloaded_earlier_counts_once_against_the_cap() {
    let home = tempfile::tempdir().unwrap();
    let capped = Options { disk_cap: Some(300_000), ..options() };
    let images = Images::open(home.path(), capped).await.unwrap();
    drop(pull(&images, &small_image("kept"), "kept:1").await);
    let begin = |blob: &[u8], bytes: usize| {
        let part = home.path().join("images/partial").join(Digest::of(blob).hex());
        fs::write(part, &blob[..bytes]).unwrap();
    };

    let tar = links("link", 400);
    begin(&tar, 150_000);
    let server = Server::of(&TestImage::new(&[(tar.clone(), tar)]), |_| None);
    let pulled = images.pull(&server.reference("app:1"), PullOptions::default(), Progress::none()).await;
    drop(pulled.unwrap());
    assert_eq!(server.blob_requests().last().unwrap().1, Some(150_000));
    images.get("kept:1").await.unwrap();
    images.remove(&server.reference("app:1").to_string(), InUse::Refuse).await.unwrap();

    // Most of it is here, and still it could never fit.
    let tar = links("link", 600);
    begin(&tar, 250_000);
    let server = Server::of(&TestImage::new(&[(tar.clone(), tar)]), |_| None);
    let pulled = images.pull(&server.reference("more:1"), PullOptions::default(), Progress::none()).await;
    assert!(matches!(pulled, Err(Error::NoSpace { .. })), "{pulled:?}");
    assert_eq!(server.blob_requests().len(), 1, "the configuration only");
    assert_eq!(names(&images).await, ["kept:1"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_download_that_nobody_goes_on_with_goes_after_a_day_without_a_restart() {
    let home = tempfile::tempdir().unwrap();
    let images = Images::open(home.path(), options()).await.unwrap();
    drop(pull(&images, &small_image("kept"), "kept:1").await);
    let before = everything_in(home.path());
    let begin = |text: &str, hours: u64| {
        let part = home.path().join("images/partial").join(Digest::of(text.as_bytes()).hex());
        fs::write(&part, text).unwrap();
        let begun = SystemTime::now() - Duration::from_secs(hours * 60 * 60);
        fs::File::options().write(true).open(&part).unwrap().set_modified(begun).unwrap();
        part
    };
    let (old, recent) = (begin("old", 25), begin("recent", 23));
    let freed = images.collect().await.unwrap();
    assert_eq!((freed.bytes, freed.images.len()), (3, 0));
    assert!(!old.exists() && recent.exists());
    fs::remove_file(recent).unwrap();
    assert_eq!(everything_in(home.path()), before);
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_pulls_or_imports_gets_a_whole_image_while_others_move_and_remove_its_name() {
    let image = |name: &str| {
        let shared = Layer::default().file("shared", &noise(50_000)).tar();
        let own = Layer::default().file(name, name.as_bytes()).tar();
        TestImage::new(&[(shared.clone(), gzip(&shared)), (own.clone(), own)])
    };
    let (one, two) = (image("one"), image("two"));
    let known: Vec<_> = one.contents().into_iter().chain(two.contents()).collect();
    // What its tag stands for changes with every question.
    let manifests = [one.manifest.clone(), two.manifest.clone()];
    let server = Server::new(move |request| {
        if !request.is_blob() {
            return Answer::ok(manifests[request.earlier % 2].clone());
        }
        let blob = known.iter().find(|(digest, _)| request.path.ends_with(digest.hex()));
        blob.map_or_else(|| Answer::status(404), |(_, bytes)| Answer::ok(bytes.clone()))
    });
    let reference = server.reference("app:1");
    let home = tempfile::tempdir().unwrap();
    let images = Images::open(home.path(), options()).await.unwrap();
    let pull = async || {
        for _turn in 0..10 {
            let image = images.pull(&reference, PullOptions::default(), Progress::none()).await.unwrap();
            assert!([one.digest(), two.digest()].contains(&image.digest));
            let name = if image.digest == one.digest() { "one" } else { "two" };
            assert_eq!(fs::read(image.lowers[0].join(name)).unwrap(), name.as_bytes());
            assert_eq!(fs::metadata(image.lowers[1].join("shared")).unwrap().len(), 50_000);
        }
    };
    let import = async || {
        for turn in 0..30 {
            let root = Cursor::new(Layer::default().file("turn", turn.to_string().as_bytes()).tar());
            let (config, name) = (ImageConfig::default(), "root:1".parse().unwrap());
            let image = images.import(root, config, Platform::host(), name).await.unwrap();
            assert_eq!(fs::read(image.lowers[0].join("turn")).unwrap(), turn.to_string().as_bytes());
        }
    };
    let done = std::sync::atomic::AtomicBool::new(false);
    let clear = async || {
        while !done.load(std::sync::atomic::Ordering::SeqCst) {
            // It may be gone, or not be there yet.
            let _gone = images.remove(&reference.to_string(), InUse::Refuse).await;
            images.prune().await.unwrap();
        }
    };
    let pulls = async || {
        tokio::join!(pull(), pull(), pull(), import());
        done.store(true, std::sync::atomic::Ordering::SeqCst);
    };
    tokio::join!(pulls(), clear());
    images.prune().await.unwrap();
    assert_eq!(everything_in(home.path()), Vec::<std::path::PathBuf>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_is_never_taken_for_the_beginning_of_a_digest() {
    let home = tempfile::tempdir().unwrap();
    let images = Images::open(home.path(), options()).await.unwrap();
    let first = pull(&images, &small_image("first"), "first:1").await.digest;
    let second = pull(&images, &small_image("second"), "second:1").await.digest;
    // The second has a name that the first's digest begins with.
    let name = &first.hex()[..11];
    assert_eq!(images.get(name).await.unwrap().digest, first);
    images.tag("second:1", &name.parse().unwrap()).await.unwrap();
    assert_eq!(images.get(name).await.unwrap().digest, second);
    // Whoever says that it is a digest means one, so no image has such a name.
    let prefixed = format!("sha256:{name}");
    let tagged = images.tag("second:1", &prefixed.parse().unwrap()).await;
    assert!(matches!(tagged, Err(Error::Invalid { .. })), "{tagged:?}");
    assert_eq!(images.get(&prefixed).await.unwrap().digest, first);
    assert_eq!(images.get(first.hex()).await.unwrap().digest, first);
    images.remove(name, InUse::Refuse).await.unwrap();
    assert_eq!(images.get(name).await.unwrap().digest, first);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_index_that_cannot_be_read_is_an_error_and_not_an_empty_store() {
    let home = tempfile::tempdir().unwrap();
    let images = Images::open(home.path(), options()).await.unwrap();
    drop(pull(&images, &small_image("kept"), "kept:1").await);
    drop(images);
    let index = home.path().join("images/index.json");
    let whole = fs::read(&index).unwrap();
    let before = everything_in(home.path());
    fs::write(&index, &whole[..whole.len() / 2]).unwrap();
    assert!(matches!(Images::open(home.path(), options()).await, Err(Error::Corrupt { .. })));
    fs::write(&index, r#"{"version": 99}"#).unwrap();
    assert!(matches!(Images::open(home.path(), options()).await, Err(Error::Unsupported { .. })));
    assert_eq!(everything_in(home.path()), before);
    fs::write(&index, whole).unwrap();
    let images = Images::open(home.path(), options()).await.unwrap();
    assert_eq!(names(&images).await, ["kept:1"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_others_keep_beside_the_layers_is_left_alone() {
    let home = tempfile::tempdir().unwrap();
    for other in ["layers/host-1/root", "layers/disk-template", "layers/sha256-short"] {
        fs::create_dir_all(home.path().join(other)).unwrap();
    }
    let images = Images::open(home.path(), options()).await.unwrap();
    images.prune().await.unwrap();
    assert_eq!(everything_in(home.path()).len(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn lowers_are_what_an_overlay_takes() {
    let layer = |tar: Layer| {
        let tar = tar.tar();
        (tar.clone(), tar)
    };
    let a = || layer(Layer::default().file("a", b"a"));
    let b = || layer(Layer::default().file("b", b"b"));
    let fresh = || layer(Layer::default().file(".wh..wh..opq", b"").file("fresh", b""));
    let home = tempfile::tempdir().unwrap();
    let images = Images::open(home.path(), options()).await.unwrap();
    let files = async |layers: &[(Vec<u8>, Vec<u8>)]| {
        let image = pull(&images, &TestImage::new(layers), "app:1").await;
        let first =
            |lower: &std::path::PathBuf| fs::read_dir(lower).unwrap().next().unwrap().unwrap().file_name();
        image.lowers.iter().map(|lower| first(lower).to_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(files(&[a(), b()]).await, ["b", "a"], "the topmost first");
    assert_eq!(files(&[a(), b(), a()]).await, ["a", "b"], "none twice");
    assert_eq!(files(&[a(), fresh(), b()]).await, ["b", "fresh"], "nothing below one that hides everything");
    assert_eq!(files(&[]).await, Vec::<String>::new());
}

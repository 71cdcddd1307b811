//! The cap on images' disk space, while they come in.

use std::{
    fs::{self, File},
    io::{self, Cursor, Read},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use images::{
    Digest, Error, ImageConfig, Images, InProcess, Options, Platform, Progress, PullOptions, UnpackOptions,
    Unpacked, Unpacker,
};
use serde_json::json;

use crate::{
    fixture::{Layer, TestImage, everything_in, gzip, links, options},
    server::Server,
};

const CAP: u64 = 500_000;

/// Looks at the most that all layers together took, half-made ones too.
#[derive(Debug)]
struct Watching {
    layers: PathBuf,
    most: AtomicU64,
}

impl Unpacker for Watching {
    fn unpack(&self, blob: File, into: &Path, options: &UnpackOptions) -> Result<Unpacked, Error> {
        let unpacked = InProcess.unpack(blob, into, options);
        self.most.fetch_max(bytes_below(&self.layers), Ordering::SeqCst);
        unpacked
    }

    fn remove(&self, directory: &Path) -> io::Result<()> {
        InProcess.remove(directory)
    }
}

fn bytes_below(directory: &Path) -> u64 {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let bytes = |entry: fs::DirEntry| match entry.metadata() {
        Ok(metadata) if metadata.is_dir() => bytes_below(&entry.path()),
        // In zeros that were written, not in holes.
        metadata => metadata.map_or(0, |metadata| metadata.len()),
    };
    entries.map(bytes).sum()
}

struct Home {
    directory: tempfile::TempDir,
    watching: Arc<Watching>,
    images: Images,
}

impl Home {
    async fn new() -> Self {
        Self::with_cap(CAP).await
    }

    async fn with_cap(cap: u64) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let layers = directory.path().join("layers");
        let watching = Arc::new(Watching { layers, most: AtomicU64::new(0) });
        let options = Options { disk_cap: Some(cap), unpacker: watching.clone(), ..options() };
        let images = Images::open(directory.path(), options).await.unwrap();
        Self { directory, watching, images }
    }

    async fn names(&self) -> Vec<String> {
        let listed = self.images.list().await.unwrap();
        listed.iter().flat_map(|image| image.names.iter().map(|name| name.familiar())).collect()
    }
}

/// Small as it comes, and `bytes` when it is unpacked.
fn zeros(name: &str, bytes: usize) -> (Vec<u8>, Vec<u8>) {
    let tar = Layer::default().file(name, &vec![0; bytes]).tar();
    (tar.clone(), gzip(&tar))
}

#[tokio::test(flavor = "multi_thread")]
async fn layers_that_fit_alone_and_not_together_never_take_more_than_the_cap() {
    let home = Home::new().await;
    let large = TestImage::new(&["a", "b", "c"].map(|name| zeros(name, 300_000)));
    let server = Server::of(&large, |_| None);
    let pulled = home.images.pull(&server.reference("app:1"), PullOptions::default(), Progress::none()).await;
    assert!(matches!(pulled, Err(Error::NoSpace { .. })), "{pulled:?}");
    let loaded = home.images.load(Cursor::new(large.layout("app:1")), Platform::host()).await;
    assert!(matches!(loaded, Err(Error::NoSpace { .. })), "{loaded:?}");
    // Every file takes a block, however little is in it.
    let many = (0..200).fold(Layer::default(), |layer, number| layer.file(&number.to_string(), b"x")).tar();
    let name = "root:1".parse().unwrap();
    let imported =
        home.images.import(Cursor::new(gzip(&many)), ImageConfig::default(), Platform::host(), name).await;
    assert!(matches!(imported, Err(Error::NoSpace { .. })), "{imported:?}");

    let most = home.watching.most.load(Ordering::SeqCst);
    assert!((300_000..=CAP).contains(&most), "{most}");
    assert_eq!(everything_in(home.directory.path()), Vec::<PathBuf>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_layer_that_needs_room_gets_that_of_unused_images_before_it_is_unpacked() {
    let home = Home::new().await;
    for (name, bytes) in [("old:1", 150_000), ("newer:1", 150_000), ("app:1", 250_000)] {
        let image = TestImage::new(&[zeros(name, bytes)]);
        home.images.load(Cursor::new(image.layout(name)), Platform::host()).await.unwrap();
    }
    // One was enough, and the least recently used one.
    assert_eq!(home.names().await, ["app:1", "newer:1"]);
    let most = home.watching.most.load(Ordering::SeqCst);
    assert!((400_000..=CAP).contains(&most), "{most}");
}

/// Returns the archive that `docker save` writes of images of one layer.
fn docker_archive(images: &[(&TestImage, &[&str])]) -> Vec<u8> {
    let name = |bytes: &[u8]| Digest::of(bytes).hex().to_owned();
    let mut archive = Layer::default();
    let mut listed = Vec::new();
    for (image, tags) in images {
        let (config, layer) = (name(&image.config), name(&image.blobs[0]));
        archive = archive.file(&config, &image.config).file(&layer, &image.blobs[0]);
        listed.push(json!({"Config": config, "RepoTags": tags, "Layers": [layer]}));
    }
    archive.file("manifest.json", json!(listed).to_string().as_bytes()).tar()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_archive_of_several_images_is_taken_in_whole_or_not_at_all() {
    let image = |name: &str, bytes: usize| {
        let tar = links(name, bytes / 512);
        TestImage::new(&[(tar.clone(), tar)])
    };
    let home = Home::new().await;
    let load = async |images: &[(&TestImage, &[&str])]| {
        home.images.load(Cursor::new(docker_archive(images)), Platform::host()).await
    };
    let (here, other) = (image("here", 100_000), image("other", 100_000));
    let held = load(&[(&here, &["here:1"]), (&other, &["other:1", "moved:1"])]).await.unwrap();
    assert_eq!(home.names().await, ["here:1", "moved:1", "other:1"]);
    let before = everything_in(home.directory.path());

    // The first is here, the second would fit, and the third does not.
    let (second, third) = (image("second", 50_000), image("third", 300_000));
    let archive: &[(&TestImage, &[&str])] =
        &[(&here, &["again:1"]), (&second, &["second:1"]), (&third, &["third:1", "moved:1"])];
    let loaded = load(archive).await;
    assert!(matches!(loaded, Err(Error::NoSpace { .. })), "{loaded:?}");
    assert_eq!(home.names().await, ["here:1", "moved:1", "other:1"]);
    assert_eq!(home.images.get("moved:1").await.unwrap().digest, held[1].digest);
    assert_eq!(home.images.list().await.unwrap().len(), 2);
    home.images.prune().await.unwrap();
    assert_eq!(everything_in(home.directory.path()), before);

    // Once nobody holds them, they make room.
    drop(held);
    assert_eq!(load(archive).await.unwrap().len(), 3);
    assert_eq!(home.names().await, ["again:1", "here:1", "moved:1", "third:1", "second:1"]);
}

/// An archive, and the most that was in the store while it was read.
struct Reading {
    archive: Cursor<Vec<u8>>,
    store: PathBuf,
    most: Arc<AtomicU64>,
}

impl Read for Reading {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.most.fetch_max(bytes_below(&self.store), Ordering::SeqCst);
        self.archive.read(into)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_archive_takes_what_is_left_below_the_cap_and_no_more_while_it_is_read() {
    // Much more than is on its way between reading and writing.
    const MIB: u64 = 1024 * 1024;
    let cap = 16 * MIB;
    let home = Home::with_cap(cap).await;
    // Large as it comes, for what is behind the end of its tar.
    let image = |name: &str| {
        let mut tar = Layer::default().file(name, name.as_bytes()).tar();
        tar.resize(10 * MIB as usize, 0);
        TestImage::new(&[(tar.clone(), tar)])
    };
    let load = async |image: &TestImage, name: &str| {
        let most = Arc::new(AtomicU64::new(0));
        let archive = Cursor::new(docker_archive(&[(image, &[name])]));
        let reading = Reading { archive, store: home.directory.path().to_owned(), most: most.clone() };
        (home.images.load(reading, Platform::host()).await, most.load(Ordering::SeqCst))
    };
    let (here, most) = load(&image("here"), "here:1").await;
    let here = here.unwrap();
    assert!((8 * MIB..cap).contains(&most), "{most}");
    let before = everything_in(home.directory.path());

    let more = image("more");
    let (loaded, most) = load(&more, "more:1").await;
    assert!(matches!(loaded, Err(Error::NoSpace { .. })), "{loaded:?}");
    assert!((10 * MIB..=cap).contains(&most), "{most}");
    assert_eq!(everything_in(home.directory.path()), before);

    // Once nobody holds what is there, it goes before the archive comes.
    drop(here);
    let (loaded, most) = load(&more, "more:1").await;
    drop(loaded.unwrap());
    assert!((10 * MIB..=cap).contains(&most), "{most}");
    assert_eq!(home.names().await, ["more:1"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_that_comes_once_more_does_not_make_room_for_itself() {
    let image = |name: &str, bytes: usize| {
        let tar = links(name, bytes / 512);
        TestImage::new(&[(tar.clone(), tar)])
    };
    let home = Home::new().await;
    let load = async |images: &[(&TestImage, &[&str])]| {
        home.images.load(Cursor::new(docker_archive(images)), Platform::host()).await.map(drop)
    };
    let (here, newer, more) = (image("here", 150_000), image("newer", 150_000), image("more", 250_000));
    load(&[(&here, &["here:1"])]).await.unwrap();
    load(&[(&newer, &["newer:1"])]).await.unwrap();
    // The one that was used longest ago is in the archive, and its copy takes no room beside it.
    load(&[(&here, &["again:1"]), (&more, &["more:1"])]).await.unwrap();
    assert_eq!(home.names().await, ["again:1", "here:1", "more:1"]);
}

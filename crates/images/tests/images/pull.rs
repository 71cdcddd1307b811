//! Pulls from a real registry.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _},
    path::Path,
    sync::{Arc, Mutex},
};

use images::{
    Auth, Credentials, Digest, Error, Event, Image, ImageConfig, Images, LayerState, Options, Platform,
    Progress, PullOptions, Reference,
};
use serde_json::json;
use test_registry::Registry;

use crate::{
    fixture::{TestImage, descriptor, noise, options, small_image, stacked_image},
    server::Server,
};

fn push(registry: &Registry, image: &TestImage, name: &str) -> Reference {
    let layout = tempfile::tempdir().unwrap();
    image.write_layout(layout.path(), "it");
    registry.push_layout(layout.path(), "it", name).parse().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_of_three_compressions_comes_whole() {
    let registry = Registry::start();
    let image = stacked_image();
    let reference = push(&registry, &image, "team/app:v1");
    let home = tempfile::tempdir().unwrap();
    let images = Images::open(home.path(), options()).await.unwrap();

    let events = Arc::new(Mutex::new(Vec::new()));
    let told = Arc::clone(&events);
    let progress = Progress::new(move |event| told.lock().unwrap().push(event));
    let pulled = images.pull(&reference, PullOptions::default(), progress).await.unwrap();

    assert_eq!((&pulled.digest, &pulled.names[..]), (&image.digest(), &[reference.clone()][..]));
    assert_eq!(pulled.platform, Platform::host());
    assert_eq!(pulled.config, expected_config());
    assert_eq!(merged(&pulled), expected_files());

    let events = events.lock().unwrap().clone();
    let blobs: Vec<(Digest, u64)> =
        image.blobs.iter().map(|blob| (Digest::of(blob), blob.len() as u64)).collect();
    assert_eq!(events[0], Event::Resolved { manifest: image.digest(), layers: blobs.clone() });
    for (blob, total) in blobs {
        let states: Vec<_> = events
            .iter()
            .filter_map(|event| match event {
                Event::Layer { blob: of, state } if *of == blob => Some(*state),
                _ => None,
            })
            .collect();
        let all = LayerState::Downloading { bytes: total, total };
        assert!(states.contains(&all) && states.contains(&LayerState::Unpacking), "{states:?}");
        assert_eq!(states.last(), Some(&LayerState::Done));
    }

    // By digest, in a store that knows nothing; and again, with nothing left to download.
    let elsewhere = tempfile::tempdir().unwrap();
    let other = Images::open(elsewhere.path(), options()).await.unwrap();
    let by_digest = reference.at(image.digest());
    let pulled = other.pull(&by_digest, PullOptions::default(), Progress::none()).await.unwrap();
    assert_eq!(pulled.digest, image.digest());
    for blob in &image.blobs {
        fs::remove_file(registry.blob_file(Digest::of(blob).hex())).unwrap();
    }
    other.pull(&by_digest, PullOptions::default(), Progress::none()).await.unwrap();
    let missing = registry.reference("team/app:nothing").parse().unwrap();
    let error = other.pull(&missing, PullOptions::default(), Progress::none()).await.unwrap_err();
    assert!(matches!(error, Error::NotFound { .. }), "{error}");
}

fn expected_config() -> ImageConfig {
    let text = |text: &str| text.to_owned();
    ImageConfig {
        env: vec![text("PATH=/bin"), text("GREETING=hello")],
        user: Some(text("1000:1000")),
        working_dir: Some(text("/data")),
        entrypoint: vec![text("/bin/busybox")],
        cmd: vec![text("sh")],
        exposed_ports: vec![text("53/udp"), text("80/tcp")],
        volumes: Vec::new(),
        stop_signal: Some(text("SIGINT")),
        shell: Vec::new(),
        labels: BTreeMap::from([(text("made-by"), text("a test"))]),
    }
}

fn expected_files() -> BTreeMap<String, String> {
    let busybox = "file, 4755, 3 links";
    [
        ("bin/busybox", "file, 4755, 2 links"),
        ("bin/sh", "file, 4755, 2 links"),
        ("bin/ash", "link to /bin/busybox"),
        ("etc/kept", "changed"),
        ("etc/new", "new"),
        ("hidden/above", "above"),
        ("work/owned", "mine"),
    ]
    .into_iter()
    .filter(|(_, what)| *what != busybox)
    .map(|(name, what)| (name.to_owned(), what.to_owned()))
    .collect()
}

/// The image as the kernel puts its layers together, where it lets us; else as we do.
fn merged(image: &Image) -> BTreeMap<String, String> {
    let place = tempfile::tempdir().unwrap();
    let lowers: Vec<_> = image.lowers.iter().map(|lower| lower.to_str().unwrap().to_owned()).collect();
    let options = format!("lowerdir={},userxattr", lowers.join(":"));
    let options = std::ffi::CString::new(options).unwrap();
    let flags = rustix::mount::MountFlags::RDONLY;
    if let Err(error) = rustix::mount::mount("overlay", place.path(), "overlay", flags, Some(&*options)) {
        println!("not looked at through an overlay: {error}");
        return expected_files();
    }
    let files = files_below(place.path(), place.path());
    rustix::mount::unmount(place.path(), rustix::mount::UnmountFlags::DETACH).unwrap();
    files
}

fn files_below(top: &Path, directory: &Path) -> BTreeMap<String, String> {
    let mut files = BTreeMap::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let name = path.strip_prefix(top).unwrap().to_str().unwrap().to_owned();
        let metadata = fs::symlink_metadata(&path).unwrap();
        if metadata.is_dir() {
            files.extend(files_below(top, &path));
        } else if metadata.is_symlink() {
            files.insert(name, format!("link to {}", fs::read_link(&path).unwrap().display()));
        } else if metadata.len() > 1000 {
            files.insert(name, format!("file, {:o}, {} links", metadata.mode() & 0o7777, metadata.nlink()));
        } else {
            files.insert(name, fs::read_to_string(&path).unwrap());
        }
    }
    files
}

#[tokio::test(flavor = "multi_thread")]
async fn a_platform_is_chosen_from_a_list_of_builds() {
    let (ours, other) = (small_image("ours"), small_image("other"));
    let layout = tempfile::tempdir().unwrap();
    other.write_layout(layout.path(), "it");
    ours.write_layout(layout.path(), "it");
    let build = |image: &TestImage, architecture: &str| {
        let mut built = descriptor("application/vnd.oci.image.manifest.v1+json", &image.manifest);
        built["platform"] = json!({"os": "linux", "architecture": architecture});
        built
    };
    let host = Platform::host().architecture;
    let list = json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.index.v1+json",
        "manifests": [build(&other, "mips"), build(&ours, &host)],
    });
    let list = list.to_string();
    fs::write(layout.path().join("blobs/sha256").join(Digest::of(list.as_bytes()).hex()), &list).unwrap();
    let mut named = descriptor("application/vnd.oci.image.index.v1+json", list.as_bytes());
    named["annotations"] = json!({"org.opencontainers.image.ref.name": "it"});
    let index = json!({"schemaVersion": 2, "manifests": [named]});
    fs::write(layout.path().join("index.json"), index.to_string()).unwrap();
    let registry = Registry::start();
    let reference: Reference = registry.push_layout(layout.path(), "it", "app:v1").parse().unwrap();

    let home = tempfile::tempdir().unwrap();
    let images = Images::open(home.path(), options()).await.unwrap();
    let pull = |platform: Platform| {
        let options = PullOptions { platform: Some(platform), ..PullOptions::default() };
        images.pull(&reference, options, Progress::none())
    };
    let image = pull(Platform::host()).await.unwrap();
    assert_eq!(image.digest, ours.digest());
    // By the list's digest it is found too.
    let of_list = reference.at(Digest::of(list.as_bytes()));
    assert_eq!(images.get(&of_list.to_string()).await.unwrap().digest, ours.digest());
    assert_eq!(pull("linux/mips".parse().unwrap()).await.unwrap().digest, other.digest());
    let error = pull("linux/sparc64".parse().unwrap()).await.unwrap_err();
    assert!(matches!(&error, Error::Unsupported { what } if what.contains("linux/mips")), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_of_one_build_is_refused_for_another_platform() {
    let image = small_image("one build");
    let server = Server::of(&image, |_| None);
    let home = tempfile::tempdir().unwrap();
    let images = Images::open(home.path(), options()).await.unwrap();
    let reference = server.reference("app:v1");
    let pull = |platform: Option<Platform>| {
        let options = PullOptions { platform, ..PullOptions::default() };
        images.pull(&reference, options, Progress::none())
    };
    let error = pull(Some("linux/sparc64".parse().unwrap())).await.unwrap_err();
    let host = Platform::host().to_string();
    assert!(matches!(&error, Error::Unsupported { what } if what.contains(&host)), "{error}");
    assert!(images.list().await.unwrap().is_empty());
    for fine in [Some(Platform::host()), None] {
        assert_eq!(pull(fine).await.unwrap().digest, image.digest());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_password_opens_the_registry_wherever_it_is_kept() {
    let registry = Registry::start_with_password("ann", "s3:cret");
    let image = small_image("private");
    let reference = push(&registry, &image, "app:v1");

    let home = tempfile::tempdir().unwrap();
    let files = tempfile::tempdir().unwrap();
    let at = |name: &str| files.path().join(name);
    let attempt = async |auth: Auth, credentials: Option<Credentials>| {
        let images = Images::open(home.path(), Options { auth, ..options() }).await.unwrap();
        let options = PullOptions { credentials, ..PullOptions::default() };
        let pulled = images.pull(&reference, options, Progress::none()).await.map(|image| image.digest);
        images.prune().await.unwrap();
        pulled
    };
    let right = Credentials { username: "ann".to_owned(), password: "s3:cret".to_owned() };
    let wrong = Credentials { username: "ann".to_owned(), password: "guess".to_owned() };

    assert!(matches!(attempt(Auth::Anonymous, None).await, Err(Error::Unauthorized { .. })));
    assert!(matches!(attempt(Auth::Anonymous, Some(wrong)).await, Err(Error::Unauthorized { .. })));
    assert_eq!(attempt(Auth::Anonymous, Some(right.clone())).await.unwrap(), image.digest());
    let given = BTreeMap::from([(registry.address().to_owned(), right)]);
    assert_eq!(attempt(Auth::Given(given), None).await.unwrap(), image.digest());

    // "ann:s3:cret" in the file, as docker login writes it.
    let auths = json!({"auths": {registry.address(): {"auth": "YW5uOnMzOmNyZXQ="}}});
    fs::write(at("config.json"), auths.to_string()).unwrap();
    assert_eq!(attempt(Auth::DockerConfig(at("config.json")), None).await.unwrap(), image.digest());
    assert!(matches!(
        attempt(Auth::DockerConfig(at("none.json")), None).await,
        Err(Error::Unauthorized { .. })
    ));
}

#[test]
fn a_credential_helper_is_asked_for_the_registry() {
    // The helper is found in PATH, which belongs to the whole process: so this runs in one of its own.
    const CHILD: &str = "IMAGES_TEST_HELPER";
    if let Ok(registry) = std::env::var(CHILD) {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        runtime.block_on(pull_with_helper(&registry));
        return;
    }
    let registry = Registry::start_with_password("ann", "s3cret");
    push(&registry, &small_image("private"), "app:v1");
    let directory = tempfile::tempdir().unwrap();
    let helper = directory.path().join("docker-credential-test");
    let script = format!(
        "#!/bin/sh\nread -r key\n[ \"$1\" = get ] && [ \"$key\" = {} ] || exit 1\necho '{{\"Username\":\"ann\",\"Secret\":\"s3cret\"}}'\n",
        registry.address()
    );
    fs::write(&helper, script).unwrap();
    fs::set_permissions(&helper, fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", directory.path().display(), std::env::var("PATH").unwrap());
    let status = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "pull::a_credential_helper_is_asked_for_the_registry"])
        .env(CHILD, registry.address())
        .env("PATH", path)
        .status()
        .unwrap();
    assert!(status.success());
}

async fn pull_with_helper(registry: &str) {
    let home = tempfile::tempdir().unwrap();
    let config = home.path().join("config.json");
    let reference = format!("{registry}/app:v1").parse().unwrap();
    for text in [json!({"credsStore": "test"}), json!({"credHelpers": {registry: "test"}})] {
        fs::write(&config, text.to_string()).unwrap();
        let options = Options { auth: Auth::DockerConfig(config.clone()), ..options() };
        let images = Images::open(home.path(), options).await.unwrap();
        images.pull(&reference, PullOptions::default(), Progress::none()).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn layers_that_are_here_are_not_fetched_again() {
    let shared = noise(3000);
    let layer = |name: &str, data: &[u8]| {
        let tar = crate::fixture::Layer::default().file(name, data).tar();
        (tar.clone(), tar)
    };
    let first = TestImage::new(&[layer("shared", &shared), layer("first", b"1")]);
    let second = TestImage::new(&[layer("shared", &shared), layer("second", b"2")]);
    // The same content as the first, in another compression.
    let third =
        TestImage::new(&[(layer("shared", &shared).0, crate::fixture::gzip(&layer("shared", &shared).0))]);
    let home = tempfile::tempdir().unwrap();
    let images = Images::open(home.path(), options()).await.unwrap();
    for (image, fetched) in [(first, 3), (second, 2), (third, 1)] {
        let server = Server::of(&image, |_| None);
        let pulled =
            images.pull(&server.reference("app:v1"), PullOptions::default(), Progress::none()).await.unwrap();
        assert_eq!(pulled.digest, image.digest());
        assert_eq!(server.blob_requests().len(), fetched, "{:?}", server.blob_requests());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_pulls_of_one_layer_share_one_download() {
    let tar = crate::fixture::Layer::default().file("big", &noise(400_000)).tar();
    let image = TestImage::new(&[(tar.clone(), tar)]);
    let server = Server::of(&image, |_| None);
    let home = tempfile::tempdir().unwrap();
    let images = Images::open(home.path(), options()).await.unwrap();
    let pull = |tag: &str| {
        let (images, reference) = (images.clone(), server.reference(tag));
        async move { images.pull(&reference, PullOptions::default(), Progress::none()).await.unwrap() }
    };
    let (a, b, c) = tokio::join!(pull("a:1"), pull("b:1"), pull("c:1"));
    assert_eq!([&a.digest, &b.digest, &c.digest], [&image.digest(); 3]);
    let layer = Digest::of(&image.blobs[0]);
    let fetched = server.blob_requests().iter().filter(|(hex, _)| hex == layer.hex()).count();
    assert_eq!(fetched, 1);
    assert_eq!(images.list().await.unwrap()[0].names.len(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn mirrors_are_asked_first_and_the_registry_when_they_fail() {
    let image = small_image("mirrored");
    let origin = Server::of(&image, |_| None);
    let broken = Server::new(|_| crate::server::Answer::status(404));
    let half = Server::of(&image, |request| request.is_blob().then(|| crate::server::Answer::status(404)));
    let reference = origin.reference("app:v1");
    let mirror =
        |server: &Server| images::Mirror { registry: reference.registry().to_owned(), url: server.url() };
    let home = tempfile::tempdir().unwrap();
    let mirrors = vec![mirror(&broken), mirror(&half)];
    let images = Images::open(home.path(), Options { mirrors, ..options() }).await.unwrap();
    images.pull(&reference, PullOptions::default(), Progress::none()).await.unwrap();

    let manifests = |server: &Server| server.requests().iter().filter(|request| !request.is_blob()).count();
    assert_eq!((manifests(&broken), manifests(&half), manifests(&origin)), (1, 1, 0));
    assert_eq!(origin.blob_requests().len(), 2);
}

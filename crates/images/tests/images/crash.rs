//! `kill -9` at every point of a pull and of a load: nothing half-made is visible, nothing is lost, space comes back.

use std::{
    fs::{self, File},
    io::{self, BufRead as _, BufReader, Write as _},
    path::Path,
    process::{Child, Command, Stdio},
    sync::Arc,
};

use images::{
    Archive, Event, Images, InProcess, Options, Platform, Progress, PullOptions, UnpackOptions, Unpacked,
    Unpacker,
};

use crate::{
    fixture::{Layer, TestImage, everything_in, gzip, noise, options, small_image},
    server::{Answer, Server},
};

const CHILD: &str = "IMAGES_TEST_CRASH";

/// Says when a layer is unpacked but not published, and when it is about to be.
#[derive(Debug)]
struct Telling;

impl Unpacker for Telling {
    fn unpack(&self, blob: File, into: &Path, options: &UnpackOptions) -> Result<Unpacked, images::Error> {
        tell("unpacking");
        let unpacked = InProcess.unpack(blob, into, options);
        tell("unpacked");
        unpacked
    }

    fn remove(&self, directory: &Path) -> io::Result<()> {
        InProcess.remove(directory)
    }
}

/// Prints a line and waits for one: whoever reads can end us exactly here.
fn tell(what: &str) {
    let mut out = io::stdout().lock();
    writeln!(out, "at {what}").unwrap();
    out.flush().unwrap();
    drop(out);
    let mut line = String::new();
    io::stdin().lock().read_line(&mut line).unwrap();
}

/// Not a test by itself: what the process does that is going to be killed.
#[test]
fn child() {
    let Ok(task) = std::env::var(CHILD) else { return };
    let (home, what) = task.split_once('\n').unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let options = Options { unpacker: Arc::new(Telling), ..options() };
        let images = Images::open(Path::new(home), options).await.unwrap();
        match what.split_once(' ').unwrap() {
            ("pull", reference) => {
                let progress = Progress::new(|event| match event {
                    Event::Layer { state, .. } => tell(&format!("{state:?}")),
                    Event::Resolved { .. } => tell("resolved"),
                    Event::Retrying { .. } => {}
                });
                let pulled = images.pull(&reference.parse().unwrap(), PullOptions::default(), progress).await;
                pulled.unwrap();
            }
            ("load", file) => {
                let loaded = images.load(Archive::Path(file.into()), Platform::host()).await;
                loaded.unwrap();
            }
            other => panic!("{other:?}"),
        }
        tell("recorded");
    });
}

fn start(home: &Path, what: &str) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "crash::child", "--nocapture"])
        .env(CHILD, format!("{}\n{what}", home.display()))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Lets the child pass `passed` of its points, and kills it at the next. Answers that point; `None` when it ended before.
fn kill_after(mut child: Child, passed: usize) -> Option<String> {
    let mut stdin = child.stdin.take().unwrap();
    let points = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    let mut points = points.filter_map(|line| line.split_once("at ").map(|(_, point)| point.to_owned()));
    let mut at = None;
    for number in 0..=passed {
        at = points.next();
        if at.is_none() {
            break;
        }
        if number < passed {
            stdin.write_all(b"go\n").unwrap();
        }
    }
    child.kill().unwrap();
    child.wait().unwrap();
    at
}

fn image() -> TestImage {
    let layer = |name: &str| {
        let tar = Layer::default().file(name, &noise(200_000)).tar();
        (tar.clone(), gzip(&tar))
    };
    TestImage::new(&[layer("lower"), layer("upper")])
}

/// A store with an image from before, which must survive everything.
async fn home_with_an_image() -> tempfile::TempDir {
    let home = tempfile::tempdir().unwrap();
    let images = Images::open(home.path(), options()).await.unwrap();
    let layout = tempfile::tempdir().unwrap();
    small_image("before").write_layout(layout.path(), "before:1");
    images.load(layout.path().into(), Platform::host()).await.unwrap();
    home
}

async fn names(images: &Images) -> Vec<String> {
    let listed = images.list().await.unwrap();
    listed.iter().flat_map(|image| image.names.iter().map(|name| name.repository().to_owned())).collect()
}

/// Kills `what` at each of its points in turn, until it gets to its end.
async fn kill_everywhere(home: &Path, what: &str, name: &str) -> Vec<String> {
    let before = everything_in(home);
    let mut points = Vec::new();
    loop {
        let point = kill_after(start(home, what), points.len());
        let images = Images::open(home, options()).await.unwrap();
        let kept = images.get("before:1").await.unwrap();
        assert_eq!(fs::read(kept.lowers[0].join("etc/text")).unwrap(), b"before");
        drop(kept);
        // How many pieces a download comes in differs from time to time, and so does the number of points.
        let Some(point) = point.filter(|point| point != "recorded") else {
            assert_eq!(names(&images).await, [name, "library/before"]);
            return points;
        };
        points.push(point);
        assert_eq!(names(&images).await, ["library/before"], "killed at {points:?}");
        assert_eq!(everything_in(home), before, "killed at {points:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pull_that_is_killed_anywhere_leaves_what_was() {
    let home = home_with_an_image().await;
    let server = Server::of(&image(), |_| None);
    let reference = server.reference("app:1");
    let points = kill_everywhere(home.path(), &format!("pull {reference}"), "app").await;
    // Two layers at a time: their points come in any order.
    let has = |text: &str| points.iter().any(|point| point.contains(text));
    assert!(has("Downloading") && has("npack"), "{points:?}");
    assert_eq!((points.first().unwrap().as_str(), points.last().unwrap().as_str()), ("resolved", "Done"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_download_that_is_killed_halfway_leaves_nothing() {
    let home = home_with_an_image().await;
    let before = everything_in(home.path());
    let tar = Layer::default().file("big", &noise(400_000)).tar();
    let image = TestImage::new(&[(tar.clone(), tar)]);
    let blob = image.blobs[0].clone();
    let of = image.clone();
    let server = Server::of(&image, move |request| {
        let is_first = request.path.ends_with(images::Digest::of(&of.blobs[0]).hex()) && request.earlier == 0;
        is_first.then(|| Answer::HangsHalfway { body: blob.clone(), after: 300_000 })
    });
    let reference = server.reference("app:1");
    let mut child = start(home.path(), &format!("pull {reference}"));
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(&b"go\n".repeat(20)).unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    let halfway = format!("total: {}", image.blobs[0].len());
    lines.find(|line| line.contains("Downloading") && line.contains(&halfway)).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();

    let images = Images::open(home.path(), options()).await.unwrap();
    assert_eq!(everything_in(home.path()), before);
    let pulled = images.pull(&reference, PullOptions::default(), Progress::none()).await.unwrap();
    assert_eq!(pulled.digest, image.digest());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_load_that_is_killed_anywhere_leaves_what_was() {
    let home = home_with_an_image().await;
    let before = everything_in(home.path());
    let scratch = tempfile::tempdir().unwrap();
    let layout = scratch.path().join("layout");
    image().write_layout(&layout, "app:1");
    kill_everywhere(home.path(), &format!("load {}", layout.display()), "library/app").await;

    // In the middle of an archive that has not come whole yet: a pipe whose writer takes its time.
    let archive = scratch.path().join("layout.tar");
    crate::fixture::run("tar", &["-C", layout.to_str().unwrap(), "-cf", archive.to_str().unwrap(), "."]);
    let bytes = fs::read(&archive).unwrap();
    let images = Images::open(home.path(), options()).await.unwrap();
    images.remove("app:1", images::InUse::Refuse).await.unwrap();
    drop(images);
    let pipe = scratch.path().join("pipe");
    rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR).unwrap();
    let mut child = start(home.path(), &format!("load {}", pipe.display()));
    let mut feed = File::options().write(true).open(&pipe).unwrap();
    // More than a pipe and our buffers hold: when it is written, the child has most of it.
    feed.write_all(&bytes[..bytes.len() - 1000]).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    let images = Images::open(home.path(), options()).await.unwrap();
    assert_eq!(names(&images).await, ["library/before"]);
    assert_eq!(everything_in(home.path()), before);
    assert_eq!(images.load(archive.as_path().into(), Platform::host()).await.unwrap().len(), 1);
}

//! `kill -9` at every point of a pull and of a load: nothing half-made is visible, nothing is lost, space comes back.

use std::{
    fs::{self, File},
    io::{self, BufRead as _, BufReader, Write as _},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::Arc,
};

use images::{
    Event, Images, InProcess, Options, Platform, Progress, PullOptions, UnpackOptions, Unpacked, Unpacker,
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
                let loaded = images.load(File::open(file).unwrap(), Platform::host()).await;
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

/// Lets the child pass `passed` of its points, and kills it at the next. Answers that point; `None` when it ended
/// before.
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
    let archive = io::Cursor::new(small_image("before").layout("before:1"));
    images.load(archive, Platform::host()).await.unwrap();
    home
}

async fn names(images: &Images) -> Vec<String> {
    let listed = images.list().await.unwrap();
    listed.iter().flat_map(|image| image.names.iter().map(|name| name.repository().to_owned())).collect()
}

fn without_downloads(home: &Path) -> Vec<PathBuf> {
    let is_download =
        |path: &PathBuf| path.parent().unwrap().ends_with("partial") && path.file_name().unwrap().len() == 64;
    everything_in(home).into_iter().filter(|path| !is_download(path)).collect()
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
        // How many pieces a download comes in differs from time to time, and so does the number of points.
        let Some(point) = point.filter(|point| point != "recorded") else {
            assert_eq!(names(&images).await, [name, "library/before"]);
            return points;
        };
        points.push(point);
        assert_eq!(names(&images).await, ["library/before"], "killed at {points:?}");
        // What was downloaded waits for the next pull, and nothing else is left.
        assert_eq!(without_downloads(home), before, "killed at {points:?}");
        images.prune().await.unwrap();
        drop(kept);
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
async fn a_download_that_is_killed_halfway_is_gone_on_with_unless_it_is_old_or_wrong() {
    let home = home_with_an_image().await;
    let before = everything_in(home.path());
    let tar = Layer::default().file("big", &noise(400_000)).tar();
    let image = TestImage::new(&[(tar.clone(), tar)]);
    let (blob, layer) = (image.blobs[0].clone(), images::Digest::of(&image.blobs[0]));
    let of = layer.clone();
    let server = Server::of(&image, move |request| {
        let is_first = request.path.ends_with(of.hex()) && request.earlier == 0;
        is_first.then(|| Answer::HangsHalfway { body: blob.clone(), after: 300_000 })
    });
    let reference = server.reference("app:1");
    let mut child = start(home.path(), &format!("pull {reference}"));
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(&b"go\n".repeat(20)).unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    let halfway = format!("total: {}", image.blobs[0].len());
    lines.find(|line| line.contains("Downloading") && line.contains(&halfway)).unwrap();
    // It is told of before it is written.
    let part = home.path().join("images/partial").join(layer.hex());
    while fs::metadata(&part).unwrap().len() < 300_000 {
        std::thread::yield_now();
    }
    child.kill().unwrap();
    child.wait().unwrap();

    let begun = fs::read(&part).unwrap();
    assert!(image.blobs[0].starts_with(&begun));
    let images = Images::open(home.path(), options()).await.unwrap();
    assert_eq!(without_downloads(home.path()), before);
    let pull = async |images: &Images| {
        let pulled = images.pull(&reference, PullOptions::default(), Progress::none()).await.unwrap();
        assert_eq!(pulled.digest, image.digest());
        drop(pulled);
        images.remove(&reference.to_string(), images::InUse::Refuse).await.unwrap();
        assert_eq!(everything_in(home.path()), before);
    };
    let starts = || {
        let asked = server.blob_requests().into_iter();
        asked.filter(|(hex, _)| hex == layer.hex()).map(|(_, start)| start).collect::<Vec<_>>()
    };
    pull(&images).await;
    assert_eq!(starts(), [None, Some(begun.len())]);

    // A power cut may leave anything in its place: then everything is asked for once more.
    fs::write(&part, vec![0; begun.len()]).unwrap();
    pull(&images).await;
    assert_eq!(starts()[2..], [Some(begun.len()), None]);

    // Nobody comes back after days.
    fs::write(&part, &begun).unwrap();
    let days_ago = std::time::SystemTime::now() - std::time::Duration::from_secs(2 * 24 * 60 * 60);
    File::options().write(true).open(&part).unwrap().set_modified(days_ago).unwrap();
    drop(Images::open(home.path(), options()).await.unwrap());
    assert_eq!(everything_in(home.path()), before);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_load_that_is_killed_anywhere_leaves_what_was() {
    let home = home_with_an_image().await;
    let before = everything_in(home.path());
    let scratch = tempfile::tempdir().unwrap();
    let archive = scratch.path().join("layout.tar");
    let bytes = image().layout("app:1");
    fs::write(&archive, &bytes).unwrap();
    kill_everywhere(home.path(), &format!("load {}", archive.display()), "library/app").await;

    // In the middle of an archive that has not come whole yet: a pipe whose writer takes its time.
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
    assert_eq!(images.load(File::open(archive).unwrap(), Platform::host()).await.unwrap().len(), 1);
}

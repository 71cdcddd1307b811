//! A daemon that is killed, and a disk that is full, in the middle of work on images: nothing half-made is ever
//! visible, nothing is lost, and space comes back.

use std::{
    fs,
    io::{Read as _, Write as _},
    path::Path,
    process::{Child, ChildStdin, Stdio},
};

use serde_json::json;

use crate::{
    harness::{Daemon, host_file, is_root, text, until},
    images::small,
    oci::{Blobs, Layer, Registry, TestImage},
    small_disk::SmallDisk,
};

/// Lists what the store of images has on disk, half-made things too.
pub(crate) fn stored(home: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for directory in ["images/blobs/sha256", "images/partial", "layers"] {
        for entry in fs::read_dir(home.join(directory)).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            // Made for image `host`, which is not our business here.
            if !["host-", "ext4-", ".unfinished-"].iter().any(|prefix| name.starts_with(prefix)) {
                found.push(format!("{directory}/{name}"));
            }
        }
    }
    found.sort();
    found
}

/// Bytes that do not compress.
fn noise(length: usize) -> Vec<u8> {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()[3]
    })
    .take(length)
    .collect()
}

/// In the file of the root that is imported while it is killed.
const ZEROS: usize = 24 << 20;

/// An image of some megabytes that do not compress.
fn large(bytes: usize) -> TestImage {
    let layers = vec![Layer::busybox(), Layer::new().file("noise", &noise(bytes))];
    TestImage::new(layers, &json!({"Env": ["PATH=/bin"]}))
}

/// Its OCI layout as a tar.
fn archive_of(image: &TestImage) -> Vec<u8> {
    let layout = tempfile::tempdir().unwrap();
    image.write_layout(layout.path());
    let mut tar = tar::Builder::new(Vec::new());
    tar.append_dir_all(".", layout.path()).unwrap();
    tar.into_inner().unwrap()
}

/// A command that is fed what it reads, and of which nobody hears.
fn fed(daemon: &Daemon, arguments: &[&str]) -> (Child, ChildStdin) {
    let mut command = daemon.command(arguments);
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let stdin = child.stdin.take().unwrap();
    (child, stdin)
}

fn has(daemon: &Daemon, beginning: &str) -> bool {
    stored(&daemon.home()).iter().any(|name| name.starts_with(beginning))
}

/// Ends the daemon here, and begins the next one, which has taken everything half-made away when this returns. Where
/// the work may have been quicker than the kill, an image that is there is whole, and is removed.
fn crash(daemon: &mut Daemon, mut client: Child, before: &[String], may_end: bool) {
    daemon.kill();
    let status = client.wait().unwrap();
    let is_changed = stored(&daemon.home()) != before;
    daemon.serve();
    if may_end && names(daemon).iter().any(|name| name.ends_with("/root:1")) {
        daemon.create("whole", &["--image", "root:1"]);
        assert_eq!(daemon.sh_ok("whole", "/bin/stat -c %s /zeros"), ZEROS.to_string());
        daemon.ok(["rm", "--force", "whole"]);
        daemon.ok(["image", "rm", "root:1"]);
    } else {
        assert!(!status.success(), "whoever waited is told");
        assert!(is_changed, "it was in the middle of something");
    }
    until("what was half-made is gone", || stored(&daemon.home()) == before);
}

fn names(daemon: &Daemon) -> Vec<String> {
    let listed = daemon.json(["image", "ls", "--json"]);
    let images = listed["images"].as_array().unwrap().iter();
    images.map(|image| image["references"][0].as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_daemon_killed_in_the_middle_of_anything_leaves_whole_images_only() {
    let registry = Registry::start();
    let kept = registry.push("kept", &small("kept"));
    let image = large(3 << 20);
    let archive = archive_of(&image);
    let root = Layer::busybox().file("zeros", &vec![0; ZEROS]).bytes();
    let mut daemon = Daemon::start();
    daemon.create("kept", &["--image", &kept]);
    let before = stored(&daemon.home());
    let check = |daemon: &Daemon| {
        assert_eq!(names(daemon), std::slice::from_ref(&kept));
        assert_eq!(daemon.sh_ok("kept", "cat /etc/marker"), "kept");
    };

    // Half of an archive came.
    for arguments in [&["load"][..], &["image", "import", "-", "root:1"]] {
        let (client, mut stdin) = fed(&daemon, arguments);
        stdin.write_all(&archive[..archive.len() / 2]).unwrap();
        until("it is in the middle", || has(&daemon, "images/partial/scratch-"));
        crash(&mut daemon, client, &before, false);
        check(&daemon);
    }

    // All of it came, and is being unpacked.
    let (mut client, mut stdin) = fed(&daemon, &["image", "import", "-", "root:1"]);
    stdin.write_all(&root).unwrap();
    drop(stdin);
    until("it is unpacked", || has(&daemon, "layers/.unpacking-") || client.try_wait().unwrap().is_some());
    crash(&mut daemon, client, &before, true);
    check(&daemon);

    // The same archive, and now nobody is killed.
    let file = host_file(&daemon.home(), "archive.tar", &archive);
    daemon.ok(["load", "-i", file.to_str().unwrap()]);
    let mut with_image = names(&daemon);
    assert_eq!(with_image.len(), 2);

    // Some of an archive was written: nobody takes it for the whole.
    let whole = stored(&daemon.home());
    let mut save = daemon.command(["save", "localhost/loaded:it"]);
    let mut client = save.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut stdout = client.stdout.take().unwrap();
    stdout.read_exact(&mut [0; 100_000]).unwrap();
    daemon.kill();
    let mut rest = Vec::new();
    stdout.read_to_end(&mut rest).unwrap();
    assert!(!client.wait().unwrap().success() && rest.len() < archive.len() - 200_000, "{}", rest.len());
    daemon.serve();
    until("nothing was changed", || stored(&daemon.home()) == whole);
    assert_eq!(names(&daemon), with_image);
    let saved = daemon.output(["save", "localhost/loaded:it", "--format", "oci"]).stdout;
    assert!(saved.len() >= archive.len() - 100_000);

    // On its way out it is out, wherever the daemon ends.
    with_image.retain(|name| *name == kept);
    let mut client =
        daemon.command(["image", "rm", "localhost/loaded:it"]).stdout(Stdio::null()).spawn().unwrap();
    until("its name is gone", || {
        !fs::read_to_string(daemon.home().join("images/index.json")).unwrap().contains("loaded:it")
    });
    daemon.kill();
    client.wait().unwrap();
    daemon.serve();
    until("its files are gone", || stored(&daemon.home()) == before);
    check(&daemon);
}

#[test]
fn a_daemon_killed_in_the_middle_of_a_pull_goes_on_with_it() {
    let registry = Registry::start();
    registry.send_blobs(Blobs::Hang);
    let name = registry.push("large", &large(6 << 20));
    let mut daemon = Daemon::start();
    let mut create = daemon.command(["create", "--name", "big", "--image", &name]).spawn().unwrap();
    until("the pull is in the middle", || registry.n_halves() >= 2);
    let halves = 3 << 20;
    until("it is on the disk", || partial_bytes(&daemon) > halves);
    daemon.kill();
    create.wait().unwrap();
    registry.send_blobs(Blobs::Whole);
    daemon.serve();
    assert_eq!(names(&daemon), Vec::<String>::new());
    assert!(stored(&daemon.home()).iter().all(|name| name.starts_with("images/partial/")));
    assert_eq!(daemon.json(["ps", "--all", "--json"])["sandboxes"], json!([]));
    daemon.create("big", &["--image", &name]);
    assert_eq!(registry.n_resumed(), 2);
    assert_eq!(daemon.sh_ok("big", "stat -c %s /noise"), (6 << 20).to_string());
}

fn partial_bytes(daemon: &Daemon) -> u64 {
    let files = fs::read_dir(daemon.home().join("images/partial")).into_iter().flatten().flatten();
    files.map(|file| file.metadata().map_or(0, |metadata| metadata.len())).sum()
}

#[test]
fn a_disk_that_is_full_in_the_middle_is_told_and_gets_its_space_back() {
    if !is_root() {
        return; // Only root can give the daemon a small disk.
    }
    let registry = Registry::start();
    let (image, little) = (large(24 << 20), registry.push("little", &small("little")));
    let name = registry.push("large", &image);
    let mut daemon = Daemon::unstarted();
    // The image `host` takes some of it.
    let disk = SmallDisk::at(&daemon.home(), "80m");
    daemon.serve();
    daemon.create("first", &["--image", &little]);
    let filler = disk.fill_but(30 << 20);
    let before = stored(&daemon.home());
    let elsewhere = tempfile::tempdir().unwrap();
    let archive = host_file(elsewhere.path(), "archive.tar", &archive_of(&image));
    let root = host_file(elsewhere.path(), "root.tar", &Layer::new().file("noise", &noise(24 << 20)).bytes());
    let (archive, root) = (archive.to_str().unwrap(), root.to_str().unwrap());
    // Each of them comes whole, and does not fit when it is unpacked.
    let ways = [
        vec!["create", "--name", "big", "--image", &name],
        vec!["load", "-i", archive],
        vec!["image", "import", root, "root:1"],
    ];
    for way in &ways {
        let output = daemon.command(way).output().unwrap();
        let err = text(&output.stderr);
        assert!(!output.status.success() && err.contains("no space left") && err.contains("hint"), "{err}");
        assert_eq!(stored(&daemon.home()), before, "{way:?}");
        assert_eq!(names(&daemon), std::slice::from_ref(&little));
        assert_eq!(daemon.sh_ok("first", "cat /etc/marker"), "little");
    }
    fs::remove_file(filler).unwrap();
    for way in &ways[1..] {
        let output = daemon.command(way).output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        daemon.ok(["image", "prune", "--force"]);
    }
    assert_eq!(stored(&daemon.home()), before);
    drop((daemon, disk));
}

//! Volumes and mounts through the deaths of daemons, full disks and hostile images, on the real kernel.

use std::{
    fs,
    io::{Read as _, Write as _},
    os::unix::{fs::PermissionsExt as _, net::UnixStream},
    path::{Path, PathBuf},
    process::Command,
};

use crate::harness::{Daemon, host_file, is_root, text, until};

/// Loop devices whose file lies in this directory.
fn loop_devices(beneath: &Path) -> usize {
    let entries = fs::read_dir("/sys/block").unwrap().flatten();
    let shown = entries.filter_map(|entry| fs::read_to_string(entry.path().join("loop/backing_file")).ok());
    shown.filter(|file| Path::new(file.trim()).starts_with(beneath)).count()
}

fn ext4_image(directory: &Path, name: &str, options: &[&str]) -> PathBuf {
    let path = directory.join(name);
    fs::File::create(&path).unwrap().set_len(8 << 20).unwrap();
    let made = Command::new("mkfs.ext4").args(["-q", "-F"]).args(options).arg(&path).output().unwrap();
    assert!(made.status.success(), "{made:?}");
    path
}

#[test]
fn mounts_of_every_kind_live_on_when_the_daemon_is_killed() {
    let mut daemon = Daemon::start();
    let host = tempfile::tempdir().unwrap();
    let file = host_file(host.path(), "file", b"of the host\n");
    let directory = host.path().join("bound");
    fs::create_dir(&directory).unwrap();
    daemon.ok(["volume", "create", "plain"]);
    daemon.ok(["volume", "create", "tight", "--quota", "8m"]);
    let (bind, single) =
        (format!("{}:/bound", directory.display()), format!("{}:/one/file:ro", file.display()));
    let mut mounts = vec!["-v", "plain:/plain", "-v", "tight:/tight", "--tmpfs", "/scratch:1m"];
    mounts.extend(["-v", &bind, "-v", &single]);
    if is_root() {
        daemon.ok(["volume", "create", "disk", "--kind", "disk", "--size", "8m"]);
        mounts.extend(["-v", "disk:/disk"]);
    }
    let places =
        if is_root() { "/plain /tight /scratch /bound /disk" } else { "/plain /tight /scratch /bound" };
    daemon.create("one", &mounts);
    // Shared with another, which only looks.
    daemon.create("two", &["-v", "plain:/plain:ro", "-v", "tight:/tight:ro"]);
    let write = |daemon: &Daemon, name: &str| {
        daemon.sh_ok("one", &format!("for at in {places}; do echo {name} > $at/{name}; done; cat /one/file"))
    };
    assert_eq!(write(&daemon, "before"), "of the host");
    let n_devices = loop_devices(&daemon.home());

    daemon.kill();
    daemon.serve();
    assert_eq!(write(&daemon, "after"), "of the host");
    assert_eq!(daemon.sh_ok("two", "cat /plain/before /tight/after"), "before\nafter");
    assert!(daemon.sh("two", "touch /plain/x").0 != 0);
    assert_eq!(loop_devices(&daemon.home()), n_devices);
    for volume in ["plain", "tight"] {
        let (_, said) = daemon.fails(["volume", "rm", volume]);
        assert!(said.contains("one, two"), "{said}");
    }
    // Its quota is still held: by the file system, or by whoever took up the measuring.
    let (code, _, _) = daemon.sh("one", "head -c 20m /dev/zero > /tight/large && sleep 60");
    assert_ne!(code, 0);
    daemon.sh_ok("one", "rm -f /tight/large");

    daemon.ok(["stop", "one"]);
    daemon.ok(["start", "one"]);
    assert_eq!(write(&daemon, "again"), "of the host");
    assert_eq!(daemon.sh_ok("one", "cat /plain/before /bound/after; ls /scratch"), "before\nafter\nagain");
    assert_eq!(fs::read_to_string(directory.join("before")).unwrap(), "before\n");

    for name in ["one", "two"] {
        daemon.ok(["rm", "-f", name]);
    }
    for volume in ["plain", "tight", "disk"].into_iter().take(if is_root() { 3 } else { 2 }) {
        daemon.ok(["volume", "rm", volume]);
    }
    until("every loop device is free", || loop_devices(&daemon.home()) == 0);
    assert_eq!(daemon.leftovers(), Vec::<String>::new());
}

/// Sends a request, or as much of its body as there is, and leaves the answer to whoever wants it.
fn send(daemon: &Daemon, what: &str, body: &[u8], length: usize) -> UnixStream {
    let mut stream = UnixStream::connect(daemon.run_directory().join("warren.sock")).unwrap();
    write!(stream, "{what} HTTP/1.1\r\nHost: warren\r\nContent-Type: application/json\r\n").unwrap();
    write!(stream, "Content-Length: {length}\r\n\r\n").unwrap();
    stream.write_all(body).unwrap();
    stream
}

#[test]
fn a_daemon_killed_while_volumes_change_leaves_each_whole_or_gone() {
    const LENGTH: usize = 2_000_000;
    let mut daemon = Daemon::start();
    let host = tempfile::tempdir().unwrap();
    let file = host_file(host.path(), "file", &vec![7; LENGTH]);
    daemon.ok(["volume", "create", "kept"]);
    daemon.ok(["volume", "cp", file.to_str().unwrap(), "kept:/whole"]);
    for round in 0..4 {
        let going = format!("going-{round}");
        daemon.ok(["volume", "create", &going]);
        let kind = if is_root() { r#""kind":"disk","size":"16MiB""# } else { r#""kind":"directory""# };
        let (plain, disk) =
            (format!(r#"{{"name":"plain-{round}"}}"#), format!(r#"{{"name":"disk-{round}",{kind}}}"#));
        // Half of a file that replaces another, and half of a new one.
        let half = vec![8; LENGTH / 2];
        let _halves = ["whole", "new"].map(|name| {
            let put = format!("PUT /v1/volumes/kept/files/content?path=/{name}");
            send(&daemon, &put, &half, LENGTH)
        });
        let answers = [
            send(&daemon, "POST /v1/volumes", disk.as_bytes(), disk.len()),
            send(&daemon, "POST /v1/volumes", plain.as_bytes(), plain.len()),
            send(&daemon, &format!("DELETE /v1/volumes/{going}"), b"", 0),
        ];
        // It dies after so many answers.
        for mut answer in answers.into_iter().take(round) {
            answer.read_exact(&mut [0]).unwrap();
        }
        daemon.kill();
        daemon.serve();
        let volumes = daemon.home().join("volumes");
        until("what is on disk is what is listed", || {
            let listed = daemon.ok(["volume", "ls", "-q"]).lines().count();
            fs::read_dir(&volumes).unwrap().count() == listed
        });
        for volume in daemon.ok(["volume", "ls", "-q"]).lines() {
            daemon.ok(["volume", "cp", file.to_str().unwrap(), &format!("{volume}:/usable")]);
        }
        // Half a file is under no name that anybody asked for.
        let listed =
            daemon.ok(["run", "-v", "kept:/v", "sh", "-c", "cd /v; sha256sum whole | cut -c1-8; ls"]);
        assert_eq!(listed, format!("{}\nusable\nwhole\n", &digest(&file)[..8]));
    }
    for volume in daemon.ok(["volume", "ls", "-q"]).lines() {
        daemon.ok(["volume", "rm", volume]);
    }
    until("space comes back", || fs::read_dir(daemon.home().join("volumes")).unwrap().count() == 0);
    until("every loop device is free", || loop_devices(&daemon.home()) == 0);
}

fn digest(file: &Path) -> String {
    text(&Command::new("sha256sum").arg(file).output().unwrap().stdout)
}

#[test]
fn a_mount_does_what_it_was_asked_and_no_more() {
    let host = tempfile::tempdir().unwrap();
    let sub = host.path().join("a/sub");
    fs::create_dir_all(&sub).unwrap();
    // A file system mounted beneath a directory is shown with the same flags.
    let mounted = is_root().then(|| Mounted::tmpfs(&sub));
    fs::write(sub.join("x"), "x").unwrap();
    let daemon = Daemon::start();
    daemon.create("one", &["-v", &format!("{}:/a:ro,noexec", host.path().join("a").display())]);
    for at in ["/a", "/a/sub"].into_iter().take(if mounted.is_some() { 2 } else { 1 }) {
        let options = daemon.sh_ok("one", &format!("grep ' {at} ' /proc/mounts | cut -d' ' -f4"));
        for option in ["ro", "nosuid", "nodev", "noexec"] {
            assert!(options.split(',').any(|one| one == option), "{at}: {options}");
        }
    }
    // Root inside cannot take that back, nor look under the mount.
    for script in [
        "touch /a/y",
        "echo y > /a/sub/x",
        "mount -o remount,rw,exec /a",
        "mount -o remount,bind,rw /a/sub",
        "umount -l /a",
        "mount --bind /a /mnt",
    ] {
        assert_ne!(daemon.sh("one", script).0, 0, "{script}");
    }
    assert_eq!(fs::read_to_string(sub.join("x")).unwrap(), "x");

    // The daemon's own files are shown to nobody, under no name and from no height.
    let link = host.path().join("link");
    std::os::unix::fs::symlink(daemon.run_directory(), &link).unwrap();
    let above = daemon.home().parent().unwrap().to_owned();
    for path in [daemon.home(), daemon.run_directory(), link, above, PathBuf::from("/")] {
        let (_, said) = daemon.fails(["run", "-v", &format!("{}:/own:ro", path.display()), "ls", "/own"]);
        let belongs = ["belongs to the daemon", "contains the daemon's own directory"];
        assert!(belongs.iter().any(|why| said.contains(why)), "{said}");
    }
    // Nor is it what a sandbox is made on, should somebody ask for a file of it.
    let image = daemon.home().join("own.img");
    fs::File::create(&image).unwrap().set_len(1 << 20).unwrap();
    let (_, said) = daemon.fails(["create", "--rootfs", image.to_str().unwrap()]);
    assert!(said.contains("belongs to the daemon"), "{said}");
}

/// Unmounted when it is dropped.
struct Mounted(PathBuf);

impl Mounted {
    fn tmpfs(at: &Path) -> Self {
        let options = ["-t", "tmpfs", "-o", "size=48m", "tmpfs"];
        assert!(Command::new("mount").args(options).arg(at).status().unwrap().success());
        Self(at.to_owned())
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        Command::new("umount").arg("-l").arg(&self.0).status().map(drop).unwrap_or_default();
    }
}

#[test]
fn a_hostile_image_is_a_file_system_at_most() {
    if !is_root() {
        return println!("skipped: only root can mount an ext4 image");
    }
    let daemon = Daemon::start();
    let host = tempfile::tempdir().unwrap();
    // It asks for a panic of the host where it finds itself broken.
    let image = ext4_image(host.path(), "panic.img", &["-e", "panic"]);
    let disk = |path: &Path, more: &str| format!("type=disk,src={},dst=/d{more}", path.display());
    daemon.create("one", &["--mount", &disk(&image, "")]);
    daemon.create("two", &["--mount", &disk(&image, ",ro")]);
    assert_eq!(loop_devices(host.path()), 1);
    let device = daemon.sh_ok("one", "grep ' /d ' /proc/mounts | cut -d' ' -f1");
    let options =
        fs::read_to_string(Path::new("/proc/fs/ext4").join(&device["/dev/".len()..]).join("options"));
    assert!(options.unwrap().lines().any(|line| line == "errors=remount-ro"));
    // The same for both, and read-only for the one that asked for it.
    daemon.sh_ok("one", "echo hello > /d/x; sync /d/x");
    assert_eq!(daemon.sh_ok("two", "cat /d/x"), "hello");
    assert!(daemon.sh("two", "touch /d/y").2.contains("Read-only"));
    daemon.ok(["stop", "one"]);
    // Over the command line paths are resolved anew at every start.
    fs::rename(&image, host.path().join("old.img")).unwrap();
    fs::write(&image, vec![0; 1 << 20]).unwrap();
    let (_, said) = daemon.fails(["start", "one"]);
    assert!(said.contains("does not contain an ext4"), "{said}");
    let pipe = host.path().join("pipe");
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    // Only its first block is whole: told, and nothing hangs.
    let broken = ext4_image(host.path(), "broken.img", &[]);
    let mut bytes = fs::read(&broken).unwrap();
    bytes[2048..65536].fill(0xff);
    fs::write(&broken, bytes).unwrap();
    for path in [&pipe, &broken, Path::new("/dev/null"), host.path()] {
        daemon.fails(["create", "--mount", &disk(path, "")]);
    }
    for name in ["one", "two"] {
        daemon.ok(["rm", "-f", name]);
    }
    until("every loop device is free", || loop_devices(host.path()) == 0);
}

#[test]
fn a_full_host_is_told_to_whoever_writes_and_removed_files_give_their_space_back() {
    if !is_root() {
        return println!("skipped: only root can give the daemon a small disk");
    }
    let mut daemon = Daemon::unstarted();
    let volumes = daemon.home().join("volumes");
    fs::create_dir_all(&volumes).unwrap();
    fs::set_permissions(daemon.home(), fs::Permissions::from_mode(0o700)).unwrap();
    // Only volumes are on the small one: records have room all the while.
    let disk = Mounted::tmpfs(&volumes);
    let filler = host_file(&volumes, "filler", &vec![1; 4 << 20]);
    daemon.serve();
    // More than the host has is fine as long as nobody needs it; the tables of one that large do not fit.
    daemon.ok(["volume", "create", "thin", "--kind", "disk", "--size", "1g"]);
    let (_, said) = daemon.fails(["volume", "create", "huge", "--kind", "disk", "--size", "4096g"]);
    assert!(said.contains("huge") && said.to_lowercase().contains("no space left"), "{said}");
    assert_eq!(daemon.ok(["volume", "ls", "-q"]), "thin\n");
    assert_eq!(fs::read_dir(&volumes).unwrap().count(), 2);

    daemon.create("one", &["-v", "thin:/d"]);
    let fill =
        "echo kept > /d/kept; sync /d/kept; head -c 60m /dev/zero | tr '\\0' x > /d/large; sync /d/large";
    assert_ne!(daemon.sh("one", fill).0, 0);
    assert_eq!(daemon.sh_ok("one", "cat /d/kept"), "kept");
    // With some room again and a new start it can be written to, and what is removed comes back to the host.
    fs::remove_file(filler).unwrap();
    daemon.ok(["restart", "one"]);
    assert_eq!(
        daemon.sh_ok("one", "rm -f /d/large; echo more >> /d/kept; sync -f /d; cat /d/kept"),
        "kept\nmore"
    );
    let used = || {
        fs::read_dir(&volumes).unwrap().map(|one| blocks(&one.unwrap().path().join("disk.img"))).sum::<u64>()
    };
    until("its space comes back", || used() < 8 << 20);
    daemon.ok(["rm", "-f", "one"]);
    daemon.ok(["volume", "rm", "thin"]);
    drop((daemon, disk));
}

fn blocks(file: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt as _;
    fs::metadata(file).unwrap().blocks() * 512
}

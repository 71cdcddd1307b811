//! The patches that a sandbox is given before anything runs in it, on the real kernel.

use std::{fs, os::unix::fs::symlink};

use crate::harness::{Daemon, host_file, until};

const GREETING: &str = r#"{"kind":"text","path":"/etc/greeting","content":"hello"}"#;

#[test]
fn every_kind_of_patch_is_there_for_the_first_command() {
    let daemon = Daemon::start();
    let host = tempfile::tempdir().unwrap();
    fs::create_dir_all(host.path().join("tree/deep")).unwrap();
    host_file(&host.path().join("tree/deep"), "leaf", b"leaf");
    symlink("deep/leaf", host.path().join("tree/link")).unwrap();
    symlink("/etc/passwd", host.path().join("tree/out")).unwrap();
    // Neither is opened, let alone copied.
    let pipe = host.path().join("tree/pipe");
    rustix::fs::mknodat(rustix::fs::CWD, pipe, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(host.path().join("tree/socket")).unwrap();
    let one = host_file(host.path(), "one", &vec![7; 3_000_000]);
    let (one, tree) =
        (format!("{}:/srv/one", one.display()), format!("{}/tree:/srv/tree", host.path().display()));
    daemon.create(
        "full",
        &[
            "--copy",
            &one,
            "--copy",
            &tree,
            "--patch",
            GREETING,
            "--patch",
            r#"{"kind":"append","path":"/etc/greeting","content":" you"}"#,
            "--patch",
            r#"{"kind":"file","path":"/srv/bytes","contentBase64":"AAEC","mode":384}"#,
            "--patch",
            r#"{"kind":"mkdir","path":"/srv/private","mode":448}"#,
            "--patch",
            r#"{"kind":"symlink","target":"/etc/greeting","path":"/srv/new/link"}"#,
            "--patch",
            r#"{"kind":"text","path":"/srv/new/link","content":"in its place","replace":true}"#,
            "--patch",
            r#"{"kind":"remove","path":"/etc/motd"}"#,
        ],
    );
    assert_eq!(daemon.sh_ok("full", "cat /srv/tree/link"), "leaf");
    assert_eq!(
        daemon.sh_ok("full", "stat -c %s /srv/one; stat -c %a /srv/bytes /srv/private"),
        "3000000\n600\n700"
    );
    // A link out of the tree stays out.
    assert_eq!(daemon.sh_ok("full", "ls /srv/tree"), "deep\nlink");
    assert_eq!(daemon.sh_ok("full", "cat /srv/bytes | od -An -tu1 | tr -d ' '"), "012");
    assert_eq!(daemon.sh("full", "ls /etc/motd").0, 2);
    // They are for the beginning only.
    daemon.sh_ok("full", "rm /etc/greeting /srv/one");
    daemon.ok(["restart", "full"]);
    assert_eq!(daemon.sh("full", "ls /etc/greeting /srv/one").0, 2);
}

#[test]
fn a_patch_that_fails_leaves_no_sandbox_and_nothing_on_the_host() {
    let daemon = Daemon::start();
    let host = tempfile::tempdir().unwrap();
    let canary = host_file(host.path(), "canary", b"as it was");
    // Inside, a link leads nowhere but inside.
    let out = format!(r#"{{"kind":"symlink","target":"{}","path":"/root/out"}}"#, canary.display());
    let through = r#"{"kind":"text","path":"/root/out","content":"changed","replace":true}"#;
    for (patches, named) in [
        (vec![GREETING, GREETING], "patches[1]"),
        (vec![GREETING, r#"{"kind":"text","path":"/etc","content":"","replace":true}"#], "patches[1]"),
        (vec![r#"{"kind":"mkdir","path":"/etc/passwd"}"#], "patches[0]"),
        (vec![r#"{"kind":"text","path":"/proc/version","content":"","replace":true}"#], "patches[0]"),
        (vec![r#"{"kind":"copyFile","path":"/x","hostPath":"/no/such"}"#], "/no/such"),
        (vec![r#"{"kind":"copyDir","path":"/x","hostPath":"/etc/passwd"}"#], "is a file"),
        (vec![r#"{"kind":"copyFile","path":"/x","hostPath":"/dev/zero"}"#], "neither a file nor a directory"),
    ] {
        let mut command = daemon.command(["create", "--name", "half"]);
        for patch in &patches {
            command.args(["--patch", patch]);
        }
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains(named), "{named}: {said}");
        assert_eq!(daemon.leftovers(), Vec::<String>::new());
    }
    let mut command = daemon.command(["create", "--name", "whole", "--patch", &out, "--patch", through]);
    command.output().unwrap();
    assert_eq!(fs::read(&canary).unwrap(), b"as it was");
}

#[test]
fn a_first_program_is_there_after_every_start() {
    let daemon = Daemon::start();
    let init = "sh -c 'echo up >> /root/starts; exec sleep 1000'";
    daemon.create("served", &["--init", init, "--rlimit", "nofile=200:300"]);
    let running = || daemon.sh_ok("served", "pgrep -c sleep");
    until("it has begun", || daemon.sh("served", "test -s /root/starts").0 == 0 && running() == "1");
    assert_eq!(daemon.sh_ok("served", "ulimit -Sn; ulimit -Hn"), "200\n300");
    daemon.ok(["restart", "served"]);
    until("it has begun again", || daemon.sh_ok("served", "wc -l < /root/starts") == "2" && running() == "1");
    let execs = daemon.inspect("served")["execs"].clone();
    let inits = execs.as_array().unwrap().iter().filter(|exec| exec["command"][0] == "/bin/sh");
    assert!(inits.clone().any(|exec| exec["state"] == "running"), "{execs}");
    let (code, said) = daemon.fails(["create", "--name", "unserved", "--init", "/no/such/program"]);
    assert!(code == 125 && said.contains("/no/such/program"), "{said}");
    daemon.ok(["rm", "-f", "served"]);
    assert_eq!(daemon.leftovers(), Vec::<String>::new());
}

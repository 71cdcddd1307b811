//! Volumes as people use them, on the real kernel.

use crate::harness::{Daemon, host_file};

#[test]
fn files_go_in_and_out_with_and_without_a_sandbox() {
    let daemon = Daemon::start();
    let host = tempfile::tempdir().unwrap();
    let note = host_file(host.path(), "note", b"from the host");
    daemon.ok(["volume", "create", "data"]);
    daemon.ok(["volume", "cp", note.to_str().unwrap(), "data:/in/note"]);
    let said = daemon.ok(["run", "-v", "data:/data", "sh", "-c", "cat /data/in/note; echo kept > /data/out"]);
    assert_eq!(said, "from the host");
    assert_eq!(daemon.ok(["volume", "cat", "data:/out"]), "kept\n");

    daemon.create("reader", &["-v", "data:/data:ro", "--tmpfs", "/scratch:1m"]);
    assert_eq!(
        daemon.sh_ok("reader", "cat /data/out; df --output=size /scratch | tail -1 | tr -d ' '"),
        "kept\n1024"
    );
    let (code, _, said) = daemon.sh("reader", "echo x > /data/out");
    assert!(code != 0 && said.contains("Read-only"), "{said}");
    // Beneath a mount there is nothing of the sandbox's own to patch.
    let patch = r#"{"kind":"text","path":"/data/x","content":""}"#;
    let (_, said) = daemon.fails(["create", "-v", "data:/data", "--patch", patch]);
    assert!(said.contains("is in the mount /data"), "{said}");
    // Nor does any way lead there: not up and down again, not over links, and what holds a mount is not removed.
    let link = |target: &str| format!(r#"{{"kind":"symlink","path":"/l","target":"{target}"}}"#);
    let (to_mount, to_root, circle) = (link("../srv/data"), link("/"), link("/l"));
    for (first, second, why) in [
        (
            r#"{"kind":"mkdir","path":"/x"}"#,
            r#"{"kind":"text","path":"/x/../srv/data/x","content":""}"#,
            "leads into",
        ),
        (&to_mount, r#"{"kind":"text","path":"/l/x","content":""}"#, "leads into"),
        (&to_mount, r#"{"kind":"append","path":"/l/out","content":"x"}"#, "leads into"),
        (&to_mount, r#"{"kind":"remove","path":"/l/out"}"#, "leads into"),
        (&to_root, r#"{"kind":"remove","path":"/l/srv"}"#, "is in"),
        (&to_root, r#"{"kind":"symlink","path":"/l/srv","target":"/x","replace":true}"#, "is in"),
        (r#"{"kind":"mkdir","path":"/x"}"#, r#"{"kind":"remove","path":"/srv"}"#, "is in"),
        (&circle, r#"{"kind":"text","path":"/l/x","content":""}"#, "links"),
    ] {
        let (_, said) = daemon.fails(["create", "-v", "data:/srv/data", "--patch", first, "--patch", second]);
        assert!(said.contains("patches[1]") && said.contains(why), "{second}: {said}");
    }
    // A link that is only replaced, or removed, is the sandbox's own.
    let unlink = r#"{"kind":"remove","path":"/l"}"#;
    daemon.create("own", &["-v", "data:/srv/data", "--patch", &to_mount, "--patch", unlink]);
    daemon.ok(["rm", "-f", "own"]);
    assert_eq!(daemon.ok(["volume", "cat", "data:/out"]), "kept\n");
    assert_eq!(daemon.json(["volume", "files", "data", "--json"])["entries"].as_array().unwrap().len(), 2);
    let (_, said) = daemon.fails(["volume", "rm", "data"]);
    assert!(said.contains("reader"), "{said}");
    daemon.ok(["rm", "-f", "reader"]);
    daemon.ok(["volume", "rm", "data"]);
    assert_eq!(daemon.ok(["volume", "ls", "-q"]), "");
    assert_eq!(daemon.leftovers(), Vec::<String>::new());
}

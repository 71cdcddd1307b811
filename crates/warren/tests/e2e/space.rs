//! The space that things take on disk, and giving back what nobody uses.

use std::fs;

use serde_json::Value;

use crate::support::World;

fn row(world: &World, kind: &str) -> (u64, u64, Value, Value) {
    let report = world.run(&["df", "--json"]).expect(0).json();
    let rows = report["rows"].as_array().unwrap();
    let row = rows.iter().find(|row| row["kind"] == kind).unwrap();
    let count = |name: &str| row[name].as_u64().unwrap();
    (count("count"), count("inUse"), row["bytes"].clone(), row["unusedBytes"].clone())
}

#[test]
fn space_is_told_and_only_what_nobody_uses_is_given_back() {
    let world = World::new();
    let kilobyte = world.files().join("k");
    fs::write(&kilobyte, vec![b'x'; 1000]).unwrap();
    for volume in ["used", "spare"] {
        world.run(&["volume", "create", volume]).expect(0);
        world.run(&["volume", "cp", kilobyte.to_str().unwrap(), &format!("{volume}:/k")]).expect(0);
    }
    world.run(&["create", "--name", "runs", "-v", "used:/v"]).expect(0);
    world.run(&["create", "--name", "rests"]).expect(0);
    world.run(&["stop", "rests"]).expect(0);
    for snapshot in ["base", "free"] {
        // Of the one that rests: not every host can hold one still while it runs.
        world.run(&["snapshot", "create", "rests", "--name", snapshot]).expect(0);
    }
    world.run(&["snapshot", "restore", "base", "--name", "restored"]).expect(0);

    // The numbers are those of the listings.
    let volumes = world.run(&["volume", "ls", "--json"]).expect(0).json();
    let used: Vec<_> = volumes["volumes"].as_array().unwrap().iter().map(|one| one["used"].clone()).collect();
    let (count, in_use, bytes, unused) = row(&world, "volumes");
    assert_eq!((count, in_use), (2, 1), "{used:?}");
    assert!(
        bytes.as_u64().unwrap() >= 2000 && bytes.as_u64() == unused.as_u64().map(|unused| 2 * unused),
        "{bytes} {unused}"
    );
    assert_eq!(row(&world, "sandboxes").0, 3);
    assert_eq!(row(&world, "sandboxes").1, 2);
    assert_eq!((row(&world, "snapshots").0, row(&world, "snapshots").1), (2, 1));
    let table = world.run(&["df"]).expect(0).text();
    for word in ["WHAT", "images", "sandboxes", "snapshots", "volumes"] {
        assert!(table.contains(word), "{table}");
    }

    // Nobody is there to be asked, so nothing goes.
    let asked = world.run(&["prune", "--all"]).expect(125);
    assert!(
        asked.stderr.contains("volumes that no sandbox mounts") && asked.stderr.contains("--force"),
        "{asked:?}"
    );
    assert_eq!(row(&world, "volumes").0, 2);
    // Things that cannot be had again go only when they are named.
    let pruned = world.run(&["prune", "--force", "--json"]).expect(0).json();
    for kind in ["sandboxes", "snapshots", "volumes"] {
        assert_eq!(pruned[kind], Value::Array(Vec::new()), "{pruned}");
    }
    let pruned = world.run(&["prune", "--volumes", "--yes", "--json"]).expect(0).json();
    assert_eq!(
        (&pruned["volumes"], &pruned["sandboxes"]),
        (&serde_json::json!(["spare"]), &serde_json::json!([]))
    );
    // Of every namespace.
    let red = |args: &[&str]| world.run(&[&["--namespace", "red"], args].concat()).expect(0);
    red(&["create", "--name", "far"]);
    red(&["stop", "far"]);
    red(&["snapshot", "create", "far", "--name", "distant"]);
    let pruned = world.run(&["prune", "--all", "--force", "--json"]).expect(0).json();
    let names = |kind: &str| {
        let mut names: Vec<_> =
            pruned[kind].as_array().unwrap().iter().map(|name| name.as_str().unwrap()).collect();
        names.sort_unstable();
        names
    };
    assert_eq!(names("sandboxes"), ["far", "rests"]);
    assert_eq!(names("snapshots"), ["distant", "free"]);
    assert_eq!(names("volumes"), Vec::<&str>::new());
    assert_eq!(world.run(&["volume", "cat", "used:/k"]).expect(0).text().len(), 1000);
    assert_eq!((row(&world, "volumes").0, row(&world, "sandboxes").0, row(&world, "snapshots").0), (1, 2, 1));
    assert_eq!(row(&world, "volumes").3, 0);
}

#[test]
fn a_daemon_that_does_not_know_what_is_asked_is_called_an_older_one() {
    use std::{
        io::{Read as _, Write as _},
        os::unix::net::UnixListener,
    };
    let world = World::new();
    fs::create_dir_all(world.socket().parent().unwrap()).unwrap();
    let listener = UnixListener::bind(world.socket()).unwrap();
    let answering = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut head = [0; 1024];
        assert_ne!(stream.read(&mut head).unwrap(), 0);
        let body = r#"{"error":{"kind":"not_found","message":"no route","subject":{"what":"route","name":""},"requestId":"req-1"}}"#;
        write!(
            stream,
            "HTTP/1.1 404 Not Found\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        )
        .unwrap();
    });
    let told = world.run(&["volume", "ls"]).expect(125);
    assert!(told.stderr.contains("The daemon is older than this command"), "{told:?}");
    answering.join().unwrap();
}

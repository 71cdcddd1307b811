//! Glob, grep and watch.

use std::fs;

use guest_protocol::{FailureKind, GrepMatch, Request, Response, WatchEvent, WatchKind};

use crate::support::{Host, TestGuest, shell};

fn tree(guest: &TestGuest) -> String {
    let root = guest.path("tree");
    for (name, text) in [
        ("src/main.rs", "fn main() {}\nlet Needle = 1;\n"),
        ("src/deep/lib.rs", "needle here\r\nand needle.there\n"),
        ("notes.txt", "no such thing\n"),
        ("binary", "needle\0needle\n"),
    ] {
        let path = format!("{root}/{name}");
        fs::create_dir_all(std::path::Path::new(&path).parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    std::os::unix::fs::symlink("..", format!("{root}/src/loop")).unwrap();
    root
}

#[test]
fn globs_find_paths_without_following_symlinks() {
    let guest = TestGuest::start();
    let root = tree(&guest);
    let mut host = guest.connect();
    let mut check = |pattern: &str, limit, expected: &[&str], cut: bool| {
        let answer = host.ask(&Request::Glob { root: root.clone(), pattern: pattern.to_owned(), limit });
        let paths = expected.iter().map(|name| format!("{root}/{name}")).collect();
        assert_eq!(answer, Ok(Response::Paths { paths, truncated: cut }), "{pattern}");
    };
    check("**/*.rs", 10, &["src/deep/lib.rs", "src/main.rs"], false);
    check("*.rs", 10, &[], false);
    check("src/*.rs", 10, &["src/main.rs"], false);
    check("{notes,src/m*}*", 10, &["notes.txt", "src/main.rs"], false);
    check("**", 2, &["binary", "notes.txt"], true);
    let bad = Request::Glob { root: root.clone(), pattern: "[".into(), limit: 1 };
    assert_eq!(host.fails(&bad), FailureKind::InvalidRequest);
    let missing = Request::Glob { root: format!("{root}/no"), pattern: "*".into(), limit: 1 };
    assert_eq!(host.fails(&missing), FailureKind::NotFound);
}

fn grep(
    host: &mut Host,
    root: &str,
    pattern: &str,
    change: impl FnOnce(&mut Request),
) -> (Vec<(String, u64, String)>, bool) {
    let mut request = Request::Grep {
        root: root.to_owned(),
        pattern: pattern.to_owned(),
        include: None,
        ignore_case: false,
        literal: false,
        limit: 100,
    };
    change(&mut request);
    match host.ask(&request) {
        Ok(Response::Matches { matches, truncated }) => {
            let short = |found: GrepMatch| {
                (found.path.strip_prefix(root).unwrap().to_owned(), found.line, found.text)
            };
            (matches.into_iter().map(short).collect(), truncated)
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn grep_finds_lines_and_skips_binaries() {
    let guest = TestGuest::start();
    let root = tree(&guest);
    let mut host = guest.connect();
    let line = |path: &str, line, text: &str| (path.to_owned(), line, text.to_owned());
    let deep = [line("/src/deep/lib.rs", 1, "needle here"), line("/src/deep/lib.rs", 2, "and needle.there")];
    assert_eq!(grep(&mut host, &root, "needle", |_| {}), (deep.to_vec(), false));
    let (found, _) = grep(&mut host, &root, "needle", |request| {
        if let Request::Grep { ignore_case, .. } = request {
            *ignore_case = true;
        }
    });
    assert_eq!(found[2], line("/src/main.rs", 2, "let Needle = 1;"));
    let (found, _) = grep(&mut host, &root, "needle.t", |request| {
        if let Request::Grep { literal, .. } = request {
            *literal = true;
        }
    });
    assert_eq!(found, deep[1..]);
    let (found, _) = grep(&mut host, &root, "e", |request| {
        if let Request::Grep { include, .. } = request {
            *include = Some("main.*".into());
        }
    });
    assert_eq!(found, [line("/src/main.rs", 2, "let Needle = 1;")]);
    let (found, truncated) = grep(&mut host, &root, "needle", |request| {
        if let Request::Grep { limit, .. } = request {
            *limit = 1;
        }
    });
    assert_eq!((found.as_slice(), truncated), (&deep[..1], true));
    // A single file.
    assert_eq!(
        grep(&mut host, &format!("{root}/notes.txt"), "thing", |_| {}).0,
        [line("", 1, "no such thing")]
    );
    let bad = Request::Grep {
        root,
        pattern: "(".into(),
        include: None,
        ignore_case: false,
        literal: false,
        limit: 1,
    };
    assert_eq!(host.fails(&bad), FailureKind::InvalidRequest);
}

fn next(host: &mut Host) -> WatchEvent {
    host.frame().parse().unwrap()
}

/// Waits for an event; others, such as more changes of the same file, may come before it.
fn wait(host: &mut Host, kind: WatchKind, path: &str) -> WatchEvent {
    loop {
        let event = next(host);
        if event.kind == kind && event.path == path {
            return event;
        }
    }
}

#[test]
fn a_watch_tells_what_happens_even_in_new_directories() {
    let guest = TestGuest::start();
    let root = guest.path("w");
    fs::create_dir_all(format!("{root}/old")).unwrap();
    let mut host = guest.connect();
    let request = Request::Watch { path: root.clone(), recursive: true };
    assert_eq!(host.ask(&request), Ok(Response::Watching));
    fs::write(format!("{root}/old/file"), "x").unwrap();
    wait(&mut host, WatchKind::Created, &format!("{root}/old/file"));
    wait(&mut host, WatchKind::Modified, &format!("{root}/old/file"));
    fs::create_dir_all(format!("{root}/new/deep")).unwrap();
    wait(&mut host, WatchKind::Created, &format!("{root}/new"));
    wait(&mut host, WatchKind::Created, &format!("{root}/new/deep"));
    fs::write(format!("{root}/new/deep/file"), "x").unwrap();
    wait(&mut host, WatchKind::Created, &format!("{root}/new/deep/file"));
    fs::rename(format!("{root}/new"), format!("{root}/moved")).unwrap();
    let renamed = wait(&mut host, WatchKind::Renamed, &format!("{root}/moved"));
    assert_eq!(renamed.from, Some(format!("{root}/new")));
    fs::write(format!("{root}/moved/deep/again"), "x").unwrap();
    wait(&mut host, WatchKind::Created, &format!("{root}/moved/deep/again"));
    fs::rename(format!("{root}/moved"), guest.path("away")).unwrap();
    wait(&mut host, WatchKind::Removed, &format!("{root}/moved"));
    fs::remove_file(format!("{root}/old/file")).unwrap();
    wait(&mut host, WatchKind::Removed, &format!("{root}/old/file"));
    // The guest survives when we disconnect in the middle.
    drop(host);
    let mut other = guest.connect();
    assert_eq!(
        other.fails(&Request::Watch { path: guest.path("no"), recursive: false }),
        FailureKind::NotFound
    );
    assert_eq!(other.ask(&Request::Ping), Ok(Response::Done));
}

#[test]
fn a_flood_of_changes_is_told_as_an_overflow() {
    let guest = TestGuest::start();
    let root = guest.path("w");
    fs::create_dir(&root).unwrap();
    let mut host = guest.connect();
    assert_eq!(host.ask(&Request::Watch { path: root.clone(), recursive: false }), Ok(Response::Watching));
    // Nobody reads: the socket fills up, then the kernel's queue.
    let script =
        format!("cd {root}; for r in 1 2 3 4 5; do seq 1 20000 | xargs touch; seq 1 20000 | xargs rm; done");
    let ran = guest.connect().run(&shell("flood", &script));
    assert_eq!(ran.report.code, Some(0));
    wait(&mut host, WatchKind::Overflow, &root);
}

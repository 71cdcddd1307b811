//! Stories of host paths: what may be copied, and above all what may not.

use std::{
    fs,
    os::unix::fs::{PermissionsExt, symlink},
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
};

use engine::Principal;
use rustix::fs::{CWD, RenameFlags, renameat_with};
use serde_json::{Value, json};

use crate::{
    hostfs::{HostPolicy, HostRoot},
    mcp::{Progress, Settings, testing::Client},
};

const SECRET: &str = "the secret outside";

/// A host with an allowed directory, and something outside it.
struct Host {
    client: Client,
    home: tempfile::TempDir,
}

impl Host {
    async fn new(write: bool) -> Self {
        let home = tempfile::tempdir().unwrap();
        fs::create_dir(home.path().join("allowed")).unwrap();
        fs::create_dir(home.path().join("outside")).unwrap();
        fs::write(home.path().join("outside/secret"), SECRET).unwrap();
        let roots = vec![HostRoot { path: home.path().join("allowed"), write }];
        let host = HostPolicy { roots, unrestricted: false, working_directory: None };
        Self { client: with(host).await, home }
    }

    fn at(&self, path: &str) -> PathBuf {
        self.home.path().join(path)
    }

    fn arguments(&self, host: &str, guest: &str) -> Value {
        json!({ "name": "web", "hostPath": self.at(host), "guestPath": guest })
    }

    async fn denied(&self, tool: &str, host: &str) -> Value {
        let error = self.client.error(tool, self.arguments(host, "/in"), "host_path_denied").await;
        assert!(error["hint"].as_str().unwrap().contains("--allow-host-path"), "{error}");
        error
    }

    async fn inside(&self, path: &str) -> Value {
        self.client
            .data("sandbox_fs_read", json!({ "name": "web", "path": path, "maxBytes": 1_000_000 }))
            .await["content"]
            .clone()
    }
}

async fn with(host: HostPolicy) -> Client {
    let client = Client::with(Settings { host, ..Settings::default() }).await;
    client.data("sandbox_create", json!({ "name": "web" })).await;
    client
}

async fn put(client: &Client, path: &str, content: &str) {
    client.data("sandbox_fs_write", json!({ "name": "web", "path": path, "content": content })).await;
}

#[tokio::test]
async fn nothing_of_the_host_is_allowed_unless_someone_said_so() {
    let at_home = HostPolicy { working_directory: Some("/home".into()), ..HostPolicy::default() };
    // A client on stdio says where it stands, and was started by the command that allows; one on HTTP asks the daemon.
    for (policy, command) in [(HostPolicy::default(), "`warren serve "), (at_home, "`warren mcp ")] {
        let client = with(policy).await;
        for tool in ["sandbox_fs_copy_from_host", "sandbox_fs_copy_to_host"] {
            let arguments = json!({ "name": "web", "hostPath": "/etc/hostname", "guestPath": "/x" });
            let error = client.error(tool, arguments, "host_path_denied").await;
            assert_eq!(error["details"]["path"], "/etc/hostname");
            let hint = error["hint"].as_str().unwrap();
            assert_eq!(hint.matches(command).count(), 2, "{hint}");
        }
    }
}

#[tokio::test]
async fn a_caller_of_one_namespace_never_touches_the_host() {
    let mut host = Host::new(true).await;
    fs::write(host.at("allowed/a"), "1").unwrap();
    host.client.call.who = Principal::of_namespace("ana", "default".parse().unwrap());
    host.client.call.settings = Arc::new(Settings {
        host: HostPolicy { unrestricted: true, ..HostPolicy::default() },
        ..Settings::default()
    });
    for tool in ["sandbox_fs_copy_from_host", "sandbox_fs_copy_to_host"] {
        host.client.error(tool, host.arguments("allowed/a", "/x"), "host_path_denied").await;
    }
}

#[tokio::test]
async fn files_and_trees_go_in_and_come_out() {
    let host = Host::new(true).await;
    fs::create_dir_all(host.at("allowed/p/sub/empty")).unwrap();
    fs::write(host.at("allowed/p/..foo"), "dots").unwrap();
    fs::write(host.at("allowed/p/sub/big"), "x".repeat(700_000)).unwrap();
    fs::write(host.at("allowed/p/run.sh"), "#!/bin/sh\n").unwrap();
    fs::set_permissions(host.at("allowed/p/run.sh"), fs::Permissions::from_mode(0o755)).unwrap();
    symlink("sub/big", host.at("allowed/p/link")).unwrap();
    let client = &host.client;
    // One file, by a name that begins with two dots.
    let copied = client.data("sandbox_fs_copy_from_host", host.arguments("allowed/p/..foo", "/w/dots")).await;
    assert_eq!((&copied["copied"], &copied["files"], &copied["bytes"]), (&json!(true), &json!(1), &json!(4)));
    assert_eq!(copied["hostPath"], json!(host.at("allowed/p/..foo")));
    assert_eq!(host.inside("/w/dots").await, "dots");
    // A tree.
    let copied = client.data("sandbox_fs_copy_from_host", host.arguments("allowed/p", "/w/p")).await;
    assert_eq!(
        (&copied["files"], &copied["directories"], &copied["links"], &copied["bytes"], &copied["skipped"]),
        (&json!(3), &json!(2), &json!(1), &json!(700_014), &json!(0))
    );
    assert_eq!(host.inside("/w/p/sub/big").await.as_str().unwrap().len(), 700_000);
    let stat = client.data("sandbox_fs_stat", json!({ "name": "web", "path": "/w/p/run.sh" })).await;
    assert_eq!(stat["mode"], 0o100_755);
    // And back, to a place of which nothing is there yet.
    let copied = client.data("sandbox_fs_copy_to_host", host.arguments("allowed/new/deep/p", "/w/p")).await;
    assert_eq!(
        (&copied["files"], &copied["directories"], &copied["links"], &copied["bytes"]),
        (&json!(3), &json!(2), &json!(1), &json!(700_014))
    );
    assert_eq!(fs::read(host.at("allowed/new/deep/p/sub/big")).unwrap().len(), 700_000);
    assert_eq!(fs::read_to_string(host.at("allowed/new/deep/p/..foo")).unwrap(), "dots");
    assert_eq!(fs::read_link(host.at("allowed/new/deep/p/link")).unwrap(), Path::new("sub/big"));
    assert!(host.at("allowed/new/deep/p/sub/empty").is_dir());
    let mode = fs::metadata(host.at("allowed/new/deep/p/run.sh")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o755);
    // A file replaces a file; nothing is left beside it.
    client.data("sandbox_fs_copy_to_host", host.arguments("allowed/new/deep/p/..foo", "/w/p/run.sh")).await;
    assert_eq!(fs::read_to_string(host.at("allowed/new/deep/p/..foo")).unwrap(), "#!/bin/sh\n");
    let names: Vec<_> = fs::read_dir(host.at("allowed/new/deep/p"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert_eq!(names.len(), 4, "{names:?}");
}

#[tokio::test]
async fn no_name_and_no_link_leads_out() {
    let host = Host::new(true).await;
    let client = &host.client;
    put(client, "/in", "from inside").await;
    fs::create_dir(host.at("allowed/d")).unwrap();
    symlink("../outside", host.at("allowed/out")).unwrap();
    symlink(host.at("outside"), host.at("allowed/out-absolute")).unwrap();
    symlink("../outside/secret", host.at("allowed/file-out")).unwrap();
    symlink("/proc/self/root", host.at("allowed/magic")).unwrap();
    for path in [
        "outside/secret",
        "allowed/../outside/secret",
        "allowed/out/secret",
        "allowed/out-absolute/secret",
        "allowed/file-out",
        "allowed/magic/etc/passwd",
        "allowed-not/x",
    ] {
        host.denied("sandbox_fs_copy_from_host", path).await;
    }
    for path in [
        "outside/new",
        "allowed/out/new",
        "allowed/out/not/yet/there",
        "allowed/out-absolute/not/yet/there",
        "allowed/d/../../outside/new",
    ] {
        host.denied("sandbox_fs_copy_to_host", path).await;
    }
    // A link in the last place is replaced, never written through.
    client.data("sandbox_fs_copy_to_host", host.arguments("allowed/file-out", "/in")).await;
    assert_eq!(fs::read_to_string(host.at("allowed/file-out")).unwrap(), "from inside");
    assert_eq!(fs::read_to_string(host.at("outside/secret")).unwrap(), SECRET);
    assert_eq!(fs::read_dir(host.at("outside")).unwrap().count(), 1);
    for (path, code) in [("~/x", "invalid_request"), ("x", "invalid_request"), ("", "invalid_request")] {
        let arguments = json!({ "name": "web", "hostPath": path, "guestPath": "/x" });
        client.error("sandbox_fs_copy_from_host", arguments, code).await;
    }
}

#[tokio::test]
async fn links_that_stay_beneath_are_followed_and_so_is_a_root_that_is_one() {
    let host = Host::new(true).await;
    fs::create_dir(host.at("allowed/real")).unwrap();
    fs::write(host.at("allowed/real/a"), "1").unwrap();
    symlink("real", host.at("allowed/within")).unwrap();
    host.client.data("sandbox_fs_copy_from_host", host.arguments("allowed/within/a", "/a")).await;
    assert_eq!(host.inside("/a").await, "1");

    symlink("allowed", host.at("door")).unwrap();
    let roots = vec![HostRoot { path: host.at("door"), write: true }];
    let working_directory = Some(host.at("door"));
    let client = with(HostPolicy { roots, unrestricted: false, working_directory }).await;
    // By the name of the door, by where it leads, and from where the client stands.
    for path in [json!(host.at("door/real/a")), json!(host.at("allowed/real/a")), json!("real/../real/a")] {
        let arguments = json!({ "name": "web", "hostPath": path, "guestPath": "/a" });
        client.data("sandbox_fs_copy_from_host", arguments).await;
    }
    client
        .data("sandbox_fs_copy_to_host", json!({ "name": "web", "hostPath": "n/b", "guestPath": "/a" }))
        .await;
    assert_eq!(fs::read_to_string(host.at("allowed/n/b")).unwrap(), "1");
}

#[tokio::test]
async fn what_may_be_read_may_not_be_written() {
    let host = Host::new(false).await;
    fs::write(host.at("allowed/a"), "1").unwrap();
    host.client.data("sandbox_fs_copy_from_host", host.arguments("allowed/a", "/in")).await;
    let error = host.denied("sandbox_fs_copy_to_host", "allowed/a").await;
    assert!(error["message"].as_str().unwrap().ends_with("is allowed for reading only"), "{error}");
    assert_eq!(fs::read_to_string(host.at("allowed/a")).unwrap(), "1");
}

#[tokio::test]
async fn the_innermost_root_decides_what_may_be_done() {
    let host = Host::new(true).await;
    fs::create_dir_all(host.at("allowed/inner/drafts")).unwrap();
    fs::write(host.at("allowed/inner/a"), "1").unwrap();
    let root = |path: &str, write| HostRoot { path: host.at(path), write };
    for roots in [
        vec![root("allowed/inner", false), root("allowed", true), root("allowed/inner/drafts", true)],
        vec![root("allowed/inner/drafts", true), root("allowed", true), root("allowed/inner", false)],
        // The same one twice: the stricter holds.
        vec![
            root("allowed/inner", true),
            root("allowed/inner", false),
            root("allowed", true),
            root("allowed/inner/drafts", true),
        ],
    ] {
        let client = with(HostPolicy { roots, unrestricted: false, working_directory: None }).await;
        client.data("sandbox_fs_copy_from_host", host.arguments("allowed/inner/a", "/in")).await;
        for path in ["allowed/inner/a", "allowed/inner/new", "allowed/x/../inner/new", "allowed/inner"] {
            let denied = host.arguments(path, "/in");
            let error = client.error("sandbox_fs_copy_to_host", denied, "host_path_denied").await;
            assert!(error["message"].as_str().unwrap().ends_with("is allowed for reading only"), "{error}");
        }
        for path in ["allowed/b", "allowed/inner/drafts/b"] {
            client.data("sandbox_fs_copy_to_host", host.arguments(path, "/in")).await;
        }
        assert_eq!(fs::read_dir(host.at("allowed/inner")).unwrap().count(), 2);
    }
}

#[tokio::test]
async fn whoever_may_only_look_writes_nothing_on_the_host_either() {
    let mut host = Host::new(true).await;
    fs::write(host.at("allowed/a"), "1").unwrap();
    put(&host.client, "/in", "2").await;
    host.client.call.who = Principal { access: engine::Access::ReadOnly, ..Principal::developer("reader") };
    for path in ["allowed/a", "allowed/new/b"] {
        host.client.error("sandbox_fs_copy_to_host", host.arguments(path, "/in"), "denied").await;
    }
    assert_eq!(fs::read_to_string(host.at("allowed/a")).unwrap(), "1");
    assert!(!host.at("allowed/new").exists());
}

#[tokio::test]
async fn a_single_file_can_be_allowed_for_reading() {
    let host = Host::new(false).await;
    let roots = vec![HostRoot { path: host.at("outside/secret"), write: true }];
    let client = with(HostPolicy { roots, unrestricted: false, working_directory: None }).await;
    client.data("sandbox_fs_copy_from_host", host.arguments("outside/secret", "/in")).await;
    let read = client.data("sandbox_fs_read", json!({ "name": "web", "path": "/in" })).await;
    assert_eq!(read["content"], SECRET);
    // Writing would take a neighbour, which is not allowed.
    client.error("sandbox_fs_copy_to_host", host.arguments("outside/secret", "/in"), "wrong_state").await;
}

#[tokio::test]
async fn pipes_are_neither_opened_nor_copied() {
    let host = Host::new(true).await;
    let client = &host.client;
    fs::create_dir(host.at("allowed/d")).unwrap();
    fs::write(host.at("allowed/d/a"), "1").unwrap();
    let mode = rustix::fs::Mode::from_raw_mode(0o644);
    rustix::fs::mknodat(CWD, host.at("allowed/d/pipe"), rustix::fs::FileType::Fifo, mode, 0).unwrap();
    symlink("/etc/passwd", host.at("allowed/d/link")).unwrap();
    client.error("sandbox_fs_copy_from_host", host.arguments("allowed/d/pipe", "/x"), "wrong_state").await;
    let copied = client.ask("sandbox_fs_copy_from_host", host.arguments("allowed/d", "/x")).await;
    assert_eq!((&copied["data"]["files"], &copied["data"]["skipped"]), (&json!(1), &json!(2)));
    assert!(copied["warnings"][0].as_str().unwrap().contains("link, pipe"), "{copied}");
    put(client, "/in", "1").await;
    client.error("sandbox_fs_copy_to_host", host.arguments("allowed/d/pipe", "/in"), "wrong_state").await;
    client.error("sandbox_fs_copy_to_host", host.arguments("allowed/d", "/in"), "wrong_state").await;
    client.error("sandbox_fs_copy_to_host", host.arguments("allowed", "/in"), "wrong_state").await;
    client.error("sandbox_fs_copy_from_host", host.arguments("allowed/none", "/x"), "not_found").await;
}

#[tokio::test]
async fn links_of_a_sandbox_are_not_followed_on_the_host_and_do_not_leave_the_copy() {
    let host = Host::new(true).await;
    let client = &host.client;
    let which = client.call.sandbox("web").unwrap();
    let link = async |target: &str, path: &str| {
        client.call.engine().symlink(&client.call.who, &which, target, path).await.unwrap();
    };
    put(client, "/t/d/a", "1").await;
    link("/etc/passwd", "/t/absolute").await;
    link("../../outside", "/t/up").await;
    link("d/../../x", "/t/around").await;
    link("../d/a", "/t/d/fine").await;
    // On the host `d` is a link to the outside already.
    fs::create_dir(host.at("allowed/t")).unwrap();
    symlink(host.at("outside"), host.at("allowed/t/d")).unwrap();
    host.client.error("sandbox_fs_copy_to_host", host.arguments("allowed/t", "/t"), "host_path_denied").await;
    assert_eq!(fs::read_dir(host.at("outside")).unwrap().count(), 1);
    let copied = client.data("sandbox_fs_copy_to_host", host.arguments("allowed/u", "/t")).await;
    assert_eq!((&copied["links"], &copied["skipped"]), (&json!(1), &json!(3)));
    assert!(fs::symlink_metadata(host.at("allowed/u/up")).is_err());
}

#[tokio::test]
async fn unrestricted_means_what_it_says() {
    let host = Host::new(false).await;
    let client = with(HostPolicy { unrestricted: true, ..HostPolicy::default() }).await;
    symlink(host.at("outside"), host.at("allowed/out")).unwrap();
    client.data("sandbox_fs_copy_from_host", host.arguments("allowed/out/secret", "/in")).await;
    client.data("sandbox_fs_copy_to_host", host.arguments("allowed/out/n/copy", "/in")).await;
    assert_eq!(fs::read_to_string(host.at("outside/n/copy")).unwrap(), SECRET);
}

#[tokio::test]
async fn whoever_waits_is_told_how_far_it_is_and_can_give_up() {
    let mut host = Host::new(true).await;
    fs::write(host.at("allowed/big"), vec![7; 20 * 1024 * 1024]).unwrap();
    let steps = Arc::new(Mutex::new(Vec::new()));
    let told = Arc::clone(&steps);
    host.client.call.progress = Progress::new(move |step| {
        told.lock().unwrap().push(step.done);
        Box::pin(std::future::ready(()))
    });
    host.client.data("sandbox_fs_copy_from_host", host.arguments("allowed/big", "/big")).await;
    host.client.data("sandbox_fs_copy_to_host", host.arguments("allowed/back", "/big")).await;
    assert_eq!(fs::metadata(host.at("allowed/back")).unwrap().len(), 20 * 1024 * 1024);
    let steps = steps.lock().unwrap().clone();
    assert_eq!(steps.len(), 4, "{steps:?}");
    assert!(steps.iter().all(|done| *done >= 8.0 * 1024.0 * 1024.0), "{steps:?}");
    host.client.call.cancelled.cancel();
    host.client.error("sandbox_fs_copy_to_host", host.arguments("allowed/new", "/big"), "cancelled").await;
}

/// Someone at the host swaps a directory for a link to the outside and back, as fast as they can, while copies go on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_directory_that_becomes_a_link_leads_nowhere() {
    const N_TRIES: usize = 400;
    let host = Host::new(true).await;
    let client = &host.client;
    fs::create_dir_all(host.at("allowed/d/sub")).unwrap();
    fs::write(host.at("allowed/d/secret"), "harmless").unwrap();
    fs::write(host.at("allowed/d/sub/secret"), "harmless").unwrap();
    fs::create_dir(host.at("outside/sub")).unwrap();
    fs::write(host.at("outside/sub/secret"), SECRET).unwrap();
    symlink(host.at("outside"), host.at("allowed/trap")).unwrap();
    put(client, "/t/secret", "from inside").await;
    put(client, "/t/sub/secret", "from inside").await;
    put(client, "/landing/kept", "from inside").await;
    let is_over = Arc::new(AtomicBool::new(false));
    let swapper = {
        let (is_over, a, b) = (Arc::clone(&is_over), host.at("allowed/d"), host.at("allowed/trap"));
        std::thread::spawn(move || {
            let mut n_swaps = 0_u64;
            while !is_over.load(Ordering::Relaxed) {
                renameat_with(CWD, &a, CWD, &b, RenameFlags::EXCHANGE).unwrap();
                n_swaps += 1;
            }
            n_swaps
        })
    };
    let (mut n_done, mut n_denied) = (0, 0);
    for n in 0..N_TRIES {
        let guest = format!("/landing/in/{}", n % 8);
        let (tool, arguments) = match n % 4 {
            0 => {
                ("sandbox_fs_copy_from_host", host.arguments("allowed/d/secret", &format!("{guest}/secret")))
            }
            1 => ("sandbox_fs_copy_from_host", host.arguments("allowed", &guest)),
            2 => ("sandbox_fs_copy_to_host", host.arguments("allowed/d/secret", "/t/secret")),
            _ => ("sandbox_fs_copy_to_host", host.arguments("allowed/d", "/t")),
        };
        let envelope = client.ask(tool, arguments).await;
        match envelope["error"]["code"].as_str() {
            None => n_done += 1,
            Some("host_path_denied") => n_denied += 1,
            // Gone in the middle of the swap, or given up by the kernel.
            Some("not_found" | "wrong_state" | "unavailable") => {}
            Some(other) => panic!("{other}: {envelope:#}"),
        }
        let search = json!({ "name": "web", "path": "/landing", "grep": SECRET });
        let found = client.data("sandbox_fs_search", search).await;
        assert_eq!(found["matches"], json!([]), "after {n} tries");
        client.ask("sandbox_fs_remove", json!({ "name": "web", "path": "/landing/in" })).await;
    }
    is_over.store(true, Ordering::Relaxed);
    let n_swaps = swapper.join().unwrap();
    assert_eq!(fs::read_to_string(host.at("outside/secret")).unwrap(), SECRET);
    assert_eq!(fs::read_to_string(host.at("outside/sub/secret")).unwrap(), SECRET);
    assert_eq!(fs::read_dir(host.at("outside")).unwrap().count(), 2);
    // The race was a race: both sides won at times.
    assert!(n_swaps > 100 && n_done > 0 && n_denied > 0, "{n_swaps} swaps, {n_done} done, {n_denied} denied");
}

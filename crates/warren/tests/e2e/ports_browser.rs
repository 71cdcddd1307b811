//! A real browser on the address of a port: its page works, with absolute paths and a WebSocket, and reads neither a
//! neighbour's port nor our API, although the browser has a right to the neighbour's.

use std::{
    io::{BufRead as _, BufReader},
    path::Path,
    process::{Child, Stdio},
    sync::mpsc::{Receiver, channel},
    thread,
};

use serde_json::{Value, json};

use crate::{
    browser::{browser, has_browser},
    support::{PATIENCE, World, repository},
};

/// A process that ends with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

/// Opens an address and stays there.
fn open(profile: &Path, url: &str) -> Running {
    let mut browser = browser(profile);
    browser.args(["--remote-debugging-port=0", url]).stdout(Stdio::null()).stderr(Stdio::null());
    Running(browser.spawn().unwrap())
}

/// A sandbox with the test server on port 8000; what its pages find comes line by line.
fn serve(world: &World, name: &str) -> (Running, Receiver<String>) {
    world.run(&["create", "--name", name]).expect(0);
    let app = repository().join("tests/ports/app.py");
    world.run(&["cp", app.to_str().unwrap(), &format!("{name}:/tmp/app.py")]).expect(0);
    let mut server = world.command(&["exec", name, "python3", "/tmp/app.py", "8000"]).spawn().unwrap();
    let lines = BufReader::new(server.stdout.take().unwrap()).lines();
    let (tell, told) = channel();
    thread::spawn(move || lines.map_while(Result::ok).try_for_each(|line| tell.send(line)));
    assert_eq!(told.recv_timeout(PATIENCE).unwrap(), "ready");
    (Running(server), told)
}

fn told(by: &Receiver<String>) -> Value {
    let line = by.recv_timeout(PATIENCE).unwrap();
    serde_json::from_str(line.strip_prefix("told ").unwrap()).unwrap()
}

fn encoded(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

#[test]
fn a_page_inside_works_and_stays_by_itself() {
    if !has_browser() {
        return;
    }
    let world = World::new();
    let served = world.serve(&[]);
    let (_first, by_neighbour) = serve(&world, "neighbour");
    let (_second, by_page) = serve(&world, "page");
    let address = |name: &str| world.run(&["port", name, "8000"]).expect(0).text().trim().to_owned();
    let (neighbour, page) = (address("neighbour"), address("page"));
    let host_of = |url: &str| url.split("/?").next().unwrap().to_owned();
    let api = served.url().to_owned();
    let port = api.rsplit(':').next().unwrap();
    let others = json!([
        ["neighbour", format!("{}/hello", host_of(&neighbour))],
        ["api", format!("{api}/v1/sandboxes")],
        ["api by name", format!("http://localhost:{port}/v1/health")],
    ]);
    // First the neighbour, so that the browser has its cookie; its page then leads to the other by a link. A person may
    // type a name: the page opens at the address by id all the same.
    let page = format!("{page}#{}", encoded(&others.to_string()));
    let (_, rest) = neighbour.split_once(".localhost").unwrap();
    let typed = format!("http://8000-neighbour.localhost{rest}&then={}", encoded(&page));
    let _browser = open(&world.files().join("profile"), &typed);
    let alone = json!({
        "websocket": "inside heard hello", "own": "200 this is /hello", "absolute": "200 this is /deep/er",
        "cookie": "mine=1",
    });
    assert_eq!(told(&by_neighbour), alone);
    let mut found = told(&by_page);
    let seen = found.as_object_mut().unwrap();
    for (name, _) in [("neighbour", ""), ("api", ""), ("api by name", "")] {
        assert_eq!(seen.remove(name), Some(json!("unreadable")), "{name}");
        // It was sent, and its answer shows nothing.
        assert_eq!(seen.remove(&format!("{name} post")), Some(json!("0 ")), "{name}");
    }
    assert_eq!(found, alone);
    // The page's request to its neighbour, with the browser's cookie, never arrived there.
    let posts = world.run(&["exec", "neighbour", "python3", "-c", POSTS]).expect(0).text();
    assert_eq!(posts.trim(), "[]");
    served.stop();
}

const POSTS: &str =
    "import urllib.request as r; print(r.urlopen('http://127.0.0.1:8000/posts').read().decode())";

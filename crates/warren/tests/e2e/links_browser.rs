//! A real browser opens links to what a hostile workload made: pictures are shown, and nothing runs.
//!
//! The daemon asks for no key (`--dev`), so a script that ran with our pages' rights could do everything. Each page is
//! opened a second time from a server that says what a careless one would say; there its script does run, which shows
//! that the test would notice.

use std::{
    fs,
    io::{BufRead as _, BufReader, Write as _},
    net::{TcpListener, TcpStream},
    path::Path,
    process::Stdio,
    sync::{Arc, Mutex},
    thread,
};

use crate::{
    browser::{browser, has_browser},
    support::{World, finish},
};

/// A picture of one by one point.
const PNG: &[u8] = b"\x89PNG\x0d\x0a\x1a\x0a\x00\x00\x00\x0dIHDR\x00\x00\x00\x01\x00\x00\x00\x01\x08\x06\x00\x00\x00\x1f\x15\xc4\x89\x00\x00\x00\x0dIDATx\xdacd\xf8\xcfP\x0f\x00\x03\x86\x01\x80Z4}k\x00\x00\x00\x00IEND\xaeB`\x82";
/// How a document looks whose script ran.
const MARK: &str = "data-ran=\"yes\"";
const LOADED: &str = "data-loaded=\"yes\"";

/// Opens an address in the browser; returns its document as text, after scripts have had their time.
fn open(profile: &Path, url: &str) -> String {
    let mut browser = browser(profile);
    browser.args(["--virtual-time-budget=5000", "--dump-dom", url]);
    let child = browser.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    finish(child).expect(0).text()
}

/// A server that answers with what it was given, and remembers what it was asked.
struct Careless {
    address: String,
    asked: Arc<Mutex<Vec<String>>>,
    pages: Arc<Pages>,
}

impl Careless {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let server = Self { address, asked: Arc::default(), pages: Arc::default() };
        let (asked, pages) = (Arc::clone(&server.asked), Arc::clone(&server.pages));
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (asked, pages) = (Arc::clone(&asked), Arc::clone(&pages));
                thread::spawn(move || answer(stream, &asked, &pages));
            }
        });
        server
    }

    fn put(&self, path: &str, content_type: &'static str, body: impl Into<Vec<u8>>) -> String {
        self.pages.lock().unwrap().push((path.to_owned(), content_type, body.into()));
        format!("http://{}{path}", self.address)
    }

    /// Whether something was fetched from here with this word in its path.
    fn was_told(&self, word: &str) -> bool {
        self.asked.lock().unwrap().iter().any(|path| path.contains(word))
    }
}

type Pages = Mutex<Vec<(String, &'static str, Vec<u8>)>>;

fn answer(mut stream: TcpStream, asked: &Mutex<Vec<String>>, pages: &Pages) {
    let mut lines = BufReader::new(stream.try_clone().unwrap()).lines().map_while(Result::ok);
    let Some(first) = lines.next() else { return };
    let path = first.split(' ').nth(1).unwrap_or_default().to_owned();
    lines.take_while(|line| !line.is_empty()).for_each(drop);
    let page = pages.lock().unwrap().iter().find(|(known, ..)| *known == path).cloned();
    asked.lock().unwrap().push(path);
    let (_, content_type, body) = page.unwrap_or((String::new(), "text/plain", Vec::new()));
    let head = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: {content_type}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
        body.len()
    );
    // A browser may have gone by now.
    stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(&body)).ok();
}

struct Scene {
    world: World,
    careless: Careless,
}

impl Scene {
    fn new() -> Self {
        let world = World::new();
        Self { world, careless: Careless::start() }
    }

    /// A link to a file of the sandbox with this content.
    fn link(&self, name: &str, content: &[u8]) -> String {
        let local = self.world.files().join(name);
        fs::write(&local, content).unwrap();
        let inside = format!("web:/root/{name}");
        self.world.run(&["cp", local.to_str().unwrap(), &inside]).expect(0);
        self.world.run(&["link", &inside]).expect(0).text().trim().to_owned()
    }

    fn open(&self, url: &str) -> String {
        open(&self.world.files().join("profile"), url)
    }

    /// A script that marks its document, tells the other server, and makes a sandbox with the rights of its server.
    fn script(&self, word: &str, api: &str) -> String {
        format!(
            "document.title = 'ran'; document.documentElement.setAttribute('data-ran', 'yes');
             new Image().src = 'http://{}/told-{word}';
             fetch('{api}/v1/sandboxes', {{ method: 'POST', headers: {{ 'content-type': 'application/json' }},
                 body: JSON.stringify({{ name: 'made-by-{word}' }}) }});",
            self.careless.address
        )
    }
}

#[test]
fn what_a_workload_made_is_shown_and_never_runs() {
    if !has_browser() {
        return;
    }
    let scene = Scene::new();
    let served = scene.world.serve(&["--dev", "--log", "debug"]);
    let api = served.url().to_owned();
    scene.world.run(&["create", "--name", "web"]).expect(0);

    let html = |word: &str| {
        format!("<!doctype html><title>quiet</title><script>{}</script>", scene.script(word, &api))
    };
    let link = scene.link("page.html", html("page").as_bytes());
    let shown = scene.open(&link);
    assert!(shown.contains("&lt;script&gt;") && !shown.contains(MARK), "{shown}");
    let careless = scene.careless.put("/page.html", "text/html", html("careless-page"));
    let ran = scene.open(&careless);
    assert!(ran.contains("<title>ran</title>") && ran.contains(MARK), "{ran}");
    assert!(scene.careless.was_told("told-careless-page") && !scene.careless.was_told("told-page"));

    let svg = |word: &str| {
        let script = scene.script(word, &api);
        format!(
            "<svg xmlns='http://www.w3.org/2000/svg' onload=\"document.documentElement.setAttribute('data-loaded', 'yes')\">\
             <script><![CDATA[{script}]]></script><circle r='5'/></svg>"
        )
    };
    let link = scene.link("picture.svg", svg("svg").as_bytes());
    let shown = scene.open(&link);
    assert!(shown.contains("<circle") && !shown.contains(MARK) && !shown.contains(LOADED), "{shown}");
    let ran = scene.open(&scene.careless.put("/picture.svg", "image/svg+xml", svg("careless-svg")));
    assert!(ran.contains(MARK) && ran.contains(LOADED), "{ran}");
    assert!(scene.careless.was_told("told-careless-svg") && !scene.careless.was_told("told-svg"));

    let listed = scene.world.run(&["ps", "--all"]).expect(0).text();
    assert!(listed.contains("web") && !listed.contains("made-by"), "{listed}");
    let log = served.stop();
    let token = link.split("/v1/links/").nth(1).unwrap().split('/').next().unwrap();
    assert!(log.contains("/v1/links/…") && !log.contains(token), "{log}");
}

#[test]
fn a_picture_is_shown_alone_and_in_a_page_of_another_origin() {
    if !has_browser() {
        return;
    }
    let scene = Scene::new();
    let served = scene.world.serve(&["--dev"]);
    scene.world.run(&["create", "--name", "web"]).expect(0);
    let picture = scene.link("plot.png", PNG);
    let alone = scene.open(&picture);
    assert!(alone.contains("<img") && alone.contains("plot.png (1×1)"), "{alone}");

    let text = scene.link("notes.html", b"<b>framed</b>");
    let page = format!(
        "<!doctype html><body><img src='{picture}' onload=\"document.title = 'shown ' + naturalWidth\">
         <img id=script src='{text}' onerror=\"this.dataset.refused = 'yes'\">
         <iframe src='{text}'></iframe>
         <script>fetch('{picture}').then(() => document.body.dataset.read = 'yes',
                                         () => document.body.dataset.read = 'no')</script>"
    );
    let page = scene.careless.put("/chat.html", "text/html", page);
    let shown = scene.open(&page);
    assert!(shown.contains("<title>shown 1</title>"), "{shown}");
    assert!(shown.contains("data-read=\"no\"") && shown.contains("data-refused=\"yes\""), "{shown}");
    served.stop();
}

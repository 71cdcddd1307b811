//! Packages in real sandboxes, from an index that the test serves on loopback.

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    net::{Shutdown, TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::Command,
    sync::{
        Arc, Condvar, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
};

use serde_json::Value;

use crate::harness::{Daemon, PATIENCE, text, until};

/// An index for pip, npm and apt.
pub(crate) struct Index {
    pub(crate) address: String,
    shared: Arc<Served>,
    _place: tempfile::TempDir,
}

#[derive(Default)]
struct Served {
    root: PathBuf,
    n_requests: AtomicUsize,
    is_down: AtomicBool,
    /// Files whose name has `slow` in it are held back until this is true.
    is_open: Mutex<bool>,
    opened: Condvar,
    n_held: AtomicUsize,
}

impl Index {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let place = tempfile::tempdir().unwrap();
        let script = place.path().join("index.py");
        fs::write(&script, include_str!("index.py")).unwrap();
        let made = Command::new("/usr/bin/python3").arg(&script).arg(place.path()).arg(&address).output();
        let made = made.unwrap();
        assert!(made.status.success(), "{}", text(&made.stderr));
        let shared = Arc::new(Served { root: place.path().to_owned(), ..Served::default() });
        let serving = Arc::clone(&shared);
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let serving = Arc::clone(&serving);
                thread::spawn(move || serving.answer(stream));
            }
        });
        Self { address, shared, _place: place }
    }

    pub(crate) fn config(&self) -> String {
        let address = &self.address;
        format!(
            "[pip]\nindex_url = \"{address}/pip/simple/\"\n[npm]\nregistry = \"{address}/npm/\"\n\
             [apt]\nsources = [\"deb [trusted=yes] {address}/apt/ ./\"]\n"
        )
    }

    /// From now on nobody is answered.
    pub(crate) fn shut_down(&self) {
        self.shared.is_down.store(true, Ordering::SeqCst);
    }

    pub(crate) fn n_requests(&self) -> usize {
        self.shared.n_requests.load(Ordering::SeqCst)
    }

    fn has_apt(&self) -> bool {
        self.shared.root.join("apt/Packages").exists()
    }

    fn open(&self) {
        *self.shared.is_open.lock().unwrap() = true;
        self.shared.opened.notify_all();
    }
}

impl Drop for Index {
    fn drop(&mut self) {
        self.open();
    }
}

impl Served {
    fn answer(&self, stream: TcpStream) {
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        let mut line = String::new();
        if self.is_down.load(Ordering::SeqCst) || reader.read_line(&mut line).is_err() {
            return;
        }
        let mut header = String::new();
        while reader.read_line(&mut header).is_ok_and(|n| n > 2) {
            header.clear();
        }
        self.n_requests.fetch_add(1, Ordering::SeqCst);
        let mut words = line.split_whitespace();
        let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        if path.contains(".whl") && path.contains("slow") {
            self.n_held.fetch_add(1, Ordering::SeqCst);
            let open = self.is_open.lock().unwrap();
            drop(self.opened.wait_timeout_while(open, PATIENCE, |open| !*open).unwrap());
        }
        let found = self.find(path.split('?').next().unwrap());
        let (status, body) = found.map_or(("404 Not Found", Vec::new()), |body| ("200 OK", body));
        let kind =
            if path.starts_with("/npm/") && !path.contains("/-/") { "application/json" } else { "text/html" };
        let head = format!(
            "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
            body.len()
        );
        let mut stream = stream;
        // A client that has gone needs no answer.
        if stream.write_all(head.as_bytes()).is_ok() && method != "HEAD" {
            stream.write_all(&body).ok();
        }
        stream.shutdown(Shutdown::Write).ok();
    }

    fn find(&self, path: &str) -> Option<Vec<u8>> {
        assert!(!path.contains(".."), "{path}");
        let file = self.root.join(path.trim_matches('/').replace("%2f", "/"));
        let file = if file.is_dir() { file.join("index.html") } else { file };
        fs::read(file).ok()
    }
}

fn job(daemon: &Daemon, arguments: &[&str]) -> Value {
    let output = daemon.command(["--json", "package", "install"]).args(arguments).output().unwrap();
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}\n{}", text(&output.stderr), daemon.log()))
}

fn installed(daemon: &Daemon, arguments: &[&str], expected: &str) {
    let job = job(daemon, arguments);
    assert_eq!(job["state"], "installed", "{job:#}\n{}", daemon.log());
    let found = &job["installed"][0];
    assert_eq!(format!("{} {}", found["name"], found["version"]).replace('"', ""), expected, "{job:#}");
}

/// Everything of the host that an install could touch, as it is now.
fn host_state() -> Vec<String> {
    [
        "/usr/local/lib",
        "/usr/lib/python3/dist-packages",
        "/var/lib/dpkg",
        "/var/lib/dpkg/info",
        "/usr/bin",
        "/root",
    ]
    .iter()
    .map(|path| {
        let entries = fs::read_dir(path).into_iter().flatten().flatten();
        let mut names: Vec<_> = entries.map(|entry| entry.file_name()).collect();
        names.retain(|name| {
            ["burrow", "hollow", "badger"].iter().any(|ours| name.to_string_lossy().contains(ours))
        });
        format!("{path}: {names:?}")
    })
    .collect()
}

#[test]
fn packages_are_installed_and_used_and_the_host_is_not_touched() {
    let index = Index::start();
    let daemon = Daemon::configured(&index.config());
    let before = host_state();
    daemon.create("first", &[]);
    installed(&daemon, &["first", "burrow>=1"], "burrow 1.2");
    assert_eq!(daemon.sh_ok("first", "python3 -c 'import burrow; print(burrow.answer)'"), "42");
    installed(&daemon, &["first", "-m", "npm", "hollow@^3"], "hollow 3.4.5");
    assert_eq!(daemon.sh_ok("first", "node -e 'console.log(require(\"hollow\")())'"), "hollow");
    let lock = daemon.sh_ok("first", "cat package-lock.json");
    assert!(!lock.contains("127.0.0.1"), "the port of one install is in the lock file: {lock}");
    assert_eq!(daemon.ok(["package", "status", "first", "Burrow"]), "burrow 1.2 installed\n");
    let listed = daemon.ok(["package", "ls", "first", "-m", "npm"]);
    let listed = listed.lines().find(|line| line.contains("hollow")).unwrap_or_default();
    assert_eq!(listed.split_whitespace().collect::<Vec<_>>(), ["npm", "hollow", "3.4.5"]);
    assert_eq!(host_state(), before);

    // The second sandbox needs no index any more.
    let n_requests = index.n_requests();
    index.shut_down();
    daemon.create("second", &[]);
    let (code, _, _) = daemon.sh("second", "python3 -c 'import burrow'");
    assert_ne!(code, 0, "it is in the other sandbox only");
    installed(&daemon, &["second", "burrow"], "burrow 1.2");
    installed(&daemon, &["second", "-m", "npm", "hollow"], "hollow 3.4.5");
    assert_eq!(daemon.sh_ok("second", "python3 -c 'import burrow; print(burrow.answer)'"), "42");
    assert_eq!(index.n_requests(), n_requests);
}

#[test]
fn apt_works_on_the_image_of_this_host() {
    let index = Index::start();
    if !index.has_apt() || !Path::new("/usr/bin/apt-get").exists() {
        return println!("no apt here");
    }
    let daemon = Daemon::configured(&index.config());
    let before = host_state();
    daemon.create("first", &[]);
    installed(&daemon, &["first", "-m", "apt", "badger"], "badger 2.0-1");
    assert_eq!(daemon.sh_ok("first", "badger; cat /var/lib/badger/state"), "badger 2.0-1\nconfigured");
    assert_eq!(daemon.ok(["package", "status", "first", "-m", "apt", "badger"]), "badger 2.0-1 installed\n");
    assert_eq!(host_state(), before);
    index.shut_down();
    daemon.create("second", &[]);
    installed(&daemon, &["second", "-m", "apt", "badger=2.0-1"], "badger 2.0-1");
    // Packages that exist are known, and missing ones are told.
    let failed = job(&daemon, &["second", "-m", "apt", "no-such-animal"]);
    assert_eq!(failed["state"], "failed");
    assert!(failed["message"].as_str().unwrap().contains("no-such-animal"), "{failed:#}");
}

#[test]
fn package_managers_in_a_shell_reach_the_same_index() {
    let index = Index::start();
    let daemon = Daemon::configured(&index.config());
    let before = host_state();
    daemon.create("lab", &[]);
    daemon.ok(["exec", "lab", "--", "pip", "install", "burrow"]);
    assert_eq!(daemon.sh_ok("lab", "python3 -c 'import burrow; print(burrow.answer)'"), "42");
    let npm = "mkdir -p app/src && cd app && echo '{}' >package.json && cd src && \
               npm install hollow >&2 && cat ../package-lock.json";
    let lock = daemon.sh_ok("lab", npm);
    assert!(lock.contains("hollow") && !lock.contains("127.0.0.1"), "{lock}");
    assert_eq!(daemon.sh_ok("lab", "cd app && node -e 'console.log(require(\"hollow\")())'"), "hollow");
    if index.has_apt() && Path::new("/usr/bin/apt-get").exists() {
        let apt = "(apt-get update && apt-get install -y badger) >&2 && badger";
        assert_eq!(daemon.sh_ok("lab", apt), "badger 2.0-1");
    }
    assert_eq!(host_state(), before);
    // The sandbox's own settings win: nothing listens there.
    let own = "printf '[global]\nindex-url = http://127.0.0.1:9/own/\nretries = 0\n' >/etc/pip.conf";
    daemon.sh_ok("lab", own);
    let (code, said, _) = daemon.sh("lab", "pip download slowpoke 2>&1");
    assert!(code != 0 && said.contains("/own/"), "{said}");
    // The address is not among the files that a snapshot would carry.
    let changed = daemon.ok(["diff", "lab"]);
    assert!(!changed.contains("/run/") && !changed.contains("npmrc"), "{changed}");
}

#[test]
fn a_requirements_file_names_the_packages() {
    let index = Index::start();
    let daemon = Daemon::configured(&index.config());
    daemon.create("box", &[]);
    daemon.sh_ok("box", "mkdir -p /srv/app && printf '# needs\nBurrow>=1\n' >/srv/app/needs.txt");
    installed(&daemon, &["box", "--cwd", "/srv/app", "-r", "needs.txt"], "burrow 1.2");
    let (_, said) = daemon.fails(["package", "install", "box", "-m", "apt", "-r", "needs.txt"]);
    assert!(said.contains("apt takes no requirements file"), "{said}");
}

#[test]
fn without_packages_a_shell_reaches_no_index() {
    let index = Index::start();
    let daemon = Daemon::configured(&format!("{}[packages]\nenabled = false\n", index.config()));
    daemon.create("box", &[]);
    let connect = "import socket; socket.create_connection((\"127.0.0.1\", 17070))";
    let look = format!(
        "env | grep -c warren/packages; ls /run/warren/packages 2>&1; python3 -c '{connect}' 2>&1 | tail -1"
    );
    let said = daemon.sh_ok("box", &look);
    assert!(said.starts_with("0\n") && said.contains("No such file") && said.contains("refused"), "{said}");
    assert_eq!(index.n_requests(), 0);
}

#[test]
fn a_failed_install_has_a_state_a_reason_and_a_log() {
    let index = Index::start();
    let daemon = Daemon::configured(&index.config());
    daemon.create("box", &[]);
    let output = daemon.output(["package", "install", "box", "no-such-burrow"]);
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stderr);
    assert!(said.contains("No matching distribution found for no-such-burrow"), "{said}");
    let jobs = daemon.json(["--json", "package", "status", "box"]);
    let id = jobs["jobs"][0]["id"].as_str().unwrap();
    let job = daemon.json(["--json", "package", "status", "box", id]);
    assert_eq!(job["state"], "failed", "{job:#}");
    assert!(job["message"].as_str().unwrap().contains("no-such-burrow"), "{job:#}");
    assert!(job["log"].as_array().unwrap().len() > 1, "{job:#}");
    let status = daemon.json(["--json", "package", "status", "box", "no-such-burrow"]);
    assert_eq!((&status["state"], &status["job"]["id"]), (&"failed".into(), &id.into()), "{status:#}");
    assert_eq!(daemon.ok(["package", "status", "box", "never-asked"]), "never-asked not_installed\n");
    let failed = self::job(&daemon, &["box", "-m", "npm", "no-such-hollow"]);
    assert!(failed["message"].as_str().unwrap().contains("E404"), "{failed:#}");
}

#[test]
fn what_is_no_package_is_refused_before_anything_runs() {
    let index = Index::start();
    let daemon = Daemon::configured(&index.config());
    daemon.create("box", &[]);
    for name in ["http://evil.example/x.whl", "../x", "/etc/passwd", "x;id", "git+https://evil.example/x"] {
        let (_, said) = daemon.fails(["package", "install", "box", name]);
        assert!(said.contains("is not a valid package name"), "{name}: {said}");
    }
    let (_, said) = daemon.fails(["package", "install", "box", "--", "--index-url=http://evil.example/"]);
    assert!(said.contains("is not a valid package name"), "{said}");
    assert_eq!(daemon.json(["--json", "package", "status", "box"])["jobs"], Value::Array(vec![]));
    assert_eq!(index.n_requests(), 0);
}

#[test]
fn the_sandbox_reaches_nothing_but_the_index_and_that_only_meanwhile() {
    let index = Index::start();
    let daemon = Daemon::configured(&index.config());
    daemon.create("box", &[]);
    let begun = job(&daemon, &["box", "-d", "slowpoke"]);
    until("pip asks for the file", || index.shared.n_held.load(Ordering::SeqCst) > 0);
    let fetch = |path: &str| {
        let script = format!(
            "import urllib.request as u\ntry: print(u.urlopen('http://127.0.0.1:17071{path}', timeout=20).status)\n\
             except Exception as e: print(getattr(e, 'code', 'refused'))"
        );
        daemon.sh_ok("box", &format!("python3 -c \"{script}\""))
    };
    assert_eq!(fetch("/pip/simple/burrow/"), "200");
    // Another manager's, another host's, the index's own files outside of its pages: not there.
    for path in ["/npm/hollow", "/apt/0/Packages", "/http://127.0.0.1/", "/pip/../npm/hollow", "/"] {
        assert!(["404", "400", "403"].contains(&fetch(path).as_str()), "{path}: {}", fetch(path));
    }
    let direct = daemon.sh_ok(
        "box",
        &format!(
            "python3 -c \"import urllib.request as u; u.urlopen('{}', timeout=5)\" 2>&1 | tail -1",
            index.address
        ),
    );
    assert!(direct.contains("refused") || direct.contains("unreachable"), "{direct}");
    index.open();
    let id = begun["id"].as_str().unwrap();
    until("it is installed", || {
        daemon.json(["--json", "package", "status", "box", id])["state"] == "installed"
    });
    assert_eq!(fetch("/pip/simple/burrow/"), "refused");
}

#[test]
fn a_job_ends_although_the_daemon_was_killed_in_the_middle() {
    let index = Index::start();
    let mut daemon = Daemon::configured(&index.config());
    daemon.create("box", &[]);
    let begun = job(&daemon, &["box", "-d", "slowpoke"]);
    let id = begun["id"].as_str().unwrap();
    until("pip asks for the file", || index.shared.n_held.load(Ordering::SeqCst) > 0);
    daemon.kill();
    index.open();
    daemon.serve();
    let state = |daemon: &Daemon| daemon.json(["--json", "package", "status", "box", id]);
    until("the job ended", || state(&daemon)["state"] != "installing");
    let ended = state(&daemon);
    // pip asks again by itself, and the next daemon listens where it asks.
    assert_eq!(ended["state"], "installed", "{ended:#}\n{}", daemon.log());
    assert_eq!(daemon.sh_ok("box", "python3 -c 'import slowpoke; print(slowpoke.answer)'"), "7");
}

#[test]
fn a_configuration_with_a_mistake_is_told_and_not_passed_over() {
    let place = tempfile::tempdir().unwrap();
    let config = place.path().join("config.toml");
    fs::write(&config, "[pip]\nindex = \"http://me:secret@127.0.0.1/\"\n").unwrap();
    let daemon = Daemon::unstarted();
    let output = daemon.command(["serve", "--config"]).arg(&config).output().unwrap();
    let said = text(&output.stderr);
    assert!(!output.status.success() && said.contains("pip.index_url") && !said.contains("secret"), "{said}");
    fs::write(&config, "[pip]\nindex_url = \"http://me:secret@127.0.0.1:9/simple\"\n").unwrap();
    let output = daemon.command(["doctor", "--no-trial", "--config"]).arg(&config).output().unwrap();
    let said = text(&output.stdout);
    assert!(said.contains("pip from http://127.0.0.1:9/simple") && !said.contains("secret"), "{said}");
}

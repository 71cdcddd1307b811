//! Images built from Dockerfiles, and sandboxes made from them.

use std::{
    fs,
    io::{BufRead as _, BufReader, Write as _},
    net::TcpListener,
    path::Path,
    process::{Command, Output, Stdio},
};

use serde_json::Value;
use tar::{EntryType, Header};

use crate::{
    harness::{Daemon, text, until},
    oci::Layer,
};

/// A daemon with an image `base` to build on, and a directory for contexts.
pub(crate) struct Site {
    pub(crate) daemon: Daemon,
    pub(crate) context: tempfile::TempDir,
}

impl Site {
    fn new() -> Self {
        Self::with(Daemon::start())
    }

    pub(crate) fn with(daemon: Daemon) -> Self {
        let site = Self { daemon, context: tempfile::tempdir().unwrap() };
        let root = Layer::busybox()
            .link("bin/rm", "busybox")
            .link("bin/mkdir", "busybox")
            .link("bin/touch", "busybox")
            .link("bin/sort", "busybox")
            .link("bin/dd", "busybox")
            .link("bin/mkfifo", "busybox")
            .link("bin/yes", "busybox")
            .link("bin/head", "busybox")
            .link("bin/tail", "busybox")
            .link("bin/cp", "busybox")
            .directory("etc", 0o755)
            .directory("old", 0o755)
            .file("old/one", b"1")
            .file("old/two", b"2")
            .file("etc/passwd", b"root:x:0:0::/root:/bin/sh\napp:x:1000:1001::/home/app:/bin/sh\n")
            .file("etc/group", b"root:x:0:\nstaff:x:50:\n");
        let archive = site.context.path().join("root.tar");
        fs::write(&archive, root.bytes()).unwrap();
        let config = r#"{"env": ["PATH=/bin"]}"#;
        site.daemon.ok(["image", "import", archive.to_str().unwrap(), "base", "--config", config]);
        fs::remove_file(archive).unwrap();
        site
    }

    pub(crate) fn put(&self, name: &str, content: &str) {
        let path = self.context.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    pub(crate) fn build(&self, extra: &[&str]) -> Output {
        self.daemon.command(["build", "--json"]).args(extra).arg(self.context.path()).output().unwrap()
    }

    /// Runs a build that must succeed; returns its events.
    pub(crate) fn built(&self, extra: &[&str]) -> Vec<Value> {
        let output = self.build(extra);
        assert!(output.status.success(), "{}\n{}", text(&output.stderr), self.daemon.log());
        text(&output.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    pub(crate) fn fails(&self, extra: &[&str]) -> String {
        let output = self.build(extra);
        assert!(!output.status.success(), "{}", text(&output.stdout));
        self.assert_nothing_left();
        text(&output.stderr)
    }

    pub(crate) fn assert_nothing_left(&self) {
        assert_eq!(self.daemon.leftovers(), Vec::<String>::new());
        assert_eq!(spooled(&self.daemon), Vec::<String>::new());
    }

    /// Runs a script in a new sandbox on an image.
    pub(crate) fn look(&self, image: &str, script: &str) -> String {
        self.daemon.create("look", &["--image", image]);
        let seen = self.daemon.sh_ok("look", script);
        self.daemon.ok(["rm", "--force", "look"]);
        seen
    }
}

/// Lists what builds keep of what they were given.
pub(crate) fn spooled(daemon: &Daemon) -> Vec<String> {
    let entries = fs::read_dir(daemon.home().join("builds")).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

/// Numbers of steps that a build found made.
pub(crate) fn cached(events: &[Value]) -> Vec<u64> {
    let cached = events.iter().filter(|event| event["type"] == "cached");
    cached.map(|event| event["number"].as_u64().unwrap()).collect()
}

pub(crate) fn printed(events: &[Value]) -> String {
    events
        .iter()
        .filter(|event| event["type"] == "output")
        .map(|event| event["text"].as_str().unwrap())
        .collect()
}

/// By a port of this machine: nothing of a test goes further.
#[test]
fn commands_of_a_build_reach_what_the_build_allows() {
    let site = Site::new();
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = BufReader::new(stream.unwrap());
            let mut line = String::new();
            while stream.read_line(&mut line).unwrap() > 2 {
                line.clear();
            }
            stream.get_mut().write_all(b"HTTP/1.0 200 OK\r\ncontent-length: 5\r\n\r\nhello").unwrap();
        }
    });
    let fetch = format!("busybox wget -qO- http://169.254.1.2:{port}/");
    site.put("Dockerfile", &format!("FROM base\nRUN {fetch}\nRUN --network=none ! {fetch}\n"));
    assert!(site.fails(&[]).contains("line 2"));
    let rule = format!("host:{port}");
    let allowed = ["--network", "none", "--allow", &rule];
    assert!(printed(&site.built(&allowed)).contains("hello"));
    // It was reached then; what is reached now makes no difference, unless it is nothing at all.
    assert_eq!(cached(&site.built(&[])), [2, 3]);
    assert!(site.fails(&["--network", "none"]).contains("line 2"));
    let refused = site.fails(&["--allow", "no such rule"]);
    assert!(refused.contains("allow[0]"), "{refused}");
    site.assert_nothing_left();
}

#[test]
fn what_a_dockerfile_says_is_what_a_sandbox_sees() {
    let site = Site::new();
    site.put("src/main", "program");
    site.put("src/deep/data", "data");
    site.put(
        "Dockerfile",
        r#"
ARG from=base
FROM $from AS builder
ARG VERSION=none
WORKDIR /build
COPY src .
RUN echo $VERSION > version && cat main deep/data > joined && echo kept > /tmp/kept
RUN cat /tmp/kept; echo wrong >&2

FROM base
COPY --from=builder --chown=app:staff --chmod=0640 /build/joined /build/version /srv/
COPY --chown=7 src/main /srv/seven
COPY <<EOF /etc/written
from $PATH
EOF
RUN rm /old/one && echo 3 > /old/three && touch /made
RUN rm -r /old && mkdir /old && echo 4 > /old/four && rm /made
ENV GREETING="hello there"
USER app
WORKDIR /srv
RUN id -u > /tmp/who; pwd >> /tmp/who; echo $HOME
ENTRYPOINT ["/bin/sh", "-c"]
CMD ["echo $GREETING"]
LABEL team=x "a b"='c d'
EXPOSE 80 53/udp
VOLUME /data
STOPSIGNAL SIGINT
"#,
    );
    let events = site.built(&["-t", "team/app:1", "-t", "other", "--build-arg", "VERSION=7"]);
    assert_eq!(printed(&events), "kept\nwrong\n/home/app\n");
    let done = events.last().unwrap();
    assert_eq!(done["type"], "done");
    assert_eq!(
        done["references"],
        serde_json::json!(["docker.io/library/other:latest", "docker.io/team/app:1"])
    );

    assert_eq!(site.look("team/app:1", "cat joined version"), "programdata7");
    assert_eq!(
        site.look("other", "stat -c '%n %u:%g %a' *; ls /old; ls /; cat /etc/written; echo $GREETING; id -u"),
        "joined 1000:50 640\nseven 7:7 644\nversion 1000:50 640\nfour\nbin\ndev\netc\nold\nproc\nrun\nsrv\nsys\ntmp\nfrom /bin\nhello there\n1000"
    );
    let detail = site.daemon.json(["image", "inspect", "team/app:1", "--json"]);
    let config = detail
        .pointer("/images/0/config")
        .or_else(|| detail.pointer("/0/config"))
        .unwrap_or(&detail["config"]);
    assert_eq!(config["entrypoint"], serde_json::json!(["/bin/sh", "-c"]));
    assert_eq!(config["labels"]["team"], "x");

    // As others read it: removals are whiteouts, a directory that was made anew hides the old one.
    let archive = site.context.path().join("saved.tar");
    site.daemon.ok(["save", "-o", archive.to_str().unwrap(), "team/app:1"]);
    let config = config_of_archive(&archive);
    assert_eq!(
        config["config"],
        serde_json::json!({
            "Env": ["PATH=/bin", "GREETING=hello there"],
            "User": "app",
            "WorkingDir": "/srv",
            "Entrypoint": ["/bin/sh", "-c"],
            "Cmd": ["echo $GREETING"],
            "ExposedPorts": {"53/udp": {}, "80/tcp": {}},
            "Volumes": {"/data": {}},
            "StopSignal": "SIGINT",
            "Labels": {"a b": "c d", "team": "x"},
        })
    );
    let history: Vec<_> =
        config["history"].as_array().unwrap().iter().map(|step| step["created_by"].as_str()).collect();
    assert!(history.contains(&Some("STOPSIGNAL SIGINT")), "{history:?}");
    let n_layers = config["rootfs"]["diff_ids"].as_array().unwrap().len();
    let n_full =
        config["history"].as_array().unwrap().iter().filter(|step| step["empty_layer"] != true).count();
    assert!(n_layers - n_full <= 1, "{n_layers} layers, {n_full} steps with one: {config:#}");
    let names = members_of_layers(&archive);
    for name in ["old/.wh.one", "old/.wh..wh..opq", ".wh.made", "old/four"] {
        assert!(names.iter().any(|found| found == name), "no {name} in {names:?}");
    }
    for name in ["dev/", "proc/", "sys/", "run/", "etc/hosts", "etc/hostname"] {
        assert!(!names.iter().any(|found| found == name), "{name} in {names:?}");
    }
    site.assert_nothing_left();
}

/// Returns the configuration of a saved image, as skopeo finds it.
fn config_of_archive(archive: &Path) -> Value {
    let output = Command::new("skopeo")
        .args(["inspect", "--config", "--raw", &format!("docker-archive:{}", archive.display())])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The names in all layers of a saved image.
fn members_of_layers(archive: &Path) -> Vec<String> {
    let directory = tempfile::tempdir().unwrap();
    let run = |command: &mut Command| {
        let output = command.output().unwrap();
        (output.status.success(), text(&output.stdout))
    };
    assert!(run(Command::new("tar").arg("xf").arg(archive).arg("-C").arg(directory.path())).0);
    let (_, files) = run(Command::new("find").arg(directory.path()).args(["-type", "f"]));
    let listed = files.lines().filter_map(|file| {
        let (is_layer, names) = run(Command::new("tar").arg("tf").arg(file));
        is_layer.then_some(names)
    });
    listed.collect::<String>().lines().map(str::to_owned).collect()
}

#[test]
fn layers_are_used_again_until_something_changes() {
    let site = Site::new();
    site.put("a", "1");
    site.put("b", "1");
    site.put("Dockerfile", "FROM base\nCOPY a /a\nRUN cat /a > /c\nCOPY b /b\nRUN cat /b >> /c\nCMD x");
    let first = site.built(&["-t", "app"]);
    assert_eq!(cached(&first), Vec::<u64>::new());
    let second = site.built(&["-t", "app"]);
    assert_eq!(cached(&second), [2, 3, 4, 5]);
    assert_eq!(first.last().unwrap()["digest"], second.last().unwrap()["digest"]);

    // The same content written later is the same; another one is not, from there on.
    site.put("a", "1");
    site.put("b", "2");
    let third = site.built(&["-t", "app"]);
    assert_eq!(cached(&third), [2, 3]);
    assert_eq!(site.look("app", "cat /c"), "12");
    // Also for a daemon that was killed meanwhile.
    let mut site = site;
    site.daemon.kill();
    site.daemon.serve();
    assert_eq!(cached(&site.built(&["-t", "app"])), [2, 3, 4, 5]);
    assert_eq!(cached(&site.built(&["-t", "app", "--no-cache"])), Vec::<u64>::new());
    // Layers that one build keeps for the next are not shown, and go with images that nobody uses.
    let listed = site.daemon.ok(["image", "ls"]);
    assert_eq!(
        listed.lines().filter(|line| line.contains("sha256") || line.contains("linux/")).count(),
        2,
        "{listed}"
    );
    site.daemon.ok(["image", "prune", "--force"]);
    assert!(!site.build(&["-t", "app", "--timeout", "10s"]).status.success(), "the base went too");
}

#[test]
fn a_command_that_fails_ends_the_build_with_its_line_and_keeps_earlier_layers() {
    let site = Site::new();
    site.put("Dockerfile", "FROM base\nRUN touch /one\n\nRUN echo why >&2; \\\n  exit 3\n");
    let error = site.fails(&["-t", "app"]);
    assert!(error.contains("line 4") && error.contains("exit") && error.contains('3'), "{error}");
    assert!(site.daemon.fails(["image", "inspect", "app"]).1.contains("app"));
    site.put("Dockerfile", "FROM base\nRUN touch /one\nRUN touch /two\n");
    assert_eq!(cached(&site.built(&["-t", "app"])), [2]);
    assert_eq!(site.look("app", "ls /one /two"), "/one\n/two");

    for (dockerfile, parts) in [
        ("FROM base\nRUNN x", &["line 2", "unknown instruction RUNN"][..]),
        ("FROM base\nCOPY nothing /x", &["line 2", "nothing is not in the build context"]),
        ("FROM base\nCOPY --chown=nobody Dockerfile /x", &["nobody", "/etc/passwd"]),
        ("FROM base\nRUN --mount=type=cache,target=/x y", &["--mount is not supported"]),
        ("FROM host", &["image host"]),
        ("FROM base\nUSER ghost\nRUN true", &["line 3", "ghost"]),
    ] {
        site.put("Dockerfile", dockerfile);
        let error = site.fails(&["-t", "app2"]);
        for part in parts {
            assert!(error.contains(part), "{dockerfile:?}: {error}");
        }
    }
}

#[test]
fn contexts_leave_out_what_dockerignore_names() {
    let site = Site::new();
    site.put(".dockerignore", "*.log\nsecret\n!secret/open\nDockerfile\n");
    for name in ["a", "b.log", "secret/closed", "secret/open", "sub/c.log"] {
        site.put(name, name);
    }
    site.put("Dockerfile", "FROM base AS one\nCOPY . /c/\nFROM base\nCOPY [a-b]* /only/\n");
    site.built(&["-t", "app", "--target", "one"]);
    assert_eq!(
        site.look("app", "cd /c; find . -type f | sort"),
        "./.dockerignore\n./a\n./secret/open\n./sub/c.log"
    );
    // A Dockerfile from elsewhere is no part of the context.
    let elsewhere = tempfile::tempdir().unwrap();
    let file = elsewhere.path().join("Other");
    fs::write(&file, "FROM base\nCOPY . /c/\n").unwrap();
    site.built(&["-t", "app", "-f", file.to_str().unwrap()]);
    assert_eq!(site.look("app", "cd /c; ls -a"), ".\n..\n.dockerignore\na\nsecret\nsub");
}

/// Starts a build that does not end by itself, and returns when it is in the middle.
fn begin_endless(site: &Site) -> std::process::Child {
    site.put("Dockerfile", "FROM base\nRUN touch /one\nRUN echo in the middle; sleep 100000\n");
    let mut command = site.daemon.command(["build", "--json", "-t", "app"]);
    let mut child =
        command.arg(site.context.path()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().contains("in the middle\\n")), "{}", site.daemon.log());
    child
}

#[test]
fn a_daemon_killed_in_the_middle_leaves_nothing() {
    let mut site = Site::new();
    let mut child = begin_endless(&site);
    assert!(!site.daemon.leftovers().is_empty());
    site.daemon.kill();
    assert!(!child.wait().unwrap().success());
    assert_eq!(spooled(&site.daemon).len(), 1);
    site.daemon.serve();
    until("what the build left is gone", || site.daemon.leftovers().is_empty());
    site.assert_nothing_left();
    // Whole layers are kept.
    site.put("Dockerfile", "FROM base\nRUN touch /one\nRUN touch /two\n");
    assert_eq!(cached(&site.built(&["-t", "app"])), [2]);
}

#[test]
fn a_caller_who_goes_away_ends_the_build() {
    let site = Site::new();
    let mut child = begin_endless(&site);
    child.kill().unwrap();
    child.wait().unwrap();
    until("the build is gone", || site.daemon.leftovers().is_empty() && spooled(&site.daemon).is_empty());
    assert!(!site.daemon.ok(["image", "ls"]).contains("app"));
    // And so does the time limit.
    let error = site.fails(&["-t", "app", "--timeout", "500ms"]);
    assert!(error.contains("longer than 500ms") || error.contains("time limit"), "{error}");
}

/// A tar with one odd member before an honest Dockerfile.
fn odd(kind: EntryType, name: &str, link: &str) -> Vec<u8> {
    let mut archive = tar::Builder::new(Vec::new());
    let mut put = |kind, name: &str, link: &str, data: &[u8]| {
        let mut header = Header::new_gnu();
        // By hand: the library refuses to write what we want to send.
        header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
        header.as_old_mut().linkname[..link.len()].copy_from_slice(link.as_bytes());
        header.set_entry_type(kind);
        header.set_mode(0o644);
        header.set_size(data.len() as u64);
        header.set_cksum();
        archive.append(&header, data).unwrap();
    };
    put(kind, name, link, if kind == EntryType::Regular { b"evil" } else { b"" });
    put(EntryType::Regular, "Dockerfile", "", b"FROM base\nCOPY . /c/\n");
    archive.into_inner().unwrap()
}

fn build_from_stdin(site: &Site, bytes: &[u8]) -> Output {
    let mut command = site.daemon.command(["build", "-t", "app", "-"]);
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // It may have refused before the end.
    child.stdin.take().unwrap().write_all(bytes).ok();
    child.wait_with_output().unwrap()
}

#[test]
fn hostile_contexts_are_refused_or_harmless() {
    let site = Site::new();
    let honest = odd(EntryType::Regular, "file", "");
    for (bytes, part) in [
        (odd(EntryType::Regular, "../evil", ""), "leads out of the build context"),
        (odd(EntryType::Regular, "/tmp/evil-of-warren", ""), "leads out of the build context"),
        (odd(EntryType::Regular, "a/../../evil", ""), "leads out of the build context"),
        (odd(EntryType::Link, "evil", "/etc/shadow"), "leads out of the build context"),
        (odd(EntryType::Link, "evil", "none"), "which does not exist"),
        (odd(EntryType::Char, "evil", ""), "type that the build context cannot contain"),
        (odd(EntryType::Fifo, "evil", ""), "type that the build context cannot contain"),
        (honest[..honest.len() / 2].to_vec(), "is damaged"),
        (b"no tar at all, but text that is a little longer".repeat(100), "context"),
        (Vec::new(), "no Dockerfile"),
    ] {
        let output = build_from_stdin(&site, &bytes);
        assert!(!output.status.success(), "{part}");
        assert!(text(&output.stderr).contains(part), "{part}: {}", text(&output.stderr));
    }
    assert!(!Path::new("/tmp/evil-of-warren").exists());
    // A link may lead anywhere: it is followed inside of the context, and copied as a link.
    let mut links = odd(EntryType::Symlink, "evil", "/etc");
    let output = build_from_stdin(&site, &links);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(site.look("app", "readlink /c/evil; cat /c/Dockerfile"), "/etc\nFROM base\nCOPY . /c/");
    links = odd(EntryType::Symlink, "Dockerfile", "/etc/passwd");
    links.truncate(512);
    links.resize(2048, 0);
    let output = build_from_stdin(&site, &links);
    assert!(text(&output.stderr).contains("no Dockerfile"), "{}", text(&output.stderr));
    site.assert_nothing_left();
}

//! Interpreters of the host in place of their images: while the registry cannot be reached, and only if asked for.

use std::{
    io::{BufRead as _, BufReader, Write as _},
    net::{SocketAddr, TcpListener},
    sync::{
        Arc,
        atomic::{AtomicU16, AtomicUsize, Ordering},
    },
    thread,
};

use crate::harness::Daemon;

/// Hangs up instead of an answer.
const HANG_UP: u16 = 0;

/// All that the daemon sees of the world: a proxy that answers everything with one status.
struct Proxy {
    address: SocketAddr,
    status: Arc<AtomicU16>,
    n_asked: Arc<AtomicUsize>,
}

impl Proxy {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let proxy =
            Self { address: listener.local_addr().unwrap(), status: Arc::default(), n_asked: Arc::default() };
        let (status, n_asked) = (Arc::clone(&proxy.status), Arc::clone(&proxy.n_asked));
        thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                let lines = BufReader::new(&stream).lines().map_while(Result::ok);
                let head: Vec<_> = lines.take_while(|line| !line.is_empty()).collect();
                assert!(head[0].contains("registry-1.docker.io"), "{head:?}");
                n_asked.fetch_add(1, Ordering::SeqCst);
                let status = status.load(Ordering::SeqCst);
                if status != HANG_UP {
                    let answer =
                        format!("HTTP/1.1 {status} X\r\nconnection: close\r\ncontent-length: 0\r\n\r\n");
                    stream.write_all(answer.as_bytes()).ok();
                }
            }
        });
        proxy
    }

    fn answers(&self, status: u16) {
        self.status.store(status, Ordering::SeqCst);
    }
}

#[test]
fn the_host_stands_in_for_an_interpreter_only_if_asked_and_its_registry_is_out_of_reach() {
    let proxy = Proxy::start();
    let config = "[images]\ninsecure = [\"docker.io\"]\n";
    let daemon = Daemon::configured_behind(config, &format!("http://{}", proxy.address));
    let create = ["create", "--name", "py", "--image", "python:3.12-slim"];
    for (status, told) in [(404, "was not found"), (401, "credentials"), (403, "credentials")] {
        proxy.answers(status);
        let (_, err) = daemon.fails(create);
        assert!(err.contains(told), "{status}: {err}");
    }

    // Out of reach: it fails too, and says what there is. Each image has its own reason.
    proxy.answers(HANG_UP);
    let (python, node) = ("docker.io/library/python", "docker.io/library/node");
    for (image, own, other) in [("python:3.12-slim", python, node), ("node:20", node, python)] {
        let (_, err) = daemon.fails(["create", "--name", "py", "--image", image]);
        assert!(err.contains(own) && !err.contains(other), "{err}");
        assert!(err.contains("--image host, which has python3"), "{err}");
    }
    let (_, err) = daemon.fails(["create", "--name", "py", "--image", "python:3.12-slim"]);
    assert!(err.contains("or --image-fallback"), "{err}");
    assert_eq!(daemon.ok(["ps", "--all", "--quiet"]), "");

    let create = ["create", "--name", "py", "--image-fallback", "--image", "python:3.12-slim"];
    let output = daemon.command(create).output().unwrap();
    let err = crate::harness::text(&output.stderr);
    assert!(output.status.success() && err.contains("python:3.12-slim is not used"), "{err}");
    let seen = daemon.inspect("py");
    assert!(seen["warnings"][0].as_str().unwrap().contains("python:3.12-slim is not used"), "{seen:#}");
    assert_eq!(daemon.sh_ok("py", "python3 -c 'print(6 * 7)'"), "42");
    // Also where nobody looks at a terminal, and beside what the program says itself.
    let ran = daemon
        .command(["run", "--image-fallback", "--image", "python:3.12-slim", "python3", "-V"])
        .output()
        .unwrap();
    let err = crate::harness::text(&ran.stderr);
    assert!(ran.status.success() && err.contains("python:3.12-slim is not used"), "{err}");
    // For a while it is not asked again for the same.
    let n_asked = proxy.n_asked.load(Ordering::SeqCst);
    daemon.create("again", &["--image-fallback", "--image", "python"]);
    assert_eq!(proxy.n_asked.load(Ordering::SeqCst), n_asked);
}

//! A host that reaches the internet through an HTTP proxy only, as its environment says.

use std::{
    io::{Read as _, Write as _, copy},
    net::TcpStream,
    sync::{Arc, Mutex},
    thread,
};

use super::{
    servers::{http, serve},
    world::{curl, in_a_world, log},
};
use crate::harness::{Daemon, until};

/// An HTTP proxy that connects wherever it is told to. Returns the heads that it reads.
fn proxy(at: &str) -> Arc<Mutex<Vec<String>>> {
    let heads = Arc::<Mutex<Vec<String>>>::default();
    let noted = Arc::clone(&heads);
    serve(at, move |mut client| {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            client.read_exact(&mut byte).unwrap();
            head.push(byte[0]);
        }
        let head = String::from_utf8(head).unwrap();
        let mut server = TcpStream::connect(head.split(' ').nth(1).unwrap()).unwrap();
        noted.lock().unwrap().push(head);
        client.write_all(b"HTTP/1.1 200 OK\r\n\r\n").unwrap();
        let (mut from, mut to) = (client.try_clone().unwrap(), server.try_clone().unwrap());
        thread::spawn(move || copy(&mut from, &mut to));
        copy(&mut server, &mut client).ok();
    });
    heads
}

#[test]
fn sandboxes_go_through_the_proxy_of_the_daemons_environment_and_never_see_it() {
    in_a_world(|| {
        let heads = proxy("10.1.1.1:3128");
        serve("93.184.216.34:80", http("server"));
        serve("10.2.2.2:80", http("inner"));
        let daemon = Daemon::configured_behind("", "http://someone:hidden@10.1.1.1:3128");
        daemon.create("lab", &["--network", "public+private"]);
        assert!(curl(&daemon, "lab", "http://93.184.216.34/").starts_with("server heard: GET / HTTP/1.1"));
        assert!(
            curl(&daemon, "lab", "http://10.2.2.2/").contains("heard"),
            "what is private is reached directly"
        );
        // The credentials in base64.
        let head = "CONNECT 93.184.216.34:80 HTTP/1.1\r\nHost: 93.184.216.34:80\r\n\
                    Proxy-Authorization: Basic c29tZW9uZTpoaWRkZW4=\r\n\r\n";
        assert_eq!(*heads.lock().unwrap(), [head]);

        assert_eq!(curl(&daemon, "lab", "http://10.1.1.1:3128/"), "exit 7");
        until("it is in the log", || {
            log(&daemon, "lab").iter().any(|line| line.starts_with("denied 10.1.1.1 3128"))
        });
        let seen = daemon.sh_ok("lab", "env; cat /proc/*/environ 2>/dev/null | tr '\\0' '\\n'");
        assert!(!seen.contains("hidden") && !seen.contains("3128"), "{seen}");
    });
}

//! Connections that are allowed as a name only, by `curl`, `openssl` and Python.

use std::{
    io::{Read, Write},
    net::TcpStream,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use sandbox::network::{NetworkEventKind, Preset};

use super::{
    edge::{Edge, id, plan},
    inside::Inside,
    world::{PATIENCE, echo, file, http, in_a_world, serve, shell},
    zone::Zone,
};

/// An HTTPS server for every name, by Python.
const HTTPS_SERVER: &str = r#"
import http.server, ssl, sys, socketserver, socket
class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True
    address_family = socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        body = ("served " + self.headers["Host"]).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *args): pass
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain("/tmp/cert.pem", "/tmp/key.pem")
server = Server((sys.argv[1], int(sys.argv[2])), Handler)
server.socket = context.wrap_socket(server.socket, server_side=True)
server.serve_forever()
"#;

fn https_server(address: &str, port: u16) {
    shell(
        "test -e /tmp/key.pem || openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 \
         -subj /CN=api.example -keyout /tmp/key.pem -out /tmp/cert.pem 2>/dev/null",
    );
    let script = file("/tmp/server.py", HTTPS_SERVER);
    let mut server = Command::new("/usr/bin/python3");
    server.args([&script, address, &port.to_string()]).stderr(Stdio::inherit());
    // It ends with the world.
    thread::spawn(move || server.status());
    let start = Instant::now();
    let to = if address.contains(':') { format!("[{address}]:{port}") } else { format!("{address}:{port}") };
    while TcpStream::connect(&to).is_err() {
        assert!(start.elapsed() < PATIENCE);
        thread::sleep(Duration::from_millis(20));
    }
}

/// Returns what `curl` prints, and its exit code.
fn curl(inside: &Inside, arguments: &str) -> (String, String) {
    let script =
        format!("curl -sSk --max-time 8 {arguments} 2>/tmp/curl.err; echo \" exit $?\"; cat /tmp/curl.err");
    let told = inside.run(move || shell(&script));
    let (body, rest) = told.rsplit_once(" exit ").unwrap();
    (body.to_owned(), rest.to_owned())
}

fn got(inside: &Inside, arguments: &str) -> String {
    let (body, rest) = curl(inside, arguments);
    assert!(rest.starts_with('0'), "{arguments}: {rest}");
    body
}

/// Says something to a server and reads to the end.
fn say(inside: &Inside, to: &'static str, what: &'static [u8]) -> String {
    inside.run(move || {
        let mut stream = TcpStream::connect(to).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(what).unwrap();
        let mut all = Vec::new();
        // A reset is an end too.
        drop(stream.read_to_end(&mut all));
        String::from_utf8_lossy(&all).into_owned()
    })
}

#[test]
fn tls_passes_for_the_allowed_name_only() {
    in_a_world(|| {
        let _zone =
            Zone::start("api.example 93.184.216.34, other.example 93.184.216.34, six.example 2606:4700::1");
        let edge = Edge::start();
        https_server("93.184.216.34", 443);
        https_server("93.184.216.34", 8443);
        https_server("2606:4700::1", 443);
        let inside = edge.add(1, &plan(Preset::None, &["api.example", "six.example"]));

        // The address alone opens nothing: not before it was resolved, and not without the name.
        let (_, error) = curl(&inside, "https://93.184.216.34/");
        assert!(error.starts_with('7'), "{error}");
        assert_eq!(got(&inside, "https://api.example/"), "served api.example");
        // What one sandbox resolved opens nothing for another.
        let neighbour = edge.add(2, &plan(Preset::None, &["api.example"]));
        let (_, error) =
            curl(&neighbour, "https://api.example/ --connect-to api.example:443:93.184.216.34:443");
        assert!(error.starts_with('7'), "{error}");
        assert_eq!(got(&inside, "https://API.example./"), "served API.example.");
        assert_eq!(got(&inside, "https://six.example/"), "served six.example");
        assert_eq!(got(&inside, "https://api.example:8443/"), "served api.example:8443");
        let event = edge.event(|event| event.kind == NetworkEventKind::Allowed && event.port == 443);
        assert_eq!(event.name.unwrap().as_str(), "api.example");

        for port in [443, 8443] {
            for url in [
                format!(
                    "https://other.example:{port}/ --connect-to other.example:{port}:93.184.216.34:{port}"
                ),
                format!("https://93.184.216.34:{port}/"),
            ] {
                let (_, error) = curl(&inside, &url);
                assert!(error.starts_with("35") && error.contains("access denied"), "{url}: {error}");
            }
        }
        let event = edge.event(|event| {
            event.kind == NetworkEventKind::Denied
                && event.name.as_ref().is_some_and(|name| name.as_str() == "other.example")
        });
        assert_eq!(event.port, 443);
        // Not TLS on 443, and a hello that never comes.
        assert_eq!(say(&inside, "93.184.216.34:443", b"GET / HTTP/1.1\r\nHost: api.example\r\n\r\n"), "");
        let start = Instant::now();
        say(&inside, "93.184.216.34:443", b"\x16\x03\x01\x02\x00\x01");
        assert!(start.elapsed() < Duration::from_secs(9));
    });
}

/// Returns the page for a request for another name than the one that is allowed.
fn denial(port: &str) -> String {
    let port = if port.is_empty() { "80" } else { port };
    format!(
        "The network policy of this sandbox does not allow requests to other.example (port {port}).\n\
         It was denied: the preset `none` reaches nothing.\n\
         An agent can ask for it with the tool sandbox_network_request, rules: [\"other.example:{port}\"].\n\
         Whoever owns the sandbox can allow it: warren network {} --allow other.example:{port}\n",
        id(1)
    )
}

#[test]
fn http_is_checked_request_by_request() {
    in_a_world(|| {
        let _zone = Zone::start("api.example 93.184.216.34, other.example 93.184.216.34");
        let edge = Edge::start();
        serve("93.184.216.34:80", http("server"));
        serve("93.184.216.34:8080", http("server"));
        let inside = edge.add(1, &plan(Preset::None, &["api.example"]));
        assert!(
            got(&inside, "http://api.example/path?q=1").starts_with("server heard: GET /path?q=1 HTTP/1.1")
        );
        assert!(got(&inside, "http://api.example:8080/").starts_with("server heard: GET / HTTP/1.1"));

        // The second request on the same connection is for another host.
        for port in ["", ":8080"] {
            let second = format!(
                "http://api.example{port}/one --next -sS -o - -w '%{{http_code}} %{{num_connects}}' -H 'Host: other.example' http://api.example{port}/two"
            );
            let told = got(&inside, &second);
            assert!(told.contains("GET /one") && !told.contains("GET /two"), "{told}");
            assert!(told.ends_with(&format!("{}403 0", denial(port.trim_start_matches(':')))), "{told}");
        }
        let event = edge.event(|event| {
            event.kind == NetworkEventKind::Denied
                && event.name.as_ref().is_some_and(|name| name.as_str() == "other.example")
        });
        assert_eq!(event.port, 80);

        for (said, answer) in [
            (&b"GET / HTTP/1.1\r\nHost: api.example\r\nHost: other.example\r\n\r\n"[..], "HTTP/1.1 400"),
            (b"GET http://other.example/ HTTP/1.1\r\nHost: api.example\r\n\r\n", "HTTP/1.1 400"),
            (b"CONNECT other.example:443 HTTP/1.1\r\nHost: api.example\r\n\r\n", "HTTP/1.1 403"),
            (b"GET / HTTP/1.0\r\n\r\n", "HTTP/1.0 400"),
            (b"GET / HTTP/1.1\r\nHost: api.example\r\n folded: other.example\r\n\r\n", "HTTP/1.1 400"),
            (
                b"POST / HTTP/1.1\r\nHost: api.example\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxx",
                "HTTP/1.1 400",
            ),
            (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", ""),
            (b"SSH-2.0-x\r\n\r\n", "HTTP/1.1 400"),
        ] {
            let told = say(&inside, "93.184.216.34:80", said);
            assert!(told.starts_with(answer) && !told.contains("heard"), "{}: {told}", said.escape_ascii());
        }
        // On a port of any protocol, too: nobody looks at the names in it.
        assert_eq!(say(&inside, "93.184.216.34:8080", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), "");
        let event = edge.event(|event| event.rule.contains("HTTP/2 without TLS"));
        assert_eq!((event.kind, event.port), (NetworkEventKind::Denied, 8080));
    });
}

#[test]
fn a_request_with_two_lengths_has_one_behind_the_edge() {
    in_a_world(|| {
        let _zone = Zone::start("api.example 93.184.216.34");
        let edge = Edge::start();
        serve("93.184.216.34:80", http("server"));
        let inside = edge.add(1, &plan(Preset::None, &["api.example"]));
        inside.run(|| shell("getent hosts api.example"));
        let told = say(
            &inside,
            "93.184.216.34:80",
            b"POST / HTTP/1.1\r\nHost: api.example\r\nConnection: close\r\nContent-Length: 50\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: other.example\r\n\r\n",
        );
        assert!(!told.contains("smuggled") && !told.to_lowercase().contains("content-length: 50"), "{told}");
        assert!(
            !told.contains("heard") || told.to_lowercase().contains("transfer-encoding: chunked"),
            "{told}"
        );
    });
}

#[test]
fn servers_that_speak_first_are_not_kept_waiting() {
    in_a_world(|| {
        let _zone = Zone::start("api.example 93.184.216.34");
        let edge = Edge::start();
        for at in ["93.184.216.34:22", "93.184.216.34:9418"] {
            serve(at, |mut stream: TcpStream| {
                stream.write_all(b"SSH-2.0-here\r\n").unwrap();
                echo(stream);
            });
        }
        serve("93.184.216.34:5433", echo);
        let inside = edge.add(1, &plan(Preset::None, &["api.example"]));
        inside.run(|| shell("getent hosts api.example"));
        for to in ["93.184.216.34:22", "93.184.216.34:9418"] {
            let took = inside.run(move || {
                let start = Instant::now();
                let mut stream = TcpStream::connect(to).unwrap();
                stream.read_exact(&mut [0; 14]).unwrap();
                stream.write_all(b"GET / HTTP/1.1\r\nHost: other.example\r\n\r\n").unwrap();
                stream.read_exact(&mut [0; 10]).unwrap();
                start.elapsed()
            });
            assert!(took < Duration::from_secs(1), "{to}: {took:?}");
        }
        // A client that speaks first, neither TLS nor HTTP.
        inside.run(|| {
            let mut stream = TcpStream::connect("93.184.216.34:5433").unwrap();
            stream.write_all(b"\0\0\0\x08\x04\xd2\x16\x2f").unwrap();
            stream.read_exact(&mut [0; 8]).unwrap();
        });
    });
}

#[test]
fn a_websocket_passes_and_http2_in_plain_does_not() {
    in_a_world(|| {
        let _zone = Zone::start("api.example 93.184.216.34");
        let edge = Edge::start();
        serve("93.184.216.34:80", |mut stream: TcpStream| {
            let mut buffer = [0; 4096];
            let read = stream.read(&mut buffer).unwrap();
            let head = String::from_utf8_lossy(&buffer[..read]).to_lowercase();
            if head.contains("upgrade: websocket") {
                stream.write_all(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n").unwrap();
                echo(stream);
            } else {
                let seen = head.contains("h2c");
                stream
                    .write_all(format!("HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nh2c {seen}").as_bytes())
                    .unwrap();
            }
        });
        let inside = edge.add(1, &plan(Preset::None, &["api.example"]));
        inside.run(|| shell("getent hosts api.example"));
        let echoed = inside.run(|| {
            let mut stream = TcpStream::connect("93.184.216.34:80").unwrap();
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            stream.write_all(b"GET /ws HTTP/1.1\r\nHost: api.example\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n").unwrap();
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                let mut byte = [0];
                stream.read_exact(&mut byte).unwrap();
                head.push(byte[0]);
            }
            assert!(head.starts_with(b"HTTP/1.1 101"));
            stream.write_all(b"GET / HTTP/1.1").unwrap();
            let mut echoed = [0; 14];
            stream.read_exact(&mut echoed).unwrap();
            echoed
        });
        assert_eq!(&echoed, b"GET / HTTP/1.1");
        let told = say(
            &inside,
            "93.184.216.34:80",
            b"GET / HTTP/1.1\r\nHost: api.example\r\nConnection: Upgrade, HTTP2-Settings, close\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n",
        );
        assert!(told.contains("h2c false"), "{told}");
    });
}

#[test]
fn a_narrowed_policy_closes_connections_by_name() {
    in_a_world(|| {
        let _zone = Zone::start("api.example 93.184.216.34, other.example 93.184.216.35");
        let edge = Edge::start();
        for at in ["93.184.216.34:22", "93.184.216.35:22"] {
            serve(at, |mut stream: TcpStream| {
                stream.write_all(b"x").unwrap();
                echo(stream);
            });
        }
        let inside = edge.add(1, &plan(Preset::None, &["api.example", "other.example"]));
        let (mut api, mut other) = inside.run(|| {
            shell("getent hosts api.example; getent hosts other.example");
            let open = |to: &str| {
                let mut stream = TcpStream::connect(to).unwrap();
                stream.set_read_timeout(Some(PATIENCE)).unwrap();
                stream.read_exact(&mut [0; 1]).unwrap();
                stream
            };
            (open("93.184.216.34:22"), open("93.184.216.35:22"))
        });
        edge.update(1, &plan(Preset::None, &["api.example"]));
        assert!(other.read(&mut [0; 1]).is_err());
        api.write_all(b"x").unwrap();
        api.read_exact(&mut [0; 1]).unwrap();
    });
}

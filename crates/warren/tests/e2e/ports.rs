//! `warren port` and `--publish`, as people use them.

use std::{
    io::{Read as _, Write as _},
    net::{TcpListener, TcpStream},
};

use rustix::process::Signal;
use serde_json::json;

use crate::support::{PATIENCE, World, until};

/// Whether the echo server inside answers on a port of the host.
fn echoes(address: &str) -> bool {
    let talk = || {
        let mut stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.write_all(b"hello")?;
        let mut heard = [0; 5];
        stream.read_exact(&mut heard).map(|()| heard == *b"hello")
    };
    talk().unwrap_or(false)
}

const ECHO: &str = "import socket
server = socket.create_server(('127.0.0.1', 80))
while True:
    client, _ = server.accept()
    while data := client.recv(65536): client.sendall(data)
    client.close()
";

#[test]
fn ports_are_published_listed_and_withdrawn() {
    let world = World::new();
    let script = world.files().join("echo.py");
    std::fs::write(&script, ECHO).unwrap();
    let copy = format!("{}:/tmp/echo.py", script.display());
    let create =
        ["create", "--name", "web", "--publish", "0:80", "--copy", &copy, "--init", "python3 /tmp/echo.py"];
    world.run(&create).expect(0);
    let inspected = world.run(&["inspect", "web"]).expect(0).json();
    let address = inspected["ports"][0]["published"].as_str().unwrap().to_owned();
    until("the server inside listens", || echoes(&address));
    let listed = world.run(&["port", "web"]).expect(0).text();
    assert!(
        listed.contains("INSIDE") && listed.contains(&address) && listed.contains("published"),
        "{listed}"
    );
    let listed = world.run(&["port", "web", "--json"]).expect(0).json();
    assert_eq!((&listed["ports"][0]["port"], &listed["ports"][0]["listening"]), (&json!(80), &json!(true)));

    // The daemon dies without a word; the next one listens on the same port again.
    let daemon = world.daemon().unwrap();
    daemon.signal(Signal::KILL);
    assert!(daemon.ends_within(PATIENCE));
    world.run(&["ps"]).expect(0);
    until("the port is back", || echoes(&address));

    // A taken port is an error that names it, and leaves nothing.
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().port().to_string();
    let port = address.rsplit(':').next().unwrap();
    let refused = world.run(&["create", "--name", "other", "-p", &format!("{port}:80")]).expect(125);
    assert!(refused.stderr.contains(port), "{refused:?}");
    world.run(&["inspect", "other"]).expect(125);
    let elsewhere = world.run(&["port", "web", "81", "--publish", &format!("192.0.2.1:{taken}")]).expect(125);
    assert!(elsewhere.stderr.contains("--publish-on"), "{elsewhere:?}");

    world.run(&["port", "web", "80", "--remove"]).expect(0);
    assert!(TcpStream::connect(&address).is_err());
    world.run(&["port", "web", "80", "--remove"]).expect(125);
    for wrong in [["port", "web", "0"], ["port", "web", "x"], ["port", "web", "70000"]] {
        world.run(&wrong).expect(2);
    }
    // Without TCP there is no address for a browser, and the error says how to get one.
    let nowhere = world.run(&["port", "web", "80"]).expect(125);
    assert!(nowhere.stderr.contains("serve"), "{nowhere:?}");
}

#[test]
fn the_address_of_a_port_is_printed() {
    let world = World::new();
    let served = world.serve(&["--port-domain", "https://apps.example"]);
    world.run(&["create", "--name", "My_Lab"]).expect(0);
    let id = world.run(&["inspect", "My_Lab"]).expect(0).json()["id"].as_str().unwrap().to_owned();
    let made = world.run(&["port", "My_Lab", "8000", "--ttl", "1h"]).expect(0);
    // No host name can hold this name, so it is the id.
    let start = format!("https://8000-{id}.apps.example/?warren_token=");
    assert!(made.text().starts_with(&start), "{made:?}");
    assert!(made.stderr.contains("nothing listens"), "{made:?}");
    let public = world.run(&["port", "My_Lab", "8000", "--public"]).expect(0).text();
    assert_eq!(public.trim(), format!("https://8000-{id}.apps.example/"));
    let listed = world.run(&["port", "My_Lab"]).expect(0).text();
    assert!(listed.contains("8000") && listed.contains("public"), "{listed}");
    world.run(&["port", "My_Lab", "8000", "--public", "--ttl", "1h"]).expect(2);
    served.stop();
}

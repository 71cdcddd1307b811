//! The host's own HTTP proxy between the edge and the internet.

use std::{
    io::{ErrorKind, Read, Write},
    net::{SocketAddr, TcpStream},
    sync::{Arc, Mutex},
    thread,
};

use edge::{Around, UpstreamProxy};
use sandbox::network::{NetworkEventKind, Preset};

use super::{
    edge::{Edge, plan},
    world::{PATIENCE, echo, in_a_world, serve},
};

const PROXY: &str = "10.1.1.1:3128";

/// An HTTP proxy that notes the heads of requests and connects where `answer` says 200. Its answer and the server's
/// first bytes come in one packet.
fn start(answer: &'static str) -> Arc<Mutex<Vec<String>>> {
    let heads = Arc::<Mutex<Vec<String>>>::default();
    let noted = Arc::clone(&heads);
    serve(PROXY, move |mut client| {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            client.read_exact(&mut byte).unwrap();
            head.push(byte[0]);
        }
        let head = String::from_utf8(head).unwrap();
        let to = head.split(' ').nth(1).unwrap().to_owned();
        noted.lock().unwrap().push(head);
        let mut said = format!("HTTP/1.1 {answer}\r\nvia: 1.1 test\r\n\r\n").into_bytes();
        if !answer.starts_with("200") {
            client.write_all(&said).unwrap();
            return;
        }
        let mut server = TcpStream::connect(to).unwrap();
        let mut first = [0; 5];
        server.read_exact(&mut first).unwrap();
        said.extend(first);
        client.write_all(&said).unwrap();
        let (mut from, mut back) = (client.try_clone().unwrap(), server.try_clone().unwrap());
        let sending = thread::spawn(move || std::io::copy(&mut from, &mut back));
        std::io::copy(&mut server, &mut client).unwrap();
        sending.join().unwrap().unwrap();
    });
    heads
}

fn behind(addresses: Vec<SocketAddr>) -> Edge {
    let proxy = UpstreamProxy {
        addresses,
        authorization: Some("Basic c2VjcmV0".to_owned()),
        direct: vec!["93.184.216.40".parse().unwrap()],
        direct_names: Vec::new(),
    };
    Edge::start_with(Around { proxy: Some(proxy), ..Around::default() })
}

/// Speaks first, then sends back what comes.
fn greet(mut stream: TcpStream) {
    stream.write_all(b"hello").unwrap();
    echo(stream);
}

fn greeted(to: &'static str) -> Result<(), ErrorKind> {
    let mut stream =
        TcpStream::connect_timeout(&to.parse().unwrap(), PATIENCE).map_err(|error| error.kind())?;
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut heard = [0; 7];
    stream.write_all(b"!!").unwrap();
    stream.read_exact(&mut heard).unwrap();
    assert_eq!(&heard, b"hello!!");
    Ok(())
}

#[test]
fn the_internet_is_reached_through_the_proxy_and_all_else_directly() {
    in_a_world(|| {
        let heads = start("200 Connection established");
        let edge = behind(vec![PROXY.parse().unwrap()]);
        let targets = ["93.184.216.34:7000", "[2606:4700::1]:7000", "93.184.216.40:7000", "10.2.2.2:7000"];
        for target in targets {
            serve(target, greet);
        }
        let inside = edge.add(1, &plan(Preset::PublicPrivate, &[]));
        for target in targets {
            assert_eq!(inside.run(move || greeted(target)), Ok(()), "{target}");
        }
        let expected = ["93.184.216.34:7000", "[2606:4700::1]:7000"].map(|target| {
            format!(
                "CONNECT {target} HTTP/1.1\r\nHost: {target}\r\nProxy-Authorization: Basic c2VjcmV0\r\n\r\n"
            )
        });
        assert_eq!(*heads.lock().unwrap(), expected);
        // Through the proxy itself a sandbox could go anywhere.
        assert_eq!(inside.run(|| greeted(PROXY)), Err(ErrorKind::ConnectionRefused));
        assert_eq!(heads.lock().unwrap().len(), 2);
    });
}

#[test]
fn what_the_proxy_does_not_do_fails_with_words() {
    in_a_world(|| {
        let target = "93.184.216.34:7000";
        serve(target, greet);
        let heads = start("403 Forbidden");
        let edge = behind(vec![PROXY.parse().unwrap()]);
        let inside = edge.add(1, &plan(Preset::Public, &[]));
        assert_eq!(inside.run(move || greeted(target)), Err(ErrorKind::ConnectionRefused));
        let event = edge.event(|event| event.kind == NetworkEventKind::Failed);
        assert!(
            event.rule.ends_with("the host's proxy could not be used: it answered with status 403"),
            "{event:?}"
        );
        assert_eq!(heads.lock().unwrap().len(), 1);

        // Nothing listens there; or its name is not known. Nobody goes around it.
        for addresses in [vec!["10.1.1.1:3129".parse().unwrap()], Vec::new()] {
            let edge = behind(addresses);
            let inside = edge.add(1, &plan(Preset::Public, &[]));
            assert!(inside.run(move || greeted(target)).is_err());
            let event = edge.event(|event| event.kind == NetworkEventKind::Failed);
            assert!(event.rule.contains("the host's proxy could not be used"), "{event:?}");
        }
    });
}

//! Published ports: recorded with their sandbox, listening while it runs, and back after every kind of restart.

use std::{net::SocketAddr, time::Duration};

use engine::{ForkSpec, Principal, SandboxRef};
use sandbox::{
    BackendKind, Capabilities, Capability, ErrorKind, ExecSpec, PortSpec, PortView, SandboxSpec,
    SandboxState, network::Protocol,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream, UdpSocket},
};

use super::support::{World, in_time};

fn publishing(name: &str, ports: &[PortSpec]) -> SandboxSpec {
    SandboxSpec { name: Some(name.parse().unwrap()), ports: ports.to_vec(), ..SandboxSpec::default() }
}

/// Whether the host's port leads to the echo server inside.
async fn echoes(at: SocketAddr) -> bool {
    let talk = async {
        let mut stream = TcpStream::connect(at).await?;
        stream.write_all(b"hello").await?;
        let mut heard = [0; 5];
        stream.read_exact(&mut heard).await.map(|_| heard == *b"hello")
    };
    in_time(talk).await.unwrap_or(false)
}

async fn ports(world: &World, which: &SandboxRef) -> Vec<PortView> {
    world.engine.exposed_ports(&world.who, which).await.unwrap()
}

async fn published(world: &World, which: &SandboxRef) -> SocketAddr {
    ports(world, which).await[0].published.unwrap()
}

#[tokio::test]
async fn a_published_port_survives_crashes_restarts_and_stops() {
    let world = World::new().await;
    let view = world.create_from(publishing("web", &[PortSpec::published(0, 8080)])).await;
    let which: SandboxRef = view.id.clone().into();
    // Any free port is remembered, in the list and in the sandbox itself.
    let at = published(&world, &which).await;
    let shown =
        PortView { port: 8080, protocol: Protocol::Tcp, published: Some(at), public: false, failed: None };
    assert!(at.ip().is_loopback() && at.port() != 0);
    assert_eq!((view.ports, view.spec.ports), (vec![shown.clone()], vec![]));
    assert!(!echoes(at).await, "nothing listens inside yet");
    world.serve_echo(&which, 8080).await;
    assert!(echoes(at).await);

    let world = world.crash().await;
    world.engine.settled().await;
    assert!(echoes(at).await, "after a crash of the daemon");
    let world = world.restart().await;
    world.engine.settled().await;
    assert!(echoes(at).await, "after a restart of the daemon");
    world.stop(&which).await;
    assert!(TcpStream::connect(at).await.is_err(), "a stopped sandbox holds no port");
    assert_eq!(ports(&world, &which).await, [shown]);
    world.engine.start_sandbox(&world.who, &which).await.unwrap();
    world.serve_echo(&which, 8080).await;
    assert!(echoes(at).await, "after a start of the sandbox");
    // A fork has none of them: the port of the host is the source's.
    let fork = ForkSpec { names: vec!["copy".parse().unwrap()], ..ForkSpec::default() };
    let fork = world.engine.fork_sandbox(&world.who, &which, fork).await.unwrap();
    assert!(fork.iter().all(|view| view.ports.is_empty()));
    assert!(echoes(at).await);
    world.remove(&which).await;
    assert!(TcpStream::connect(at).await.is_err(), "a removed sandbox holds no port");
}

/// For each of two ports. Together they are more than the sockets that a guest hands out (256): further connections are
/// streams through it.
const MANY: usize = 140;

/// Echoes at two ports, any number of clients at a time.
const ECHO_BOTH: &str = "
import socketserver, threading
class Echo(socketserver.BaseRequestHandler):
    def handle(self):
        while data := self.request.recv(65536): self.request.sendall(data)
class Server(socketserver.ThreadingTCPServer):
    request_queue_size, daemon_threads = 512, True
servers = [Server(('127.0.0.1', port), Echo) for port in (8080, 8081)]
threading.Thread(target=servers[0].serve_forever).start()
print('ready', flush=True)
servers[1].serve_forever()
";

#[tokio::test]
async fn connections_beyond_the_sockets_that_a_guest_hands_out_are_served_too() {
    let world = World::new().await;
    let both = [PortSpec::published(0, 8080), PortSpec::published(0, 8081)];
    let which: SandboxRef = world.create_from(publishing("web", &both)).await.id.into();
    let server = ExecSpec::argv(["python3", "-c", ECHO_BOTH].map(str::to_owned));
    let exec = world.engine.exec(&world.who, &which, server).await.unwrap();
    world.printed(&which, &exec.id, "ready").await;
    let mut all = Vec::new();
    for port in ports(&world, &which).await {
        for _ in 0..MANY {
            all.push(in_time(TcpStream::connect(port.published.unwrap())).await.unwrap());
        }
    }
    for (n, stream) in all.iter_mut().enumerate() {
        stream.write_all(&n.to_be_bytes()).await.unwrap();
        let mut heard = [0; size_of::<usize>()];
        in_time(stream.read_exact(&mut heard)).await.unwrap();
        assert_eq!(usize::from_be_bytes(heard), n);
    }
    drop(all);
    assert!(echoes(published(&world, &which).await).await, "they ended, and others begin");
}

#[tokio::test]
async fn a_taken_port_makes_no_sandbox_and_is_named() {
    let world = World::new().await;
    let other = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let taken = other.local_addr().unwrap().port();
    let asked = [PortSpec::published(0, 80), PortSpec::published(taken, 81)];
    let error = world.engine.create_sandbox(&world.who, publishing("web", &asked)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AlreadyExists);
    assert!(error.to_string().contains(&taken.to_string()), "{error}");
    let all = world.engine.sandboxes(&world.who, &Default::default()).await.unwrap();
    assert!(all.is_empty(), "{all:?}");
    // The name is free, and so is the port once the other is gone.
    drop(other);
    let view = world.create_from(publishing("web", &asked)).await;
    assert_eq!(view.ports[1].published.unwrap().port(), taken);
}

#[tokio::test]
async fn a_port_that_was_taken_meanwhile_is_shown_as_failed() {
    let world = World::new().await;
    let which: SandboxRef =
        world.create_from(publishing("web", &[PortSpec::published(0, 8080)])).await.id.into();
    let at = published(&world, &which).await;
    world.stop(&which).await;
    let other = TcpListener::bind(at).await.unwrap();
    let view = world.engine.start_sandbox(&world.who, &which).await.unwrap();
    assert_eq!(view.state, SandboxState::Running, "the sandbox itself is fine");
    let failed = view.ports[0].failed.clone().unwrap();
    assert!(failed.contains(&at.to_string()), "{failed}");
    // Asked for again once it is free, it works again.
    drop(other);
    let again = PortSpec::published(at.port(), 8080);
    let view = world.engine.expose_port(&world.who, &which, &again).await.unwrap();
    assert_eq!((view.published, view.failed), (Some(at), None));
    world.serve_echo(&which, 8080).await;
    assert!(echoes(at).await);
}

#[tokio::test]
async fn ports_are_exposed_and_withdrawn_while_it_runs() {
    let world = World::new().await;
    let view = world.create_named("web").await;
    let which: SandboxRef = view.id.clone().into();
    world.serve_echo(&which, 8080).await;
    let open = PortSpec { inside: 8080, protocol: Protocol::Tcp, host: None, address: None, public: true };
    world.engine.expose_port(&world.who, &which, &open).await.unwrap();
    assert_eq!(world.engine.open_public_port(&which, 8080).unwrap().sandbox, view.id);
    assert!(world.engine.open_public_port(&which, 8081).is_none());
    let both = world.engine.expose_port(&world.who, &which, &PortSpec::published(0, 8080)).await.unwrap();
    let at = both.published.unwrap();
    assert!(both.public && echoes(at).await);
    // The same again changes nothing.
    let same = world.engine.expose_port(&world.who, &which, &PortSpec::published(0, 8080)).await.unwrap();
    assert_eq!(same, both);
    // A connection that is open ends with the port.
    let mut held = TcpStream::connect(at).await.unwrap();
    held.write_all(b"x").await.unwrap();
    in_time(held.read_u8()).await.unwrap();
    world.engine.withdraw_port(&world.who, &which, 8080).await.unwrap();
    assert_eq!(in_time(held.read(&mut [0; 1])).await.unwrap_or(0), 0);
    assert!(TcpStream::connect(at).await.is_err());
    assert!(world.engine.open_public_port(&which, 8080).is_none() && ports(&world, &which).await.is_empty());
    let gone = world.engine.withdraw_port(&world.who, &which, 8080).await.unwrap_err();
    assert_eq!(gone.kind(), ErrorKind::NotFound);
    // A stopped one remembers what it is told, and listens once it runs.
    world.stop(&which).await;
    let later = world.engine.expose_port(&world.who, &which, &PortSpec::published(0, 9)).await.unwrap();
    let at = later.published.unwrap();
    assert!(TcpStream::connect(at).await.is_err());
    world.engine.start_sandbox(&world.who, &which).await.unwrap();
    assert!(TcpStream::connect(at).await.is_ok());
}

#[tokio::test]
async fn who_publishes_where_is_the_operators_decision() {
    let world = World::new().await;
    let which: SandboxRef = world.create_named("web").await.id.into();
    let developer = Principal::developer("dev");
    let elsewhere = PortSpec { address: Some([192, 0, 2, 1].into()), ..PortSpec::published(0, 80) };
    for (who, port) in [
        (&world.who, &elsewhere),
        (&developer, &PortSpec { address: Some([0, 0, 0, 0].into()), ..PortSpec::published(0, 80) }),
        (&developer, &PortSpec::published(80, 80)),
    ] {
        let error = world.engine.expose_port(who, &which, port).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Denied, "{port:?}");
        let spec = publishing("other", std::slice::from_ref(port));
        let error = world.engine.create_sandbox(who, spec).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Denied, "{port:?}");
    }
    let twice = publishing("other", &[PortSpec::published(0, 80), PortSpec::published(0, 80)]);
    let error = world.engine.create_sandbox(&world.who, twice).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidRequest);
    // Everywhere, where the operator said so.
    let world = World::with(|config| config.publish_on.push([0, 0, 0, 0].into())).await;
    let everywhere = PortSpec { address: Some([0, 0, 0, 0].into()), ..PortSpec::published(0, 80) };
    let view = world.create_from(publishing("web", &[everywhere])).await;
    assert!(view.ports[0].published.unwrap().ip().is_unspecified());
}

#[tokio::test]
async fn the_same_request_again_gets_the_same_port() {
    let world = World::new().await;
    let free = TcpListener::bind(("127.0.0.1", 0)).await.unwrap().local_addr().unwrap().port();
    let spec = SandboxSpec {
        request_id: Some("once".parse().unwrap()),
        ..publishing("web", &[PortSpec::published(free, 80)])
    };
    let first = world.create_from(spec.clone()).await;
    let second = tokio::time::timeout(Duration::from_secs(60), world.create_from(spec)).await.unwrap();
    assert_eq!((first.id, first.ports), (second.id, second.ports));
}

fn datagrams(host: u16, inside: u16) -> PortSpec {
    PortSpec { protocol: Protocol::Udp, ..PortSpec::published(host, inside) }
}

async fn serve_datagrams(world: &World, which: &SandboxRef, address: &str, port: u16, word: &str) {
    let spec = ExecSpec::argv(test_backend::echo_datagrams_on(address, port, word));
    let exec = world.engine.exec(&world.who, which, spec).await.unwrap();
    world.printed(which, &exec.id, "ready").await;
}

async fn client_of(at: SocketAddr) -> UdpSocket {
    let client = UdpSocket::bind((at.ip(), 0)).await.unwrap();
    client.connect(at).await.unwrap();
    client
}

/// Returns the server's answer. Asks again until there is one: datagrams may be lost.
async fn answer(client: &UdpSocket, text: &str) -> String {
    let mut heard = [0; 64 * 1024];
    in_time(async {
        loop {
            client.send(text.as_bytes()).await.unwrap();
            let answer = tokio::time::timeout(Duration::from_millis(200), client.recv(&mut heard)).await;
            if let Ok(Ok(n_bytes)) = answer {
                return String::from_utf8(heard[..n_bytes].to_vec()).unwrap();
            }
        }
    })
    .await
}

#[tokio::test]
async fn datagrams_find_the_server_and_their_way_back() {
    let world = World::new().await;
    let six = PortSpec { address: Some("::1".parse().unwrap()), ..datagrams(0, 54) };
    let which: SandboxRef = world.create_from(publishing("dns", &[datagrams(0, 53), six])).await.id.into();
    // The host's address and the server's are of either family.
    serve_datagrams(&world, &which, "::1", 53, "first").await;
    serve_datagrams(&world, &which, "127.0.0.1", 54, "second").await;
    let views = ports(&world, &which).await;
    assert!(views.iter().all(|view| view.protocol == Protocol::Udp));
    for (view, word) in views.iter().zip(["first", "second"]) {
        let at = view.published.unwrap();
        let clients = [client_of(at).await, client_of(at).await, client_of(at).await];
        for (number, client) in clients.iter().enumerate() {
            assert_eq!(answer(client, &format!("of {number}")).await, format!("{word} of {number}"));
        }
        let long = "x".repeat(9000);
        assert_eq!(answer(&clients[0], &long).await, format!("{word} {long}"));
    }
    let at = views[0].published.unwrap();
    let client = client_of(at).await;
    assert_eq!(answer(&client, "1").await, "first 1");
    // The same client reaches the next run of the sandbox: nothing of the last one is left.
    world.stop(&which).await;
    world.engine.start_sandbox(&world.who, &which).await.unwrap();
    serve_datagrams(&world, &which, "127.0.0.1", 53, "again").await;
    assert_eq!(answer(&client, "2").await, "again 2");
    let world = world.restart().await;
    world.engine.settled().await;
    assert_eq!(answer(&client, "3").await, "again 3", "after a restart of the daemon");
    world.engine.withdraw_port(&world.who, &which, 53).await.unwrap();
    UdpSocket::bind(at).await.unwrap();
}

#[tokio::test]
async fn a_flow_begins_anew_once_somebody_listens() {
    let world = World::new().await;
    let which: SandboxRef = world.create_from(publishing("dns", &[datagrams(0, 53)])).await.id.into();
    let client = client_of(published(&world, &which).await).await;
    client.send(b"to nobody").await.unwrap();
    serve_datagrams(&world, &which, "::1", 53, "late").await;
    let mut heard = answer(&client, "x").await;
    // On a busy machine the first one is on its way until somebody listens.
    while heard == "late to nobody" {
        heard = answer(&client, "x").await;
    }
    assert_eq!(heard, "late x");
}

#[tokio::test]
async fn more_clients_than_flows_are_served_too() {
    let world = World::new().await;
    let which: SandboxRef = world.create_from(publishing("dns", &[datagrams(0, 53)])).await.id.into();
    serve_datagrams(&world, &which, "127.0.0.1", 53, "to").await;
    let at = published(&world, &which).await;
    let mut clients = Vec::new();
    for number in 0..300 {
        let client = client_of(at).await;
        assert_eq!(answer(&client, &number.to_string()).await, format!("to {number}"));
        clients.push(client);
    }
    assert_eq!(answer(&clients[0], "0").await, "to 0", "the first has lost its place, and gets another");
}

#[tokio::test]
async fn a_back_end_without_udp_ports_refuses_them() {
    let world = World::new().await;
    let which: SandboxRef = world.create_named("old").await.id.into();
    let mut capabilities = Capabilities::all(BackendKind::Namespace);
    capabilities.has.retain(|one| *one != Capability::UdpPorts);
    world.backend.set_capabilities(capabilities);
    let world = world.restart().await;
    world.engine.settled().await;
    let error = world.engine.expose_port(&world.who, &which, &datagrams(0, 53)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("UDP ports"), "{error}");
    let asked = publishing("dns", &[datagrams(0, 53)]);
    let error = world.engine.create_sandbox(&world.who, asked).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    let public = PortSpec { public: true, ..datagrams(0, 53) };
    let error = world.engine.expose_port(&world.who, &which, &public).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidRequest);
}

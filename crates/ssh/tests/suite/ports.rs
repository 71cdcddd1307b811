//! Ports inside, in both directions, and nothing outside.

use engine::SandboxRef;
use futures_util::StreamExt;
use sandbox::ExecSpec;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::support::{Ran, World, in_time};

async fn serve_echo(world: &World, which: &SandboxRef, port: u16) {
    let spec = ExecSpec::argv(test_backend::echo_server(port));
    let exec = world.engine.exec(&world.owner, which, spec).await.unwrap();
    let mut entries = world.engine.exec_stream(&world.owner, which, &exec.id).await.unwrap();
    in_time(async {
        while let Some(entry) = entries.next().await {
            if matches!(entry.unwrap().body, engine::EntryBody::Stdout(_)) {
                return;
            }
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_port_of_the_sandbox_is_reached_through_the_connection() {
    let world = World::new().await;
    let which = world.sandbox("lab").await;
    serve_echo(&world, &which, 7777).await;
    let client = world.login("lab").await;
    for host in ["localhost", "127.0.0.1", "::1"] {
        let opened = client.handle.channel_open_direct_tcpip(host, 7777, "127.0.0.1", 9);
        let mut stream = in_time(opened).await.unwrap().into_stream();
        stream.write_all(b"around").await.unwrap();
        let mut back = [0; 6];
        in_time(stream.read_exact(&mut back)).await.unwrap();
        assert_eq!(&back, b"around", "{host}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_but_the_sandbox_is_reached() {
    let world = World::new().await;
    let which = world.sandbox("lab").await;
    let other = world.sandbox("other").await;
    serve_echo(&world, &other, 7777).await;
    let client = world.login("lab").await;
    // The daemon's own SSH port, on every name that it may have.
    let own = u32::from(world.address.port());
    for (host, port) in [
        ("127.0.0.1", own),
        ("localhost", own),
        ("127.0.0.1", 7777),
        ("169.254.169.254", 80),
        ("fe80::1", 80),
        ("10.0.0.1", 22),
        ("other", 7777),
        ("example.org", 443),
        ("localhost", 0),
        ("localhost", 70_000),
        ("", 1),
    ] {
        let opened = in_time(client.handle.channel_open_direct_tcpip(host, port, "127.0.0.1", 9)).await;
        assert!(opened.is_err(), "{host}:{port}");
    }
    drop(which);
    assert_eq!(client.run("echo fine").await, Ran::ok("fine\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn programs_inside_reach_a_port_of_the_client() {
    let world = World::new().await;
    world.sandbox("lab").await;
    let mut client = world.login("lab").await;
    let port = in_time(client.handle.tcpip_forward("localhost", 0)).await.unwrap();
    assert_ne!(port, 0);
    assert!(
        std::net::TcpStream::connect(("127.0.0.1", u16::try_from(port).unwrap())).is_err(),
        "it listens inside, not on the host"
    );
    let session = client.session().await;
    let line = format!("exec 3<>/dev/tcp/127.0.0.1/{port}; echo hello >&3; cat <&3");
    session.exec(true, format!("bash -c '{line}'")).await.unwrap();
    let mut inside = in_time(client.incoming.recv()).await.unwrap().into_stream();
    let mut heard = [0; 6];
    in_time(inside.read_exact(&mut heard)).await.unwrap();
    assert_eq!(&heard, b"hello\n");
    inside.write_all(b"answer").await.unwrap();
    inside.shutdown().await.unwrap();
    drop(inside);
    session.eof().await.unwrap();
    assert_eq!(super::support::finish(session).await, Ran::ok("answer"));
    in_time(client.handle.cancel_tcpip_forward("localhost", port)).await.unwrap();
    let gone =
        client.run(&format!("bash -c 'exec 3<>/dev/tcp/127.0.0.1/{port}' 2>/dev/null || echo gone")).await;
    assert_eq!(gone, Ran::ok("gone\n"));
}

//! Clients that mean harm.

use russh::ChannelOpenFailure;
use sandbox::KeySpec;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use super::support::{Ran, World, in_time};

/// Reads until the server closes or has greeted.
async fn greeting(stream: &mut TcpStream) -> Vec<u8> {
    let mut greeting = Vec::new();
    while !greeting.ends_with(b"\r\n") {
        let mut byte = [0];
        match in_time(stream.read(&mut byte)).await {
            Ok(1) => greeting.push(byte[0]),
            _ => break,
        }
    }
    greeting
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flood_of_half_open_connections_is_bounded_and_passes() {
    let world = World::new().await;
    world.sandbox("lab").await;
    let mut half_open = Vec::new();
    for _ in 0..200 {
        let mut stream = TcpStream::connect(world.address).await.unwrap();
        if greeting(&mut stream).await.starts_with(b"SSH-2.0-Warren") {
            half_open.push(stream);
        }
    }
    assert_eq!(half_open.len(), 16, "as many as one address may have before it logs in");
    drop(half_open);
    let key = world.key("ana", KeySpec::default()).await;
    in_time(async {
        loop {
            let stream = TcpStream::connect(world.address).await.unwrap();
            let (forwarded, _) = tokio::sync::mpsc::unbounded_channel();
            let events = super::support::events(forwarded);
            if russh::client::connect_stream(Default::default(), stream, events).await.is_ok() {
                return;
            }
        }
    })
    .await;
    let mut client = world.connect().await;
    assert!(client.password("lab", &key.secret).await);
    assert_eq!(client.run("echo in").await, Ran::ok("in\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn nonsense_in_place_of_a_handshake_ends_that_connection_only() {
    let world = World::new().await;
    world.sandbox("lab").await;
    let good = world.login("lab").await;
    for bytes in [
        &b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"[..],
        b"SSH-1.5-old\r\n",
        b"SSH-2.0-x\r\n\xff\xff\xff\xff\xff\xff\xff\xff",
        b"SSH-2.0-x\r\n\0\0\0\0\0\0\0\0",
        b"SSH-2.0-x\r\n\0\0\0\x0c\x0a\x14AAAAAAAAAA",
        &[0; 100_000],
        &[b'x'; 100_000],
    ] {
        let mut stream = TcpStream::connect(world.address).await.unwrap();
        stream.write_all(bytes).await.ok();
        stream.shutdown().await.ok();
        let mut rest = Vec::new();
        in_time(stream.read_to_end(&mut rest)).await.ok();
    }
    assert_eq!(good.run("echo fine").await, Ran::ok("fine\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_handshake_is_protected_against_prefix_truncation() {
    let world = World::new().await;
    let mut stream = TcpStream::connect(world.address).await.unwrap();
    greeting(&mut stream).await;
    stream.write_all(b"SSH-2.0-test\r\n").await.unwrap();
    let mut packet = vec![0; 4];
    in_time(stream.read_exact(&mut packet)).await.unwrap();
    let length = u32::from_be_bytes([packet[0], packet[1], packet[2], packet[3]]) as usize;
    let mut payload = vec![0; length];
    in_time(stream.read_exact(&mut payload)).await.unwrap();
    let offered = String::from_utf8_lossy(&payload);
    assert!(offered.contains("kex-strict-s-v00@openssh.com"), "{offered}");
    assert!(!offered.contains("zlib"), "compression is off");
    for weak in ["3des", "-cbc", "arcfour", "hmac-md5", "group1-sha1", "ssh-dss"] {
        assert!(!offered.contains(weak), "{weak}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn guesses_are_counted() {
    let world = World::new().await;
    let mut client = world.connect().await;
    let mut n_guesses = 0;
    while n_guesses < 100 && !client.handle.is_closed() {
        if client.handle.authenticate_password("lab", format!("wrn_{n_guesses}")).await.is_err() {
            break;
        }
        n_guesses += 1;
    }
    assert!(n_guesses <= 21, "{n_guesses}");
    let calls = in_time(async {
        loop {
            let calls = world.engine.calls(&world.owner, Default::default()).await.unwrap();
            if !calls.is_empty() {
                return calls;
            }
        }
    })
    .await;
    assert_eq!((calls.len(), calls[0].action.as_str(), calls[0].who.as_deref()), (1, "login", None));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flood_of_channels_is_bounded() {
    let world = World::new().await;
    world.sandbox("lab").await;
    let client = world.login("lab").await;
    let mut channels = Vec::new();
    let refusal = loop {
        match in_time(client.handle.channel_open_session()).await {
            Ok(channel) => channels.push(channel),
            Err(error) => break error,
        }
    };
    assert_eq!(channels.len(), 128);
    assert!(
        matches!(refusal, russh::Error::ChannelOpenFailure(ChannelOpenFailure::ResourceShortage)),
        "{refusal:?}"
    );
    for channel in channels {
        channel.close().await.unwrap();
    }
    let ran = in_time(async {
        loop {
            match client.handle.channel_open_session().await {
                Ok(channel) => {
                    channel.exec(true, "echo again").await.unwrap();
                    break super::support::finish(channel).await;
                }
                Err(_) => tokio::task::yield_now().await,
            }
        }
    })
    .await;
    assert_eq!(ran, Ran::ok("again\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flood_of_listeners_is_bounded() {
    let world = World::new().await;
    world.sandbox("lab").await;
    let client = world.login("lab").await;
    let mut ports = Vec::new();
    while let Ok(port) = in_time(client.handle.tcpip_forward("localhost", 0)).await {
        ports.push(port);
    }
    assert_eq!(ports.len(), 8);
    in_time(client.handle.cancel_tcpip_forward("localhost", ports[3])).await.unwrap();
    in_time(client.handle.tcpip_forward("localhost", 0)).await.unwrap();
    assert!(in_time(client.handle.tcpip_forward("localhost", 0)).await.is_err());
    assert_eq!(client.run("echo fine").await, Ran::ok("fine\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flood_of_requests_and_of_variables_is_bounded() {
    let world = World::new().await;
    world.sandbox("lab").await;
    let client = world.login("lab").await;
    let channel = client.session().await;
    for n in 0..2000 {
        channel.set_env(false, format!("LC_{n}"), "x").await.unwrap();
        channel.signal(russh::Sig::TERM).await.unwrap();
        channel.window_change(0, u32::MAX, 0, 0).await.unwrap();
    }
    channel.exec(true, "env | grep -c ^LC_").await.unwrap();
    let ran = super::support::finish(channel).await;
    assert_eq!(ran, Ran::ok("64\n"));
    let second = client.session().await;
    second.exec(true, "echo one").await.unwrap();
    second.exec(true, "echo two").await.unwrap();
    assert_eq!(super::support::finish(second).await, Ran::ok("one\n"), "one command for each channel");
    let long = client.run(&"x".repeat(200_000)).await;
    assert_eq!(long.status, Some(255), "{long:?}");
    let not_text = client.session().await;
    not_text.exec(true, vec![0xff, 0xfe]).await.unwrap();
    assert_eq!(super::support::finish(not_text).await.status, Some(255));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_sftp_client_that_breaks_the_protocol_loses_its_session_only() {
    let world = World::new().await;
    world.sandbox("lab").await;
    let client = world.login("lab").await;
    let init = b"\0\0\0\x05\x01\0\0\0\x03";
    for packets in [
        &b"\xff\xff\xff\xff\xff"[..],
        b"\0\0\0\0",
        b"\0\0\0\x05\x03\0\0\0\x01",
        &[init.as_slice(), init.as_slice()].concat(),
        &[init.as_slice(), b"\0\0\0\x09\x05\0\0\0\x01\xff\xff\xff\xff"].concat(),
        &[init.as_slice(), b"\0\x04\0\x01\x06"].concat(),
    ] {
        let channel = client.session().await;
        channel.request_subsystem(true, "sftp").await.unwrap();
        channel.data(packets).await.unwrap();
        let ran = super::support::finish(channel).await;
        assert_eq!(ran.status, Some(0), "{ran:?}");
    }
    let channel = client.session().await;
    channel.request_subsystem(true, "sftp").await.unwrap();
    let sftp = in_time(russh_sftp::client::SftpSession::new(channel.into_stream())).await.unwrap();
    assert!(sftp.try_exists("/etc/passwd").await.unwrap());
}

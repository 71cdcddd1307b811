//! Handshakes that stop half-way, that others change on their way, and clients that fall silent. Time stands still
//! while anything is left to do, so these stories take no time.

use std::time::Duration;

use russh::client;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, DuplexStream, ReadHalf, WriteHalf, copy, split},
    task::JoinHandle,
    time::{Instant, pause, sleep},
};

use super::support::{Client, Ran, World, events, in_time};

/// The same as the server's.
const LOGIN_WITHIN: Duration = Duration::from_secs(30);
/// More than the server takes to end a connection.
const GOODBYE: Duration = Duration::from_secs(1);

/// Stands between an honest client and the server: what the server says passes, and what the client says is handed on
/// bit by bit.
struct Middle {
    from_client: ReadHalf<DuplexStream>,
    to_server: WriteHalf<DuplexStream>,
    serving: JoinHandle<()>,
}

impl Middle {
    fn new(world: &World) -> (Self, DuplexStream) {
        let (client, ours) = tokio::io::duplex(64 * 1024);
        let (server, serving) = world.dial_as_owner();
        let (from_client, mut to_client) = split(ours);
        let (mut from_server, to_server) = split(server);
        tokio::spawn(async move {
            copy(&mut from_server, &mut to_client).await.ok();
            to_client.shutdown().await.ok();
        });
        (Self { from_client, to_server, serving }, client)
    }

    /// Hands on the line with which the client begins.
    async fn pass_id(&mut self) {
        let mut line = Vec::new();
        while !line.ends_with(b"\n") {
            line.push(in_time(self.from_client.read_u8()).await.unwrap());
        }
        self.to_server.write_all(&line).await.unwrap();
    }

    /// Hands on one message that is not encrypted yet; returns its number.
    async fn pass_message(&mut self) -> u8 {
        let length = in_time(self.from_client.read_u32()).await.unwrap();
        let mut rest = vec![0; length as usize];
        in_time(self.from_client.read_exact(&mut rest)).await.unwrap();
        self.to_server.write_u32(length).await.unwrap();
        self.to_server.write_all(&rest).await.unwrap();
        rest[1]
    }

    /// Says something in the client's name: `SSH_MSG_IGNORE`, as in the attack that is called Terrapin.
    async fn inject(&mut self) {
        let (padding, message) = ([0; 6], [2, 0, 0, 0, 0]);
        let length = 1 + message.len() + padding.len();
        self.to_server.write_u32(length.try_into().unwrap()).await.unwrap();
        self.to_server.write_u8(padding.len().try_into().unwrap()).await.unwrap();
        self.to_server.write_all(&[&message[..], &padding].concat()).await.unwrap();
    }

    /// Hands on everything from now on.
    fn pass_all(self) -> (JoinHandle<()>, JoinHandle<()>) {
        let Self { mut from_client, mut to_server, serving } = self;
        let passing = tokio::spawn(async move {
            copy(&mut from_client, &mut to_server).await.ok();
        });
        (passing, serving)
    }
}

/// How long it takes until the server has ended a connection.
async fn time_of(serving: JoinHandle<()>) -> Duration {
    let since = Instant::now();
    serving.await.unwrap();
    since.elapsed()
}

fn connecting(stream: DuplexStream) -> JoinHandle<bool> {
    let (forwarded, _) = tokio::sync::mpsc::unbounded_channel();
    let config = client::Config::default();
    tokio::spawn(
        async move { client::connect_stream(config.into(), stream, events(forwarded)).await.is_ok() },
    )
}

#[tokio::test]
async fn a_handshake_that_stops_half_way_is_cut_at_one_deadline() {
    let world = World::new().await;
    pause();
    // Nothing is said.
    let (_silent, serving) = world.dial_as_owner();
    let took = time_of(serving).await;
    assert!(took >= LOGIN_WITHIN && took < LOGIN_WITHIN + GOODBYE, "{took:?}");
    // Half a line is said, just before it is too late.
    let (mut slow, serving) = world.dial_as_owner();
    let late = LOGIN_WITHIN - GOODBYE;
    let since = Instant::now();
    sleep(late).await;
    slow.write_all(b"SSH-2.0-slow").await.unwrap();
    serving.await.unwrap();
    let took = since.elapsed();
    assert!(took >= LOGIN_WITHIN && took < LOGIN_WITHIN + GOODBYE, "{took:?}");
    // The line, or the line and the first message, just before it is too late: that gives nobody more time.
    for n_messages in 0..2 {
        let (mut middle, stream) = Middle::new(&world);
        let _client = connecting(stream);
        let since = Instant::now();
        sleep(late).await;
        middle.pass_id().await;
        for _ in 0..n_messages {
            middle.pass_message().await;
        }
        middle.serving.await.unwrap();
        let took = since.elapsed();
        assert!(took >= LOGIN_WITHIN && took < LOGIN_WITHIN + GOODBYE, "{n_messages} messages: {took:?}");
    }
    // The keys are agreed on, and nobody logs in.
    let (stream, serving) = world.dial_as_owner();
    let since = Instant::now();
    let _client = Client::over(stream).await;
    serving.await.unwrap();
    let took = since.elapsed();
    assert!(took >= LOGIN_WITHIN && took < LOGIN_WITHIN + GOODBYE, "{took:?}");
}

#[tokio::test]
async fn a_message_that_is_added_to_the_handshake_ends_the_connection() {
    const KEXINIT: u8 = 20;
    let world = World::new().await;
    pause();
    for (before_the_first, after_the_first) in [(true, false), (false, true), (false, false)] {
        let (mut middle, stream) = Middle::new(&world);
        let client = connecting(stream);
        middle.pass_id().await;
        if before_the_first {
            middle.inject().await;
        }
        assert_eq!(middle.pass_message().await, KEXINIT);
        if after_the_first {
            middle.inject().await;
        }
        let since = Instant::now();
        let (_passing, serving) = middle.pass_all();
        let is_changed = before_the_first || after_the_first;
        assert_eq!(in_time(client).await.unwrap(), !is_changed);
        if is_changed {
            serving.await.unwrap();
            assert_eq!(since.elapsed(), Duration::ZERO, "at once, not when its time is over");
        }
    }
}

#[tokio::test]
async fn a_client_that_falls_silent_is_cut_off() {
    const ASKED_EVERY: Duration = Duration::from_secs(30);
    let world = World::new().await;
    world.sandbox("lab").await;
    let (mut middle, stream) = Middle::new(&world);
    let client = tokio::spawn(async move {
        let mut client = Client::over(stream).await;
        client.handle.authenticate_none("lab").await.unwrap();
        client
    });
    middle.pass_id().await;
    let (passing, serving) = middle.pass_all();
    let client = in_time(client).await.unwrap();
    assert_eq!(client.run("echo there").await, Ran::ok("there\n"));
    pause();
    // While it answers, it stays.
    sleep(100 * ASKED_EVERY).await;
    assert!(!serving.is_finished());
    passing.abort();
    let took = time_of(serving).await;
    assert!(took > 3 * ASKED_EVERY && took < 6 * ASKED_EVERY, "{took:?}");
}

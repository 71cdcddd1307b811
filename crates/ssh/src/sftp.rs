//! SFTP: bytes between a channel and the server inside, which speaks the protocol.

use std::sync::Arc;

use bytes::BytesMut;
use engine::PortStream;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _, ReadHalf, WriteHalf, split},
    time::{Instant, sleep},
};

use crate::{
    channel::{Channel, Gone},
    limits::{COPY_BYTES, LAST_INPUT_WITHIN},
    login::Login,
};

/// Serves one session to its end.
pub(crate) async fn run(login: Arc<Login>, channel: Channel) {
    let since = Instant::now();
    let opened = async {
        let which = login.running_sandbox().await?;
        login.engine.open_sftp(&login.who, &which, login.user()).await
    };
    let opened = opened.await;
    login.record("sftp", since, opened.as_ref().err()).await;
    match opened {
        Ok(stream) => {
            serve(&channel, stream).await;
            channel.exit(0).await;
        }
        Err(error) => channel.fail(&error).await,
    }
}

/// The server inside ends when its client does, and a server that ended has nothing more to read.
async fn serve(channel: &Channel, stream: PortStream) {
    let (reader, writer) = split(stream);
    let outward = async {
        carry_out(channel, reader).await;
        channel.input.discard();
    };
    tokio::join!(carry_in(channel, writer), outward);
}

/// Carries bytes both ways until both sides have ended, or the client has closed the channel: then only what it sent
/// before is carried to its end.
pub(crate) async fn pass(channel: &Channel, stream: PortStream) {
    let (reader, writer) = split(stream);
    tokio::join!(carry_in(channel, writer), carry_out(channel, reader));
}

async fn carry_in(channel: &Channel, mut writer: WriteHalf<PortStream>) {
    let carrying = async {
        while let Some(piece) = channel.input.next().await {
            if writer.write_all(&piece).await.is_err() {
                channel.input.discard();
                break;
            }
        }
    };
    let too_late = async {
        channel.closed.cancelled().await;
        sleep(LAST_INPUT_WITHIN).await;
    };
    tokio::select! {
        () = carrying => {}
        () = too_late => {}
    }
    writer.shutdown().await.ok();
}

async fn carry_out(channel: &Channel, mut reader: ReadHalf<PortStream>) {
    let mut buffer = BytesMut::new();
    loop {
        buffer.reserve(COPY_BYTES);
        let read = tokio::select! {
            read = reader.read_buf(&mut buffer) => read,
            () = channel.closed.cancelled() => return,
        };
        match read {
            Ok(0) | Err(_) => break,
            Ok(_) => {}
        }
        if let Err(Gone) = channel.send(buffer.split().freeze()).await {
            return;
        }
    }
    channel.end_output().await;
}

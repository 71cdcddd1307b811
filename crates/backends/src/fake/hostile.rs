//! Guests that do not keep to the protocol.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use guest_protocol::{
    EntryKind, ExecEvent, FileEntry, Frame, FrameKind, Hello, MAX_DATA_BYTES, Request, Response,
};
use tokio::io::DuplexStream;

use super::{
    guest::{Guest, hello},
    switches::Hostility,
    wire::{FrameReader, FrameWriter, Lost, Result},
};

/// How long a slow guest thinks.
const SLOW: Duration = Duration::from_millis(200);

/// Serves one connection badly until it or the place ends.
pub(super) async fn serve(guest: Arc<Guest>, hostility: Hostility, io: DuplexStream) {
    let (reader, writer) = tokio::io::split(io);
    let (mut reader, mut writer) = (FrameReader::new(reader), FrameWriter::new(writer));
    tokio::select! {
        _lost = misbehave(&guest, hostility, &mut reader, &mut writer) => {}
        () = guest.ended() => {}
    }
}

async fn misbehave(
    guest: &Arc<Guest>,
    hostility: Hostility,
    reader: &mut FrameReader,
    writer: &mut FrameWriter,
) -> Result<()> {
    match hostility {
        Hostility::Silence => {
            reader.gone().await;
            return Ok(());
        }
        Hostility::Version(version) => {
            let hello = Hello { version, ..Hello::of_build("old") };
            writer.send(&Frame::json(FrameKind::Hello, &hello)?).await?;
            return guest.answer_requests(reader, writer).await;
        }
        Hostility::Slow => return be_slow(guest, reader, writer).await,
        Hostility::NoHello => return writer.send(&Frame::new(FrameKind::End, Bytes::new())).await,
        _ => writer.send(&hello()?).await?,
    }
    while let Some(frame) = reader.next().await? {
        let request: Request = frame.parse()?;
        if request.properties().has_body {
            reader.skip_body().await?;
        }
        match hostility {
            Hostility::TooLong => writer.raw(&[0xff, 0xff, 0xff, 0xff, 3]).await?,
            Hostility::Garbage => writer.raw(&[0x2a; 4096]).await?,
            Hostility::WrongOrder => writer.send(&Frame::ack(1)).await?,
            Hostility::Truncated => {
                writer.raw(&[200, 0, 0, 0, 3, b'{']).await?;
                return Err(Lost);
            }
            Hostility::EventGap => follow(&request, [1, 2, 4], writer).await?,
            Hostility::EventTwice => follow(&request, [1, 2, 2], writer).await?,
            Hostility::Endless => never_end(&request, writer).await?,
            Hostility::SilentStart => {
                if let Request::ExecStart(start) = request {
                    // Whether it started is what nobody is told.
                    drop(guest.start(start));
                }
                reader.gone().await;
                return Ok(());
            }
            Hostility::SilenceAfterHello
            | Hostility::Silence
            | Hostility::NoHello
            | Hostility::Slow
            | Hostility::Version(_) => {
                reader.gone().await;
                return Ok(());
            }
        }
    }
    Ok(())
}

async fn be_slow(guest: &Arc<Guest>, reader: &mut FrameReader, writer: &mut FrameWriter) -> Result<()> {
    writer.send(&hello()?).await?;
    let Some(frame) = reader.next().await? else { return Ok(()) };
    tokio::time::sleep(SLOW).await;
    guest.answer(frame.parse()?, reader, writer).await?;
    guest.answer_requests(reader, writer).await
}

/// Answers an attach with events of these numbers, counted from the first that was asked for; other requests as if well.
async fn follow(request: &Request, numbers: [u64; 3], writer: &mut FrameWriter) -> Result<()> {
    let Request::ExecAttach { from, .. } = request else { return seem_well(request, writer).await };
    writer.answer(Ok(Response::Attached { next: *from })).await?;
    for number in numbers {
        let event = ExecEvent::Stdout(Bytes::from(format!("event {number}\n")));
        writer.send(&event.to_frame(from - 1 + number)?).await?;
    }
    Ok(())
}

async fn seem_well(request: &Request, writer: &mut FrameWriter) -> Result<()> {
    let response = match request {
        Request::ExecStart(_) => Response::Started { pid: 2 },
        _ => Response::Done,
    };
    writer.answer(Ok(response)).await
}

async fn never_end(request: &Request, writer: &mut FrameWriter) -> Result<()> {
    let bytes = Bytes::from(vec![b'x'; MAX_DATA_BYTES]);
    match request {
        Request::ExecAttach { from, .. } => {
            writer.answer(Ok(Response::Attached { next: *from })).await?;
            for number in *from.. {
                writer.send(&ExecEvent::Stdout(bytes.clone()).to_frame(number)?).await?;
            }
            return Ok(());
        }
        Request::ExecStart(_) => return seem_well(request, writer).await,
        Request::Read { path, .. } => {
            let entry = FileEntry {
                path: path.clone(),
                kind: EntryKind::File,
                size: 1,
                mode: 0o644,
                uid: 0,
                gid: 0,
                modified_at_ms: 0,
                target: None,
            };
            writer.answer(Ok(Response::Reading { entry })).await?;
        }
        Request::TarOut { .. } => writer.answer(Ok(Response::Packing)).await?,
        _ => {}
    }
    loop {
        writer.send(&Frame::new(FrameKind::Data, bytes.clone())).await?;
    }
}

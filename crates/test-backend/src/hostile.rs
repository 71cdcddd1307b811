//! Guests that do not keep to the protocol. Where they half behave, a real guest does what they pass on.

use std::time::Duration;

use bytes::Bytes;
use guest_protocol::{
    EntryKind, ExecEvent, FileEntry, Frame, FrameKind, Hello, MAX_DATA_BYTES, Request, Response, Rich,
};
use sandbox::GuestStream;

use crate::{
    switches::Hostility,
    wire::{Connection, Lost, Result},
};

/// How long a slow guest thinks.
const SLOW: Duration = Duration::from_millis(200);

/// The connection to the engine, as its guest.
type Host = Connection<GuestStream>;

/// Serves one connection badly until it ends.
pub(crate) async fn serve(hostility: Hostility, guest: GuestStream, host: GuestStream) {
    // A connection that is lost concerns only the engine.
    drop(misbehave(hostility, Connection::new(guest), Connection::new(host)).await);
}

async fn misbehave(hostility: Hostility, mut guest: Connection<GuestStream>, mut host: Host) -> Result<()> {
    let hello = guest.next().await?;
    match hostility {
        Hostility::Silence => return host.gone().await,
        Hostility::Version(version) => {
            let hello = Hello { version, ..Hello::of_build("old") };
            host.send(&Frame::json(FrameKind::Hello, &hello)?).await?;
            return host.relay(guest).await;
        }
        Hostility::RawRecords => {
            host.send(&hello).await?;
            return show_raw_records(host, guest).await;
        }
        Hostility::NoHello => return host.send(&Frame::new(FrameKind::End, Bytes::new())).await,
        _ => host.send(&hello).await?,
    }
    loop {
        let frame = host.next().await?;
        if hostility == Hostility::Slow {
            tokio::time::sleep(SLOW).await;
            guest.send(&frame).await?;
            return host.relay(guest).await;
        }
        let request: Request = frame.parse()?;
        if request.properties().has_body {
            host.skip_body().await?;
        }
        match hostility {
            Hostility::TooLong => host.raw(&[0xff, 0xff, 0xff, 0xff, 3]).await?,
            Hostility::Garbage => host.raw(&[0x2a; 4096]).await?,
            Hostility::WrongOrder => host.send(&Frame::ack(1)).await?,
            Hostility::Truncated => {
                host.raw(&[200, 0, 0, 0, 3, b'{']).await?;
                return Err(Lost);
            }
            Hostility::EventGap => follow(&request, [1, 2, 4], &mut host).await?,
            Hostility::EventTwice => follow(&request, [1, 2, 2], &mut host).await?,
            Hostility::Endless => never_end(&request, &mut host).await?,
            Hostility::SilentStart => {
                if let Request::ExecStart(_) = request {
                    // Whether it started is what the engine is not told.
                    guest.send(&frame).await?;
                    guest.next().await?;
                }
                return host.gone().await;
            }
            Hostility::SilenceAfterHello
            | Hostility::Silence
            | Hostility::NoHello
            | Hostility::RawRecords
            | Hostility::Slow
            | Hostility::Version(_) => return host.gone().await,
        }
    }
}

/// Carries everything to and fro, with other records in it: see [`Hostility::RawRecords`].
async fn show_raw_records(mut host: Host, mut guest: Connection<GuestStream>) -> Result<()> {
    loop {
        tokio::select! {
            frame = host.next() => guest.send(&frame?).await?,
            frame = guest.next() => {
                let frame = frame?;
                match ExecEvent::from_frame(&frame) {
                    Ok((number, ExecEvent::Rich(records))) => {
                        // Records that were shown at once come together.
                        let lines = records.split_inclusive(|byte| *byte == b'\n');
                        let lines = lines.map(|line| raw_record(line).unwrap_or_else(|| line.to_vec()));
                        let records = Bytes::from(lines.collect::<Vec<_>>().concat());
                        host.send(&ExecEvent::Rich(records).to_frame(number)?).await?;
                    }
                    _ => host.send(&frame).await?,
                }
            }
        }
    }
}

fn raw_record(record: &[u8]) -> Option<Vec<u8>> {
    let Ok(Rich::Display { data }) = serde_json::from_slice(record) else { return None };
    let raw = data.get("text/plain")?.as_str()?.strip_prefix("raw ")?;
    Some(format!("{raw}\n").into_bytes())
}

/// Answers an attach with events of these numbers, counted from the first requested; other requests as if well.
async fn follow(request: &Request, numbers: [u64; 3], host: &mut Host) -> Result<()> {
    let Request::ExecAttach { from, .. } = request else { return seem_well(request, host).await };
    host.answer(&Response::Attached { next: *from }).await?;
    for number in numbers {
        let event = ExecEvent::Stdout(Bytes::from(format!("event {number}\n")));
        host.send(&event.to_frame(from - 1 + number)?).await?;
    }
    Ok(())
}

async fn seem_well(request: &Request, host: &mut Host) -> Result<()> {
    let response = match request {
        Request::ExecStart(_) => Response::Started { pid: 2 },
        _ => Response::Done,
    };
    host.answer(&response).await
}

async fn never_end(request: &Request, host: &mut Host) -> Result<()> {
    let bytes = Bytes::from(vec![b'x'; MAX_DATA_BYTES]);
    match request {
        Request::ExecAttach { from, .. } => {
            host.answer(&Response::Attached { next: *from }).await?;
            for number in *from.. {
                host.send(&ExecEvent::Stdout(bytes.clone()).to_frame(number)?).await?;
            }
            return Ok(());
        }
        Request::ExecStart(_) => return seem_well(request, host).await,
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
            host.answer(&Response::Reading { entry }).await?;
        }
        Request::TarOut { .. } => host.answer(&Response::Packing).await?,
        _ => {}
    }
    loop {
        host.send(&Frame::new(FrameKind::Data, bytes.clone())).await?;
    }
}

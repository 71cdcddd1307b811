//! A connection that follows an exec: events go out, acknowledgements come in.

use std::{io::IoSlice, rc::Rc};

use bytes::Bytes;
use guest_protocol::{
    ExecEvent, Failure, FailureKind, FrameKind, HEADER_BYTES, MAX_DATA_BYTES, Response, header,
};

use super::{Exec, shown};
use crate::{
    Guest, wire,
    wire::{FrameReader, FrameWriter},
};

/// Events written in one go at most.
const MAX_BATCH: usize = 32;
/// Number and code in front of an event's bytes, with the frame's header.
const EVENT_HEAD_BYTES: usize = HEADER_BYTES + 9;

/// Serves an attach until the connection ends, the exec is forgotten or another attach takes over. `Ok(Err)` is a
/// refusal after which the connection can go on.
pub(crate) async fn attach(
    guest: &Rc<Guest>,
    reader: &mut FrameReader<'_>,
    writer: FrameWriter<'_>,
    id: &str,
    from: u64,
) -> wire::Result<Result<(), Failure>> {
    let exec = match guest.execs.find(id) {
        Ok(exec) => exec,
        Err(failure) => return Ok(Err(failure)),
    };
    // An exec that is still starting may yet turn out not to have started.
    if let Response::NotStarted { message, .. } = exec.until(|inner| inner.answer.clone()).await {
        return Ok(Err(Failure::new(FailureKind::NotFound, message)));
    }
    let (acked, last) = {
        let inner = exec.inner.borrow();
        (inner.window.acked(), inner.window.last())
    };
    if from == 0 || from > last + 1 {
        let message = format!("exec {} has no event {from}; the next is {}", shown(id), last + 1);
        return Ok(Err(Failure::new(FailureKind::InvalidRequest, message)));
    }
    let next = from.max(acked + 1);
    let mine = exec.change(|inner| {
        inner.attach += 1;
        inner.is_attached = true;
        inner.attach
    });
    let result = async {
        writer.respond(&Response::Attached { next }).await?;
        tokio::select! {
            result = send_events(&exec, writer, next) => result,
            result = take_acks(guest, &exec, reader) => result,
            () = exec.until(|inner| (inner.attach != mine).then_some(())) => Ok(()),
        }
    }
    .await;
    exec.change(|inner| {
        if inner.attach == mine {
            inner.is_attached = false;
        }
    });
    result.map(Ok)
}

async fn take_acks(guest: &Guest, exec: &Exec, reader: &mut FrameReader<'_>) -> wire::Result<()> {
    while let Some(frame) = reader.next().await? {
        guest.execs.ack(exec, frame.acked()?);
        let is_forgotten = guest.execs.find(&exec.id).is_err();
        if is_forgotten {
            return Ok(());
        }
    }
    Ok(())
}

/// Sends events as they come; never returns by itself. Events acknowledged before they are sent are skipped.
async fn send_events(exec: &Exec, writer: FrameWriter<'_>, mut next: u64) -> wire::Result<()> {
    let mut batch: Vec<([u8; EVENT_HEAD_BYTES], Bytes)> = Vec::new();
    loop {
        exec.until(|inner| {
            next = next.max(inner.window.acked() + 1);
            inner.window.event(next).map(drop)
        })
        .await;
        let mut bytes = 0;
        while batch.len() < MAX_BATCH && bytes < MAX_DATA_BYTES {
            let inner = exec.inner.borrow();
            let Some(event) = inner.window.event(next) else { break };
            let (head, payload) = encode(event, next)?;
            bytes += payload.len();
            batch.push((head, payload));
            next += 1;
        }
        let mut pieces: Vec<IoSlice<'_>> =
            batch.iter().flat_map(|(head, payload)| [IoSlice::new(head), IoSlice::new(payload)]).collect();
        writer.write_all(&mut pieces).await?;
        batch.clear();
    }
}

/// An event's frame in two pieces, so that output is written without copying it.
fn encode(event: &ExecEvent, number: u64) -> wire::Result<([u8; EVENT_HEAD_BYTES], Bytes)> {
    let (code, payload) = match event {
        ExecEvent::Stdout(bytes) => (2, bytes.clone()),
        ExecEvent::Stderr(bytes) => (3, bytes.clone()),
        ExecEvent::Rich(bytes) => (6, bytes.clone()),
        other => {
            let payload = other.to_frame(number)?.payload;
            (payload.get(8).copied().unwrap_or_default(), payload.slice(9..))
        }
    };
    let mut head = [0; EVENT_HEAD_BYTES];
    head[..HEADER_BYTES].copy_from_slice(&header(FrameKind::Event, payload.len() + 9)?);
    head[HEADER_BYTES..HEADER_BYTES + 8].copy_from_slice(&number.to_le_bytes());
    head[HEADER_BYTES + 8] = code;
    Ok((head, payload))
}

#[cfg(test)]
mod tests {
    use guest_protocol::ExitReport;

    use super::*;

    #[test]
    fn events_in_pieces_are_the_same_bytes_as_whole_frames() {
        let report = ExitReport {
            code: Some(1),
            signal: None,
            timed_out: true,
            oom_kills: 0,
            shutdown: false,
            disk_limit: false,
        };
        for event in [
            ExecEvent::Started { pid: 7 },
            ExecEvent::Stdout(Bytes::from_static(b"out")),
            ExecEvent::Stderr(Bytes::new()),
            ExecEvent::Rich(Bytes::from_static(b"{\"type\"")),
            ExecEvent::Exited(report),
            ExecEvent::Closed,
        ] {
            let mut whole = bytes::BytesMut::new();
            guest_protocol::encode(&event.to_frame(258).unwrap(), &mut whole).unwrap();
            let (head, payload) = encode(&event, 258).unwrap();
            assert_eq!([&head[..], &payload[..]].concat(), whole[..]);
        }
    }
}

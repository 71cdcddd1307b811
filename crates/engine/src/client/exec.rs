//! Starting an exec, and the stream of its events.

use guest_protocol::{
    ExecEvent, ExecStart, Frame, FrameKind, ProtocolError, Request, Response, StartFailure,
};

use super::{
    GuestClient, GuestError, exchange,
    wire::{Wire, within},
};

pub(crate) enum StartAnswer {
    /// It runs. The connection is passed on so that attaching needs no new one.
    Started {
        pid: i32,
        wire: Wire,
    },
    NotStarted {
        reason: StartFailure,
        message: String,
    },
}

impl GuestClient {
    pub(crate) async fn start_exec(&self, start: ExecStart) -> Result<StartAnswer, GuestError> {
        let request = Request::ExecStart(start);
        let (answer, wire) = within(self.deadlines.answer, self.ask(&request)).await?;
        match answer {
            Response::Started { pid } => Ok(StartAnswer::Started { pid, wire }),
            Response::NotStarted { reason, message } => {
                self.keep(wire);
                Ok(StartAnswer::NotStarted { reason, message })
            }
            _ => Err(GuestError::Nonsense("another answer than `started`")),
        }
    }

    /// Follows the exec from event `from` on, over `wire` or a connection of its own.
    pub(crate) async fn attach(
        &self,
        id: &str,
        from: u64,
        wire: Option<Wire>,
    ) -> Result<ExecStream, GuestError> {
        let attached = async {
            let request = Request::ExecAttach { id: id.to_owned(), from };
            let mut wire = match wire {
                Some(wire) => wire,
                None => self.checkout().await?,
            };
            match exchange(&mut wire, &request).await? {
                Response::Attached { next } => Ok(ExecStream { wire, next, wanted: from }),
                _ => Err(GuestError::Nonsense("another answer than `attached`")),
            }
        };
        within(self.deadlines.answer, attached).await
    }
}

/// Events of one exec, in order, without duplicates.
#[derive(Debug)]
pub(crate) struct ExecStream {
    wire: Wire,
    /// Number that the next frame must have.
    next: u64,
    /// Earlier events are already known.
    wanted: u64,
}

impl ExecStream {
    /// Number of the first event that this stream can give.
    pub(crate) fn first(&self) -> u64 {
        self.next.max(self.wanted)
    }

    /// The next event. Safe to drop and call again.
    pub(crate) async fn next(&mut self) -> Result<(u64, ExecEvent), GuestError> {
        loop {
            let frame = self.wire.receive().await?;
            if let Some(event) = self.read(&frame)? {
                return Ok(event);
            }
        }
    }

    /// The next event, if it has arrived already.
    pub(crate) fn take_arrived(&mut self) -> Result<Option<(u64, ExecEvent)>, GuestError> {
        while let Some(frame) = self.wire.take_arrived()? {
            if let Some(event) = self.read(&frame)? {
                return Ok(Some(event));
            }
        }
        Ok(None)
    }

    /// Tells the guest that everything up to `number` is stored.
    pub(crate) async fn acknowledge(&mut self, number: u64) -> Result<(), GuestError> {
        self.wire.send(FrameKind::Ack, &Frame::ack(number).payload).await
    }

    fn read(&mut self, frame: &Frame) -> Result<Option<(u64, ExecEvent)>, GuestError> {
        if frame.kind == FrameKind::Failure {
            return Err(GuestError::Refused(frame.parse()?));
        }
        let (number, event) = ExecEvent::from_frame(frame)?;
        if number != self.next {
            return Err(ProtocolError::Malformed { kind: FrameKind::Event, source: None }.into());
        }
        self.next = number.checked_add(1).ok_or(GuestError::Nonsense("no number comes after the last"))?;
        Ok((number >= self.wanted).then_some((number, event)))
    }
}

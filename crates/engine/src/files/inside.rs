//! The access to a sandbox that SSH needs besides commands: its files by SFTP, and listening ports inside whose clients
//! come out.

use std::sync::Arc;

use guest_protocol::{FailureKind, Request};
use sandbox::{Error, ErrorKind, Result, Subject, Thing};

use super::{Entered, checked_text};
use crate::{
    Access, Engine, Principal, SandboxRef,
    client::{GuestError, GuestListener, PortStream},
    error,
};

/// Longest name of a user inside.
const MAX_USER_BYTES: usize = 256;

impl Engine {
    /// A stream to an SFTP server (version 3) inside, which acts as `user`, or as the sandbox's own user. It begins in
    /// the sandbox's working directory. For a read-only caller it changes nothing.
    #[crate::boxed]
    pub async fn open_sftp(
        &self,
        who: &Principal,
        which: &SandboxRef,
        user: Option<&str>,
    ) -> Result<PortStream> {
        let plan = self.core().find_to_look(who, which).await?.status.borrow().record.plan.clone();
        let user = match user {
            Some(user) => checked_text("user", user, MAX_USER_BYTES)?,
            None => plan.user,
        };
        let read_only = who.access == Access::ReadOnly;
        let request = Request::Sftp { user, cwd: plan.cwd, read_only, hand_out: true };
        let entered = self.enter(who, which.into(), &request).await?;
        let opened = entered.client().open_sftp(request).await;
        let stream = opened.map_err(|error| error::from_guest(error, entered.client().label()))?;
        Ok(stream.hold(entered))
    }

    /// Listens on a TCP port of the sandbox's own loopback; 0 means any free one. Programs inside that connect to it
    /// are handed to the caller.
    #[crate::boxed]
    pub async fn listen_inside(
        &self,
        who: &Principal,
        which: &SandboxRef,
        port: u16,
    ) -> Result<InsideListener> {
        let entered = self.enter(who, which.into(), &Request::Listen { port }).await?;
        let label = entered.client().label().to_owned();
        let listener = entered.client().listen(port).await.map_err(|error| match error {
            GuestError::Refused(failure) if failure.kind == FailureKind::AlreadyExists => {
                Error::new(ErrorKind::AlreadyExists, format!("a program in {label} listens on port {port}"))
                    .about(Thing::Port, port.to_string())
                    .with_hint("Choose another port, or 0 for any free one.")
            }
            error => error::from_guest(error, &label),
        })?;
        Ok(InsideListener { listener, entered: Arc::new(entered), label })
    }
}

/// A port inside whose clients are handed out. It closes when this is dropped.
#[derive(Debug)]
pub struct InsideListener {
    listener: GuestListener,
    entered: Arc<Entered>,
    label: Subject,
}

impl InsideListener {
    pub fn port(&self) -> u16 {
        self.listener.port
    }

    /// The next client. An error ends the listener; a client that left again is skipped. Safe to drop and call again:
    /// a client that was about to be handed out is lost then, as if it had left.
    #[crate::boxed]
    pub async fn accept(&mut self) -> Result<PortStream> {
        loop {
            let incoming =
                self.listener.next().await.map_err(|error| error::from_guest(error, &self.label))?;
            match self.entered.client().accept(incoming).await {
                Ok(stream) => return Ok(stream.hold(Arc::clone(&self.entered))),
                Err(GuestError::Refused(failure)) if failure.kind == FailureKind::NotFound => {}
                Err(error) => return Err(error::from_guest(error, &self.label)),
            }
        }
    }
}

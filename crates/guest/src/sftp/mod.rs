//! `Sftp`: an SFTP server inside, as OpenSSH's `internal-sftp` is: a process of the workload that acts as one user.
//!
//! It is a child of ours that joins the workload's cgroups and becomes the user before it reads a byte. So the kernel
//! decides what it may open, memory and disk that it fills count as the sandbox's, and a pause stops it too. It speaks
//! over one socket, which is handed out where the host can take it, and ends with that.

mod attributes;
mod handles;
mod packet;
mod paths;
mod session;

use std::{
    ffi::CString,
    io::{self, Write as _},
    os::{
        fd::{AsFd, OwnedFd},
        unix::net::UnixStream,
    },
    panic::{AssertUnwindSafe, catch_unwind},
    rc::Rc,
};

use guest_protocol::{Failure, FailureKind};
use rustix::process::Gid;
use tokio::io::AsyncReadExt as _;

use self::session::Session;
use crate::{
    Guest, connect,
    exec::user,
    files,
    sys::{self, ChildFailure, Identity, REPORT_BYTES, Stage},
    wire::{self, ConnectionError, FrameReader, FrameWriter},
};

/// The child's first bytes if it has become the user.
const JOINED: [u8; REPORT_BYTES] = [0; REPORT_BYTES];

/// The fields of `Request::Sftp`.
#[derive(Debug)]
pub(crate) struct Start {
    pub(crate) user: String,
    pub(crate) cwd: String,
    pub(crate) read_only: bool,
}

/// Starts a server and hands its socket out. `Ok(Err)` is a refusal after which the connection can go on.
pub(crate) async fn hand_out(
    guest: &Rc<Guest>,
    reader: &mut FrameReader<'_>,
    writer: FrameWriter<'_>,
    start: &Start,
) -> wire::Result<Result<(), Failure>> {
    let link = match guest.network.check_handing_out().and_then(|()| fork(guest, start)) {
        Ok(link) => link,
        Err(failure) => return Ok(Err(failure)),
    };
    match joined(reader, link, start).await? {
        Ok(link) => connect::hand_out_socket(writer, &OwnedFd::from(link.into_std()?)).await,
        Err(failure) => Ok(Err(failure)),
    }
}

/// Starts a server and joins it with this connection, until either ends.
pub(crate) async fn join(
    guest: &Rc<Guest>,
    reader: &mut FrameReader<'_>,
    writer: FrameWriter<'_>,
    start: &Start,
) -> wire::Result<Result<(), Failure>> {
    let link = match fork(guest, start) {
        Ok(link) => link,
        Err(failure) => return Ok(Err(failure)),
    };
    match joined(reader, link, start).await? {
        Ok(link) => connect::join(reader, writer, link).await.map(Ok),
        Err(failure) => Ok(Err(failure)),
    }
}

/// Makes the child; returns our end of its socket.
fn fork(guest: &Guest, start: &Start) -> Result<tokio::net::UnixStream, Failure> {
    if guest.is_stopping.get() {
        return Err(Failure::new(FailureKind::WrongState, "the sandbox is being stopped"));
    }
    let user = user::find(&start.user).map_err(|message| Failure::new(FailureKind::NotFound, message))?;
    let home = guest.home_of(user.uid);
    let cwd = files::absolute(&start.cwd)?.into_os_string().into_encoded_bytes();
    let cwd =
        CString::new(cwd).map_err(|_nul| Failure::new(FailureKind::InvalidRequest, "a NUL in a path"))?;
    let groups: Vec<Gid> = user.groups.iter().copied().map(Gid::from_raw).collect();
    let identity = Identity {
        uid: user.uid,
        gid: user.gid,
        groups: guest.may_set_groups.then_some(&groups),
        rlimits: &guest.rlimits,
        cwd: &cwd,
    };
    let cgroups: Vec<_> = guest.workload_cgroup.iter().map(AsFd::as_fd).collect();
    let begin = || {
        let (ours, theirs) = UnixStream::pair()?;
        ours.set_nonblocking(true)?;
        let ours = tokio::net::UnixStream::from_std(ours)?;
        let work = |link, joined| serve(link, joined, start.read_only, home);
        sys::fork_into_workload(theirs.into(), &cgroups, &identity, work)?;
        Ok(ours)
    };
    let link = begin().map_err(|error: io::Error| files::failure("no process for SFTP", error))?;
    guest.has_children.set(true);
    Ok(link)
}

/// The link, once the child has become its user.
async fn joined(
    reader: &mut FrameReader<'_>,
    mut link: tokio::net::UnixStream,
    start: &Start,
) -> wire::Result<Result<tokio::net::UnixStream, Failure>> {
    let mut report = JOINED;
    let read = tokio::select! {
        read = link.read_exact(&mut report) => read,
        () = reader.gone() => return Err(ConnectionError::Gone),
    };
    Ok(match read {
        Ok(_) if report == JOINED => Ok(link),
        Ok(_) => Err(explain(ChildFailure::from_bytes(report), start)),
        Err(error) => Err(files::failure("the process for SFTP ended at once", error)),
    })
}

fn explain(ChildFailure { stage, errno }: ChildFailure, start: &Start) -> Failure {
    let error = io::Error::from_raw_os_error(errno);
    match stage {
        Stage::Directory => files::failure(format!("could not enter {}", start.cwd), error),
        Stage::Groups | Stage::Gid | Stage::Uid => {
            Failure::new(FailureKind::Denied, format!("could not become the user {}: {error}", start.user))
        }
        stage => files::failure(format!("could not prepare a process for SFTP ({stage:?})"), error),
    }
}

/// The child: it has one thread and must not take any of our locks.
fn serve(link: OwnedFd, joined: Result<(), ChildFailure>, read_only: bool, home: String) {
    let mut link = UnixStream::from(link);
    let report = joined.map_or_else(ChildFailure::to_bytes, |()| JOINED);
    if link.write_all(&report).is_err() || report != JOINED {
        return;
    }
    // A client that breaks the protocol, or us, loses its own session only.
    catch_unwind(AssertUnwindSafe(|| Session::new(read_only, home).serve(&link))).ok();
}

/// For the fuzzer: packets of one session, on real files of whoever runs it. Nothing may panic, and replies must stay
/// within bounds.
#[doc(hidden)]
pub fn fuzz_sftp(packets: &[u8]) {
    let mut session = Session::new(true, "/".to_owned());
    let mut replies = packet::Replies::default();
    let mut rest = packets;
    while let Ok(Some(length)) = packet::packet_length(rest) {
        let Some(packet) = rest.get(4..4 + length) else { return };
        if session.answer(packet, &mut replies).is_err() {
            return;
        }
        assert!(replies.0.len() <= 2 * packet::MAX_PACKET_BYTES, "a reply of {} bytes", replies.0.len());
        replies.0.clear();
        rest = &rest[4 + length..];
    }
}

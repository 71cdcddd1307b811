//! What the daemon and the spawner say to each other: one packet, one message, with descriptors beside it.
//!
//! Each request brings a socket of its own for the answer, which the spawner passes on to the child that does the work.
//! So any number of requests are under way at once, and an answer needs no number: a child that dies without a word closes
//! its socket, and that is an answer too.

use std::{
    io::{self, IoSlice, IoSliceMut},
    mem::MaybeUninit,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd},
    path::PathBuf,
};

use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::{
    cage::{Cage, Step},
    cgroup::WorkloadFiles,
};

/// Longest message. A cage takes about eight kilobytes, one of many layers or on a host of many processors some ten more.
const MAX_PACKET_BYTES: usize = 128 * 1024;
/// Most descriptors beside one message.
pub(crate) const MAX_DESCRIPTORS: usize = 32;

#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Request {
    /// Once, before the first cage: steps for the spawner itself. Beside it: `cgroup.procs` files to enter. `shown_through`:
    /// directories for which it finds out whether they can be shown with other ids. `mark`: stands in the title of each
    /// guest; see [`crate::find_guests`].
    Prepare { steps: Vec<Step>, shown_through: Vec<PathBuf>, mark: String },
    /// Answered by `Ready` with a pidfd beside it. While the child builds its cage, whoever asked makes what the guest needs
    /// and sends it after; see [`ReplySocket::hand_over`].
    Spawn { cage: Box<Cage> },
    /// Deletes a directory with everything in it, whoever owns it. Answered by `Done`.
    Remove { path: PathBuf },
    /// Adds up what the files beneath these directories take on disk and, where a guest is named by its pid and start time,
    /// the files without a name that processes beside it hold open. Answered by `Measured`.
    Measure { paths: Vec<PathBuf>, guest: Option<(i32, u64)>, unlinked: Unlinked },
    /// Work on files of sandboxes, with the spawner's rights over them: what it is and what comes of it is between whoever
    /// asks and the worker that the spawner was started with. Descriptors beside it are the worker's. Ends with the spawner.
    /// Answered by `Worked`.
    Work { job: String },
}

/// Which files without a name count in a measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Unlinked {
    /// Those of a sandbox's root, which is an overlay.
    OfRoot,
    /// Those on the file system of the first path.
    OfPath,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reply {
    Done,
    /// The spawner's own user namespace has that many ids. `idmap_failure`: why a directory cannot be shown with others.
    /// `device_failure`: why a sandbox cannot have device nodes of its own.
    Prepared {
        ids: u32,
        idmap_failure: Option<Failure>,
        device_failure: Option<Failure>,
    },
    /// The cage stands and the guest takes over. `step_micros`: what each step took.
    Ready {
        pid: i32,
        start_time: u64,
        step_micros: Vec<u32>,
    },
    /// `was_moved`: a deep tree was moved about meanwhile, so that a part of it was missed.
    Measured {
        bytes: u64,
        was_moved: bool,
    },
    Worked {
        answer: String,
    },
    Failed(Failure),
}

/// Why a request was not done: the step, the value it was about, the kernel's answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{step}: {message}")]
pub struct Failure {
    pub step: String,
    pub message: String,
    pub errno: Option<i32>,
    /// Nothing is broken: we refuse what the sandbox's files would have us do.
    #[serde(default)]
    pub is_refusal: bool,
}

impl Failure {
    pub fn new(step: impl Into<String>, error: &io::Error) -> Self {
        let errno = error.raw_os_error();
        // As `crate::place` refuses; the kernel's own errors of this kind have a number.
        let is_refusal = errno.is_none() && error.kind() == io::ErrorKind::Unsupported;
        Self { step: step.into(), message: error.to_string(), errno, is_refusal }
    }
}

/// What comes after a [`Request::Spawn`]. Beside it: the guest's listener, the pid file, the counter and the file of the
/// memory's cgroup (where there are such), then the workload's cgroup files.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct HandingOver {
    pub(crate) has_oom_counter: bool,
    pub(crate) has_memory: bool,
}

/// The daemon's end of one request. Readable when the answer is there; non-blocking.
#[derive(Debug)]
pub struct ReplySocket(OwnedFd);

impl AsFd for ReplySocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl AsRawFd for ReplySocket {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

impl ReplySocket {
    /// Gives a child what its guest needs. A child whose socket is closed before that ends without a trace.
    pub fn hand_over(
        &self,
        listener: BorrowedFd<'_>,
        pid_file: BorrowedFd<'_>,
        cgroup: &WorkloadFiles,
    ) -> io::Result<()> {
        let mut all = vec![listener, pid_file];
        all.extend(cgroup.oom_counter.iter().chain(&cgroup.memory).chain(&cgroup.enter).map(AsFd::as_fd));
        let (has_oom_counter, has_memory) = (cgroup.oom_counter.is_some(), cgroup.memory.is_some());
        send(self.0.as_fd(), &HandingOver { has_oom_counter, has_memory }, &all)
    }

    /// Takes the answer if it has come: `WouldBlock` when not yet, `UnexpectedEof` when whoever worked on it died.
    pub fn try_receive(&self) -> io::Result<(Reply, Vec<OwnedFd>)> {
        receive(self.0.as_fd(), RecvFlags::DONTWAIT)
    }

    /// Waits for the answer.
    pub fn receive(&self) -> io::Result<(Reply, Vec<OwnedFd>)> {
        receive(self.0.as_fd(), RecvFlags::empty())
    }
}

/// A connected pair of packet sockets, closed on exec.
pub(crate) fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?)
}

pub(crate) fn reply_pair() -> io::Result<(ReplySocket, OwnedFd)> {
    let (ours, theirs) = pair()?;
    Ok((ReplySocket(ours), theirs))
}

pub(crate) fn send<T: Serialize>(
    socket: BorrowedFd<'_>,
    message: &T,
    descriptors: &[BorrowedFd<'_>],
) -> io::Result<()> {
    let bytes = serde_json::to_vec(message)?;
    if bytes.len() > MAX_PACKET_BYTES || descriptors.len() > MAX_DESCRIPTORS {
        let what = format!("a message of {} bytes and {} descriptors", bytes.len(), descriptors.len());
        return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
    }
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() {
        control.push(SendAncillaryMessage::ScmRights(descriptors));
    }
    sendmsg(socket, &[IoSlice::new(&bytes)], &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

pub(crate) fn receive<T: DeserializeOwned>(
    socket: BorrowedFd<'_>,
    flags: RecvFlags,
) -> io::Result<(T, Vec<OwnedFd>)> {
    let mut bytes = vec![0; MAX_PACKET_BYTES];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = flags | RecvFlags::CMSG_CLOEXEC;
    let mut take = || {
        rustix::io::retry_on_intr(|| recvmsg(socket, &mut [IoSliceMut::new(&mut bytes)], &mut control, flags))
    };
    // A peer that answered and left without reading what we sent: the kernel tells us that once, before the answer itself.
    let got = match take() {
        Err(rustix::io::Errno::CONNRESET) => take(),
        got => got,
    }?;
    let descriptors: Vec<OwnedFd> = control
        .drain()
        .flat_map(|message| match message {
            RecvAncillaryMessage::ScmRights(descriptors) => descriptors.collect(),
            _ => Vec::new(),
        })
        .collect();
    if got.bytes == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    if got.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC) {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "a message was cut"));
    }
    Ok((serde_json::from_slice(&bytes[..got.bytes])?, descriptors))
}

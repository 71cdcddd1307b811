//! Messages between the daemon and the spawner: one packet, one message, with descriptors attached.
//!
//! Each request brings a socket of its own for the answer, which the spawner passes on to the child that does the work.
//! So any number of requests can be in progress at once, and an answer needs no number: a child that dies silently
//! closes its socket, which is an answer too.

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
    network::NetworkMeans,
};

/// Longest message. A cage takes about eight kilobytes, and about ten more with many layers or on a host with many
/// processors.
const MAX_PACKET_BYTES: usize = 128 * 1024;
/// Most descriptors attached to one message: the sockets of a network with many named ports.
pub(crate) const MAX_DESCRIPTORS: usize = 40;

#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Request {
    /// Sent once, before the first cage: steps for the spawner itself. Attached: `cgroup.procs` files to enter.
    /// `shown_through`: directories to test for id-mapped mounts. `mark`: part of each guest's title; see
    /// [`crate::find_guests`].
    Prepare { steps: Vec<Step>, shown_through: Vec<PathBuf>, mark: String },
    /// Answered by `Ready` with a pidfd attached. While the child builds its cage, the requester prepares the guest's
    /// descriptors and sends them afterwards; see [`ReplySocket::hand_over`].
    Spawn { cage: Box<Cage> },
    /// Deletes a directory with its contents, whoever owns them. Answered by `Done`.
    Remove { path: PathBuf },
    /// Adds up the disk usage of the files below these directories and, if a guest is identified by its pid and start
    /// time, of unlinked files that its processes hold open. `processes`: the kernel's lists of them, if there are any;
    /// otherwise all processes of the host are looked at. Answered by `Measured`.
    Measure { paths: Vec<PathBuf>, guest: Option<(i32, u64)>, processes: Vec<PathBuf>, unlinked: Unlinked },
    /// Work on files of sandboxes, with the spawner's rights over them: only the requester and the spawner's worker
    /// know the job and its result. Attached descriptors are for the worker. Ends with the spawner. Answered by
    /// `Worked`.
    Work { job: String },
}

/// Which unlinked files count in a measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Unlinked {
    /// Unlinked files of a sandbox's root, which is an overlay.
    OfRoot,
    /// Unlinked files on the file system of the first path.
    OfPath,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reply {
    Done,
    /// The spawner's own user namespace has that many ids. `idmap_failure`: why a directory cannot be shown with other
    /// ids. `device_failure`: why a sandbox cannot have device nodes of its own.
    Prepared {
        ids: u32,
        idmap_failure: Option<Failure>,
        device_failure: Option<Failure>,
        network: NetworkMeans,
    },
    /// The cage is complete and the guest takes over. `step_micros`: the duration of each step.
    Ready {
        pid: i32,
        start_time: u64,
        step_micros: Vec<u32>,
    },
    /// `was_moved`: a deep tree was moved meanwhile, so that a part of it was missed.
    Measured {
        bytes: u64,
        was_moved: bool,
    },
    Worked {
        answer: String,
    },
    Failed(Failure),
}

/// Why a request failed: the step, its argument, the kernel's answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{step}: {message}")]
pub struct Failure {
    pub step: String,
    pub message: String,
    pub errno: Option<i32>,
    /// Nothing is broken: we refuse something about the sandbox's files.
    #[serde(default)]
    pub is_refusal: bool,
}

impl Failure {
    pub fn new(step: impl Into<String>, error: &io::Error) -> Self {
        let errno = error.raw_os_error();
        // As `crate::mount_target` refuses; the kernel's own errors of this kind have a number.
        let is_refusal = errno.is_none() && error.kind() == io::ErrorKind::Unsupported;
        Self { step: step.into(), message: error.to_string(), errno, is_refusal }
    }
}

/// Follows a [`Request::Spawn`]. Attached: the guest's listener, the pid file, the counter and the file of the memory
/// cgroup (if present), then the workload's cgroup files.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct HandingOver {
    pub(crate) has_oom_counter: bool,
    pub(crate) has_memory: bool,
}

/// The name and files that a cage made before its sandbox was asked for gets at last: [`Step::AwaitName`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Naming {
    pub hostname: String,
    /// Existing files inside, and what they are to contain.
    pub files: Vec<(String, String)>,
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
    /// Gives a child the descriptors of its guest. A child whose socket is closed before that ends without a trace.
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

    /// Names the sandbox of a cage that waits. Answered by `Done`.
    pub fn name(&self, naming: &Naming) -> io::Result<()> {
        send(self.0.as_fd(), naming, &[])
    }

    /// Takes the answer if it has arrived: `WouldBlock` if not yet, `UnexpectedEof` if the answering process died.
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
    // The peer answered and exited without reading everything we sent: the kernel reports that once, before the answer
    // itself.
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

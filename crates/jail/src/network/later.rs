//! The end of a network for a sandbox that runs already: a helper process of its own enters the sandbox's user and
//! network namespaces, makes there what a sandbox with a network is born with, hands the sockets back and ends.
//!
//! It is started by exec from the daemon, not cloned from the spawner: without root, the spawner of a restarted daemon
//! is in another user namespace than the one that made the sandbox, and has no rights over it; the daemon's user has.
//!
//! Which namespace it is comes from a socket that the sandbox's guest handed out, and the guest is hostile. So it must
//! be the very namespace that was noted when the sandbox was made, before any program of it ran. Nothing inside can
//! see, signal or trace the helper: it has no number in the sandbox's process namespace.

use std::{
    fs, io,
    os::{
        fd::{AsFd as _, BorrowedFd, OwnedFd},
        unix::process::CommandExt as _,
    },
    process::{Command, Stdio},
};

use rustix::{
    fs::FileType,
    net::RecvFlags,
    process::{DumpableBehavior, set_dumpable_behavior},
    thread::{LinkNameSpaceType, move_into_link_name_space},
};
use serde::{Deserialize, Serialize};

use super::{NetworkEnd, routes, rules, sockets};
use crate::{
    packet::{self, Failure},
    privileges, sys,
};

/// The argument that tells a program that it was started as the helper.
const ROLE: &str = "warren-network";
/// As in the sandboxes that have a network from their beginning.
const CONGESTION_CONTROL: &str = "/proc/sys/net/ipv4/tcp_congestion_control";

/// The order to the helper: which network to make. Attached: any socket of the namespace.
#[derive(Debug, Serialize, Deserialize)]
struct Order {
    /// The number of the network namespace, as `/proc/<pid>/ns/net` has it.
    namespace: u64,
    end: NetworkEnd,
    congestion_control: String,
}

/// Makes the end of a network in the namespace of a socket, which must have this number. Blocks; returns the sockets in
/// the order of a sandbox that is made with a network. May be called again for the same namespace once the earlier
/// sockets are closed; until then it fails with `AddrInUse`.
pub fn make_network_later(
    of: BorrowedFd<'_>,
    namespace: u64,
    end: &NetworkEnd,
    congestion_control: &str,
) -> io::Result<Vec<OwnedFd>> {
    let (ours, theirs) = packet::pair()?;
    let mut command = Command::new("/proc/self/exe");
    command.arg0(ROLE).env_clear().stdin(theirs).stdout(Stdio::null()).stderr(Stdio::null());
    let mut helper = command.spawn()?;
    // It holds the other end, and we must not.
    drop(command);
    let order = Order { namespace, end: end.clone(), congestion_control: congestion_control.to_owned() };
    let answered = packet::send(ours.as_fd(), &order, &[of])
        .and_then(|()| packet::receive::<Result<(), Failure>>(ours.as_fd(), RecvFlags::empty()));
    helper.wait()?;
    let (made, sockets) = answered?;
    match made {
        Ok(()) => Ok(sockets),
        Err(Failure { errno: Some(errno), .. }) if errno == libc::EADDRINUSE => {
            Err(io::Error::from_raw_os_error(errno))
        }
        Err(failure) => Err(io::Error::other(failure)),
    }
}

/// Runs this process as the helper to its end, if it was started as one; otherwise returns at once.
///
/// Call it first in `main`, while there is one thread.
pub fn run_network_role() {
    if std::env::args().next().as_deref() != Some(ROLE) {
        return;
    }
    sys::exit_now(i32::from(serve().is_err()))
}

fn serve() -> io::Result<()> {
    sys::reset_signals();
    sys::close_range(3, u32::MAX)?;
    privileges::refuse_cores();
    let daemon = rustix::stdio::stdin();
    let (order, attached) = packet::receive::<Order>(daemon, RecvFlags::empty())?;
    let made = attached
        .first()
        .map_or(Err(at("find a socket")(io::ErrorKind::InvalidInput.into())), |of| make(of.as_fd(), &order));
    match made {
        Ok(sockets) => {
            let sockets: Vec<_> = sockets.iter().map(|socket| socket.as_fd()).collect();
            packet::send(daemon, &Ok::<(), Failure>(()), &sockets)
        }
        Err(failure) => packet::send(daemon, &Err::<(), Failure>(failure), &[]),
    }
}

fn at(step: &'static str) -> impl Fn(io::Error) -> Failure {
    move |error| Failure::new(step, &error)
}

fn make(of: BorrowedFd<'_>, order: &Order) -> Result<Vec<OwnedFd>, Failure> {
    enter(of, order.namespace)?;
    let end = &order.end;
    // The way out comes last: what goes there finds the rules and the sockets.
    if end.named.is_none() {
        rules::set_again(end).map_err(at("set the rules"))?;
    }
    let sockets = sockets::make(end).map_err(at("make the sockets"))?;
    fs::write(CONGESTION_CONTROL, &order.congestion_control).map_err(at("choose a congestion control"))?;
    routes::set_again(end).map_err(at("set the routes"))?;
    Ok(sockets)
}

pub(super) fn enter(of: BorrowedFd<'_>, expected: u64) -> Result<(), Failure> {
    // Requests to other kinds of files are for whoever serves those.
    let kind = rustix::fs::fstat(of).map(|found| FileType::from_raw_mode(found.st_mode));
    if kind != Ok(FileType::Socket) {
        return Err(at("find the network namespace")(io::ErrorKind::InvalidInput.into()));
    }
    let network = sys::network_namespace_of(of).map_err(at("find the network namespace"))?;
    let found = rustix::fs::fstat(&network).map_err(|error| at("look at the namespace")(error.into()))?;
    if found.st_ino != expected {
        let other = io::Error::new(io::ErrorKind::PermissionDenied, "it is another sandbox's, or the host's");
        return Err(at("check the network namespace")(other));
    }
    let user = sys::owner_of_namespace(network.as_fd()).map_err(at("find the user namespace"))?;
    for (namespace, kind) in [(&user, LinkNameSpaceType::User), (&network, LinkNameSpaceType::Network)] {
        move_into_link_name_space(namespace.as_fd(), Some(kind))
            .map_err(|error| at("enter the sandbox's namespaces")(error.into()))?;
    }
    set_dumpable_behavior(DumpableBehavior::NotDumpable)
        .map_err(|error| at("hide from tracers")(error.into()))
}

//! Reaping: our own children and every orphan of the sandbox.

use std::{io, os::fd::OwnedFd, rc::Rc};

use rustix::process::WaitOptions;
use tokio::io::unix::AsyncFd;

use crate::{Guest, exec::Ended};

/// Size of `struct signalfd_siginfo`; its content does not matter, since signals of one kind merge anyway.
const SIGNAL_BYTES: usize = 128;

/// Reaps forever. One SIGCHLD may stand for many children.
pub(crate) async fn reap(guest: Rc<Guest>, signals: AsyncFd<OwnedFd>) {
    reap_ended(&guest);
    loop {
        let Ok(mut ready) = signals.readable().await else { return };
        let mut signal = [0; SIGNAL_BYTES];
        let read = ready.try_io(|fd| Ok(rustix::io::read(fd, &mut signal)?));
        if let Ok(Err(error)) = read
            && error.kind() != io::ErrorKind::Interrupted
        {
            return;
        }
        reap_ended(&guest);
    }
}

fn reap_ended(guest: &Guest) {
    loop {
        match rustix::process::wait(WaitOptions::NOHANG) {
            Ok(Some((pid, status))) => {
                let code = status.exit_status().and_then(|code| u8::try_from(code).ok());
                let ended = Ended { code, signal: status.terminating_signal() };
                let oom_kills = guest.oom_kills();
                let pid = pid.as_raw_nonzero().get();
                // Contexts and execs may both know the number.
                guest.contexts.reaped(pid, ended, oom_kills);
                guest.execs.reaped(pid, ended, oom_kills);
            }
            Ok(None) => return,
            Err(rustix::io::Errno::INTR) => {}
            Err(_no_child_left) => {
                guest.has_children.set(false);
                guest.children_gone.notify_waiters();
                return;
            }
        }
    }
}

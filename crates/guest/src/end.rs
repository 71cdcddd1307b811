//! Ending: the workload by `KillAll`, everything by `Shutdown`.

use std::{rc::Rc, time::Duration};

use guest_protocol::Response;
use tokio::time::timeout;

use crate::{
    Guest,
    exec::Cause,
    limits::{KILLED_GONE, LAST_ACKS},
    sys,
};

/// Kills every process of the workload and waits until they are gone.
pub(crate) async fn kill_all(guest: &Guest, disk: bool) -> Response {
    kill(guest, if disk { Cause::DiskLimit } else { Cause::Request });
    timeout(KILLED_GONE, no_child_left(guest)).await.ok();
    Response::Done
}

/// Ends everything but the guest itself, which leaves after it has answered.
pub(crate) async fn shut_down(guest: &Rc<Guest>, grace: Duration, signal: Option<i32>) -> Response {
    guest.is_stopping.set(true);
    let signals = [signal.unwrap_or(libc::SIGTERM), libc::SIGCONT];
    guest.execs.terminate_all(&signals);
    guest.contexts.terminate_all(&signals);
    if guest.is_init {
        for signal in signals {
            // ESRCH: no process but us.
            sys::kill(-1, signal).ok();
        }
    }
    if timeout(grace, no_child_left(guest)).await.is_err() {
        kill(guest, Cause::Shutdown);
        timeout(KILLED_GONE, no_child_left(guest)).await.ok();
    }
    timeout(LAST_ACKS, guest.execs.last_events_taken()).await.ok();
    Response::Done
}

fn kill(guest: &Guest, cause: Cause) {
    guest.execs.kill_all(cause);
    guest.contexts.kill_all();
    if guest.is_init {
        sys::kill(-1, libc::SIGKILL).ok();
    }
}

/// Every process inside descends from us or is reparented to us, so without a child none is left.
async fn no_child_left(guest: &Guest) {
    loop {
        let gone = guest.children_gone.notified();
        if !guest.has_children.get() {
            return;
        }
        gone.await;
    }
}

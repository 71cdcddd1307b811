//! Netlink sockets: as many as the sandbox may have, and no more.
//!
//! Nobody is charged for what waits in a netlink socket, so their number is all that bounds it. The syscall filter asks us
//! for each one; the arguments are in registers, so what we let go on is what was asked.

use std::{
    fs,
    os::fd::OwnedFd,
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
};
use tokio::{io::unix::AsyncFd, time::sleep};

use crate::sys;

/// How long a socket that was granted may take to be counted by the kernel: its thread may have to wait for a processor.
const COUNTED_WITHIN: Duration = Duration::from_millis(250);

/// Answers for ever whoever wants a netlink socket.
pub(crate) async fn admit(calls: AsyncFd<OwnedFd>, max_sockets: usize) {
    let mut granted = Granted(Vec::new());
    loop {
        let Ok(mut ready) = calls.readable().await else { return };
        while is_waiting(calls.get_ref()) {
            match sys::receive_call(calls.get_ref()) {
                Ok(call) => {
                    let may_have = granted.take(call.thread, max_sockets).await;
                    // An error here says that whoever called has gone meanwhile.
                    sys::answer_call(calls.get_ref(), call.id, may_have.map_err(Errno::raw_os_error)).ok();
                }
                // Gone before it was received.
                Err(_) => break,
            }
        }
        ready.clear_ready();
    }
}

/// Receiving waits until there is a call, and must not.
fn is_waiting(calls: &OwnedFd) -> bool {
    let mut polled = [PollFd::new(calls, PollFlags::IN)];
    poll(&mut polled, Some(&Timespec::default())).is_ok() && polled[0].revents().contains(PollFlags::IN)
}

/// Sockets that were granted and may not be counted by the kernel yet: who asked, and when.
struct Granted(Vec<(u32, Instant)>);

impl Granted {
    async fn take(&mut self, thread: u32, max_sockets: usize) -> Result<(), Errno> {
        // A thread that asks again has made, or failed to make, its last one.
        self.0.retain(|(other, _)| *other != thread);
        loop {
            self.0.retain(|(_, at)| at.elapsed() < COUNTED_WITHIN);
            let n_sockets = count().ok_or(Errno::NOBUFS)?;
            match self.0.first() {
                _ if n_sockets + self.0.len() < max_sockets => break,
                Some((_, at)) if n_sockets < max_sockets => {
                    sleep(COUNTED_WITHIN.saturating_sub(at.elapsed())).await;
                }
                _ => return Err(Errno::NOBUFS),
            }
        }
        self.0.push((thread, Instant::now()));
        Ok(())
    }
}

/// How many netlink sockets this network namespace has.
fn count() -> Option<usize> {
    count_in(&fs::read_to_string("/proc/net/protocols").ok()?)
}

/// Lines of `/proc/net/protocols` begin with the name of a protocol, the size of a socket and their number.
fn count_in(protocols: &str) -> Option<usize> {
    let line = protocols.lines().find(|line| line.starts_with("NETLINK "))?;
    line.split_ascii_whitespace().nth(2)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_are_counted_from_the_kernels_table() {
        let table = "protocol  size sockets  memory press\nUNIX      1024     55      -1   NI\n\
                     NETLINK   1096      7      -1   NI       0   no   kernel\n";
        assert_eq!(count_in(table), Some(7));
        assert_eq!(count_in("protocol  size sockets\n"), None);
        assert_eq!(count_in("NETLINK x y\n"), None);
    }
}

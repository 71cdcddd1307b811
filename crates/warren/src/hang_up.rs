//! Notices when nobody reads our output any more, without having to write.

use std::{io, thread};

use rustix::{
    event::{PollFd, PollFlags, poll},
    io::Errno,
};
use tokio::sync::oneshot;

use crate::error::{CommandError, CommandResult};

/// Does work that may wait for long before it prints. When the reader of stdout goes away, as `head` does, the command
/// ends as if its next write had failed.
pub(crate) async fn unless_unread<T>(work: impl Future<Output = CommandResult<T>>) -> CommandResult<T> {
    tokio::select! {
        done = work => done,
        () = unread() => Err(CommandError::BrokenPipe),
    }
}

/// Returns when the reader of stdout is gone. Never, for a file.
async fn unread() {
    let (gone, is_gone) = oneshot::channel();
    // A thread, since the runtime cannot wait for every kind of stdout. It ends with the process.
    let watching = thread::Builder::new().name("stdout".to_owned()).spawn(move || {
        if wait() {
            gone.send(()).unwrap_or(());
        } else {
            // Nobody will know; the sender must live, or its end would be taken for the news.
            std::mem::forget(gone);
        }
    });
    match watching {
        Ok(_watching) => is_gone.await.unwrap_or(()),
        Err(_no_thread) => std::future::pending().await,
    }
}

/// Waits for an error or a hang-up, which are reported unasked.
fn wait() -> bool {
    let stdout = io::stdout();
    loop {
        let mut polled = [PollFd::new(&stdout, PollFlags::empty())];
        match poll(&mut polled, None) {
            Ok(_) if polled[0].revents().intersects(PollFlags::ERR | PollFlags::HUP) => return true,
            Ok(_) | Err(Errno::INTR) => {}
            Err(_) => return false,
        }
        // Not open at all: nothing to wait for.
        if polled[0].revents().contains(PollFlags::NVAL) {
            return false;
        }
    }
}

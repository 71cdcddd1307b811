//! Our stdin, passed to an exec; when the daemon stops in the middle, to the next one.

use std::{
    convert::Infallible,
    io::{self, Read as _},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Instant,
};

use bytes::Bytes;
use frontends::rest::v1::Exec;
use futures_util::Stream;
use sandbox::{Error, ErrorKind};
use tokio::sync::{Mutex, Notify, mpsc};

use crate::{
    client::{Breaks, Client, patiently},
    error::{CommandError, CommandResult},
    interrupt::SIGHUP,
    terminal::{DetachKeys, Typed},
};

/// Bytes read from our stdin at once, and how many pieces may be queued for the daemon.
const PIECE_BYTES: usize = 64 * 1024;
const PIECES: usize = 4;

/// Where the bytes come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Source {
    /// A terminal in raw mode: the detach keys are looked for.
    Keys,
    Pipe,
}

/// Passes our stdin along until it ends, the command ends, or the detach keys are typed. Returns only if the rest
/// cannot be passed on. `is_cut_off` is set before the command is told, so that its end is known for what it is.
pub(super) async fn feed(
    client: &Client,
    exec: &Exec,
    source: Source,
    leave: Arc<Notify>,
    is_cut_off: &AtomicBool,
) -> CommandResult<Infallible> {
    let pieces = Pieces::read(source, leave);
    let mut breaks = Breaks::default();
    loop {
        let (n_before, begun) = (pieces.n_taken(), Instant::now());
        let fed = client.feed_stdin(exec.sandbox.as_str(), exec.id.as_str(), pieces.stream()).await;
        let Some(error) = fed.err().filter(CommandError::is_lost_daemon) else { break };
        if has_ended(client, exec).await {
            break;
        }
        // Nobody knows which of the bytes that were taken have arrived. A person sees that a key is missing; a program
        // would go on with a part of its input.
        if source == Source::Pipe && pieces.n_taken() > n_before {
            is_cut_off.store(true, Ordering::Relaxed);
            hang_up(client, exec).await;
            return Err(input_lost(error));
        }
        breaks.go_on(begun, error).await?;
    }
    // It is not an error if the command does not read its stdin or has ended.
    std::future::pending().await
}

/// Whether the command has ended, according to the next daemon. Waits until that has adopted the sandbox.
async fn has_ended(client: &Client, exec: &Exec) -> bool {
    let look = async |_left| client.exec_view(exec.sandbox.as_str(), exec.id.as_str()).await;
    match patiently(None, look).await {
        Ok(exec) => exec.outcome.is_some(),
        // Its sandbox may have been removed.
        Err(error) => !error.is_lost_daemon(),
    }
}

/// Lets the command know that nobody is at the other end any more. It may have ended meanwhile.
async fn hang_up(client: &Client, exec: &Exec) {
    let tell = async |_left| client.signal(exec.sandbox.as_str(), exec.id.as_str(), SIGHUP).await;
    patiently(None, tell).await.ok();
}

fn input_lost(error: CommandError) -> CommandError {
    error.map(|error| {
        let message = "the daemon stopped while stdin was passed on, and some of it may be lost";
        Error::new(ErrorKind::Unavailable, message)
            .with_source(error)
            .with_hint("The command was sent SIGHUP. Run it again with the whole input.")
    })
}

/// Pieces of our stdin, for one request after the other.
#[derive(Clone)]
struct Pieces(Arc<Shared>);

struct Shared {
    receiver: Mutex<mpsc::Receiver<Bytes>>,
    n_taken: AtomicU64,
}

impl Pieces {
    /// Reads stdin on a separate thread: a read that never returns must not keep the process from exiting.
    fn read(source: Source, leave: Arc<Notify>) -> Self {
        let (sender, receiver) = mpsc::channel(PIECES);
        std::thread::spawn(move || read_to_end(source, sender, &leave));
        Self(Arc::new(Shared { receiver: Mutex::new(receiver), n_taken: AtomicU64::new(0) }))
    }

    fn n_taken(&self) -> u64 {
        self.0.n_taken.load(Ordering::Relaxed)
    }

    /// What no earlier stream has taken.
    fn stream(&self) -> impl Stream<Item = io::Result<Bytes>> + Send + 'static {
        futures_util::stream::unfold(self.clone(), |pieces| async move {
            let piece = pieces.0.receiver.lock().await.recv().await?;
            pieces.0.n_taken.fetch_add(1, Ordering::Relaxed);
            Some((Ok(piece), pieces))
        })
    }
}

fn read_to_end(source: Source, sender: mpsc::Sender<Bytes>, leave: &Notify) {
    let mut keys = (source == Source::Keys).then(DetachKeys::default);
    let mut piece = vec![0; PIECE_BYTES];
    loop {
        let n = match io::stdin().lock().read(&mut piece) {
            Ok(0) => return,
            Ok(n) => n,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(_unreadable) => return,
        };
        let bytes = match keys.as_mut().map(|keys| keys.filter(&piece[..n])) {
            None => Bytes::copy_from_slice(&piece[..n]),
            Some(Typed::Pass(bytes)) => Bytes::from(bytes),
            Some(Typed::Detach(_)) => {
                leave.notify_one();
                // Dropping it would end the stream, which closes the command's stdin.
                std::mem::forget(sender);
                return;
            }
        };
        if !bytes.is_empty() && sender.blocking_send(bytes).is_err() {
            return;
        }
    }
}

//! Held SYNs: heard on a packet socket, decided, and answered by a release or a refusal.

use std::{
    collections::HashMap,
    future::Future,
    io,
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use rustix::net::{RecvFlags, recv};
use sandbox::network::{DnsName, NetworkEventKind, NetworkPlan, Protocol};
use tokio::{net::TcpStream, sync::oneshot};

use super::{accept, connection};
use crate::{
    events::Decision,
    handling::{self, Outcome},
    packets::{Syn, Unreachable},
    sandbox::{Opening, Sandbox},
    watched::Watched,
};

/// Longest SYN that is looked at: its headers are at most 120 bytes.
const SYN_BYTES: usize = 256;
/// SYNs that are taken before other tasks get a turn.
const BATCH: usize = 64;
/// Pause after an error of the socket that is not "nothing there".
const PAUSE: Duration = Duration::from_millis(100);

/// Source and destination of a connection, as the sandbox sees it.
pub(crate) type Ends = (SocketAddr, SocketAddr);

/// SYNs of one sandbox that were neither accepted nor refused yet. At most as many as its open connections may be.
#[derive(Debug, Default)]
pub(crate) struct Held(Mutex<HashMap<Ends, Entry>>);

#[derive(Debug)]
struct Entry {
    syn: Syn,
    is_released: bool,
    accepted: oneshot::Sender<TcpStream>,
}

/// One held SYN. If it is dropped before the sandbox's connection was made, the sandbox is refused.
#[derive(Debug)]
pub(crate) struct Hold {
    sandbox: Arc<Sandbox>,
    ends: Ends,
    refusal: Refusal,
}

/// How the sandbox is told that there is no connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    Reset,
    Unreachable(Unreachable),
}

/// Hears SYNs until the task is aborted.
pub(crate) async fn hear(sandbox: Arc<Sandbox>, socket: Watched) {
    let decide = |syn| decide(&sandbox, syn);
    hear_with(&sandbox, socket, decide).await;
}

/// Gives each SYN to `take`, until the task is aborted.
pub(super) async fn hear_with(sandbox: &Sandbox, socket: Watched, take: impl Fn(Syn)) {
    let mut packet = [0; SYN_BYTES];
    loop {
        let Ok(mut ready) = socket.readable().await else { return };
        for _ in 0..BATCH {
            let heard = ready.try_io(|socket| {
                let (_, length) = recv(socket.get_ref(), &mut packet[..], RecvFlags::DONTWAIT)?;
                Ok::<_, io::Error>(length.min(SYN_BYTES))
            });
            match heard {
                Ok(Ok(length)) => {
                    if let Some(syn) = Syn::parse(&packet[..length]) {
                        take(syn);
                    }
                }
                Ok(Err(error)) => {
                    tracing::warn!(sandbox = %sandbox.id, %error, "could not hear a connection");
                    tokio::time::sleep(PAUSE).await;
                }
                Err(_nothing_there) => break,
            }
        }
        drop(ready);
        tokio::task::yield_now().await;
    }
}

fn decide(sandbox: &Arc<Sandbox>, syn: Syn) {
    let (source, destination) = (syn.source, syn.destination);
    let is_own = Sandbox::is_own(source.ip(), destination.ip());
    if is_own || sandbox.held.repeat(sandbox, &syn) {
        return;
    }
    let Judged { opening, rule, plan } = match judge(sandbox, destination) {
        Ok(judged) => judged,
        Err(denied) => {
            sandbox.raw.send(&syn.reset(), source.ip());
            sandbox.tell(*denied);
            return;
        }
    };
    let (accepted, inside) = oneshot::channel();
    sandbox.held.lock().insert((source, destination), Entry { syn, is_released: false, accepted });
    let hold = Hold { sandbox: Arc::clone(sandbox), ends: (source, destination), refusal: Refusal::Reset };
    // Should there be no room, the task is dropped and the hold with it: the sandbox has its answer.
    begin(sandbox, &plan, opening.clone(), connection::run(Arc::clone(sandbox), hold, opening, rule, inside));
}

/// A connection that may be made.
pub(super) struct Judged {
    pub(super) opening: Opening,
    pub(super) rule: String,
    /// The plan that it was decided by.
    pub(super) plan: Arc<NetworkPlan>,
}

/// Decides a connection. `Err`: what is told of its refusal.
pub(super) fn judge(sandbox: &Sandbox, destination: SocketAddr) -> Result<Judged, Box<Decision>> {
    let plan = sandbox.plan();
    let names = handling::names_of(sandbox, destination);
    match handling::decide(sandbox, Protocol::Tcp, destination, &names) {
        Outcome::Take { handling, rule } => {
            let opening = Opening { protocol: Protocol::Tcp, destination, names, handling };
            Ok(Judged { opening, rule, plan })
        }
        Outcome::Refuse { rule } => Err(Box::new(denied(destination, names.first(), rule))),
    }
}

pub(super) fn denied(destination: SocketAddr, name: Option<&DnsName>, rule: String) -> Decision {
    Decision {
        kind: NetworkEventKind::Denied,
        protocol: Protocol::Tcp,
        name: name.cloned(),
        address: Some(destination.ip()),
        port: destination.port(),
        rule,
    }
}

/// Runs the task of a connection, if there is room for one more.
pub(super) fn begin(
    sandbox: &Arc<Sandbox>,
    plan: &Arc<NetworkPlan>,
    opening: Opening,
    task: impl Future<Output = ()> + Send + 'static,
) {
    let (limit, destination, name) =
        (plan.limits.connections, opening.destination, opening.names.first().cloned());
    if !sandbox.open(opening, limit, task) {
        let rule = format!("denied: the sandbox has {limit} connections open, which is its limit");
        sandbox.tell(denied(destination, name.as_ref(), rule));
    } else if !Arc::ptr_eq(plan, &sandbox.plan()) {
        // A new plan came between the decision and the entry, and did not see it.
        sandbox.judge_again();
    }
}

impl Held {
    /// Whether a SYN is the repetition of one that is held.
    fn repeat(&self, sandbox: &Sandbox, syn: &Syn) -> bool {
        let mut held = self.lock();
        let Some(entry) = held.get_mut(&(syn.source, syn.destination)) else { return false };
        // A new connection from the same port begins elsewhere; the last one counts.
        entry.syn = syn.clone();
        if entry.is_released {
            sandbox.raw.send(&syn.released(), syn.destination.ip());
        }
        true
    }

    /// Gives an accepted connection to whoever holds its SYN; gives it back if nobody does.
    pub(crate) fn accepted(&self, ends: Ends, inside: TcpStream) -> Result<(), TcpStream> {
        match self.lock().remove(&ends) {
            Some(entry) => entry.accepted.send(inside),
            None => Err(inside),
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Ends, Entry>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Hold {
    /// Lets the sandbox's own kernel make the connection.
    pub(crate) fn release(&self) {
        if let Some(entry) = self.sandbox.held.lock().get_mut(&self.ends) {
            entry.is_released = true;
            self.sandbox.raw.send(&entry.syn.released(), self.ends.1.ip());
        }
    }

    /// Takes the connection if it is made already.
    pub(crate) fn accept_at_once(&self) {
        accept::accept_at_once(&self.sandbox, self.ends.1.is_ipv4());
    }

    pub(crate) fn refuse(mut self, refusal: Refusal) {
        self.refusal = refusal;
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let Some(entry) = self.sandbox.held.lock().remove(&self.ends) else { return };
        let answer = match self.refusal {
            Refusal::Reset => entry.syn.reset(),
            Refusal::Unreachable(why) => entry.syn.unreachable(why),
        };
        self.sandbox.raw.send(&answer, self.ends.0.ip());
    }
}

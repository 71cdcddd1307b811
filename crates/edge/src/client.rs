//! The daemon's end of the edge.

use std::{
    collections::HashMap,
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use sandbox::{
    HeldSecrets, SandboxId,
    network::{NetworkEvent, NetworkHosts, NetworkPlan, NetworkSockets},
};
use tokio::{
    io::Interest,
    sync::{mpsc, oneshot},
    task::AbortHandle,
};

use crate::{
    control::{self, Around, Order, Report, Request},
    events::Counters,
    watched::{Watched, watch},
};

/// Reports that wait for whoever reads them; further ones are dropped and counted.
const MAX_WAITING: usize = 256;

#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    #[error("the edge is gone")]
    Gone,
    #[error("the edge refused: {0}")]
    Refused(String),
    #[error("could not talk to the edge")]
    Io(#[from] io::Error),
}

/// A report that the edge sends unasked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EdgeReport {
    Events(Vec<NetworkEvent>),
    Counters(Vec<(SandboxId, Counters)>),
    /// Everything from before [`Client::tell`] was called with this number has been told.
    CaughtUp(u64),
    /// So many reports were dropped before this one, because nobody read them.
    Lost(u64),
}

type Answer = Result<Option<NetworkHosts>, String>;
type Answers = HashMap<u64, oneshot::Sender<Answer>>;

/// Sends orders to the edge. When it is dropped, the edge ends, and with it everything that sandboxes have open.
#[derive(Debug)]
pub struct Client {
    control: Arc<Watched>,
    waiting: Arc<Mutex<Waiting>>,
    next: AtomicU64,
    reader: AbortHandle,
}

#[derive(Debug, Default)]
struct Waiting {
    answers: Answers,
    is_gone: bool,
}

impl Drop for Client {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

impl Client {
    /// The two ends of a control socket: ours, and the one that the edge's process is started with.
    pub fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
        Ok(socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?)
    }

    /// Talks to the edge at the other end of `control`. The receiver ends when the edge does. Within a runtime only.
    pub fn new(control: OwnedFd) -> io::Result<(Self, mpsc::Receiver<EdgeReport>)> {
        let control = Arc::new(watch(control, Interest::READABLE | Interest::WRITABLE)?);
        let waiting = Arc::new(Mutex::new(Waiting::default()));
        let (tell, told) = mpsc::channel(MAX_WAITING);
        let reader = tokio::spawn(read(Arc::clone(&control), Arc::clone(&waiting), tell)).abort_handle();
        Ok((Self { control, waiting, next: AtomicU64::new(0), reader }, told))
    }

    /// Begins to serve a sandbox. The edge gets copies of the sockets.
    pub async fn add(
        &self,
        sandbox: &SandboxId,
        plan: &NetworkPlan,
        secrets: Option<&HeldSecrets>,
        sockets: &NetworkSockets,
    ) -> Result<(), ClientError> {
        let (plan, secrets) = (Box::new(plan.clone()), secrets.cloned().map(Box::new));
        let order = Order::Add { sandbox: sandbox.clone(), plan, secrets };
        self.order(order, &sockets.descriptors()).await
    }

    /// Changes a sandbox's policy. When this returns, connections that it does not allow are closed.
    pub async fn update(&self, sandbox: &SandboxId, plan: &NetworkPlan) -> Result<(), ClientError> {
        let order = Order::Update { sandbox: sandbox.clone(), plan: Box::new(plan.clone()) };
        self.order(order, &[]).await
    }

    /// Replaces a sandbox's secrets. When this returns, connections that could carry the old ones are closed.
    pub async fn hold_secrets(
        &self,
        sandbox: &SandboxId,
        secrets: Option<&HeldSecrets>,
    ) -> Result<(), ClientError> {
        let order = Order::Hold { sandbox: sandbox.clone(), secrets: secrets.cloned().map(Box::new) };
        self.order(order, &[]).await
    }

    /// Says which root certificates, in DER, servers of hosts with secrets are verified by.
    pub async fn trust(&self, roots: Vec<Vec<u8>>) -> Result<(), ClientError> {
        self.order(Order::Trust { roots }, &[]).await
    }

    /// Ends everything of a sandbox. It may be called twice.
    pub async fn drop_sandbox(&self, sandbox: &SandboxId) -> Result<(), ClientError> {
        self.order(Order::Drop { sandbox: sandbox.clone() }, &[]).await
    }

    /// Says what is around the edge, in place of what was said before.
    pub async fn around(&self, around: &Around) -> Result<(), ClientError> {
        self.order(Order::Around(Box::new(around.clone())), &[]).await
    }

    /// Has everything told that happened so far.
    pub async fn tell(&self, number: u64) -> Result<(), ClientError> {
        self.order(Order::Tell { number }, &[]).await
    }

    /// How much went to which host of a sandbox.
    pub async fn hosts(&self, sandbox: &SandboxId) -> Result<NetworkHosts, ClientError> {
        Ok(self.ask(Order::Hosts { sandbox: sandbox.clone() }, &[]).await?.unwrap_or_default())
    }

    async fn order(&self, order: Order, descriptors: &[BorrowedFd<'_>]) -> Result<(), ClientError> {
        self.ask(order, descriptors).await.map(drop)
    }

    async fn ask(
        &self,
        order: Order,
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<Option<NetworkHosts>, ClientError> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let (answer, answered) = oneshot::channel();
        {
            let mut waiting = lock(&self.waiting);
            if waiting.is_gone {
                return Err(ClientError::Gone);
            }
            waiting.answers.insert(number, answer);
        }
        let request = Request { number, order };
        let sent = self
            .control
            .async_io(Interest::WRITABLE, |control| control::send(control.as_fd(), &request, descriptors))
            .await;
        if let Err(error) = sent {
            lock(&self.waiting).answers.remove(&number);
            return Err(match error.kind() {
                io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => ClientError::Gone,
                _ => error.into(),
            });
        }
        match answered.await {
            Ok(Ok(hosts)) => Ok(hosts),
            Ok(Err(why)) => Err(ClientError::Refused(why)),
            Err(_gone) => Err(ClientError::Gone),
        }
    }
}

/// Reads what the edge says until it ends.
async fn read(control: Arc<Watched>, waiting: Arc<Mutex<Waiting>>, tell: mpsc::Sender<EdgeReport>) {
    let mut lost = 0;
    loop {
        let received =
            control.async_io(Interest::READABLE, |control| control::receive::<Report>(control.as_fd())).await;
        let told = match received {
            Ok((Report::Done { number, hosts }, _)) => {
                answer(&waiting, number, Ok(hosts));
                continue;
            }
            Ok((Report::Failed { number, why }, _)) => {
                answer(&waiting, number, Err(why));
                continue;
            }
            Ok((Report::Events(events), _)) => EdgeReport::Events(events),
            Ok((Report::Counters(counters), _)) => EdgeReport::Counters(counters),
            Ok((Report::CaughtUp(number), _)) => EdgeReport::CaughtUp(number),
            Err(error) => {
                if error.kind() != io::ErrorKind::UnexpectedEof {
                    tracing::warn!(%error, "the edge said something that could not be read");
                }
                let mut waiting = lock(&waiting);
                waiting.is_gone = true;
                waiting.answers.clear();
                return;
            }
        };
        if lost > 0 && tell.try_send(EdgeReport::Lost(lost)).is_ok() {
            lost = 0;
        }
        if tell.try_send(told).is_err() {
            lost += 1;
        }
    }
}

fn answer(waiting: &Mutex<Waiting>, number: u64, result: Answer) {
    if let Some(answer) = lock(waiting).answers.remove(&number) {
        // Whoever asked may have stopped waiting.
        drop(answer.send(result));
    }
}

fn lock(waiting: &Mutex<Waiting>) -> MutexGuard<'_, Waiting> {
    waiting.lock().unwrap_or_else(PoisonError::into_inner)
}

//! Published UDP ports. Each client has a flow: a socket of its own inside, so that answers find their way back. A flow
//! ends when nothing passed for a while, and with its sandbox.

use std::{
    collections::HashMap,
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use guest_protocol::PortProtocol;
use sandbox::Action;
use tokio::{
    net::UdpSocket,
    sync::mpsc::{self, error::TrySendError},
};
use tokio_util::task::AbortOnDropHandle;

use super::{ACCEPT_PAUSE, Door};

/// Clients of one port at the same time. One more takes the place of whoever was silent longest.
const MAX_FLOWS: usize = 128;
/// How long a flow lasts without a datagram in either direction. While it does, its sandbox is not idle.
const IDLE_LIMIT: Duration = Duration::from_secs(60);
/// Datagrams of one client that wait until its flow takes them; more are lost, as datagrams may be.
const MAX_WAITING: usize = 32;
/// Longest datagram there is.
const MAX_DATAGRAM_BYTES: usize = 64 * 1024;

#[derive(Debug)]
struct Flow {
    waiting: mpsc::Sender<Bytes>,
    last_used: Instant,
    _task: AbortOnDropHandle<()>,
}

/// Serves a port until it is dropped, and its flows with it.
pub(super) async fn serve(door: Arc<Door>, outside: UdpSocket) {
    let outside = Arc::new(outside);
    let mut flows: HashMap<SocketAddr, Flow> = HashMap::new();
    let mut buffer = vec![0; MAX_DATAGRAM_BYTES];
    loop {
        let (n_bytes, client) = match outside.recv_from(&mut buffer).await {
            Ok(received) => received,
            Err(error) => {
                tracing::warn!("could not receive from a published port: {error}");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let datagram = Bytes::copy_from_slice(&buffer[..n_bytes]);
        let rejected = match flows.get_mut(&client) {
            None => Some(datagram),
            Some(flow) => {
                flow.last_used = Instant::now();
                match flow.waiting.try_send(datagram) {
                    Ok(()) | Err(TrySendError::Full(_)) => None,
                    Err(TrySendError::Closed(datagram)) => Some(datagram),
                }
            }
        };
        if let Some(first) = rejected {
            make_room(&mut flows);
            flows.insert(client, begin(&door, &outside, client, first));
        }
    }
}

/// Forgets the flows that ended, and where none did, the one that was silent longest.
fn make_room(flows: &mut HashMap<SocketAddr, Flow>) {
    if flows.len() < MAX_FLOWS {
        return;
    }
    flows.retain(|_, flow| !flow.waiting.is_closed());
    if flows.len() >= MAX_FLOWS
        && let Some(oldest) = flows.iter().min_by_key(|(_, flow)| flow.last_used).map(|(client, _)| *client)
    {
        flows.remove(&oldest);
    }
}

fn begin(door: &Arc<Door>, outside: &Arc<UdpSocket>, client: SocketAddr, first: Bytes) -> Flow {
    let (waiting, datagrams) = mpsc::channel(MAX_WAITING);
    // There is room for the first.
    waiting.try_send(first).ok();
    let (door, outside) = (Arc::clone(door), Arc::clone(outside));
    let task =
        door.core.drivers.clone().spawn(async move { carry(&door, &outside, client, datagrams).await });
    Flow { waiting, last_used: Instant::now(), _task: AbortOnDropHandle::new(task) }
}

/// One flow. An error of either socket ends it; the client's next datagram begins another.
async fn carry(door: &Door, outside: &UdpSocket, client: SocketAddr, mut datagrams: mpsc::Receiver<Bytes>) {
    let Ok((life, _guard)) = door.shared.enter(Action::Exec, &door.core.clock) else { return };
    let inside = match life.client.connect_socket(door.port, PortProtocol::Udp).await {
        Ok(Some(inside)) => inside,
        Ok(None) => {
            let sandbox = door.shared.label();
            tracing::warn!(%sandbox, port = door.port, "no socket for a client of a published UDP port");
            return;
        }
        Err(error) => {
            tracing::debug!(sandbox = %door.shared.label(), port = door.port, "a flow was not begun: {error}");
            return;
        }
    };
    let mut buffer = vec![0; MAX_DATAGRAM_BYTES];
    loop {
        let passed = tokio::select! {
            datagram = datagrams.recv() => match datagram {
                Some(datagram) => inside.send(&datagram),
                None => return,
            },
            received = inside.receive(&mut buffer) => match received {
                // One that the client's side refuses is lost.
                Ok(n_bytes) => {
                    outside.send_to(&buffer[..n_bytes], client).await.ok();
                    Ok(())
                }
                Err(error) => Err(error),
            },
            () = tokio::time::sleep(IDLE_LIMIT) => return,
            () = life.over.cancelled() => return,
        };
        if let Err(error) = passed {
            tracing::debug!(sandbox = %door.shared.label(), port = door.port, "a flow ended: {error}");
            return;
        }
    }
}

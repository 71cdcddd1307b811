//! The form of named ports: the kernel makes connections to some ports by itself, and refuses the rest. So a connection
//! is there before it is decided, and a refusal is a reset.

use std::{collections::BTreeSet, net::SocketAddr, sync::Arc};

use tokio::net::TcpStream;

use super::{
    accept::{accept_with, canonical, reset},
    connection,
    hold::{self, Judged},
};
use crate::{packets::Syn, sandbox::Sandbox, watched::Watched};

/// An accepted connection. If it is dropped, it ends by a reset.
#[derive(Debug)]
pub(crate) struct Accepted(Option<TcpStream>);

impl Accepted {
    pub(crate) fn into_stream(mut self) -> Option<TcpStream> {
        self.0.take()
    }
}

impl Drop for Accepted {
    fn drop(&mut self) {
        if let Some(stream) = &self.0 {
            reset(stream);
        }
    }
}

/// Accepts until the task is aborted.
pub(crate) async fn accept(sandbox: Arc<Sandbox>, listener: Watched) {
    accept_with(&sandbox, listener, |inside, source| take(&sandbox, inside, source)).await;
}

fn take(sandbox: &Arc<Sandbox>, inside: TcpStream, source: SocketAddr) {
    let destination = inside.local_addr().map(canonical);
    let inside = Accepted(Some(inside));
    let Ok(destination) = destination else { return };
    if Sandbox::is_own(source.ip(), destination.ip()) {
        return;
    }
    match hold::judge(sandbox, destination) {
        Ok(Judged { opening, rule, plan }) => {
            let task = connection::run_accepted(Arc::clone(sandbox), inside, opening.clone(), rule);
            hold::begin(sandbox, &plan, opening, task);
        }
        Err(denied) => sandbox.tell(*denied),
    }
}

/// Hears first packets until the task is aborted, to report those that the kernel refuses: no one listens on their
/// port.
pub(crate) async fn hear(sandbox: Arc<Sandbox>, socket: Watched, ports: BTreeSet<u16>) {
    let tell = |syn: Syn| {
        let (source, destination) = (syn.source, syn.destination);
        if !ports.contains(&destination.port()) && !Sandbox::is_own(source.ip(), destination.ip()) {
            let rule = "denied: the host's kernel brings only named ports out, and this one was not named when \
                        the sandbox was started";
            sandbox.tell(hold::denied(destination, None, rule.to_owned()));
        }
    };
    hold::hear_with(&sandbox, socket, tell).await;
}

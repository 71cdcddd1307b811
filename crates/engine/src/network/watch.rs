//! Takes in what the back ends' networks report, and tells them what they must keep closed.

use std::{collections::BTreeMap, net::SocketAddr, sync::Arc};

use sandbox::{EventKind, NetworkEvent, NetworkEventKind, NetworkReport, PublishedPort, network::Protocol};
use tokio::sync::broadcast::error::RecvError;

use crate::{
    core::{Core, until},
    feed::Happening,
};

/// Watches the networks of all back ends until the engine closes.
pub(crate) fn watch(core: &Arc<Core>) {
    for (index, backend) in core.backends.all().iter().enumerate() {
        let Some(network) = backend.network() else { continue };
        let mut reports = network.reports();
        let (own, closing) = (Arc::clone(core), core.closing.clone());
        core.drivers.spawn(async move {
            let reading = async {
                loop {
                    match reports.recv().await {
                        Ok(NetworkReport::Event(event)) => take_in(&own, event).await,
                        Ok(NetworkReport::CaughtUp(number)) => own.caught_up.told(number),
                        Err(RecvError::Lagged(n)) => tracing::warn!("{n} events of the network were missed"),
                        Err(RecvError::Closed) => return,
                    }
                }
            };
            until(&closing, reading).await;
        });
        let (own, closing) = (Arc::clone(core), core.closing.clone());
        core.drivers.spawn(async move { until(&closing, keep_closed(&own, index)).await });
    }
}

async fn take_in(core: &Core, event: NetworkEvent) {
    let Some(shared) = core.reserved(&event.sandbox) else { return };
    core.metrics.network_decided(event.kind, event.count);
    if event.kind == NetworkEventKind::Denied {
        let detail = describe(&event);
        core.emit(&shared.subject, &shared.name(), EventKind::NetworkDenied, None, detail).await;
    }
    let entry = shared.network.add(core.clock.now(), event);
    core.feed.tell(|| Happening::Network(shared.subject.id.clone(), entry));
}

fn describe(event: &NetworkEvent) -> String {
    let target = match (&event.name, event.address) {
        (Some(name), _) => name.to_string(),
        (None, Some(address)) => address.to_string(),
        (None, None) => "somewhere".to_owned(),
    };
    let times = if event.count > 1 { format!(" ({} times)", event.count) } else { String::new() };
    format!("{} port {} over {}: {}{times}", target, event.port, event.protocol, event.rule)
}

/// Tells a network which ports of the host are the daemon's or lead into sandboxes, each time they change.
async fn keep_closed(core: &Core, index: usize) {
    let Some(network) = core.backends.all().get(index).and_then(|backend| backend.network()) else { return };
    let mut changes = core.own_listeners.subscribe();
    loop {
        let mut closed = changes.borrow_and_update().clone();
        let published = published(core, &mut closed);
        network.surround(closed, published);
        if changes.changed().await.is_err() {
            return;
        }
    }
}

/// The TCP ports that lead into sandboxes. No rule can name a UDP port of a sandbox, so those are closed.
fn published(core: &Core, closed: &mut Vec<SocketAddr>) -> BTreeMap<u16, PublishedPort> {
    let mut found = BTreeMap::new();
    core.each(|shared| {
        let record = &shared.status.borrow().record;
        for port in &record.ports {
            match (port.host, port.protocol) {
                (Some(at), Protocol::Tcp) => {
                    let (namespace, name) = (record.namespace.clone(), record.name.clone());
                    found.insert(at.port(), PublishedPort { namespace, name, port: port.port });
                }
                (Some(at), Protocol::Udp) => closed.push(at),
                (None, _) => {}
            }
        }
    });
    found
}

//! Ports: `-L` and `-D` to the sandbox's own ports, `-R` from them. What a sandbox reaches outside is not ours to give,
//! and nothing is dialled from the daemon.

use std::{net::IpAddr, sync::Arc};

use engine::{InsideListener, PortStream, Target};
use russh::server::Handle;
use sandbox::{Error, ErrorKind, Result, Thing};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::{
    channel::{Channel, Channels},
    login::Login,
    sftp::pass,
};

/// Whether a host that a client names is the sandbox itself.
pub(crate) fn is_inside(host: &str) -> bool {
    let host = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host);
    match host.parse::<IpAddr>() {
        Ok(address) => address.to_canonical().is_loopback() || address.is_unspecified(),
        Err(_name) => host.is_empty() || host.eq_ignore_ascii_case("localhost"),
    }
}

/// Connects to a port or a socket of the sandbox.
pub(crate) async fn connect(login: &Login, target: Target) -> Result<PortStream> {
    let since = Instant::now();
    let action = match &target {
        Target::Tcp(port) => format!("connect {port}"),
        Target::Unix(path) => format!("connect {path}"),
    };
    let connected = async {
        let which = login.running_sandbox().await?;
        login.engine.connect(&login.who, &which, target).await
    };
    let connected = connected.await;
    login.record(action, since, connected.as_ref().err()).await;
    connected
}

/// The target of a request, if it is in the sandbox.
pub(crate) fn target(login: &Login, host: &str, port: u32) -> Result<Target> {
    if !login.permissions.forwarding {
        return Err(Error::new(ErrorKind::Denied, "the certificate does not permit forwarding"));
    }
    if !is_inside(host) {
        return Err(Error::new(
            ErrorKind::Denied,
            format!("only ports of the sandbox itself, not of {host:?}"),
        )
        .about(Thing::Port, port.to_string()));
    }
    match u16::try_from(port) {
        Ok(port @ 1..) => Ok(Target::Tcp(port)),
        _ => Err(Error::invalid(format!("{port} is not a port"))),
    }
}

/// Carries an open channel and its stream to their end.
pub(crate) async fn carry(channel: Channel, stream: PortStream) {
    pass(&channel, stream).await;
    channel.close().await;
}

/// Listens inside for a client.
pub(crate) async fn listen(login: &Login, port: u32) -> Result<InsideListener> {
    let since = Instant::now();
    let listening = async {
        if !login.permissions.forwarding {
            return Err(Error::new(ErrorKind::Denied, "the certificate does not permit forwarding"));
        }
        let port = u16::try_from(port).map_err(|_large| Error::invalid(format!("{port} is not a port")))?;
        let which = login.running_sandbox().await?;
        login.engine.listen_inside(&login.who, &which, port).await
    };
    let listening = listening.await;
    login.record(format!("listen {port}"), since, listening.as_ref().err()).await;
    listening
}

/// Hands every program inside that connects to the client, until either side ends it.
pub(crate) async fn serve_listener(
    mut listener: InsideListener,
    address: String,
    handle: Handle,
    channels: Arc<Channels>,
    stop: CancellationToken,
) {
    let port = u32::from(listener.port());
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = stop.cancelled() => return,
            () = channels.flow.over.cancelled() => return,
        };
        let stream = match accepted {
            Ok(stream) => stream,
            Err(error) => {
                tracing::debug!(%error, "a listener of a client ended");
                return;
            }
        };
        let Some(place) = channels.place() else { continue };
        let (handle, channels, address) = (handle.clone(), Arc::clone(&channels), address.clone());
        tokio::spawn(async move {
            // The client's own address of the program does not exist: it is inside.
            let opened = handle.channel_open_forwarded_tcpip(address, port, "127.0.0.1", 0).await;
            let Ok(channel) = opened else { return };
            let (channel, _controls) = channels.begin(channel.split().1, handle, place);
            carry(channel, stream).await;
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_sandbox_itself_is_inside() {
        for host in ["localhost", "LOCALHOST", "127.0.0.1", "127.9.9.9", "::1", "[::1]", "", "0.0.0.0"] {
            assert!(is_inside(host), "{host:?}");
        }
        for host in [
            "169.254.169.254",
            "10.0.0.1",
            "example.org",
            "localhost.example.org",
            "fe80::1",
            "::ffff:10.0.0.1",
            "host.docker.internal",
            "127.0.0.1.example.org",
            "2130706433",
            "0x7f.1",
        ] {
            assert!(!is_inside(host), "{host:?}");
        }
    }
}

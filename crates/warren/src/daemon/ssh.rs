//! The SSH server: on TCP if told to, and for the daemon's owner on a Unix socket, where no key is needed.

use std::{net::SocketAddr, sync::Arc};

use engine::{Engine, Principal};
use frontends::http::{Activity, DevAuth};
use sandbox::{Error, ErrorKind, Result};
use ssh::{HostKey, Settings, Ssh};
use tokio::{
    net::{TcpListener, UnixListener, UnixStream},
    sync::watch,
};
use tokio_util::sync::CancellationToken;

use super::socket::Socket;
use crate::directories::Directories;

/// The listeners, open before anybody is told that the daemon is ready.
pub(super) struct SshListeners {
    host_key: HostKey,
    settings: Settings,
    tcp: Option<TcpListener>,
    socket: Arc<Socket>,
}

/// Opens the TCP listener, if there is to be one. A port that is taken ends the start.
pub(super) async fn open_port(listen: Option<SocketAddr>, is_dev: bool) -> Result<Option<TcpListener>> {
    let Some(address) = listen else { return Ok(None) };
    if is_dev {
        DevAuth::for_address(address)?;
    }
    let listener = TcpListener::bind(address).await.map_err(|error| {
        Error::new(ErrorKind::Unavailable, format!("could not listen for SSH on {address}: {error}"))
            .with_hint("Choose another port with --ssh, or stop the program that uses this one.")
    })?;
    Ok(Some(listener))
}

impl SshListeners {
    pub(super) fn open(
        directories: &Directories,
        tcp: Option<TcpListener>,
        settings: Settings,
    ) -> Result<Self> {
        let host_key = HostKey::load_or_make(&directories.home)?;
        let socket = Arc::new(Socket::listen(directories.ssh_socket()?)?);
        Ok(Self { host_key, settings, tcp, socket })
    }

    pub(super) fn address(&self) -> Option<SocketAddr> {
        self.tcp.as_ref().and_then(|listener| listener.local_addr().ok())
    }

    pub(super) fn socket(&self) -> Arc<Socket> {
        Arc::clone(&self.socket)
    }

    /// Serves until the daemon stops.
    pub(super) async fn serve(self, engine: Engine, activity: Activity, stop: CancellationToken) {
        let Self { host_key, settings, tcp, socket } = self;
        let ssh = Ssh::new(engine, host_key, settings, stop.clone());
        let on_tcp = async {
            if let Some(listener) = tcp {
                ssh.listen(listener).await;
            }
        };
        tokio::join!(on_tcp, serve_owner(&ssh, socket.listener(), &activity, &stop));
        socket.remove();
    }
}

/// Serves those whom the socket itself proves to be the daemon's owner.
async fn serve_owner(
    ssh: &Ssh,
    mut listener: watch::Receiver<Arc<UnixListener>>,
    activity: &Activity,
    stop: &CancellationToken,
) {
    loop {
        let current = Arc::clone(&listener.borrow_and_update());
        let accepted = tokio::select! {
            accepted = current.accept() => accepted,
            Ok(()) = listener.changed() => continue,
            () = stop.cancelled() => return,
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!("could not accept a connection to the SSH socket: {error}");
                tokio::task::yield_now().await;
                continue;
            }
        };
        let Some(who) = owner(&stream) else { continue };
        let (ssh, guard) = (ssh.clone(), activity.enter());
        tokio::spawn(async move {
            ssh.serve_known(stream, who).await;
            drop(guard);
        });
    }
}

fn owner(stream: &UnixStream) -> Option<Principal> {
    let uid = stream.peer_cred().ok()?.uid();
    let own = rustix::process::geteuid().as_raw();
    (uid == own || uid == 0).then(|| Principal::operator(format!("uid {uid}")))
}

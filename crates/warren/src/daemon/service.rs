//! Tells the service manager that started the daemon how it is: the protocol of `sd_notify`.

use std::{
    io,
    os::{
        linux::net::SocketAddrExt as _,
        unix::{
            ffi::OsStrExt as _,
            net::{SocketAddr, UnixDatagram},
        },
    },
    path::{Path, PathBuf},
};

use crate::env;

/// The service manager's socket, if one started us and waits for word.
#[derive(Debug)]
pub(super) struct ServiceManager {
    socket: Option<PathBuf>,
}

impl ServiceManager {
    /// A daemon that a command started is no service: it has that command's environment.
    pub(super) fn of(is_detached: bool) -> Self {
        Self { socket: env::path(env::NOTIFY_SOCKET).filter(|_| !is_detached) }
    }

    pub(super) fn ready(&self) {
        self.tell("READY=1");
    }

    pub(super) fn stopping(&self) {
        self.tell("STOPPING=1");
    }

    fn tell(&self, state: &str) {
        let Some(socket) = &self.socket else { return };
        if let Err(error) = send(socket, state) {
            tracing::warn!("could not tell the service manager {state} at {}: {error}", socket.display());
        }
    }
}

/// A path, or a name in the abstract namespace after an `@`.
fn send(socket: &Path, state: &str) -> io::Result<()> {
    let address = match socket.as_os_str().as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(socket)?,
    };
    UnixDatagram::unbound()?.send_to_addr(state.as_bytes(), &address).map(drop)
}

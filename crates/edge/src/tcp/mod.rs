//! TCP: a SYN is held until the connection outside is made, then both are one.

pub(crate) mod accept;
pub(crate) mod connection;
pub(crate) mod dial;
pub(crate) mod hold;
pub(crate) mod named;
pub(crate) mod pipes;
pub(crate) mod proxy;
pub(crate) mod splice;

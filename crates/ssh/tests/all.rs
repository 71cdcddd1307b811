//! Stories of SSH on real sandboxes, told by a client that others wrote and by bare sockets.
#![forbid(unsafe_code)]

#[cfg(test)]
mod suite;

//! SSH: shells, commands, files and ports of sandboxes for the clients that people have.
//!
//! The server is the daemon's own; there is none inside. A command is an exec in the ledger, a port is a connection by
//! the engine, and SFTP is spoken by the guest: bytes pass through here. Nothing is ever dialled from the daemon.
//!
//! A login proves who the caller is, and nothing else. The engine decides what that caller may do, so a sandbox of
//! another namespace gets the answer of one that does not exist.
#![forbid(unsafe_code)]

mod authority;
mod channel;
mod command;
mod connection;
mod cut;
mod destination;
mod flow;
mod forward;
mod host_key;
mod limits;
mod login;
mod places;
mod serve;
mod settings;
mod sftp;
mod words;

pub use authority::Authorities;
pub use host_key::HostKey;
pub use serve::{Caller, Ssh};
pub use settings::{DEFAULT_ACCEPTED_ENV, Settings};

//! The limits on what strangers, and clients that went wrong, can use up.

use std::time::Duration;

/// Connections at once that have logged in.
pub(crate) const MAX_CONNECTIONS: usize = 512;
/// The same by one key, so that one busy client does not shut out everybody else.
pub(crate) const MAX_CONNECTIONS_EACH: usize = 128;
/// Connections at once of the daemon's owner, on its own socket.
pub(crate) const MAX_OWNER_CONNECTIONS: usize = 512;
/// Connections that have not logged in yet, at once. More are closed as they come.
pub(crate) const MAX_STRANGERS: usize = 64;
/// The same from one address, so that one flood does not shut out everybody else.
pub(crate) const MAX_STRANGERS_EACH: usize = 16;
/// How long a stranger may take to log in.
pub(crate) const LOGIN_WITHIN: Duration = Duration::from_secs(30);
/// Wrong keys and passwords in one connection. Agents offer many keys.
pub(crate) const MAX_LOGIN_ATTEMPTS: usize = 20;
/// Every refusal takes as long, whatever its reason.
pub(crate) const REFUSAL_TIME: Duration = Duration::from_millis(100);
/// Open channels of one connection.
pub(crate) const MAX_CHANNELS: usize = 128;
/// Ports inside that one connection listens on.
pub(crate) const MAX_LISTENERS: usize = 8;
/// Variables of one command.
pub(crate) const MAX_VARIABLES: usize = 64;
/// Name and value of one variable.
pub(crate) const MAX_VARIABLE_BYTES: usize = 32 * 1024;
/// Modes of one terminal: as many as there are numbers for them.
pub(crate) const MAX_TERMINAL_MODES: usize = 256;
/// Longest command line; more than the kernel takes as one argument.
pub(crate) const MAX_COMMAND_BYTES: usize = 128 * 1024;
/// How often a silent client is asked whether it is there, and how many times it may not answer.
pub(crate) const ASK_ALIVE_EVERY: Duration = Duration::from_secs(30);
pub(crate) const MAX_SILENT_ASKS: usize = 4;
/// How many bytes a client may send on one channel before it has to wait.
pub(crate) const WINDOW_BYTES: u32 = 2 * 1024 * 1024;
/// The same while a channel's reader is behind: one packet.
pub(crate) const SMALL_WINDOW_BYTES: u32 = 64 * 1024;
pub(crate) const PACKET_BYTES: u32 = 32 * 1024;
/// Bytes that wait for the reader of one channel before the connection waits.
pub(crate) const MAX_QUEUED_BYTES: usize = 1024 * 1024;
/// Bytes that wait for all readers of a connection when it must not wait; see `flow.rs`.
pub(crate) const MAX_OVERFLOW_BYTES: usize = 32 * 1024 * 1024;
/// How long output may be stuck behind input before the connection stops waiting.
pub(crate) const STUCK_AFTER: Duration = Duration::from_millis(20);
/// Signals and sizes that wait for a command to start.
pub(crate) const MAX_QUEUED_CONTROLS: usize = 64;
/// Bytes read from a stream inside at once.
pub(crate) const COPY_BYTES: usize = 256 * 1024;
/// How long a reader inside may take for what a client sent before it closed the channel.
pub(crate) const LAST_INPUT_WITHIN: Duration = Duration::from_secs(10);
/// Pause after an accept that failed for want of descriptors.
pub(crate) const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// A sandbox that was made for a login is gone this long after its last use, should the daemon not live to remove it.
pub(crate) const NEW_SANDBOX_IDLE: Duration = Duration::from_secs(15 * 60);

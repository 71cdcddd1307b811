//! The guest's limits. A workload or a lost host can use these up, never more.

use std::time::Duration;

/// Connections served at once; more wait in the listener's backlog. Each exec is followed over one of its own, and the
/// rest is for requests.
pub(crate) const MAX_CONNECTIONS: usize = 2 * MAX_EXECS;
/// Execs known at once, running or waiting for their last acknowledgement.
pub(crate) const MAX_EXECS: usize = 512;
/// Answers of failed starts, kept so that a repeated id gets the same answer.
pub(crate) const MAX_REMEMBERED_FAILURES: usize = 64;
/// Unacknowledged output of one exec; past it the process waits on its pipe.
pub(crate) const WINDOW_BYTES: usize = 1024 * 1024;
/// Unacknowledged output of all execs together…
pub(crate) const TOTAL_WINDOW_BYTES: usize = 16 * 1024 * 1024;
/// …past which each exec may still hold this much, so that none starves.
pub(crate) const WINDOW_FLOOR_BYTES: usize = 64 * 1024;
/// Cost of an event besides its bytes, so that many tiny events are bounded too.
pub(crate) const EVENT_OVERHEAD_BYTES: usize = 128;
/// One read from a pipe; a pipe holds this much by default.
pub(crate) const OUTPUT_CHUNK_BYTES: usize = 64 * 1024;
/// Bytes read ahead from a host while its request is still being worked on.
pub(crate) const READ_AHEAD_BYTES: usize = 512 * 1024;
/// Size of `/etc/passwd` and `/etc/group` up to which we read them.
pub(crate) const MAX_USER_FILE_BYTES: u64 = 1024 * 1024;
pub(crate) const MAX_EXEC_ID_BYTES: usize = 128;
/// Modes of one terminal: SSH numbers them with one byte.
pub(crate) const MAX_TERMINAL_MODES: usize = 256;
/// Threads for work that blocks, and how long an idle one stays.
pub(crate) const MAX_BLOCKING_THREADS: usize = 4;
/// Archives packed or unpacked at once. Each holds a thread or a process of its own for as long as its host takes to
/// read or write, so that slow hosts never block the threads above.
pub(crate) const MAX_ARCHIVES: usize = 16;
/// Processes at once that create or fill files for hosts; more requests wait.
pub(crate) const MAX_CHARGED: usize = 64;
pub(crate) const BLOCKING_KEEP_ALIVE: Duration = Duration::from_secs(1);
pub(crate) const BLOCKING_STACK_BYTES: usize = 512 * 1024;
/// How long after the end of a connection unused memory is released: longer than a thread stays.
pub(crate) const TIDY_AFTER: Duration = Duration::from_millis(1500);
/// How long a shutdown waits for hosts to take the last events.
pub(crate) const LAST_ACKS: Duration = Duration::from_secs(2);
/// How long we wait for killed processes to be gone. Frozen or uninterruptible ones may outlast it.
pub(crate) const KILLED_GONE: Duration = Duration::from_secs(5);
/// Descriptors that the guest wants for itself, if its hard limit allows.
pub(crate) const WANTED_DESCRIPTORS: u64 = 8192;
/// Ports listened on for the host at once.
pub(crate) const MAX_LISTENERS: usize = 8;
/// Clients of one listener that wait for the host to take them; more wait in the kernel's backlog.
pub(crate) const MAX_WAITING_CLIENTS: usize = 32;
/// How long such a client waits at most.
pub(crate) const TAKEN_WITHIN: Duration = Duration::from_secs(5);
/// How long accepting pauses when descriptors have run out.
pub(crate) const ACCEPT_REST: Duration = Duration::from_millis(50);
/// Contexts of one sandbox at once, each with an interpreter.
pub(crate) const MAX_CONTEXTS: usize = 64;
pub(crate) const MAX_CONTEXT_NAME_BYTES: usize = 128;
/// Most waiting cells of one context.
pub(crate) const MAX_QUEUED_CELLS: usize = 64;
/// Most code of all waiting cells.
pub(crate) const MAX_QUEUED_CODE_BYTES: usize = 8 * 1024 * 1024;
/// Data that a driver has not read yet: its own parts and one cell, since the next one is sent when that has ended.
pub(crate) const MAX_UNWRITTEN_BYTES: usize = MAX_QUEUED_CODE_BYTES + 1024 * 1024;
/// Longest line of a driver, except for records, which are passed on as they come.
pub(crate) const MAX_CONTROL_BYTES: usize = 64 * 1024;
/// Longest record of a driver; the host keeps no longer one.
pub(crate) const MAX_RECORD_BYTES: usize = 16 * 1024 * 1024;
/// Bytes that an interrupted cell may hold beyond its window: as many as its full pipes and channel hold.
pub(crate) const INTERRUPTED_EXTRA_BYTES: usize = 512 * 1024;
/// Most bytes read from the channel of an ended interpreter.
pub(crate) const MAX_LAST_WORDS_BYTES: usize = 1024 * 1024;
/// How long an interpreter may take until it is ready.
pub(crate) const READY_WITHIN: Duration = Duration::from_secs(60);
/// How long an interpreter may live on after it closed its channel.
pub(crate) const SILENT_FOR: Duration = Duration::from_millis(500);
/// How long an interpreter may take to fork.
pub(crate) const FORKED_WITHIN: Duration = Duration::from_secs(10);

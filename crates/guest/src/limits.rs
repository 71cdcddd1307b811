//! What the guest holds at most. A workload or a lost host can use these up, never more.

use std::time::Duration;

/// Connections served at once; more wait in the listener's backlog. Each exec is followed over one of its own, and the rest
/// is for requests.
pub(crate) const MAX_CONNECTIONS: usize = 2 * MAX_EXECS;
/// Execs known at once, running or waiting for their last acknowledgement.
pub(crate) const MAX_EXECS: usize = 512;
/// Answers to starts that failed, kept so that the same id again gets the same answer.
pub(crate) const MAX_REMEMBERED_FAILURES: usize = 64;
/// Unacknowledged output of one exec; past it the process waits on its pipe.
pub(crate) const WINDOW_BYTES: usize = 1024 * 1024;
/// Unacknowledged output of all execs together…
pub(crate) const TOTAL_WINDOW_BYTES: usize = 16 * 1024 * 1024;
/// …past which each exec may still hold this much, so that none starves.
pub(crate) const WINDOW_FLOOR_BYTES: usize = 64 * 1024;
/// What one event costs besides its bytes, so that many tiny events are bounded too.
pub(crate) const EVENT_OVERHEAD_BYTES: usize = 128;
/// One read from a pipe; a pipe holds this much by default.
pub(crate) const OUTPUT_CHUNK_BYTES: usize = 64 * 1024;
/// Bytes read ahead from a host while its request is still being worked on.
pub(crate) const READ_AHEAD_BYTES: usize = 512 * 1024;
/// Size of `/etc/passwd` and `/etc/group` up to which we read them.
pub(crate) const MAX_USER_FILE_BYTES: u64 = 1024 * 1024;
/// Longest id of an exec.
pub(crate) const MAX_EXEC_ID_BYTES: usize = 128;
/// Threads for work that blocks, and how long an idle one stays.
pub(crate) const MAX_BLOCKING_THREADS: usize = 4;
/// Archives packed or unpacked at once. Each holds a thread or a process of its own for as long as its host takes to read
/// or write, so that however slow hosts are, all of the threads above stay for the rest.
pub(crate) const MAX_ARCHIVES: usize = 16;
/// Processes at once that make or fill files for hosts; more requests wait.
pub(crate) const MAX_CHARGED: usize = 64;
pub(crate) const BLOCKING_KEEP_ALIVE: Duration = Duration::from_secs(1);
pub(crate) const BLOCKING_STACK_BYTES: usize = 512 * 1024;
/// How long after the end of a connection unused memory is given back: longer than a thread stays.
pub(crate) const TIDY_AFTER: Duration = Duration::from_millis(1500);
/// How long a shutdown waits for hosts to take the last events.
pub(crate) const LAST_ACKS: Duration = Duration::from_secs(2);
/// How long we wait for killed processes to be gone. Frozen or uninterruptible ones may outlast it.
pub(crate) const KILLED_GONE: Duration = Duration::from_secs(5);
/// Descriptors that the guest wants for itself, where its hard limit allows.
pub(crate) const WANTED_DESCRIPTORS: u64 = 8192;
/// Ports listened on for the host at once.
pub(crate) const MAX_LISTENERS: usize = 8;
/// Clients of one listener that wait for the host to take them; more wait in the kernel's backlog.
pub(crate) const MAX_WAITING_CLIENTS: usize = 32;
/// How long one waits at most.
pub(crate) const TAKEN_WITHIN: Duration = Duration::from_secs(5);
/// How long accepting rests when descriptors have run out.
pub(crate) const ACCEPT_REST: Duration = Duration::from_millis(50);
/// Contexts of one sandbox at once, each with an interpreter.
pub(crate) const MAX_CONTEXTS: usize = 64;
/// Longest name of a context.
pub(crate) const MAX_CONTEXT_NAME_BYTES: usize = 128;
/// Cells that wait in one context.
pub(crate) const MAX_QUEUED_CELLS: usize = 64;
/// Code of all cells that wait.
pub(crate) const MAX_QUEUED_CODE_BYTES: usize = 8 * 1024 * 1024;
/// What a driver has not yet read: its own parts and one cell, since it gets the next one when that has ended.
pub(crate) const MAX_UNWRITTEN_BYTES: usize = MAX_QUEUED_CODE_BYTES + 1024 * 1024;
/// Longest line of a driver but for records, which are passed on as they come.
pub(crate) const MAX_CONTROL_BYTES: usize = 64 * 1024;
/// Longest record of a driver; the host keeps none that is longer.
pub(crate) const MAX_RECORD_BYTES: usize = 16 * 1024 * 1024;
/// What an interrupted cell may hold beyond its window: what its pipes and its channel hold when they are full.
pub(crate) const INTERRUPTED_EXTRA_BYTES: usize = 512 * 1024;
/// What is still read from the channel of an interpreter that has ended.
pub(crate) const MAX_LAST_WORDS_BYTES: usize = 1024 * 1024;
/// How long an interpreter may take until it is ready.
pub(crate) const READY_WITHIN: Duration = Duration::from_secs(60);
/// How long an interpreter may live on after it closed its channel.
pub(crate) const SILENT_FOR: Duration = Duration::from_millis(500);
/// How long an interpreter may take to fork.
pub(crate) const FORKED_WITHIN: Duration = Duration::from_secs(10);

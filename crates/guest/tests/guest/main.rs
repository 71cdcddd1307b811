//! The guest as its host sees it: a process, a socket, and real effects.
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on fails")]

mod cells;
mod changed_files;
mod empty_root;
mod end;
mod exec;
mod files;
mod hostile;
mod listen;
mod search;
mod speed;
mod streams;
mod support;
mod tar_files;
mod terminal;

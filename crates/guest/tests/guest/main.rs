//! The guest as its host sees it: a process, a socket, and real effects.
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on fails")]

mod bash;
mod by_file;
mod cells;
mod changed_files;
mod contexts;
mod empty_root;
mod end;
mod exec;
mod files;
mod hostile;
mod hostile_cells;
mod listen;
mod node;
mod python;
mod python_errors;
mod python_fork;
mod python_hazards;
mod python_hostile;
mod python_interrupt;
mod python_notebook;
mod python_rich;
mod search;
mod sftp;
mod streams;
mod support;
mod tar_files;
mod terminal;
mod transports;

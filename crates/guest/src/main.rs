//! The guest as a program of its own; see [`guest::run_program`].

use std::{io, process::ExitCode};

fn main() -> ExitCode {
    guest::run_program(std::env::args_os().skip(1), |_internet| {
        Err(io::Error::new(io::ErrorKind::Unsupported, "this program has no filter of system calls"))
    })
}

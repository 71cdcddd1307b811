//! The guest as a program of its own; see [`guest::run_program`].

use std::process::ExitCode;

fn main() -> ExitCode {
    guest::run_program(std::env::args_os().skip(1))
}

//! Warren: one binary that is the daemon, the command line, and the program inside every sandbox.
//!
//! It is a library, of which `main.rs` is the program, because cargo compiles libraries beside those they use, and a
//! program only after them: docs/design/build-time.md.
#![forbid(unsafe_code)]

mod apparmor;
mod arguments;
mod build;
mod called_as;
mod cells;
mod cli;
mod client;
mod commands;
mod config;
mod copy;
mod daemon;
mod directories;
mod docker_config;
mod doctor;
mod env;
mod error;
mod guest_role;
mod hang_up;
mod interrupt;
mod mcp;
mod msb;
mod other_words;
mod output;
mod packages;
mod pulls;
mod sandboxfile;
mod session;
mod terminal;

use std::process::ExitCode;

use self::called_as::Role;

/// Releases the memory that an edge can do without until it is used again.
fn release_memory() {
    jail::release_free_memory();
    jail::let_go_of_program();
}

/// Plays the role that this process was started in.
pub fn main() -> ExitCode {
    jail::run_spawner_role(guest_role::guest_main, backends::namespace::worker);
    jail::run_network_role();
    if let Some(control) = jail::enter_edge_role() {
        return edge::serve(control, release_memory);
    }
    if let Some(code) = guest_role::run_as_program() {
        return code;
    }
    match called_as::role() {
        Role::Warren(_) => {}
        Role::Msb => return msb::main(),
    }
    let cli = match cli::parse() {
        Ok(cli) => cli,
        Err(code) => return code,
    };
    let json = cli.global.json;
    match commands::run(cli) {
        Ok(code) => code,
        Err(error) => error.report(json),
    }
}

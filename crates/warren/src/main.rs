//! Warren: one binary that is the daemon, the command line, and the program inside every sandbox.
#![forbid(unsafe_code)]

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
mod doctor;
mod env;
mod error;
mod guest_role;
mod interrupt;
mod mcp;
mod msb;
mod output;
mod packages;
mod pulls;
mod sandboxfile;
mod session;
mod terminal;

use std::process::ExitCode;

use self::called_as::Role;

fn main() -> ExitCode {
    jail::run_spawner_role(guest_role::guest_main, backends::namespace::worker);
    if let Some(control) = jail::enter_edge_role() {
        return edge::serve(control);
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

//! The guest as a program of its own, for places into which it cannot be forked.
//!
//! `guest --listen <path>` makes the socket; `guest --fd <n>` takes a listening one that was handed over.

use std::{
    ffi::OsString,
    io::{self, Write},
    os::{fd::OwnedFd, unix::net::UnixListener},
    process::ExitCode,
};

use guest::GuestConfig;

const USAGE: &str = "usage: guest --listen <path> | guest --fd <number>";

fn main() -> ExitCode {
    let served = listener(std::env::args_os().skip(1)).and_then(|listener| {
        guest::run(GuestConfig {
            listener,
            workload_cgroup: vec![],
            memory_cgroup: None,
            oom_counter: None,
            rlimits: vec![],
            sockets: None,
        })
    });
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Nobody may be there to read it.
            writeln!(io::stderr(), "guest: {error}").ok();
            ExitCode::from(125)
        }
    }
}

fn listener(mut arguments: impl Iterator<Item = OsString>) -> io::Result<OwnedFd> {
    let usage = || io::Error::new(io::ErrorKind::InvalidInput, USAGE);
    let (flag, value, rest) = (arguments.next(), arguments.next(), arguments.next());
    let (Some(flag), Some(value), None) = (flag, value, rest) else { return Err(usage()) };
    match flag.to_str() {
        Some("--listen") => Ok(UnixListener::bind(value)?.into()),
        Some("--fd") => {
            let number = value.to_str().and_then(|text| text.parse().ok());
            guest::adopt_descriptor(number.ok_or_else(usage)?)
        }
        _ => Err(usage()),
    }
}

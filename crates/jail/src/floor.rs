//! The kernel's minimum cost of a sandbox: the same namespaces, one overlay, `pivot_root`, exec, and nothing else.
//!
//! `bench` divides by this.

use std::{
    ffi::{CString, OsStr},
    fs, io,
    os::{fd::AsFd as _, unix::ffi::OsStrExt as _},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use rustix::process::{getegid, geteuid};

use crate::{
    cage::{IdMap, IdRange},
    child::Go,
    mounts, packet, spawner,
    sys::{self, Side},
};

const NAMESPACES: i32 = libc::CLONE_NEWUSER
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNS
    | libc::CLONE_NEWNET
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWCGROUP;

/// Runs `program` once in fresh namespaces over an overlay of `lower`, and measures the time from before the first
/// directory until the program was reaped. `scratch` must be empty; the directories made in it stay. Nothing may be
/// mounted below a lower directory: `/usr`, used as a root, contains `/bin` and `/lib` on today's systems.
///
/// Clones the calling process like `fork`, so call it from a process with a single thread.
pub fn run_bare(
    program: &Path,
    arguments: &[&OsStr],
    lower: &[PathBuf],
    scratch: &Path,
) -> io::Result<Duration> {
    let program = CString::new(program.as_os_str().as_bytes())?;
    let mut words = vec![program.clone()];
    for argument in arguments {
        words.push(CString::new(argument.as_bytes())?);
    }
    let began = Instant::now();
    let (upper, work, root) = (scratch.join("upper"), scratch.join("work"), scratch.join("root"));
    for directory in [&upper, &work, &root] {
        fs::create_dir(directory)?;
    }
    let (ours, theirs) = packet::pair()?;
    match sys::clone_process(NAMESPACES)? {
        Side::Child => {
            drop(ours);
            let failed =
                enter(&theirs, lower, &upper, &work, &root).and_then(|()| sys::exec(&program, &words));
            sys::exit_now(failed.err().and_then(|error| error.raw_os_error()).unwrap_or(1).max(1))
        }
        Side::Parent { pid, .. } => {
            drop(theirs);
            write_own_map(pid)?;
            packet::send(ours.as_fd(), &Go, &[])?;
            match sys::wait_for(pid)? {
                0 => Ok(began.elapsed()),
                status => Err(io::Error::other(format!("the program ended with status {status:#x}"))),
            }
        }
    }
}

fn enter(
    from_parent: &std::os::fd::OwnedFd,
    lower: &[PathBuf],
    upper: &Path,
    work: &Path,
    root: &Path,
) -> io::Result<()> {
    let (Go, _) = packet::receive(from_parent.as_fd(), rustix::net::RecvFlags::empty())?;
    mounts::hide()?;
    mounts::overlay(root, lower, upper, work, root, &[])?;
    mounts::pivot(root)
}

/// Maps root inside to our own user.
fn write_own_map(pid: i32) -> io::Result<()> {
    let one = |outside| vec![IdRange { inside: 0, outside, count: 1 }];
    if !geteuid().is_root() {
        fs::write(format!("/proc/{pid}/setgroups"), "deny")?;
    }
    spawner::write_maps(pid, &IdMap { users: one(geteuid().as_raw()), groups: one(getegid().as_raw()) })
}

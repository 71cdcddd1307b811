//! The process of the edge, which carries the traffic of sandboxes and so talks to strangers on both sides. Before it
//! hears the first of them it has no files, no rights and few system calls.

use std::{
    fs, io,
    os::{
        fd::{AsFd as _, OwnedFd},
        unix::process::CommandExt as _,
    },
    path::Path,
    process::{Child, Command, Stdio},
};

use rustix::{
    fs::{Gid, Uid},
    process::{
        DumpableBehavior, Resource, Rlimit, getegid, geteuid, getrlimit, set_dumpable_behavior, setrlimit,
    },
    thread::{
        CapabilitySet, CapabilitySets, clear_ambient_capability_set, set_capabilities, set_thread_groups,
        set_thread_res_gid, set_thread_res_uid,
    },
};

use crate::{cage::MountFlag, mounts, packet, privileges, program_pages, seccomp, sys};

/// The argument that tells a program that it was started as the edge.
const ROLE: &str = "warren-edge";
/// The user of the edge of a root daemon, just above the ids of sandboxes. It owns nothing, and the host's firewall can
/// match the traffic of sandboxes by it.
pub const EDGE_USER: u32 = 0xf000_0001;
/// Heaps of the C library for the edge's three threads, which allocate little that their own caches do not hold. One
/// for each would keep what only the beginning of many sandboxes needed.
const HEAPS: u8 = 1;
/// Directories one of which every host has. One is covered in a mount namespace of our own, so nobody else sees that.
const COVERED: [&str; 4] = ["/tmp", "/var/tmp", "/run", "/mnt"];

/// Starts the edge from the current program, which must call [`enter_edge_role`] first. Returns the daemon's end of the
/// control socket; when that closes, the edge ends. What it says about its end comes by its standard error.
pub fn start_edge() -> io::Result<(OwnedFd, Child)> {
    let (ours, theirs) = packet::pair()?;
    let mut command = Command::new("/proc/self/exe");
    command.arg0(ROLE).env_clear().stdin(theirs).stdout(Stdio::null()).stderr(Stdio::piped());
    Ok((ours, command.spawn()?))
}

/// Takes everything from this process that an edge does not need, if it was started as one. Returns the control socket.
///
/// Call it first in `main`, while there is one thread.
pub fn enter_edge_role() -> Option<OwnedFd> {
    if std::env::args().next().as_deref() != Some(ROLE) {
        return None;
    }
    match confine() {
        Ok(control) => Some(control),
        Err(error) => {
            use std::io::Write as _;
            let _told = writeln!(io::stderr(), "the edge could not give up its rights: {error}");
            sys::exit_now(1)
        }
    }
}

/// Gives up everything but the control socket. A failure at any step is one of the whole: half of these walls are none.
fn confine() -> io::Result<OwnedFd> {
    sys::reset_signals();
    sys::ignore_broken_pipes();
    sys::close_range(3, u32::MAX)?;
    let control = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3)?;
    let null = rustix::fs::open("/dev/null", rustix::fs::OFlags::RDWR, rustix::fs::Mode::empty())?;
    rustix::stdio::dup2_stdin(null.as_fd())?;
    drop(null);
    // Fails only for a group leader, which a forked child is not.
    let _session = rustix::process::setsid();
    sys::set_process_name(c"warren-edge");
    privileges::refuse_cores();
    // A connection takes up to six descriptors.
    let maximum = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum })?;
    sys::limit_heaps(HEAPS);
    program_pages::let_go_of_program();
    let is_root = geteuid().is_root();
    enter_namespaces(is_root)?;
    enter_empty_root()?;
    drop_rights(is_root)?;
    rustix::thread::set_no_new_privs(true)?;
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    seccomp::install_edge_filter()?;
    Ok(control)
}

/// Everything but the network is its own.
fn enter_namespaces(is_root: bool) -> io::Result<()> {
    let own = libc::CLONE_NEWNS | libc::CLONE_NEWIPC | libc::CLONE_NEWUTS;
    if is_root {
        return sys::unshare(own);
    }
    let (user, group) = (geteuid().as_raw(), getegid().as_raw());
    sys::unshare(own | libc::CLONE_NEWUSER)?;
    fs::write("/proc/self/setgroups", "deny")?;
    fs::write("/proc/self/uid_map", format!("{user} {user} 1"))?;
    fs::write("/proc/self/gid_map", format!("{group} {group} 1"))
}

fn enter_empty_root() -> io::Result<()> {
    mounts::hide()?;
    let covered = COVERED.map(Path::new).into_iter().find(|path| path.is_dir());
    let covered = covered.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "no directory to cover"))?;
    let flags = [MountFlag::ReadOnly, MountFlag::NoSuid, MountFlag::NoDev, MountFlag::NoExec];
    let empty = mounts::new_tmpfs(4096, 0o555, &flags)?;
    mounts::attach(empty.as_fd(), covered)?;
    mounts::pivot(covered)
}

fn drop_rights(is_root: bool) -> io::Result<()> {
    if is_root {
        set_thread_groups(&[])?;
        let (user, group) = (Uid::from_raw(EDGE_USER), Gid::from_raw(EDGE_USER));
        set_thread_res_gid(group, group, group)?;
        set_thread_res_uid(user, user, user)?;
    }
    clear_ambient_capability_set()?;
    let none = CapabilitySet::empty();
    Ok(set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none })?)
}

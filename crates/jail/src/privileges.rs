//! Dropping privileges: capabilities, ids, system calls.

use std::{ffi::c_int, io};

use rustix::thread::{
    CapabilitySet, CapabilitySets, clear_ambient_capability_set, remove_capability_from_bounding_set,
    set_capabilities,
};
use rustix::{
    fs::{Gid, Uid},
    process::{Resource, Rlimit, dumpable_behavior, set_dumpable_behavior, setrlimit},
    thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid},
};

use crate::sys::{self, Side};

/// Capabilities that root inside keeps: enough to install packages, change owners and users and open low ports. Each
/// applies in the sandbox's own user namespace only.
pub const WORKLOAD_CAPABILITIES: [&str; 8] =
    ["CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID", "NET_BIND_SERVICE"];

/// A capability that the guest has beyond its workload, by which the kernel distinguishes them although they are the
/// same user: nobody may change the scheduling, priority or processors of a process with a capability that the caller
/// lacks. This one means nothing outside the first user namespace. It disappears with exec, since it is not in the
/// bounding set.
pub(crate) const GUEST_MARK: CapabilitySet = CapabilitySet::WAKE_ALARM;

/// Highest capability number to drop; the kernel reports where its own end.
const LAST_CAPABILITY: u32 = 63;

/// Clones this process into new namespaces owned by `owner`: the kernel takes the effective user of the creator of a
/// user namespace, and charges that user for everything counted per user inside. Without an owner it is ours.
///
/// The child keeps `owner` as its effective user until [`become_root`], with all rights in its own user namespace.
pub(crate) fn clone_as(owner: Option<u32>, namespaces: c_int) -> io::Result<Side> {
    let Some(owner) = owner else { return sys::clone_process(namespaces) };
    set_effective_user(Uid::from_raw(owner))?;
    let cloned = sys::clone_process(namespaces);
    if !matches!(cloned, Ok(Side::Child)) {
        set_effective_user(Uid::ROOT)?;
    }
    cloned
}

/// Changes the effective user of a spawner that is root. Its real and saved user stay root, so no other user may signal
/// or trace it meanwhile, and it can change back.
fn set_effective_user(user: Uid) -> io::Result<()> {
    let dumpable = dumpable_behavior()?;
    set_thread_res_uid(Uid::ROOT, user, Uid::ROOT)?;
    // The change makes a process undumpable, and then the child's files in `/proc` would not be its own.
    Ok(set_dumpable_behavior(dumpable)?)
}

pub(crate) fn become_root() -> io::Result<()> {
    match set_thread_groups(&[]) {
        // A map of one id comes with `setgroups` denied. The remaining groups are the user's own and appear as
        // `nogroup` inside.
        Err(rustix::io::Errno::PERM) => {}
        set => set?,
    }
    set_thread_res_gid(Gid::ROOT, Gid::ROOT, Gid::ROOT)?;
    Ok(set_thread_res_uid(Uid::ROOT, Uid::ROOT, Uid::ROOT)?)
}

/// From here on no crashing program is handed to the host's crash handler, which runs as the host's root and reads the
/// program's data. A limit of 0 does not prevent that: the kernel still calls a handler, except at a limit of exactly
/// 1, which it takes as the sign of a crashed handler. No core file is written either: none is that small.
pub(crate) fn refuse_cores() {
    let one = Rlimit { current: Some(1), maximum: Some(1) };
    // Refused only to an ordinary user whose limit is already 0, which then stays.
    let _set = setrlimit(Resource::Core, one);
}

pub(crate) fn keep_only(names: &[String]) -> io::Result<()> {
    let mut keep = CapabilitySet::empty();
    for name in names {
        keep |= CapabilitySet::from_name(name).ok_or_else(|| {
            io::Error::new(io::ErrorKind::InvalidInput, format!("{name} is not a capability"))
        })?;
    }
    for number in 0..=LAST_CAPABILITY {
        let one = CapabilitySet::from_bits_retain(1 << number);
        if !keep.contains(one) {
            match remove_capability_from_bounding_set(one) {
                Err(rustix::io::Errno::INVAL) => break,
                removed => removed?,
            }
        }
    }
    clear_ambient_capability_set()?;
    let permitted = keep | GUEST_MARK;
    let sets = CapabilitySets { effective: keep, permitted, inheritable: CapabilitySet::empty() };
    Ok(set_capabilities(None, sets)?)
}

//! The role inside: what the spawner's child becomes.

use guest::GuestConfig;
use jail::Handoff;

/// Runs as process 1 of a sandbox, forked and never exec'ed. Returns the exit code of the place.
pub(crate) fn guest_main(handoff: Handoff) -> i32 {
    let Handoff { listener, workload_cgroup, memory_cgroup, oom_counter, rlimits, netlink } = handoff;
    let netlink = netlink.map(|gate| (gate.listener, gate.max_sockets as usize));
    match guest::run(GuestConfig { listener, workload_cgroup, memory_cgroup, oom_counter, rlimits, netlink })
    {
        Ok(()) => 0,
        Err(_unreachable_host) => 1,
    }
}

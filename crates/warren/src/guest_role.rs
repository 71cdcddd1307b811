//! The role inside: what the spawner's child becomes.

use guest::{GuestConfig, InternetBudget, SocketGate};
use jail::Handoff;

/// Runs as process 1 of a sandbox, forked and never exec'ed. Returns the exit code of the place.
pub(crate) fn guest_main(handoff: Handoff) -> i32 {
    let Handoff { listener, workload_cgroup, memory_cgroup, oom_counter, rlimits, sockets, internet } =
        handoff;
    let jail::InternetBudget { bytes, tcp_socket, other_socket } = internet;
    let sockets = sockets.map(|gate| SocketGate {
        listener: gate.listener,
        max_netlink: gate.max_netlink,
        internet: InternetBudget { bytes, tcp_socket, other_socket },
    });
    match guest::run(GuestConfig { listener, workload_cgroup, memory_cgroup, oom_counter, rlimits, sockets })
    {
        Ok(()) => 0,
        Err(_unreachable_host) => 1,
    }
}

//! The test program as spawner and guest.

/// Becomes the spawner, if this process was started as one; otherwise returns at once.
pub(crate) fn take_role() {
    jail::run_spawner_role(become_guest, backends::namespace::worker);
}

/// Runs the child of the spawner as a guest.
fn become_guest(handoff: jail::Handoff) -> i32 {
    let jail::Handoff {
        listener,
        workload_cgroup,
        memory_cgroup,
        oom_counter,
        rlimits,
        sockets,
        internet,
        network,
    } = handoff;
    let jail::InternetBudget { bytes, tcp_socket, other_socket } = internet;
    let internet = guest::InternetBudget { bytes, tcp_socket, other_socket };
    let sockets = sockets.map(|gate| guest::SocketGate {
        listener: gate.listener,
        max_netlink: gate.max_netlink,
        internet,
    });
    let config = guest::GuestConfig {
        transport: listener.into(),
        workload_cgroup,
        memory_cgroup,
        oom_counter,
        rlimits,
        home: None,
        sockets,
        network,
    };
    i32::from(guest::run(config).is_err())
}

//! The guest, for programs that are their own spawner.

/// The main function of the spawner's child.
pub(crate) fn forked_guest(handoff: jail::Handoff) -> i32 {
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
    let sockets = sockets.map(|gate| guarded_by(gate, internet));
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

pub(crate) fn guarded_by(gate: jail::SocketGate, internet: guest::InternetBudget) -> guest::SocketGate {
    guest::SocketGate { listener: gate.listener, max_netlink: gate.max_netlink, internet }
}

//! The guest role: process 1 of a sandbox, forked by the spawner.

use std::process::ExitCode;

use guest::{GuestConfig, InternetBudget, SocketGate};
use jail::Handoff;

/// Runs as process 1 of a sandbox, forked and never exec'ed. Returns the sandbox's exit code.
pub(crate) fn guest_main(handoff: Handoff) -> i32 {
    let Handoff {
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
    let internet = InternetBudget { bytes, tcp_socket, other_socket };
    let sockets = sockets.map(|gate| guarded_by(gate, internet));
    match guest::run(GuestConfig {
        transport: listener.into(),
        workload_cgroup,
        memory_cgroup,
        oom_counter,
        rlimits,
        home: None,
        sockets,
        network,
    }) {
        Ok(()) => 0,
        Err(_unreachable_host) => 1,
    }
}

fn guarded_by(gate: jail::SocketGate, internet: InternetBudget) -> SocketGate {
    SocketGate { listener: gate.listener, max_netlink: gate.max_netlink, internet }
}

/// The argument that makes this program a guest, for back ends that cannot fork one.
pub(crate) const GUEST: &str = "guest";

/// Runs as the guest if the arguments say so.
pub(crate) fn run_as_program() -> Option<ExitCode> {
    let mut arguments = std::env::args_os().skip(1);
    let filter = |internet| jail::install_filter().map(|gate| gate.map(|gate| guarded_by(gate, internet)));
    (arguments.next()? == GUEST).then(|| guest::run_program(arguments, filter))
}

//! The attempts of a hostile program inside a sandbox. `warren probe NAME` runs one of these in a throw-away sandbox
//! and prints the result; `warren doctor --attack` compares that with the host's view.
//!
//! Everything here is bounded: five of a global resource, 50 MB of memory, calls whose arguments no kernel accepts.

mod attempts;
mod escapes;
mod exe;
mod global;
mod golden;
mod guest;
mod hold;
pub mod hostile;
mod memory;
mod neighbours;
mod network;
mod report;
mod secrets;
mod settings;
mod sys;
mod syscalls;

pub use global::{can_attach_filter, can_make_queue};
pub use report::{Attempt, Report};
pub use sys::owner_of_namespace;

/// One attempt, by its name on the command line.
pub struct Inside {
    pub name: &'static str,
    run: fn(&[String]) -> Report,
}

impl std::fmt::Debug for Inside {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Inside").field(&self.name).finish()
    }
}

const fn inside(name: &'static str, run: fn(&[String]) -> Report) -> Inside {
    Inside { name, run }
}

/// Every attempt.
pub const INSIDE: &[Inside] = &[
    inside("syscall-sweep", |_| syscalls::sweep()),
    inside("syscall-x32", |_| syscalls::x32()),
    inside("syscall-int80", |_| syscalls::int80()),
    inside("syscall-arguments", |_| syscalls::arguments()),
    inside("socket-families", |_| syscalls::socket_families()),
    inside("proc-masks", |_| settings::masks()),
    inside("proc-writes", |_| settings::proc_writes()),
    inside("sys-writes", |_| settings::sys_writes()),
    inside("proc-pressure", |_| settings::pressure()),
    inside("remount", |_| settings::remount()),
    inside("mount-flags", |_| settings::mount_flags()),
    inside("capabilities", |_| settings::capabilities()),
    inside("inheritable-capabilities", |_| settings::inheritable()),
    inside("no-new-privileges", |_| settings::no_new_privileges()),
    inside("seccomp-mode", |_| settings::seccomp_mode()),
    inside("out-of-memory-score", |_| settings::out_of_memory_score()),
    inside("core-dumps", |_| settings::core_dumps()),
    inside("guest-memory", |_| guest::memory()),
    inside("guest-trace", |_| guest::trace()),
    inside("guest-signals", |_| guest::signals()),
    inside("guest-limits", |_| guest::limits()),
    inside("exe-of-guest", |_| exe::of_guest()),
    inside("memory", memory::take),
    inside("inotify", global::inotify),
    inside("aio", global::aio),
    inside("ptys", global::ptys),
    inside("open-files", global::open_files),
    inside("queues", global::queues),
    inside("timers", |_| global::timers()),
    inside("keyrings", global::keyrings),
    inside("bpf-filters", global::bpf_filters),
    inside("user-namespaces", global::user_namespaces),
    inside("watchers", |_| global::watchers()),
    inside("device-locks", neighbours::device_locks),
    inside("device-watches", neighbours::device_watches),
    inside("device-changes", |_| neighbours::device_changes()),
    inside("abstract-sockets", neighbours::abstract_sockets),
    inside("loopback", neighbours::loopback),
    inside("processes", neighbours::processes),
    inside("ipc-make", neighbours::ipc_make),
    inside("ipc-look", neighbours::ipc_look),
    inside("hostname", neighbours::hostname),
    inside("namespaces", neighbours::namespaces),
    inside("network-out", |_| neighbours::network_out()),
    inside("network-descriptors", |_| network::descriptors()),
    inside("network-rights", |_| network::rights()),
    inside("network-catch", |_| network::catch()),
    inside("network-nobody", |_| network::nobody()),
    inside("descriptors", |_| escapes::descriptors()),
    inside("working-directory", escapes::working_directory),
    inside("engine-sockets", |_| escapes::engine_sockets()),
    inside("host-mounts", escapes::host_mounts),
    inside("read-only-mount", escapes::read_only_mount),
    inside("file-handles", |_| escapes::file_handles()),
    inside("kernel-modules", |_| escapes::kernel_modules()),
    inside("core-pattern", |_| escapes::core_pattern()),
    inside("release-agent", |_| escapes::release_agent()),
    inside("uevent-helper", |_| escapes::uevent_helper()),
    inside("binfmt-misc", |_| escapes::binfmt_misc()),
    inside("device-nodes", |_| escapes::device_nodes()),
    inside("cgroup-writes", |_| escapes::cgroup_writes()),
    inside("join-namespaces", |_| escapes::join_namespaces()),
    inside("kernel-log", |_| escapes::kernel_log()),
    inside("set-user-id", |_| escapes::set_user_id()),
    inside("terminal-input", |_| escapes::terminal_input()),
    inside("secrets-environment", |_| secrets::environment()),
    inside("secrets-files", secrets::files),
];

/// Runs one attempt. None if the name is unknown.
pub fn run(name: &str, arguments: &[String]) -> Option<Report> {
    let probe = INSIDE.iter().find(|probe| probe.name == name)?;
    Some((probe.run)(arguments))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_are_unique() {
        let names: BTreeSet<_> = INSIDE.iter().map(|probe| probe.name).collect();
        assert_eq!(names.len(), INSIDE.len());
        assert!(run("no-such-probe", &[]).is_none());
    }
}

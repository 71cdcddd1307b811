//! The list of all probes, each with the promise that it checks.

use attack::hostile::Plant;
use futures_util::future::BoxFuture;

use super::{
    Probe,
    Run::{self, Inside, Staged},
    Seen, Stage, archives, containers, dashboard, matrix, memory, neighbours, networks, resources, secrets,
    ssrf,
};
use crate::error::CommandResult;

const fn probe(group: &'static str, name: &'static str, promise: &'static str, run: Run) -> Probe {
    Probe { group, name, promise, run }
}

const CALLS: &str = "system calls";
const SETTINGS: &str = "settings";
const GUEST: &str = "guest";
const ARCHIVES: &str = "archives";
const MEMORY: &str = "memory";
const RESOURCES: &str = "resources";
const NEIGHBOURS: &str = "neighbours";
const NETWORK: &str = "network";
const ESCAPES: &str = "escapes";
const ACCESS: &str = "access";
const REQUESTS: &str = "requests";
const SECRETS: &str = "secrets";

const SNAPSHOT_PROMISE: &str = "A snapshot archive writes nothing outside and weakens no isolation";

type Play = for<'a> fn(&'a Stage) -> BoxFuture<'a, CommandResult<Seen>>;

const fn archive(name: &'static str, promise: &'static str, play: Play) -> Probe {
    probe(ARCHIVES, name, promise, Staged(play))
}

const fn kind(name: &'static str, play: Play) -> Probe {
    probe(MEMORY, name, "Memory of every kind is limited by the sandbox's memory limit", Staged(play))
}

const fn network(name: &'static str, promise: &'static str, play: Play) -> Probe {
    probe(NETWORK, name, promise, Staged(play))
}

/// How to strengthen a group on a host where it is weak.
pub(super) fn mend_of(group: &str) -> &'static str {
    match group {
        MEMORY => "Run the daemon as root, or give its user a delegated cgroup with the memory controller.",
        RESOURCES => "Run the daemon as root or as a dedicated user, or raise the host's limit.",
        NEIGHBOURS => "Run the daemon as root: sandboxes can then have their own user ids and device nodes.",
        _ => "`warren doctor --explain` shows what this host lacks.",
    }
}

/// In the order in which they run. Wrong keys come after the probes that need valid ones; answers are searched at the
/// end.
pub(crate) const PROBES: &[Probe] = &[
    probe(
        CALLS,
        "syscall-sweep",
        "System calls that are not on the list are refused",
        Inside("syscall-sweep"),
    ),
    probe(CALLS, "syscall-x32", "System calls with x32 numbers are refused", Inside("syscall-x32")),
    probe(CALLS, "syscall-int80", "32-bit system calls are refused", Inside("syscall-int80")),
    probe(
        CALLS,
        "syscall-arguments",
        "Allowed system calls refuse dangerous arguments",
        Inside("syscall-arguments"),
    ),
    probe(
        CALLS,
        "socket-families",
        "Only Unix, loopback and route sockets can be created",
        Inside("socket-families"),
    ),
    probe(SETTINGS, "proc-masks", "Dangerous parts of /proc and /sys are masked", Inside("proc-masks")),
    probe(SETTINGS, "proc-writes", "No host setting in /proc can be written", Inside("proc-writes")),
    probe(SETTINGS, "proc-pressure", "No pressure trigger can be registered", Inside("proc-pressure")),
    probe(SETTINGS, "sys-writes", "/sys is read-only", Inside("sys-writes")),
    probe(SETTINGS, "remount", "Mounts cannot be changed", Inside("remount")),
    probe(
        SETTINGS,
        "mount-flags",
        "Every mount is nosuid; /sys and /proc/sys are read-only",
        Inside("mount-flags"),
    ),
    probe(
        SETTINGS,
        "capabilities",
        "Only the eight documented capabilities are present",
        Inside("capabilities"),
    ),
    probe(
        SETTINGS,
        "inheritable-capabilities",
        "No capability is inheritable (CVE-2022-29162)",
        Inside("inheritable-capabilities"),
    ),
    probe(SETTINGS, "no-new-privileges", "No program gains privileges", Inside("no-new-privileges")),
    probe(SETTINGS, "seccomp-mode", "Every command runs behind the filter", Inside("seccomp-mode")),
    probe(SETTINGS, "set-user-id", "Set-user-id bits have no effect inside", Inside("set-user-id")),
    probe(
        SETTINGS,
        "out-of-memory-score",
        "A workload cannot make the kernel kill others first",
        Inside("out-of-memory-score"),
    ),
    probe(SETTINGS, "core-dumps", "A crash never starts the host's core-dump handler", Inside("core-dumps")),
    probe(GUEST, "guest-memory", "The guest's memory cannot be read", Inside("guest-memory")),
    probe(GUEST, "guest-trace", "The guest cannot be traced", Inside("guest-trace")),
    probe(GUEST, "guest-limits", "The guest cannot be limited or rescheduled", Inside("guest-limits")),
    probe(
        GUEST,
        "guest-signals",
        "The guest cannot be killed from inside",
        Staged(|stage| Box::pin(containers::guest_signals(stage))),
    ),
    probe(
        GUEST,
        "guest-binary",
        "The binary that guests run from cannot be changed (CVE-2019-5736)",
        Staged(|stage| Box::pin(containers::own_binary(stage))),
    ),
    archive("snapshot-proc-link", SNAPSHOT_PROMISE, |stage| {
        Box::pin(archives::snapshot(
            stage,
            "snapshot-proc-link",
            &[
                ("sys/class/net", Plant::Directory),
                ("d1/d2/d3/d4/d5/d6", Plant::Directory),
                ("d1/q", Plant::Directory),
                ("q/sys/net/ipv4", Plant::Directory),
                ("sys/class/net/lo", Plant::Link("../../../d1/d2/d3/d4/d5/d6")),
                ("proc", Plant::Link("sys/class/net/lo/../../../../../q")),
                (
                    "q/sys/net/ipv4/ip_unprivileged_port_start",
                    Plant::Link("@/sys/net/ipv4/ip_unprivileged_port_start"),
                ),
            ],
        ))
    }),
    archive("snapshot-kernel-links", SNAPSHOT_PROMISE, |stage| {
        Box::pin(archives::snapshot(
            stage,
            "snapshot-kernel-links",
            &[("proc", Plant::Link("@")), ("sys", Plant::Link("@")), ("dev", Plant::Link("@"))],
        ))
    }),
    archive("snapshot-system-links", SNAPSHOT_PROMISE, |stage| {
        Box::pin(archives::snapshot(
            stage,
            "snapshot-system-links",
            &[("usr", Plant::Link("@")), ("etc", Plant::Link("@/etc"))],
        ))
    }),
    archive("snapshot-scratch-links", SNAPSHOT_PROMISE, |stage| {
        Box::pin(archives::snapshot(
            stage,
            "snapshot-scratch-links",
            &[("tmp", Plant::Link("@")), ("run", Plant::Link("@/etc"))],
        ))
    }),
    archive("snapshot-files-for-directories", SNAPSHOT_PROMISE, |stage| {
        Box::pin(archives::snapshot(
            stage,
            "snapshot-files-for-directories",
            &[("proc", Plant::File), ("sys", Plant::Pipe), ("dev", Plant::File), ("tmp", Plant::Pipe)],
        ))
    }),
    archive("snapshot-loops", SNAPSHOT_PROMISE, |stage| {
        Box::pin(archives::snapshot(
            stage,
            "snapshot-loops",
            &[("proc", Plant::Link("sys")), ("sys", Plant::Link("proc")), ("dev", Plant::Link("dev"))],
        ))
    }),
    archive("snapshot-random", SNAPSHOT_PROMISE, |stage| {
        Box::pin(archives::random_snapshots(stage, "snapshot-random"))
    }),
    archive("layer-parent", "Names with `..` or a leading slash stay in their layer", |stage| {
        Box::pin(archives::layer(stage, "layer-parent"))
    }),
    archive("layer-through-link", "Entries do not follow links out of their layer", |stage| {
        Box::pin(archives::layer(stage, "layer-through-link"))
    }),
    archive("layer-hard-link", "Hard links reach no file on the host", |stage| {
        Box::pin(archives::layer(stage, "layer-hard-link"))
    }),
    archive("layer-devices", "Device nodes in layers are skipped", |stage| {
        Box::pin(archives::layer(stage, "layer-devices"))
    }),
    archive("layer-whiteouts", "Whiteouts delete nothing outside their layer", |stage| {
        Box::pin(archives::layer(stage, "layer-whiteouts"))
    }),
    archive(
        "image-proc-link",
        "An image's own /proc is not used (CVE-2023-27561, CVE-2023-28642)",
        |stage| Box::pin(archives::image_root(stage, "image-proc-link")),
    ),
    archive(
        "image-dev-null-link",
        "An image's own /dev is not used (CVE-2025-31133, CVE-2025-52565)",
        |stage| Box::pin(archives::image_root(stage, "image-dev-null-link")),
    ),
    archive("image-etc-link", "Files written for a sandbox stay in its root", |stage| {
        Box::pin(archives::image_root(stage, "image-etc-link"))
    }),
    archive("build-context-parent", "Names in a build context stay in the build", |stage| {
        Box::pin(archives::build(stage, "build-context-parent"))
    }),
    archive("build-copy-link", "COPY of a link copies no file on the host", |stage| {
        Box::pin(archives::build(stage, "build-copy-link"))
    }),
    archive("files-tar", "File archives are unpacked inside", |stage| Box::pin(archives::files_tar(stage))),
    archive("files-links", "Links inside lead to no file on the host", |stage| {
        Box::pin(archives::files_links(stage))
    }),
    kind("memory-anonymous", |stage| Box::pin(memory::kind(stage, "anonymous"))),
    kind("memory-tmp", |stage| Box::pin(memory::kind(stage, "tmp"))),
    kind("memory-shm", |stage| Box::pin(memory::kind(stage, "shm"))),
    kind("memory-memfd", |stage| Box::pin(memory::kind(stage, "memfd"))),
    kind("memory-sysv-shm", |stage| Box::pin(memory::kind(stage, "sysv-shm"))),
    kind("memory-sysv-messages", |stage| Box::pin(memory::kind(stage, "sysv-messages"))),
    kind("memory-sysv-semaphores", |stage| Box::pin(memory::kind(stage, "sysv-semaphores"))),
    kind("memory-queues", |stage| Box::pin(memory::kind(stage, "queues"))),
    kind("memory-pipes", |stage| Box::pin(memory::kind(stage, "pipes"))),
    kind("memory-unix", |stage| Box::pin(memory::kind(stage, "unix"))),
    kind("memory-tcp", |stage| Box::pin(memory::kind(stage, "tcp"))),
    kind("memory-tcp-unaccepted", |stage| Box::pin(memory::kind(stage, "tcp-unaccepted"))),
    kind("memory-udp", |stage| Box::pin(memory::kind(stage, "udp"))),
    kind("memory-udp-unsent", |stage| Box::pin(memory::kind(stage, "udp-unsent"))),
    kind("memory-netlink", |stage| Box::pin(memory::kind(stage, "netlink"))),
    kind("memory-page-tables", |stage| Box::pin(memory::kind(stage, "page-tables"))),
    kind("memory-tmp-by-api", |stage| Box::pin(memory::through_api(stage, "/tmp"))),
    kind("memory-shm-by-api", |stage| Box::pin(memory::through_api(stage, "/dev/shm"))),
    probe(
        RESOURCES,
        "inotify-instances",
        "One sandbox cannot exhaust inotify instances",
        Staged(|stage| Box::pin(resources::inotify(stage))),
    ),
    probe(
        RESOURCES,
        "inotify-watches",
        "One sandbox cannot exhaust inotify watches",
        Staged(|stage| Box::pin(resources::inotify_watches(stage))),
    ),
    probe(
        RESOURCES,
        "timers",
        "Timers and queued signals are not charged to the host's root",
        Staged(|stage| Box::pin(resources::timers(stage))),
    ),
    probe(
        RESOURCES,
        "open-files",
        "One sandbox cannot exhaust the machine's open files",
        Staged(|stage| Box::pin(resources::open_files(stage))),
    ),
    probe(
        RESOURCES,
        "large-environment",
        "The size of a sandbox's environment is limited",
        Staged(|stage| Box::pin(resources::environment(stage))),
    ),
    probe(
        RESOURCES,
        "aio",
        "No asynchronous I/O context can be created",
        Staged(|stage| Box::pin(resources::aio(stage))),
    ),
    probe(
        RESOURCES,
        "queues",
        "One sandbox cannot exhaust message queues",
        Staged(|stage| Box::pin(resources::queues(stage))),
    ),
    probe(
        RESOURCES,
        "ptys",
        "Terminals are limited, and freed with the sandbox",
        Staged(|stage| Box::pin(resources::ptys(stage))),
    ),
    probe(
        RESOURCES,
        "keyrings",
        "No kernel key can be created",
        Staged(|stage| Box::pin(resources::keyrings(stage))),
    ),
    probe(
        RESOURCES,
        "bpf-filters",
        "No BPF program can be loaded",
        Staged(|stage| Box::pin(resources::bpf_filters(stage))),
    ),
    probe(
        RESOURCES,
        "user-namespaces",
        "No namespace can be created",
        Staged(|stage| Box::pin(resources::user_namespaces(stage))),
    ),
    probe(RESOURCES, "watchers", "fanotify, userfaultfd, perf and io_uring are refused", Inside("watchers")),
    probe(
        NEIGHBOURS,
        "device-locks",
        "Locks on device nodes affect only the sandbox",
        Staged(|stage| Box::pin(neighbours::device_locks(stage))),
    ),
    probe(
        NEIGHBOURS,
        "device-watches",
        "The host's use of devices cannot be watched",
        Staged(|stage| Box::pin(neighbours::device_watches(stage))),
    ),
    probe(
        NEIGHBOURS,
        "device-changes",
        "Device nodes of the host cannot be changed",
        Staged(|stage| Box::pin(neighbours::device_changes(stage))),
    ),
    probe(
        NEIGHBOURS,
        "abstract-sockets",
        "Abstract sockets of the host are out of reach (CVE-2020-15257)",
        Staged(|stage| Box::pin(neighbours::abstract_sockets(stage))),
    ),
    probe(
        NEIGHBOURS,
        "loopback",
        "The host's loopback, including the daemon's port, is out of reach",
        Staged(|stage| Box::pin(neighbours::loopback(stage))),
    ),
    probe(NEIGHBOURS, "network-out", "There is no network but loopback", Inside("network-out")),
    probe(
        NEIGHBOURS,
        "processes",
        "Only the sandbox's own processes are visible",
        Staged(|stage| Box::pin(neighbours::processes(stage))),
    ),
    probe(
        NEIGHBOURS,
        "shared-names",
        "Named memory, queues and files are not shared",
        Staged(|stage| Box::pin(neighbours::shared_names(stage))),
    ),
    probe(
        NEIGHBOURS,
        "hostname",
        "The host's name cannot be read or changed",
        Staged(|stage| Box::pin(neighbours::hostname(stage))),
    ),
    probe(
        NEIGHBOURS,
        "namespaces",
        "The sandbox has seven namespaces of its own",
        Staged(|stage| Box::pin(neighbours::namespaces(stage))),
    ),
    probe(
        NEIGHBOURS,
        "host-ids",
        "Root inside is a host user that no other sandbox has",
        Staged(|stage| Box::pin(neighbours::host_ids(stage))),
    ),
    probe(
        NEIGHBOURS,
        "volumes",
        "Volumes in other namespaces cannot be mounted",
        Staged(|stage| Box::pin(neighbours::volumes(stage))),
    ),
    probe(
        NEIGHBOURS,
        "daemon-directories",
        "The daemon's directories, including the package cache, are not visible inside",
        Staged(|stage| Box::pin(neighbours::daemon_directories(stage))),
    ),
    network("network-descriptors", "The sockets of a sandbox's network are out of reach inside", |stage| {
        Box::pin(networks::seen(stage, "network-descriptors"))
    }),
    network("network-rights", "No packet can be made, marked, seen or redirected inside", |stage| {
        Box::pin(networks::seen(stage, "network-rights"))
    }),
    network("network-catch", "What is for outside cannot be caught inside", |stage| {
        Box::pin(networks::seen(stage, "network-catch"))
    }),
    network("network-nobody", "A network reaches nothing that its policy does not allow", |stage| {
        Box::pin(networks::seen(stage, "network-nobody"))
    }),
    probe(ESCAPES, "descriptors", "No descriptor is inherited (CVE-2024-21626)", Inside("descriptors")),
    probe(
        ESCAPES,
        "working-directory",
        "A working directory is always inside (CVE-2024-21626)",
        Staged(|stage| Box::pin(containers::leaked_directories(stage))),
    ),
    probe(
        ESCAPES,
        "kernel-mounts",
        "Nothing can be mounted over /proc and /sys (CVE-2019-16884, CVE-2019-19921)",
        Staged(|stage| Box::pin(containers::kernel_mounts(stage))),
    ),
    probe(
        ESCAPES,
        "mounts-through-links",
        "Mount points are resolved and created inside the root (CVE-2021-30465, CVE-2024-45310)",
        Staged(|stage| Box::pin(containers::mounts_through_links(stage))),
    ),
    probe(
        ESCAPES,
        "long-mounts",
        "Long paths and many mounts change no other setting (CVE-2021-43784)",
        Staged(|stage| Box::pin(containers::long_mounts(stage))),
    ),
    probe(
        ESCAPES,
        "read-only-mounts",
        "A read-only host directory cannot be changed (CVE-2022-0847)",
        Staged(|stage| Box::pin(containers::read_only_mounts(stage))),
    ),
    probe(
        ESCAPES,
        "host-paths",
        "Keys give no access to host paths",
        Staged(|stage| Box::pin(containers::host_paths(stage))),
    ),
    probe(
        ESCAPES,
        "system-files",
        "The host's system directories cannot be written",
        Staged(|stage| Box::pin(containers::system_files(stage))),
    ),
    probe(
        ESCAPES,
        "set-user-id-on-host",
        "Users of the host cannot run programs created inside",
        Staged(|stage| Box::pin(containers::set_user_id_on_host(stage))),
    ),
    probe(
        ESCAPES,
        "engine-sockets",
        "No container engine's socket is visible inside",
        Inside("engine-sockets"),
    ),
    probe(ESCAPES, "file-handles", "Files cannot be opened by handle", Inside("file-handles")),
    probe(ESCAPES, "kernel-modules", "No kernel or kernel module can be loaded", Inside("kernel-modules")),
    probe(
        ESCAPES,
        "core-pattern",
        "Host handlers, such as for core dumps, cannot be set (CVE-2025-52881)",
        Inside("core-pattern"),
    ),
    probe(
        ESCAPES,
        "release-agent",
        "No cgroup hierarchy can be mounted (CVE-2022-0492)",
        Inside("release-agent"),
    ),
    probe(ESCAPES, "uevent-helper", "No uevent helper can be set", Inside("uevent-helper")),
    probe(ESCAPES, "binfmt-misc", "No interpreter can be registered", Inside("binfmt-misc")),
    probe(ESCAPES, "device-nodes", "Device nodes cannot be created or used", Inside("device-nodes")),
    probe(
        ESCAPES,
        "cgroup-writes",
        "Limits cannot be changed from inside (CVE-2023-25809)",
        Inside("cgroup-writes"),
    ),
    probe(ESCAPES, "join-namespaces", "Namespaces cannot be joined", Inside("join-namespaces")),
    probe(ESCAPES, "kernel-log", "The kernel log cannot be read", Inside("kernel-log")),
    probe(ESCAPES, "terminal-input", "Nothing can be typed into a terminal", Inside("terminal-input")),
    probe(
        REQUESTS,
        "ssrf-pull",
        "Pulls with a key reach no private address",
        Staged(|stage| Box::pin(ssrf::pull(stage))),
    ),
    probe(
        REQUESTS,
        "ssrf-tool",
        "Pulls through MCP reach no private address",
        Staged(|stage| Box::pin(ssrf::tool(stage))),
    ),
    probe(
        REQUESTS,
        "ssrf-redirect",
        "A registry's redirects lead to no private address",
        Staged(|stage| Box::pin(ssrf::redirect(stage))),
    ),
    probe(
        REQUESTS,
        "ssrf-realm",
        "A registry's token service cannot be at a private address",
        Staged(|stage| Box::pin(ssrf::realm(stage))),
    ),
    probe(
        REQUESTS,
        "ssrf-create",
        "Images of new sandboxes cannot come from a private address",
        Staged(|stage| Box::pin(ssrf::create(stage))),
    ),
    probe(
        REQUESTS,
        "ssrf-build",
        "FROM in a Dockerfile reaches no private address",
        Staged(|stage| Box::pin(ssrf::build(stage))),
    ),
    probe(
        ACCESS,
        "foreign-routes",
        "A key sees only its own namespace, on every route",
        Staged(|stage| Box::pin(matrix::foreign_routes(stage))),
    ),
    probe(
        ACCESS,
        "foreign-tools",
        "The same holds for every MCP tool",
        Staged(|stage| Box::pin(matrix::foreign_tools(stage))),
    ),
    probe(
        ACCESS,
        "foreign-dialect-routes",
        "The same holds for the routes of every dialect",
        Staged(|stage| Box::pin(matrix::foreign_dialect_routes(stage))),
    ),
    probe(
        ACCESS,
        "foreign-dialect-tools",
        "The same holds for the tools of every dialect",
        Staged(|stage| Box::pin(matrix::foreign_dialect_tools(stage))),
    ),
    probe(
        ACCESS,
        "read-only-routes",
        "A read-only key changes nothing, on every route",
        Staged(|stage| Box::pin(matrix::read_only_routes(stage))),
    ),
    probe(
        ACCESS,
        "read-only-tools",
        "The same holds for every MCP tool",
        Staged(|stage| Box::pin(matrix::read_only_tools(stage))),
    ),
    probe(
        ACCESS,
        "read-only-dialect-routes",
        "The same holds for the routes of every dialect",
        Staged(|stage| Box::pin(matrix::read_only_dialect_routes(stage))),
    ),
    probe(
        ACCESS,
        "read-only-dialect-tools",
        "The same holds for the tools of every dialect",
        Staged(|stage| Box::pin(matrix::read_only_dialect_tools(stage))),
    ),
    probe(
        ACCESS,
        "keyless-routes",
        "Without a key, only the health check answers",
        Staged(|stage| Box::pin(matrix::keyless_routes(stage))),
    ),
    probe(
        ACCESS,
        "keyless-dialect-routes",
        "The same holds for the routes of every dialect",
        Staged(|stage| Box::pin(matrix::keyless_dialect_routes(stage))),
    ),
    probe(
        ACCESS,
        "foreign-session-routes",
        "A session of the dashboard sees no more than its key, on every route",
        Staged(|stage| Box::pin(matrix::foreign_session_routes(stage))),
    ),
    probe(
        ACCESS,
        "share-routes",
        "A share shows its sandbox and nothing else, and changes nothing, on every route",
        Staged(|stage| Box::pin(matrix::share_routes(stage))),
    ),
    probe(
        ACCESS,
        "stolen-cookie",
        "A cookie of the dashboard alone opens nothing, on no route and no port",
        Staged(|stage| Box::pin(dashboard::stolen_cookie(stage))),
    ),
    probe(
        ACCESS,
        "foreign-page",
        "Pages of other origins cannot use a session, for requests or for WebSockets",
        Staged(|stage| Box::pin(dashboard::foreign_page(stage))),
    ),
    probe(
        ACCESS,
        "session-and-ports",
        "A server in a sandbox gets nothing of a session, and a session opens no server in our origin",
        Staged(|stage| Box::pin(dashboard::ports(stage))),
    ),
    probe(
        ACCESS,
        "used-token",
        "A one-time address signs in once, and a share cannot be forged or prolonged",
        Staged(|stage| Box::pin(dashboard::used_token(stage))),
    ),
    probe(
        ACCESS,
        "wrong-keys",
        "Wrong keys do not lock out holders of a valid one",
        Staged(|stage| Box::pin(matrix::wrong_keys(stage))),
    ),
    probe(
        SECRETS,
        "secrets-environment",
        "The daemon's environment is not visible inside",
        Staged(|stage| Box::pin(secrets::environment(stage))),
    ),
    probe(
        SECRETS,
        "secrets-files",
        "The daemon's files and the host's private files are not visible inside",
        Staged(|stage| Box::pin(secrets::files(stage))),
    ),
    probe(
        SECRETS,
        "secrets-answers",
        "No answer contains a key or a secret",
        Staged(|stage| Box::pin(secrets::answers(stage))),
    ),
    probe(
        SECRETS,
        "secrets-log",
        "The log contains no key or secret",
        Staged(|stage| Box::pin(secrets::log(stage))),
    ),
    probe(
        SECRETS,
        "secrets-audit",
        "The audit contains no key or secret",
        Staged(|stage| Box::pin(secrets::audit(stage))),
    ),
    probe(
        SECRETS,
        "secrets-database",
        "Only hashes of keys are stored",
        Staged(|stage| Box::pin(secrets::database(stage))),
    ),
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    const SECURITY: &str = include_str!("../../../../../SECURITY.md");

    #[test]
    fn every_probe_is_named_once_and_can_be_run() {
        let names: BTreeSet<_> = PROBES.iter().map(|probe| probe.name).collect();
        assert_eq!(names.len(), PROBES.len());
        assert!(names.len() >= 60);
        for probe in PROBES {
            if let Inside(name) = probe.run {
                assert!(attack::INSIDE.iter().any(|inside| inside.name == name), "{name}");
            }
        }
    }

    #[test]
    fn security_md_names_every_probe_and_no_other() {
        let (_, table) = SECURITY.split_once("## What holds this up").unwrap();
        let cells = table.lines().filter_map(|line| line.strip_prefix("| ")?.split('|').nth(1));
        let named: BTreeSet<_> = cells.flat_map(|cell| cell.split('`').skip(1).step_by(2)).collect();
        let known: BTreeSet<_> = PROBES.iter().map(|probe| probe.name).collect();
        assert_eq!(named, known);
    }
}

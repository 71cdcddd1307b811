//! The list of all probes, each with the promise that it checks.

use attack::hostile::Plant;

use super::{
    Probe,
    Run::{Inside, Staged},
    archives, containers, dashboard, matrix, memory, neighbours, networks, resources, secrets, ssrf,
};

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

const MEMORY_PROMISE: &str = "Memory of every kind is limited by the sandbox's memory limit";

/// Rows of `name: promise, what plays it(with what);`, by group. Without the last, a program of that name tries it
/// inside.
macro_rules! probes {
    ($($group:ident { $($name:literal: $promise:expr $(, $($play:ident)::+ $(($($with:expr),+))?)?;)+ })+) => {
        &[$($(Probe {
            group: $group,
            name: $name,
            promise: $promise,
            run: probes!(@run $name $(, $($play)::+ $(($($with),+))?)?),
        }),+),+]
    };
    (@run $name:literal) => { Inside($name) };
    (@run $name:literal, $($play:ident)::+) => { Staged(|stage| Box::pin($($play)::+(stage))) };
    (@run $name:literal, $($play:ident)::+ ($($with:expr),+)) => {
        Staged(|stage| Box::pin($($play)::+(stage, $($with),+)))
    };
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
pub(crate) const PROBES: &[Probe] = probes! {
    CALLS {
        "syscall-sweep": "System calls that are not on the list are refused";
        "syscall-x32": "System calls with x32 numbers are refused";
        "syscall-int80": "32-bit system calls are refused";
        "syscall-arguments": "Allowed system calls refuse dangerous arguments";
        "socket-families": "Only Unix, loopback and route sockets can be created";
    }
    SETTINGS {
        "proc-masks": "Dangerous parts of /proc and /sys are masked";
        "proc-writes": "No host setting in /proc can be written";
        "proc-pressure": "No pressure trigger can be registered";
        "sys-writes": "/sys is read-only";
        "remount": "Mounts cannot be changed";
        "mount-flags": "Every mount is nosuid; /sys and /proc/sys are read-only";
        "capabilities": "Only the eight documented capabilities are present";
        "inheritable-capabilities": "No capability is inheritable (CVE-2022-29162)";
        "no-new-privileges": "No program gains privileges";
        "seccomp-mode": "Every command runs behind the filter";
        "set-user-id": "Set-user-id bits have no effect inside";
        "out-of-memory-score": "A workload cannot make the kernel kill others first";
        "core-dumps": "A crash never starts the host's core-dump handler";
    }
    GUEST {
        "guest-memory": "The guest's memory cannot be read";
        "guest-trace": "The guest cannot be traced";
        "guest-limits": "The guest cannot be limited or rescheduled";
        "guest-signals": "The guest cannot be killed from inside", containers::guest_signals;
        "guest-binary": "The binary that guests run from cannot be changed (CVE-2019-5736)",
            containers::own_binary;
    }
    ARCHIVES {
        "snapshot-proc-link": SNAPSHOT_PROMISE,
            archives::snapshot("snapshot-proc-link", &[
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
            ]);
        "snapshot-kernel-links": SNAPSHOT_PROMISE,
            archives::snapshot("snapshot-kernel-links", &[
                ("proc", Plant::Link("@")),
                ("sys", Plant::Link("@")),
                ("dev", Plant::Link("@"))
            ]);
        "snapshot-system-links": SNAPSHOT_PROMISE,
            archives::snapshot("snapshot-system-links", &[
                ("usr", Plant::Link("@")),
                ("etc", Plant::Link("@/etc"))
            ]);
        "snapshot-scratch-links": SNAPSHOT_PROMISE,
            archives::snapshot("snapshot-scratch-links", &[
                ("tmp", Plant::Link("@")),
                ("run", Plant::Link("@/etc"))
            ]);
        "snapshot-files-for-directories": SNAPSHOT_PROMISE,
            archives::snapshot("snapshot-files-for-directories", &[
                ("proc", Plant::File),
                ("sys", Plant::Pipe),
                ("dev", Plant::File),
                ("tmp", Plant::Pipe)
            ]);
        "snapshot-loops": SNAPSHOT_PROMISE,
            archives::snapshot("snapshot-loops", &[
                ("proc", Plant::Link("sys")),
                ("sys", Plant::Link("proc")),
                ("dev", Plant::Link("dev"))
            ]);
        "snapshot-random": SNAPSHOT_PROMISE, archives::random_snapshots("snapshot-random");
        "layer-parent": "Names with `..` or a leading slash stay in their layer",
            archives::layer("layer-parent");
        "layer-through-link": "Entries do not follow links out of their layer",
            archives::layer("layer-through-link");
        "layer-hard-link": "Hard links reach no file on the host", archives::layer("layer-hard-link");
        "layer-devices": "Device nodes in layers are skipped", archives::layer("layer-devices");
        "layer-whiteouts": "Whiteouts delete nothing outside their layer", archives::layer("layer-whiteouts");
        "image-proc-link": "An image's own /proc is not used (CVE-2023-27561, CVE-2023-28642)",
            archives::image_root("image-proc-link");
        "image-dev-null-link": "An image's own /dev is not used (CVE-2025-31133, CVE-2025-52565)",
            archives::image_root("image-dev-null-link");
        "image-etc-link": "Files written for a sandbox stay in its root",
            archives::image_root("image-etc-link");
        "build-context-parent": "Names in a build context stay in the build",
            archives::build("build-context-parent");
        "build-copy-link": "COPY of a link copies no file on the host", archives::build("build-copy-link");
        "files-tar": "File archives are unpacked inside", archives::files_tar;
        "files-links": "Links inside lead to no file on the host", archives::files_links;
    }
    MEMORY {
        "memory-anonymous": MEMORY_PROMISE, memory::kind("anonymous");
        "memory-tmp": MEMORY_PROMISE, memory::kind("tmp");
        "memory-shm": MEMORY_PROMISE, memory::kind("shm");
        "memory-memfd": MEMORY_PROMISE, memory::kind("memfd");
        "memory-sysv-shm": MEMORY_PROMISE, memory::kind("sysv-shm");
        "memory-sysv-messages": MEMORY_PROMISE, memory::kind("sysv-messages");
        "memory-sysv-semaphores": MEMORY_PROMISE, memory::kind("sysv-semaphores");
        "memory-queues": MEMORY_PROMISE, memory::kind("queues");
        "memory-pipes": MEMORY_PROMISE, memory::kind("pipes");
        "memory-unix": MEMORY_PROMISE, memory::kind("unix");
        "memory-tcp": MEMORY_PROMISE, memory::kind("tcp");
        "memory-tcp-unaccepted": MEMORY_PROMISE, memory::kind("tcp-unaccepted");
        "memory-udp": MEMORY_PROMISE, memory::kind("udp");
        "memory-udp-unsent": MEMORY_PROMISE, memory::kind("udp-unsent");
        "memory-netlink": MEMORY_PROMISE, memory::kind("netlink");
        "memory-page-tables": MEMORY_PROMISE, memory::kind("page-tables");
        "memory-tmp-by-api": MEMORY_PROMISE, memory::through_api("/tmp");
        "memory-shm-by-api": MEMORY_PROMISE, memory::through_api("/dev/shm");
    }
    RESOURCES {
        "inotify-instances": "One sandbox cannot exhaust inotify instances", resources::inotify;
        "inotify-watches": "One sandbox cannot exhaust inotify watches", resources::inotify_watches;
        "timers": "Timers and queued signals are not charged to the host's root", resources::timers;
        "open-files": "One sandbox cannot exhaust the machine's open files", resources::open_files;
        "large-environment": "The size of a sandbox's environment is limited", resources::environment;
        "aio": "No asynchronous I/O context can be created", resources::aio;
        "queues": "One sandbox cannot exhaust message queues", resources::queues;
        "ptys": "Terminals are limited, and freed with the sandbox", resources::ptys;
        "keyrings": "No kernel key can be created", resources::keyrings;
        "bpf-filters": "No BPF program can be loaded", resources::bpf_filters;
        "user-namespaces": "No namespace can be created", resources::user_namespaces;
        "watchers": "fanotify, userfaultfd, perf and io_uring are refused";
    }
    NEIGHBOURS {
        "device-locks": "Locks on device nodes affect only the sandbox", neighbours::device_locks;
        "device-watches": "The host's use of devices cannot be watched", neighbours::device_watches;
        "device-changes": "Device nodes of the host cannot be changed", neighbours::device_changes;
        "abstract-sockets": "Abstract sockets of the host are out of reach (CVE-2020-15257)",
            neighbours::abstract_sockets;
        "loopback": "The host's loopback, including the daemon's port, is out of reach", neighbours::loopback;
        "network-out": "There is no network but loopback";
        "processes": "Only the sandbox's own processes are visible", neighbours::processes;
        "shared-names": "Named memory, queues and files are not shared", neighbours::shared_names;
        "hostname": "The host's name cannot be read or changed", neighbours::hostname;
        "namespaces": "The sandbox has seven namespaces of its own", neighbours::namespaces;
        "host-ids": "Root inside is a host user that no other sandbox has", neighbours::host_ids;
        "volumes": "Volumes in other namespaces cannot be mounted", neighbours::volumes;
        "daemon-directories": "The daemon's directories, including the package cache, are not visible inside",
            neighbours::daemon_directories;
    }
    NETWORK {
        "network-descriptors": "The sockets of a sandbox's network are out of reach inside",
            networks::seen("network-descriptors");
        "network-rights": "No packet can be made, marked, seen or redirected inside",
            networks::seen("network-rights");
        "network-catch": "What is for outside cannot be caught inside", networks::seen("network-catch");
        "network-nobody": "A network reaches nothing that its policy does not allow",
            networks::seen("network-nobody");
    }
    ESCAPES {
        "descriptors": "No descriptor is inherited (CVE-2024-21626)";
        "working-directory": "A working directory is always inside (CVE-2024-21626)",
            containers::leaked_directories;
        "kernel-mounts": "Nothing can be mounted over /proc and /sys (CVE-2019-16884, CVE-2019-19921)",
            containers::kernel_mounts;
        "mounts-through-links": "Mount points are resolved and created inside the root (CVE-2021-30465, CVE-2024-45310)",
            containers::mounts_through_links;
        "long-mounts": "Long paths and many mounts change no other setting (CVE-2021-43784)",
            containers::long_mounts;
        "read-only-mounts": "A read-only host directory cannot be changed (CVE-2022-0847)",
            containers::read_only_mounts;
        "host-paths": "Keys give no access to host paths", containers::host_paths;
        "system-files": "The host's system directories cannot be written", containers::system_files;
        "set-user-id-on-host": "Users of the host cannot run programs created inside",
            containers::set_user_id_on_host;
        "engine-sockets": "No container engine's socket is visible inside";
        "file-handles": "Files cannot be opened by handle";
        "kernel-modules": "No kernel or kernel module can be loaded";
        "core-pattern": "Host handlers, such as for core dumps, cannot be set (CVE-2025-52881)";
        "release-agent": "No cgroup hierarchy can be mounted (CVE-2022-0492)";
        "uevent-helper": "No uevent helper can be set";
        "binfmt-misc": "No interpreter can be registered";
        "device-nodes": "Device nodes cannot be created or used";
        "cgroup-writes": "Limits cannot be changed from inside (CVE-2023-25809)";
        "join-namespaces": "Namespaces cannot be joined";
        "kernel-log": "The kernel log cannot be read";
        "terminal-input": "Nothing can be typed into a terminal";
    }
    REQUESTS {
        "ssrf-pull": "Pulls with a key reach no private address", ssrf::pull;
        "ssrf-tool": "Pulls through MCP reach no private address", ssrf::tool;
        "ssrf-redirect": "A registry's redirects lead to no private address", ssrf::redirect;
        "ssrf-realm": "A registry's token service cannot be at a private address", ssrf::realm;
        "ssrf-create": "Images of new sandboxes cannot come from a private address", ssrf::create;
        "ssrf-build": "FROM in a Dockerfile reaches no private address", ssrf::build;
    }
    ACCESS {
        "foreign-routes": "A key sees only its own namespace, on every route", matrix::foreign_routes;
        "foreign-tools": "The same holds for every MCP tool", matrix::foreign_tools;
        "foreign-dialect-routes": "The same holds for the routes of every dialect",
            matrix::foreign_dialect_routes;
        "foreign-dialect-tools": "The same holds for the tools of every dialect",
            matrix::foreign_dialect_tools;
        "read-only-routes": "A read-only key changes nothing, on every route", matrix::read_only_routes;
        "read-only-tools": "The same holds for every MCP tool", matrix::read_only_tools;
        "read-only-dialect-routes": "The same holds for the routes of every dialect",
            matrix::read_only_dialect_routes;
        "read-only-dialect-tools": "The same holds for the tools of every dialect",
            matrix::read_only_dialect_tools;
        "keyless-routes": "Without a key, only the health check answers", matrix::keyless_routes;
        "keyless-dialect-routes": "The same holds for the routes of every dialect",
            matrix::keyless_dialect_routes;
        "foreign-session-routes": "A session of the dashboard sees no more than its key, on every route",
            matrix::foreign_session_routes;
        "share-routes": "A share shows its sandbox and nothing else, and changes nothing, on every route",
            matrix::share_routes;
        "stolen-cookie": "A cookie of the dashboard alone opens nothing, on no route and no port",
            dashboard::stolen_cookie;
        "foreign-page": "Pages of other origins cannot use a session, for requests or for WebSockets",
            dashboard::foreign_page;
        "session-and-ports": "A server in a sandbox gets nothing of a session, and a session opens no server in our origin",
            dashboard::ports;
        "used-token": "A one-time address signs in once, and a share cannot be forged or prolonged",
            dashboard::used_token;
        "wrong-keys": "Wrong keys do not lock out holders of a valid one", matrix::wrong_keys;
    }
    SECRETS {
        "secrets-environment": "The daemon's environment is not visible inside", secrets::environment;
        "secrets-files": "The daemon's files and the host's private files are not visible inside",
            secrets::files;
        "secrets-answers": "No answer contains a key or a secret", secrets::answers;
        "secrets-log": "The log contains no key or secret", secrets::log;
        "secrets-audit": "The audit contains no key or secret", secrets::audit;
        "secrets-database": "Only hashes of keys are stored", secrets::database;
    }
};

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

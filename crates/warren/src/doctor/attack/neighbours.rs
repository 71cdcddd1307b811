//! Attacks the host and other sandboxes through resources that might be shared.

use std::{
    fs::{self, OpenOptions},
    os::{
        linux::net::SocketAddrExt as _,
        unix::{fs::MetadataExt as _, net},
    },
};

use rustix::fs::{FlockOperation, flock};

use super::{
    Seen, inside,
    stage::{OURS, Stage},
};
use crate::error::CommandResult;

const DEVICES: &[&str] = &["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"];

/// Device nodes of the host that cannot be locked while the sandbox holds locks on its own.
pub(super) async fn device_locks(stage: &Stage) -> CommandResult<Seen> {
    let host =
        async { Ok(DEVICES.iter().filter(|path| is_locked(path)).map(|path| (*path).to_owned()).collect()) };
    let (report, locked): (_, Vec<String>) =
        inside::holding(stage, &stage.sandbox, "device-locks", host).await?;
    let held = report.facts.get("locked").and_then(serde_json::Value::as_u64).unwrap_or(0);
    let breaches: Vec<_> = locked.iter().map(|path| format!("the host cannot lock its own {path}")).collect();
    Ok(shared_nodes(
        stage,
        Seen::unless(&breaches, format!("{held} nodes locked inside, none of the host's")),
    ))
}

/// Without root, the kernel does not allow making device nodes: sandboxes use the host's own, and their warnings say
/// so.
fn shared_nodes(stage: &Stage, seen: Seen) -> Seen {
    let is_open = seen.verdict == super::Verdict::Open;
    if is_open && stage.is_rootless() { Seen::weak(seen.text) } else { seen }
}

fn is_locked(path: &str) -> bool {
    let Ok(file) = OpenOptions::new().read(true).write(true).open(path) else { return false };
    flock(&file, FlockOperation::NonBlockingLockExclusive).is_err()
}

pub(super) async fn device_watches(stage: &Stage) -> CommandResult<Seen> {
    let host = async {
        for _ in 0..5 {
            drop(OpenOptions::new().write(true).open("/dev/full")?);
        }
        Ok(())
    };
    let (report, ()) = inside::holding(stage, &stage.sandbox, "device-watches", host).await?;
    Ok(shared_nodes(stage, inside::judge(&report)))
}

pub(super) async fn device_changes(stage: &Stage) -> CommandResult<Seen> {
    let report = inside::run(stage, &stage.sandbox, "device-changes", &[]).await?;
    let host: Vec<String> = DEVICES
        .iter()
        .filter_map(|path| {
            fs::metadata(path).ok().map(|found| format!("{path}={}:{}", found.dev(), found.ino()))
        })
        .collect();
    let changed =
        report.facts.get("changed").and_then(serde_json::Value::as_array).cloned().unwrap_or_default();
    let changed = changed.iter().filter_map(|node| node.as_str().map(str::to_owned));
    let breaches: Vec<String> = changed
        .filter(|node| host.contains(node))
        .map(|node| format!("the host's {node} was changed"))
        .collect();
    Ok(Seen::unless(&breaches, "no device node of the host can be changed"))
}

pub(super) async fn abstract_sockets(stage: &Stage) -> CommandResult<Seen> {
    let name = format!("warren-attack-{}", std::process::id());
    let address = net::SocketAddr::from_abstract_name(&name)?;
    let _listener = net::UnixListener::bind_addr(&address)?;
    Ok(inside::judge(&inside::run(stage, &stage.sandbox, "abstract-sockets", &[name]).await?))
}

/// Ports of the host, including the daemon's own.
pub(super) async fn loopback(stage: &Stage) -> CommandResult<Seen> {
    let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
    let ports = [listener.local_addr()?.port(), stage.caller.address.port()].map(|port| port.to_string());
    Ok(inside::judge(&inside::run(stage, &stage.sandbox, "loopback", &ports).await?))
}

pub(super) async fn processes(stage: &Stage) -> CommandResult<Seen> {
    let pids = [
        Some(std::process::id().cast_signed()),
        stage.daemon_pid().map(u32::cast_signed),
        stage.guest_pid(&stage.neighbour),
    ];
    let pids: Vec<String> = pids.into_iter().flatten().map(|pid| pid.to_string()).collect();
    Ok(inside::judge(&inside::run(stage, &stage.sandbox, "processes", &pids).await?))
}

/// Named memory, queues and files of one sandbox, looked for in the other.
pub(super) async fn shared_names(stage: &Stage) -> CommandResult<Seen> {
    let look = inside::run(stage, &stage.neighbour, "ipc-look", &[]);
    let (made, looked) = inside::holding(stage, &stage.sandbox, "ipc-make", look).await?;
    let made = made.facts.get("made").and_then(serde_json::Value::as_u64).unwrap_or(0);
    Ok(match made {
        0 => Seen::untried("nothing could be named"),
        _ => inside::judge(&looked),
    })
}

pub(super) async fn hostname(stage: &Stage) -> CommandResult<Seen> {
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    Ok(inside::judge(&inside::run(stage, &stage.sandbox, "hostname", &[name]).await?))
}

/// No namespace is shared with the host or another sandbox.
pub(super) async fn namespaces(stage: &Stage) -> CommandResult<Seen> {
    let of_neighbour = inside::run(stage, &stage.neighbour, "namespaces", &[]).await?;
    let own =
        of_neighbour.facts.get("own").and_then(serde_json::Value::as_array).cloned().unwrap_or_default();
    let mut others: Vec<String> = own.iter().filter_map(|name| name.as_str().map(str::to_owned)).collect();
    for kind in ["user", "mnt", "pid", "net", "ipc", "uts", "cgroup"] {
        others.extend(
            fs::read_link(format!("/proc/self/ns/{kind}")).ok().map(|name| name.display().to_string()),
        );
    }
    Ok(inside::judge(&inside::run(stage, &stage.sandbox, "namespaces", &others).await?))
}

/// Root inside maps to a host user that no other sandbox has.
pub(super) async fn host_ids(stage: &Stage) -> CommandResult<Seen> {
    let range = |sandbox: &str| {
        let pid = stage.guest_pid(sandbox)?;
        let map = fs::read_to_string(format!("/proc/{pid}/uid_map")).ok()?;
        map.split_whitespace().nth(1)?.parse::<u32>().ok()
    };
    let (Some(ours), Some(theirs)) = (range(&stage.sandbox), range(&stage.neighbour)) else {
        return Ok(Seen::untried("cannot read the user id maps"));
    };
    let text = format!("root inside is host user {ours}, the neighbour's is {theirs}");
    Ok(match (ours == 0, ours == theirs, stage.id_map()) {
        (false, false, _) => Seen::contained(text),
        (_, _, "host") => Seen::weak(text),
        (true, _, _) => Seen::open(text),
        (false, true, _) => Seen::weak(format!("{text}: an ordinary user has only one range of ids")),
    })
}

/// A volume in another namespace cannot be mounted by its name.
pub(super) async fn volumes(stage: &Stage) -> CommandResult<Seen> {
    let volume = serde_json::json!({ "name": "attack-private", "namespace": OURS });
    let target = crate::client::Target::new(&["volumes"]);
    stage.operator.post_json::<serde_json::Value>(target, &volume).await?;
    let mount = serde_json::json!({
        "name": "thief",
        "mounts": [{ "kind": "named", "name": "attack-private", "guestPath": "/stolen" }],
    });
    let body = Some(("application/json", mount.to_string().into_bytes()));
    let (status, _) = stage.ask(&stage.other_key, "POST", "/v1/sandboxes", body).await?;
    Ok(match status {
        200..300 => Seen::open("a volume in another namespace was mounted"),
        status => Seen::contained(format!("refused with {status}")),
    })
}

/// The package cache and every directory of the daemon.
pub(super) async fn daemon_directories(stage: &Stage) -> CommandResult<Seen> {
    let home = stage.home();
    let places =
        [home.join("packages"), home.join("sandboxes"), home.to_owned(), stage.run_directory().to_owned()];
    let places: Vec<String> = places.iter().map(|place| place.display().to_string()).collect();
    Ok(inside::judge(&inside::run(stage, &stage.sandbox, "host-mounts", &places).await?))
}

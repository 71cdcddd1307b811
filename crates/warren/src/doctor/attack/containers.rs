//! Attacks from outside, after runc's CVEs of 2019 to 2025 and public escape benchmarks.

use std::{fs, os::unix::fs::MetadataExt as _};

use bytes::Bytes;
use futures_util::stream;
use sandbox::ExecSpec;
use serde_json::json;

use super::{
    Seen,
    inside::{self, report_of},
    stage::{OURS, Stage},
    words,
};
use crate::{
    client::{Target, Within},
    error::CommandResult,
};

/// CVE-2019-5736: a program that is a link to `/proc/self/exe` makes the guest run its own binary, which is then a
/// target.
pub(super) async fn own_binary(stage: &Stage) -> CommandResult<Seen> {
    let binary = std::env::current_exe()?;
    let before = fs::metadata(&binary)?;
    let link = "/root/attack-self";
    let body = json!({ "path": link, "target": "/proc/self/exe" });
    let target = Target::new(&["sandboxes", &stage.sandbox, "files", "symlink"]);
    stage.operator.post_json_quiet(target, &body).await.ok();
    let ran = stage.exec(&stage.sandbox, ExecSpec::argv([link, "probe", "exe-of-guest"])).await;
    let ran = match ran {
        Ok(ran) => ran,
        Err(error) => return Ok(Seen::contained(format!("it cannot run: {}", words(&error)))),
    };
    let seen =
        report_of(&ran).map_or_else(|| Seen::contained("it does not run"), |report| inside::judge(&report));
    let after = fs::metadata(&binary)?;
    let is_changed = before.mode() != after.mode() || before.mtime() != after.mtime();
    Ok(if is_changed { Seen::open(format!("{} was changed on the host", binary.display())) } else { seen })
}

/// CVE-2019-16884: mounts over the kernel's own directories.
pub(super) async fn kernel_mounts(stage: &Stage) -> CommandResult<Seen> {
    volume(stage, "attack-mounts").await?;
    let mut breaches = Vec::new();
    let places = ["/proc", "/proc/sys", "/proc/self/attr", "/sys", "/dev", "/dev/null", "/", "/tmp/../proc"];
    for place in places {
        let mounts = json!([{ "kind": "named", "name": "attack-mounts", "guestPath": place }]);
        if let Ok(made) = stage.create(json!({ "namespace": OURS, "mounts": mounts })).await {
            breaches.push(format!("a volume was mounted at {place}"));
            stage.remove(made.id.as_str()).await;
        }
    }
    Ok(Seen::unless(&breaches, format!("{} of {} mounts refused", places.len(), places.len())))
}

async fn volume(stage: &Stage, name: &str) -> CommandResult<()> {
    let body = json!({ "name": name, "namespace": OURS });
    let made = stage.operator.post_json::<serde_json::Value>(Target::new(&["volumes"]), &body).await;
    match made {
        Err(error) if error.kind() != Some(sandbox::ErrorKind::AlreadyExists) => Err(error),
        _ => Ok(()),
    }
}

/// CVE-2021-30465, CVE-2024-45310: a mount point is below another mount, in which a link leads out.
pub(super) async fn mounts_through_links(stage: &Stage) -> CommandResult<Seen> {
    volume(stage, "attack-links").await?;
    volume(stage, "attack-upper").await?;
    let canary = stage.canary.path();
    // A sandbox creates the links in the volume, because the API would refuse to.
    let mounts = json!([{ "kind": "named", "name": "attack-links", "guestPath": "/vol" }]);
    let maker = stage.create(json!({ "namespace": OURS, "mounts": mounts })).await?;
    let script = format!(
        "ln -s / /vol/root; ln -s /proc /vol/proc; ln -s ../../../../../../..{canary} /vol/canary; \
         ln -s /proc/self/fd /vol/fd; ln -s /proc/1/root /vol/guest"
    );
    stage.exec(maker.id.as_str(), ExecSpec::shell(script)).await?;
    stage.remove(maker.id.as_str()).await;
    let (mut breaches, mut n_made) = (Vec::new(), 0);
    for place in [
        "/vol/plain",
        "/vol/canary",
        "/vol/canary/etc",
        "/vol/canary/made-by-a-mount",
        "/vol/proc/sys",
        "/vol/root/proc/sys",
        "/vol/guest/etc",
        "/vol/fd",
    ] {
        let mounts = json!([
            { "kind": "named", "name": "attack-links", "guestPath": "/vol" },
            { "kind": "named", "name": "attack-upper", "guestPath": place },
        ]);
        let Ok(made) = stage.create(json!({ "namespace": OURS, "mounts": mounts })).await else { continue };
        let id = made.id.to_string();
        n_made += 1;
        for name in ["proc-masks", "proc-writes", "mount-flags"] {
            let report = inside::run(stage, &id, name, &[]).await?;
            breaches.extend(report.breaches.iter().map(|breach| format!("{place}: {}", breach.what)));
        }
        stage.remove(&id).await;
    }
    breaches.extend(stage.canary.changes());
    if n_made == 0 {
        return Ok(Seen::untried("not even a mount on a plain directory of a volume worked"));
    }
    Ok(Seen::unless(&breaches, format!("{n_made} of 8 mounts made, all inside; the others refused")))
}

/// CVE-2021-43784: mount points so long and numerous that a length overflows its field, and flags of the attacker's
/// choice replace ours.
pub(super) async fn long_mounts(stage: &Stage) -> CommandResult<Seen> {
    let place = |n: usize| format!("/m{n}{}", format!("/{}", "x".repeat(200)).repeat(15));
    let mount = |n: usize| json!({ "kind": "tmpfs", "guestPath": place(n), "size": 1 << 20 });
    let (mut breaches, mut n_made) = (Vec::new(), 0);
    let tries = [4, 24];
    for n_mounts in tries {
        let mounts: Vec<_> = (0..n_mounts).map(mount).collect();
        let Ok(made) = stage.create(json!({ "namespace": OURS, "mounts": mounts })).await else { continue };
        n_made += 1;
        for name in ["mount-flags", "proc-masks", "capabilities"] {
            let report = inside::run(stage, made.id.as_str(), name, &[]).await?;
            breaches.extend(report.breaches.iter().map(|breach| format!("{name}: {}", breach.what)));
        }
        stage.remove(made.id.as_str()).await;
    }
    Ok(Seen::unless(&breaches, format!("{n_made} of {} sandboxes created, all fully isolated", tries.len())))
}

/// A host directory that is mounted read-only cannot be changed, including its page cache (CVE-2022-0847).
pub(super) async fn read_only_mounts(stage: &Stage) -> CommandResult<Seen> {
    let mounts = json!([{
        "kind": "bind", "hostPath": stage.canary.path(), "guestPath": "/canary", "readonly": true,
    }]);
    let made = stage.create(json!({ "namespace": OURS, "mounts": mounts })).await?.id.to_string();
    let report = inside::run(stage, &made, "read-only-mount", &["/canary".to_owned()]).await;
    stage.remove(&made).await;
    let changes = stage.canary.changes();
    Ok(if changes.is_empty() { inside::judge(&report?) } else { Seen::unless(&changes, "") })
}

/// CVE-2024-21626: a working directory that is a descriptor somebody left open.
pub(super) async fn leaked_directories(stage: &Stage) -> CommandResult<Seen> {
    let canary = stage.canary.directory.join("file").display().to_string();
    let mut breaches = Vec::new();
    let mut n_refused = 0;
    for number in 3..16 {
        for tail in ["", "/../../.."] {
            let mut spec = inside::argv("working-directory", std::slice::from_ref(&canary));
            spec.cwd = Some(format!("/proc/self/fd/{number}{tail}"));
            match stage.exec(&stage.sandbox, spec).await.ok().and_then(|ran| report_of(&ran)) {
                None => n_refused += 1,
                Some(report) => breaches.extend(
                    report
                        .breaches
                        .iter()
                        .map(|breach| format!("/proc/self/fd/{number}{tail}: {}", breach.what)),
                ),
            }
        }
    }
    Ok(Seen::unless(&breaches, format!("{n_refused} of 26 working directories refused, none outside")))
}

/// A sandbox can change the host's programs only in its own layer.
pub(super) async fn system_files(stage: &Stage) -> CommandResult<Seen> {
    let marks =
        ["/usr/attack-was-here", "/etc/attack-was-here", "/var/attack-was-here", "/srv/attack-was-here"];
    for mark in marks {
        stage.write(&stage.sandbox, mark, "here").await.ok();
    }
    let breaches: Vec<String> = marks
        .iter()
        .filter(|mark| fs::symlink_metadata(mark).is_ok())
        .map(|mark| format!("{mark} is on the host"))
        .collect();
    Ok(Seen::unless(&breaches, "changes to system directories stay in the sandbox's own layer"))
}

/// The guest still answers after everything that was sent to it.
pub(super) async fn guest_signals(stage: &Stage) -> CommandResult<Seen> {
    let seen = inside::seen(stage, "guest-signals").await?;
    let ran = stage.exec(&stage.sandbox, inside::argv("seccomp-mode", &[])).await?;
    Ok(if ran.exec.exit_code == Some(0) { seen } else { Seen::open("the guest no longer answers") })
}

/// Keys may not bind-mount the host's files.
pub(super) async fn host_paths(stage: &Stage) -> CommandResult<Seen> {
    let mut breaches = Vec::new();
    for path in ["/", "/etc", "/proc", "/var/run/docker.sock", &stage.canary.path()] {
        for kind in ["bind", "disk"] {
            let mounts = json!([{ "kind": kind, "hostPath": path, "guestPath": "/host" }]);
            let body = json!({ "mounts": mounts }).to_string().into_bytes();
            let body = Some(("application/json", body));
            let (status, _) = stage.ask(&stage.key, "POST", "/v1/sandboxes", body).await?;
            if (200..300).contains(&status) {
                breaches.push(format!("{kind} of {path}"));
            }
        }
        let body = json!({ "rootfs": { "kind": "directory", "path": path } }).to_string().into_bytes();
        let (status, _) =
            stage.ask(&stage.key, "POST", "/v1/sandboxes", Some(("application/json", body))).await?;
        if (200..300).contains(&status) {
            breaches.push(format!("{path} as a root"));
        }
    }
    Ok(Seen::unless(&breaches, "15 host paths refused to a key"))
}

/// Other users of the host must not be able to run a set-user-id file that was written through the API.
pub(super) async fn set_user_id_on_host(stage: &Stage) -> CommandResult<Seen> {
    let bytes = stream::iter([Ok(Bytes::from_static(b"#!/bin/sh\n"))]);
    let mode = Some(frontends::rest::v1::Octal(0o4755));
    let within = Within::Sandbox(&stage.sandbox);
    stage.operator.write_file(within, "/root/attack-suid", mode, bytes).await.ok();
    let sandboxes = fs::metadata(stage.home().join("sandboxes"))?;
    let home = fs::metadata(stage.home())?;
    let is_private = sandboxes.mode() & 0o077 == 0 || home.mode() & 0o077 == 0;
    Ok(if is_private {
        Seen::contained("only the daemon's user can access sandbox files on the host")
    } else {
        Seen::open("other users of the host can access sandbox files")
    })
}

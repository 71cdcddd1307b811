//! The indexes for plain commands: `pip`, `npm` and `apt` typed in a shell reach the same gateway as an install job.
//!
//! One port on the sandbox's loopback serves all managers. It is opened in the background once a command has run for a
//! few milliseconds: no manager has looked for an index by then. A command that ends sooner, as the first one of many
//! sandboxes does, does not share the guest with the opening, which takes twice as long as a short command. Managers
//! learn of it from files in `/run`, which is in no layer: a snapshot or an image does not carry the address elsewhere.
//! The files are the last place where each manager looks, so that whatever the sandbox says itself wins: its own files,
//! variables and options.

use std::{
    collections::{BTreeMap, BTreeSet},
    os::unix::ffi::OsStringExt as _,
    path::{Path, PathBuf},
    sync::{Arc, OnceLock},
    time::Duration,
};

use archive::{Content, Kind, Member, Writer};
use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use guest_protocol::Request;
use sandbox::{Error, ErrorKind, Result, RootfsPlan, SandboxPlan, Walls};
use tokio::{
    sync::watch,
    time::{sleep, timeout},
};

use super::{PackageGateway, recipe, serve};
use crate::{
    build,
    client::{GuestError, GuestListener},
    core::{Core, until},
    disk::may_block,
    error,
    live::LiveExec,
    shared::{Life, Shared},
};

/// The port on a sandbox's loopback that leads to the package indexes.
pub const PORT: u16 = 17_070;
/// A tmpfs of the sandbox.
const ROOM: &str = "/run";
/// Where the files are, below [`ROOM`].
const PLACE: &str = "/run/warren/packages";
/// A command that runs for as long as this may start a manager.
const OPEN_AFTER: Duration = Duration::from_millis(5);
/// A shorter one may have left something running that does.
const OPEN_ANYWAY_AFTER: Duration = Duration::from_millis(250);
/// How long a command that names a package manager waits for the first opening of the port. It starts in any case.
const READY_WITHIN: Duration = Duration::from_secs(2);
/// Programs that look for an index as soon as they start.
const MANAGERS: [&str; 8] = ["pip", "npm", "npx", "apt", "uv", "poetry", "pnpm", "yarn"];

/// Whether the port of one life is open.
#[derive(Debug, Default)]
pub(crate) struct Standing {
    /// Present once someone began to open it; true when that is done, well or not.
    settled: OnceLock<watch::Sender<bool>>,
}

/// The gateway for plain commands of a sandbox. None where the operator wants no packages; in builds, which say
/// themselves what each step reaches; without walls, where the files and ports are the host's own; and where the
/// network policy leaves no packages.
fn gateway_of(core: &Core, shared: &Shared) -> Option<Arc<dyn PackageGateway>> {
    let gateway = core.config.packages.clone()?;
    let status = shared.status.borrow();
    let isolation = status.record.isolation.as_ref();
    let has_walls = isolation.is_none_or(|isolation| isolation.walls != Walls::Nothing);
    let is_reached = status.record.plan.network.reaches_packages();
    (has_walls && is_reached && !build::is_of_builds(&status.record.spec)).then_some(gateway)
}

/// Sees to it that the port is open when the command needs it, unless it is already, and adds the variables that lead
/// managers to the files. `is_needed`: at once.
pub(crate) async fn offer(
    core: &Arc<Core>,
    shared: &Arc<Shared>,
    life: &Arc<Life>,
    exec: &Arc<LiveExec>,
    is_needed: bool,
    env: &mut BTreeMap<String, String>,
) {
    let Some(gateway) = gateway_of(core, shared) else { return };
    if is_needed {
        let settled = begin(core, shared, life, gateway);
        // The sender is in `life`, so waiting cannot fail.
        drop(timeout(READY_WITHIN, settled.subscribe().wait_for(|settled| *settled)).await);
    } else if life.standing.settled.get().is_none() {
        let (core, shared, life, exec) =
            (Arc::clone(core), Arc::clone(shared), Arc::clone(life), Arc::clone(exec));
        core.clone().drivers.spawn(async move {
            let waiting = life.over.run_until_cancelled(is_worth_opening(&exec));
            if core.closing.run_until_cancelled(waiting).await.flatten().is_some() {
                begin(&core, &shared, &life, gateway);
            }
        });
    }
    tell(env);
}

/// Returns when the command may have come to a manager, or what it left running may.
async fn is_worth_opening(exec: &LiveExec) {
    // Its time counts from when it runs: a busy host may need longer than that to start it.
    let has_ended = exec.started().await.is_err() || timeout(OPEN_AFTER, exec.done()).await.is_ok();
    if has_ended {
        sleep(OPEN_ANYWAY_AFTER).await;
    }
}

/// Opens the port in the background, unless that was done.
fn begin<'a>(
    core: &Arc<Core>,
    shared: &Arc<Shared>,
    life: &'a Arc<Life>,
    gateway: Arc<dyn PackageGateway>,
) -> &'a watch::Sender<bool> {
    life.standing.settled.get_or_init(|| {
        let settled = watch::Sender::new(false);
        let task = open(Arc::clone(life), gateway, Arc::clone(shared), settled.clone());
        let closing = core.closing.clone();
        core.drivers.spawn(async move { until(&closing, task).await });
        settled
    })
}

/// Whether a part of a command, or code, is likely to ask for packages as soon as it runs.
pub(crate) fn names_a_manager(words: &str) -> bool {
    MANAGERS.iter().any(|manager| words.contains(manager))
}

/// Sets the package managers' variables. Values from the sandbox or the caller stay.
fn tell(env: &mut BTreeMap<String, String>) {
    env.entry("npm_config_globalconfig".to_owned()).or_insert_with(|| format!("{PLACE}/npmrc"));
    env.entry("APT_CONFIG".to_owned()).or_insert_with(|| format!("{PLACE}/apt.conf"));
    // pip and uv look there for settings of the whole system; the default of this variable is /etc/xdg.
    let directories = env.entry("XDG_CONFIG_DIRS".to_owned()).or_insert_with(|| "/etc/xdg".to_owned());
    directories.push(':');
    directories.push_str(PLACE);
}

async fn open(
    life: Arc<Life>,
    gateway: Arc<dyn PackageGateway>,
    shared: Arc<Shared>,
    settled: watch::Sender<bool>,
) {
    let opened = async {
        may_block(|| gateway.open())?;
        let plan = shared.status.borrow().record.plan.clone();
        let from_guest = |failed: GuestError| error::from_guest(failed, &shared.label());
        write(&life, &settings(&plan, &*gateway)).await.map_err(from_guest)?;
        life.client.listen(PORT).await.map_err(from_guest)
    };
    let opened = opened.await;
    settled.send_replace(true);
    let listener = match opened {
        Ok(listener) => listener,
        // Its programs reach no index, as without a gateway; a job reports why it cannot.
        Err(error) => {
            tracing::debug!(sandbox = %shared.subject.id, %error, "plain commands reach no package index");
            return;
        }
    };
    let over = life.over.clone();
    over.run_until_cancelled(serve_while_allowed(life, gateway, &shared, listener)).await;
}

/// Answers clients as long as the network policy lets the sandbox have packages; it may change either way.
async fn serve_while_allowed(
    life: Arc<Life>,
    gateway: Arc<dyn PackageGateway>,
    shared: &Shared,
    listener: GuestListener,
) {
    let mut status = shared.status.subscribe();
    let mut listener = Some(listener);
    loop {
        let (life, gateway) = (Arc::clone(&life), Arc::clone(&gateway));
        let serving = serve::serve(life, gateway, None, &shared.subject.id, PORT, listener.take());
        tokio::select! {
            () = serving => {}
            _ = status.wait_for(|status| !status.record.plan.network.reaches_packages()) => {}
        }
        // `shared` holds the sender, so waiting cannot fail.
        drop(status.wait_for(|status| status.record.plan.network.reaches_packages()).await);
    }
}

/// The files, by their names below [`PLACE`].
fn settings(plan: &SandboxPlan, gateway: &dyn PackageGateway) -> Vec<(&'static str, String)> {
    let address = format!("http://127.0.0.1:{PORT}");
    let pip = format!(
        "[global]\nindex-url = {address}/pip/simple/\nbreak-system-packages = true\n\
         disable-pip-version-check = true\nroot-user-action = ignore\n"
    );
    let uv = format!(
        "[[index]]\nurl = \"{address}/pip/simple/\"\ndefault = true\n\n[pip]\nbreak-system-packages = true\n"
    );
    let npm = format!(
        "registry={address}/npm/\nomit-lockfile-registry-resolved=true\nupdate-notifier=false\naudit=false\nfund=false\n"
    );
    let mut files = vec![("pip/pip.conf", pip), ("uv/uv.toml", uv), ("npmrc", npm)];
    // The sources of an image keep their names, and the gateway is their proxy. Those of the host may need what only
    // the daemon has, so the gateway's own stand for them.
    let sources = match plan.rootfs {
        RootfsPlan::Host => gateway.apt_sources(&address).ok(),
        _ => None,
    };
    let user = "APT::Sandbox::User \"root\";\n";
    match sources {
        Some(sources) => {
            let apt = format!(
                "{user}Dir::Etc::sourcelist \"/dev/null\";\nDir::Etc::sourceparts \"{PLACE}/apt\";\n\
                 Acquire::http::Proxy \"DIRECT\";\nAcquire::Languages \"none\";\n\
                 DPkg::Pre-Install-Pkgs {{ \"sh {PLACE}/own-files\"; }};\n"
            );
            let own_files = recipe::OWN_FILES.to_owned();
            files.extend([("apt.conf", apt), ("apt/warren.sources", sources), ("own-files", own_files)]);
        }
        None => files.push(("apt.conf", format!("{user}Acquire::http::Proxy \"{address}\";\n"))),
    }
    files
}

/// Writes all of them by one request: the guest forks for each, since what is written is charged to the sandbox.
async fn write(life: &Life, settings: &[(&str, String)]) -> Result<(), GuestError> {
    let archive = packed(settings).map_err(|error| {
        GuestError::Source(Error::new(ErrorKind::Internal, "could not pack the settings").with_source(error))
    })?;
    let request = Request::TarIn { path: ROOM.to_owned(), keep_ids: false };
    let bytes = stream::iter([Ok(Bytes::from(archive))]).boxed();
    life.client.upload(&request, bytes, Some(READY_WITHIN)).await.map(drop)
}

/// An archive of the files, below [`ROOM`], with the directories above them.
fn packed(settings: &[(&str, String)]) -> archive::Result<Vec<u8>> {
    let mut archive = Writer::new(Vec::new());
    let place = Path::new(PLACE).strip_prefix(ROOM).unwrap_or(Path::new(PLACE));
    let files = settings.iter().map(|(name, text)| (place.join(name), text));
    let above = |path: &Path| path.ancestors().skip(1).map(Path::to_owned).collect::<Vec<_>>();
    let mut directories: BTreeSet<PathBuf> = files.clone().flat_map(|(path, _)| above(&path)).collect();
    directories.remove(Path::new(""));
    for directory in directories {
        archive.begin(&Member::new(directory.into_os_string().into_vec(), Kind::Directory, 0o755))?;
    }
    for (path, text) in files {
        let kind = Kind::File(Content::whole(text.len() as u64));
        archive.begin(&Member::new(path.into_os_string().into_vec(), kind, 0o644))?;
        archive.write(text.as_bytes())?;
    }
    archive.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_already_stays() {
        let own = [("APT_CONFIG", "/own"), ("XDG_CONFIG_DIRS", "/opt/xdg")];
        let mut env: BTreeMap<String, String> =
            own.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        tell(&mut env);
        assert_eq!(env["APT_CONFIG"], "/own");
        assert_eq!(env["XDG_CONFIG_DIRS"], format!("/opt/xdg:{PLACE}"));
        assert_eq!(env["npm_config_globalconfig"], format!("{PLACE}/npmrc"));
    }

    #[test]
    fn the_files_are_packed_with_the_directories_above_them() {
        let files = [("npmrc", "registry=x\n".to_owned()), ("pip/pip.conf", "[global]\n".to_owned())];
        let archive = packed(&files).unwrap();
        let limits = archive::ReadLimits { header_bytes: 1024, parts: 1 };
        let mut reader = archive::Reader::new(&archive[..], archive::Format::Any, limits);
        let mut found = Vec::new();
        while let Some(member) = reader.next().unwrap() {
            let mut content = String::new();
            if let Kind::File(parts) = &member.kind {
                let read = reader.content(parts, |_, bytes| {
                    content.push_str(std::str::from_utf8(bytes).unwrap());
                    Ok::<_, archive::Error>(())
                });
                read.unwrap();
            }
            found.push((String::from_utf8(member.path).unwrap(), member.mode, content));
        }
        let entry = |path: &str, mode, content: &str| (path.to_owned(), mode, content.to_owned());
        assert_eq!(
            found,
            [
                entry("warren", 0o755, ""),
                entry("warren/packages", 0o755, ""),
                entry("warren/packages/pip", 0o755, ""),
                entry("warren/packages/npmrc", 0o644, "registry=x\n"),
                entry("warren/packages/pip/pip.conf", 0o644, "[global]\n"),
            ]
        );
    }

    #[test]
    fn only_commands_that_need_it_wait() {
        for words in ["pip install six", "python3 -m pip", "sh -c 'cd x && npm ci'", "/usr/bin/apt-get"] {
            assert!(names_a_manager(words), "{words}");
        }
        assert!(!names_a_manager("echo hello") && !names_a_manager("true"));
    }
}

//! The spawner: a small single-threaded process, started by [`crate::start`], from which every sandbox is cloned.
//!
//! No exec, no dynamic linking and no big address space stand between a request and the guest. It ends when the
//! daemon's end of its socket closes; the sandboxes live on.

use std::{
    fs::{self, File},
    io::{self, Write as _},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::{Path, PathBuf},
    process::Child,
};

use rustix::{
    event::{PollFd, PollFlags, poll},
    net::RecvFlags,
    process::Pid,
};

use crate::{
    cage::{Cage, FileIdentity, HandedLayer, IdMap},
    child::{self, Go, Handoff},
    devices, handed, image, mounts,
    network::NetworkMeans,
    outer,
    packet::{self, Failure, Reply, ReplySocket, Request},
    privileges,
    seccomp::Filter,
    sys::{self, Side, StartedWith},
    tree,
};

pub(crate) const TITLE_START: &str = "warren: ";
/// Some host id, to test whether files can be mapped to it.
const TRIED_ID: u32 = 0x7000_0000;

/// The spawner could not be started.
#[derive(Debug, thiserror::Error)]
#[error("could not start the spawner")]
pub struct SpawnError(#[source] pub(crate) io::Error);

/// The daemon's handle of the spawner. Dropping it ends the spawner, never a sandbox.
#[derive(Debug)]
pub struct SpawnerHandle {
    socket: OwnedFd,
    pid: Pid,
}

impl SpawnerHandle {
    pub(crate) fn new(socket: OwnedFd, child: Child) -> Self {
        Self { socket, pid: Pid::from_child(&child) }
    }

    pub fn pid(&self) -> i32 {
        self.pid.as_raw_nonzero().get()
    }

    /// Collects the exit status of an ended spawner; until then its number cannot be reused.
    pub fn reap(&self) {
        let _status = rustix::process::waitpid(Some(self.pid), rustix::process::WaitOptions::empty());
    }

    /// Sends a request with its descriptors; the answer comes on the returned socket.
    ///
    /// Waits only while the socket to the spawner is full.
    pub fn request(&self, request: &Request, descriptors: &[BorrowedFd<'_>]) -> io::Result<ReplySocket> {
        let (ours, theirs) = packet::reply_pair()?;
        let mut all = Vec::with_capacity(descriptors.len() + 1);
        all.push(theirs.as_fd());
        all.extend_from_slice(descriptors);
        packet::send(self.socket.as_fd(), request, &all)?;
        Ok(ours)
    }

    /// Like [`Self::request`], and waits for the answer.
    pub fn ask(&self, request: &Request, descriptors: &[BorrowedFd<'_>]) -> io::Result<Reply> {
        Ok(self.request(request, descriptors)?.receive()?.0)
    }
}

/// Performs one [`Request::Work`] in a process of its own: the job, and the attached descriptors.
pub type Worker = fn(&str, Vec<OwnedFd>) -> Result<String, Failure>;

/// Serves requests until the daemon is gone; returns the exit code. `started`: where the title is kept, or why nothing
/// can be made here, which is then the answer to every request.
pub(crate) fn serve(
    socket: OwnedFd,
    guest_main: fn(Handoff) -> i32,
    worker: Worker,
    started: Result<StartedWith, Failure>,
) -> i32 {
    let (started_with, broken) = match started {
        Ok(started_with) => (Some(started_with), None),
        Err(failure) => (None, Some(failure)),
    };
    let (filter, mark) = (Filter::workload(), String::new());
    Spawner { socket, filter, guest_main, worker, started_with, mark, broken }.serve()
}

struct Spawner {
    socket: OwnedFd,
    filter: Filter,
    guest_main: fn(Handoff) -> i32,
    worker: Worker,
    started_with: Option<StartedWith>,
    /// Part of each guest's title, beside its name.
    mark: String,
    broken: Option<Failure>,
}

impl Spawner {
    fn serve(mut self) -> i32 {
        loop {
            // Requests of a dead daemon may still be queued. The next daemon cleans up leftovers, so none is begun.
            if self.is_daemon_gone() {
                return 0;
            }
            match packet::receive::<Request>(self.socket.as_fd(), RecvFlags::empty()) {
                Ok((request, descriptors)) => self.handle(request, descriptors),
                Err(error) if error.kind() == io::ErrorKind::InvalidData => {}
                Err(_closed) => return 0,
            }
        }
    }

    /// Waits for the next request, or for the daemon's end of the socket to close.
    fn is_daemon_gone(&self) -> bool {
        let mut socket = [PollFd::new(&self.socket, PollFlags::IN)];
        let polled = rustix::io::retry_on_intr(|| poll(&mut socket, None));
        polled.is_err() || socket[0].revents().intersects(PollFlags::HUP | PollFlags::ERR)
    }

    /// Answers, or passes the work on to a child that will. If an answer cannot be sent, nobody waits for it.
    fn handle(&mut self, request: Request, descriptors: Vec<OwnedFd>) {
        let mut descriptors = descriptors.into_iter();
        let Some(reply) = descriptors.next() else { return };
        if let Some(failure) = &self.broken {
            return answer(&reply, Err(failure.clone()));
        }
        match request {
            Request::Prepare { steps, shown_through, mark } => {
                self.mark = mark;
                let prepared = enter_cgroups(descriptors).and_then(|()| child::prepare(&steps));
                let trial = NetworkMeans::begin_trial();
                let idmap_failure = try_idmap(&shown_through).err();
                let device_failure =
                    devices::try_make().err().map(|error| Failure::new("make device nodes", &error));
                let ids = outer::ids_here();
                let network = trial.finish();
                let found = Reply::Prepared { ids, idmap_failure, device_failure, network };
                answer(&reply, prepared.map(|()| found));
            }
            Request::Spawn { cage } => {
                if let Err(failure) = self.spawn(*cage, &reply) {
                    answer(&reply, Err(failure));
                }
            }
            Request::Remove { path } => in_fork(&reply, || tree::remove(&path).map(|()| Reply::Done)),
            Request::Measure { paths, guest, processes, unlinked } => {
                in_fork(&reply, || Ok(tree::measure(&paths, guest, &processes, unlinked)));
            }
            Request::Work { job } => in_fork(&reply, || {
                (self.worker)(&job, descriptors.collect()).map(|answer| Reply::Worked { answer })
            }),
        }
    }

    fn spawn(&self, cage: Cage, reply: &OwnedFd) -> Result<(), Failure> {
        let at = |step: &'static str| move |error: io::Error| Failure::new(step, &error);
        // Slow work that needs no child comes first: a failure then costs no process.
        let images = image::mount_all(&cage.layers).map_err(at("mount the disk image"))?;
        let mounts = handed::open_all(&cage.mounts)?;
        let mounts_pair = if mounts.is_empty() { None } else { Some(packet::pair().map_err(at("socket"))?) };
        let (send_mounts, take_mounts) = mounts_pair.unzip();
        let (ours, theirs) = packet::pair().map_err(at("socket"))?;
        let own_reply = reply.try_clone().map_err(at("socket"))?;
        let namespaces = libc::CLONE_NEWUSER | libc::CLONE_NEWPID;
        match privileges::clone_as(cage.owner, namespaces).map_err(at("clone"))? {
            Side::Child => {
                drop((ours, send_mounts, mounts));
                if let Some(started_with) = &self.started_with {
                    started_with.replace(&title(&cage.name, &self.mark));
                }
                child::become_guest(cage, own_reply, theirs, take_mounts, &self.filter, self.guest_main)
            }
            Side::Parent { pid, pidfd } => {
                drop((theirs, take_mounts));
                write_maps(pid, &cage.id_map).map_err(at("write id maps"))?;
                if let Some(send_mounts) = send_mounts {
                    let ids =
                        File::open(format!("/proc/{pid}/ns/user")).map_err(at("open the user namespace"))?;
                    handed::prepare(&cage.mounts, &mounts, Some(ids.as_fd()))?;
                    // As below.
                    drop(handed::send(send_mounts.as_fd(), &mounts));
                }
                let layers = open_layers(pid, &cage.layers, images)?;
                let mut handed = vec![pidfd.as_fd()];
                handed.extend(layers.iter().map(AsFd::as_fd));
                // A child that died earlier has reported the reason itself.
                drop(packet::send(ours.as_fd(), &Go, &handed));
                Ok(())
            }
        }
    }
}

fn answer(reply: &OwnedFd, result: Result<Reply, Failure>) {
    let reply_ = result.unwrap_or_else(Reply::Failed);
    drop(packet::send(reply.as_fd(), &reply_, &[]));
}

/// The content of a guest's `/proc/<pid>/cmdline`: it is found by this when nothing else on the host records it.
pub(crate) fn title(name: &str, mark: &str) -> String {
    format!("{TITLE_START}{name} {mark}").trim_end().to_owned()
}

/// Runs slow work in a child, so that the next request need not wait.
fn in_fork(reply: &OwnedFd, work: impl FnOnce() -> Result<Reply, Failure>) {
    let spawner = rustix::process::getpid();
    match sys::fork() {
        Ok(Some(_pid)) => {}
        Ok(None) => {
            // A dead daemon's work is half done, and the next one cleans it up: no child may continue it.
            sys::die_with_parent();
            if rustix::process::getppid() != Some(spawner) {
                sys::exit_now(1);
            }
            answer(reply, work());
            sys::exit_now(0)
        }
        Err(error) => answer(reply, Err(Failure::new("fork", &error))),
    }
}

fn enter_cgroups(files: impl Iterator<Item = OwnedFd>) -> Result<(), Failure> {
    for file in files {
        File::from(file).write_all(b"0").map_err(|error| Failure::new("enter cgroup", &error))?;
    }
    Ok(())
}

/// Maps each directory through the ids of a temporary user namespace.
pub(crate) fn try_idmap(directories: &[PathBuf]) -> Result<(), Failure> {
    if directories.is_empty() {
        return Ok(());
    }
    let at = |step: &'static str| move |error: io::Error| Failure::new(step, &error);
    let (ours, theirs) = packet::pair().map_err(at("socket"))?;
    match sys::clone_process(libc::CLONE_NEWUSER).map_err(at("clone"))? {
        Side::Child => {
            drop(ours);
            // Lives until the parent is done and closes its end.
            let _end = packet::receive::<Go>(theirs.as_fd(), RecvFlags::empty());
            sys::exit_now(0)
        }
        Side::Parent { pid, .. } => {
            drop(theirs);
            write_maps(pid, &IdMap::linear(TRIED_ID, 1)).map_err(at("write id maps"))?;
            let layer = |path: &PathBuf| HandedLayer::Directory {
                path: path.clone(),
                read_only: true,
                identity: None,
            };
            let layers: Vec<_> = directories.iter().map(layer).collect();
            let images = layers.iter().map(|_none| None).collect();
            open_layers(pid, &layers, images).map(drop)
        }
    }
}

pub(crate) fn write_maps(pid: i32, map: &IdMap) -> io::Result<()> {
    for (file, ranges) in [("uid_map", &map.users), ("gid_map", &map.groups)] {
        let text: Vec<String> = ranges.iter().map(ToString::to_string).collect();
        // One write: the kernel accepts a map whole or not at all.
        fs::write(format!("/proc/{pid}/{file}"), text.join("\n"))?;
    }
    Ok(())
}

/// Opens each layer as a detached mount that maps the ids on disk (0 and up) to the sandbox's own.
fn open_layers(
    pid: i32,
    layers: &[HandedLayer],
    images: Vec<Option<OwnedFd>>,
) -> Result<Vec<OwnedFd>, Failure> {
    if layers.is_empty() {
        return Ok(Vec::new());
    }
    let path = format!("/proc/{pid}/ns/user");
    let namespace = File::open(&path).map_err(|error| Failure::new(format!("open {path}"), &error))?;
    layers
        .iter()
        .zip(images)
        .map(|(layer, image)| {
            let step = || format!("show {layer:?} with the sandbox's ids");
            if let HandedLayer::Devices { owner } = layer {
                return devices::make(*owner).map_err(|error| Failure::new("make device nodes", &error));
            }
            let mount = match (layer, image) {
                (HandedLayer::Directory { path, identity, .. }, None) => detached_layer(path, *identity),
                (_, Some(mount)) => Ok(mount),
                (_, None) => Err(io::ErrorKind::InvalidInput.into()),
            }
            .map_err(|error| Failure::new(step(), &error))?;
            let read_only = match layer {
                HandedLayer::Directory { read_only, .. } => *read_only,
                HandedLayer::Image { .. } | HandedLayer::Devices { .. } => false,
                HandedLayer::ReadOnlyImage { .. } => true,
            };
            sys::idmap_mount(mount.as_fd(), namespace.as_fd(), read_only)
                .map_err(|error| Failure::new(step(), &error))?;
            Ok(mount)
        })
        .collect()
}

/// A mount of this directory, checked against the allowed identity even if its name was moved since.
fn detached_layer(path: &Path, identity: Option<FileIdentity>) -> io::Result<OwnedFd> {
    let mount = mounts::copy(path, false, &[])?;
    if let Some(identity) = identity {
        identity.check(mount.as_fd())?;
    }
    Ok(mount)
}

//! The spawner: a small single-threaded process, forked before the daemon has threads, from which every sandbox is cloned.
//!
//! No exec, no dynamic linking and no big address space stand between a request and the guest. It ends when the daemon's
//! end of its socket closes; the sandboxes live on.

use std::{
    fs::{self, File},
    io::{self, Write as _},
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
    path::{Path, PathBuf},
};

use rustix::net::RecvFlags;

use crate::{
    cage::{Cage, FileIdentity, HandedLayer, IdMap},
    child::{self, Go, Handoff},
    devices, handed, image, mounts, outer,
    packet::{self, Failure, Reply, ReplySocket, Request},
    privileges,
    seccomp::Filter,
    sys::{self, Side, StartedWith},
    tree,
};

/// Some id of the host, to try whether files can be shown with it.
const TRIED_ID: u32 = 0x7000_0000;

#[derive(Debug, thiserror::Error)]
pub enum SpawnError {
    #[error("the spawner must be started before any thread; there are {0} already")]
    Threads(usize),
    #[error("could not start the spawner")]
    Start(#[source] io::Error),
}

/// The daemon's hold on the spawner. Dropping it ends the spawner, never a sandbox.
#[derive(Debug)]
pub struct SpawnerHandle {
    socket: OwnedFd,
    pid: i32,
}

impl SpawnerHandle {
    pub fn pid(&self) -> i32 {
        self.pid
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

    /// As [`Self::request`], and waits for the answer.
    pub fn ask(&self, request: &Request, descriptors: &[BorrowedFd<'_>]) -> io::Result<Reply> {
        Ok(self.request(request, descriptors)?.receive()?.0)
    }
}

/// Does one [`Request::Work`] in a process of its own: the job, and the descriptors that came with it.
pub type Worker = fn(&str, Vec<OwnedFd>) -> Result<String, Failure>;

/// Forks the spawner. Must be called before any thread exists. `guest_main` runs in each sandbox as process 1; what it
/// returns is the exit code of the sandbox.
pub fn start_spawner(guest_main: fn(Handoff) -> i32, worker: Worker) -> Result<SpawnerHandle, SpawnError> {
    let threads = fs::read_dir("/proc/self/task").map_err(SpawnError::Start)?.count();
    if threads > 1 {
        return Err(SpawnError::Threads(threads));
    }
    let (ours, theirs) = packet::pair().map_err(SpawnError::Start)?;
    match sys::fork().map_err(SpawnError::Start)? {
        Some(pid) => Ok(SpawnerHandle { socket: ours, pid }),
        None => {
            drop(ours);
            // A spawner that cannot work lives on to say so: whoever asks it gets the reason.
            let begun = begin(&theirs).map_err(|error| Failure::new("enter the user namespace", &error));
            let hidden = begun.and_then(|()| {
                hide_daemon().map_err(|error| Failure::new("hide the daemon's words", &error))
            });
            let (started_with, broken) = match hidden {
                Ok(started_with) => (Some(started_with), None),
                Err(failure) => (None, Some(failure)),
            };
            let filter = Filter::workload();
            sys::exit_now(
                Spawner { socket: theirs, filter, guest_main, worker, started_with, broken }.serve(),
            )
        }
    }
}

/// Lets go of what belongs to the daemon: its descriptors, its signals, its terminal.
fn begin(socket: &OwnedFd) -> io::Result<()> {
    sys::reset_signals();
    sys::ignore_children();
    sys::set_process_name(c"warren-spawner");
    privileges::refuse_cores();
    // Fails only for the leader of a group, which a forked child is not.
    let _session = rustix::process::setsid();
    rustix::process::chdir("/")?;
    let null = rustix::fs::open("/dev/null", rustix::fs::OFlags::RDWR, rustix::fs::Mode::empty())?;
    for standard in [rustix::stdio::dup2_stdin, rustix::stdio::dup2_stdout, rustix::stdio::dup2_stderr] {
        standard(&null)?;
    }
    drop(null);
    let kept = socket.as_raw_fd() as u32;
    if kept > 3 {
        sys::close_range(3, kept - 1)?;
    }
    sys::close_range(kept + 1, u32::MAX)?;
    outer::enter()
}

/// Guests are copies of us, and what a process was started with can be read by those around it: the daemon's paths and its
/// environment are nobody's business inside. After this there is no environment.
fn hide_daemon() -> io::Result<StartedWith> {
    let started_with = StartedWith::find()?;
    started_with.replace("warren: spawner");
    Ok(started_with)
}

struct Spawner {
    socket: OwnedFd,
    filter: Filter,
    guest_main: fn(Handoff) -> i32,
    worker: Worker,
    started_with: Option<StartedWith>,
    broken: Option<Failure>,
}

impl Spawner {
    fn serve(self) -> i32 {
        loop {
            match packet::receive::<Request>(self.socket.as_fd(), RecvFlags::empty()) {
                Ok((request, descriptors)) => self.handle(request, descriptors),
                Err(error) if error.kind() == io::ErrorKind::InvalidData => {}
                Err(_closed) => return 0,
            }
        }
    }

    /// Answers, or passes the work on to a child that will. Failures to answer mean that nobody asks any more.
    fn handle(&self, request: Request, descriptors: Vec<OwnedFd>) {
        let mut descriptors = descriptors.into_iter();
        let Some(reply) = descriptors.next() else { return };
        if let Some(failure) = &self.broken {
            return answer(&reply, Err(failure.clone()));
        }
        match request {
            Request::Prepare { steps, shown_through } => {
                let prepared = enter_cgroups(descriptors).and_then(|()| child::prepare(&steps));
                let idmap_failure = try_idmap(&shown_through).err();
                let device_failure =
                    devices::try_make().err().map(|error| Failure::new("make device nodes", &error));
                let ids = outer::ids_here();
                answer(&reply, prepared.map(|()| Reply::Prepared { ids, idmap_failure, device_failure }));
            }
            Request::Spawn { cage } => {
                if let Err(failure) = self.spawn(*cage, &reply) {
                    answer(&reply, Err(failure));
                }
            }
            Request::Remove { path } => in_fork(&reply, || tree::remove(&path).map(|()| Reply::Done)),
            Request::Measure { paths, guest, unlinked } => {
                in_fork(&reply, || Ok(tree::measure(&paths, guest, unlinked)));
            }
            Request::Work { job } => in_fork(&reply, || {
                // What a dead daemon wanted is half-made, and the next one clears it away: nobody may go on with it.
                sys::die_with_parent();
                (self.worker)(&job, descriptors.collect()).map(|answer| Reply::Worked { answer })
            }),
        }
    }

    fn spawn(&self, cage: Cage, reply: &OwnedFd) -> Result<(), Failure> {
        let at = |step: &'static str| move |error: io::Error| Failure::new(step, &error);
        // What takes long and needs no child comes first: a failure then costs no process.
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
                    started_with.replace(&format!("warren: {}", cage.name));
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
                // A child that died before this has reported why by itself.
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

/// Runs slow work in a child, so that the next request need not wait.
fn in_fork(reply: &OwnedFd, work: impl FnOnce() -> Result<Reply, Failure>) {
    match sys::fork() {
        Ok(Some(_pid)) => {}
        Ok(None) => {
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

/// Shows each directory through the ids of a user namespace made for this, and lets go of it again.
pub(crate) fn try_idmap(directories: &[PathBuf]) -> Result<(), Failure> {
    if directories.is_empty() {
        return Ok(());
    }
    let at = |step: &'static str| move |error: io::Error| Failure::new(step, &error);
    let (ours, theirs) = packet::pair().map_err(at("socket"))?;
    match sys::clone_process(libc::CLONE_NEWUSER).map_err(at("clone"))? {
        Side::Child => {
            drop(ours);
            // Lives until the parent has seen enough and closes its end.
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
        // One write: the kernel takes a map whole or not at all.
        fs::write(format!("/proc/{pid}/{file}"), text.join("\n"))?;
    }
    Ok(())
}

/// Opens each layer as a detached mount that shows the ids on disk (0 and up) as the sandbox's own.
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

/// A mount of this directory; of the one that was allowed, however its name was moved about since.
fn detached_layer(path: &Path, identity: Option<FileIdentity>) -> io::Result<OwnedFd> {
    let mount = mounts::copy(path, false, &[])?;
    if let Some(identity) = identity {
        identity.check(mount.as_fd())?;
    }
    Ok(mount)
}

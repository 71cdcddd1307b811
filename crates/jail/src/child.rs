//! The child's way into the cage: it runs the steps, reports, and becomes the guest.

use std::{
    fs,
    io::{self, Write as _},
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
    time::Instant,
};

use rustix::{
    fs::{FileType, OFlags, fstat},
    io::Errno,
    net::RecvFlags,
    thread::{CpuSet, sched_getaffinity, sched_setaffinity},
};
use serde::{Deserialize, Serialize};

use crate::{
    cage::{Cage, InternetBudget, Missing, MountFlag, MountName, MountPath, Namespace, NewMount, Step},
    devices, handed,
    mount_target::{self, Crossing},
    mounts, network,
    packet::{self, Failure, HandingOver, Naming, Reply},
    privileges,
    seccomp::{Filter, SocketGate},
    sys,
};

/// The guest's descriptors; it gets no others.
#[derive(Debug)]
pub struct Handoff {
    /// Listening Unix stream socket; the host connects to its path.
    pub listener: OwnedFd,
    /// Open `cgroup.procs` or `tasks` files of the workload's cgroup, one for each hierarchy.
    pub workload_cgroup: Vec<OwnedFd>,
    /// The same file of a group that is charged to the workload's memory but not frozen with it.
    pub memory_cgroup: Option<OwnedFd>,
    /// Has a line `oom_kill N`; read from offset 0.
    pub oom_counter: Option<OwnedFd>,
    /// For every command: resource number, soft, hard.
    pub rlimits: Vec<(u32, u64, u64)>,
    /// Absent if the kernel gives us no listener: see [`SocketGate`].
    pub sockets: Option<SocketGate>,
    pub internet: InternetBudget,
    /// The sockets of [`Step::Network`], in their order; none without that step.
    pub network: Vec<OwnedFd>,
}

/// The spawner's message that the id maps are written. Sent with it: a pidfd of the child, then the layers.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Go;

/// Ends this process if anything unwinds out of the child's code: the frames below belong to the daemon.
#[derive(Debug)]
struct NeverReturns;

impl Drop for NeverReturns {
    fn drop(&mut self) {
        sys::exit_now(101);
    }
}

/// Runs in the cloned child and never returns.
pub(crate) fn become_guest(
    cage: Cage,
    reply: OwnedFd,
    from_spawner: OwnedFd,
    mounts_from_spawner: Option<OwnedFd>,
    filter: &Filter,
    guest_main: fn(Handoff) -> i32,
) -> ! {
    let _guard = NeverReturns;
    let mut child = Child {
        reply: Some(reply),
        handoff: None,
        network: Vec::new(),
        from_spawner: Some(from_spawner),
        pidfd: None,
        layers: Vec::new(),
        mounts_from_spawner,
        n_mounts: cage.mounts.len(),
        mounts: Vec::new(),
        held: Vec::new(),
        sys_is_empty: false,
        empty: None,
        pid: (0, 0),
        network_namespace: 0,
        rlimits: cage.rlimits,
        internet: cage.internet,
        filter,
    };
    child.begin(&cage.name);
    let step_micros = match child.run_all(&cage.steps) {
        Ok(step_micros) => step_micros,
        Err(failure) => child.fail(failure),
    };
    child.report_ready(step_micros);
    let Some(handoff) = child.handoff else { sys::exit_now(1) };
    sys::exit_now(guest_main(handoff))
}

/// Runs steps in the spawner itself, which prepares the environment that every child starts from.
pub(crate) fn prepare(steps: &[Step]) -> Result<(), Failure> {
    for step in steps {
        run_plain(step).map_err(|error| Failure::new(step.to_string(), &error))?;
    }
    Ok(())
}

struct Child<'a> {
    reply: Option<OwnedFd>,
    handoff: Option<Handoff>,
    /// The sockets of the network, until they are part of the handoff.
    network: Vec<OwnedFd>,
    from_spawner: Option<OwnedFd>,
    pidfd: Option<OwnedFd>,
    layers: Vec<Option<OwnedFd>>,
    /// Duplicated from the spawner at the first step that needs one.
    mounts_from_spawner: Option<OwnedFd>,
    n_mounts: usize,
    mounts: Vec<Option<OwnedFd>>,
    /// Mounts of the sandbox that steps work in.
    held: Vec<(MountName, OwnedFd)>,
    /// Whether `/sys` is an empty directory with nothing to mask.
    sys_is_empty: bool,
    /// The mount that masks directories.
    empty: Option<OwnedFd>,
    /// The host's pid of this process, and its start time.
    pid: (i32, u64),
    /// The number of its network namespace.
    network_namespace: u64,
    rlimits: Vec<(u32, u64, u64)>,
    internet: InternetBudget,
    filter: &'a Filter,
}

impl Child<'_> {
    fn begin(&self, name: &str) {
        sys::watch_children();
        let name: Vec<u8> = name.bytes().take(15).filter(|byte| *byte != 0).chain([0]).collect();
        if let Ok(name) = std::ffi::CStr::from_bytes_with_nul(&name) {
            sys::set_process_name(name);
        }
        rustix::process::umask(rustix::fs::Mode::empty());
        // A session of its own: a host terminal's signals never reach it. Fails only for a group leader.
        let _session = rustix::process::setsid();
    }

    fn run_all(&mut self, steps: &[Step]) -> Result<Vec<u32>, Failure> {
        let mut step_micros = Vec::with_capacity(steps.len());
        let mut before = Instant::now();
        for step in steps {
            self.run(step).map_err(|error| Failure::new(step.to_string(), &error))?;
            let now = Instant::now();
            step_micros.push(u32::try_from((now - before).as_micros()).unwrap_or(u32::MAX));
            before = now;
        }
        Ok(step_micros)
    }

    fn run(&mut self, step: &Step) -> io::Result<()> {
        match step {
            Step::AwaitIds => self.await_ids(),
            Step::FindPid => self.find_pid(),
            Step::AwaitHandoff => self.await_handoff(),
            Step::AwaitName => self.leave_namer(),
            Step::Attach { layer, at } => mounts::attach(self.take_layer(*layer)?.as_fd(), &at.resolve()?),
            Step::Root { at } => {
                self.held.push((MountName::Root, mounts::open(&at.resolve()?)?));
                Ok(())
            }
            Step::Mount { what, at, name } => self.mount(what, at, *name),
            Step::Place { what, at } => self.place(what, at),
            Step::PlaceRoot { mount, at } => mounts::attach(self.take_mount(*mount)?.as_fd(), &at.resolve()?),
            Step::Empty { at } => {
                let empty = mounts::new_empty()?;
                mounts::attach(empty.as_fd(), &at.resolve()?)?;
                self.empty = Some(empty);
                Ok(())
            }
            Step::Mask { at, missing } => self.mask(at, *missing),
            Step::ReadOnly { at } => self.make_read_only(at),
            Step::Setting { at, value } => self.set(at, value),
            Step::Network(end) => {
                self.network = network::make(end)?;
                Ok(())
            }
            Step::CloseDescriptors => self.close_descriptors(),
            Step::Seccomp { .. } => {
                let sockets = self.filter.install()?;
                if let Some(handoff) = &mut self.handoff {
                    handoff.sockets = sockets;
                }
                Ok(())
            }
            plain => run_plain(plain),
        }
    }

    fn await_ids(&mut self) -> io::Result<()> {
        let Some(from_spawner) = self.from_spawner.take() else { return Ok(()) };
        let (Go, descriptors) = match packet::receive(from_spawner.as_fd(), RecvFlags::empty()) {
            // The spawner abandoned this child and has told the daemon why.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => sys::exit_now(1),
            received => received?,
        };
        let mut descriptors = descriptors.into_iter();
        self.pidfd = descriptors.next();
        self.layers = descriptors.map(Some).collect();
        Ok(())
    }

    fn take_layer(&mut self, number: usize) -> io::Result<OwnedFd> {
        let unknown = || io::Error::new(io::ErrorKind::InvalidInput, format!("no layer {number}"));
        self.layers.get_mut(number).and_then(Option::take).ok_or_else(unknown)
    }

    fn take_mount(&mut self, number: usize) -> io::Result<OwnedFd> {
        if let Some(socket) = self.mounts_from_spawner.take() {
            self.mounts = match handed::receive(socket.as_fd(), self.n_mounts) {
                // As in `await_ids`.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => sys::exit_now(1),
                received => received?,
            };
        }
        let unknown = || io::Error::new(io::ErrorKind::InvalidInput, format!("no mount {number}"));
        self.mounts.get_mut(number).and_then(Option::take).ok_or_else(unknown)
    }

    fn held(&self, name: MountName) -> io::Result<BorrowedFd<'_>> {
        let held = self.held.iter().find(|(held, _)| *held == name);
        let missing = || io::Error::new(io::ErrorKind::InvalidInput, format!("{name:?} is not mounted yet"));
        held.map(|(_, mount)| mount.as_fd()).ok_or_else(missing)
    }

    fn make(&mut self, what: &NewMount) -> io::Result<OwnedFd> {
        match what {
            NewMount::Tmpfs { bytes, mode, flags } => mounts::new_tmpfs(*bytes, *mode, flags),
            NewMount::Proc => mounts::new_proc(),
            NewMount::Sys => match mounts::new_sys()? {
                Some(sys) => Ok(sys),
                None => {
                    self.sys_is_empty = true;
                    mounts::new_empty()
                }
            },
            NewMount::Pts(options) => mounts::new_pts(*options),
            NewMount::Copy { from, recursive, flags } => mounts::copy(from, *recursive, flags),
            NewMount::Staged(from) => mounts::take(&from.resolve()?),
            NewMount::Layer(number) => self.take_layer(*number),
            NewMount::Handed(number) => self.take_mount(*number),
        }
    }

    fn mount(&mut self, what: &NewMount, at: &MountPath, name: Option<MountName>) -> io::Result<()> {
        let target = mount_target::own_directory(self.held(at.mount)?, &at.path)?;
        let mount = self.make(what)?;
        mount_target::put_on(mount.as_fd(), target.as_fd())?;
        self.held.extend(name.map(|name| (name, mount)));
        Ok(())
    }

    fn place(&mut self, what: &NewMount, at: &str) -> io::Result<()> {
        let mount = self.make(what)?;
        let of_kernel = [MountName::Dev, MountName::Proc, MountName::Sys];
        let of_kernel: Vec<_> = of_kernel.into_iter().filter_map(|name| self.held(name).ok()).collect();
        mount_target::put(mount.as_fd(), self.held(MountName::Root)?, at, &of_kernel)
    }

    fn mask(&self, at: &MountPath, missing: Missing) -> io::Result<()> {
        let Some(target) = self.find_to_mask(at, missing)? else { return Ok(()) };
        let is_directory = FileType::from_raw_mode(fstat(&target)?.st_mode) == FileType::Directory;
        let blank = match (&self.empty, is_directory) {
            (Some(empty), true) => mounts::copy_at(empty.as_fd(), "", false, &[])?,
            (None, true) => {
                return Err(io::Error::new(io::ErrorKind::InvalidInput, "no empty directory yet"));
            }
            (_, false) => mounts::copy_at(self.held(MountName::Dev)?, "null", false, &[])?,
        };
        mount_target::put_on(blank.as_fd(), target.as_fd())
    }

    fn find_to_mask(&self, at: &MountPath, missing: Missing) -> io::Result<Option<OwnedFd>> {
        if at.mount == MountName::Sys && self.sys_is_empty {
            return Ok(None);
        }
        // Below the host's `/usr`, the masked path may be a mount of the host.
        let crossing = if at.mount == MountName::Usr { Crossing::Allowed } else { Crossing::Refused };
        match mount_target::find(self.held(at.mount)?, &at.path, OFlags::PATH, crossing) {
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) if missing == Missing::IsFine => Ok(None),
            found => Ok(Some(found?)),
        }
    }

    fn make_read_only(&self, at: &MountPath) -> io::Result<()> {
        let target = mount_target::find(self.held(at.mount)?, &at.path, OFlags::PATH, Crossing::Refused)?;
        // With the masks below it.
        let copy = mounts::copy_at(target.as_fd(), "", true, &[MountFlag::ReadOnly])?;
        mount_target::put_on(copy.as_fd(), target.as_fd())
    }

    fn set(&self, at: &MountPath, value: &str) -> io::Result<()> {
        let mount = self.held(at.mount)?;
        let setting = mount_target::find(mount, &at.path, OFlags::WRONLY, Crossing::Refused)?;
        fs::File::from(setting).write_all(value.as_bytes())
    }

    fn find_pid(&mut self) -> io::Result<()> {
        let stat = fs::read_to_string("/proc/self/stat")?;
        self.pid = parse_stat(&stat)
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "/proc/self/stat cannot be read"))?;
        self.network_namespace = rustix::fs::stat("/proc/self/ns/net")?.st_ino;
        Ok(())
    }

    fn await_handoff(&mut self) -> io::Result<()> {
        let Some(reply) = &self.reply else { return Ok(()) };
        let received = packet::receive::<HandingOver>(reply.as_fd(), RecvFlags::empty());
        let (HandingOver { has_oom_counter, has_memory }, descriptors) = match received {
            // The request was abandoned.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => sys::exit_now(1),
            received => received?,
        };
        let mut descriptors = descriptors.into_iter();
        let (Some(listener), Some(pid_file)) = (descriptors.next(), descriptors.next()) else {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "descriptors are missing"));
        };
        let ((pid, start_time), network) = (self.pid, self.network_namespace);
        rustix::io::write(pid_file, format!("{pid} {start_time} {network}\n").as_bytes())?;
        let oom_counter = if has_oom_counter { descriptors.next() } else { None };
        let memory_cgroup = if has_memory { descriptors.next() } else { None };
        let workload_cgroup = descriptors.collect();
        self.handoff = Some(Handoff {
            listener,
            workload_cgroup,
            memory_cgroup,
            oom_counter,
            rlimits: std::mem::take(&mut self.rlimits),
            sockets: None,
            internet: self.internet,
            network: std::mem::take(&mut self.network),
        });
        Ok(())
    }

    /// The process that stays behind is the last one here with the right to set the name. It does nothing else, and
    /// has ended, or does nothing but end, before a program of the workload starts; none can look into it.
    fn leave_namer(&mut self) -> io::Result<()> {
        if sys::fork()?.is_some() {
            return Ok(());
        }
        let Some(reply) = self.reply.take() else { sys::exit_now(1) };
        let only = reply.as_raw_fd() as u32;
        // The values that own these descriptors are never dropped: this process ends here.
        let below = if only > 3 { sys::close_range(3, only - 1) } else { Ok(()) };
        let closed = below.and_then(|()| sys::close_range(only + 1, u32::MAX));
        let not_dumpable = rustix::process::DumpableBehavior::NotDumpable;
        let closed = closed.and_then(|()| Ok(rustix::process::set_dumpable_behavior(not_dumpable)?));
        let answer = match closed.and_then(|()| take_name(&reply)) {
            Ok(()) => Reply::Done,
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => sys::exit_now(0),
            Err(error) => Reply::Failed(Failure::new(Step::AwaitName.name(), &error)),
        };
        drop(packet::send(reply.as_fd(), &answer, &[]));
        sys::exit_now(0)
    }

    fn close_descriptors(&mut self) -> io::Result<()> {
        self.from_spawner = None;
        self.layers.clear();
        self.mounts_from_spawner = None;
        self.mounts.clear();
        self.held.clear();
        self.empty = None;
        let handed = self.handoff.iter().flat_map(|handoff| {
            [Some(&handoff.listener), handoff.oom_counter.as_ref(), handoff.memory_cgroup.as_ref()]
                .into_iter()
                .chain(handoff.workload_cgroup.iter().chain(&handoff.network).map(Some))
        });
        let mut keep: Vec<u32> = [self.reply.as_ref(), self.pidfd.as_ref()]
            .into_iter()
            .chain(handed)
            .flatten()
            .map(|descriptor| descriptor.as_raw_fd() as u32)
            .collect();
        keep.sort_unstable();
        // 0, 1 and 2 have been `/dev/null` since the spawner began.
        let mut first = 3;
        for kept in keep {
            if kept > first {
                sys::close_range(first, kept - 1)?;
            }
            first = first.max(kept + 1);
        }
        sys::close_range(first, u32::MAX)
    }

    fn report_ready(&mut self, step_micros: Vec<u32>) {
        let (pid, start_time) = self.pid;
        let (Some(reply), Some(pidfd)) = (self.reply.take(), self.pidfd.take()) else { sys::exit_now(1) };
        let ready = Reply::Ready { pid, start_time, step_micros };
        // The request was abandoned, so nobody would ever stop this sandbox.
        if packet::send(reply.as_fd(), &ready, &[pidfd.as_fd()]).is_err() {
            sys::exit_now(1);
        }
    }

    fn fail(&self, failure: Failure) -> ! {
        if let Some(reply) = &self.reply {
            drop(packet::send(reply.as_fd(), &Reply::Failed(failure), &[]));
        }
        sys::exit_now(1)
    }
}

/// Waits for the sandbox's name, and sets it.
fn take_name(reply: &OwnedFd) -> io::Result<()> {
    let (Naming { hostname, files }, _none) = packet::receive(reply.as_fd(), RecvFlags::empty())?;
    rustix::system::sethostname(hostname.as_bytes())?;
    for (path, text) in files {
        let flags = OFlags::WRONLY | OFlags::TRUNC | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::open(&path, flags, rustix::fs::Mode::empty())?;
        fs::File::from(file).write_all(text.as_bytes())?;
    }
    Ok(())
}

/// Pid and start time from a line of `/proc/<pid>/stat`. The name in it may contain anything, parentheses too.
pub fn parse_stat(stat: &str) -> Option<(i32, u64)> {
    let pid = stat.split(' ').next()?.parse().ok()?;
    let after_name = stat.rsplit_once(')')?.1;
    // Field 22; the first after the name is field 3.
    let start_time = after_name.split_ascii_whitespace().nth(19)?.parse().ok()?;
    Some((pid, start_time))
}

/// Steps that need only the process itself.
fn run_plain(step: &Step) -> io::Result<()> {
    match step {
        Step::Unshare { namespaces } => sys::unshare(namespaces.iter().fold(0, |all, one| all | flag(*one))),
        Step::BecomeRoot => privileges::become_root(),
        Step::HideMounts => mounts::hide(),
        Step::Affinity { count } => limit_affinity(*count),
        Step::Directory { at, mode } => match rustix::fs::mkdir(at.resolve()?, (*mode).into()) {
            Err(Errno::EXIST) => Ok(()),
            made => Ok(made?),
        },
        Step::Overlay { at, lower, upper, work, short, flags } => {
            mounts::overlay(&at.resolve()?, lower, upper, work, &short.resolve()?, flags)
        }
        Step::Tmpfs { at, bytes, mode, flags } => mounts::tmpfs(&at.resolve()?, *bytes, *mode, flags),
        Step::HostDevices { at } => devices::show_hosts(&at.resolve()?),
        Step::Bind { from, at, flags } => {
            mounts::attach(mounts::copy(from, false, flags)?.as_fd(), &at.resolve()?)
        }
        Step::Expect { at, identity } => identity.check(mounts::open(&at.resolve()?)?.as_fd()),
        Step::MakePath { at } => {
            // If it cannot be made, a program that wants to start there gets the error.
            let _made = fs::create_dir_all(at);
            Ok(())
        }
        Step::Flags { at, flags } => sys::add_mount_flags(&at.resolve()?, flags, false),
        Step::Loopback => sys::loopback_up(),
        Step::Hostname { name } => Ok(rustix::system::sethostname(name.as_bytes())?),
        Step::Pivot { root } => mounts::pivot(&root.resolve()?),
        Step::Capabilities { keep } => privileges::keep_only(keep),
        Step::NoNewPrivileges => Ok(rustix::thread::set_no_new_privs(true)?),
        Step::NotDumpable => {
            Ok(rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable)?)
        }
        Step::AwaitIds
        | Step::FindPid
        | Step::AwaitHandoff
        | Step::AwaitName
        | Step::Attach { .. }
        | Step::Root { .. }
        | Step::Mount { .. }
        | Step::Place { .. }
        | Step::PlaceRoot { .. }
        | Step::Empty { .. }
        | Step::Mask { .. }
        | Step::ReadOnly { .. }
        | Step::Setting { .. }
        | Step::Network(_)
        | Step::CloseDescriptors
        | Step::Seccomp { .. } => {
            Err(io::Error::new(io::ErrorKind::InvalidInput, "this step is for a child only"))
        }
    }
}

fn flag(namespace: Namespace) -> i32 {
    match namespace {
        Namespace::Mount => libc::CLONE_NEWNS,
        Namespace::Network => libc::CLONE_NEWNET,
        Namespace::Ipc => libc::CLONE_NEWIPC,
        Namespace::Uts => libc::CLONE_NEWUTS,
        Namespace::Cgroup => libc::CLONE_NEWCGROUP,
    }
}

fn limit_affinity(count: u32) -> io::Result<()> {
    let allowed = sched_getaffinity(None)?;
    let mut chosen = CpuSet::new();
    (0..CpuSet::MAX_CPU)
        .filter(|cpu| allowed.is_set(*cpu))
        .take(count as usize)
        .for_each(|cpu| chosen.set(cpu));
    Ok(sched_setaffinity(None, &chosen)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stat_line_is_read_past_a_hostile_name() {
        let line = "42 (a) b) (c) S 1 1 1 0 -1 4194560 0 0 0 0 0 0 0 0 20 0 1 0 98765 0 0";
        assert_eq!(parse_stat(line), Some((42, 98765)));
        assert_eq!(parse_stat("42"), None);
    }

    /// A child under construction, with a directory in place of its `/proc`.
    fn child_with_proc<'a>(proc: &std::path::Path, filter: &'a Filter) -> Child<'a> {
        Child {
            reply: None,
            handoff: None,
            network: Vec::new(),
            from_spawner: None,
            pidfd: None,
            layers: Vec::new(),
            mounts_from_spawner: None,
            n_mounts: 0,
            mounts: Vec::new(),
            held: vec![(MountName::Proc, mounts::open(proc).unwrap())],
            sys_is_empty: false,
            empty: None,
            pid: (0, 0),
            network_namespace: 0,
            rlimits: Vec::new(),
            internet: InternetBudget { bytes: 0, tcp_socket: 0, other_socket: 0 },
            filter,
        }
    }

    #[test]
    fn a_wall_whose_place_is_missing_or_a_link_is_an_error() {
        let (proc, host) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::write(host.path().join("setting"), "kept").unwrap();
        std::os::unix::fs::symlink(host.path(), proc.path().join("directory")).unwrap();
        std::os::unix::fs::symlink(host.path().join("setting"), proc.path().join("setting")).unwrap();
        let filter = Filter::workload();
        let child = child_with_proc(proc.path(), &filter);
        for path in ["missing", "missing/setting", "directory", "directory/setting", "setting"] {
            let at = MountPath::new(MountName::Proc, path);
            assert!(child.find_to_mask(&at, Missing::Fails).is_err(), "mask {path}");
            assert!(child.make_read_only(&at).is_err(), "make {path} read-only");
            assert!(child.set(&at, "0").is_err(), "set {path}");
            assert!(child.find_to_mask(&at, Missing::IsFine).unwrap().is_none(), "{path}");
        }
        assert_eq!(fs::read_to_string(host.path().join("setting")).unwrap(), "kept");
        // An existing setting is found and written.
        fs::write(proc.path().join("real"), "").unwrap();
        let at = MountPath::new(MountName::Proc, "real");
        assert!(child.find_to_mask(&at, Missing::Fails).unwrap().is_some());
        child.set(&at, "0").unwrap();
        assert_eq!(fs::read_to_string(proc.path().join("real")).unwrap(), "0");
    }
}

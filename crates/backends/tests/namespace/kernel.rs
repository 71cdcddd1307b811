//! Resources that the kernel counts for nobody, for a user or for the whole host: a sandbox takes a bounded share of
//! each.

use std::{process::Command, sync::Arc};

use guest_protocol::{FailureKind, Request, Response};
use sandbox::{Backend as _, ByteSize, Capability, Instance, Limits, SandboxSpec};

use crate::world::{Client, Output, World, run, sh};

async fn python(instance: &dyn Instance, script: &str) -> Output {
    run(instance, &["/usr/bin/env", "python3", "-c", script]).await
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// The host user who owns the user namespace of a sandbox's guest.
fn owner_of_user_namespace(world: &World, id: &sandbox::SandboxId) -> u32 {
    let pid = std::fs::read_to_string(world.run_directory(id).join("pid")).unwrap();
    let pid = pid.split(' ').next().unwrap();
    // NS_GET_OWNER_UID
    let script = format!(
        "import fcntl, os, struct\nfd = os.open('/proc/{pid}/ns/user', os.O_RDONLY)\n\
         print(struct.unpack('I', fcntl.ioctl(fd, 0xb704, bytes(4)))[0])"
    );
    let told = Command::new("python3").args(["-c", &script]).output().unwrap();
    assert!(told.status.success(), "{told:?}");
    String::from_utf8_lossy(&told.stdout).trim().parse().unwrap()
}

pub(crate) async fn what_is_counted_per_user_is_the_sandboxs_own(world: Arc<World>) {
    let plan = world.plan();
    let instance = world.create(&plan).await;
    if is_root() {
        let map = python(&*instance, "print(open('/proc/self/uid_map').read().split()[1])").await.stdout;
        let owner = owner_of_user_namespace(&world, &plan.id);
        assert_eq!(owner.to_string(), map.trim());
        assert_ne!(owner, 0);
    }
    // Inotify instances end at the sandbox's own limit, long before the host's 128.
    let script = "import ctypes, errno\nlibc = ctypes.CDLL(None, use_errno=True)\nn = 0\n\
        while n < 40 and libc.inotify_init1(0) >= 0: n += 1\nprint(n, errno.errorcode[ctypes.get_errno()])";
    assert_eq!(python(&*instance, script).await.stdout, "32 EMFILE\n");
    let script = "print(open('/proc/sys/user/max_inotify_watches').read().strip())\n\
        print(open('/proc/sys/user/max_user_namespaces').read().strip())\n\
        try: open('/proc/sys/user/max_inotify_instances', 'w').write('1000')\n\
        except OSError as error: print('refused')";
    assert_eq!(python(&*instance, script).await.stdout, "65536\n0\nrefused\n");
    // A few of each work.
    let script = "import ctypes\nlibc = ctypes.CDLL(None, use_errno=True)\ntimer = ctypes.c_int()\n\
        print([libc.syscall(222, 1, None, ctypes.byref(timer)) for _ in range(5)])\n\
        print(libc.syscall(240, b'queue', 0o102, 0o600, None) >= 0)";
    if cfg!(target_arch = "x86_64") {
        assert_eq!(python(&*instance, script).await.stdout, "[0, 0, 0, 0, 0]\nTrue\n");
    }
    if !is_root() {
        let script = "import resource\nprint(resource.getrlimit(resource.RLIMIT_SIGPENDING)[1] <= 4096)\n\
            print(resource.getrlimit(12)[1] <= 409600)";
        assert_eq!(python(&*instance, script).await.stdout, "True\nTrue\n");
    }
    instance.stop().await.unwrap();
}

pub(crate) async fn netlink_sockets_are_few_and_small(world: Arc<World>) {
    let plan = world.plan();
    let instance = world.create(&plan).await;
    let interfaces = "import socket\nprint(socket.if_nameindex())";
    assert_eq!(python(&*instance, interfaces).await.stdout, "[(1, 'lo')]\n");
    let script = "import errno, socket\nkept = []\n\
        def fill():\n\
        \x20 try:\n    while len(kept) < 100: kept.append(socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0))\n\
        \x20 except OSError as error: return errno.errorcode[error.errno]\n\
        print(fill(), len(kept) <= 64, len(kept) >= 8)\n\
        before = kept[0].getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)\n\
        kept[0].setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 26)\n\
        print(kept[0].getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) == before)\n\
        kept.pop().close(); kept.pop().close(); n = len(kept); print(fill(), len(kept) - n)";
    let output = python(&*instance, script).await;
    assert_eq!(output.stdout, "ENOBUFS True True\nTrue\nENOBUFS 2\n", "{output:?}");
    // Many at once get no more, and later ones get one.
    let script = "import errno, socket, threading\nkept = []; refused = []; barrier = threading.Barrier(100)\n\
        def take():\n\
        \x20 barrier.wait()\n\
        \x20 try: kept.append(socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0))\n\
        \x20 except OSError as error: refused.append(errno.errorcode[error.errno])\n\
        threads = [threading.Thread(target=take) for _ in range(100)]\n\
        for thread in threads: thread.start()\n\
        for thread in threads: thread.join()\n\
        print(len(kept) <= 64, len(kept) + len(refused), set(refused))";
    let output = python(&*instance, script).await;
    assert_eq!(output.stdout, "True 100 {'ENOBUFS'}\n", "{output:?}");
    assert_eq!(python(&*instance, interfaces).await.stdout, "[(1, 'lo')]\n");
    instance.stop().await.unwrap();
}

pub(crate) async fn what_hosts_write_counts_as_the_sandboxs_memory(world: Arc<World>) {
    let limits = Limits { memory: Some(ByteSize::mib(48)), ..Limits::default() };
    let plan = world.plan_with(&SandboxSpec { limits, ..SandboxSpec::default() });
    let instance = world.create(&plan).await;
    let mut client = Client::connect(&*instance).await;
    let mib = |n: usize| n << 20;
    let written = |n: usize| Ok(Response::Written { bytes: mib(n) as u64 });
    assert_eq!(client.write("/tmp/one", mib(24)).await, written(24));
    assert_eq!(sh(&*instance, "stat -c %s /tmp/one").await.stdout, format!("{}\n", mib(24)));
    let can = world.backend.probe().await.unwrap();
    if can.has(Capability::MemoryLimit) {
        let usage = instance.usage().await.unwrap();
        assert!(usage.memory_bytes.is_some_and(|bytes| bytes >= mib(24) as u64), "{usage:?}");
        // No room is left for another, and the writer pays for trying.
        let failure = Client::connect(&*instance).await.write("/tmp/two", mib(40)).await.unwrap_err();
        assert_eq!(failure.kind, FailureKind::LimitReached, "{failure}");
        assert!(instance.usage().await.unwrap().memory_bytes.is_some_and(|bytes| bytes <= mib(48) as u64));
        // Removing needs no memory, and nothing is left of the second.
        let mut client = Client::connect(&*instance).await;
        let remove = Request::Remove { path: "/tmp/one".to_owned(), recursive: false };
        assert_eq!(client.ask(&remove).await, Response::Done);
        while !sh(&*instance, "ls -A /tmp").await.stdout.is_empty() {}
    }
    if can.has(Capability::Pause) {
        // The workload stands still, and hosts can still write.
        instance.pause().await.unwrap();
        assert_eq!(Client::connect(&*instance).await.write("/tmp/three", mib(1)).await, written(1));
        instance.resume().await.unwrap();
    }
    assert_eq!(sh(&*instance, "echo alive").await.stdout, "alive\n");
    instance.stop().await.unwrap();
}

/// Socket buffers that a sandbox with 64 MiB may have beside them: a quarter, and what the other end may hold.
const SOCKET_MIB: u64 = 16;

pub(crate) async fn buffers_of_sockets_are_held(world: Arc<World>) {
    let limits = Limits { memory: Some(ByteSize::mib(64)), ..Limits::default() };
    let plan = world.plan_with(&SandboxSpec { limits, ..SandboxSpec::default() });
    let instance = world.create(&plan).await;
    let filling = |accept: &str| {
        format!(
            "import errno, socket\n\
            server = socket.create_server(('127.0.0.1', 0), backlog=4000); kept = []; total = 0; ended = None\n\
            try:\n\
            \x20 while len(kept) < 600:\n\
            \x20   client = socket.create_connection(server.getsockname()); kept += [client{accept}]\n\
            \x20   client.setblocking(False)\n\
            \x20   try:\n      while total < 80 << 20: total += client.send(b'x' * 65536)\n\
            \x20   except BlockingIOError: pass\n\
            except OSError as error: ended = errno.errorcode[error.errno]\n\
            print(total >> 20, ended)"
        )
    };
    let unsent = "import errno, socket\nkept = []; total = 0; ended = None\n\
        try:\n\
        \x20 while total < 80 << 20:\n\
        \x20   kept.append(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))\n\
        \x20   total += kept[-1].sendto(b'x' * 60000, socket.MSG_MORE, ('127.0.0.1', 9))\n\
        except OSError as error: ended = errno.errorcode[error.errno]\n\
        print(total >> 20, ended)";
    // Accepted, not accepted, and unsent datagrams.
    for script in [filling(", server.accept()[0]"), filling(""), unsent.to_owned()] {
        let output = python(&*instance, &script).await;
        let (mib, ended) = output.stdout.trim().split_once(' ').unwrap_or_else(|| panic!("{output:?}"));
        assert_eq!(ended, "ENOBUFS", "{script}");
        assert!(mib.parse::<u64>().unwrap() <= SOCKET_MIB, "{mib} MiB: {script}");
    }
    // All of them were released, so a server works, with buffers that nobody can enlarge.
    let script = "import pathlib, socket\n\
        server = socket.create_server(('127.0.0.1', 0)); kept = []\n\
        for _ in range(50): kept += [socket.create_connection(server.getsockname()), server.accept()[0]]\n\
        kept[0].sendall(b'hello'); print(kept[1].recv(9))\n\
        settings = pathlib.Path('/proc/sys/net/ipv4')\n\
        print((settings / 'tcp_rmem').read_text().split()[2], (settings / 'tcp_fastopen').read_text().strip())\n\
        try: (settings / 'tcp_rmem').write_text('1 1 1')\nexcept OSError as error: print(error.strerror)";
    let output = python(&*instance, script).await;
    assert_eq!(output.stdout, "b'hello'\n65536 0\nRead-only file system\n", "{output:?}");
    instance.stop().await.unwrap();
}

pub(crate) async fn what_the_whole_host_shares_is_refused(world: Arc<World>) {
    let plan = world.plan();
    let instance = world.create(&plan).await;
    let script = "import ctypes, errno, socket, struct\nlibc = ctypes.CDLL(None, use_errno=True)\n\
        context = ctypes.c_ulong()\nnumber = 206 if ctypes.sizeof(ctypes.c_long) == 8 and \
        __import__('os').uname().machine == 'x86_64' else 0\n\
        print(libc.syscall(number, 8, ctypes.byref(context)), errno.errorcode[ctypes.get_errno()])\n\
        code = ctypes.create_string_buffer(struct.pack('HBBI', 6, 0, 0, 0))\n\
        program = struct.pack('HL', 1, ctypes.addressof(code))\n\
        for option in (26, 50, 51, 52):\n\
        \x20 try: socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).setsockopt(socket.SOL_SOCKET, option, program)\n\
        \x20 except OSError as error: print(option, errno.errorcode[error.errno])";
    let output = python(&*instance, script).await;
    assert_eq!(output.stdout, "-1 ENOSYS\n26 EPERM\n50 EPERM\n51 EPERM\n52 EPERM\n", "{output:?}");
    instance.stop().await.unwrap();
}

/// Calls of the 32-bit kernel have other numbers, which the filter does not know: `int 0x80` ends the process, and the
/// x32 calls, numbered from 0x40000000, are unknown.
pub(crate) async fn foreign_system_calls_are_refused(world: Arc<World>) {
    if !cfg!(target_arch = "x86_64") {
        println!("skipped: only x86-64 has them");
        return;
    }
    let plan = world.plan();
    let instance = world.create(&plan).await;
    let x32 = "import ctypes, errno\nlibc = ctypes.CDLL(None, use_errno=True)\n\
        print(libc.syscall(0x40000000 + 39), errno.errorcode[ctypes.get_errno()])";
    assert_eq!(python(&*instance, x32).await.stdout, "-1 ENOSYS\n");
    // mov eax, 20 (getpid); int 0x80; ret
    let i386 = "import ctypes, mmap\npage = mmap.mmap(-1, 4096, prot=7)\n\
        page.write(bytes([0xb8, 20, 0, 0, 0, 0xcd, 0x80, 0xc3]))\n\
        call = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(page)))\n\
        print('before', flush=True)\nprint('after', call())";
    let output = python(&*instance, i386).await;
    assert_eq!(output.stdout, "before\n", "{output:?}");
    assert!(output.report.signal.is_some(), "{output:?}");
    instance.stop().await.unwrap();
}

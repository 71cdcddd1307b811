//! Every kind of memory that a program can make the kernel hold. An attempt to take more than the sandbox's limit must
//! be stopped.

use std::{
    fs::File,
    io::{self, Write as _},
    net::{TcpListener, TcpStream, UdpSocket},
    os::{
        fd::{AsFd, BorrowedFd},
        unix::net::UnixStream,
    },
};

use crate::{
    attempts::{numbers, text},
    report::Report,
    settings::padded,
    sys::{self, Argument, call},
};

const PIECE: usize = 64 * 1024;
const PAGE: usize = 4096;

/// `memory KIND BYTES`: takes that much, or as much as it gets, and reports how much that was.
pub(crate) fn take(arguments: &[String]) -> Report {
    let [kind, bytes] = arguments else { return Report::skip("memory KIND BYTES") };
    let Ok(most) = bytes.parse::<u64>() else { return Report::skip("BYTES is not a number") };
    sys::raise_open_files();
    let mut report = Report::new();
    let taken = match kind.as_str() {
        "anonymous" => sys::take_anonymous(most as usize).map(|()| most),
        "tmp" => fill_file(File::create("/tmp/attack-memory"), most),
        "shm" => fill_file(File::create("/dev/shm/attack-memory"), most),
        "memfd" => fill_file(memfd(), most),
        "sysv-shm" => sys::take_shared_segment(most as usize).map(|()| most),
        "sysv-messages" => Ok(messages(most)),
        "sysv-semaphores" => Ok(semaphores(most)),
        "queues" => Ok(queues(most)),
        "pipes" => Ok(pipes(most)),
        "unix" => Ok(unix_sockets(most)),
        "tcp" => tcp(most),
        "tcp-unaccepted" => tcp_unaccepted(most),
        "udp" => udp(most),
        "udp-unsent" => udp_unsent(most),
        "netlink" => netlink(most),
        "page-tables" => sys::take_page_tables(most as usize / PAGE).map(|()| most),
        _ => return Report::skip("no such kind of memory"),
    };
    for path in ["/tmp/attack-memory", "/dev/shm/attack-memory"] {
        std::fs::remove_file(path).ok();
    }
    match taken {
        Ok(taken) => report.fact("taken", taken),
        Err(error) => {
            report.fact("taken", 0);
            report.fact("refused", error.to_string());
        }
    }
    report
}

/// Writes until refused.
fn fill_file(file: io::Result<File>, most: u64) -> io::Result<u64> {
    let (mut file, piece, mut taken) = (file?, [1; PIECE], 0);
    while taken < most && file.write_all(&piece).is_ok() {
        taken += PIECE as u64;
    }
    // Counted while it is held; the file goes with the sandbox.
    Ok(taken)
}

fn memfd() -> io::Result<File> {
    Ok(rustix::fs::memfd_create("attack", rustix::fs::MemfdFlags::empty())?.into())
}

fn pipes(most: u64) -> u64 {
    let (mut kept, mut taken) = (Vec::new(), 0);
    while taken < most {
        let Ok((read, write)) = io::pipe() else { break };
        rustix::pipe::fcntl_setpipe_size(&write, 1 << 20).ok();
        let filled = fill(write.as_fd(), most - taken);
        if filled == 0 {
            break;
        }
        taken += filled;
        kept.push((read, write));
    }
    taken
}

/// Writes without blocking until nothing more fits.
fn fill(descriptor: BorrowedFd<'_>, most: u64) -> u64 {
    let piece = [1; PIECE];
    rustix::fs::fcntl_setfl(descriptor, rustix::fs::OFlags::NONBLOCK).ok();
    let mut filled = 0;
    while filled < most {
        match rustix::io::write(descriptor, &piece) {
            Ok(n) if n > 0 => filled += n as u64,
            _ => break,
        }
    }
    filled
}

fn unix_sockets(most: u64) -> u64 {
    let (mut kept, mut taken) = (Vec::new(), 0);
    while taken < most {
        let Ok((near, far)) = UnixStream::pair() else { break };
        let filled = fill(near.as_fd(), most - taken);
        if filled == 0 {
            break;
        }
        taken += filled;
        kept.push((near, far));
    }
    taken
}

fn tcp(most: u64) -> io::Result<u64> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    let (mut kept, mut taken) = (Vec::new(), 0);
    while taken < most && kept.len() < MAX_SOCKETS {
        let Ok(near) = TcpStream::connect(address) else { break };
        let Ok((far, _)) = listener.accept() else { break };
        fill(near.as_fd(), most - taken);
        taken += sys::socket_memory(near.as_fd()) + sys::socket_memory(far.as_fd());
        kept.push((near, far));
    }
    Ok(taken)
}

/// Data that a server has received before it accepts the connection belongs to nobody yet.
fn tcp_unaccepted(most: u64) -> io::Result<u64> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    // The standard library's backlog is short.
    rustix::net::listen(&listener, i32::MAX)?;
    let address = listener.local_addr()?;
    let (mut kept, mut taken) = (Vec::new(), 0);
    while taken < most && kept.len() < MAX_SOCKETS {
        let Ok(near) = TcpStream::connect(address) else { break };
        taken += fill(near.as_fd(), most - taken);
        kept.push(near);
    }
    Ok(taken)
}

/// Datagrams that are begun (`MSG_MORE`) and never sent.
fn udp_unsent(most: u64) -> io::Result<u64> {
    let receiver = UdpSocket::bind("127.0.0.1:0")?;
    let address = receiver.local_addr()?;
    let (mut kept, mut taken) = (Vec::new(), 0);
    let begun = [1; 60_000];
    while taken < most && kept.len() < MAX_UNSENT {
        let Ok(sender) = UdpSocket::bind("127.0.0.1:0") else { break };
        match rustix::net::sendto(&sender, &begun, rustix::net::SendFlags::MORE, &address) {
            Ok(n) => taken += n as u64,
            Err(_) => break,
        }
        kept.push(sender);
    }
    Ok(taken)
}

/// Each holds less than a receiving socket.
const MAX_UNSENT: usize = 900;

/// Enough sockets of one kind for the requested memory.
const MAX_SOCKETS: usize = 600;

fn udp(most: u64) -> io::Result<u64> {
    let sender = UdpSocket::bind("127.0.0.1:0")?;
    let datagram = [1; 32_000];
    let (mut kept, mut taken) = (Vec::new(), 0);
    while taken < most && kept.len() < MAX_SOCKETS {
        let Ok(receiver) = UdpSocket::bind("127.0.0.1:0") else { break };
        rustix::net::sockopt::set_socket_recv_buffer_size(&receiver, 1 << 24).ok();
        let address = receiver.local_addr()?;
        let mut held = 0;
        loop {
            if sender.send_to(&datagram, address).is_err() {
                break;
            }
            let now = sys::socket_memory(receiver.as_fd());
            if now <= held || taken + now >= most {
                held = held.max(now);
                break;
            }
            held = now;
        }
        taken += held;
        kept.push(receiver);
    }
    Ok(taken)
}

/// Acknowledgements that nobody reads.
fn netlink(most: u64) -> io::Result<u64> {
    // NLMSG_NOOP with NLM_F_REQUEST | NLM_F_ACK, many in one piece.
    let mut message = Vec::new();
    message.extend(16_u32.to_ne_bytes());
    message.extend(1_u16.to_ne_bytes());
    message.extend(5_u16.to_ne_bytes());
    message.extend([0; 8]);
    let batch = message.repeat(500);
    let (mut kept, mut taken) = (Vec::new(), 0);
    while taken < most && kept.len() < MAX_SOCKETS {
        let words = [libc::AF_NETLINK.into(), (libc::SOCK_RAW | libc::SOCK_NONBLOCK).into(), 0];
        let Ok(socket) = numbers(libc::SYS_socket, words).map(sys::own) else { break };
        rustix::net::sockopt::set_socket_recv_buffer_size(&socket, 1 << 24).ok();
        let mut held = 0;
        while rustix::io::write(&socket, &batch).is_ok() {
            let now = sys::socket_memory(socket.as_fd());
            if now <= held || taken + now >= most {
                held = held.max(now);
                break;
            }
            held = now;
        }
        held = held.max(sys::socket_memory(socket.as_fd()));
        if held == 0 {
            break;
        }
        taken += held;
        kept.push(socket);
    }
    Ok(taken)
}

fn messages(most: u64) -> u64 {
    let (mut message, mut taken) = (vec![1_u8; 8 + 8192], 0);
    while taken < most {
        let words = [libc::IPC_PRIVATE.into(), i64::from(libc::IPC_CREAT | 0o600)];
        let Ok(queue) = numbers(libc::SYS_msgget, words) else { break };
        let before = taken;
        loop {
            let send = padded([
                Argument::Number(queue),
                Argument::Memory(&mut message),
                Argument::Number(8192),
                Argument::Number(libc::IPC_NOWAIT.into()),
            ]);
            if call(libc::SYS_msgsnd, send).is_err() || taken >= most {
                break;
            }
            taken += 8192;
        }
        if taken == before {
            break;
        }
    }
    taken
}

fn semaphores(most: u64) -> u64 {
    /// Semaphores of one set, each of which takes a cache line.
    const SET: i64 = 16_000;
    let mut taken = 0;
    while taken < most {
        let words = [libc::IPC_PRIVATE.into(), SET, i64::from(libc::IPC_CREAT | 0o600)];
        if numbers(libc::SYS_semget, words).is_err() {
            break;
        }
        taken += SET as u64 * 64;
    }
    taken
}

fn queues(most: u64) -> u64 {
    let (mut data, mut taken) = (vec![1_u8; 8192], 0);
    for number in 0.. {
        let (mut name, mut attributes) = (text(&format!("attack-{number}")), [0_u8; 64]);
        attributes[8..16].copy_from_slice(&10_i64.to_ne_bytes());
        attributes[16..24].copy_from_slice(&8192_i64.to_ne_bytes());
        let open = padded([
            Argument::Memory(&mut name),
            Argument::Number((libc::O_RDWR | libc::O_CREAT | libc::O_NONBLOCK).into()),
            Argument::Number(0o600),
            Argument::Memory(&mut attributes),
        ]);
        let Ok(queue) = call(libc::SYS_mq_open, open) else { break };
        for _ in 0..10 {
            let send = padded([
                Argument::Number(queue),
                Argument::Memory(&mut data),
                Argument::Number(8192),
                Argument::Number(0),
                Argument::Number(0),
            ]);
            if call(libc::SYS_mq_timedsend, send).is_ok() {
                taken += 8192;
            }
        }
        let mut name = text(&format!("attack-{number}"));
        call(libc::SYS_mq_unlink, padded([Argument::Memory(&mut name)])).ok();
        if taken >= most {
            break;
        }
    }
    taken
}

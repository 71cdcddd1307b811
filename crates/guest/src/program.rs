//! The guest as a program of its own, for sandboxes into which it cannot be forked.

use std::{
    ffi::OsString,
    fs,
    io::{self, Write as _},
    net::TcpListener,
    os::{fd::OwnedFd, unix::net::UnixListener},
    path::{Path, PathBuf},
    process::ExitCode,
};

use rustix::io::FdFlags;

use crate::{GuestConfig, InternetBudget, SocketGate, Transport, transport};

const USAGE: &str = "usage: guest (--listen <path> | --fd <number> | --tcp <address> --token-file <path> | --vsock <port> | \
    --stdio) [--pid-file <path>] [--enter <number>]... \
    [--home <path>] [--memory <number>] [--oom-counter <number>] [--rlimit <resource>:<soft>:<hard>]... \
    [--filter <bytes>:<tcp socket>:<other socket>]";

/// Shortest token: long enough not to be guessed over a network.
const MIN_TOKEN_BYTES: usize = 8;

/// Serves as the arguments say, and returns the exit code.
///
/// `--listen` makes the socket; `--fd` takes over a listening one. Over TCP, which others can reach too, each
/// connection must begin with the token. `--stdio` makes standard input and output one carried stream. The other
/// numbers are open files of the workload's cgroup, as [`GuestConfig`] describes them. `--pid-file` receives our pid
/// and start time before the socket is made. `--filter` confines us and all our children with `filter`, and sets the
/// budget of internet sockets.
pub fn run_program(arguments: impl Iterator<Item = OsString>, filter: InstallFilter) -> ExitCode {
    match configure(arguments, filter).and_then(crate::run) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // There may be no reader.
            writeln!(io::stderr(), "guest: {error}").ok();
            ExitCode::from(125)
        }
    }
}

/// Installs the syscall filter for this process. `None`: it cannot ask us about sockets here.
pub type InstallFilter = fn(InternetBudget) -> io::Result<Option<SocketGate>>;

fn usage() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, USAGE)
}

fn configure(
    mut arguments: impl Iterator<Item = OsString>,
    filter: InstallFilter,
) -> io::Result<GuestConfig> {
    let (mut transport, mut token, mut memory_cgroup, mut oom_counter) = (None, None, None, None);
    let (mut workload_cgroup, mut rlimits, mut home) = (Vec::new(), Vec::new(), None);
    let mut internet = None;
    while let Some(flag) = arguments.next() {
        let flag = flag.to_str().unwrap_or_default().to_owned();
        if flag == "--stdio" {
            transport = Some(transport::take_stdio()?);
            continue;
        }
        let value = arguments.next().ok_or_else(usage)?;
        match flag.as_str() {
            "--listen" => transport = Some(OwnedFd::from(UnixListener::bind(PathBuf::from(value))?).into()),
            "--fd" => transport = Some(descriptor(&value)?.into()),
            "--tcp" => transport = Some(tcp(&value)?),
            "--vsock" => transport = Some(crate::sys::listen_vsock(number(&value)?)?.into()),
            "--token-file" => token = Some(fs::read(PathBuf::from(value))?.trim_ascii().to_vec()),
            "--pid-file" => write_own_pid(&PathBuf::from(value))?,
            "--enter" => workload_cgroup.push(descriptor(&value)?),
            "--memory" => memory_cgroup = Some(descriptor(&value)?),
            "--oom-counter" => oom_counter = Some(descriptor(&value)?),
            "--home" => home = Some(value.into_string().map_err(|_not_text| usage())?),
            "--rlimit" => {
                let [resource, soft, hard] = numbers(&value)?;
                rlimits.push((resource.try_into().map_err(|_too_large| usage())?, soft, hard));
            }
            "--filter" => {
                let [bytes, tcp_socket, other_socket] = numbers(&value)?;
                internet = Some(InternetBudget { bytes, tcp_socket, other_socket });
            }
            _ => return Err(usage()),
        }
    }
    let transport = guarded(transport.ok_or_else(usage)?, token)?;
    // Last: the filter may forbid what was opened above.
    let sockets = internet.map(filter).transpose()?.flatten();
    // Only the spawner makes a network.
    let network = Vec::new();
    Ok(GuestConfig {
        transport,
        workload_cgroup,
        memory_cgroup,
        oom_counter,
        rlimits,
        home,
        sockets,
        network,
    })
}

fn tcp(address: &OsString) -> io::Result<Transport> {
    let listener = TcpListener::bind(address.to_str().unwrap_or_default())?;
    // The token is set below; with an empty one nobody gets in.
    Ok(Transport::Listener { socket: listener.into(), token: Some(Vec::new()) })
}

/// Refuses a transport that strangers could reach, unless it has a proper token.
fn guarded(transport: Transport, given: Option<Vec<u8>>) -> io::Result<Transport> {
    match transport {
        Transport::Listener { socket, token: Some(_needed) } => {
            let token = given.filter(|token| token.len() >= MIN_TOKEN_BYTES).ok_or_else(|| {
                let what =
                    format!("--tcp needs --token-file with a token of at least {MIN_TOKEN_BYTES} bytes");
                io::Error::new(io::ErrorKind::InvalidInput, what)
            })?;
            Ok(Transport::Listener { socket, token: Some(token) })
        }
        Transport::Listener { socket, token: None } => Ok(Transport::Listener { socket, token: given }),
        carried @ Transport::Carried { .. } => Ok(carried),
    }
}

fn number<T: std::str::FromStr>(value: &OsString) -> io::Result<T> {
    value.to_str().and_then(|text| text.parse().ok()).ok_or_else(usage)
}

fn descriptor(value: &OsString) -> io::Result<OwnedFd> {
    let descriptor = crate::adopt_descriptor(number(value)?)?;
    rustix::io::fcntl_setfd(&descriptor, FdFlags::CLOEXEC)?;
    Ok(descriptor)
}

/// Three numbers with colons between them.
fn numbers(value: &OsString) -> io::Result<[u64; 3]> {
    let words = value.to_str().unwrap_or_default().split(':');
    let numbers: Option<Vec<u64>> = words.map(|word| word.parse().ok()).collect();
    numbers.and_then(|numbers| numbers.try_into().ok()).ok_or_else(usage)
}

/// Our pid and start time, which together identify a process forever.
/// Writes the file in one step: whoever started us may write the same into it, and read it, at any time.
fn write_own_pid(file: &Path) -> io::Result<()> {
    let new = file.with_extension("new");
    fs::write(&new, own_pid()?)?;
    fs::rename(new, file)
}

fn own_pid() -> io::Result<String> {
    let stat = fs::read_to_string("/proc/self/stat")?;
    // Field 22 of all; the second one may contain spaces and ends at the last bracket.
    let start_time = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_ascii_whitespace().nth(19));
    let start_time = start_time.ok_or(io::ErrorKind::InvalidData)?;
    Ok(format!("{} {start_time}\n", std::process::id()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_that_make_no_sense_are_refused() {
        let refused = |words: &[&str]| {
            let error = configure(words.iter().map(OsString::from), |_internet| Ok(None)).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{words:?}: {error}");
        };
        refused(&[]);
        refused(&["--listen"]);
        refused(&["--fd", "minus one"]);
        refused(&["--rlimit", "7:1"]);
        refused(&["--filter", "1:2:3:4"]);
        refused(&["--nonsense", "1"]);
        refused(&["--tcp", "127.0.0.1:0"]);
        refused(&["--vsock", "many"]);
    }
}

//! The syscall filter of workloads: deny by default, in the spirit of Docker's.
//!
//! `seccompiler` installs it, but we lay the program out ourselves. Its generator compares with one syscall after the
//! other, and the kernel, which walks the program once for every syscall number when it is installed, takes most of a
//! millisecond for that. A search tree takes a tenth of it.

mod allowed;

use std::io;

use seccompiler::{BpfProgram, sock_filter};

pub use allowed::FILTER_NAME;

/// What becomes of one syscall.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Allow,
    /// As if the kernel did not have it: programs then use what was there before.
    Unknown,
    Refuse,
    Check(Check),
}

/// Syscalls that depend on an argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Check {
    /// No new namespaces.
    Clone,
    /// No pushing of input into a terminal.
    Ioctl,
    /// Execution domains that change nothing dangerous.
    Personality,
    /// Unix, IPv4, IPv6, and netlink for routes.
    Socket,
}

const LD_WORD: u16 = 0x20;
const JEQ: u16 = 0x15;
const JGT: u16 = 0x25;
const JGE: u16 = 0x35;
const JSET: u16 = 0x45;
const JA: u16 = 0x05;
const RET: u16 = 0x06;

const RET_ALLOW: u32 = 0x7fff_0000;
const RET_ERRNO: u32 = 0x0005_0000;
const RET_KILL_PROCESS: u32 = 0x8000_0000;

/// Offsets in `struct seccomp_data`.
const NUMBER: u32 = 0;
const ARCHITECTURE: u32 = 4;

#[cfg(target_arch = "x86_64")]
const OUR_ARCHITECTURE: u32 = 0xC000_003E;
#[cfg(target_arch = "aarch64")]
const OUR_ARCHITECTURE: u32 = 0xC000_00B7;

/// The low half of an argument. All checked arguments are ints for the kernel.
const fn argument(position: u32) -> u32 {
    16 + 8 * position
}

const fn instruction(code: u16, k: u32) -> sock_filter {
    sock_filter { code, jt: 0, jf: 0, k }
}

const fn jump(code: u16, k: u32, jt: u8, jf: u8) -> sock_filter {
    sock_filter { code, jt, jf, k }
}

const fn errno(number: i32) -> sock_filter {
    instruction(RET, RET_ERRNO | number as u32)
}

const fn allow() -> sock_filter {
    instruction(RET, RET_ALLOW)
}

/// A filter, compiled once in the spawner and installed in every child.
#[derive(Debug)]
pub(crate) struct Filter(BpfProgram);

impl Filter {
    pub(crate) fn workload() -> Self {
        Self(compile(&allowed::verdicts()))
    }

    /// Holds for the calling thread and everything that comes from it, for ever.
    pub(crate) fn install(&self) -> io::Result<()> {
        seccompiler::apply_filter(&self.0).map_err(|error| match error {
            seccompiler::Error::Prctl(error) | seccompiler::Error::Seccomp(error) => error,
            other => io::Error::other(other),
        })
    }
}

/// `verdicts`: sorted by number; a number that is not there is refused when it is below the highest, unknown above.
fn compile(verdicts: &[(u32, Verdict)]) -> BpfProgram {
    let highest = verdicts.last().map_or(0, |(number, _)| *number);
    let mut program = vec![
        instruction(LD_WORD, ARCHITECTURE),
        jump(JEQ, OUR_ARCHITECTURE, 1, 0),
        instruction(RET, RET_KILL_PROCESS),
        instruction(LD_WORD, NUMBER),
        // Also the x32 calls, which are numbered from 0x4000_0000.
        jump(JGT, highest, 0, 1),
        errno(libc::ENOSYS),
    ];
    program.extend(search(&runs(verdicts)));
    program
}

/// Neighbours with the same verdict as one: (first number, verdict).
fn runs(verdicts: &[(u32, Verdict)]) -> Vec<(u32, Verdict)> {
    let mut runs: Vec<(u32, Verdict)> = Vec::new();
    let mut next = 0;
    let mut push = |first, verdict| {
        if runs.last().is_none_or(|(_, last)| *last != verdict) {
            runs.push((first, verdict));
        }
    };
    for &(number, verdict) in verdicts {
        if number > next {
            push(next, Verdict::Refuse);
        }
        push(number, verdict);
        next = number + 1;
    }
    runs
}

fn search(runs: &[(u32, Verdict)]) -> BpfProgram {
    if let [(_, verdict)] = runs {
        return leaf(*verdict);
    }
    let (lower, upper) = runs.split_at(runs.len() / 2);
    let (below, above) = (search(lower), search(upper));
    let first_above = upper.first().map_or(0, |(number, _)| *number);
    let mut program = match u8::try_from(below.len()) {
        Ok(distance) => vec![jump(JGE, first_above, distance, 0)],
        // A conditional jump reaches 255 instructions.
        Err(_far) => vec![jump(JGE, first_above, 0, 1), instruction(JA, below.len() as u32)],
    };
    program.extend(below);
    program.extend(above);
    program
}

fn leaf(verdict: Verdict) -> BpfProgram {
    match verdict {
        Verdict::Allow => vec![allow()],
        Verdict::Unknown => vec![errno(libc::ENOSYS)],
        Verdict::Refuse => vec![errno(libc::EPERM)],
        Verdict::Check(Check::Clone) => vec![
            instruction(LD_WORD, argument(0)),
            jump(JSET, allowed::NAMESPACE_FLAGS, 0, 1),
            errno(libc::EPERM),
            allow(),
        ],
        Verdict::Check(Check::Ioctl) => {
            one_of(argument(1), &allowed::REFUSED_IOCTLS, errno(libc::EPERM), allow())
        }
        Verdict::Check(Check::Personality) => {
            one_of(argument(0), &allowed::PERSONALITIES, allow(), errno(libc::EPERM))
        }
        Verdict::Check(Check::Socket) => {
            let mut program = one_of(argument(0), &allowed::SOCKET_FAMILIES, allow(), instruction(JA, 0));
            program.extend([
                jump(JEQ, libc::AF_NETLINK as u32, 1, 0),
                errno(libc::EAFNOSUPPORT),
                instruction(LD_WORD, argument(2)),
                jump(JEQ, libc::NETLINK_ROUTE as u32, 1, 0),
                errno(libc::EPROTONOSUPPORT),
                allow(),
            ]);
            program
        }
    }
}

/// Compares one argument with values: `found` when it is among them, else `otherwise`.
fn one_of(position: u32, values: &[u32], found: sock_filter, otherwise: sock_filter) -> BpfProgram {
    let mut program = vec![instruction(LD_WORD, position)];
    for value in values {
        program.push(jump(JEQ, *value, 0, 1));
        program.push(found.clone());
    }
    program.push(otherwise);
    program
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a program as the kernel would.
    fn run(program: &[sock_filter], architecture: u32, number: u32, arguments: [u32; 3]) -> u32 {
        let word = |offset: u32| match offset {
            NUMBER => number,
            ARCHITECTURE => architecture,
            offset => arguments[((offset - 16) / 8) as usize],
        };
        let (mut pc, mut a) = (0, 0);
        loop {
            let op = &program[pc];
            pc += 1;
            let branch = |taken: bool| usize::from(if taken { op.jt } else { op.jf });
            match op.code {
                LD_WORD => a = word(op.k),
                JEQ => pc += branch(a == op.k),
                JGT => pc += branch(a > op.k),
                JGE => pc += branch(a >= op.k),
                JSET => pc += branch(a & op.k != 0),
                JA => pc += op.k as usize,
                RET => return op.k,
                other => panic!("{other:#x}"),
            }
        }
    }

    fn decide(number: i64, arguments: [u32; 3]) -> u32 {
        run(&Filter::workload().0, OUR_ARCHITECTURE, number as u32, arguments)
    }

    #[test]
    fn every_number_gets_its_verdict_from_the_tree() {
        let verdicts = allowed::verdicts();
        let program = compile(&verdicts);
        let highest = verdicts.last().unwrap().0;
        for number in 0..=highest + 50 {
            let got = run(&program, OUR_ARCHITECTURE, number, [0, 0, 0]);
            match verdicts.iter().find(|(known, _)| *known == number) {
                Some((_, Verdict::Allow)) => assert_eq!(got, RET_ALLOW, "{number}"),
                Some((_, Verdict::Unknown)) => assert_eq!(got, RET_ERRNO | libc::ENOSYS as u32),
                Some((_, Verdict::Refuse)) => assert_eq!(got, RET_ERRNO | libc::EPERM as u32),
                Some((_, Verdict::Check(_))) => {}
                None if number > highest => assert_eq!(got, RET_ERRNO | libc::ENOSYS as u32),
                None => assert_eq!(got, RET_ERRNO | libc::EPERM as u32, "{number}"),
            }
        }
        assert!(program.len() < 700, "{}", program.len());
    }

    #[test]
    fn arguments_decide() {
        let refused = RET_ERRNO | libc::EPERM as u32;
        assert_eq!(decide(libc::SYS_clone, [libc::CLONE_NEWUSER as u32, 0, 0]), refused);
        assert_eq!(decide(libc::SYS_clone, [(libc::CLONE_VM | libc::CLONE_THREAD) as u32, 0, 0]), RET_ALLOW);
        assert_eq!(decide(libc::SYS_ioctl, [0, libc::TIOCSTI as u32, 0]), refused);
        assert_eq!(decide(libc::SYS_ioctl, [0, libc::TIOCGWINSZ as u32, 0]), RET_ALLOW);
        assert_eq!(decide(libc::SYS_personality, [0xffff_ffff, 0, 0]), RET_ALLOW);
        assert_eq!(decide(libc::SYS_personality, [0x0040_0000, 0, 0]), refused);
        let no_family = RET_ERRNO | libc::EAFNOSUPPORT as u32;
        assert_eq!(decide(libc::SYS_socket, [libc::AF_VSOCK as u32, 0, 0]), no_family);
        assert_eq!(decide(libc::SYS_socket, [libc::AF_ALG as u32, 0, 0]), no_family);
        assert_eq!(decide(libc::SYS_socket, [libc::AF_INET6 as u32, 0, 0]), RET_ALLOW);
        assert_eq!(decide(libc::SYS_socket, [libc::AF_NETLINK as u32, 0, 0]), RET_ALLOW);
        let audit = libc::NETLINK_AUDIT as u32;
        assert_ne!(decide(libc::SYS_socket, [libc::AF_NETLINK as u32, 0, audit]), RET_ALLOW);
    }

    #[test]
    fn a_foreign_architecture_is_killed_and_x32_is_unknown() {
        let program = Filter::workload().0;
        assert_eq!(run(&program, 0x4000_0003, 1, [0; 3]), RET_KILL_PROCESS);
        let x32 = run(&program, OUR_ARCHITECTURE, 0x4000_0001, [0; 3]);
        assert_eq!(x32, RET_ERRNO | libc::ENOSYS as u32);
    }
}

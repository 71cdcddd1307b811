//! One interpreter: a process of the workload with a channel to us.

use std::{cell::Cell, os::fd::AsFd, rc::Rc};

use guest_protocol::{ExecStart, Response, StartFailure, StateLoss};

use super::{
    channel::Channel,
    context::Context,
    drivers::{Driver, Framing},
    languages,
};
use crate::{
    Guest,
    exec::{self, Ended, Newborn, Output, Refusal, Stream},
    processes, sys,
};

/// The process, as other tasks see it.
#[derive(Debug)]
pub(crate) struct Interpreter {
    /// Also the id of its session and its process group.
    pub(crate) pid: i32,
    /// How it ended, and the number of memory kills until then.
    pub(crate) ended: Cell<Option<(Ended, u64)>>,
    /// Why we killed it.
    killed_for: Cell<Option<StateLoss>>,
}

impl Interpreter {
    pub(crate) fn new(pid: i32) -> Self {
        Self { pid, ended: Cell::new(None), killed_for: Cell::new(None) }
    }

    /// Kills it with everything it started. Only the first reason counts.
    pub(crate) fn kill(&self, reason: StateLoss) {
        if self.ended.get().is_none() {
            self.killed_for.set(self.killed_for.get().or(Some(reason)));
            processes::kill_family(self.pid);
            // Right after the fork it has no session of its own yet, and so no family.
            sys::kill(self.pid, libc::SIGKILL).ok();
        }
    }

    /// Signals its group.
    pub(crate) fn signal(&self, signal: i32) {
        if self.ended.get().is_none() {
            sys::kill(-self.pid, signal).ok();
        }
    }

    /// How its state was lost, once it has ended. `oom_kills`: those during its last cell.
    pub(crate) fn loss(&self, ended: Ended, oom_kills: u64) -> StateLoss {
        match (self.killed_for.get(), ended.signal) {
            (Some(reason), _) => reason,
            (None, Some(libc::SIGKILL)) if oom_kills > 0 => StateLoss::OutOfMemory,
            (None, Some(_)) => StateLoss::Crashed,
            (None, None) => StateLoss::Exited,
        }
    }
}

/// An interpreter with our ends of its channel and pipes.
#[derive(Debug)]
pub(crate) struct Ends {
    pub(crate) interpreter: Rc<Interpreter>,
    pub(crate) channel: Channel,
    pub(crate) outputs: Vec<Output>,
}

/// Forks a child that becomes the interpreter. The error is the answer for the waiting requests.
pub(crate) fn fork(guest: &Guest, context: &Context) -> Result<(Ends, Newborn), Response> {
    let driver = context.driver;
    let program = driver.programs.first().copied().unwrap_or_default();
    let failed = |error: std::io::Error| {
        let message = format!("could not start {program} for {}: {error}", driver.language);
        exec::not_started(exec::reason_of(error.raw_os_error()), message)
    };
    let request = request(context, program);
    let mut command = exec::command(&request, &guest.rlimits).map_err(|refusal| match refusal {
        Refusal::NotStarted(answer) => answer,
        Refusal::Invalid(failure) => exec::not_started(StartFailure::Other, failure.message),
    })?;
    for other in driver.programs.iter().skip(1) {
        command
            .programs
            .extend(exec::candidates(other, exec::path_of(&context.start.env)).unwrap_or_default());
    }
    let open = || -> std::io::Result<(Ends, Newborn)> {
        let (channel, their_channel) = Channel::open(driver.framing)?;
        let stdin = exec::empty_stdin()?;
        let nowhere = exec::nowhere()?;
        let (stdout, their_stdout) = exec::our_read_end()?;
        let (stderr, their_stderr) = exec::our_read_end()?;
        let stdio = match driver.framing {
            Framing::Binary => [stdin.as_fd(), their_stdout.as_fd(), their_stderr.as_fd()],
            Framing::Shell => [their_stderr.as_fd(), their_stdout.as_fd(), nowhere.as_fd()],
        };
        let newborn = exec::spawn(guest, &request, command, stdio, Some(their_channel.as_fd()))?;
        let outputs = vec![
            Output::pipe(Rc::new(stdout), Stream::Stdout),
            Output::pipe(Rc::new(stderr), Stream::Stderr),
        ];
        let interpreter = Rc::new(Interpreter::new(newborn.pid));
        Ok((Ends { interpreter, channel, outputs }, newborn))
    };
    open().map_err(failed)
}

fn request(context: &Context, program: &str) -> ExecStart {
    let start = &context.start;
    let arguments = context.driver.arguments.iter().copied();
    let mut env = start.env.clone();
    if let Some((name, value)) = context.driver.tuning {
        env.entry(name.to_owned()).or_insert_with(|| value.to_owned());
    }
    env.extend(context.driver.variable.map(|(name, value)| (name.to_owned(), value.to_owned())));
    ExecStart {
        id: start.name.clone(),
        command: [program].into_iter().chain(arguments).map(str::to_owned).collect(),
        env,
        cwd: start.cwd.clone(),
        user: start.user.clone(),
        rlimits: start.rlimits.clone(),
        ..ExecStart::default()
    }
}

/// The same answer, naming the language if its program is missing.
pub(crate) fn explain(driver: &Driver, answer: Response) -> Response {
    match answer {
        Response::NotStarted { reason: StartFailure::NotFound, .. } => {
            let message = languages::missing(driver.language, driver.programs);
            exec::not_started(StartFailure::NotFound, message)
        }
        answer => answer,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_became_of_the_state_is_told_by_the_first_cause() {
        let ended = |code, signal| Ended { code, signal };
        let check = |killed_for, ended, oom_kills, expected| {
            let interpreter = Interpreter::new(1);
            interpreter.killed_for.set(killed_for);
            assert_eq!(interpreter.loss(ended, oom_kills), expected);
        };
        check(None, ended(Some(0), None), 0, StateLoss::Exited);
        check(None, ended(None, Some(libc::SIGSEGV)), 0, StateLoss::Crashed);
        check(None, ended(None, Some(libc::SIGKILL)), 0, StateLoss::Crashed);
        check(None, ended(None, Some(libc::SIGKILL)), 1, StateLoss::OutOfMemory);
        // One of its children was killed for lack of memory, and it exited by itself.
        check(None, ended(Some(1), None), 1, StateLoss::Exited);
        check(Some(StateLoss::Garbled), ended(None, Some(libc::SIGKILL)), 1, StateLoss::Garbled);
    }
}

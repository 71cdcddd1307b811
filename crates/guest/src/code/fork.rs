//! Branching a live interpreter: the driver forks, and the new process becomes a context of its own.

use std::{os::fd::AsFd, rc::Rc, time::Duration};

use guest_protocol::{ContextStart, Failure, FailureKind};
use tokio::{sync::oneshot, task::spawn_local, time::Instant};

use super::{
    channel::{Channel, ForkAnswer},
    context::Context,
    interpreter::{Ends, Interpreter},
    task::Task,
};
use crate::{
    exec::{self, Output, Stream},
    limits::FORKED_WITHIN,
    processes,
};

/// The new context, with the ignored hazards as sentences.
pub(super) type Forked = Result<(Rc<Context>, Vec<String>), Failure>;

/// A requested fork.
#[derive(Debug)]
pub(super) struct Order {
    pub(super) into: String,
    pub(super) force: bool,
    pub(super) answer: oneshot::Sender<Forked>,
}

/// A fork whose answer is pending.
pub(super) struct Forking {
    order: Order,
    channel: Channel,
    outputs: Vec<Output>,
    /// The pipe that the new interpreter's stdout must be, as `/proc` shows it.
    stdout: String,
}

impl Task {
    pub(super) fn fork(&mut self) {
        let (Some(order), Some(live)) = (self.context.change(|inner| inner.fork.take()), &mut self.live)
        else {
            return;
        };
        match ask(&live.channel, &self.context, &order) {
            Ok((channel, outputs, stdout)) => {
                live.forking = Some(Forking { order, channel, outputs, stdout });
                live.deadline = Some(Instant::now() + FORKED_WITHIN);
            }
            Err(error) => {
                let message = format!("could not ask context {} to fork: {error}", self.context.name());
                // The requester may be gone.
                order.answer.send(Err(Failure::new(FailureKind::LimitReached, message))).ok();
            }
        }
    }

    pub(super) fn has_forked(&mut self, answer: ForkAnswer) {
        let Some(forking) = self.live.as_mut().and_then(|live| {
            live.deadline = None;
            live.forking.take()
        }) else {
            return;
        };
        let Forking { order, channel, outputs, stdout } = forking;
        let forked = self.branch(&order.into, answer, channel, outputs, &stdout);
        order.answer.send(forked).ok();
        // Cells that arrived meanwhile are considered again.
        self.context.change(|_| ());
    }

    fn branch(
        &self,
        into: &str,
        answer: ForkAnswer,
        channel: Channel,
        outputs: Vec<Output>,
        stdout: &str,
    ) -> Forked {
        if !answer.ok {
            let reasons = if answer.reasons.is_empty() {
                "no reason was given".to_owned()
            } else {
                answer.reasons.join(" ")
            };
            let message =
                format!("context {} cannot be forked: {}", self.context.name(), exec::shown_text(&reasons));
            return Err(Failure::new(FailureKind::WrongState, message));
        }
        // The workload supplied the pid. It is accepted only if that process is our child, leads its session, has our
        // pipe and is not otherwise known to us.
        let is_known = self.guest.execs.has_pid(answer.pid) || self.guest.contexts.has_pid(answer.pid);
        if is_known || !processes::is_our_leader(answer.pid) || !processes::has_open(answer.pid, 1, stdout) {
            let message = format!("context {} forked into a process that is not there", self.context.name());
            return Err(Failure::new(FailureKind::WrongState, message));
        }
        let start = ContextStart { name: into.to_owned(), ..self.context.start.clone() };
        let parent = Some(self.context.name().to_owned());
        let context = Rc::new(Context::new(&self.guest, self.context.driver, start, parent));
        self.guest.contexts.add(&context)?;
        let interpreter = Rc::new(Interpreter::new(answer.pid));
        let task = Self::of(&self.guest, &context, Ends { interpreter, channel, outputs });
        spawn_local(task.run());
        Ok((context, answer.warnings))
    }

    /// Abandons a fork that takes too long; its descriptors are closed, so the new process would find nobody.
    pub(super) fn fork_is_late(&mut self, after: Duration) {
        let forking = self.live.as_mut().and_then(|live| live.forking.take());
        self.fork_is_over(forking, &format!("it did not answer within {} seconds", after.as_secs()));
        self.context.change(|_| ());
    }

    pub(super) fn fork_is_over(&self, forking: Option<Forking>, why: &str) {
        let waiting = self.context.change(|inner| inner.fork.take());
        for order in forking.map(|forking| forking.order).into_iter().chain(waiting) {
            let message = format!("context {} was not forked: {why}", self.context.name());
            order.answer.send(Err(Failure::new(FailureKind::WrongState, message))).ok();
        }
    }
}

/// Sends the driver the new interpreter's descriptors; keeps our ends.
fn ask(
    channel: &Channel,
    context: &Context,
    order: &Order,
) -> std::io::Result<(Channel, Vec<Output>, String)> {
    let (new_channel, their_channel) = Channel::open(context.driver.framing)?;
    let (stdout, their_stdout) = exec::our_read_end()?;
    let (stderr, their_stderr) = exec::our_read_end()?;
    let pipe = format!("pipe:[{}]", rustix::fs::fstat(&their_stdout)?.st_ino);
    let payload = [&[u8::from(order.force)], order.into.as_bytes()].concat();
    channel.send_with(
        b'F',
        &payload,
        &[their_channel.as_fd(), their_stdout.as_fd(), their_stderr.as_fd()],
    )?;
    let outputs =
        vec![Output::pipe(Rc::new(stdout), Stream::Stdout), Output::pipe(Rc::new(stderr), Stream::Stderr)];
    Ok((new_channel, outputs, pipe))
}

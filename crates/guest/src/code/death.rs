//! The end of an interpreter: its last output, the end of its cell, and the notice for the next one.

use guest_protocol::{Failure, FailureKind, StateLoss};

use super::{context::Context, task::Task};
use crate::{
    exec::{self, Chunk, Ended},
    limits::{MAX_LAST_WORDS_BYTES, OUTPUT_CHUNK_BYTES},
    processes,
};

impl Task {
    /// The interpreter was reaped: reads its last output, then ends its cell.
    pub(super) async fn bury(&mut self) {
        if let Some(live) = self.live.as_ref().filter(|_| self.context.ends_families()) {
            // Before the end is reported: the next cell must find the sandbox usable.
            processes::end_left_behind(live.interpreter.pid).await;
        }
        self.last_words().await;
        if let Some(owner) = self.owner() {
            exec::drain(&self.guest, &owner, &mut self.outputs).await;
        }
        self.tell_files().await;
        let Some(live) = self.live.take() else { return };
        let (ended, oom_kills) = live
            .interpreter
            .ended
            .get()
            .unwrap_or((Ended { code: None, signal: None }, self.guest.oom_kills()));
        self.fork_is_over(live.forking, "its interpreter ended");
        let (exec, was_ready) = self.context.change(|inner| {
            let was_ready = std::mem::take(&mut inner.is_ready);
            inner.interpreter = None;
            let first = if was_ready { None } else { inner.waiting.pop_front() };
            first.as_ref().inspect(|first| self.guest.contexts.let_go(first));
            (inner.running.clone().or(first.map(|first| first.exec)), was_ready)
        });
        let counted_before =
            exec.as_ref().or(self.last.as_ref()).map_or(oom_kills, |exec| exec.oom_kills_before());
        let loss = live.interpreter.loss(ended, oom_kills.saturating_sub(counted_before));
        if let Some(exec) = exec {
            if live.channel.lines.is_within_record() {
                self.guest.execs.push_rich(&exec, "\n".into());
            }
            self.end_cell(&exec, ended, Some(loss), oom_kills);
            self.last = Some(exec);
        }
        let said = if self.last.is_none() { self.left_unread() } else { String::new() };
        self.context.change(|inner| {
            inner.was_reset = std::mem::take(&mut inner.is_reset);
            if inner.was_reset {
                inner.lost = None;
                // Callers waiting for it to become ready would wait forever.
                inner.failure = (!was_ready).then(|| reset_early(&self.context));
            } else if was_ready {
                inner.lost = Some(sentence(self.context.name(), loss, ended));
            } else {
                inner.failure =
                    Some(Failure::new(FailureKind::WrongState, died_early(&self.context, ended, &said)));
            }
        });
    }

    /// Output printed while no cell could take it.
    fn left_unread(&self) -> String {
        let chunks = self.outputs.iter().map(|output| output.take(OUTPUT_CHUNK_BYTES));
        let texts = chunks.filter_map(|chunk| match chunk {
            Chunk::Bytes(bytes) => Some(String::from_utf8_lossy(&bytes).into_owned()),
            _ => None,
        });
        exec::shown_text(texts.collect::<Vec<_>>().concat().trim())
    }

    /// Reads what the driver wrote before its end; bounded, since other processes may hold its channel.
    async fn last_words(&mut self) {
        let mut n_bytes = 0;
        while n_bytes < MAX_LAST_WORDS_BYTES {
            let Some(live) = self.live.as_ref().filter(|live| !live.channel.is_deaf) else { return };
            let Chunk::Bytes(bytes) = live.channel.take() else { return };
            n_bytes += bytes.len();
            self.listen(&bytes).await;
        }
    }
}

/// Why the variables are gone.
fn sentence(context: &str, loss: StateLoss, ended: Ended) -> String {
    let how = match (loss, ended.signal, ended.code) {
        (StateLoss::OutOfMemory, ..) => "was killed because the sandbox ran out of memory".to_owned(),
        (StateLoss::Killed, ..) => "was killed".to_owned(),
        (StateLoss::Garbled, ..) => "was killed because its channel to the sandbox was broken".to_owned(),
        (_, Some(signal), _) => format!("was ended by signal {signal}"),
        (_, None, code) => format!("exited with code {}", code.unwrap_or(0)),
    };
    format!(
        "The variables of context {context} are gone: its interpreter {how}. This cell began in a new one."
    )
}

fn reset_early(context: &Context) -> Failure {
    let message = format!("context {} was reset before it was ready", context.name());
    Failure::new(FailureKind::WrongState, message)
}

fn died_early(context: &Context, ended: Ended, said: &str) -> String {
    let how = match (ended.signal, ended.code) {
        (Some(signal), _) => format!("was ended by signal {signal}"),
        (None, code) => format!("exited with code {}", code.unwrap_or(0)),
    };
    let said = if said.is_empty() { String::new() } else { format!(": {said}") };
    format!("the interpreter of context {} {how} before it was ready{said}", context.name())
}

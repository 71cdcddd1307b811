//! Reading an exec's ledger: every stream, poll and terminal is a cursor over it.

use std::sync::Arc;

use futures_util::{
    StreamExt,
    stream::{self, BoxStream},
};
use sandbox::{ExecId, Result};
use store::{Ledger, LedgerReader};
use tokio::sync::watch;

use crate::{
    Engine, Entry, Principal, SandboxRef, error,
    live::{LiveExec, Progress},
    shared::Shared,
};

/// Whether a reader waits for further entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Follow {
    No,
    Yes,
}

struct Cursor {
    ledger: Ledger,
    reader: LedgerReader,
    shared: Arc<Shared>,
    exec: ExecId,
    follow: Follow,
    /// Present until it is done.
    live: Option<Arc<LiveExec>>,
    /// Pieces of output that never reached the ledger, according to its record, and how many of them were reported.
    n_lost: u64,
    n_told: u64,
    is_over: bool,
}

impl Engine {
    /// Entries of an exec from number `from` on (1 is the first). Trimmed entries are reported; an unreadable one is an
    /// error in its place, and the rest follows.
    ///
    /// A follower's stream ends after `Exited`. Later output of processes left behind is read by asking again from the
    /// next number; that stream ends when nothing more can come.
    #[crate::boxed]
    pub async fn exec_entries(
        &self,
        who: &Principal,
        which: &SandboxRef,
        exec: &ExecId,
        from: u64,
        follow: Follow,
    ) -> Result<BoxStream<'static, Result<Entry>>> {
        let shared = self.core().find_to_look(who, which).await?;
        self.entries_of(shared, exec, from, follow).await
    }

    /// Like [`Engine::exec_entries`] from the first entry on, for a follower that must miss nothing: the exec's output
    /// waits for it, so that no entry is trimmed before it was taken. Dropping the stream lets the exec run on.
    #[crate::boxed]
    pub async fn exec_stream(
        &self,
        who: &Principal,
        which: &SandboxRef,
        exec: &ExecId,
    ) -> Result<BoxStream<'static, Result<Entry>>> {
        let shared = self.core().find_to_look(who, which).await?;
        let pace = shared.execs.get(exec).map(|live| live.pace(1));
        let entries = self.entries_of(shared, exec, 1, Follow::Yes).await?;
        let taken = entries.inspect(move |entry| {
            // Whoever asks for an entry has dealt with those before it.
            if let (Some(pace), Ok(entry)) = (&pace, entry) {
                pace.has_taken(entry.number.saturating_sub(1));
            }
        });
        Ok(taken.boxed())
    }

    pub(crate) async fn entries_of(
        &self,
        shared: Arc<Shared>,
        exec: &ExecId,
        from: u64,
        follow: Follow,
    ) -> Result<BoxStream<'static, Result<Entry>>> {
        let record = self.exec_record(&shared, exec).await?;
        let ledger = shared.ledger()?;
        let reader = ledger.reader(exec, from.max(1)).map_err(error::from_ledger)?;
        let reader = reader.reaching(record.last_entry.unwrap_or(0));
        let (exec, live, n_lost) = (exec.clone(), shared.execs.get(exec), record.n_lost);
        let cursor = Cursor { ledger, reader, shared, exec, follow, live, n_lost, n_told: 0, is_over: false };
        let entries = stream::unfold(cursor, Cursor::step);
        Ok(entries.take_until(self.core().closing.clone().cancelled_owned()).boxed())
    }
}

impl Cursor {
    async fn step(mut self) -> Option<(Result<Entry>, Self)> {
        let n_lost = self.live.as_ref().map_or(self.n_lost, |live| live.n_lost());
        let n_untold = n_lost.saturating_sub(self.n_told);
        if n_untold > 0 {
            self.n_told = n_lost;
            return Some((Err(error::lost_output(&self.exec, n_untold)), self));
        }
        if self.is_over {
            return None;
        }
        loop {
            // Subscribed before reading, so that no entry slips in between.
            let news = self.news();
            match self.reader.next() {
                Ok(Some(item)) => {
                    let entry = Entry::from(item);
                    self.is_over = self.follow == Follow::Yes && entry.is_end();
                    return Some((Ok(entry), self));
                }
                // Reported; the reader continues behind it when asked again.
                Err(error) => {
                    self.is_over = !matches!(error, store::LedgerError::Damaged { .. });
                    return Some((Err(error::from_ledger(error)), self));
                }
                Ok(None) if self.follow == Follow::No => return None,
                Ok(None) => match news {
                    News::Growing(mut last) => {
                        // An error means that the writer is gone; the next turn reads what it left.
                        last.changed().await.unwrap_or(());
                    }
                    News::NotOpen(mut progress) => progress.changed().await.unwrap_or(()),
                    News::NotSettled(mut is_settled) => {
                        drop(is_settled.wait_for(|settled| *settled).await);
                    }
                    News::Over => return None,
                },
            }
        }
    }

    fn news(&self) -> News {
        let is_settled = self.shared.is_settled.subscribe();
        // Read first: once it is true, an open exec is found below.
        let was_settled = *is_settled.borrow();
        // Subscribed first: it reports the opening and closing of the ledger.
        let progress = self.shared.execs.get(&self.exec).map(|exec| exec.progress.subscribe());
        match (self.ledger.subscribe(&self.exec), progress) {
            (Some(last), _) => News::Growing(last),
            (None, Some(progress)) => News::NotOpen(progress),
            (None, None) if !was_settled => News::NotSettled(is_settled),
            (None, None) => News::Over,
        }
    }
}

/// Where further entries may come from.
enum News {
    Growing(watch::Receiver<u64>),
    /// The ledger is about to be opened, or was just closed.
    NotOpen(watch::Receiver<Progress>),
    /// Only the guest knows whether it is open, and it is being asked.
    NotSettled(watch::Receiver<bool>),
    Over,
}

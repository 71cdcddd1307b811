//! A cursor over one exec's ledger.

use std::{mem, sync::Arc};

use sandbox::ExecId;

use super::{
    entry::{Entry, Item},
    error::LedgerError,
    segment::{self, Scanner, Step},
    state::Shared,
};

/// Reads entries in order, from any number. What is gone is told, never skipped in silence.
#[derive(Debug)]
pub struct LedgerReader {
    shared: Arc<Shared>,
    exec: ExecId,
    /// The next number to hand out.
    wanted: u64,
    /// The segment that is being read; `None` before the first. One that was trimmed meanwhile stays open to its end.
    scanner: Option<Scanner>,
    /// The last answer told of damage here; the next one goes on behind it.
    is_past_damage: bool,
    /// Number of an entry that is known to have been written.
    must_reach: u64,
}

/// How the reader goes on.
enum Turn {
    /// Nothing more now.
    Wait,
    GoOn,
    Tell(Item),
}

/// The accounting's facts about the place where the reader stands.
struct Surroundings {
    /// First number of the segment after this one. When there is one, this one does not grow any more.
    next: Option<u64>,
    /// Last number that an open writer has written.
    published: Option<u64>,
    was_trimmed: bool,
}

impl LedgerReader {
    pub(super) fn new(shared: Arc<Shared>, exec: ExecId, from: u64) -> Self {
        Self { shared, exec, wanted: from.max(1), scanner: None, is_past_damage: false, must_reach: 0 }
    }

    /// For a ledger that is known to have an entry of this number: without it, what is missing is told as damage.
    #[must_use]
    pub fn reaching(self, last: u64) -> Self {
        Self { must_reach: last, ..self }
    }

    /// The next item; `None` when there is nothing more now. Call again after the writer's watch has changed.
    ///
    /// After `Damaged`, calling again goes on behind the damaged place.
    #[expect(clippy::should_implement_trait, reason = "a cursor that may have more later is no iterator")]
    pub fn next(&mut self) -> Result<Option<Item>, LedgerError> {
        loop {
            match self.step()? {
                Turn::Wait => return self.end().map(|()| None),
                Turn::GoOn => {}
                Turn::Tell(item) => return Ok(Some(item)),
            }
        }
    }

    /// Nothing more is there. An error, once, where there was more.
    fn end(&mut self) -> Result<(), LedgerError> {
        let last = mem::take(&mut self.must_reach);
        if self.wanted > last {
            return Ok(());
        }
        if self.surroundings(0)?.published.is_some() {
            // Whoever writes it now may have more to tell.
            self.must_reach = last;
            return Ok(());
        }
        let (segment, offset) = match &self.scanner {
            Some(scanner) => (scanner.path().to_owned(), scanner.offset),
            None => (self.shared.exec_directory(&self.exec), 0),
        };
        let reason = format!("entries {} to {last} are missing", self.wanted);
        Err(LedgerError::Damaged { exec: self.exec.clone(), segment, offset, reason })
    }

    fn step(&mut self) -> Result<Turn, LedgerError> {
        let Some(scanner) = &mut self.scanner else { return self.enter(None) };
        let first = scanner.first;
        if mem::take(&mut self.is_past_damage) {
            return self.pass_damage();
        }
        let step = scanner.next()?;
        if let Step::Entry(entry) = step {
            return Ok(self.deliver(entry));
        }
        // What follows was true at some moment after we looked at the file, so the file is looked at once more.
        let around = self.surroundings(first)?;
        self.look_again(&around)
    }

    fn deliver(&mut self, entry: Entry) -> Turn {
        if entry.number < self.wanted {
            return Turn::GoOn;
        }
        self.wanted = entry.number + 1;
        Turn::Tell(Item::Entry(entry))
    }

    fn look_again(&mut self, around: &Surroundings) -> Result<Turn, LedgerError> {
        let Some(scanner) = &mut self.scanner else { return Ok(Turn::GoOn) };
        scanner.refresh();
        match (scanner.next()?, around.next) {
            (Step::Entry(entry), _) => Ok(self.deliver(entry)),
            (Step::End, None) if around.published.is_some_and(|last| scanner.expected <= last) => {
                self.damage("entries are missing at its end".to_owned())
            }
            (Step::End, None) => Ok(Turn::Wait),
            (Step::End, Some(next)) if next == scanner.expected || around.was_trimmed => {
                let first = scanner.first;
                self.enter(Some(first))
            }
            (Step::End, Some(_)) => self.damage("entries are missing at its end".to_owned()),
            (Step::Bad(reason), Some(_)) => self.damage(reason),
            (Step::Bad(reason), None) => match around.published {
                Some(published) if scanner.expected <= published => self.damage(reason),
                // The writer is within its write.
                Some(_) => Ok(Turn::Wait),
                None if scanner.has_entry_behind_damage()? => self.damage(reason),
                // A torn tail, for the next writer to cut.
                None => Ok(Turn::Wait),
            },
        }
    }

    fn surroundings(&self, first: u64) -> Result<Surroundings, LedgerError> {
        let state = self.shared.lock();
        let Some(exec) = state.find(&self.shared.directory, &self.exec)? else {
            return Ok(Surroundings { next: None, published: None, was_trimmed: true });
        };
        Ok(Surroundings {
            next: exec.segments.iter().map(|segment| segment.first).find(|next| *next > first),
            published: exec.published.as_ref().map(|published| *published.borrow()),
            was_trimmed: exec.segments.front().is_some_and(|oldest| oldest.first > first),
        })
    }

    /// Goes to the segment after the one that begins with `after`, or to the one that holds the wanted entry.
    fn enter(&mut self, after: Option<u64>) -> Result<Turn, LedgerError> {
        // Held until the file is open, so that no trim comes in between.
        let state = self.shared.lock();
        let found = state.find(&self.shared.directory, &self.exec)?.and_then(|exec| {
            let segments = &exec.segments;
            let found = match after {
                Some(after) => segments.iter().find(|segment| segment.first > after),
                None => {
                    segments.iter().rev().find(|segment| segment.first <= self.wanted).or(segments.front())
                }
            };
            found.copied()
        });
        let Some(segment) = found else { return Ok(Turn::Wait) };
        let path = segment::path(&self.shared.exec_directory(&self.exec), segment.first);
        self.scanner = match Scanner::open(path, segment.first) {
            Ok(scanner) => Some(scanner),
            // The mark of a trim that could not be written.
            Err(_) if segment.bytes == 0 => None,
            Err(error) => return Err(error),
        };
        drop(state);
        let turn = self.jump_to(segment.first);
        Ok(if self.scanner.is_none() && matches!(turn, Turn::GoOn) { Turn::Wait } else { turn })
    }

    /// Tells of damage where the scanner stands, unless nobody wants what was there.
    fn damage(&mut self, reason: String) -> Result<Turn, LedgerError> {
        let Some(scanner) = &mut self.scanner else { return Ok(Turn::GoOn) };
        let (offset, expected) = (scanner.offset, scanner.expected);
        if expected < self.wanted && scanner.skip_damage()? {
            if scanner.expected <= self.wanted {
                return Ok(Turn::GoOn);
            }
            scanner.stand_at(offset, expected);
        }
        self.is_past_damage = true;
        let segment = scanner.path().to_owned();
        Err(LedgerError::Damaged { exec: self.exec.clone(), segment, offset, reason })
    }

    fn pass_damage(&mut self) -> Result<Turn, LedgerError> {
        let Some(scanner) = &mut self.scanner else { return Ok(Turn::GoOn) };
        let first = scanner.first;
        if scanner.skip_damage()? {
            let next = scanner.expected;
            return Ok(self.jump_to(next));
        }
        if self.surroundings(first)?.next.is_some() {
            return self.enter(Some(first));
        }
        self.is_past_damage = true;
        Ok(Turn::Wait)
    }

    /// Everything between the wanted entry and `next` is gone.
    fn jump_to(&mut self, next: u64) -> Turn {
        if next <= self.wanted {
            return Turn::GoOn;
        }
        let item = Item::Trimmed { from: self.wanted, through: next - 1 };
        self.wanted = next;
        Turn::Tell(item)
    }
}

//! How many calls each caller has going.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use engine::Principal;
use sandbox::{ErrorKind, KeyId};

use super::envelope::Failure;

/// Calls of one caller at once, over all its sessions and transports. Each may hold a message of many megabytes.
const MAX_CALLS_EACH: usize = 256;

/// Bounded by the calls there are.
#[derive(Debug, Default)]
pub(crate) struct Turns(Mutex<HashMap<String, usize>>);

impl Turns {
    fn table(&self) -> MutexGuard<'_, HashMap<String, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A call may go on while the turn is held.
    pub(crate) fn take(self: &Arc<Self>, who: &Principal) -> Result<Turn, Failure> {
        // A key stands for itself, whatever its label.
        let caller = who.key.as_ref().map_or(&*who.name, KeyId::as_str);
        let mut table = self.table();
        let n_going = table.entry(caller.to_owned()).or_default();
        if *n_going >= MAX_CALLS_EACH {
            let message =
                format!("{MAX_CALLS_EACH} calls by this caller are in progress, which is the limit");
            return Err(
                Failure::new(ErrorKind::LimitReached, message).with_hint("Wait for earlier calls to finish.")
            );
        }
        *n_going += 1;
        Ok(Turn { turns: Arc::clone(self), caller: caller.to_owned() })
    }
}

#[derive(Debug)]
pub(crate) struct Turn {
    turns: Arc<Turns>,
    caller: String,
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut table = self.turns.table();
        if let Some(n_going) = table.get_mut(&self.caller) {
            *n_going -= 1;
            if *n_going == 0 {
                table.remove(&self.caller);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_caller_has_only_so_many_calls_at_once() {
        let turns = Arc::new(Turns::default());
        let (ana, bob) = (Principal::operator("ana"), Principal::operator("bob"));
        let mut held: Vec<_> = (0..MAX_CALLS_EACH).map(|_| turns.take(&ana).unwrap()).collect();
        let refused = turns.take(&ana).unwrap_err();
        let told = refused.worded(crate::mcp::words::hint);
        assert_eq!((told.code, told.retryable), ("limit_reached", true));
        assert_eq!(told.hint.as_deref(), Some("Wait for earlier calls to finish."));
        assert!(turns.take(&bob).is_ok(), "others have their own");
        held.pop();
        assert!(turns.take(&ana).is_ok());
        drop(held);
        assert!(turns.table().is_empty());
    }
}

//! The user's terminal: raw while a command owns it, and always restored afterwards.

use std::{
    io::{self, IsTerminal},
    sync::{Mutex, Once, PoisonError},
};

use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};
use sandbox::TerminalSize;

/// The terminal as it was before it became raw; the panic hook must reach it from anywhere.
static BEFORE: Mutex<Option<Termios>> = Mutex::new(None);

/// Raw mode on stdin until this is dropped. A panic restores the terminal too, before its message is printed.
#[derive(Debug)]
pub(crate) struct RawMode(());

impl RawMode {
    pub(crate) fn enter() -> io::Result<Self> {
        let before = tcgetattr(io::stdin())?;
        let mut raw = before.clone();
        raw.make_raw();
        restore_on_panic();
        *BEFORE.lock().unwrap_or_else(PoisonError::into_inner) = Some(before);
        // Created before the change, so that a failure half-way is undone as well.
        let guard = Self(());
        // Not `Flush`: text typed ahead is meant for the command.
        tcsetattr(io::stdin(), OptionalActions::Now, &raw)?;
        Ok(guard)
    }
}

impl RawMode {
    /// Changes nothing, but undoes at the end what a library does to the terminal meanwhile.
    pub(crate) fn of_library() -> io::Result<Self> {
        let before = tcgetattr(io::stdin())?;
        *BEFORE.lock().unwrap_or_else(PoisonError::into_inner) = Some(before);
        Ok(Self(()))
    }

    /// Not raw, but what is typed is not shown.
    pub(crate) fn without_echo() -> io::Result<Self> {
        let before = tcgetattr(io::stdin())?;
        let mut silent = before.clone();
        silent.local_modes.remove(LocalModes::ECHO);
        restore_on_panic();
        *BEFORE.lock().unwrap_or_else(PoisonError::into_inner) = Some(before);
        let guard = Self(());
        tcsetattr(io::stdin(), OptionalActions::Now, &silent)?;
        Ok(guard)
    }
}

impl Drop for RawMode {
    fn drop(&mut self) {
        restore();
    }
}

fn restore() {
    let before = BEFORE.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some(before) = before {
        // A closed terminal needs no restoring.
        tcsetattr(io::stdin(), OptionalActions::Now, &before).ok();
    }
}

fn restore_on_panic() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let next = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            restore();
            next(panic);
        }));
    });
}

/// Size of the user's terminal, if there is one.
pub(crate) fn size() -> Option<TerminalSize> {
    let found = tcgetwinsize(io::stdout()).or_else(|_not_there| tcgetwinsize(io::stdin())).ok()?;
    (found.ws_row > 0 && found.ws_col > 0).then_some(TerminalSize { rows: found.ws_row, cols: found.ws_col })
}

pub(crate) fn stdin_is_terminal() -> bool {
    io::stdin().is_terminal()
}

/// Watches typed bytes for ctrl-p ctrl-q, which leaves the command running and returns to the shell.
#[derive(Debug, Default)]
pub(crate) struct DetachKeys {
    is_half_typed: bool,
}

const CTRL_P: u8 = 0x10;
const CTRL_Q: u8 = 0x11;

/// The treatment of typed bytes.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Typed {
    Pass(Vec<u8>),
    Detach(Vec<u8>),
}

impl DetachKeys {
    pub(crate) fn filter(&mut self, bytes: &[u8]) -> Typed {
        let mut pass = Vec::with_capacity(bytes.len() + 1);
        for &byte in bytes {
            if std::mem::take(&mut self.is_half_typed) {
                if byte == CTRL_Q {
                    return Typed::Detach(pass);
                }
                pass.push(CTRL_P);
            }
            if byte == CTRL_P {
                self.is_half_typed = true;
            } else {
                pass.push(byte);
            }
        }
        Typed::Pass(pass)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn detach_keys_are_found_across_reads() {
        let mut keys = DetachKeys::default();
        assert_eq!(keys.filter(b"ab\x10"), Typed::Pass(b"ab".to_vec()));
        assert_eq!(keys.filter(b"\x11x"), Typed::Detach(Vec::new()));
    }

    #[test]
    fn half_a_sequence_is_passed_on_late() {
        let mut keys = DetachKeys::default();
        assert_eq!(keys.filter(b"\x10"), Typed::Pass(Vec::new()));
        assert_eq!(keys.filter(b"a\x10\x10b"), Typed::Pass(b"\x10a\x10\x10b".to_vec()));
        assert_eq!(keys.filter(b"x\x10\x11"), Typed::Detach(b"x".to_vec()));
    }
}

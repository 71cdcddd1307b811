//! The first message of a daemon that a command started: ready, or why not.

use std::{fs::File, io::Write as _, process::id};

use frontends::rest::v1::ErrorDetail;
use sandbox::Error;
use serde::{Deserialize, Serialize};

use super::lock::Held;

/// One line of JSON on stdout.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "camelCase")]
pub(crate) enum Readiness {
    Ready,
    /// Another daemon has the data directory. It may be starting or shutting down.
    Locked {
        pid: Option<i32>,
    },
    Failed {
        error: ErrorDetail,
    },
}

/// Reports to the command that started us, if one did.
#[derive(Debug)]
pub(super) struct Announcer {
    is_detached: bool,
}

impl Announcer {
    pub(super) fn new(is_detached: bool) -> Self {
        Self { is_detached }
    }

    pub(super) fn ready(&self) {
        self.say(&Readiness::Ready);
    }

    pub(super) fn failed(&self, error: &Error) {
        self.say(&match Held::of(error) {
            Some(Held { pid, .. }) => Readiness::Locked { pid },
            None => Readiness::Failed { error: detail(error) },
        });
    }

    fn say(&self, word: &Readiness) {
        if !self.is_detached {
            return;
        }
        let mut stdout = std::io::stdout().lock();
        // It does not matter if the command died meanwhile.
        serde_json::to_string(word).ok().and_then(|line| writeln!(stdout, "{line}").ok());
        stdout.flush().ok();
        // Close the pipe: its reader must not wait for more.
        if let Ok(null) = File::options().write(true).open("/dev/null") {
            rustix::stdio::dup2_stdout(null).ok();
        }
    }
}

fn detail(error: &Error) -> ErrorDetail {
    let whole = error.clone().reworded(|_message| crate::error::in_full(error));
    ErrorDetail::new(&whole, crate::error::hint(error), &format!("daemon-{}", id()))
}

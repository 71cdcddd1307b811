//! Holds something while the other side looks: one file says that it is held, another that it may be released.

use std::{
    fs, thread,
    time::{Duration, Instant},
};

/// Longest time that anything is held if nobody comes.
const MAX_HELD: Duration = Duration::from_secs(20);
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// `arguments` may name the file; then `<file>.ready` is written, and this waits until `<file>.go` is there.
pub(crate) fn hold(arguments: &[String]) {
    let Some(file) = arguments.first() else { return };
    if fs::write(format!("{file}.ready"), "ready").is_err() {
        return;
    }
    let (began, go) = (Instant::now(), format!("{file}.go"));
    while began.elapsed() < MAX_HELD && fs::metadata(&go).is_err() {
        thread::sleep(LOOK_EVERY);
    }
}

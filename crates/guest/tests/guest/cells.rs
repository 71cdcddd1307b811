//! Cells in contexts: what runs, what is kept, and how it ends.

use guest_protocol::{ExecEvent, Rich};

use crate::support::{TestGuest, cell, exited, kept};

#[test]
fn a_cell_finds_what_the_one_before_left() {
    let guest = TestGuest::start();
    let ran = guest.connect().run_cell(&cell("a", "python", "x = 6\nprint('six')"));
    assert_eq!((ran.stdout.as_str(), ran.stderr.as_str(), ran.report), ("six\n", "", exited(0)));
    assert_eq!(ran.rich, [kept()]);
    let ran = guest.connect().run_cell(&cell("b", "python", "print(x * 7)"));
    assert_eq!((ran.stdout.as_str(), ran.report), ("42\n", exited(0)));
    let ran = guest.connect().run_cell(&cell("c", "python", "1 / 0"));
    assert_eq!(ran.report, exited(1));
    assert!(
        matches!(&ran.rich[..], [Rich::Error { name, .. }, state] if name == "ZeroDivisionError" && *state == kept())
    );
    // The cell before is closed when the next begins.
    let mut host = guest.connect();
    host.attach("a", 1);
    assert_eq!(host.event().1, ExecEvent::Closed);
}

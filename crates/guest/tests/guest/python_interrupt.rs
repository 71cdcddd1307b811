//! Interrupts: they end the cell wherever it is, and the variables stay.

use guest_protocol::{Request, Rich, SignalScope};

use crate::{
    python_notebook::Notebook,
    support::{Ran, eventually, exited, pid_of, state},
};

const SIGINT: i32 = 2;
/// A process found asleep this many times in a row is idle.
const LOOKS: u32 = 10_000;

fn interrupted() -> Rich {
    Rich::State { kept: true, lost: None, interrupted: true }
}

impl Notebook {
    /// Interrupts a cell once it has printed `ready`.
    fn interrupt(&self, code: &str) -> Ran {
        let (id, host) = self.begin(code);
        drop(host);
        self.signal(&id);
        self.guest.connect().follow_cell(&id)
    }

    fn signal(&self, id: &str) {
        let request = Request::ExecSignal { id: id.to_owned(), signal: SIGINT, scope: SignalScope::Group };
        self.guest.connect().ask(&request).unwrap();
    }
}

#[test]
fn a_cell_is_interrupted_wherever_it_is() {
    let python = Notebook::new();
    python.prints("import asyncio, subprocess, threading, time\nkept = 'kept'");
    for code in [
        "print('ready')\nwhile True: pass",
        "print('ready')\ntime.sleep(1000)",
        "print('ready')\nthreading.Event().wait()",
        "subprocess.run(['sh', '-c', 'echo ready; exec sleep 1000'])",
        "print('ready')\nawait asyncio.sleep(1000)",
        "print('ready')\nasyncio.run(asyncio.sleep(1000))",
        "class Slow:\n    def __repr__(self):\n        print('ready')\n        while True: pass\nSlow()",
        "class Slow(Exception):\n    def __str__(self):\n        print('ready')\n        while True: pass\nraise Slow()",
        "print('ready')\nwhile True: display(1)",
    ] {
        let ran = python.interrupt(code);
        assert_eq!(ran.report, exited(130), "{code}");
        assert_eq!(*ran.state(), interrupted(), "{code}");
        let (name, _, traceback) = ran.error().unwrap();
        assert_eq!(name, "KeyboardInterrupt", "{code}");
        assert!(!traceback.contains("driver"), "{traceback}");
        assert_eq!(python.value("kept"), "'kept'", "{code}");
    }
}

#[test]
fn a_cell_may_clean_up_after_an_interrupt() {
    let python = Notebook::new();
    let ran = python.interrupt(
        "import time\ntry:\n    print('ready')\n    time.sleep(1000)\nfinally:\n    print('clean')",
    );
    assert_eq!((ran.stdout.as_str(), ran.report), ("clean\n", exited(130)));
    let code = "
import asyncio
async def work():
    try:
        print('ready')
        await asyncio.sleep(1000)
    finally:
        await asyncio.sleep(0)
        print('clean')
await work()";
    let ran = python.interrupt(code);
    assert_eq!((ran.stdout.as_str(), &ran.report), ("clean\n", &exited(130)));
    assert!(ran.error().unwrap().2.contains("in work"), "{ran:?}");
    let ran = python.interrupt(
        "try:\n    print('ready')\n    while True: pass\nexcept KeyboardInterrupt:\n    x = 'went on'\nx",
    );
    assert_eq!(
        (&ran.report, ran.result().map(|data| data["text/plain"].clone())),
        (&exited(0), Some("'went on'".into()))
    );
}

/// Whether the process has pending signals.
fn has_pending(pid: i32) -> bool {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let waiting = |line: &str| line.starts_with("SigPnd") || line.starts_with("ShdPnd");
    text.lines().filter(|line| waiting(line)).any(|line| !line.ends_with("\t0000000000000000"))
}

#[test]
fn an_interrupt_between_cells_does_nothing() {
    let python = Notebook::new();
    let pid: i32 = python.value("import os\nos.getpid()").parse().unwrap();
    for _ in 0..10 {
        rustix::process::kill_process(pid_of(pid), rustix::process::Signal::INT).unwrap();
        eventually("it has taken the signal and waits again", || {
            state(pid) == Some('S') && !has_pending(pid)
        });
        assert_eq!(python.value("5"), "5");
    }
    // One cell's own handler does not make the next cell uninterruptible.
    python.prints("import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)");
    assert_eq!(python.interrupt("print('ready')\nwhile True: pass").report, exited(130));
}

#[test]
fn an_interrupt_at_the_very_beginning_counts() {
    let python = Notebook::new();
    python.prints("x = 1");
    for _ in 0..20 {
        let start = python.start("while True: pass");
        python.guest.connect().start(&start);
        python.signal(&start.id);
        let ran = python.guest.connect().follow_cell(&start.id);
        assert_eq!((&ran.report, ran.state()), (&exited(130), &interrupted()));
    }
    assert_eq!(python.value("x"), "1");
}

#[test]
fn an_interrupt_of_the_first_cell_finds_the_interpreter_still_starting() {
    for _ in 0..5 {
        let python = Notebook::new();
        let start = python.start("while True: pass");
        python.guest.connect().start(&start);
        python.signal(&start.id);
        let ran = python.guest.connect().follow_cell(&start.id);
        assert_eq!((&ran.report, ran.state()), (&exited(130), &interrupted()), "{ran:?}");
        assert_eq!(python.value("5"), "5");
    }
}

#[test]
fn an_interrupt_leaves_no_half_record() {
    let python = Notebook::new();
    let pid = python.value("import os\nx = 'x' * 4_000_000\nos.getpid()").parse().unwrap();
    let (id, host) = python.begin("print('ready')\nwhile True: display({'text/html': x}, raw=True)");
    // Nobody reads the records, so eventually it is stuck in the middle of one.
    drop(host);
    let mut n_asleep = 0;
    eventually("the interpreter waits for room", || {
        n_asleep = if state(pid) == Some('S') { n_asleep + 1 } else { 0 };
        n_asleep == LOOKS
    });
    python.signal(&id);
    let ran = python.guest.connect().follow_cell(&id);
    assert_eq!((&ran.report, ran.state()), (&exited(130), &interrupted()));
    assert_eq!(ran.error().map(|error| error.0).as_deref(), Some("KeyboardInterrupt"));
}
